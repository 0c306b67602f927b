//! The seam between the engine and the way it makes changes durable.
//!
//! B+-tree, locks and transactions are the same code over every storage scheme; they call this
//! trait and nothing else of it. [`WalScheme`] is ARIES over a write-ahead log; schemes that update
//! persistent memory in place or harden batches of transactions implement the same calls.

mod wal;

pub(crate) use wal::WalScheme;

use std::fmt;

use duramen_types::{Gsn, LogAddress, LogId, Lsn, TxnId};
use duramen_wal::{Hardened, Inserted, LogHold, NewRecord, Retainer, WalStats};

use crate::error::Result;

/// What a page update, a commit, a rollback, an eviction, a checkpoint and a restart must do.
pub(crate) trait StorageScheme: Send + Sync + fmt::Debug {
    /// Where the records of a transaction go that is about to write its first, if they go to one
    /// place.
    fn home(&self, txn: TxnId) -> LogId;

    /// Records a page update, a compensation, or the end of a transaction whose [`Self::home`] is
    /// given, in the order of the calls; or a change that no transaction owns. A page update is
    /// recorded while its pages are latched. Never fails; a failure shows at the next
    /// [`Self::harden`].
    fn log(&self, home: Option<LogId>, record: NewRecord<'_>) -> Inserted;

    /// As [`Self::log`], for a commit, and what else is to be hardened by itself: what is waited
    /// for must have been recorded in this way.
    fn log_commit(&self, home: Option<LogId>, record: NewRecord<'_>) -> Inserted;

    /// As [`Self::log_commit`], for a record of a checkpoint. Where each log ended goes to `tails`.
    fn log_checkpoint(&self, record: NewRecord<'_>, tails: &mut Vec<Lsn>) -> Inserted;

    /// Waits until everything up to and including `gsn` survives a crash: that of a commit, at
    /// `own` if the caller knows.
    fn harden(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// As [`Self::harden`], for what is no commit: it does not wait until others join it.
    fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// Asks for everything up to and including `gsn` to survive a crash, and does not wait.
    fn request_hardening(&self, gsn: Gsn, own: Option<LogAddress>) -> Hardened;

    /// The calling thread, which has recorded something, may not call again for long: others'
    /// commits may be waiting until what it has recorded survives a crash.
    fn before_blocking(&self);

    /// Whether everything up to and including `gsn` survives a crash.
    fn is_hardened(&self, gsn: Gsn) -> bool;

    /// All records so far have lower GSNs.
    fn end(&self) -> Gsn;

    /// For each log, a position before which all records have GSNs below `gsn`.
    fn positions_before(&self, gsn: Gsn) -> Vec<Lsn>;

    /// Reserves log space for `bytes` of records.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// As [`Self::reserve`], even beyond the limit that the user has set.
    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()>;

    /// Gives reserved log space back that records have taken, or may have.
    fn unreserve(&self, bytes: u64);

    /// Gives reserved log space back that no record has taken.
    fn unreserve_unused(&self, bytes: u64);

    /// Bytes that a record with a payload of this length takes.
    fn record_bytes(&self, payload: usize) -> u64;

    /// Whether the user's limit would let `bytes` of records be set aside if nothing below `gsn`
    /// were kept, and `returned` bytes of those set aside were given back.
    fn has_room_from(&self, gsn: Gsn, bytes: u64, returned: u64) -> bool;

    /// Bytes of the records from `gsn` on; those of the log that has most of them.
    fn bytes_from(&self, gsn: Gsn) -> u64;

    /// Bytes that are set aside.
    fn set_aside(&self) -> u64;

    /// Forgets the records below `gsn`: nothing needs them any more.
    fn recycle_below(&self, gsn: Gsn) -> Result<()>;

    /// What the scheme keeps outside of the log's own files is of this generation from now on,
    /// durably.
    fn stamp(&self, generation: u64);

    /// Keeps the logs, for a copy of them.
    fn hold_logs(&self) -> LogHold;

    /// Waits until everything logged by now survives a crash. Of several logs, some may then have
    /// more; the GSN tells behind what it does not count.
    fn harden_all(&self) -> Result<Gsn>;

    /// For each log, where its records below `gsn` end, all of which are hardened.
    fn ends_before(&self, gsn: Gsn) -> Result<Vec<Lsn>>;

    /// Waits until what may be recycled is archived, or cannot be.
    fn await_archive(&self);

    /// What keeps records that nothing else needs, where there is no room for `bytes`.
    fn retainer(&self, bytes: u64) -> Option<Retainer>;

    /// A number that grows while what keeps records gets on.
    fn retainers_progress(&self) -> u64;

    /// Has the archive look what there is to do.
    fn call_archive(&self);

    /// Why the log cannot be archived at present.
    fn archive_failure(&self) -> Option<String>;

    /// The failure that put the scheme out of service.
    fn failure(&self) -> Option<String>;

    /// Counts.
    fn stats(&self) -> WalStats;

    /// Hardens everything and stops.
    fn close(&self) -> Result<()>;
}
