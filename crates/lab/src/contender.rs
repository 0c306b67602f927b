//! The schemes of *Storage Management in the NVRAM Era*, as options of a database.
//!
//! All of them keep a database in modelled persistent memory of the same speed: a barrier takes the
//! time that the experiment chooses, and 1.5 GB/s can be stored by all threads together.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use duramen::pmem::{Domain, Guarantee, Source, Survive, Timing};
use duramen::{Barriers, BatchOptions, CommitMode, HeapOptions, Options, Residence, Scheme};
use duramen_workloads::{Limit, RunOptions};

/// Bytes per second that the paper's memory takes.
const BANDWIDTH: u64 = 1_500_000_000;

/// Bytes of the batch log. Each changed line is stored twice, so half of this log holds more than
/// what the memory takes in 20 ms: the period ends a batch, and not its size.
const BATCH_LOG: u64 = 64 << 20;

/// Bytes of log between two checkpoints where pages are flushed lazily.
const LAZY_CHECKPOINT: u64 = 256 << 20;

/// How long batches last, unless an experiment chooses: the engine's default.
pub(crate) const PERIOD: Duration = Duration::from_millis(5);

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
        /// Where pages are worked on.
        residence: Residence,
    },
    /// Pages that change in batches.
    GroupCommit {
        /// The protocol of a batch.
        barriers: Barriers,
        /// How long a batch lasts; without a time, [`Sizes::period`].
        period: Option<Duration>,
    },
}

/// The paper's schemes. A further one is a line here.
pub(crate) const CONTENDERS: &[Contender] =
    &[LAZY, IN_PLACE, IN_PLACE_FEWEST, IN_PLACE_UNLIMITED, GROUP_COMMIT, GROUP_COMMIT_FEWEST];

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
    Contender { name: "In-Place", way: in_place(Barriers::Paper, Residence::Cached), is_limited: true };
pub(crate) const IN_PLACE_FEWEST: Contender = Contender {
    name: "In-Place (fewest barriers)",
    way: in_place(Barriers::Fewest, Residence::Cached),
    is_limited: true,
};
/// Works on the pages in persistent memory themselves.
#[cfg_attr(not(duramen_machine), allow(dead_code, reason = "used by the machine build"))]
pub(crate) const IN_PLACE_DIRECT: Contender =
    Contender { name: "In-Place (direct)", way: in_place(Barriers::Fewest, Residence::Direct), is_limited: false };
/// Shows what the bandwidth of memory costs a scheme that writes each line twice.
pub(crate) const IN_PLACE_UNLIMITED: Contender =
    Contender { name: "In-Place (fewest barriers), unlimited bandwidth", is_limited: false, ..IN_PLACE_FEWEST };
pub(crate) const GROUP_COMMIT: Contender = Contender {
    name: "Group Commit",
    way: Way::GroupCommit { barriers: Barriers::Paper, period: None },
    is_limited: true,
};
pub(crate) const GROUP_COMMIT_FEWEST: Contender = Contender {
    name: "Group Commit (fewest barriers)",
    way: Way::GroupCommit { barriers: Barriers::Fewest, period: None },
    is_limited: true,
};

const fn in_place(barriers: Barriers, residence: Residence) -> Way {
    Way::InPlace { barriers, residence }
}

/// The paper's group commit, with batches of this length.
pub(crate) const fn group_commit(period: Duration) -> Contender {
    Contender { way: Way::GroupCommit { barriers: Barriers::Paper, period: Some(period) }, ..GROUP_COMMIT }
}

/// Sizes of a database, in bytes, and of its batches.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Sizes {
    /// How long clients run until the pool holds nearly all pages that they use.
    pub(crate) fill: Duration,
    pub(crate) pool: usize,
    pub(crate) heap: u64,
    /// Log between two checkpoints that keep recovery short.
    pub(crate) checkpoint: u64,
    /// How long a batch of group commit lasts.
    pub(crate) period: Duration,
}

impl Contender {
    /// Returns whether both can use the same database.
    pub(crate) fn is_like(&self, other: Self) -> bool {
        std::mem::discriminant(&self.way) == std::mem::discriminant(&other.way)
    }

    /// Returns whether commits wait for the end of a batch.
    pub(crate) fn is_batched(&self) -> bool {
        matches!(self.way, Way::GroupCommit { .. })
    }

    /// Returns the least time that shows what it does: many batches, so that the last one, which
    /// ends after the clients stop, does not count.
    pub(crate) fn least_time(&self) -> Duration {
        match self.way {
            Way::GroupCommit { period: Some(period), .. } => period * 50,
            _ => Duration::ZERO,
        }
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
                checkpoint_bytes: Some(dirty_pages.map_or(LAZY_CHECKPOINT, |_| sizes.checkpoint)),
                log_segment_bytes: 16 << 20,
                ..usual
            },
            Way::InPlace { barriers, residence } => {
                let heap = HeapOptions { barriers, residence, ..heap_options(heap, sizes.heap, timing) };
                // Pages that are worked on in the heap have no copies.
                let pool_bytes =
                    if residence == Residence::Direct { Options::default().pool_bytes } else { sizes.pool };
                Options { scheme: Scheme::InPlace(heap), pool_bytes, ..usual }
            }
            Way::GroupCommit { barriers, period } => Options {
                scheme: Scheme::NvramGroupCommit(
                    HeapOptions { barriers, ..heap_options(heap, sizes.heap + BATCH_LOG, timing) },
                    BatchOptions {
                        period: period.unwrap_or(sizes.period),
                        log_bytes: Some(BATCH_LOG),
                        ..BatchOptions::default()
                    },
                ),
                ..usual
            },
        }
    }
}

/// Returns the options of a heap with pages and journals of `bytes`.
fn heap_options(heap: &Path, bytes: u64, timing: Timing) -> HeapOptions {
    HeapOptions {
        stated: Some(Guarantee::DurableCache),
        survive: Survive::Nothing,
        timing,
        ..HeapOptions::new(Source::File(heap.to_owned()), bytes, Domain::DurableCache)
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

    /// Returns the options of a run of a workload that takes so long.
    pub(crate) fn run(self, time: Duration, seed: u64) -> RunOptions {
        RunOptions {
            clients: self.clients,
            rate: None,
            agents: self.threads,
            limit: Limit::Time(time),
            seed,
            observe_every: Duration::from_secs(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_contender_has_valid_options_and_a_name_of_its_own() {
        let period = Duration::from_millis(1);
        let sizes = Sizes { fill: period, pool: 16 << 20, heap: 64 << 20, checkpoint: 1 << 20, period };
        let all: Vec<Contender> = CONTENDERS.iter().copied().chain([disk_replacement(100), IN_PLACE_DIRECT]).collect();
        for (at, contender) in all.iter().enumerate() {
            for commit in [CommitMode::Elr, CommitMode::Pipelined] {
                let timing = contender.timing(Duration::from_micros(1));
                contender.options(sizes, commit, timing, Path::new("/dev/shm/heap")).validate().unwrap();
            }
            assert_eq!(all.iter().position(|other| other.name == contender.name), Some(at));
        }
    }
}
