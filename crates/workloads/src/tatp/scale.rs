//! How big a TATP database is.

use std::fmt;

use crate::error::{Error, Result};
use crate::population::Parameters;
use crate::random::Chooser;

/// Number of subscribers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Subscribers, at least 1 and at most 2^31; the specification's populations are 100,000 and
    /// more.
    pub subscribers: u64,
}

impl Scale {
    /// `factor` times the specification's least population.
    pub const fn standard(factor: u64) -> Self {
        Self { subscribers: factor * 100_000 }
    }

    /// Returns the specification's non-uniform distribution of subscribers.
    pub fn chooser(&self) -> Chooser {
        let a = match self.subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        Chooser::NonUniform { first: 1, count: self.subscribers, a, c: 0 }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} subscribers", self.subscribers)
    }
}

impl Parameters for Scale {
    const WORKLOAD: &'static str = "tatp";
    const COUNT: usize = 1;

    fn encode(&self) -> Vec<u64> {
        vec![self.subscribers]
    }

    fn decode(numbers: &[u64]) -> Self {
        Self { subscribers: numbers[0] }
    }

    fn validate(&self) -> Result<()> {
        match self.subscribers {
            1..=0x8000_0000 => Ok(()),
            _ => Err(Error::InvalidParameter { reason: "TATP needs 1 to 2^31 subscribers".into() }),
        }
    }
}
