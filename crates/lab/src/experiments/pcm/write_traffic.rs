//! C3: what is written to the PCM.

use super::measured::{Run, Size, measured};
use super::{BASIC, LOGGING, WORLD};
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::Axis;

/// Figure 5(b).
pub(crate) struct WriteTraffic;

impl Experiment for WriteTraffic {
    fn about(&self) -> About {
        About {
            id: "C3",
            title: "tuples wear PCM out less than pages and a log",
            source: "PCMLogging (CIKM 2011), Fig. 5(b)",
            world: WORLD,
            found: "PCMLogging writes 2.7 % of what PCMBasic writes to the PCM, on average over the sizes",
            wanted: "at most 10 %, in lines of 64 bytes, with headers, lists and freed slots",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let measured = measured(context)?;
        let share = |size: &Size| 100.0 * size.logging.pcm_kb() / size.basic.pcm_kb();
        let average = measured.sizes.iter().map(share).sum::<f64>() / measured.sizes.len() as f64;
        let checks = vec![Check::new(
            format!("what {LOGGING} writes to the PCM, in percent of {BASIC}, average"),
            "2.7",
            average,
            Bound::AtMost(10.0),
        )];
        let figure =
            measured.lines("C3", "Writes to PCM", Axis::log("kB per committed transaction"), false, Run::pcm_kb);
        Ok(Findings { setting: measured.setting.clone(), figures: vec![figure], checks })
    }
}
