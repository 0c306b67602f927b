//! `duramen compact`.

use std::io::Write;
use std::path::Path;

use duramen::{CompactProgress, Db, Options};

use crate::args::CompactArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::Narrator;

/// The file with the pages.
const DATA: &str = "data";

pub(crate) fn compact(args: &CompactArgs, out: &mut dyn Write) -> Result<()> {
    let scheme = database::scheme(&args.dir, &args.open);
    if !["wal", "pcm-basic", "no-pcm"].contains(&scheme) {
        return Err(Failure::Usage(format!(
            "the pages of a database with the scheme `{scheme}` are in persistent memory of a fixed size; use `dump` \
             and `load` to copy it"
        )));
    }
    if args.to.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::Usage(format!("{} is not empty; name a new directory", args.to.display())));
    }
    let db = database::open_existing_with(&args.dir, &args.open, |options| Options { snapshots: true, ..options })?;
    let before = size(&args.dir)?;
    let (wanted, found) = (database::options(&args.dir, &args.open)?, db.metrics());
    let usual = Options::default();
    let options = Options {
        pool_bytes: wanted.pool_bytes,
        system_cache: wanted.system_cache,
        io_uring: wanted.io_uring,
        logs: found.logs,
        log_partition: found.log_partition,
        log_max_bytes: usual.log_max_bytes.max(2 * before),
        ..usual
    };
    let copied = copy(&db, &args.to, options);
    if !found.log.archived.is_zero() {
        Narrator::new(false).say("the copy has no archive: open it with one of its own, and take a backup of it");
    }
    db.close()?;
    let copied = copied?;
    writeln!(
        out,
        "compacted {} records of {} tables: {} of pages became {}",
        format::count(copied.records),
        copied.tables,
        format::bytes(before),
        format::bytes(size(&args.to)?)
    )?;
    Ok(())
}

fn size(dir: &Path) -> Result<u64> {
    Ok(dir.join(DATA).metadata()?.len())
}

/// Copies a database into the directory `to`. After a failure nothing is left there.
fn copy(db: &Db, to: &Path, options: Options) -> Result<CompactProgress> {
    let target = Db::open(to, options)?;
    let mut bar = Narrator::new(false).bar("compacting", 1);
    let copied = db.compact_into(&target, |copied| bar.records(copied.records)).map_err(Failure::from);
    bar.finish();
    let closed = target.close().map_err(Failure::from);
    copied.and_then(|copied| closed.map(|()| copied)).inspect_err(|_| {
        // The failure says more than an error of clearing away would.
        let _ = std::fs::remove_dir_all(to);
    })
}
