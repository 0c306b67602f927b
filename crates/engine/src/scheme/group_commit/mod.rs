//! NVRAM group commit: batches of transactions become durable together (Pelley et al., *Storage
//! Management in the NVRAM Era*, PVLDB 7(2), 2013, section 3.2).
//!
//! There is no log of changes. The frames of the pool are the staging buffer: a change marks lines
//! in its frames, and keeps undo information in DRAM ([`stacks`]). One thread ([`batch`]) ends
//! batches, and each batch costs two barriers, whatever is in it:
//!
//! | step | | barrier |
//! |---|---|---|
//! | drain | for a limited time, new writers wait and those under way end | |
//! | close | nobody changes a page (`pool/staging.rs`); masks, lines and undo information are copied | |
//! | open | the next batch begins | |
//! | write | the record ([`format`]) into the half of the batch log that the batch before does not use; new undo information into undo blocks | 1 |
//! | publish | the batch is durable: its commits are acknowledged (`scheme/batch_acks.rs`) | |
//! | home | the lines to the pages in the heap | 2 |
//!
//! That is the protocol with the fewest barriers ([`Barriers::Fewest`]). With [`Barriers::Paper`],
//! the record has the *old* lines, and a batch costs four barriers:
//!
//! | step | | barrier |
//! |---|---|---|
//! | log | the record with the old lines; undo information | 1 |
//! | valid | a word of the heap's header: the old lines of this batch are logged | 2 |
//! | home | the new lines to the pages in the heap | 3 |
//! | invalid | another word: the batch is committed. The old lines count no more, and neither does the list of carried transactions in the record before | 4 |
//! | publish, open | | |
//!
//! The GSN of a change is the number of its batch, and so is that of a commit. A batch is hardened
//! as a whole. So early lock release works as over a log: a transaction depends only on
//! transactions of its own batch and of earlier ones.
//!
//! # Carried transactions
//! Batches end between actions, not between transactions: one thread may hold two transactions, and
//! a transaction may wait for a lock, so nobody waits until all have ended. The record lists each
//! transaction under way with its undo information. A crash rolls it back; a later batch that does
//! not list it ends it.
//!
//! # Why recovery is right
//! Recovery takes the valid record with the highest number, *b*, stores its lines, and rolls back
//! the transactions that it lists, in batch *b* + 1.
//!
//! - Batch *b* - 1 was home, behind a barrier, before the record of *b* was stored. So with the
//!   lines of *b* the heap is as it was in memory when *b* ended: between two actions everywhere,
//!   with each commit of *b* whole and none of *b* + 1.
//! - No line of *b* + 1 reaches the heap before the record of *b* + 1 is durable.
//! - If the record of *b* + 1 is torn, or undo blocks that it lists, then it was not durable, and
//!   nothing of it was acknowledged. The record of *b* is in the other half, and the undo blocks
//!   that it lists were neither freed nor overwritten.
//! - Storing the lines of *b* again has no effect, so recovery may crash and start over. A crash
//!   before batch *b* + 1 is durable takes back every rollback.
//! - With old lines: if batch *b* is not committed by the word, its old lines are stored again
//!   where the header says that they are logged, and the record of *b* - 1 counts. If it is, its
//!   lines are home.
//! - A record may be whole although its barrier had not ended. Recovery stores it once more before
//!   it relies on it, because parts may so far be in caches only.

mod batch;
mod format;
mod inspection;
mod recovery;
mod stacks;

pub(crate) use format::most_staged;
pub(crate) use inspection::{FoundBatch, batches_of};
pub(crate) use recovery::{Batches, PastEntry, create_log};

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Backoff, Mutex, Process, Striped};
use duramen_types::{Gsn, LogAddress, TxnId, planted};
use duramen_wal::NewRecord;

use super::batch_acks::{Acks, Ticket};
use super::{Change, Hardening, Home, LogService, Recorded, StorageScheme};
use crate::error::{Error, Result};
use crate::heap::{Heap, State, Word};
use crate::metrics::HeapMetrics;
use crate::options::{Barriers, BatchOptions};
use crate::page;
use crate::pool::{Exclusive, Pool};
use crate::record::{FLAG_HAS_DEFERRED_FREES, Kind, undo_next};
use batch::{BatchEvent, Counters, batch_loop};
use stacks::{ENTRY, STANDING, Stacks, place_of};

/// Group commit into a heap.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The process that opened the database: the threads exist only there.
    process: Process,
}

/// What the threads share.
#[derive(Debug)]
struct Inner {
    heap: Arc<Heap>,
    pool: Arc<Pool>,
    options: BatchOptions,
    barriers: Barriers,
    stacks: Stacks,
    acks: Arc<Acks>,
    event: BatchEvent,
    /// The number of the batch that takes changes. Changes while nobody is in a section.
    batch: AtomicU64,
    next_txn: AtomicU64,
    groups: AtomicU64,
    /// Whether new writers wait for the end of the batch.
    is_draining: AtomicBool,
    counters: Counters,
    changes: Striped<AtomicU64, 32>,
}

