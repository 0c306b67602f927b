//! The classic scheme: pages are updated in the buffer pool, and the log makes the updates durable
//! (ARIES).

use duramen_sync::Arc;
use duramen_sync::cpu;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::{Log, LogHold, NewRecord, Retainer, WalError, WalStats, log_of_cpu};

use super::{Change, Hardening, Home, LogService, Recorded, StorageScheme};
use crate::error::{Result, why_log_failed};
use crate::metrics::HeapMetrics;
use crate::options::Partition;
use crate::page;
use crate::pool::{Exclusive, PoolError, WalRule};

/// Bytes that an operation reserves beyond its own record: for a split of every level of the tree.
const STRUCTURE_BYTES: u64 = 96 << 10;

/// The log that holds the checkpoints.
const CHECKPOINTS: LogId = LogId::ZERO;

/// Write-ahead logging.
#[derive(Debug)]
pub(crate) struct WalScheme {
    logs: Arc<Log>,
    partition: Partition,
}

impl WalScheme {
    /// Creates the scheme over open logs.
    pub(crate) fn new(logs: Arc<Log>, partition: Partition) -> Self {
        Self { logs, partition }
    }

    /// Returns the logs.
    pub(crate) fn logs(&self) -> &Arc<Log> {
        &self.logs
    }

    /// Returns a log of the memory node that the calling thread runs on; all threads on one
    /// processor get the same log.
    fn log_here(&self) -> LogId {
        log_of_cpu(cpu::location(), cpu::occupied_nodes(), usize::from(self.logs.count()))
    }

    fn log_of_page(&self, page: PageId) -> LogId {
        LogId::new((page.get() % u64::from(self.logs.count())) as u16)
    }

    /// Returns the log for a record about `page` of a transaction with this home. The record that
    /// ends a transaction may be in another log than its other records, although a checkpoint's
    /// table lacks a transaction that is over: analysis ignores all records up to the boundary of
    /// the checkpoint's begin record, and reads all others.
    #[inline]
    fn route(&self, home: Option<Home>, page: PageId) -> LogId {
        if self.logs.count() == 1 {
            return LogId::ZERO;
        }
        match (self.partition, home) {
            (Partition::Page, _) if !page.is_zero() => self.log_of_page(page),
            (_, Some(home)) => LogId::new(home.0 as u16),
            (Partition::Page | Partition::RoundRobin, None) => self.log_of_page(page),
            (Partition::Transaction, None) => self.log_here(),
        }
    }
}

impl StorageScheme for WalScheme {
    fn home(&self, txn: TxnId) -> Home {
        let log = match self.partition {
            _ if self.logs.count() == 1 => LogId::ZERO,
            Partition::Transaction | Partition::Page => self.log_here(),
            Partition::RoundRobin => LogId::new((txn.get() % u64::from(self.logs.count())) as u16),
        };
        Home(log.get().into())
    }

    fn home_of(&self, _txn: TxnId, last: LogAddress) -> Home {
        Home(last.log().get().into())
    }

    #[inline]
    fn change(&self, home: Option<Home>, change: Change<'_>, pages: &mut [Exclusive<'_>]) -> Recorded {
        let inserted = self.logs.insert(self.route(home, change.record.page), change.record);
        for page in pages {
            page::set_gsn(&mut page.page_mut(), inserted.gsn);
        }
        inserted.into()
    }

    fn note(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        self.logs.insert(self.route(Some(home), record.page), record).into()
    }

    fn end_txn(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let log = self.route(Some(home), record.page);
        self.logs.insert(log, record).into()
    }

    fn harden(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        if gsn.is_zero() {
            return Ok(());
        }
        Ok(self.logs.wait_hardened(gsn, own)?)
    }

    fn request_hardening(&self, gsn: Gsn) -> Option<Hardening> {
        (!self.logs.is_hardened(gsn)).then(|| Hardening::Log(self.logs.harden(gsn)))
    }

    fn before_blocking(&self) {
        self.logs.before_blocking();
    }

    fn is_hardened(&self, gsn: Gsn) -> bool {
        self.logs.is_hardened(gsn)
    }

    /// With several logs the GSN is that of a sync record, and every later record has a higher one.
    fn hardened_commits(&self) -> Option<Gsn> {
        Some(Gsn::new(self.logs.hardened_below().get().saturating_sub(1)))
    }

    fn latest(&self) -> Gsn {
        Gsn::new(self.logs.latest().get() - 1)
    }

    fn space_for_operation(&self, payload: u64) -> u64 {
        8 * payload + STRUCTURE_BYTES
    }

    /// A compensation record is hardly larger than the update. But the database record may have
    /// shrunk, and may no longer fit its page when it grows back; this costs a share of a split.
    fn space_for_undo(&self, payload: usize, inverse: usize) -> u64 {
        self.logs.record_bytes(payload) + 8 * inverse as u64
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        Ok(self.logs.reserve(bytes)?)
    }

    fn reserve_end(&self) -> Result<u64> {
        let bytes = self.logs.record_bytes(0);
        self.logs.reserve_beyond_limit(bytes)?;
        Ok(bytes)
    }

    fn unreserve(&self, bytes: u64) {
        self.logs.unreserve(bytes);
    }

    fn unreserve_unused(&self, bytes: u64) {
        self.logs.unreserve_unused(bytes);
    }

    fn reserve_system(&self, bytes: u64) -> Result<()> {
        Ok(self.logs.reserve(bytes)?)
    }

    /// The log shows every id in it, and checkpoints record the limit.
    fn note_txn_limit(&self, _limit: TxnId) {}

    /// Checkpoints record the number.
    fn note_groups(&self, _groups: u64) {}

    fn log(&self) -> Option<&dyn LogService> {
        Some(self)
    }

    fn heap(&self) -> Option<HeapMetrics> {
        None
    }

    fn failure(&self) -> Option<String> {
        self.logs.failure().map(|failure| failure.to_string())
    }

    fn close(&self) -> Result<()> {
        Ok(self.logs.close()?)
    }
}

