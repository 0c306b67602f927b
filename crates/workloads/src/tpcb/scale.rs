//! How big a TPC-B database is, and the marker row that says so.
//!
//! Marker row (table `tpcb_meta`, key `population`), 32 bytes, little-endian: format version u32, state u32 (0 being
//! populated, 1 complete), branches u64, tellers per branch u64, accounts per branch u64. It is written before the
//! first row and once more after the last: a population that was cut off shows.

use std::fmt;
use std::ops::Range;

use crate::error::{Error, Result};

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
    /// The specification's ratios: 10 tellers and 100,000 accounts for each branch.
    pub const fn standard(branches: u64) -> Self {
        Self { branches, tellers_per_branch: 10, accounts_per_branch: 100_000 }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] says what would be right.
    pub fn validate(&self) -> Result<()> {
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

    /// Tellers of all branches.
    pub const fn tellers(&self) -> u64 {
        self.branches * self.tellers_per_branch
    }

    /// Accounts of all branches.
    pub const fn accounts(&self) -> u64 {
        self.branches * self.accounts_per_branch
    }

    /// Rows of a fresh population.
    pub const fn rows(&self) -> u64 {
        self.branches + self.tellers() + self.accounts()
    }

    /// Numbers of the tellers of `branch`.
    pub const fn tellers_of(&self, branch: u64) -> Range<u64> {
        branch * self.tellers_per_branch..(branch + 1) * self.tellers_per_branch
    }

    /// Numbers of the accounts of `branch`.
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

/// What the marker row says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marker {
    /// Size of the database.
    pub scale: Scale,
    /// Whether all of it is there.
    pub complete: bool,
}

impl Marker {
    /// Key of the marker row.
    pub const KEY: &'static [u8] = b"population";
    const LEN: usize = 32;
    const VERSION: u32 = 1;

    /// The row as stored.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut row = [0; Self::LEN];
        row[..4].copy_from_slice(&Self::VERSION.to_le_bytes());
        row[4..8].copy_from_slice(&u32::from(self.complete).to_le_bytes());
        let Scale { branches, tellers_per_branch, accounts_per_branch } = self.scale;
        for (place, field) in row[8..].chunks_exact_mut(8).zip([branches, tellers_per_branch, accounts_per_branch]) {
            place.copy_from_slice(&field.to_le_bytes());
        }
        row
    }

    /// The row stored as `row`.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is none, or of another version.
    pub fn decode(row: &[u8]) -> Result<Self> {
        let damaged = |reason: &str| Error::Damaged { reason: format!("the population marker of TPC-B {reason}") };
        let Ok(row) = <&[u8; Self::LEN]>::try_from(row) else { return Err(damaged("has the wrong length")) };
        let small = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let big = |at: usize| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
        if small(0) != Self::VERSION {
            return Err(damaged(&format!("has version {}, not {}", small(0), Self::VERSION)));
        }
        let complete = match small(4) {
            0 => false,
            1 => true,
            _ => return Err(damaged("has an unknown state")),
        };
        let scale = Scale { branches: big(8), tellers_per_branch: big(16), accounts_per_branch: big(24) };
        scale.validate().map_err(|error| damaged(&format!("makes no sense: {error}")))?;
        Ok(Self { scale, complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_survive_encoding_and_nonsense_is_refused() {
        let marker = Marker { scale: Scale::standard(5), complete: true };
        let row = marker.encode();
        assert_eq!(Marker::decode(&row).unwrap(), marker);
        assert!(Marker::decode(&row[..31]).is_err());
        for at in [0, 4, 15] {
            let mut wrong = row;
            wrong[at] = 0xff;
            assert!(Marker::decode(&wrong).is_err(), "byte {at}");
        }
    }

    #[test]
    fn scales_that_make_no_sense_are_refused() {
        assert!(Scale::standard(1).validate().is_ok());
        assert!(Scale::standard(0).validate().is_err());
        assert!(Scale::standard(u64::MAX / 2).validate().is_err());
        assert!(Scale { accounts_per_branch: 0, ..Scale::standard(1) }.validate().is_err());
    }
}
