//! P5: throughput by the length of a barrier.

use super::by_barrier::{figure, measured};
use super::verdicts;
use super::world::World;
use crate::contender::{DISK_REPLACEMENT, GROUP_COMMIT, IN_PLACE_UNLIMITED};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};

/// The paper's Figure 5.
pub(crate) struct Barriers(pub(crate) World);

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
        Some(match self.0 {
            World::Native => {
                "the paper's bandwidth of 1.5 GB/s binds here, and did not there: transactions take a tenth of the \
                 paper's time or less, and In-Place stores each change twice. A new order changes the most. With \
                 unlimited bandwidth In-Place is ahead in all workloads"
            }
            World::Simulated => {
                "the paper's bandwidth of 1.5 GB/s binds here, and did not there: transactions take a tenth of the \
                 paper's time or less, and In-Place stores each change twice. On the simulated processor of the \
                 paper, with the fewest barriers, it reaches 0.54, 0.61 and 0.40 times the throughput of \
                 Disk-Replacement at 0 us with TATP updates, TPC-B and new orders, and 1.45, 1.19 and 1.16 times with \
                 unlimited bandwidth. With 1.5 GB/s, TATP does 767,000 updates/s with barriers of 0 us and 1,291,000 \
                 with barriers of 1 us; the reason was not examined. The number of dirty pages makes no difference to \
                 the throughput of Disk-Replacement"
            }
        })
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P5", "P5m");
        let measured = measured(context, self.0)?;
        let (mut setting, mut figures, mut checks) = (measured.setting, Vec::new(), Vec::new());
        for (workload, series) in measured.curves {
            checks.extend(verdicts::at_no_barrier(workload, &series));
            setting.push(format!(
                "{workload}: if only barriers took time, In-Place with the fewest barriers would have {:.2} times the \
                 throughput of Disk-Replacement at 0 us, and be ahead up to {:.2} us.",
                verdicts::ratio_at_zero(&series, IN_PLACE_UNLIMITED.name),
                verdicts::break_even_of(&series, IN_PLACE_UNLIMITED.name, DISK_REPLACEMENT)
            ));
            setting.push(format!(
                "{workload}: Group Commit has {:.2} times the throughput of Disk-Replacement at 0 us.",
                verdicts::ratio_at_zero(&series, GROUP_COMMIT.name)
            ));
            figures.push(figure(id, workload, series));
        }
        Ok(Findings { setting, figures, checks })
    }
}
