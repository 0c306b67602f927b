//! Inserting into one of several logs, and inserting sync records across all of them.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId, planted};

use crate::address::Inserted;
use crate::buffer::clock::Clock;
use crate::buffer::epochs::EpochEnd;
use crate::buffer::positions::Space;
use crate::error::{Result, WalError};
use crate::format::header::most_record_bytes;
use crate::format::record::{BOUNDARY_BYTES, FLAG_SYNCHRONIZES, NewRecord, tails_bytes};
use crate::several::durable_gsn::{GsnIndex, index_step, next};
use crate::several::reservation::LogReservation;
use crate::stream::inner::StreamInner;

/// The log that takes sync records without any other payload.
const LOG_OF_SYNC_RECORDS: LogId = LogId::ZERO;

/// Disk space reserved for these sync records in case the log is full, in bytes.
const RESERVED_BYTES: u64 = 32 << 10;

/// Several logs, as inserting threads use them.
#[derive(Debug)]
pub(crate) struct LogSet {
    shared: Box<[Arc<StreamInner>]>,
    /// For each log, the positions of some of its records by GSN.
    gsn_index: Box<[CachePadded<Mutex<GsnIndex>>]>,
    pub(crate) sync_records: CachePadded<AtomicU64>,
    /// Reserved disk space in all logs.
    pub(crate) reservation: LogReservation,
    /// The unused part of the space reserved for sync records.
    reserved: Mutex<u64>,
}

impl LogSet {
    pub(crate) fn new(shared: Box<[Arc<StreamInner>]>, mut gsn_index: Vec<GsnIndex>) -> Self {
        gsn_index.resize_with(shared.len(), GsnIndex::new);
        Self {
            reservation: LogReservation::new(&shared[0].options, shared.len()),
            shared,
            gsn_index: gsn_index.into_iter().map(|gsn_index| CachePadded::new(Mutex::new(gsn_index))).collect(),
            sync_records: CachePadded::new(AtomicU64::new(0)),
            reserved: Mutex::new(0),
        }
    }

    pub(crate) fn all(&self) -> &[Arc<StreamInner>] {
        &self.shared
    }

    pub(crate) fn space(&self, log: usize) -> &Space {
        &self.shared[log].space
    }

    fn clock(&self, log: usize) -> &Clock {
        self.space(log).clock().expect("each of several logs has a clock")
    }

    /// Returns the size, in bytes, of what a sync record states. A single log has none.
    pub(crate) fn tail(&self) -> usize {
        match self.shared.len() {
            1 => 0,
            count => BOUNDARY_BYTES + tails_bytes(count as u16),
        }
    }

    /// Returns the lowest GSN that a record of this log may get from now on.
    pub(crate) fn now(&self, log: usize) -> Gsn {
        let space = self.space(log);
        let end = space.end();
        space.clock().map_or(Gsn::new(end.get()), |clock| clock.now(end))
    }

    /// Returns a position in this log before which all records have GSNs below `gsn`: an entry of
    /// the GSN index or, in a single log, the GSN itself.
    pub(crate) fn position_before(&self, log: usize, gsn: Gsn) -> Lsn {
        let indexed = || self.gsn_index[log].lock().range(..gsn.get()).next_back().map_or(0, |(_, lsn)| *lsn);
        let position = self.space(log).clock().map_or(gsn.get(), |_| indexed());
        Lsn::new(position).max(self.shared[log].segments.start())
    }

    /// Drops the GSN index entries below this position, up to which the log has been recycled.
    pub(crate) fn truncate_gsn_index(&self, log: usize, position: Lsn) {
        let mut gsn_index = self.gsn_index[log].lock();
        while gsn_index.len() > 1 && gsn_index.values().nth(1).is_some_and(|lsn| *lsn <= position.get()) {
            gsn_index.pop_first();
        }
    }

    /// Inserts a record, which is a sync record if the caller passes an `epoch`.
    pub(crate) fn insert(&self, log: LogId, mut record: NewRecord<'_>, epoch: Option<&mut EpochEnd>) -> Inserted {
        assert!(record.flags & FLAG_SYNCHRONIZES == 0, "the flag is the log's own");
        let number = usize::from(log.get());
        if !planted!(PageTimeIgnored) && self.now(number) <= record.after {
            self.clock(number).raise(next(record.after));
        }
        let shared = &self.shared[number];
        let (lsn, end, gsn) = match epoch {
            None => shared.insert_in_time(record, 0, false, |_, _| {}),
            Some(epoch) => {
                self.sync_records.fetch_add(1, Ordering::Relaxed);
                record.flags |= FLAG_SYNCHRONIZES;
                let complete = |_, bytes: &mut [u8]| *epoch = self.end_epoch(number, bytes);
                shared.insert_in_time(record, self.tail(), false, complete)
            }
        };
        assert!(gsn > record.after || planted!(PageTimeIgnored), "a change comes after what it changes");
        let step = index_step(&shared.options);
        if lsn.get() / step != end.get() / step {
            self.gsn_index[number].lock().insert(gsn.get(), end.get());
        }
        Inserted { log, lsn, end, gsn }
    }