impl LogService for WalScheme {
    fn record_checkpoint(&self, record: NewRecord<'_>, begun: &mut Vec<Lsn>) -> Recorded {
        self.logs.insert_sync_record(CHECKPOINTS, record, begun).into()
    }

    fn harden_at_once(&self, gsn: Gsn, own: Option<LogAddress>) -> Result<()> {
        Ok(self.logs.harden_at_once(gsn, own)?)
    }

    fn end(&self) -> Gsn {
        self.logs.latest()
    }

    fn positions_before(&self, gsn: Gsn) -> Vec<Lsn> {
        self.logs.positions_before(gsn)
    }

    fn reserve_beyond_limit(&self, bytes: u64) -> Result<()> {
        Ok(self.logs.reserve_beyond_limit(bytes)?)
    }

    fn record_bytes(&self, payload: usize) -> u64 {
        self.logs.record_bytes(payload)
    }

    fn has_room_from(&self, gsn: Gsn, bytes: u64, returned: u64) -> bool {
        self.logs.has_room_from(gsn, bytes, returned)
    }

    fn bytes_from(&self, gsn: Gsn) -> u64 {
        self.logs.bytes_from(gsn)
    }

    fn set_aside(&self) -> u64 {
        self.logs.set_aside()
    }

    fn recycle_below(&self, gsn: Gsn) -> Result<()> {
        Ok(self.logs.recycle_below(gsn)?)
    }

    fn stamp(&self, generation: u64) {
        self.logs.stamp_rings(generation);
    }

    fn hold_logs(&self) -> LogHold {
        self.logs.hold()
    }

    fn discard_past(&self) {
        self.logs.discard_past();
    }

    fn harden_all(&self) -> Result<Gsn> {
        self.logs.harden_at_once(self.latest(), None)?;
        Ok(Gsn::new(self.logs.hardened_below().get() - 1))
    }

    fn ends_before(&self, gsn: Gsn) -> Result<Vec<Lsn>> {
        Ok(self.logs.ends_before(gsn)?)
    }

    fn await_archive(&self) {
        self.logs.await_archive();
    }

    fn retainer(&self, bytes: u64) -> Option<Retainer> {
        self.logs.retainer(bytes)
    }

    fn retainers_progress(&self) -> u64 {
        self.logs.retainers_progress()
    }

    fn call_archive(&self) {
        self.logs.call_archive();
    }

    fn archive_failure(&self) -> Option<String> {
        self.logs.archive_failure().map(|failure| failure.to_string())
    }

    fn stats(&self) -> WalStats {
        self.logs.stats()
    }
}

impl WalRule for WalScheme {
    fn harden(&self, gsn: Gsn) -> std::result::Result<(), PoolError> {
        // Most pages that the cleaner writes were hardened long ago.
        if self.logs.is_hardened(gsn) {
            return Ok(());
        }
        reach(Probe::WalRuleForcedFlush);
        let failed = |error: WalError| PoolError::Log { reason: why_log_failed(&error) };
        self.logs.harden_at_once(gsn, None).map_err(failed)
    }

    fn end(&self) -> Gsn {
        self.logs.earliest()
    }

    fn before_blocking(&self) {
        self.logs.before_blocking();
    }
}
