//! `duramen tier`.

use std::io::Write;

use crate::args::{TierArgs, TierCommand};
use crate::database;
use crate::failure::Result;
use crate::format;

pub(crate) fn tier(args: &TierArgs, out: &mut dyn Write) -> Result<()> {
    let TierCommand::Drain { dir, open } = &args.command;
    let db = database::open_existing(dir, open)?;
    let before = db.metrics().page_tier;
    let had_tier = db.drain_page_tier()?;
    let after = db.metrics().page_tier;
    db.close()?;
    if !had_tier {
        return Ok(writeln!(out, "{} has no page tier", dir.display())?);
    }
    let written = after.zip(before).map_or(0, |(after, before)| after.written_back - before.written_back);
    Ok(writeln!(out, "{} pages written to the data file; the page tier is removed", format::count(written))?)
}