    /// Ends the epoch, and states its boundary and the tails in `bytes`. The caller may hold the
    /// insertion lock of its own log.
    fn end_epoch(&self, own: usize, bytes: &mut [u8]) -> EpochEnd {
        let timed = |log: usize| {
            let timed = self.space(log).timed();
            (timed, self.clock(log).now(timed))
        };
        let ends = || self.shared.iter().map(|log| log.space.end());
        let epoch = self.clock(own).epochs().end(|| (0..self.shared.len()).map(timed), ends);
        let numbers = std::iter::once(epoch.boundary.get()).chain(epoch.tails.iter().map(|tail| tail.get()));
        for (field, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        epoch
    }

    /// Returns a GSN that no record of this log before `lsn` exceeds. All of these are inserted.
    pub(crate) fn bound(&self, log: usize, lsn: Lsn) -> Gsn {
        let behind = self.gsn_index[log].lock().iter().find(|(_, at)| **at >= lsn.get()).map(|(gsn, _)| Gsn::new(*gsn));
        behind.unwrap_or_else(|| Gsn::new(self.now(log).get() - 1))
    }

    /// Reserves disk space for sync records, as far as there is any.
    pub(crate) fn reserve_for_sync_records(&self) {
        let mut reserved = self.reserved.lock();
        if self.tail() > 0 && *reserved == 0 && self.reserve_in_first_log(RESERVED_BYTES).is_ok() {
            *reserved = RESERVED_BYTES;
        }
    }

    /// Inserts a sync record without any other payload: into the log `home` if it has space, or
    /// else into the first log. That log has reserved space for sync records, or may exceed its
    /// limit: it cannot shrink until pages are written and commits are acknowledged.
    pub(crate) fn synchronize(&self, home: LogId) -> Result<(Inserted, EpochEnd)> {
        let bytes = most_record_bytes(self.tail()) as u64;
        let shared = &self.shared[usize::from(home.get())];
        if home != LOG_OF_SYNC_RECORDS && shared.reserve(bytes).is_ok() {
            let synchronized = self.insert_sync_record(home);
            shared.segments.unreserve(bytes);
            return Ok(synchronized);
        }
        let mut reserved = self.reserved.lock();
        match self.reserve_in_first_log(bytes) {
            Ok(()) => *reserved += bytes,
            Err(_) if *reserved >= bytes => {}
            Err(WalError::Full { .. }) => {
                self.shared[0].segments.lift_limit(true);
                let outcome = self.shared[0].reserve(bytes);
                self.shared[0].segments.lift_limit(false);
                outcome?;
                *reserved += bytes;
            }
            Err(error) => return Err(error),
        }
        let synchronized = self.insert_sync_record(LOG_OF_SYNC_RECORDS);
        self.shared[0].segments.unreserve(bytes);
        *reserved -= bytes;
        let missing = RESERVED_BYTES.saturating_sub(*reserved);
        if missing >= RESERVED_BYTES / 2 && self.reserve_in_first_log(missing).is_ok() {
            *reserved += missing;
        }
        Ok(synchronized)
    }

    fn insert_sync_record(&self, log: LogId) -> (Inserted, EpochEnd) {
        let kind = self.shared[0].options.sync_record_kind;
        let (txn, page, prev) = (TxnId::ZERO, PageId::ZERO, LogAddress::ZERO);
        let record = NewRecord { kind, flags: 0, txn, page, prev, after: Gsn::ZERO, payload: &[] };
        let mut epoch = EpochEnd::default();
        let inserted = self.insert(log, record, Some(&mut epoch));
        (inserted, epoch)
    }

    /// Reserves disk space in the log that takes sync records.
    fn reserve_in_first_log(&self, bytes: u64) -> Result<()> {
        match self.shared[0].reserve(bytes) {
            Err(WalError::Full { .. }) => {
                self.reservation.give_back(&self.shared);
                self.shared[0].reserve(bytes)
            }
            other => other,
        }
    }
}
