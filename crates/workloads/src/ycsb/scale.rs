//! How big a YCSB database is.

use std::fmt;

use crate::error::{Error, Result};
use crate::population::Parameters;

/// Number of records of the population.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Records, at least 1.
    pub records: u64,
}

impl Scale {
    /// `factor` times 100,000 records of 1,000 bytes.
    pub const fn standard(factor: u64) -> Self {
        Self { records: factor * 100_000 }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records", self.records)
    }
}

impl Parameters for Scale {
    const WORKLOAD: &'static str = "ycsb";
    const COUNT: usize = 1;

    fn encode(&self) -> Vec<u64> {
        vec![self.records]
    }

    fn decode(numbers: &[u64]) -> Self {
        Self { records: numbers[0] }
    }

    fn validate(&self) -> Result<()> {
        match self.records {
            1..=0x100_0000_0000 => Ok(()),
            _ => Err(Error::InvalidParameter { reason: "YCSB needs 1 to 2^40 records".into() }),
        }
    }
}