impl GroupCommit {
    /// Creates the scheme over an open heap and what was found in it, and starts its threads.
    ///
    /// # Errors
    /// Those of the system when it refuses a thread.
    pub(crate) fn start(
        heap: Arc<Heap>,
        pool: Arc<Pool>,
        options: BatchOptions,
        barriers: Barriers,
        found: &Batches,
    ) -> Result<Self> {
        let inner = Arc::new(Inner {
            stacks: Stacks::new(&heap, found.resumed()),
            acks: Arc::new(Acks::new(found.batch())),
            event: BatchEvent::default(),
            batch: AtomicU64::new(found.batch() + 1),
            next_txn: AtomicU64::new(found.next_txn().get()),
            groups: AtomicU64::new(found.groups()),
            is_draining: AtomicBool::new(false),
            counters: Counters::default(),
            changes: Striped::default(),
            heap,
            pool,
            options,
            barriers,
        });
        let hurried = Arc::downgrade(&inner);
        inner.staging().on_request(move || {
            if let Some(inner) = hurried.upgrade() {
                inner.event.hurry();
            }
        });
        let scheme = Self { inner, threads: Mutex::default(), process: Process::current() };
        let (inner, acks) = (Arc::clone(&scheme.inner), Arc::clone(&scheme.inner.acks));
        scheme.spawn("duramen-batch", move || batch_loop(&inner))?;
        scheme.spawn("duramen-batch-notify", move || acks.notify_loop())?;
        Ok(scheme)
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let failed = |error| Error::Io { reason: format!("cannot start the thread `{name}`: {error}") };
        let thread = thread::spawn(name, body).map_err(failed)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Stops the threads, after a last batch if `with_last_batch` says so.
    fn stop(&self, with_last_batch: bool) {
        self.inner.event.stop(with_last_batch);
        let threads = std::mem::take(&mut *self.threads.lock());
        let mut threads = threads.into_iter();
        // The notifier, the second one, tells those who wait for the last batch.
        for thread in threads.by_ref().take(1) {
            if !thread::is_current(&thread) {
                let _ = thread.join();
            }
        }
        self.inner.acks.stop();
        for thread in threads.filter(|thread| !thread::is_current(thread)) {
            // A panic in the thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }

    /// Ends the batch at once, and waits until it is durable. Called without latches.
    #[cold]
    fn end_batch(&self) -> Result<()> {
        let batch = {
            let _section = self.inner.pool.enter();
            // A batch without work would not end.
            self.inner.event.note_work();
            self.inner.batch.load(Ordering::Relaxed)
        };
        self.inner.event.hurry();
        self.inner.acks.wait(batch)
    }

    /// Notes the end of a transaction, or its commit with deferred frees to do; returns the space
    /// that it has taken.
    fn note_end(&self, home: Home, has_frees: bool) -> u64 {
        let mut bytes = 0;
        if has_frees {
            bytes = self.inner.stacks.commit(home);
        } else {
            self.inner.stacks.end(home);
        }
        self.inner.event.note_work();
        bytes
    }
}

impl Drop for GroupCommit {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.stop(false);
        }
    }
}

impl StorageScheme for GroupCommit {
    fn home(&self, txn: TxnId) -> Home {
        self.inner.stacks.begin(txn)
    }

    fn home_of(&self, _txn: TxnId, last: LogAddress) -> Home {
        Home(place_of(last).0)
    }

    fn change(&self, home: Option<Home>, change: Change<'_>, pages: &mut [Exclusive<'_>]) -> Recorded {
        let record = change.record;
        let undo = &record.payload[..change.prefix];
        // The pages keep the thread in a section, or there is none to change.
        let _section = self.inner.pool.enter();
        let batch = Gsn::new(self.inner.batch.load(Ordering::Relaxed));
        for (number, page) in pages.iter_mut().enumerate() {
            if number > 0 && planted!(SectionIgnored) {
                // As if another thread had the processor in between.
                thread::sleep(Duration::from_micros(300));
            }
            page::set_gsn(&mut page.page_mut(), batch);
            page.stage(batch);
        }
        let mut recorded = Recorded { gsn: batch, address: LogAddress::ZERO, bytes: 0 };
        match home {
            None => {}
            Some(home) if record.kind == Kind::Compensation as u8 => {
                recorded.address = undo_next(undo).expect("it was just encoded");
                self.inner.stacks.pop_to(home, recorded.address);
            }
            Some(home) => {
                (recorded.address, recorded.bytes) = self.inner.stacks.push(home, record.kind, record.flags, undo);
            }
        }
        self.inner.event.note_work();
        self.inner.changes.own().1.fetch_add(1, Ordering::Relaxed);
        recorded
    }

