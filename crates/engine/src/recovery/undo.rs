//! The third pass: it finishes the in-doubt transactions, which the crash interrupted.
//!
//! Each of them is first rebuilt as it was (`in_doubt.rs`). Then losers are rolled back, and the
//! deferred frees of winners are done. This happens before the database is open or, with instant
//! recovery, after that (`undo_queue.rs`).

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{Arc, Mutex, parallel};

use super::host::RecoveryHost;
use super::in_doubt::InDoubt;
use super::prev_chain::{ReadRecords, Resumable};
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::progress::{Gauge, RecoveryPass};
use crate::txn_state::context_pool::Context;
use crate::txn_state::table::{TxnEntry, TxnState};

/// Rolls back the losers and does the deferred frees that winners had not done, or leaves both for
/// after the opening. The order does not matter, because locks kept the transactions apart: each
/// thread takes the next transaction in turn.
pub(super) fn finish_transactions(
    host: &Arc<dyn RecoveryHost>,
    interrupted: Arc<dyn Resumable>,
    report: &mut RecoveryReport,
) -> Result<()> {
    let mut entries = interrupted.entries();
    // The order makes the work of one thread deterministic.
    entries.sort_by_key(|entry| entry.last);
    report.losers = entries.iter().filter(|entry| entry.state == TxnState::Active).count() as u64;
    // All of the transactions enter the transaction table before the first checkpoint can be taken.
    let parts = host.undo_parts();
    let resume = |entry| (entry, InDoubt::resume(&parts, entry));
    let resumed: Vec<(TxnEntry, Box<Context>)> = entries.into_iter().map(resume).collect();
    let count = resumed.len();
    let threads = parallel::size_for(host.options().recovery_threads, report.bytes).min(count);
    let observer = host.options().recovery_observer.as_ref();
    let gauge = Arc::new(Gauge::new(observer, RecoveryPass::Undo, Some(count as u64), 1));
    let done = Arc::clone(&gauge);
    let (shared, rest, failed) = (Arc::clone(host), Mutex::new(resumed), AtomicBool::new(false));
    let work = move || {
        // Each thread has its own reader and takes the latest transaction first: for many short
        // transactions, it reads the end of the log only once.
        let mut records = interrupted.reader();
        while !failed.load(Ordering::Relaxed) {
            let next = rest.lock().pop();
            let Some((entry, context)) = next else { break };
            let finished = finish_or_leave(&*shared, &mut *records, entry, context);
            failed.fetch_or(finished.is_err(), Ordering::Relaxed);
            finished?;
            done.add(1);
        }
        Ok(())
    };
    parallel::run(threads, "duramen-undo", work).into_iter().collect::<Result<()>>()?;
    if count > 0 {
        gauge.finish();
    }
    host.background().undo_queue.prepare(&parts)?;
    report.transactions_left = host.background().undo_queue.count();
    Ok(())
}

/// Finishes a transaction, or leaves it in a state in which other transactions may run.
fn finish_or_leave(
    host: &dyn RecoveryHost,
    records: &mut dyn ReadRecords,
    entry: TxnEntry,
    context: Box<Context>,
) -> Result<()> {
    let parts = host.undo_parts();
    let mut in_doubt = InDoubt::bring_back(&parts, records, entry, context)?;
    if !parts.instant_recovery {
        in_doubt.reserve_some(&parts);
        return in_doubt.finish(&parts, &AtomicBool::new(false));
    }
    let is_reserved = in_doubt.reserve_all(&parts)?;
    host.background().undo_queue.leave(in_doubt, is_reserved);
    Ok(())
}
