//! C1: disk I/Os.

use super::measured::{Measured, Run, measured};
use super::{BASIC, LOGGING, NO_PCM, WORLD};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// Figure 4.
pub(crate) struct DiskIos;

impl Experiment for DiskIos {
    fn about(&self) -> About {
        About {
            id: "C1",
            title: "PCMLogging needs fewer disk I/Os than a page cache and a log in PCM",
            source: "PCMLogging (CIKM 2011), Fig. 4",
            world: WORLD,
            found: "with PCM of 64 MB (2.67 % of the data) PCMLogging has 40 % fewer disk I/Os than PCMBasic, and \
                    slightly more with 8 MB (0.33 %); both have fewer than NoPCM",
            wanted: "at least 25 % fewer at the largest size, at most 1.2 times as many at the smallest, an advantage \
                     that grows with the PCM, and no more than NoPCM has for data at any size",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "in a full run with the smallest PCM, the log pool of PCMBasic is full every few hundred transactions, \
             and a checkpoint writes all dirty pages of DRAM. NoPCM takes no checkpoints here. Without them PCMBasic \
             is below NoPCM: the setting has the figure",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let measured = measured(context)?;
        let saved: Vec<f64> =
            measured.sizes.iter().map(|size| 1.0 - size.logging.data_ios() / size.basic.data_ios()).collect();
        let most = |of: fn(&super::measured::Size) -> &Run| {
            let most = measured.sizes.iter().map(|size| of(size).data_ios()).fold(f64::NAN, f64::max);
            most / measured.no_pcm.data_ios()
        };
        let (least, largest) = (measured.smallest().percent, measured.largest().percent);
        let (first, last) = (saved[0], saved[saved.len() - 1]);
        let checks = vec![
            Check::new(
                format!("disk I/Os that {LOGGING} saves against {BASIC} at {largest:.2} %, in percent"),
                "40",
                last * 100.0,
                Bound::AtLeast(25.0),
            ),
            Check::new(
                format!("disk I/Os of {LOGGING} relative to {BASIC} at {least:.2} %"),
                "slightly above 1",
                1.0 - first,
                Bound::AtMost(1.2),
            ),
            Check::new(
                format!("points by which the saving at {largest:.2} % is above that at {least:.2} %"),
                "above 40",
                (last - first) * 100.0,
                Bound::AtLeast(1.0),
            ),
            Check::new(
                format!("most disk I/Os of {BASIC} relative to those of {NO_PCM} for data"),
                "below 1",
                most(|size| &size.basic),
                Bound::AtMost(1.0),
            ),
            Check::new(
                format!("most disk I/Os of {LOGGING} relative to those of {NO_PCM} for data"),
                "below 1",
                most(|size| &size.logging),
                Bound::AtMost(1.0),
            ),
        ];
        let figures = vec![
            measured.lines(
                "C1",
                "Disk I/Os for data",
                Axis::linear("pages transferred per committed transaction"),
                true,
                Run::data_ios,
            ),
            breakdown(&measured),
            measured.lines(
                "C1-throughput",
                "Throughput with one disk, in virtual time",
                Axis::linear("committed transactions per second"),
                true,
                Run::throughput,
            ),
        ];
        Ok(Findings { setting: measured.setting.clone(), figures, checks })
    }
}

/// Returns the paper's Figure 4(b).
fn breakdown(measured: &Measured) -> Figure {
    let mut bars = vec![(NO_PCM.to_owned(), measured.no_pcm)];
    for size in &measured.sizes {
        bars.push((format!("B {:.2}", size.percent), size.basic));
        bars.push((format!("PL {:.2}", size.percent), size.logging));
    }
    let series = |name: &str, of: fn(&Run) -> u64| {
        Series::ours(name, (0..).map(f64::from).zip(bars.iter().map(|(_, run)| run.each(of(run)))).collect())
    };
    let series = vec![
        series("reads", |run| run.counts.reads),
        series("writes", |run| run.counts.writes),
        series("reads to merge tuples", |run| run.counts.merges),
        series("writes of the log", |run| run.counts.log_writes),
    ];
    Figure {
        name: "C1-breakdown".into(),
        title: "Kinds of disk I/Os".into(),
        x: Axis::linear("B: PCMBasic, PL: PCMLogging, with PCM in % of the data"),
        y: Axis::linear("disk I/Os per committed transaction"),
        shape: Shape::Stacks(bars.iter().map(|bar| bar.0.clone()).collect()),
        series,
    }
}
