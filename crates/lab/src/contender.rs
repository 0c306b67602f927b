//! The schemes of *Storage Management in the NVRAM Era*, as options of a database.
//!
//! All of them keep a database in modelled persistent memory of the same speed: a barrier takes the
//! time that the experiment chooses, and 1.5 GB/s can be stored by all threads together.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use duramen::pmem::{Domain, Guarantee, Source, Survive, Timing};
use duramen::{Barriers, CommitMode, HeapOptions, Options, Scheme};

/// Bytes per second that the paper's memory takes.
const BANDWIDTH: u64 = 1_500_000_000;

/// A scheme, as figures show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contender {
    /// What figures call it.
    pub(crate) name: &'static str,
    pub(crate) way: Way,
    /// Whether memory has the paper's bandwidth, and no more.
    pub(crate) is_limited: bool,
}

/// How a database in persistent memory becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// A write-ahead log and pages in files on an [`NvmDisk`](crate::nvm_disk::NvmDisk).
    DiskReplacement {
        /// How many pages the cleaner leaves dirty; without a number it writes only what the pool
        /// and the log need.
        dirty_pages: Option<usize>,
    },
    /// Pages that are updated in place.
    InPlace {
        /// The protocol of a change.
        barriers: Barriers,
    },
}

/// The paper's schemes. A further one is a line here.
pub(crate) const CONTENDERS: &[Contender] = &[LAZY, IN_PLACE, IN_PLACE_FEWEST, IN_PLACE_UNLIMITED];

/// The paper's baseline, with a cleaner that keeps recovery short.
pub(crate) const fn disk_replacement(dirty_pages: usize) -> Contender {
    Contender { name: DISK_REPLACEMENT, way: Way::DiskReplacement { dirty_pages: Some(dirty_pages) }, is_limited: true }
}

pub(crate) const DISK_REPLACEMENT: &str = "Disk-Replacement";
pub(crate) const LAZY: Contender = Contender {
    name: "Disk-Replacement, flushing lazily",
    way: Way::DiskReplacement { dirty_pages: None },
    is_limited: true,
};
pub(crate) const IN_PLACE: Contender =
    Contender { name: "In-Place", way: Way::InPlace { barriers: Barriers::Paper }, is_limited: true };
pub(crate) const IN_PLACE_FEWEST: Contender = Contender {
    name: "In-Place (fewest barriers)",
    way: Way::InPlace { barriers: Barriers::Fewest },
    is_limited: true,
};
/// Shows what the bandwidth of memory costs a scheme that writes each line twice.
pub(crate) const IN_PLACE_UNLIMITED: Contender =
    Contender { name: "In-Place (fewest barriers), unlimited bandwidth", is_limited: false, ..IN_PLACE_FEWEST };

/// Sizes of a database, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) pool: usize,
    pub(crate) heap: u64,
    /// Log between two checkpoints that keep recovery short.
    pub(crate) checkpoint: u64,
}

impl Contender {
    /// Returns whether both can use the same database.
    pub(crate) fn is_like(&self, other: Self) -> bool {
        std::mem::discriminant(&self.way) == std::mem::discriminant(&other.way)
    }

    /// Returns the times of memory with barriers of this length.
    pub(crate) fn timing(&self, barrier: Duration) -> Timing {
        let bandwidth = NonZeroU64::new(BANDWIDTH).filter(|_| self.is_limited);
        Timing { barrier, bandwidth, ..Timing::NONE }
    }

    /// Returns the options of a database whose heap, if it has one, is the file `heap`.
    pub(crate) fn options(&self, sizes: Sizes, commit: CommitMode, timing: Timing, heap: &Path) -> Options {
        let usual = Options { commit, pool_bytes: sizes.pool, ..Options::default() };
        match self.way {
            Way::DiskReplacement { dirty_pages } => Options {
                dirty_pages,
                checkpoint_bytes: if dirty_pages.is_some() { sizes.checkpoint } else { usual.checkpoint_bytes },
                log_segment_bytes: 16 << 20,
                ..usual
            },
            Way::InPlace { barriers } => Options {
                scheme: Scheme::InPlace(HeapOptions {
                    stated: Some(Guarantee::DurableCache),
                    survive: Survive::Nothing,
                    timing,
                    barriers,
                    ..HeapOptions::new(Source::File(heap.to_owned()), sizes.heap, Domain::DurableCache)
                }),
                ..usual
            },
        }
    }
}

/// How a scheme is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Clients {
    pub(crate) commit: CommitMode,
    pub(crate) clients: u32,
    /// Threads that carry the clients.
    pub(crate) threads: u32,
}

impl Clients {
    pub(crate) const fn blocking(threads: u32) -> Self {
        Self { commit: CommitMode::Elr, clients: threads, threads }
    }

    pub(crate) const fn pipelined(clients: u32, threads: u32) -> Self {
        Self { commit: CommitMode::Pipelined, clients, threads }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_valid_options_and_a_name_of_its_own() {
        let sizes = Sizes { pool: 16 << 20, heap: 64 << 20, checkpoint: 1 << 20 };
        let all: Vec<Contender> = CONTENDERS.iter().copied().chain([disk_replacement(100)]).collect();
        for (at, contender) in all.iter().enumerate() {
            for commit in [CommitMode::Elr, CommitMode::Pipelined] {
                let timing = contender.timing(Duration::from_micros(1));
                contender.options(sizes, commit, timing, Path::new("/dev/shm/heap")).validate().unwrap();
            }
            assert_eq!(all.iter().position(|other| other.name == contender.name), Some(at));
        }
    }
}
