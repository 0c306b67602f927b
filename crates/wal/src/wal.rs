//! The log manager's face.
#![allow(unused_variables, clippy::unimplemented)]

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{Gsn, LogId, Lsn};

use crate::error::{Result, WalError};
use crate::options::WalOptions;
use crate::record::{NewRecord, Record, RecordRef};
use crate::stats::WalStats;

/// LSN of the first record of every log. No record has LSN (or GSN) zero, which means "never logged".
pub const FIRST_LSN: Lsn = Lsn::new(4096);

/// Where a record went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inserted {
    /// The log that took it.
    pub log: LogId,
    /// Where it starts.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// Its place in the global order; the page it changed is stamped with it.
    pub gsn: Gsn,
}

/// A write-ahead log. Shared by reference between threads.
#[derive(Debug)]
pub struct Wal {}

impl Wal {
    /// Makes an empty log in `disk`, durable when this returns.
    pub fn create(disk: Arc<dyn Disk>, options: WalOptions, database: [u8; 16]) -> Result<Wal> {
        unimplemented!()
    }

    /// Opens a log. `from` is the LSN of a record known to be there (a checkpoint); without it, the log is read from its
    /// start.
    pub fn open(disk: Arc<dyn Disk>, options: WalOptions, database: [u8; 16], from: Option<Lsn>) -> Result<Wal> {
        unimplemented!()
    }

    /// Inserts a record. Never fails; blocks while the buffer is full.
    pub fn insert(&self, record: NewRecord<'_>) -> Inserted {
        unimplemented!()
    }

    /// Asks for everything up to and including the record of `gsn` to be hardened. Does not block.
    pub fn harden(&self, gsn: Gsn) -> Hardened {
        unimplemented!()
    }

    /// Blocks until everything up to and including the record of `gsn` is hardened.
    pub fn wait_hardened(&self, gsn: Gsn) -> Result<()> {
        unimplemented!()
    }

    /// Everything below is durable; at a record boundary.
    pub fn durable(&self) -> Lsn {
        unimplemented!()
    }

    /// Whether the record of `gsn` is hardened.
    pub fn is_hardened(&self, gsn: Gsn) -> bool {
        self.durable().get() > gsn.get()
    }

    /// The LSN the next record will get: a snapshot.
    pub fn end(&self) -> Lsn {
        unimplemented!()
    }

    /// Where the log starts: the LSN last given to [`Wal::recycle_below`].
    pub fn start(&self) -> Lsn {
        unimplemented!()
    }

    /// Sets space for `bytes` of records aside. An insertion does not use a reservation up: give it back with
    /// [`Wal::unreserve`] after the insertions that it was for.
    pub fn reserve(&self, bytes: u64) -> Result<()> {
        unimplemented!()
    }

    /// Gives a reservation back.
    pub fn unreserve(&self, bytes: u64) {
        unimplemented!()
    }

    /// Reads one hardened record.
    pub fn read(&self, lsn: Lsn) -> Result<Record> {
        unimplemented!()
    }

    /// Reads the records from `from` to where the log is durable at this moment.
    pub fn scan(&self, from: Lsn) -> Scanner {
        unimplemented!()
    }

    /// Makes `lsn`, the start of a record, the log's start, and recycles the segments that lie wholly below it.
    pub fn recycle_below(&self, lsn: Lsn) -> Result<()> {
        unimplemented!()
    }

    /// Longest payload a record of this log can have, in bytes.
    pub fn max_payload(&self) -> usize {
        unimplemented!()
    }

    /// Bytes that a record with such a payload takes in the log.
    pub fn record_bytes(payload: usize) -> u64 {
        unimplemented!()
    }

    /// Counts.
    pub fn stats(&self) -> WalStats {
        unimplemented!()
    }

    /// The failure that stopped the log, if one did.
    pub fn failure(&self) -> Option<WalError> {
        unimplemented!()
    }

    /// Hardens everything and stops the background threads.
    pub fn close(&self) -> Result<()> {
        unimplemented!()
    }
}

/// A request to harden. Also a `Future`.
#[derive(Debug)]
pub struct Hardened {}

impl Hardened {
    /// Blocks until it is done.
    pub fn wait(&self) -> Result<()> {
        unimplemented!()
    }

    /// Whether it is done (or failed).
    pub fn is_ready(&self) -> bool {
        unimplemented!()
    }
}

impl std::future::Future for Hardened {
    type Output = Result<()>;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<()>> {
        unimplemented!()
    }
}

/// Reads records in order.
#[derive(Debug)]
pub struct Scanner {}

impl Scanner {
    /// The next record, or `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        unimplemented!()
    }

    /// Where the next record would start.
    pub fn position(&self) -> Lsn {
        unimplemented!()
    }
}

/// A log opened for reading only: nothing is modified.
#[derive(Debug)]
pub struct LogReader {}

impl LogReader {
    /// Opens the log in `disk`; with `database`, checks that it is that database's.
    pub fn open(disk: &dyn Disk, database: Option<[u8; 16]>) -> Result<LogReader> {
        unimplemented!()
    }

    /// Where the log starts.
    pub fn start(&self) -> Lsn {
        unimplemented!()
    }

    /// Reads the records from `from` (or the start) to the last valid one.
    pub fn scan(&self, from: Option<Lsn>) -> Scanner {
        unimplemented!()
    }
}
