//! The crash workloads: small deterministic scripts, each made to exercise one part of the engine.

mod records;
mod structure;
mod transactions;

use std::time::Duration;

use duramen::{Options, TierOptions};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE};

use crate::crash::CrashWorkload;
use crate::model::Model;
use crate::script::Script;
use crate::step::Step;
use crate::variant::Variant;
use duramen_test_support::Rng;

/// Returns every workload.
pub fn all() -> Vec<&'static dyn CrashWorkload> {
    ALL.iter().map(|workload| workload as &'static dyn CrashWorkload).collect()
}

/// Returns the workload of this name.
pub fn named(name: &str) -> Option<&'static dyn CrashWorkload> {
    ALL.iter().find(|workload| workload.name == name).map(|workload| workload as &'static dyn CrashWorkload)
}

/// Returns the names of all workloads.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|workload| workload.name).collect()
}

/// What a workload asks of the options.
#[derive(Clone, Copy)]
struct Sizes {
    pool_pages: usize,
    segment_kib: u64,
    checkpoint_kib: u64,
}

impl Sizes {
    /// Everything fits, checkpoints are rare.
    const ROOMY: Self = Self { pool_pages: 256, segment_kib: 256, checkpoint_kib: 4096 };
    /// The pool must steal.
    const SMALL_POOL: Self = Self { pool_pages: 64, segment_kib: 256, checkpoint_kib: 1024 };
    /// The log goes round and round.
    const SMALL_LOG: Self = Self { pool_pages: 128, segment_kib: 64, checkpoint_kib: 64 };
}

struct Workload {
    name: &'static str,
    sizes: Sizes,
    write: fn(&mut Script),
}

const ALL: &[Workload] = &[
    Workload { name: "bank", sizes: Sizes::ROOMY, write: transactions::bank },
    Workload { name: "mixed", sizes: Sizes::ROOMY, write: records::mixed },
    Workload { name: "splits", sizes: Sizes::ROOMY, write: structure::splits },
    Workload { name: "merges", sizes: Sizes::ROOMY, write: structure::merges },
    Workload { name: "overflow", sizes: Sizes::SMALL_POOL, write: records::overflow },
    Workload { name: "tables", sizes: Sizes::ROOMY, write: structure::tables },
    Workload { name: "steal", sizes: Sizes::SMALL_POOL, write: transactions::steal },
    Workload { name: "checkpoints", sizes: Sizes::SMALL_LOG, write: transactions::checkpoints },
    Workload { name: "recycle", sizes: Sizes::SMALL_LOG, write: transactions::recycle },
    Workload { name: "interleaved", sizes: Sizes::SMALL_POOL, write: transactions::interleaved },
    Workload { name: "carried", sizes: Sizes::SMALL_POOL, write: transactions::carried },
    Workload { name: "keys", sizes: Sizes::ROOMY, write: records::keys },
    Workload { name: "ghosts", sizes: Sizes::ROOMY, write: records::ghosts },
    Workload { name: "loads", sizes: Sizes::SMALL_POOL, write: structure::loads },
    Workload { name: "ranges", sizes: Sizes::SMALL_POOL, write: records::ranges },
    Workload { name: "reopens", sizes: Sizes::SMALL_LOG, write: transactions::reopens },
    Workload { name: "full-pages", sizes: Sizes::SMALL_POOL, write: structure::full_pages },
];

impl CrashWorkload for Workload {
    fn name(&self) -> &'static str {
        self.name
    }

    fn options(&self, seed: u64) -> Options {
        // With one seed, too, the workloads are to differ.
        let mut rng = Rng::new(self.name.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31) + u64::from(byte)));
        Variant::of(seed).apply(Options {
            pool_bytes: self.sizes.pool_pages * PAGE_SIZE,
            // Redo in many windows, in a few, and in one.
            redo_memory_bytes: Some(*rng.pick(&[4 << 10, 64 << 10, 64 << 20])),
            instant_recovery: rng.percent(50),
            log_buffer_bytes: 256 << 10,
            log_segment_bytes: self.sizes.segment_kib << 10,
            checkpoint_bytes: Some(self.sizes.checkpoint_kib << 10),
            page_tier: tier_of(seed),
            snapshots: rng.percent(50),
            ..test_options()
        })
    }

    fn script(&self, seed: u64, start: &Model) -> Vec<Step> {
        let mut script = Script::new(start, seed);
        (self.write)(&mut script);
        script.finish()
    }
}

/// Small sizes and short waits for databases that live for milliseconds.
pub fn test_options() -> Options {
    Options {
        pool_bytes: 256 * PAGE_SIZE,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        log_max_bytes: 64 << 20,
        checkpoint_bytes: Some(4 << 20),
        group_commit_time: Duration::from_micros(50),
        // A script of one thread never waits for a lock; if the engine makes it wait, it should say
        // so soon.
        lock_wait_limit: Some(Duration::from_secs(5)),
        ..Options::default()
    }
}

/// Slot 0, which most scripts use alone.
const T0: usize = 0;

/// Returns the page tier that a third of the seeds have, so small that pages leave it soon.
pub(crate) fn tier_of(seed: u64) -> Option<TierOptions> {
    let mut rng = Rng::new(seed ^ 0x7113);
    let slots = *rng.pick(&[16, 40, 200]);
    let bytes = (BLOCK_SIZE + slots * PAGE_SIZE) as u64;
    rng.percent(33).then_some(TierOptions::at_home(bytes))
}

/// Returns a key of eight digits.
fn numbered(number: usize) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}
