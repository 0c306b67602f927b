//! Fuzzy checkpoints: they bound the log that recovery must read, while transactions run.
//!
//! A checkpoint is a sequence of records: a begin record; the transaction table and the dirty page
//! table as they are after it, in as many records as needed; and an end record. Once the end record
//! is hardened, the begin record's LSN goes into the control file. Recovery takes the tables as the
//! state at the begin record and applies all records from there on. Both tables may already contain
//! the effects of such records, which does no harm. They never lack the effect of an earlier
//! record: `txn_state/table.rs` and [`crate::pool::Pool::dirty_pages`] say why.
//!
//! If the database was opened before redo was complete, the pages that are still to be redone count
//! as dirty too.
//!
//! The log is needed from the oldest change that a dirty page lacks on disk, and from the first
//! record of the oldest transaction in the table. The log below both is recycled.

mod checkpointer;
pub(crate) mod control;
pub(crate) mod generation;
pub(crate) mod tables;

pub(crate) use checkpointer::Checkpointer;

use duramen_io::Disk;
use duramen_sync::Mutex;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, Lsn, PageId, planted, span};
use duramen_wal::NewRecord;

use crate::error::{Error, Result};
use crate::health::Failures;
use crate::metrics::Counters;
use crate::options::Pace;
use crate::record::Kind;
use crate::scheme::{LogService, Recorded};
use crate::storage::store::Store;
use crate::txn_state::context_pool::ContextPool;
use crate::txn_state::table::TxnTable;
use control::{Control, ControlFile};
use generation::Generations;
use tables::{CheckpointEnd, ENTRIES, encode_pages, encode_txns};

/// The parts of the engine that a checkpoint works with.
pub(crate) struct Checkpoint<'e> {
    pub(crate) disk: &'e dyn Disk,
    pub(crate) log: &'e dyn LogService,
    pub(crate) control: &'e Mutex<ControlFile>,
    pub(crate) store: &'e Store,
    pub(crate) txns: &'e TxnTable,
    pub(crate) contexts: &'e ContextPool,
    pub(crate) failures: Failures<'e>,
    pub(crate) counters: &'e Counters,
    pub(crate) checkpointer: &'e Checkpointer,
    pub(crate) pace: Pace,
    /// The user's limit of each log, in bytes.
    pub(crate) limit: u64,
}

