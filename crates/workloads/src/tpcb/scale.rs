//! How big a TPC-B database is.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::population::Parameters;

/// Number of rows of a TPC-B database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Branches, at least 1: the scale factor.
    pub branches: u64,
    /// Tellers of each branch.
    pub tellers_per_branch: u64,
    /// Accounts of each branch.
    pub accounts_per_branch: u64,
}

impl Scale {
    /// Returns the specification's ratios: 10 tellers and 100,000 accounts for each branch.
    pub const fn standard(branches: u64) -> Self {
        Self { branches, tellers_per_branch: 10, accounts_per_branch: 100_000 }
    }

    /// Returns the number of tellers of all branches.
    pub const fn tellers(&self) -> u64 {
        self.branches * self.tellers_per_branch
    }

    /// Returns the number of accounts of all branches.
    pub const fn accounts(&self) -> u64 {
        self.branches * self.accounts_per_branch
    }

    /// Returns the number of rows of a fresh population.
    pub const fn rows(&self) -> u64 {
        self.branches + self.tellers() + self.accounts()
    }

    /// Returns the numbers of the tellers of `branch`.
    pub const fn tellers_of(&self, branch: u64) -> Range<u64> {
        branch * self.tellers_per_branch..(branch + 1) * self.tellers_per_branch
    }

    /// Returns the numbers of the accounts of `branch`.
    pub const fn accounts_of(&self, branch: u64) -> Range<u64> {
        branch * self.accounts_per_branch..(branch + 1) * self.accounts_per_branch
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { branches, tellers_per_branch, accounts_per_branch } = self;
        write!(f, "{branches} branches with {tellers_per_branch} tellers and {accounts_per_branch} accounts each")
    }
}

impl Parameters for Scale {
    const WORKLOAD: &'static str = "tpcb";
    const COUNT: usize = 3;

    fn encode(&self) -> Vec<u64> {
        vec![self.branches, self.tellers_per_branch, self.accounts_per_branch]
    }

    fn decode(numbers: &[u64]) -> Self {
        Self { branches: numbers[0], tellers_per_branch: numbers[1], accounts_per_branch: numbers[2] }
    }

    fn validate(&self) -> Result<()> {
        let rows = self
            .accounts_per_branch
            .checked_add(self.tellers_per_branch)
            .and_then(|rows| rows.checked_add(1))
            .and_then(|rows| rows.checked_mul(self.branches));
        let reason = if self.branches == 0 || self.tellers_per_branch == 0 || self.accounts_per_branch == 0 {
            "TPC-B needs at least one branch, and for each branch a teller and an account"
        } else if rows.is_none_or(|rows| rows > i64::MAX as u64) {
            "the number of rows does not fit in 63 bits"
        } else {
            return Ok(());
        };
        Err(Error::InvalidParameter { reason: reason.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_that_make_no_sense_are_refused() {
        assert!(Scale::standard(1).validate().is_ok());
        assert!(Scale::standard(0).validate().is_err());
        assert!(Scale::standard(u64::MAX / 2).validate().is_err());
        assert!(Scale { accounts_per_branch: 0, ..Scale::standard(1) }.validate().is_err());
    }
}
