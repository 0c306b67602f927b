//! Options of regions.

use std::path::PathBuf;

use crate::crash::SimMemory;
use crate::domain::Domain;
use crate::error::{PmemError, Result};
use crate::guarantee::{Guarantee, Survive};
use crate::mode::Mode;
use crate::numa::Placement;
use crate::timing::Timing;

/// What a region is made of.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, or a device (`/dev/dax0.0`, whose offsets must be multiples of 2 MiB).
    File(PathBuf),
    /// Memory of this process.
    Anonymous,
    /// Simulated persistent memory, in which a test can cut the power.
    Simulated(SimMemory),
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File(path), Self::File(other)) => path == other,
            (Self::Anonymous, Self::Anonymous) => true,
            (Self::Simulated(memory), Self::Simulated(other)) => memory.is_same(other),
            _ => false,
        }
    }
}

impl Eq for Source {}

/// Options for opening a region.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionOptions {
    /// Size of the region in bytes, a positive multiple of 4096. A longer file is mapped only up to
    /// this size.
    pub len: u64,
    /// Whether the file must exist.
    pub mode: Mode,
    /// The part of the region from this offset on, a multiple of 4096, is a ring: it is mapped
    /// again after the region's end. A range that extends past the end continues at this offset.
    pub ring_from: Option<u64>,
    /// The persistence domain that the program is written for.
    pub domain: Domain,
    /// What the data must survive; opening fails if the platform guarantees less.
    pub survive: Survive,
    /// The platform's guarantee, if the operator has information that the system lacks (a machine
    /// with batteries, a virtual machine that does not see its host). With `None`, the guarantee is
    /// detected.
    pub stated: Option<Guarantee>,
    /// The memory node for the region.
    pub placement: Placement,
    /// Whether opening maps every page of a file at once. Otherwise each page is mapped at its
    /// first use, and opening a large region takes no longer than opening a small one.
    pub populate: bool,
    /// The delays of a modelled device.
    pub timing: Timing,
}

impl RegionOptions {
    /// Returns options for a region of `len` bytes that survives power cuts, for a program that
    /// flushes what it stores.
    pub fn new(len: u64) -> Self {
        Self {
            len,
            mode: Mode::default(),
            ring_from: None,
            domain: Domain::default(),
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            populate: true,
            timing: Timing::NONE,
        }
    }

    pub(crate) fn check(&self) -> Result<(usize, usize)> {
        const PAGE: u64 = 4096;
        if self.len == 0 || !self.len.is_multiple_of(PAGE) || self.len > 1 << 46 {
            return Err(PmemError::invalid("len", "it must be a multiple of 4096 from 4096 bytes to 64 TiB"));
        }
        let ring_from = self.ring_from.unwrap_or(self.len);
        if !ring_from.is_multiple_of(PAGE) || self.ring_from.is_some() && ring_from >= self.len {
            return Err(PmemError::invalid(
                "ring_from",
                "it must be a multiple of 4096, and less than the length of the region",
            ));
        }
        Ok((self.len as usize, ring_from as usize))
    }
}

impl std::str::FromStr for Domain {
    type Err = PmemError;

    fn from_str(name: &str) -> std::result::Result<Self, Self::Err> {
        let known = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, domain)| domain).ok_or_else(|| {
            let reason = format!(
                "there is no persistence domain `{name}`; the domains are `durable-cache` and `volatile-cache`"
            );
            PmemError::InvalidOption { option: "domain", reason }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_known_by_name() {
        for (name, domain) in Domain::NAMES {
            assert_eq!(name.parse(), Ok(domain));
            assert_eq!(domain.to_string(), name);
        }
        assert!("eADR".parse::<Domain>().unwrap_err().to_string().contains("volatile-cache"));
    }
}
