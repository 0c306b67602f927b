//! Recovery after a crash: ARIES over the log's valid part.
//!
//! 1. *Analysis* (`analysis.rs`) starts with the latest checkpoint's tables and reads to the end of
//!    the log. It finds the transactions that had not ended, and the pages that may lack changes on
//!    disk.
//! 2. *Redo* (`redo.rs`) repeats history, losers included: every page operation, from the oldest
//!    missing change on, that its page lacks. It works page by page within a window of the logs
//!    (`window.rs`), and repeats one window while it reads the next (`pipeline.rs`). Analysis and
//!    redo read the logs in one pass.
//! 3. *Undo* (`undo.rs`) rolls back the transactions that had not committed, writing compensation
//!    records, and completes the clean-up of those that had.
//!
//! Several threads share each pass: analysis and redo are divided by log and by page, undo by
//! transaction.
//!
//! With [`crate::Options::instant_recovery`], redo leaves its last window for after the opening
//! (`on_demand.rs`), and undo leaves all of its transactions (`undo_queue.rs`).
//!
//! After a crash at any point, recovery can start over: redo only repeats what the log contains,
//! and undo continues after the last compensation record that was hardened.

mod analysis;
mod background;
mod host;
mod in_doubt;
mod malformed;
mod of_batches;
mod of_heap;
mod of_pcm;
mod on_demand;
mod parts;
mod pipeline;
mod prev_chain;
mod redo;
mod repeat;
mod undo;
mod undo_queue;
mod window;

use duramen_io::File;
use duramen_sync::Arc;
use duramen_sync::clock::Instant;
use duramen_types::PAGE_SIZE;
use duramen_wal::Log;

use crate::checkpoint::control::Control;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::scheme::WalScheme;
use crate::txn_state::table::TxnEntry;
use analysis::Analysis;
use prev_chain::{ReadRecords, Resumable};
use undo::finish_transactions;

pub(crate) use background::BackgroundRecovery;
pub(crate) use host::RecoveryHost;
pub(crate) use of_batches::recover_batches;
pub(crate) use of_heap::recover_heap;
pub(crate) use of_pcm::{LeftByScan, recover_pcm};
pub(crate) use parts::UndoParts;

/// Brings the pages to the state of the last hardened commit. No other thread uses the database
/// meanwhile.
pub(crate) fn recover(
    host: &Arc<dyn RecoveryHost>,
    scheme: &Arc<WalScheme>,
    control: Control,
    data: &dyn File,
) -> Result<RecoveryReport> {
    // Recovery's own log records must not fail because an earlier run has used the log up to its
    // limit.
    scheme.logs().lift_limit(true);
    let mut report = RecoveryReport::default();
    let parts = host.undo_parts();
    let pool = &parts.store.pool;

    let started = Instant::now();
    let mut analysis = Analysis::at_checkpoint(scheme.logs(), control)?;
    let extents = scheme.logs().extents();
    report.log_end_bytes =
        extents.iter().zip(&analysis.behind).map(|(extent, from)| extent.end.get() - from.get()).sum();
    let unredone = redo::redo(pool, host.options(), scheme.logs(), &control, &mut analysis, &mut report)?;
    if let Some(unredone) = unredone {
        report.left = unredone.count();
        host.background().leave(pool, unredone);
    }
    parts.contexts.set_next_txn(analysis.next_txn);
    let groups = control.groups.max(analysis.groups());
    parts.store.space.discover(pool, groups, data.len()? / PAGE_SIZE as u64)?;
    report.redo_micros = micros(started);

    let started = Instant::now();
    let txns = analysis.txns.values().copied().collect();
    finish_transactions(host, Arc::new(InLogs { logs: Arc::clone(scheme.logs()), txns }), &mut report)?;
    report.undo_micros = micros(started);
    Ok(report)
}

/// The interrupted transactions of a database with logs.
struct InLogs {
    logs: Arc<Log>,
    txns: Vec<TxnEntry>,
}

impl Resumable for InLogs {
    fn entries(&self) -> Vec<TxnEntry> {
        self.txns.clone()
    }

    fn reader(&self) -> Box<dyn ReadRecords + '_> {
        Box::new(self.logs.read_back())
    }
}

pub(crate) fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
