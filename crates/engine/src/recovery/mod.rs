//! Recovery after a crash: ARIES over the log's valid part.
//!
//! 1. *Analysis* (`analysis.rs`) begins with the latest checkpoint's tables and goes on to the end of the log: which
//!    transactions were not over, which pages may lack changes on disk.
//! 2. *Redo* (`redo.rs`) repeats history: every page operation since the oldest of those changes that its page does not
//!    have, losers' included; page by page within a stretch of the logs (`window.rs`), one stretch while the next is read
//!    (`pipeline.rs`). Both are one pass over the logs.
//! 3. *Undo* (`undo.rs`) rolls back the transactions that had not committed, writing compensation records, and completes
//!    the clean-up of those that had.
//!
//! Each pass is shared by several threads: the first by log and by page, undo by transaction.
//!
//! With [`crate::Options::open_early`] redo leaves its last stretch for after the opening (`on_demand.rs`), and undo all of its
//! transactions (`unfinished.rs`).
//!
//! A crash at any point leaves a database that recovery starts over on: redo only repeats what the log says, and undo goes
//! on after the last compensation record that was hardened.

mod analysis;
mod background;
mod chain;
pub(crate) mod checkpoint;
pub(crate) mod control;
pub(crate) mod generation;
mod interrupted;
mod on_demand;
pub(crate) mod open;
mod pipeline;
pub(crate) mod progress;
mod redo;
mod undo;
mod unfinished;
mod window;

use duramen_io::File;
use duramen_sync::Arc;
use duramen_sync::atomic::Ordering;
use duramen_sync::clock::Instant;
use duramen_types::{PAGE_SIZE, Place};
use duramen_wal::WalError;

use crate::api::metrics::RecoveryReport;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::record::Malformed;
use crate::scheme::WalScheme;
use analysis::Analysis;

pub(crate) use background::BackgroundRecovery;

/// Brings the pages to the state of the last hardened commit. Nobody else uses the database meanwhile.
pub(crate) fn recover(core: &Arc<Core>, scheme: &Arc<WalScheme>, data: &dyn File) -> Result<RecoveryReport> {
    // What recovery has to log must not fail because an earlier run has used the log up to its limit.
    scheme.logs().lift_limit(true);
    let mut report = RecoveryReport::default();
    let control = core.control.lock().control;

    let started = Instant::now();
    let mut analysis = Analysis::at_checkpoint(scheme.logs(), control)?;
    let extents = scheme.logs().extents();
    report.log_end_bytes =
        extents.iter().zip(&analysis.behind).map(|(extent, from)| extent.end.get() - from.get()).sum();
    let unredone = redo::redo(core, scheme.logs(), &control, &mut analysis, &mut report)?;
    if let Some(unredone) = unredone {
        report.left = unredone.count();
        core.background.leave(&core.store.pool, unredone);
    }
    core.next_txn.store(analysis.next_txn.get(), Ordering::Relaxed);
    let groups = control.groups.max(analysis.groups());
    core.store.space.discover(&core.store.pool, groups, data.len()? / PAGE_SIZE as u64)?;
    report.redo_micros = micros(started);

    let started = Instant::now();
    undo::finish_transactions(core, scheme.logs(), &analysis, &mut report)?;
    report.undo_micros = micros(started);
    Ok(report)
}

pub(crate) fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// What came of reading a record that another one names.
fn in_chain<T>(place: Place, read: Result<T, WalError>) -> Result<T> {
    match read {
        // Nothing in an intact log names a place beyond its end.
        Err(WalError::OutOfRange { .. }) => Err(malformed(place)),
        Err(WalError::InLog { error, .. }) if matches!(*error, WalError::OutOfRange { .. }) => Err(malformed(place)),
        read => Ok(read?),
    }
}

/// A record whose checksum is right and whose contents make no sense.
fn malformed(place: Place) -> Error {
    let log = if place.log().is_zero() { "the log".into() } else { place.log().to_string() };
    let reason = format!("{Malformed} (the place is an LSN)");
    Error::Corrupt { file: log, offset: place.lsn().get(), page: None, reason }
}
