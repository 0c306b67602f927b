//! How a region is opened.

use std::path::PathBuf;

use crate::crash::SimMemory;
use crate::error::{PmemError, Result};
use crate::guarantee::{Domain, Guarantee, Survive};
use crate::numa::Placement;
use crate::timing::Timing;

/// What a region is made of.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, or a device (`/dev/dax0.0`, whose offsets must be multiples of 2 MiB).
    File(PathBuf),
    /// Memory of this process.
    Anonymous,
    /// Simulated persistent memory, which crashes.
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

/// Whether a file has to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// It is there.
    Open,
    /// It is not there, and is made.
    Create,
    /// It is there, and is made longer if it is too short.
    Grow,
    /// It is made if it is not there.
    #[default]
    OpenOrCreate,
}

/// How a region is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegionOptions {
    /// Bytes of the region: whole pages of 4096. A file may be longer; the rest is not mapped.
    pub len: u64,
    /// Whether a file has to be there.
    pub mode: Mode,
    /// From this offset on, a multiple of 4096, the region is a ring: mapped again behind its end,
    /// so that a range which begins before the end may go on beyond it, and continues here.
    pub ring_from: Option<u64>,
    /// The persistence domain that the program is written for.
    pub domain: Domain,
    /// What the data must survive: otherwise the region is not opened.
    pub survive: Survive,
    /// What the platform guarantees, if the operator has information that the system lacks (a
    /// machine with batteries, a virtual machine that does not see its host). Without it, the
    /// guarantee is detected.
    pub stated: Option<Guarantee>,
    /// On which memory node the region is to lie.
    pub placement: Placement,
    /// Times of a modelled device.
    pub timing: Timing,
}

impl RegionOptions {
    /// Returns a region of `len` bytes that survives power cuts, for a program that flushes what it
    /// stores.
    pub fn new(len: u64) -> Self {
        Self {
            len,
            mode: Mode::default(),
            ring_from: None,
            domain: Domain::default(),
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }

    pub(crate) fn check(&self) -> Result<(usize, usize)> {
        const PAGE: u64 = 4096;
        if self.len == 0 || !self.len.is_multiple_of(PAGE) || self.len > 1 << 46 {
            return Err(PmemError::invalid("len", "it must be whole pages of 4096 bytes, at least one"));
        }
        let ring_from = self.ring_from.unwrap_or(self.len);
        if !ring_from.is_multiple_of(PAGE) || self.ring_from.is_some() && ring_from >= self.len {
            return Err(PmemError::invalid("ring_from", "it must be a multiple of 4096 below the length"));
        }
        Ok((self.len as usize, ring_from as usize))
    }
}
