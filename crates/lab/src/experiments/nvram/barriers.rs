//! P5: throughput by the length of a barrier.

use super::measure::{curves, near_instant};
use super::verdicts;
use super::world::World;
use crate::contender::{CONTENDERS, DISK_REPLACEMENT, IN_PLACE_UNLIMITED};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Shape};

/// The paper's Figure 5.
pub(crate) struct Barriers(pub(crate) World);

/// Microseconds.
const BARRIERS: &[f64] = &[0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0];

const WORKLOADS: [&str; 3] = ["tatp:update-location", "tpcb", "tpcc:new-order"];

impl Experiment for Barriers {
    fn about(&self) -> About {
        About {
            id: self.0.id("P5", "P5m"),
            title: "throughput of the schemes with persist barriers that take no time, and up to 5 us",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 5",
            world: self.0.name(),
            found: "without barrier delays In-Place Updates has up to 1.5 times the throughput of NVRAM \
                    Disk-Replacement",
            wanted: "at 0 us In-Place at least 1.2 times Disk-Replacement that recovers within 100 ms; the one that \
                     flushes lazily is drawn beside it",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "the paper's bandwidth of 1.5 GB/s binds here, and did not there: transactions take a tenth of the \
             paper's time or less, and In-Place stores each change twice. On the simulated processor of the paper, \
             with the fewest barriers, it reaches 0.57, 0.57 and 0.42 times the throughput of Disk-Replacement at 0 \
             us with TATP updates, TPC-B and new orders, and 1.41, 1.14 and 1.05 times with unlimited bandwidth. The \
             reservations of bandwidth contend, too: TATP does 766,000 updates/s with barriers of 0 us, and \
             1,084,000 with barriers of 1 us, which keep the threads apart. The log of Disk-Replacement scales \
             better than the one of the paper's time, and its flushing threads have contexts to spare: the number \
             of dirty pages makes no difference to its throughput",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P5", "P5m");
        let ground = self.0.ground(context);
        let barriers = context.pick(BARRIERS, &[0.0, 1.0, 5.0], &[0.0, 5.0]);
        let workloads = context.pick(&WORKLOADS[..], &WORKLOADS, &WORKLOADS[1..2]);
        let points = ground.rounds() * (CONTENDERS.len() + 1) * barriers.len();
        context.expect(workloads.len() * (ground.dirty_pages().len() + points));
        let (mut setting, mut figures, mut checks) = (ground.setting(), Vec::new(), Vec::new());
        for &workload in workloads {
            context.prepare(&format!("populating {workload}"));
            let site = ground.site(workload)?;
            let (tuned, what) = near_instant(context, (workload, &*site), ground.dirty_pages())?;
            setting.push(what);
            let mut contenders = vec![tuned];
            contenders.extend_from_slice(CONTENDERS);
            let series = curves(context, (workload, &*site), ground.rounds(), &contenders, barriers)?;
            context.prepare("auditing");
            site.audit()?;
            checks.extend(verdicts::at_no_barrier(workload, &series));
            setting.push(format!(
                "{workload}: if only barriers took time, In-Place with the fewest barriers would have {:.2} times the \
                 throughput of Disk-Replacement at 0 us, and be ahead up to {:.2} us.",
                verdicts::ratio_at_zero(&series, IN_PLACE_UNLIMITED.name),
                verdicts::named(&series, IN_PLACE_UNLIMITED.name)
                    .zip(verdicts::named(&series, DISK_REPLACEMENT))
                    .map_or(0.0, |(unlimited, other)| verdicts::break_even(unlimited, other))
            ));
            figures.push(Figure {
                name: format!("{id}-{}", workload.replace(':', "-")),
                title: format!("Throughput by the length of a persist barrier, {workload}"),
                x: Axis::linear("persist barrier (us)"),
                y: Axis::linear("throughput (thousands of transactions/s)"),
                shape: Shape::Lines,
                series,
            });
        }
        Ok(Findings { setting, figures, checks })
    }
}
