//! The format of a record.
//!
//! ```text
//!  0 crc          u32   CRC-32C of the seed and of everything that follows, padding included
//!  4 length       u32   of the whole record in bytes, a multiple of 8
//!  8 gsn          u64   global sequence number; with one log, the record's own LSN
//! 16 transaction  u64
//! 24 prev         u64   LSN of the transaction's previous record, or 0
//! 32 page         u64
//! 40 kind         u8    what the payload means; the log does not know
//! 41 flags        u8    likewise
//! 42 backlog      u16   blocks of the log that were not durable yet when the record was filled in
//! 44 payload_len  u32
//! 48 payload, then zeros up to the length
//! ```
//!
//! All numbers are little-endian. Records follow each other without gaps, across segments too. The seed of the checksum
//! is the record's LSN plus a number derived from the identity of the database and the log, so that a record passes
//! only where it was written: what an earlier use of a recycled segment or another log left behind does not.
//!
//! The backlog lets recovery tell a torn tail from damage. A flush starts only when the one before is durable, so a crash
//! leaves holes in the last flush at most. A valid record behind a hole that says that the log was durable beyond the
//! hole when it was filled in proves that the hole was not there before: something else destroyed hardened records.

use duramen_types::{BLOCK_SIZE, Gsn, Lsn, PageId, TxnId, crc32c_append};

/// Size of a record's header in bytes.
pub(crate) const HEADER_BYTES: usize = 48;

/// Longest record that any log may hold, in bytes.
pub(crate) const MAX_RECORD_BYTES: usize = 4 << 20;

/// A record to be inserted.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// More of that.
    pub flags: u8,
    /// The transaction that inserts it.
    pub txn: TxnId,
    /// The page it is about, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero.
    pub prev: Lsn,
    /// The record's GSN must exceed this one (that of the page and of the transaction before the change).
    pub after: Gsn,
    /// The rest, at most [`crate::WalOptions::max_payload`] bytes.
    pub payload: &'a [u8],
}

/// A record of the log, copied out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where it starts.
    pub lsn: Lsn,
    /// Where it ends and the next one starts.
    pub end: Lsn,
    /// Its place in the global order.
    pub gsn: Gsn,
    /// The transaction that inserted it.
    pub txn: TxnId,
    /// The page it is about, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero.
    pub prev: Lsn,
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// More of that.
    pub flags: u8,
    /// The rest.
    pub payload: Vec<u8>,
}

/// A record of the log, lent by a [`crate::Scanner`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordRef<'a> {
    /// Where it starts.
    pub lsn: Lsn,
    /// Where it ends and the next one starts.
    pub end: Lsn,
    /// Its place in the global order.
    pub gsn: Gsn,
    /// The transaction that inserted it.
    pub txn: TxnId,
    /// The page it is about, or zero.
    pub page: PageId,
    /// The transaction's previous record, or zero.
    pub prev: Lsn,
    /// What the payload means, to the user of the log.
    pub kind: u8,
    /// More of that.
    pub flags: u8,
    /// The rest.
    pub payload: &'a [u8],
}

impl RecordRef<'_> {
    /// Copies the record out.
    pub fn to_record(&self) -> Record {
        let Self { lsn, end, gsn, txn, page, prev, kind, flags, payload } = *self;
        Record { lsn, end, gsn, txn, page, prev, kind, flags, payload: payload.to_vec() }
    }
}
