//! Fuzzy checkpoints: they bound the log that recovery must read, while transactions go on.
//!
//! A checkpoint is a begin record; the transaction table and the dirty page table as they are found after it, in as many
//! records as they take; an end record; and, once that is hardened, the begin record's LSN in the control file. Recovery
//! takes the tables as the state at the begin record and applies to them all records from there on. Both tables may
//! already contain the effects of such records; that does no harm. They never lack the effect of an earlier one:
//! `active.rs` and [`crate::pool::Pool::dirty_pages`] say why.
//!
//! Where the database was opened before redo was done, pages that are still to be redone are dirty as well.
//!
//! The log is needed from the oldest change that a dirty page lacks on disk, and from the first record of the oldest
//! transaction in the table; what lies below is recycled.

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::{self, JoinHandle, Parker};
use duramen_sync::{Arc, Mutex, Weak};
use duramen_types::{Gsn, Lsn, PageId, Place, TxnId, planted};
use duramen_wal::{Inserted, NewRecord};

use crate::active::{TxnEntry, TxnState};
use crate::control::Control;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::record::{Kind, Malformed, Reader, put_number};
use crate::txn_log::TXN_LIMIT;

/// Entries of a table in one record.
const ENTRIES: usize = 400;

/// What the end record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CheckpointEnd {
    /// The begin record.
    pub(crate) begin: Lsn,
    /// No transaction before the begin record has this number or a higher one.
    pub(crate) next_txn: TxnId,
}

impl CheckpointEnd {
    /// Longest encoding: two numbers of ten bytes.
    const MAX_BYTES: usize = 20;

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_number(&mut out, self.begin.get());
        put_number(&mut out, self.next_txn.get());
        out
    }

    /// Reads the payload of an end record.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let (begin, next_txn) = (Lsn::new(reader.number()?), TxnId::new(reader.number()?));
        if next_txn > TXN_LIMIT { Err(Malformed) } else { Ok(Self { begin, next_txn }) }
    }
}

fn encode_txns(begin: Lsn, entries: &[TxnEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, begin.get());
    for entry in entries {
        put_number(&mut out, entry.txn.get());
        out.push(entry.state as u8);
        put_number(&mut out, entry.first.get());
        put_number(&mut out, entry.last.get());
    }
    out
}

/// Reads a part of the transaction table and the begin record it belongs to.
pub(crate) fn decode_txns(payload: &[u8]) -> Result<(Lsn, Vec<TxnEntry>), Malformed> {
    let mut reader = Reader::new(payload);
    let begin = Lsn::new(reader.number()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        let entry = TxnEntry {
            txn: TxnId::new(reader.number()?),
            state: TxnState::from_u8(reader.byte()?).ok_or(Malformed)?,
            first: Gsn::new(reader.number()?),
            last: Place::new(reader.number()?),
        };
        if entry.txn.is_zero() || entry.txn >= TXN_LIMIT || entry.state == TxnState::Over {
            return Err(Malformed);
        }
        entries.push(entry);
    }
    Ok((begin, entries))
}

fn encode_pages(begin: Lsn, entries: &[(PageId, Gsn)]) -> Vec<u8> {
    let mut out = Vec::new();
    put_number(&mut out, begin.get());
    for (page, gsn) in entries {
        put_number(&mut out, page.get());
        put_number(&mut out, gsn.get());
    }
    out
}

/// Reads a part of the dirty page table and the begin record it belongs to.
pub(crate) fn decode_pages(payload: &[u8]) -> Result<(Lsn, Vec<(PageId, Gsn)>), Malformed> {
    let mut reader = Reader::new(payload);
    let begin = Lsn::new(reader.number()?);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push((PageId::new(reader.number()?), Gsn::new(reader.number()?)));
    }
    Ok((begin, entries))
}

