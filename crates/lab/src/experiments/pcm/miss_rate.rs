//! C2: how many requests the PCM cannot serve.

use super::measured::{Run, measured};
use super::{BASIC, LOGGING, WORLD};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::Axis;

/// Figure 5(a).
pub(crate) struct MissRate;

impl Experiment for MissRate {
    fn about(&self) -> About {
        About {
            id: "C2",
            title: "PCM with tuples serves more requests than PCM with pages",
            source: "PCMLogging (CIKM 2011), Fig. 5(a)",
            world: WORLD,
            found: "of the requests that DRAM cannot serve, with PCM of 64 MB (2.67 % of the data) 63 % miss in \
                    PCMLogging and 81 % in PCMBasic; with more PCM fewer miss",
            wanted: "at the largest size at least 10 points fewer misses than PCMBasic; fewer misses with more PCM",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let measured = measured(context)?;
        let (smallest, largest) = (measured.smallest(), measured.largest());
        let (rate, percent) = (largest.logging.miss_rate(), largest.percent);
        let checks = vec![
            Check::new(
                format!("points by which {LOGGING}'s miss rate is below {BASIC}'s at {percent:.2} %"),
                "81 % and 63 %, 18 points",
                largest.basic.miss_rate() - rate,
                Bound::AtLeast(10.0),
            ),
            Check::new(
                format!("points by which {LOGGING}'s miss rate falls from {:.2} % to {percent:.2} %", smallest.percent),
                "falls",
                smallest.logging.miss_rate() - rate,
                Bound::AtLeast(1.0),
            ),
        ];
        let figure = measured.lines(
            "C2",
            "Misses in PCM",
            Axis::linear("share of the requests that reach the PCM (%)"),
            false,
            Run::miss_rate,
        );
        let mut setting = measured.setting.clone();
        let lookups = |run: &Run| run.each(run.counts.lookups);
        setting.push(format!(
            "Per transaction, at {percent:.2} %, {:.2} requests reach the PCM and {:.2} miss in {LOGGING}; in {BASIC} \
             {:.2} and {:.2}. A tuple that PCM serves does not bring its page to DRAM, so that the next request for it \
             reaches the PCM again.",
            lookups(&largest.logging),
            largest.logging.each(largest.logging.counts.misses),
            lookups(&largest.basic),
            largest.basic.each(largest.basic.counts.misses),
        ));
        Ok(Findings { setting, figures: vec![figure], checks })
    }
}