    fn note(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let _section = self.inner.pool.enter();
        let (address, bytes) = self.inner.stacks.push(home, record.kind, record.flags, record.payload);
        self.inner.event.note_work();
        Recorded { gsn: Gsn::new(self.inner.batch.load(Ordering::Relaxed)), address, bytes }
    }

    fn end_txn(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let has_frees = record.kind == Kind::Commit as u8 && record.flags & FLAG_HAS_DEFERRED_FREES != 0;
        let ended = |batch, bytes| Recorded { gsn: Gsn::new(batch), address: record.prev, bytes };
        if planted!(CommitOutsideSection) {
            let batch = self.inner.batch.load(Ordering::Relaxed);
            // As if another thread had the processor in between.
            thread::sleep(Duration::from_micros(300));
            let bytes = self.note_end(home, has_frees);
            return ended(batch, bytes);
        }
        let _section = self.inner.pool.enter();
        let bytes = self.note_end(home, has_frees);
        ended(self.inner.batch.load(Ordering::Relaxed), bytes)
    }

    fn harden(&self, gsn: Gsn, _own: Option<LogAddress>) -> Result<()> {
        self.inner.acks.wait(gsn.get())
    }

    /// Ends the batch at once.
    fn hurry_hardening(&self, gsn: Gsn) {
        if !self.is_hardened(gsn) {
            self.inner.event.hurry();
        }
    }

    fn request_hardening(&self, gsn: Gsn) -> Option<Hardening> {
        (!self.is_hardened(gsn)).then(|| Hardening::Batch(Ticket::new(&self.inner.acks, gsn.get())))
    }

    fn before_blocking(&self) {}

    fn is_hardened(&self, gsn: Gsn) -> bool {
        self.inner.acks.durable() >= gsn.get()
    }

    /// The GSN is the number of the batch.
    fn commits_share_gsns(&self) -> bool {
        true
    }

    /// The batch is over, so no commit joins it any more.
    fn hardened_commits(&self) -> Option<Gsn> {
        Some(Gsn::new(self.inner.acks.durable()))
    }

    fn latest(&self) -> Gsn {
        Gsn::new(self.inner.batch.load(Ordering::Relaxed))
    }

    fn space_for_operation(&self, payload: u64) -> u64 {
        // The entry, which has the old value, and that of a deferred free, and what a transaction
        // always has in reserve.
        payload + (page::MAX_INLINE_SIZE + 2 * ENTRY) as u64 + 256 + STANDING
    }

    /// Taking a change back lengthens no stack.
    fn space_for_undo(&self, _payload: usize, _inverse: usize) -> u64 {
        0
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        loop {
            let mut backoff = Backoff::new();
            while self.inner.is_draining.load(Ordering::Acquire) {
                // For as long as the batch thread drains and copies.
                backoff.snooze();
            }
            let is_returning = self.inner.stacks.is_space_returning();
            match self.inner.stacks.reserve(&self.inner.heap, bytes) {
                Err(Error::Full { .. }) if is_returning => self.end_batch()?,
                outcome => return outcome,
            }
        }
    }

    /// The end of a transaction needs no space.
    fn reserve_end(&self) -> Result<u64> {
        Ok(0)
    }

    /// A stack gives back at its end what was pushed.
    fn unreserve(&self, _bytes: u64) {}

    fn unreserve_unused(&self, bytes: u64) {
        self.inner.stacks.unreserve(bytes);
    }

    /// Changes that no transaction owns need no undo information.
    fn reserve_system(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    /// The records of batches have it: a transaction with such an id changes something later.
    fn note_txn_limit(&self, limit: TxnId) {
        self.inner.next_txn.fetch_max(limit.get(), Ordering::Relaxed);
    }

    fn note_groups(&self, groups: u64) {
        self.inner.groups.fetch_max(groups, Ordering::Relaxed);
    }

    fn log(&self) -> Option<&dyn LogService> {
        None
    }

    fn heap(&self) -> Option<HeapMetrics> {
        let (journal_bytes, journal_bytes_free) = self.inner.stacks.bytes();
        let counters = &self.inner.counters;
        Some(HeapMetrics {
            changes: self.inner.changes.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            barriers: self.inner.heap.barriers(),
            pages: self.inner.heap.layout.pages,
            journal_bytes,
            journal_bytes_free,
            batches: counters.batches.load(Ordering::Relaxed),
            batch_bytes: counters.bytes.load(Ordering::Relaxed),
            carried: counters.carried.load(Ordering::Relaxed),
        })
    }

    fn failure(&self) -> Option<String> {
        match self.inner.acks.failure() {
            None | Some(Error::Closed) => None,
            Some(error) => Some(error.to_string()),
        }
    }

    fn close(&self) -> Result<()> {
        self.stop(true);
        if let Some(reason) = self.failure() {
            return Err(Error::Poisoned { reason });
        }
        self.inner.heap.set(Word::State, State::Clean as u64);
        Ok(())
    }
}