/// Decides when checkpoints are taken, and has them taken one at a time.
#[derive(Debug, Default)]
pub(crate) struct Checkpointer {
    /// Held while a checkpoint is taken. Inside: the log space set aside for the next one.
    running: Mutex<u64>,
    /// The next checkpoint is due when the log has reached this GSN.
    due: AtomicU64,
    parker: Arc<Parker>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    /// Starts the thread that takes checkpoints when they are due.
    pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<()> {
        let checkpointer = &core.checkpointer;
        let (parker, stop) = (Arc::clone(&checkpointer.parker), Arc::clone(&checkpointer.stop));
        let weak: Weak<Core> = Arc::downgrade(core);
        let thread = thread::spawn("duramen-checkpoint", move || {
            loop {
                parker.park();
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let Some(core) = weak.upgrade() else { return };
                // A failure of the disk has put the database out of service; a full log is the writers' to report.
                let _ = core.checkpoint();
            }
        })?;
        *checkpointer.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.parker.unpark();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in it has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Core {
    /// Wakes the checkpoint thread when the log has grown enough.
    #[inline]
    pub(crate) fn checkpoint_if_due(&self, end: Gsn) {
        let due = self.checkpointer.due.load(Ordering::Relaxed);
        if end.get() >= due
            && self.checkpointer.due.compare_exchange(due, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.checkpointer.parker.unpark();
        }
    }

    /// Takes a checkpoint, after writing out the pages that have been dirty since before the last one.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.retry_deferred();
        let mut standing = self.checkpointer.running.lock();
        let latest = self.control.lock().control.checkpoint_gsn();
        self.checkpoint_and_note(&mut standing, latest)
    }

    /// Takes a checkpoint after doing what recovery has left and writing every dirty page out: recovery would have nothing
    /// to redo, and the log can be recycled up to the oldest transaction. It is taken, too, if a page cannot be redone.
    pub(crate) fn checkpoint_clean(&self) -> Result<()> {
        let finished = self.finish_interrupted();
        let redone = self.finish_redo();
        self.write_out().and(finished).and(redone)
    }

    /// As [`Core::checkpoint_clean`], to make room in the log. A page that cannot be redone is for those to report who need it.
    pub(crate) fn checkpoint_for_room(&self) -> Result<()> {
        let _ = self.finish_redo();
        self.write_out()
    }

    /// Takes a checkpoint after writing every dirty page out.
    fn write_out(&self) -> Result<()> {
        let mut standing = self.checkpointer.running.lock();
        let end = self.scheme().end();
        self.checkpoint_and_note(&mut standing, end)
    }

    /// Bytes of log that are set aside for checkpoints; `None` while one is being taken.
    pub(crate) fn room_for_checkpoints(&self) -> Option<u64> {
        self.checkpointer.running.try_lock().map(|standing| *standing)
    }

    fn checkpoint_and_note(&self, standing: &mut u64, flush_before: Gsn) -> Result<()> {
        let taken = self.take_checkpoint(standing, flush_before);
        // Time passes with the bytes of the busiest of several logs; the others may have as many.
        let logs = u64::from(self.control.lock().control.logs.count);
        let next = Gsn::new(self.scheme().end().get() + self.options.checkpoint_bytes.div_ceil(logs));
        self.checkpointer.due.store(next.get(), Ordering::Relaxed);
        taken.map_err(|error| self.note(error))
    }

    fn take_checkpoint(&self, standing: &mut u64, flush_before: Gsn) -> Result<()> {
        self.health.check()?;
        self.verify_files()?;
        self.store.pool.flush_before(flush_before)?;
        self.store.pool.write_versions()?;
        self.set_room_aside(standing)?;
        let before = *standing;
        let mut tails = Vec::new();
        let begun = self.log_checkpoint(standing, Kind::CheckpointBegin.record(&[]), &mut tails);
        let begin = begun.lsn;
        let mut txns = self.active.snapshot();
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
        let bytes = |payload: usize| self.scheme().record_bytes(payload);
        let room = parts.iter().map(|(_, payload)| bytes(payload.len())).sum::<u64>() + bytes(CheckpointEnd::MAX_BYTES);
        self.have_room(standing, room)?;
        for (kind, payload) in &parts {
            self.log_checkpoint(standing, kind.record(payload), &mut Vec::new());
        }
        let next_txn = TxnId::new(self.next_txn.load(Ordering::Relaxed));
        // Before the end record: a group that is counted here is in the log that is hardened next.
        let groups = self.store.space.groups();
        let end = CheckpointEnd { begin, next_txn }.encode();
        // What the tables have seen, and what they lack because it was over, may be in any log. All of it is hardened with
        // the end record if that has the higher GSN.
        let seen = Gsn::new(self.scheme().end().get() - 1);
        let end = NewRecord { after: seen, ..Kind::CheckpointEnd.record(&end) };
        let end = self.log_checkpoint(standing, end, &mut Vec::new());
        self.scheme().harden_at_once(end.gsn, Some(end.place()))?;

        let generation = self.stamp_next_generation()?;
        let redo = pages.iter().map(|&(_, gsn)| gsn).fold(begun.gsn, Gsn::min);
        let oldest = txns.iter().map(|entry| entry.first).fold(redo, Gsn::min);
        {
            let mut file = self.control.lock();
            let redo_from = self.scheme().positions_before(redo);
            let logs = file.control.logs.at_checkpoint(begun.gsn, end.gsn, &tails, &redo_from);
            let control =
                Control { checkpoint: begin, redo, oldest, next_txn, groups, generation, logs, ..file.control };
            file.write(control)?;
        }
        self.counters.checkpoint_taken();
        self.scheme().recycle_below(oldest)?;
        // For the next one, if there is room at once.
        let used = before.saturating_sub(*standing);
        if self.scheme().reserve(used).is_ok() {
            *standing += used;
        }
        Ok(())
    }

    /// Checks that the database is still in its directory: what is moved away while it is open has all that was acknowledged,
    /// and whoever looks for the database where it was must not take what is there for it.
    fn verify_files(&self) -> Result<()> {
        self.disk.verify_home()?;
        self.control.lock().file().verify_name()?;
        Ok(self.store.pool.verify_file()?)
    }

    /// The dirty page table: pages that recovery has not redone yet, and those that are dirty in the pool. In this order, for
    /// a page is dirty before it is no longer among the former.
    fn pages_to_redo(&self) -> Vec<(PageId, Gsn)> {
        let mut pages = self.store.pool.unredone_pages();
        if !pages.is_empty() {
            reach(Probe::CheckpointBeforeRedo);
        }
        if planted!(CheckpointForgetsUnfinished) {
            pages.clear();
        }
        pages.append(&mut self.store.pool.dirty_pages());
        // Of a page that is in both, the lower GSN counts.
        pages.sort_unstable();
        pages.dedup_by_key(|(page, _)| *page);
        pages
    }

    /// Sees to it that log space for one checkpoint is set aside, before the checkpoint uses it: a full log must never
    /// keep the checkpoint from being taken that would make room, and no checkpoint may use room that others count on.
    /// How much one takes is not known before its tables are; this is what it mostly takes.
    fn set_room_aside(&self, standing: &mut u64) -> Result<()> {
        let usual = (64 << 10) + 12 * self.store.pool.frames() as u64;
        if *standing <= usual / 2 {
            return self.have_room(standing, usual);
        }
        let missing = usual.saturating_sub(*standing);
        match self.scheme().reserve(missing) {
            // Most likely there is enough. The log is not to grow beyond its limit for this.
            Err(Error::Full { .. }) => return Ok(()),
            other => other?,
        }
        *standing += missing;
        Ok(())
    }

    /// Sees to it that no less than `bytes` are set aside. The limit of the log must not stand in the way of what makes
    /// room in it.
    fn have_room(&self, standing: &mut u64, bytes: u64) -> Result<()> {
        let missing = bytes.saturating_sub(*standing);
        if missing == 0 {
            return Ok(());
        }
        match self.scheme().reserve(missing) {
            Err(Error::Full { .. }) => self.scheme().reserve_beyond_limit(missing)?,
            other => other?,
        }
        *standing += missing;
        Ok(())
    }

    /// Inserts a record of a checkpoint, in the room set aside for it.
    fn log_checkpoint(&self, standing: &mut u64, record: NewRecord<'_>, tails: &mut Vec<Lsn>) -> Inserted {
        let bytes = self.scheme().record_bytes(record.payload.len());
        assert!(bytes <= *standing, "room is set aside for what a checkpoint logs");
        let inserted = self.scheme().log_checkpoint(record, tails);
        *standing -= bytes;
        self.scheme().unreserve(bytes);
        inserted
    }
}

/// The records of the checkpoint that a new, empty database begins with; inserted by `log`.
pub(crate) fn first_checkpoint(mut log: impl FnMut(Kind, &[u8]) -> Inserted, next_txn: TxnId) -> (Inserted, Inserted) {
    let begin = log(Kind::CheckpointBegin, &[]);
    let end = log(Kind::CheckpointEnd, &CheckpointEnd { begin: begin.lsn, next_txn }.encode());
    (begin, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_round_trip() {
        let begin = Lsn::new(5000);
        let txns = [
            TxnEntry { txn: TxnId::new(9), state: TxnState::Active, first: Gsn::new(4096), last: Place::new(8000) },
            TxnEntry { txn: TxnId::new(10), state: TxnState::Committed, first: Gsn::new(1), last: Place::new(2) },
        ];
        assert_eq!(decode_txns(&encode_txns(begin, &txns)), Ok((begin, txns.to_vec())));
        let pages = [(PageId::new(1), Gsn::new(7)), (PageId::new(1 << 40), Gsn::new(8))];
        assert_eq!(decode_pages(&encode_pages(begin, &pages)), Ok((begin, pages.to_vec())));
        let end = CheckpointEnd { begin, next_txn: TxnId::new(11) };
        assert_eq!(CheckpointEnd::decode(&end.encode()), Ok(end));
        assert_eq!(decode_pages(&[0x80]), Err(Malformed));
        assert_eq!(decode_txns(&[1, 9, 7, 1, 1]), Err(Malformed));
        let over = TxnEntry { state: TxnState::Over, ..txns[0] };
        let impossible = [TxnId::ZERO, TXN_LIMIT, TxnId::MAX].map(|txn| TxnEntry { txn, ..txns[0] });
        for entry in [over].into_iter().chain(impossible) {
            assert_eq!(decode_txns(&encode_txns(begin, &[txns[1], entry])), Err(Malformed), "{entry:?}");
        }
        let end = CheckpointEnd { begin, next_txn: TxnId::MAX };
        assert_eq!(CheckpointEnd::decode(&end.encode()), Err(Malformed));
    }

    /// Whatever a checkpoint logs, the segments reach as far as the log does and what others have set aside.
    #[test]
    #[cfg(not(duramen_loom))]
    fn tables_larger_than_usual_use_no_room_that_others_count_on() {
        use crate::open::open;
        use crate::options::Options;
        use duramen_io::SimDisk;
        use duramen_types::PAGE_SIZE;

        let segment_bytes = 1 << 20;
        let options = Options {
            pool_bytes: 64 * PAGE_SIZE,
            log_buffer_bytes: 1 << 20,
            log_segment_bytes: segment_bytes,
            log_max_bytes: 4 << 20,
            checkpoint_bytes: 2 << 20,
            ..Options::default()
        };
        let core = open(Arc::new(SimDisk::new(1)), options).unwrap();
        while core.scheme().reserve(1 << 10).is_ok() {}
        for txn in 1_000..41_000 {
            let (first, last) = (Gsn::new(4096), Place::new(4144));
            let entry = TxnEntry { txn: TxnId::new(txn), state: TxnState::Active, first, last };
            core.active.enter(&Arc::default(), entry);
        }
        for _ in 0..3 {
            core.checkpoint().unwrap();
            let stats = core.scheme().stats();
            assert!(stats.start.get() < segment_bytes, "no segment is recycled");
            let limit = 4096 + stats.segments_live * (segment_bytes - 4096);
            let used = stats.end.get() + stats.reserved_bytes;
            assert!(used <= limit, "{used} bytes are used or set aside, and there are {limit}");
        }
        core.checkpointer.stop();
    }
}
