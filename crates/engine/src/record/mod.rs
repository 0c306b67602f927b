//! The engine's log records: their kinds and payloads.
//!
//! | kind | payload |
//! |---|---|
//! | `Update` | how to undo it ([`Undo`]) and one page operation on the record's page, in a short form if there is one (`update.rs`); with [`FLAG_SEVERAL_PAGES`], how to undo it, then operations as in `System` |
//! | `System` | page operations, each after its page number: a whole system transaction, redo only |
//! | `Compensation` | LSN of the next record to undo, then page operations as in `System` |
//! | `Commit` | when, in microseconds since 1970, if the log is archived; else none |
//! | `End` | none |
//! | `FreeOnCommit` | pages to free once the transaction has committed ([`DeferredFree`]) |
//! | `CheckpointBegin` | none |
//! | `CheckpointTransactions`, `CheckpointPages` | a part of the tables (see `checkpoint.rs`) |
//! | `CheckpointEnd` | the counters that must survive |
//!
//! A record with page operations is atomic: the log has the whole record or none of it, so the
//! pages get all of its changes or none.

mod codec;
mod op;
mod tree;
mod undo;
mod update;

pub(crate) use codec::{Malformed, Reader, put_bytes, put_number};
pub(crate) use op::{FlagRun, PageOp, difference};
pub(crate) use tree::Tree;
pub(crate) use undo::{DeferredFree, KeyList, Undo};
pub(crate) use update::{inverse, put_update, read_update};

use duramen_types::{Gsn, LogAddress, PageId, TxnId};
use duramen_wal::NewRecord;

/// The kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A transaction changed a page.
    Update = 1,
    /// A change that no transaction owns: a split, a merge, a purge. Never undone.
    System = 2,
    /// An update was undone.
    Compensation = 3,
    /// A transaction committed. With [`FLAG_HAS_DEFERRED_FREES`], its end is a later `End` record.
    Commit = 4,
    /// A rollback, or the clean-up after a commit, is complete.
    End = 5,
    /// Pages that become free when the transaction commits.
    FreeOnCommit = 6,
    /// A fuzzy checkpoint begins.
    CheckpointBegin = 7,
    /// Part of a checkpoint's transaction table.
    CheckpointTransactions = 8,
    /// Part of a checkpoint's dirty page table.
    CheckpointPages = 9,
    /// A checkpoint is complete.
    CheckpointEnd = 10,
    /// A sync record: several logs are synchronized for a reason other than a commit, because pages
    /// are about to be written.
    SyncRecord = 11,
}

/// Flag of a commit record: pages are to be freed before the transaction ends.
pub(crate) const FLAG_HAS_DEFERRED_FREES: u8 = 1;

/// Flag of an update: its operations name their pages.
pub(crate) const FLAG_SEVERAL_PAGES: u8 = 2;

impl Kind {
    /// Returns a record of this kind that belongs to no transaction and no page.
    pub(crate) const fn record(self, payload: &[u8]) -> NewRecord<'_> {
        NewRecord {
            kind: self as u8,
            flags: 0,
            txn: TxnId::ZERO,
            page: PageId::ZERO,
            prev: LogAddress::ZERO,
            after: Gsn::ZERO,
            payload,
        }
    }

    pub(crate) const fn from_u8(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Self::Update,
            2 => Self::System,
            3 => Self::Compensation,
            4 => Self::Commit,
            5 => Self::End,
            6 => Self::FreeOnCommit,
            7 => Self::CheckpointBegin,
            8 => Self::CheckpointTransactions,
            9 => Self::CheckpointPages,
            10 => Self::CheckpointEnd,
            11 => Self::SyncRecord,
            _ => return None,
        })
    }
}

/// The page operations of a record, in order, with their pages.
pub(crate) struct PageOps<'a> {
    /// Operations, each of which follows its page number.
    reader: Reader<'a>,
    /// The one operation of an update of one page, and the record's own page.
    single: Option<(PageId, PageOp<'a>)>,
}

impl<'a> PageOps<'a> {
    /// Returns the page operations of a record of any kind; some kinds have none.
    pub(crate) fn of(kind: Kind, flags: u8, page: PageId, payload: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(payload);
        let mut single = None;
        match kind {
            Kind::Update if flags & FLAG_SEVERAL_PAGES == 0 => {
                single = Some((page, read_update(&mut reader)?.1));
                if !reader.is_empty() {
                    return Err(Malformed);
                }
            }
            Kind::Update => {
                Undo::decode(&mut reader)?;
            }
            Kind::System => {}
            Kind::Compensation => {
                reader.number()?;
            }
            _ => reader = Reader::new(&[]),
        }
        Ok(Self { reader, single })
    }

    fn read(&mut self) -> Result<(PageId, PageOp<'a>), Malformed> {
        Ok((PageId::new(self.reader.number()?), PageOp::decode(&mut self.reader)?))
    }
}

impl<'a> Iterator for PageOps<'a> {
    type Item = Result<(PageId, PageOp<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(single) = self.single.take() {
            return Some(Ok(single));
        }
        if self.reader.is_empty() {
            return None;
        }
        let item = self.read();
        if item.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(item)
    }
}

/// Returns the address of the record at which undo continues after a compensation record.
pub(crate) fn undo_next(payload: &[u8]) -> Result<LogAddress, Malformed> {
    Reader::new(payload).number().map(LogAddress::new)
}
