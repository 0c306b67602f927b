//! The seam between the engine and the way it makes changes durable.
//!
//! B+-tree, locks and transactions are the same code over every storage scheme; they call this trait and nothing else of
//! it. [`WalScheme`] is ARIES over a write-ahead log; schemes that update persistent memory in place or harden batches
//! of transactions implement the same calls.

mod wal;

pub(crate) use wal::WalScheme;

use std::fmt;

use duramen_types::{Gsn, Lsn};
use duramen_wal::{Hardened, Inserted, LogHold, NewRecord, WalStats};

use crate::error::Result;

/// What a page update, a commit, a rollback, an eviction, a checkpoint and a restart must do.
pub(crate) trait StorageScheme: Send + Sync + fmt::Debug {
    /// Records a page update, a compensation, a commit or the end of a transaction, in the order of the calls. A page
    /// update is recorded while its pages are latched. Never fails; a failure shows at the next [`Self::harden`].
    fn log(&self, record: NewRecord<'_>) -> Inserted;

    /// Waits until everything up to and including `gsn` survives a crash.
    fn harden(&self, gsn: Gsn) -> Result<()>;

    /// As [`Self::harden`], for what is no commit: it does not wait until others join it.
    fn harden_at_once(&self, gsn: Gsn) -> Result<()>;

    /// Asks for everything up to and including `gsn` to survive a crash, and does not wait.
    fn request_hardening(&self, gsn: Gsn) -> Hardened;

    /// Whether everything up to and including `gsn` survives a crash.
    fn is_hardened(&self, gsn: Gsn) -> bool;

    /// No record from now on gets a position below this.
    fn end(&self) -> Lsn;

    /// Sets room for `bytes` of records aside.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// As [`Self::reserve`], even beyond the limit that the user has set.
    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()>;

    /// Gives room back.
    fn unreserve(&self, bytes: u64);

    /// Bytes that a record with a payload of this length takes.
    fn record_bytes(&self, payload: usize) -> u64;

    /// Forgets the records below `lsn`: nothing needs them any more.
    fn recycle_below(&self, lsn: Lsn) -> Result<()>;

    /// Keeps the log, for a copy of it.
    fn hold_log(&self) -> Result<LogHold>;

    /// Waits until what may be recycled is archived, or cannot be.
    fn await_archive(&self);

    /// Why the log cannot be archived at present.
    fn archive_failure(&self) -> Option<String>;

    /// The failure that put the scheme out of service.
    fn failure(&self) -> Option<String>;

    /// Counts.
    fn stats(&self) -> WalStats;

    /// Hardens everything and stops.
    fn close(&self) -> Result<()>;
}