impl Checkpoint<'_> {
    /// Takes a checkpoint after writing the pages that have been dirty since before the last one.
    pub(crate) fn take(&self) -> Result<()> {
        let mut standing = self.checkpointer.begin();
        let latest = self.control.lock().control.checkpoint_gsn();
        self.take_one(&mut standing, latest)
    }

    /// Does what [`Checkpoint::take`] does if the log has grown enough.
    pub(crate) fn take_if_due(&self) -> Result<()> {
        if self.checkpointer.is_due(self.log) { self.take() } else { Ok(()) }
    }

    /// Takes the checkpoint that ends an opening. The pages that recovery has made dirty are
    /// written by the next one, which the first transaction that writes makes due: transactions do
    /// not wait for them. If the log is long already, the pages are written first, so that it does
    /// not grow from crash to crash; pages that instant recovery has not redone yet stay.
    pub(crate) fn take_at_opening(&self) -> Result<()> {
        /// In intervals of checkpoints.
        const LONG: u64 = 4;
        let mut standing = self.checkpointer.begin();
        let Control { redo, logs, .. } = self.control.lock().control;
        let logs = u64::from(logs.count);
        let long = LONG.saturating_mul(self.pace.interval()).div_ceil(logs).min(self.limit / 2);
        let are_written_first = self.log.bytes_from(redo) > long;
        self.take_one(&mut standing, if are_written_first { self.log.end() } else { Gsn::ZERO })?;
        if !self.pages_to_redo().is_empty() {
            self.checkpointer.set_due(Gsn::ZERO, 0);
        }
        Ok(())
    }

    /// Takes a checkpoint after writing every dirty page.
    pub(crate) fn take_of_clean_pages(&self) -> Result<()> {
        let mut standing = self.checkpointer.begin();
        let end = self.log.end();
        self.take_one(&mut standing, end)
    }

    fn take_one(&self, standing: &mut u64, flush_before: Gsn) -> Result<()> {
        let _span = span!("checkpoint", log_bytes = self.log.bytes_from(self.control.lock().control.redo));
        let begun = self.log.end();
        let taken = self.take_in_reservation(standing, flush_before);
        let Control { redo, logs, .. } = self.control.lock().control;
        let (left, growth) = (self.log.bytes_from(redo), self.log.bytes_from(begun));
        self.checkpointer.set_due(self.log.end(), self.pace.bytes_to_next(left, growth, u64::from(logs.count)));
        // While no other thread can begin a checkpoint.
        taken.map_err(|error| self.failures.note(error))
    }

    fn take_in_reservation(&self, standing: &mut u64, flush_before: Gsn) -> Result<()> {
        self.failures.health.check()?;
        self.verify_files()?;
        self.store.pool.flush_before(flush_before)?;
        self.reserve_usual(standing)?;
        let before = *standing;
        let mut tails = Vec::new();
        let begun = self.record(standing, Kind::CheckpointBegin.record(&[]), &mut tails);
        let begin = begun.address.lsn();
        let mut txns = self.txns.snapshot();
        if !txns.is_empty() {
            reach(Probe::CheckpointUnderLoad);
        }
        let mut pages = self.pages_to_redo();
        if planted!(CheckpointForgetsTransactions) {
            txns.clear();
        }
        if planted!(CheckpointForgetsDirtyPages) {
            pages.clear();
        }
        let txn_parts = txns.chunks(ENTRIES).map(|part| (Kind::CheckpointTransactions, encode_txns(begin, part)));
        let page_parts = pages.chunks(ENTRIES).map(|part| (Kind::CheckpointPages, encode_pages(begin, part)));
        let parts: Vec<(Kind, Vec<u8>)> = txn_parts.chain(page_parts).collect();
        let bytes = |payload: usize| self.log.record_bytes(payload);
        let bytes_of_all =
            parts.iter().map(|(_, payload)| bytes(payload.len())).sum::<u64>() + bytes(CheckpointEnd::MAX_BYTES);
        self.reserve_at_least(standing, bytes_of_all)?;
        for (kind, payload) in &parts {
            self.record(standing, kind.record(payload), &mut Vec::new());
        }
        let next_txn = self.contexts.next_txn();
        // Before the end record: every group counted here is in the log that is hardened next.
        let groups = self.store.space.groups();
        let end = CheckpointEnd { begin, next_txn }.encode();
        // The changes that the tables contain, and the ends of transactions that the tables
        // therefore omit, may be in any log. All of them are hardened with the end record if it has
        // the higher GSN.
        let seen = Gsn::new(self.log.end().get() - 1);
        let end = NewRecord { after: seen, ..Kind::CheckpointEnd.record(&end) };
        let end = self.record(standing, end, &mut Vec::new());
        // Another sync record may cover the end record before all that this one states is hardened.
        self.log.harden_at_once(Gsn::new(self.log.end().get() - 1), Some(end.address))?;

        // The versions of all pages that the table lacks have been recorded.
        self.store.pool.write_versions()?;
        let generation = Generations { control: self.control, store: self.store }.stamp_next()?;
        let redo = pages.iter().map(|&(_, gsn)| gsn).fold(begun.gsn, Gsn::min);
        let oldest = txns.iter().map(|entry| entry.first).fold(redo, Gsn::min);
        {
            let mut file = self.control.lock();
            let redo_from = self.log.positions_before(redo);
            let logs = file.control.logs.at_checkpoint(begun.gsn, end.gsn, &tails, &redo_from);
            let control =
                Control { checkpoint: begin, redo, oldest, next_txn, groups, generation, logs, ..file.control };
            file.write(control)?;
        }
        self.counters.checkpoint_taken();
        self.log.recycle_below(oldest)?;
        // Reserves log space for the next checkpoint, if some is free at once.
        let used = before.saturating_sub(*standing);
        if self.store.scheme.reserve(used).is_ok() {
            *standing += used;
        }
        Ok(())
    }

    /// Checks that the database is still in its directory. A database that was moved away while it
    /// was open has everything that was acknowledged. A program that looks for the database at the
    /// old path must not mistake other files there for it.
    fn verify_files(&self) -> Result<()> {
        self.disk.verify_home()?;
        self.control.lock().file().verify_name()?;
        Ok(self.store.pool.verify_file()?)
    }

    /// Returns the dirty page table: the pages that recovery has not redone yet, then the pages
    /// that are dirty in the pool. The order matters, because a page becomes dirty before it leaves
    /// the first set.
    fn pages_to_redo(&self) -> Vec<(PageId, Gsn)> {
        let mut pages = self.store.pool.unredone_pages();
        if !pages.is_empty() {
            reach(Probe::CheckpointBeforeRedo);
        }
        if planted!(CheckpointForgetsUnredone) {
            pages.clear();
        }
        pages.append(&mut self.store.pool.dirty_pages());
        // For a page that is in both sets, the lower GSN counts.
        pages.sort_unstable();
        pages.dedup_by_key(|(page, _)| *page);
        pages
    }

    /// Reserves log space for one checkpoint before the checkpoint uses it. A full log must never
    /// prevent the checkpoint that would free space in it, and no checkpoint may use space that
    /// other threads have reserved. The exact size is not known before the tables are collected;
    /// this reserves the usual size.
    fn reserve_usual(&self, standing: &mut u64) -> Result<()> {
        // In a data file that grows until then, other pages become dirty.
        let pages = (self.store.pool.frames() as u64).min(2 * self.store.pool.pages_in_store());
        let usual = (32 << 10) + 12 * pages;
        if *standing <= usual / 2 {
            return self.reserve_at_least(standing, usual);
        }
        let missing = usual.saturating_sub(*standing);
        match self.store.scheme.reserve(missing) {
            // The reserved space is probably enough. The log must not grow beyond its limit for
            // this.
            Err(Error::Full { .. }) => return Ok(()),
            other => other?,
        }
        *standing += missing;
        Ok(())
    }

    /// Ensures that at least `bytes` are reserved. The limit of the log must not prevent the
    /// checkpoint that frees space in the log.
    fn reserve_at_least(&self, standing: &mut u64, bytes: u64) -> Result<()> {
        let missing = bytes.saturating_sub(*standing);
        if missing == 0 {
            return Ok(());
        }
        match self.store.scheme.reserve(missing) {
            Err(Error::Full { .. }) => self.log.reserve_beyond_limit(missing)?,
            other => other?,
        }
        *standing += missing;
        Ok(())
    }

    /// Inserts a record of a checkpoint, in the log space reserved for it.
    fn record(&self, standing: &mut u64, record: NewRecord<'_>, tails: &mut Vec<Lsn>) -> Recorded {
        let bytes = self.log.record_bytes(record.payload.len());
        assert!(bytes <= *standing, "log space is reserved for what a checkpoint logs");
        let recorded = self.log.record_checkpoint(record, tails);
        *standing -= bytes;
        self.store.scheme.unreserve(bytes);
        recorded
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use duramen_io::SimDisk;
    use duramen_sync::Arc;
    use duramen_types::{LogAddress, PAGE_SIZE, TxnId};

    use super::*;
    use crate::maintenance::Maintenance;
    use crate::open::open;
    use crate::options::Options;
    use crate::txn_state::table::{TxnEntry, TxnState};

    /// Whatever a checkpoint logs, the segments reach as far as the log and the reservations of
    /// other threads.
    #[test]
    fn tables_larger_than_usual_use_no_room_that_others_count_on() {
        let segment_bytes = 1 << 20;
        let options = Options {
            pool_bytes: 64 * PAGE_SIZE,
            log_buffer_bytes: 1 << 20,
            log_segment_bytes: segment_bytes,
            log_max_bytes: 4 << 20,
            checkpoint_bytes: Some(2 << 20),
            ..Options::default()
        };
        let engine = open(Arc::new(SimDisk::new(1)), options).unwrap();
        while engine.scheme().reserve(1 << 10).is_ok() {}
        for txn in 1_000..41_000 {
            let (first, last) = (Gsn::new(4096), LogAddress::new(4144));
            let entry = TxnEntry { txn: TxnId::new(txn), state: TxnState::Active, first, last };
            engine.txns.enter(&Arc::default(), entry);
        }
        for _ in 0..3 {
            engine.checkpoint().unwrap();
            let stats = engine.scheme().log().unwrap().stats();
            assert!(stats.start.get() < segment_bytes, "no segment is recycled");
            let limit = 4096 + stats.segments_live * (segment_bytes - 4096);
            let used = stats.end.get() + stats.reserved_bytes;
            assert!(used <= limit, "{used} bytes are used or set aside, and there are {limit}");
        }
        engine.checkpointer.stop();
    }
}
