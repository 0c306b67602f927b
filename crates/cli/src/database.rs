//! Opens databases for the subcommands.

use std::path::Path;

use duramen::{Db, Options};
use duramen_io::{Backend, Disk, DiskLock, RealDisk, RealDiskOptions};
use duramen_sync::Arc;

use crate::args::OpenArgs;
use crate::failure::{Failure, Result};

/// The file that every database has.
const CONTROL_FILE: &str = "control";

/// Engine options as the command line asks for them.
pub(crate) fn options(open: &OpenArgs) -> Options {
    Options {
        pool_bytes: (open.pool_mb as usize) << 20,
        direct_io: !open.no_direct,
        io_uring: !open.no_uring,
        ..Options::default()
    }
}

/// Opens the database in `dir`, which must exist; makes nothing where there is none.
pub(crate) fn open_existing(dir: &Path, open: &OpenArgs) -> Result<Db> {
    require_database(dir)?;
    Ok(Db::open(dir, Options { create: false, ..options(open) })?)
}

/// The files of a closed database, for reading; nobody else can open it while the guard lives.
pub(crate) fn closed_disk(dir: &Path) -> Result<(Arc<dyn Disk>, DiskLock)> {
    require_database(dir)?;
    let disk = RealDisk::open(dir, RealDiskOptions { backend: Backend::Syscalls, direct: false })?;
    let lock = disk.lock().map_err(|error| {
        Failure::Run(format!("the database {} is in use: {}; close it first", dir.display(), error.reason))
    })?;
    Ok((Arc::new(disk), lock))
}

fn require_database(dir: &Path) -> Result<()> {
    let problem = if !dir.exists() {
        "there is no such directory"
    } else if !dir.is_dir() {
        "it is not a directory"
    } else if !dir.join(CONTROL_FILE).is_file() {
        "it holds no database (there is no file `control`)"
    } else {
        return Ok(());
    };
    Err(Failure::Run(format!("{} cannot be opened: {problem}; `duramen bench` makes databases", dir.display())))
}

/// What recovery did when `db` was opened, in one line; `None` when there was nothing to do.
pub(crate) fn recovery(db: &Db) -> Option<String> {
    let report = db.metrics().recovery;
    if !report.was_needed() {
        return None;
    }
    let megabytes = report.bytes as f64 / 1e6;
    let seconds = |micros: u64| micros as f64 / 1e6;
    Some(format!(
        "{:.2} s: {} log records ({megabytes:.1} MB) read, {} page changes repeated at {:.0} MB/s, {} transactions \
         rolled back, {} torn pages repaired (end of the log {:.2} s, analysis {:.2} s, redo {:.2} s with {} page visits \
         in {} windows, undo {:.2} s)",
        seconds(report.micros()),
        report.records,
        report.redone,
        megabytes / seconds(report.redo_micros).max(1e-6),
        report.losers,
        report.repaired,
        seconds(report.log_end_micros),
        seconds(report.analysis_micros),
        seconds(report.redo_micros),
        report.pages,
        report.windows,
        seconds(report.undo_micros),
    ))
}
