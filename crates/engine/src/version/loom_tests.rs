//! Models of a writer, a reader and a thread that frees, over every interleaving (with a bounded
//! number of preemptions).
//!
//! Run with `RUSTFLAGS="--cfg duramen_loom" cargo test --release -p duramen --lib version::loom`.
//! The page is a latch's version and a value, read as the tree's readers do. If its record is a
//! ghost, the value has the number of the deletion above [`GHOST`].

// Not part of the models: these counters outlive a single run.
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use duramen_sync::atomic::{AtomicU64, Ordering, fence};
use duramen_sync::{Arc, thread};
use duramen_types::{Gsn, TableId};

use super::*;
use crate::page::SlotFlags;

const TABLE: TableId = TableId::new(16);
const KEY: &[u8] = b"key";
const GHOST: u32 = 32;

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.max_branches = 100_000;
    builder.check(body);
}

/// A database of one record: its page, its log, and the versions.
struct Model {
    /// Odd while the page is latched.
    latch: AtomicU64,
    page: AtomicU64,
    /// The position of the latest commit record, and of the latest that is hardened.
    log: AtomicU64,
    hardened: Arc<AtomicU64>,
    versions: VersionStore,
}

impl Model {
    fn new() -> Self {
        let hardened = Arc::new(AtomicU64::new(0));
        let horizon = Arc::clone(&hardened);
        let order = CommitOrder::Gsns(Box::new(move || Gsn::new(horizon.load(Ordering::Acquire))));
        let versions = VersionStore::with_buckets(order, u64::MAX, 0, true);
        // The model does not know of the lock with which the buckets are made.
        versions.buckets();
        Self { latch: AtomicU64::new(0), page: AtomicU64::new(0), log: AtomicU64::new(0), hardened, versions }
    }

    fn set(&self, value: u64) {
        let version = self.latch.load(Ordering::Relaxed);
        self.latch.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.page.store(value, Ordering::Relaxed);
        self.latch.store(version + 2, Ordering::Release);
    }

    /// Gives the record, or the ghost, `value`; the latch covers the push and the change.
    fn write(&self, txn: &mut TxnVersions, value: u64) {
        let before = self.page.load(Ordering::Relaxed);
        let bytes = (before & ((1 << GHOST) - 1)).to_le_bytes();
        let before = if before >> GHOST == 0 { Before::Value(&bytes, SlotFlags::NONE) } else { Before::Ghost(&bytes) };
        self.versions.push(txn, TABLE, KEY, before, false);
        self.set(value);
    }

    /// Makes the record a ghost: deletion number `value`, with a run.
    fn delete(&self, txn: &mut TxnVersions, value: u64) {
        let before = self.page.load(Ordering::Relaxed);
        let deleted = Deleted { key: KEY, value: &before.to_le_bytes(), flags: SlotFlags::NONE };
        self.versions.push_deleted(txn, TABLE, &[deleted]);
        self.set(before | value << GHOST);
    }

    fn commit(&self, txn: &mut TxnVersions) {
        self.versions.begin_commit(txn);
        let gsn = Gsn::new(self.log.fetch_add(1, Ordering::AcqRel) + 1);
        let at = self.versions.commit(txn, gsn, gsn);
        self.versions.retire(txn, Cleanup { at, first: gsn, ghosts: Vec::new(), has_frees: false });
    }

    /// Hardens the commits whose records are in the log.
    fn harden(&self) {
        self.hardened.fetch_max(self.log.load(Ordering::Acquire), Ordering::AcqRel);
    }

