//! The third pass: transactions that the crash interrupted are brought to their end.
//!
//! Each is brought back first as it was (`interrupted.rs`). Then losers are rolled back, and what winners have promised to free
//! is freed: before the database is open, or behind that, if it is opened early (`unfinished.rs`).

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{Arc, Mutex, crew};
use duramen_wal::{Log, ReadBack};

use super::analysis::Analysis;
use super::interrupted::Interrupted;
use super::progress::{Gauge, RecoveryPass};
use crate::api::metrics::RecoveryReport;
use crate::engine::Core;
use crate::error::Result;
use crate::txn::context_pool::Context;
use crate::txn::table::{TxnEntry, TxnState};

/// Undoes the losers and cleans up behind the winners that had no time to, or leaves that for after the opening. Any order is
/// right, and so is none, since locks kept the transactions apart: threads take one after the other.
pub(super) fn finish_transactions(
    core: &Arc<Core>,
    logs: &Arc<Log>,
    analysis: &Analysis,
    report: &mut RecoveryReport,
) -> Result<()> {
    let mut entries: Vec<TxnEntry> = analysis.txns.values().copied().collect();
    // What one thread does is the same each time.
    entries.sort_by_key(|entry| entry.last);
    report.losers = entries.iter().filter(|entry| entry.state == TxnState::Active).count() as u64;
    // All of them are in the transaction table before the first checkpoint can be taken.
    let resume = |entry| (entry, Interrupted::resume(core, entry));
    let resumed: Vec<(TxnEntry, Box<Context>)> = entries.into_iter().map(resume).collect();
    let count = resumed.len();
    let threads = crew::size_for(core.options.recovery_threads, report.bytes).min(count);
    let observer = core.options.recovery_observer.as_ref();
    let gauge = Arc::new(Gauge::new(observer, RecoveryPass::Undo, Some(count as u64), 1));
    let done = Arc::clone(&gauge);
    let (shared, logs, rest, failed) =
        (Arc::clone(core), Arc::clone(logs), Mutex::new(resumed), AtomicBool::new(false));
    let work = move || {
        // Of one thread, which takes the latest first: the end of the log is read once for many short transactions.
        let mut logs = logs.read_back();
        while !failed.load(Ordering::Relaxed) {
            let next = rest.lock().pop();
            let Some((entry, context)) = next else { break };
            let finished = finish_or_leave(&shared, &mut logs, entry, context);
            failed.fetch_or(finished.is_err(), Ordering::Relaxed);
            finished?;
            done.add(1);
        }
        Ok(())
    };
    crew::run(threads, "duramen-undo", work).into_iter().collect::<Result<()>>()?;
    if count > 0 {
        gauge.finish();
    }
    core.background.unfinished.prepare(core)?;
    report.transactions_left = core.background.unfinished.count();
    Ok(())
}

/// Brings a transaction to its end, or leaves it in a state in which others may run.
fn finish_or_leave(core: &Core, logs: &mut ReadBack<'_>, entry: TxnEntry, context: Box<Context>) -> Result<()> {
    let mut interrupted = Interrupted::bring_back(core, logs, entry, context)?;
    if !core.options.open_early {
        interrupted.reserve_some(core);
        return interrupted.finish(core, &AtomicBool::new(false));
    }
    let has_room = interrupted.reserve_all(core)?;
    core.background.unfinished.leave(interrupted, has_room);
    Ok(())
}
