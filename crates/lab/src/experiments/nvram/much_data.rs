//! P5g: the schemes beside each other with 0.5 to 1.2 GB of data, with and without barriers that
//! take time.
//!
//! In a small database, most commits change pages that are dirty already. Then a cleaner that keeps
//! recovery short has little to do, and Disk-Replacement pays little for it.

use super::by_barrier::figure;
use super::ground::Ground;
use super::measure::{SETTINGS, curves, near_instant, points};
use super::native::Native;
use super::verdicts;
use crate::contender::{GROUP_COMMIT_FEWEST, IN_PLACE_FEWEST};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};

/// Figure 5 of the paper at both its ends, with the fewest barriers.
pub(crate) struct MuchData;

/// Microseconds.
const BARRIERS: &[f64] = &[0.0, 5.0];

const WORKLOADS: [&str; 2] = ["tatp:update-location", "tpcb"];

impl Experiment for MuchData {
    fn about(&self) -> About {
        About {
            id: "P5g",
            title: "throughput of the schemes with 0.5 to 1.2 GB of data and the fewest barriers, of 0 and 5 us",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 5",
            world: "native",
            found: "without barrier delays In-Place Updates has up to 1.5 times the throughput of NVRAM \
                    Disk-Replacement; NVRAM Group Commit loses little throughput up to 5 us",
            wanted: "at 0 us In-Place and Group Commit at least 1.2 times Disk-Replacement that recovers within \
                     100 ms; Group Commit flat within 10 % up to 5 us; for TPC-B at least 3 times In-Place at 5 us",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let ground = Native::with_much_data(context);
        let steps = ground.dirty_pages().len() + points(ground.rounds(), 3, BARRIERS);
        context.expect(WORKLOADS.len() * steps);
        let (mut setting, mut figures, mut checks) = (ground.setting(), Vec::new(), Vec::new());
        setting.push(SETTINGS.to_owned());
        for workload in WORKLOADS {
            context.prepare(&format!("populating {workload}"));
            let site = ground.site(workload)?;
            let (tuned, what) = near_instant(context, &ground, (workload, &*site))?;
            setting.push(what);
            let contenders = [tuned, IN_PLACE_FEWEST, GROUP_COMMIT_FEWEST];
            let series = curves(context, (workload, &*site), ground.rounds(), &contenders, BARRIERS)?;
            context.prepare("auditing");
            site.audit()?;
            checks.extend(verdicts::with_fewest_barriers(workload, &series));
            figures.push(figure("P5g", workload, series));
        }
        Ok(Findings { setting, figures, checks })
    }
}