    /// Reads once; `None` if the reader must try again.
    fn read(&self, at: Gsn) -> Option<u64> {
        let version = self.latch.load(Ordering::Acquire);
        if version % 2 == 1 {
            return None;
        }
        let page = self.page.load(Ordering::Relaxed);
        let mut older = Vec::new();
        let found = self.versions.version_at(TABLE, KEY, at, &mut older);
        fence(Ordering::Acquire);
        if self.latch.load(Ordering::Relaxed) != version {
            return None;
        }
        match found {
            Version::Unsettled => None,
            Version::Current if page >> GHOST > 0 => Some(page >> GHOST),
            Version::Current => Some(page),
            Version::InLeaf(_) => Some(page & ((1 << GHOST) - 1)),
            Version::Value(_) => Some(u64::from_le_bytes(older.try_into().expect("a number was pushed"))),
            // In these models commit number 1 alone deletes the record before another one writes.
            Version::Absent => Some(1),
        }
    }
}

/// How often a reader got an answer, and how often one that is not on the page.
#[derive(Default)]
struct Seen {
    reads: AtomicUsize,
    older: AtomicUsize,
}

impl Seen {
    /// Opens a snapshot and reads twice: commit number n writes n, so the value is the position.
    fn look(&self, model: &Model) {
        let snapshot = model.versions.open();
        for _ in 0..2 {
            if let Some(value) = model.read(snapshot.at()) {
                assert_eq!(value, snapshot.at().get(), "the value at the position of the snapshot");
                self.reads.fetch_add(1, Relaxed);
                let is_older = model.page.load(Ordering::Relaxed) != value;
                self.older.fetch_add(usize::from(is_older), Relaxed);
            }
        }
        model.versions.close(&snapshot);
    }

    fn check(&self, what: &str) {
        let (reads, older) = (self.reads.load(Relaxed), self.older.load(Relaxed));
        println!("{what}: {reads} reads, {older} of older values");
        assert!(older > 0 && older < reads);
    }
}

/// A snapshot is opened and read while transactions write, commit, harden, and free versions: also
/// in the window in which a commit record is in the log, and hardened by another thread, before its
/// writer has published it.
#[test]
fn a_snapshot_shows_the_commits_up_to_its_position() {
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    model(move || {
        let model = Arc::new(Model::new());
        let writer = {
            let model = Arc::clone(&model);
            thread::spawn("writer", move || {
                for number in 0..2 {
                    let mut txn = TxnVersions::default();
                    model.write(&mut txn, number + 1);
                    model.commit(&mut txn);
                    model.harden();
                    model.versions.collect(0);
                }
            })
        };
        model.harden();
        counted.look(&model);
        writer.expect("a thread starts").join().expect("no panic");
    });
    seen.check("writes, commits and freeing");
}

/// A flush hardens the record of a commit that its writer has not published.
#[test]
fn a_commit_in_its_window_is_neither_seen_nor_missed() {
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    model(move || {
        let model = Arc::new(Model::new());
        let own = Arc::clone(&model);
        let writer = thread::spawn("writer", move || {
            let mut txn = TxnVersions::default();
            own.write(&mut txn, 1);
            own.commit(&mut txn);
        });
        let own = Arc::clone(&model);
        let flusher = thread::spawn("flusher", move || own.harden());
        counted.look(&model);
        writer.expect("a thread starts").join().expect("no panic");
        flusher.expect("a thread starts").join().expect("no panic");
    });
    seen.check("the window");
}

/// A thread writes while a snapshot is opened and read.
fn beside_a_reader(what: &str, write: impl Fn(&Model) + Copy + Send + Sync + 'static) {
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    model(move || {
        let model = Arc::new(Model::new());
        let own = Arc::clone(&model);
        let writer = thread::spawn("writer", move || write(&own));
        counted.look(&model);
        writer.expect("a thread starts").join().expect("no panic");
    });
    seen.check(what);
}

/// An abort restores the page and drops the versions.
#[test]
fn what_is_aborted_is_never_seen() {
    let abort = |model: &Model, write: fn(&Model, &mut TxnVersions, u64)| {
        let mut txn = TxnVersions::default();
        write(model, &mut txn, 77);
        model.set(0);
        model.versions.abort(&txn);
    };
    beside_a_reader("an abort", move |model| abort(model, Model::write));
    beside_a_reader("an abort of a run", move |model| abort(model, Model::delete));
}

