//! The seam between the engine and the way it makes changes durable.
//!
//! B+-tree, locks and transactions are the same code over every storage scheme; they use only
//! [`StorageScheme`]. A scheme that keeps a log also offers [`LogService`], which checkpoints,
//! backups and the handling of a full log use. The engine asks nowhere which scheme it has.
//!
//! | scheme | how a change becomes durable |
//! |---|---|
//! | [`WalScheme`] | ARIES: a record in the write-ahead log now, the page later |
//! | [`InPlace`] | a record in the transaction's journal, then the page in a heap in persistent memory, both before the page is unlatched |
//! | [`GroupCommit`] | with its batch: the changed lines of all transactions go to the heap together |
//! | [`PcmLogging`] | with its transaction: the pages that it has changed go to persistent memory |

mod batch_acks;
mod group_commit;
mod hardening;
mod in_place;
mod log_service;
mod pcm_logging;
mod wal;

pub(crate) use group_commit::{Batches, FoundBatch, GroupCommit, PastEntry, batches_of, create_log, most_staged};
pub(crate) use hardening::Hardening;
pub(crate) use in_place::{
    Found, InPlace, JournalInUse, JournalRecord, JournalState, PageLogInUse, journals_in_use, page_logs_in_use,
    system_journals,
};
pub(crate) use log_service::LogService;
pub(crate) use pcm_logging::PcmLogging;
pub(crate) use wal::WalScheme;

use std::fmt;

use duramen_types::{Gsn, LogAddress, TxnId};
use duramen_wal::{Inserted, NewRecord};

use crate::error::Result;
use crate::metrics::{HeapMetrics, PcmMetrics};
use crate::pool::Exclusive;

/// The place that takes all records of one transaction: for the write-ahead log, one of several
/// logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Home(pub(crate) u32);

/// The record of a change, as the scheme has kept it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// The position of the change in the global order, or at least in the order of the changes of
    /// its pages and of its transaction.
    pub(crate) gsn: Gsn,
    /// Where the record is.
    pub(crate) address: LogAddress,
    /// Bytes of the transaction's space that the record took.
    pub(crate) bytes: u64,
}

impl Recorded {
    /// Returns the GSN to which the record advances its log's clock.
    pub(crate) fn end_gsn(&self) -> Gsn {
        Gsn::new(self.gsn.get() + self.bytes)
    }
}

impl From<Inserted> for Recorded {
    #[inline]
    fn from(inserted: Inserted) -> Self {
        Self { gsn: inserted.gsn, address: inserted.address(), bytes: inserted.bytes() }
    }
}

/// The change of one or more latched pages, as an atomic whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    /// The record for a log. Its payload ends with the operations on the pages.
    pub(crate) record: NewRecord<'a>,
    /// Length of the part of the payload before the operations: how to undo the change, or, in a
    /// compensation, where the undo continues.
    pub(crate) prefix: usize,
}

/// The operations for a page update, a commit, a rollback and a restart.
pub(crate) trait StorageScheme: Send + Sync + fmt::Debug {
    /// Returns the place for the records of a transaction that is about to write its first one.
    fn home(&self, txn: TxnId) -> Home;

    /// Returns the place of the records of a transaction that recovery has found, whose latest
    /// record is given.
    fn home_of(&self, txn: TxnId, last: LogAddress) -> Home;

