//! The classic scheme: pages are updated in the buffer pool, the log makes the updates durable (ARIES).

use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, Lsn};
use duramen_wal::{Hardened, Inserted, LogHold, NewRecord, Wal, WalStats};

use super::StorageScheme;
use crate::error::Result;
use crate::pool::{PoolError, WalRule};

/// Write-ahead logging.
#[derive(Debug)]
pub(crate) struct WalScheme {
    wal: Arc<Wal>,
}

impl WalScheme {
    /// The scheme over an open log.
    pub(crate) fn new(wal: Arc<Wal>) -> Self {
        Self { wal }
    }

    /// The log.
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }
}

impl StorageScheme for WalScheme {
    #[inline]
    fn log(&self, record: NewRecord<'_>) -> Inserted {
        self.wal.insert(record)
    }

    fn harden(&self, gsn: Gsn) -> Result<()> {
        Ok(self.wal.wait_hardened(gsn)?)
    }

    fn harden_at_once(&self, gsn: Gsn) -> Result<()> {
        Ok(self.wal.harden_at_once(gsn)?)
    }

    fn request_hardening(&self, gsn: Gsn) -> Hardened {
        self.wal.harden(gsn)
    }

    fn is_hardened(&self, gsn: Gsn) -> bool {
        self.wal.is_hardened(gsn)
    }

    fn end(&self) -> Lsn {
        self.wal.end()
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        Ok(self.wal.reserve(bytes)?)
    }

    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()> {
        self.wal.lift_limit(true);
        let reserved = self.wal.reserve(bytes);
        self.wal.lift_limit(false);
        Ok(reserved?)
    }

    fn unreserve(&self, bytes: u64) {
        self.wal.unreserve(bytes);
    }

    fn record_bytes(&self, payload: usize) -> u64 {
        Wal::record_bytes(payload)
    }

    fn recycle_below(&self, lsn: Lsn) -> Result<()> {
        Ok(self.wal.recycle_below(lsn)?)
    }

    fn hold_log(&self) -> Result<LogHold> {
        Ok(self.wal.hold())
    }

    fn await_archive(&self) {
        self.wal.await_archive();
    }

    fn archive_failure(&self) -> Option<String> {
        self.wal.archive_failure().map(|failure| failure.to_string())
    }

    fn failure(&self) -> Option<String> {
        self.wal.failure().map(|failure| failure.to_string())
    }

    fn stats(&self) -> WalStats {
        self.wal.stats()
    }

    fn close(&self) -> Result<()> {
        Ok(self.wal.close()?)
    }
}

impl WalRule for WalScheme {
    fn harden(&self, gsn: Gsn) -> std::result::Result<(), PoolError> {
        // The cleaner asks for pages that nobody waits for: most are hardened long since.
        if self.wal.is_hardened(gsn) {
            return Ok(());
        }
        reach(Probe::WalRuleForcedFlush);
        self.wal.harden_at_once(gsn).map_err(|failure| PoolError::Log { reason: failure.to_string() })
    }

    fn end(&self) -> Gsn {
        Gsn::new(self.wal.end().get())
    }
}