/// A run, and a node of another commit, are written, committed, hardened and freed.
#[test]
#[ignore = "long; the gate draws some of these"]
fn a_run_shows_what_a_node_would() {
    for (what, number_of_run) in [("a run before a node", 0), ("a run behind a node", 1)] {
        beside_a_reader(what, move |model| {
            for number in 0..2 {
                let mut txn = TxnVersions::default();
                match number == number_of_run {
                    true => model.delete(&mut txn, number + 1),
                    false => model.write(&mut txn, number + 1),
                }
                model.commit(&mut txn);
                model.harden();
                model.versions.collect(0);
            }
        });
    }
}

/// A transaction has a node, and then a run, of the same record, and commits while a snapshot
/// reads.
#[test]
fn a_node_is_older_than_a_run_of_the_same_transaction() {
    beside_a_reader("a node and a run", |model| {
        let mut txn = TxnVersions::default();
        model.write(&mut txn, 77);
        model.delete(&mut txn, 1);
        model.commit(&mut txn);
        model.harden();
        model.versions.collect(0);
    });
}

/// A record of a run gets another value: by a commit behind that of the run, neither of which is
/// hardened, and by one that is aborted.
#[test]
fn a_run_has_the_value_that_the_leaf_loses() {
    for (what, commits) in [("a ghost that is inserted again", true), ("and is a ghost again", false)] {
        beside_a_reader(what, move |model| {
            let mut txn = TxnVersions::default();
            model.delete(&mut txn, 1);
            model.commit(&mut txn);
            let ghost = model.page.load(Ordering::Relaxed);
            let mut txn = TxnVersions::default();
            model.write(&mut txn, 2);
            if commits {
                return model.commit(&mut txn);
            }
            // What the undo leaves in a ghost matters to nobody.
            model.set(ghost | 88);
            model.versions.abort(&txn);
        });
    }
}

/// A context drops what it has kept of earlier transactions, unless they are not hardened.
#[test]
#[ignore = "long; the gate draws some of these"]
fn a_context_drops_only_what_no_snapshot_needs() {
    for (what, hardened) in [("a context with hardened commits", 2), ("a context without", 0)] {
        beside_a_reader(what, move |model| {
            let mut txn = TxnVersions::default();
            for number in 0..3 {
                model.write(&mut txn, number + 1);
                model.commit(&mut txn);
                if number < hardened {
                    model.harden();
                }
            }
        });
    }
}

/// A thread that frees reads the horizon while a snapshot takes it.
#[test]
fn what_a_snapshot_needs_is_not_reclaimable() {
    model(|| {
        let model = Arc::new(Model::new());
        let own = Arc::clone(&model);
        let other = thread::spawn("other", move || {
            own.hardened.store(1, Ordering::Release);
            own.versions.reclaimable()
        });
        let snapshot = model.versions.open();
        let until = model.versions.reclaimable();
        assert!(until <= snapshot.at());
        let other = other.expect("a thread starts").join().expect("no panic");
        assert!(other <= snapshot.at(), "{other} of {}", snapshot.at());
    });
}

/// A push prunes a long chain while a snapshot is opened and read.
#[test]
fn pruning_leaves_what_a_snapshot_needs() {
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    model(move || {
        let model = Arc::new(Model::new());
        for number in 0..8 {
            let mut txn = TxnVersions::default();
            model.write(&mut txn, number + 1);
            model.commit(&mut txn);
        }
        let own = Arc::clone(&model);
        let writer = thread::spawn("writer", move || {
            own.harden();
            let mut txn = TxnVersions::default();
            own.write(&mut txn, 9);
            own.commit(&mut txn);
        });
        counted.look(&model);
        writer.expect("a thread starts").join().expect("no panic");
    });
    seen.check("pruning");
}
