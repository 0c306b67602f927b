//! P1: the time of recovery by the rate at which pages are flushed, and what the log costs.

use super::ground::{Interrupted, Run};
use super::verdicts;
use super::world::World;
use crate::contender::{
    Contender, GROUP_COMMIT, IN_PLACE, IN_PLACE_FEWEST, IN_PLACE_UNLIMITED, LAZY, disk_replacement,
};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Figure 1.
pub(crate) struct Recovery(pub(crate) World);

const WORKLOAD: &str = "tpcb";

/// The verdict is about the first; the next two show what the barriers and what the bandwidth cost.
const WITHOUT_LOG: [Contender; 4] = [IN_PLACE, IN_PLACE_FEWEST, IN_PLACE_UNLIMITED, GROUP_COMMIT];

impl Experiment for Recovery {
    fn about(&self) -> About {
        About {
            id: self.0.id("P1", "P1m"),
            title: "recovery time and throughput by the number of dirty pages, and without a log, TPC-B",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 1",
            world: self.0.name(),
            found: "recovery becomes near-instant as pages are flushed faster, while throughput stays bound by the \
                    processors; without a log it is 1.5 times as high",
            wanted: "with some number of dirty pages recovery takes at most a tenth of the time at 0.7 of the \
                     throughput or more; without a log at least 1.2 times the best of these",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(match self.0 {
            World::Native => {
                "the paper's bandwidth of 1.5 GB/s binds In-Place, which stores each change twice: in one run it had \
                 1.15 times the throughput of the best quick recovery with the fewest barriers, and 2.10 times with \
                 unlimited bandwidth. The paper's transactions take several times as long, so its memory was not busy. \
                 The cleaner shares two processors with the transactions, which dirty pages as fast as it writes them: \
                 thousands are dirty at the end, however few are wanted, so that recovery is near the limit of a \
                 tenth. Each point is one measurement: four runs had 0.61 to 0.78 and 0.45 to 1.00 for the two parts"
            }
            World::Simulated => {
                "runs are too short there for a long recovery: 14 ms lazily, and 11 ms whatever the number of dirty \
                 pages"
            }
        })
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P1", "P1m");
        let ground = self.0.ground(context);
        let few = ground.dirty_pages();
        context.expect(few.len() + 1 + WITHOUT_LOG.len());
        context.prepare("populating");
        let site = ground.site(WORKLOAD)?;
        let lazy = context.measure("flushing lazily".to_owned(), || site.interrupt(LAZY, Run::Long))?;
        let mut wal = Vec::new();
        for &pages in few {
            wal.push(
                context
                    .measure(format!("{pages} dirty pages"), || site.interrupt(disk_replacement(pages), Run::Long))?,
            );
        }
        let mut without_log = Vec::new();
        for contender in WITHOUT_LOG {
            without_log.push(context.measure(contender.name.to_owned(), || site.interrupt(contender, Run::Long))?);
        }
        context.prepare("auditing");
        site.audit()?;

        let all: Vec<&Interrupted> = std::iter::once(&lazy).chain(&wal).collect();
        let millis = |run: &Interrupted| run.recovery * 1e3;
        let of = |runs: &[&Interrupted], x: fn(&Interrupted) -> f64| -> Vec<(f64, f64)> {
            runs.iter().map(|run| (x(run), millis(run))).collect()
        };
        let figure = |name: String, title: &str, x: &str, series| Figure {
            name,
            title: title.to_owned(),
            x: Axis::linear(x),
            y: Axis::linear("recovery (ms)"),
            shape: Shape::Lines,
            series,
        };
        let mut by_throughput = vec![Series::ours("write-ahead log", of(&all, |run| run.throughput / 1e3))];
        for (contender, run) in WITHOUT_LOG.iter().zip(&without_log) {
            by_throughput.push(Series::ours(contender.name, of(&[run], |run| run.throughput / 1e3)));
        }
        let figures = vec![
            figure(
                id.to_owned(),
                "Recovery time by throughput, TPC-B",
                "throughput (thousands of transactions/s)",
                by_throughput,
            ),
            figure(
                format!("{id}-flushes"),
                "Recovery time by the rate of page flushes, TPC-B",
                "page flushes (thousands/s)",
                vec![Series::ours("write-ahead log", of(&all, |run| run.page_flushes / 1e3))],
            ),
        ];
        let mut setting = ground.setting();
        setting.push(
            "Barriers take no time here. The process keeps running: the database is dropped without being closed, and \
             opened again. A memory file system has no cold cache to drop."
                .to_owned(),
        );
        let labels = std::iter::once("no limit".to_owned()).chain(few.iter().map(ToString::to_string));
        setting.extend(labels.zip(&all).map(|(pages, run)| {
            format!(
                "Dirty pages, wanted: {pages}; at the end: {:.0}. {:.0} page flushes/s, {:.0} transactions/s, \
                 recovery {:.1} ms.",
                run.dirty_pages,
                run.page_flushes,
                run.throughput,
                millis(run)
            )
        }));
        let best = verdicts::best_of_quick_recovery(&lazy, &wal);
        setting.extend(WITHOUT_LOG.iter().zip(&without_log).map(|(contender, run)| {
            let name = contender.name;
            format!(
                "{name}: {:.0} transactions/s, {:.2} times the best quick recovery with a log, recovery {:.1} ms.",
                run.throughput,
                verdicts::ratio(run.throughput, best),
                millis(run)
            )
        }));
        Ok(Findings { setting, figures, checks: verdicts::recovery(&lazy, &wal, &without_log[0]) })
    }
}
