//! Recovery after a crash: ARIES over the log's valid part.
//!
//! 1. *Analysis* (`analysis.rs`) begins with the latest checkpoint's tables and goes on to the end
//!    of the log: which transactions were not over, which pages may lack changes on disk.
//! 2. *Redo* (`redo.rs`) repeats history: every page operation since the oldest of those changes
//!    that its page does not have, losers' included; page by page within a stretch of the logs
//!    (`window.rs`), one stretch while the next is read (`pipeline.rs`). Both are one pass over the
//!    logs.
//! 3. *Undo* (`undo.rs`) rolls back the transactions that had not committed, writing compensation
//!    records, and completes the clean-up of those that had.
//!
//! Each pass is shared by several threads: the first by log and by page, undo by transaction.
//!
//! With [`crate::Options::instant_recovery`] redo leaves its last stretch for after the opening
//! (`on_demand.rs`), and undo all of its transactions (`undo_queue.rs`).
//!
//! A crash at any point leaves a database that recovery starts over on: redo only repeats what the
//! log says, and undo goes on after the last compensation record that was hardened.

mod analysis;
mod background;
mod host;
mod in_doubt;
mod malformed;
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

use crate::checkpoint::control::Control;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::scheme::WalScheme;
use analysis::Analysis;

pub(crate) use background::BackgroundRecovery;
pub(crate) use host::RecoveryHost;
pub(crate) use parts::UndoParts;

/// Brings the pages to the state of the last hardened commit. Nobody else uses the database
/// meanwhile.
pub(crate) fn recover(
    host: &Arc<dyn RecoveryHost>,
    scheme: &Arc<WalScheme>,
    control: Control,
    data: &dyn File,
) -> Result<RecoveryReport> {
    // What recovery has to log must not fail because an earlier run has used the log up to its
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
    undo::finish_transactions(host, scheme.logs(), &analysis, &mut report)?;
    report.undo_micros = micros(started);
    Ok(report)
}

pub(crate) fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
