//! Gathers the counters of all parts.

use crate::engine::Engine;
use crate::metrics::{Metrics, RecoveryReport};
use crate::scheme::LogService;

/// Returns what the database has done since it was opened.
pub(super) fn of(engine: &Engine) -> Metrics {
    let (locks, pool) = (engine.locks.metrics(), engine.store.pool.metrics());
    let waiting = engine.deferred_frees.waiting_for_snapshots();
    let writing = engine.txns.len().saturating_sub(waiting);
    let (snapshots, snapshots_too_old) = engine.versions.snapshots();
    let pool_tier = engine.store.pool.tier_metrics();
    let logs = engine.control.lock().control.logs;
    Metrics {
        commits: engine.counters.commits(),
        aborts: engine.counters.aborts(),
        deadlocks: locks.deadlocks,
        writing: writing as u64,
        lock_waits: locks.waits,
        lock_timeouts: locks.timeouts,
        lock_wait_nanos: locks.wait_nanos,
        checkpoints: engine.counters.checkpoints(),
        logs: logs.count,
        log_partition: logs.partition,
        log: engine.scheme().log().map(LogService::stats).unwrap_or_default(),
        heap: engine.scheme().heap(),
        pcm: engine.scheme().pcm(),
        page_tier: pool_tier,
        disk: engine.disk.counters(),
        backend: engine.disk.backend(),
        pool_pages: engine.store.pool.frames() as u64,
        dirty_pages: pool.dirty,
        unredone_pages: engine.background.pages(),
        interrupted: engine.background.transactions(),
        page_reads: pool.reads,
        page_writes: pool.writes,
        evictions: pool.evictions,
        snapshots,
        snapshots_too_old,
        version_bytes: engine.versions.bytes(),
        recovery: *engine.recovery.get().unwrap_or(&RecoveryReport::default()),
    }
}
