//! The seam between the engine and the way it makes changes durable.
//!
//! B+-tree, locks and transactions are the same code over every storage scheme; they use only this
//! trait. [`WalScheme`] is ARIES over a write-ahead log; schemes that update persistent memory in
//! place or harden batches of transactions implement the same calls.

mod wal;

pub(crate) use wal::WalScheme;

use std::fmt;

use duramen_types::{Gsn, LogAddress, LogId, Lsn, TxnId};
use duramen_wal::{Hardened, Inserted, LogHold, NewRecord, Retainer, WalStats};

use crate::error::Result;

/// The operations for a page update, a commit, a rollback, an eviction, a checkpoint and a restart.
pub(crate) trait StorageScheme: Send + Sync + fmt::Debug {
    /// Returns the log for the records of a transaction that is about to write its first one, if
    /// they all go to one log.
    fn home(&self, txn: TxnId) -> LogId;

    /// Records a page update, a compensation, or the end of a transaction whose [`Self::home`] is
    /// given, in the order of the calls; or a change that no transaction owns. A page update is
    /// recorded while its pages are latched. Never fails; the next [`Self::harden`] reports a
    /// failure.
    fn log(&self, home: Option<LogId>, record: NewRecord<'_>) -> Inserted;

    /// Records a commit as [`Self::log`] does, or another record that is hardened by itself: a
    /// caller may wait only for records that were inserted in this way.
    fn log_commit(&self, home: Option<LogId>, record: NewRecord<'_>) -> Inserted;

    /// Records as [`Self::log_commit`] does, for a checkpoint. Puts the end of each log into
    /// `tails`.
    fn log_checkpoint(&self, record: NewRecord<'_>, tails: &mut Vec<Lsn>) -> Inserted;

    /// Waits until everything up to and including `gsn` survives a crash. `gsn` is that of a
    /// commit, whose log address is `own` if the caller has it.
    fn harden(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// Waits as [`Self::harden`] does, for a record that is not a commit: the flush does not wait
    /// for other committers.
    fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// Requests that everything up to and including `gsn` survives a crash, and does not wait.
    fn request_hardening(&self, gsn: Gsn, own: Option<LogAddress>) -> Hardened;

    /// Prepares for a long block of the calling thread after it has recorded something: the commits
    /// of other transactions may be waiting until its records survive a crash.
    fn before_blocking(&self);

    /// Returns whether everything up to and including `gsn` survives a crash.
    fn is_hardened(&self, gsn: Gsn) -> bool;

    /// Returns a GSN above those of all records so far.
    fn end(&self) -> Gsn;

    /// Returns, for each log, a position before which all records have GSNs below `gsn`.
    fn positions_before(&self, gsn: Gsn) -> Vec<Lsn>;

    /// Reserves log space for `bytes` of records.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// Reserves log space as [`Self::reserve`] does, even beyond the limit that the user has set.
    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()>;

    /// Gives back reserved log space that records have taken, or may have taken.
    fn unreserve(&self, bytes: u64);

    /// Gives back reserved log space that no record has taken.
    fn unreserve_unused(&self, bytes: u64);

    /// Returns the bytes that a record with a payload of this length takes.
    fn record_bytes(&self, payload: usize) -> u64;

    /// Returns whether the user's limit would allow a reservation of `bytes` if nothing below `gsn`
    /// were kept, and `returned` of the reserved bytes were given back.
    fn has_room_from(&self, gsn: Gsn, bytes: u64, returned: u64) -> bool;

    /// Returns the bytes of the records from `gsn` on, in the log that has most of them.
    fn bytes_from(&self, gsn: Gsn) -> u64;

    /// Returns the bytes that are reserved.
    fn set_aside(&self) -> u64;

    /// Recycles the records below `gsn`, which are no longer needed.
    fn recycle_below(&self, gsn: Gsn) -> Result<()>;

    /// Durably stamps what the scheme keeps outside of the log's own files with this generation.
    fn stamp(&self, generation: u64);

    /// Keeps the logs from being recycled while they are copied.
    fn hold_logs(&self) -> LogHold;

    /// Waits until everything logged so far survives a crash. With several logs, some may then hold
    /// later records; those behind the returned GSN do not count.
    fn harden_all(&self) -> Result<Gsn>;

    /// Returns, for each log, where its records below `gsn` end, all of which are hardened.
    fn ends_before(&self, gsn: Gsn) -> Result<Vec<Lsn>>;

    /// Waits until the log that may be recycled is archived, or cannot be archived.
    fn await_archive(&self);

    /// Returns what keeps records that nothing else needs, if there is no space for `bytes`.
    fn retainer(&self, bytes: u64) -> Option<Retainer>;

    /// Returns a number that grows while the retainers make progress.
    fn retainers_progress(&self) -> u64;

    /// Wakes the archiver to check for work.
    fn call_archive(&self);

    /// Returns the reason why the log cannot be archived at present.
    fn archive_failure(&self) -> Option<String>;

    /// Returns the failure that put the scheme out of service.
    fn failure(&self) -> Option<String>;

    /// Returns the counters.
    fn stats(&self) -> WalStats;

    /// Hardens everything and stops.
    fn close(&self) -> Result<()>;
}
