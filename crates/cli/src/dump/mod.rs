//! `duramen dump` and `duramen load`: the records of a database as text, and back.
//!
//! A dump shows one snapshot, of this process or of the one that has the database open. A load
//! reads the file twice: the first time it checks that the dump is complete and unchanged, and only
//! then it changes the database. Neither holds more than a few records in memory.

mod load;
mod source;
mod text;

pub(crate) use load::load;

use std::io::Write;

use duramen::Options;

use crate::args::DumpArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;
use crate::progress::Narrator;
use source::Source;
use text::Writer;

pub(crate) fn dump(args: &DumpArgs, out: &mut dyn Write) -> Result<()> {
    if let Some(snapshot) = database::remote_snapshot(&args.dir)? {
        Narrator::new(false).say(&format!("process {} has the database open", snapshot.process()));
        return write(Source::Other(snapshot), &args.tables, out);
    }
    let db = database::open_existing_with(&args.dir, &args.open, |options| Options { snapshots: true, ..options })?;
    let written = db.snapshot().map_err(Failure::from).and_then(|own| write(Source::Own(own), &args.tables, out));
    // A database that cannot be closed in order has still been read.
    db.close()?;
    written
}

/// Writes the tables, or all if none is named.
fn write(mut source: Source, tables: &[String], out: &mut dyn Write) -> Result<()> {
    let narrator = Narrator::new(false);
    let names = source.list()?;
    if let Some(missing) = tables.iter().find(|table| !names.contains(table)) {
        return Err(Failure::Usage(format!("there is no table `{missing}`; there are: {}", names.join(", "))));
    }
    let chosen = names.iter().filter(|name| tables.is_empty() || tables.contains(name));
    let mut writer = Writer::begin(out)?;
    let mut bar = narrator.bar("dumping", 1);
    for name in chosen {
        writer.table(name)?;
        source.read(name, |key, value| {
            writer.record(key, value)?;
            if writer.totals().records.is_multiple_of(1024) {
                bar.records(writer.totals().records);
            }
            Ok(())
        })?;
    }
    let totals = writer.end()?;
    bar.finish();
    narrator.say(&format!("dumped {} records of {} tables", format::count(totals.records), totals.tables));
    Ok(())
}
