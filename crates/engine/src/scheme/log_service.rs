//! What a scheme with a log offers besides: positions and space in the log, for checkpoints,
//! backups, the archive and transactions that find the log full.

use duramen_types::{Gsn, LogAddress, Lsn};
use duramen_wal::{LogHold, NewRecord, Retainer, WalStats};

use super::Recorded;
use crate::error::Result;

/// The log of a storage scheme.
pub(crate) trait LogService: Send + Sync {
    /// Records a part of a checkpoint, which ends an epoch of several logs. Puts, for each log, a
    /// position behind which all records of later epochs lie into `begun`.
    fn record_checkpoint(&self, record: NewRecord<'_>, begun: &mut Vec<Lsn>) -> Recorded;

    /// Waits until everything up to and including `gsn` survives a crash, for a record that is not
    /// a commit: the flush does not wait for other committers.
    fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()>;

    /// Returns a GSN above those of all records so far.
    fn end(&self) -> Gsn;

    /// Returns, for each log, a position before which all records have GSNs below `gsn`.
    fn positions_before(&self, gsn: Gsn) -> Vec<Lsn>;

    /// Reserves log space as [`super::StorageScheme::reserve`] does, even beyond the limit that the
    /// user has set.
    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()>;

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

    /// Durably stamps what the log keeps outside of its own files with this generation.
    fn stamp(&self, generation: u64);

    /// Keeps the logs from being recycled while they are copied.
    fn hold_logs(&self) -> LogHold;

    /// Gives back to the file system what the segments in use hold of records no longer needed.
    fn discard_past(&self);

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

    /// Returns the counters.
    fn stats(&self) -> WalStats;
}
