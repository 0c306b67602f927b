//! `duramen backup` and `duramen restore`.

use std::io::Write;

use duramen::{BackupReport, Restore};

use crate::args::{BackupArgs, CheckArgs, OpenArgs, RestoreArgs};
use crate::check;
use crate::database;
use crate::failure::Result;
use crate::format;
use crate::progress::Narrator;

pub(crate) fn backup(args: &BackupArgs, out: &mut dyn Write) -> Result<()> {
    let db = database::open_existing(&args.dir, &args.open)?;
    let narrator = Narrator::new(false);
    let mut bar = narrator.bar("copying", 1);
    let report = db.backup(&args.to, |progress| bar.copy(progress));
    bar.finish();
    writeln!(out, "{}", describe(&report?))?;
    Ok(db.close()?)
}

/// Returns what a backup holds, in one line.
pub(crate) fn describe(report: &BackupReport) -> String {
    format!(
        "backup to {}, complete at {}: {} pages ({} read again), {} of log, in {:.2} s",
        report.end,
        report.times.1,
        format::count(report.pages),
        report.read_again,
        format::bytes(report.log_bytes),
        report.micros as f64 / 1e6
    )
}

pub(crate) fn restore(args: &RestoreArgs, out: &mut dyn Write) -> Result<()> {
    let mut restore = Restore::from(&args.backup)?.to(args.to.unwrap_or_default());
    if let Some(archive) = &args.archive {
        restore = restore.archive(archive)?;
    }
    if let Some(log) = &args.log {
        restore = restore.log(log)?;
    }
    let narrator = Narrator::new(false);
    let mut bar = narrator.bar("copying", 1);
    let report = restore.into_directory(&args.target, |progress| bar.copy(progress));
    bar.finish();
    let report = report?;
    let last = report.last_commit.map(|time| format!(", the last at {time}")).unwrap_or_default();
    writeln!(
        out,
        "restored to {}: {} commits since the backup{last}; {} pages, {} of log",
        report.end,
        format::count(report.commits),
        format::count(report.pages),
        format::bytes(report.log_bytes)
    )?;
    out.flush()?;
    // The first opening recovers the database; then everything is checked.
    let open = OpenArgs::with_pool(args.pool_mb);
    check::check(&CheckArgs { dir: args.target.clone(), ledger: None, open }, out)
}