    /// Makes the change of latched pages recoverable, and stamps the pages with its GSN. The pages
    /// are changed in memory already. A change without a home belongs to no transaction and is
    /// never undone; the changes of one transaction are recorded in the order of the calls. Never
    /// fails; the next [`Self::harden`] reports a failure.
    fn change(&self, home: Option<Home>, change: Change<'_>, pages: &mut [Exclusive<'_>]) -> Recorded;

    /// Records a fact about a transaction that changes no page.
    fn note(&self, home: Home, record: NewRecord<'_>) -> Recorded;

    /// Records a commit, or with [`crate::record::Kind::End`] the end of a rollback or of the
    /// clean-up after a commit. What other transactions do after this has higher GSNs in all logs.
    fn end_txn(&self, home: Home, record: NewRecord<'_>) -> Recorded;

    /// Waits until everything up to and including `gsn` survives a crash. `gsn` is that of a
    /// commit, whose address is `own` if the caller has it, or zero if there is nothing to harden.
    fn harden(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// Hurries the hardening of `gsn`, because the caller is about to wait for it and holds locks.
    fn hurry_hardening(&self, _gsn: Gsn) {}

    /// Requests that everything up to and including `gsn` survives a crash, and does not wait.
    /// Returns `None` if it does already.
    fn request_hardening(&self, gsn: Gsn) -> Option<Hardening>;

    /// Prepares for a long block of the calling thread after it has recorded something: the commits
    /// of other transactions may be waiting until its records survive a crash.
    fn before_blocking(&self);

    /// Returns whether everything up to and including `gsn` survives a crash.
    fn is_hardened(&self, gsn: Gsn) -> bool;

    /// Returns a GSN such that every commit up to it survives a crash, and every commit that is not
    /// recorded yet will get a higher one; `None` if GSNs do not order commits. It never decreases,
    /// and is not below the GSN of an acknowledged commit, unless it was acknowledged before it was
    /// hardened.
    fn hardened_commits(&self) -> Option<Gsn>;

    /// Returns whether several commits may have the same GSN.
    fn commits_share_gsns(&self) -> bool {
        false
    }

    /// Returns whether a deleted record keeps its value in its leaf, also while the leaf is not in
    /// the pool.
    fn keeps_values_of_ghosts(&self) -> bool {
        true
    }

    /// Returns a GSN such that no record so far has a higher one; zero if the scheme orders only
    /// the changes of each page and of each transaction.
    fn latest(&self) -> Gsn;

    /// Returns the space that a transaction needs for its next operation, whose record has up to
    /// `payload` bytes of payload, beyond what rolling it back needs.
    fn space_for_operation(&self, payload: u64) -> u64;

    /// Returns the space that undoing an update needs, whose record and inverse have this many
    /// bytes.
    fn space_for_undo(&self, payload: usize, inverse: usize) -> u64;

    /// Reserves space for the records of a transaction.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// Reserves the space that [`crate::record::Kind::End`] takes for a transaction that has given
    /// back its reservation, even beyond the limit that the user has set. Returns the bytes.
    fn reserve_end(&self) -> Result<u64>;

    /// Gives back reserved space that records have taken, or may have taken.
    fn unreserve(&self, bytes: u64);

    /// Gives back reserved space that no record has taken.
    fn unreserve_unused(&self, bytes: u64);

    /// Reserves space for a change that no transaction owns; [`Self::unreserve`] gives it back.
    fn reserve_system(&self, bytes: u64) -> Result<()>;

    /// Makes sure that a transaction id up to `limit` is not given out again after a crash, for a
    /// scheme whose records do not show it.
    fn note_txn_limit(&self, limit: TxnId);

    /// Makes sure that a crash does not hide that this many groups of pages have a bitmap, for a
    /// scheme without checkpoints.
    fn note_groups(&self, groups: u64);

    /// Returns the log, if the scheme has one.
    fn log(&self) -> Option<&dyn LogService>;

    /// Returns the counters of the heap, if the scheme has one.
    fn heap(&self) -> Option<HeapMetrics>;

    /// Returns the counters of the PCM region, if the scheme has one.
    fn pcm(&self) -> Option<PcmMetrics> {
        None
    }

    /// Returns whether less than half of the space is free that transactions under way have, and
    /// committed ones with deferred frees to do. A log makes space in other ways.
    fn lacks_space(&self) -> bool {
        self.heap().is_some_and(|heap| heap.journal_bytes_free < heap.journal_bytes / 2)
    }

    /// Returns the failure that put the scheme out of service.
    fn failure(&self) -> Option<String>;

    /// Hardens everything and stops.
    fn close(&self) -> Result<()>;
}
