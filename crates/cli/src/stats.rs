//! `duramen stats`.

use std::io::Write;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};
use duramen::inspect::Question;

use crate::args::StatsArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;

pub(crate) fn stats(args: &StatsArgs, out: &mut dyn Write) -> Result<()> {
    if let Some(answer) = database::ask(&args.dir, &Question::Stats)? {
        writeln!(out, "process {} has the database open", answer.process)?;
        writeln!(out, "{}", files(&args.dir)?)?;
        let named = answer.text.lines().filter_map(|line| line.split_once('\t'));
        writeln!(out, "{}", counters(named.map(|(name, value)| (name, value.to_owned()))))?;
        return Ok(());
    }
    let db = database::open_existing(&args.dir, &args.open)?;
    writeln!(out, "recovery: {}", database::recovery(&db).unwrap_or_else(|| "nothing to do".into()))?;
    writeln!(out, "{}", files(&args.dir)?)?;
    writeln!(out, "{}", tables(&db.list()?))?;
    writeln!(out, "{}", counters(db.metrics().named()))?;
    let open = &args.open;
    writeln!(out, "options: pool {} MiB, through the system's cache: {}", open.pool_mb, open.system_cache)?;
    Ok(db.close()?)
}

fn two_columns(head: [&str; 2]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(head);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Returns the database's files and their sizes.
fn files(dir: &Path) -> Result<Table> {
    let mut table = two_columns(["file", "size"]);
    let mut all = Vec::new();
    list(dir, &mut all).map_err(|error| Failure::Run(format!("cannot list {}: {error}", dir.display())))?;
    all.sort();
    let mut sum = 0;
    for (path, size) in all {
        sum += size;
        table.add_row([path.strip_prefix(dir).unwrap_or(&path).display().to_string(), format::bytes(size)]);
    }
    table.add_row(["all".into(), format::bytes(sum)]);
    Ok(table)
}

/// Adds the files in `dir` and below to `all`.
fn list(dir: &Path, all: &mut Vec<(PathBuf, u64)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            list(&entry.path(), all)?;
        } else {
            all.push((entry.path(), metadata.len()));
        }
    }
    Ok(())
}

fn tables(names: &[String]) -> String {
    if names.is_empty() { "tables: none".into() } else { format!("tables: {}", names.join(", ")) }
}

/// Returns the counters since the database was opened, which cover recovery.
fn counters<'n>(named: impl IntoIterator<Item = (&'n str, String)>) -> Table {
    let mut table = two_columns(["counter", "value"]);
    for (name, value) in named {
        let value = match value.parse() {
            Ok(number) if name.ends_with("bytes") => format::bytes(number),
            // A position can be given to `inspect log`.
            Ok(number) if !name.ends_with("SN)") => format::count(number),
            _ => value,
        };
        table.add_row([name.to_owned(), value]);
    }
    table
}
