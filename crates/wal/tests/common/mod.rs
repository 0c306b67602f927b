//! Functions that the suites share.
#![allow(dead_code, unreachable_pub, reason = "each suite includes this file and uses its part")]

pub mod history;
pub mod several;
pub mod world;

use std::sync::Arc;
use std::time::Duration;

use duramen_io::{Disk, SimDisk};
pub use duramen_test_support::{Rng, Stride};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::{
    GroupCommit, InsertDesign, Inserted, Log, LogDevice, LogReader, NewRecord, RecordRef, Result, Sealing, WalOptions,
};

/// A record of the log, copied out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub log: LogId,
    pub lsn: Lsn,
    pub end: Lsn,
    pub gsn: Gsn,
    pub txn: TxnId,
    pub page: PageId,
    pub prev: LogAddress,
    pub kind: u8,
    pub flags: u8,
    pub payload: Vec<u8>,
}

impl Record {
    pub fn of(record: RecordRef<'_>) -> Self {
        let RecordRef { log, lsn, end, gsn, txn, page, prev, kind, flags, payload, .. } = record;
        Self { log, lsn, end, gsn, txn, page, prev, kind, flags, payload: payload.to_vec() }
    }
}

/// A log of one stream, whose GSNs are LSNs.
pub trait OneStream {
    fn start(&self) -> Lsn;
    fn durable(&self) -> Lsn;
    fn end(&self) -> Lsn;
    fn read_at(&self, lsn: Lsn) -> Result<Record>;
    fn recycle_to(&self, lsn: Lsn) -> Result<()>;
}

impl OneStream for Log {
    fn start(&self) -> Lsn {
        self.extents()[0].start
    }

    fn durable(&self) -> Lsn {
        self.extents()[0].durable
    }

    fn end(&self) -> Lsn {
        self.extents()[0].end
    }

    fn read_at(&self, lsn: Lsn) -> Result<Record> {
        self.read_back().read(LogAddress::of(LogId::ZERO, lsn)).map(Record::of)
    }

    fn recycle_to(&self, lsn: Lsn) -> Result<()> {
        self.recycle_below(Gsn::new(lsn.get()))
    }
}

/// Size of the header that such a log's small records have.
pub const HEADER_BYTES: usize = 24;

/// Returns the bytes of a small record of such a log.
pub fn record_bytes(payload: usize) -> u64 {
    (HEADER_BYTES + payload).next_multiple_of(8) as u64
}

/// Opens a reader of such a log.
pub fn reader(disk: &SimDisk, database: Option<[u8; 16]>) -> Result<LogReader> {
    LogReader::open(disk, LogId::ZERO, database.map(|database| (database, 1)))
}

/// Identity of the database in all tests.
pub const DATABASE: [u8; 16] = *b"a test database!";

/// Returns options for a small log without background work on segments, so that one thread's
/// operations are always the same.
pub fn options(insert: InsertDesign) -> WalOptions {
    WalOptions {
        logs: 1,
        insert,
        device: LogDevice::File,
        sealing: Sealing::AtFlush,
        ring_bytes: 64 << 10,
        array_slots: 2,
        arrays: 1,
        slot_pool: 32,
        segment_bytes: 64 << 10,
        max_bytes: 1 << 20,
        spare_segments: 0,
        group_commit: GroupCommit { transactions: 1, bytes: 1 << 20, time: Duration::from_millis(1) },
        archive: None,
        read_observer: None,
        sync_record_kind: 0,
        generation: 0,
    }
}

/// Returns a payload of `len` bytes, each of which depends on `seed`.
pub fn payload(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(i * 31) >> 11) as u8).collect()
}

pub fn record(txn: u64, payload: &[u8]) -> NewRecord<'_> {
    NewRecord {
        kind: 1,
        flags: 0,
        txn: TxnId::new(txn),
        page: PageId::new(txn + 1),
        prev: LogAddress::ZERO,
        after: Gsn::ZERO,
        payload,
    }
}

/// Inserts record number `number`, whose payload has `len` bytes.
pub fn insert(wal: &Log, number: u64, len: usize) -> Inserted {
    wal.insert(LogId::ZERO, record(number, &payload(number, len)))
}

/// Returns all records from `from`.
pub fn read_all(wal: &Log, from: Lsn) -> Result<Vec<Record>> {
    read_one(wal, LogId::ZERO, from)
}

/// Returns all records of one of several logs from `from`.
pub fn read_one(wal: &Log, log: LogId, from: Lsn) -> Result<Vec<Record>> {
    let mut scanner = wal.scan(log, from);
    let mut records = Vec::new();
    while let Some(record) = scanner.next()? {
        records.push(Record::of(record));
    }
    Ok(records)
}

/// Checks that the record is what [`insert`] wrote.
pub fn assert_intact(record: &Record) {
    let number = record.txn.get();
    assert_eq!(record.page, PageId::new(number + 1));
    assert_eq!(record.payload, payload(number, record.payload.len()), "payload of record {number}");
}

pub fn arc(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

pub fn create(disk: &SimDisk, insert: InsertDesign) -> Log {
    Log::create(&arc(disk), &options(insert), DATABASE).unwrap()
}

pub fn open(disk: &SimDisk, insert: InsertDesign) -> Result<Log> {
    Log::open(&arc(disk), &options(insert), DATABASE, None)
}
