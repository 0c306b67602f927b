//! `duramen dump` and `duramen load`: the records of a database as text, and back.
//!
//! A dump shows one snapshot. A load reads the file twice: the first time it checks that the dump
//! is complete and unchanged, and only then it changes the database. Neither holds more than a few
//! records in memory.

mod load;
mod text;

pub(crate) use load::load;

use std::io::Write;

use duramen::{Db, Options};

use crate::args::DumpArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::Narrator;
use text::Writer;

pub(crate) fn dump(args: &DumpArgs, out: &mut dyn Write) -> Result<()> {
    let db = database::open_existing_with(&args.dir, &args.open, |options| Options { snapshots: true, ..options })?;
    let written = write(&db, &args.tables, out);
    // A database that cannot be closed in order has still been read.
    db.close()?;
    written
}

/// Writes the tables, or all if none is named.
fn write(db: &Db, tables: &[String], out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(false);
    let snapshot = db.snapshot()?;
    let names = snapshot.list()?;
    if let Some(missing) = tables.iter().find(|table| !names.contains(table)) {
        return Err(Failure::Usage(format!("there is no table `{missing}`; there are: {}", names.join(", "))));
    }
    let chosen = names.iter().filter(|name| tables.is_empty() || tables.contains(name));
    let mut writer = Writer::begin(out)?;
    let mut bar = narrator.bar("dumping", 1);
    for name in chosen {
        let table = snapshot.open_table(name)?;
        writer.table(name)?;
        let mut cursor = snapshot.cursor(&table, ..);
        while let Some((key, value)) = cursor.next()? {
            writer.record(key, value)?;
            if writer.totals().records.is_multiple_of(1024) {
                bar.records(writer.totals().records);
            }
        }
    }
    let totals = writer.end()?;
    bar.finish();
    narrator.say(&format!("dumped {} records of {} tables", format::count(totals.records), totals.tables));
    Ok(())
}
