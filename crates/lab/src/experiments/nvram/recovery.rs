//! P1: the time of recovery by the rate at which pages are flushed, and what the log costs.

use super::ground::Interrupted;
use super::verdicts;
use super::world::World;
use crate::contender::{GROUP_COMMIT, IN_PLACE, LAZY, disk_replacement};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The paper's Figure 1.
pub(crate) struct Recovery(pub(crate) World);

const WORKLOAD: &str = "tpcb";

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
                "the cleaner shares two processors with the transactions, which dirty pages as fast as it writes \
                 them: thousands of pages are dirty at the end, however few are wanted, and their redo takes more \
                 than a tenth of the lazy recovery, which is short itself"
            }
            World::Simulated => {
                "runs are too short there for a long recovery: 16 ms lazily, and 11 ms whatever the number of dirty \
                 pages"
            }
        })
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P1", "P1m");
        let ground = self.0.ground(context);
        let few = ground.dirty_pages();
        context.expect(few.len() + 3);
        context.prepare("populating");
        let site = ground.site(WORKLOAD)?;
        let lazy = context.measure("flushing lazily".to_owned(), || site.interrupt(LAZY))?;
        let mut wal = Vec::new();
        for &pages in few {
            wal.push(context.measure(format!("{pages} dirty pages"), || site.interrupt(disk_replacement(pages)))?);
        }
        let in_place = context.measure("in place".to_owned(), || site.interrupt(IN_PLACE))?;
        let batched = context.measure("group commit".to_owned(), || site.interrupt(GROUP_COMMIT))?;
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
        let figures = vec![
            figure(
                id.to_owned(),
                "Recovery time by throughput, TPC-B",
                "throughput (thousands of transactions/s)",
                vec![
                    Series::ours("write-ahead log", of(&all, |run| run.throughput / 1e3)),
                    Series::ours("In-Place", of(&[&in_place], |run| run.throughput / 1e3)),
                    Series::ours("Group Commit", of(&[&batched], |run| run.throughput / 1e3)),
                ],
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
        setting.extend([("In-Place", &in_place), ("Group Commit", &batched)].map(|(name, run)| {
            format!("{name}: {:.0} transactions/s, recovery {:.1} ms.", run.throughput, millis(run))
        }));
        Ok(Findings { setting, figures, checks: verdicts::recovery(&lazy, &wal, &in_place) })
    }
}
