//! `duramen stats`.

use std::io::Write;
use std::path::{Path, PathBuf};

use comfy_table::{CellAlignment, Table, presets};

use crate::args::StatsArgs;
use crate::database;
use crate::failure::{Failure, Result};
use crate::format;

pub(crate) fn stats(args: &StatsArgs, out: &mut dyn Write) -> Result<()> {
    let db = database::open_existing(&args.dir, &args.open)?;
    writeln!(out, "recovery: {}", database::recovery(&db).unwrap_or_else(|| "nothing to do".into()))?;
    writeln!(out, "{}", files(&args.dir)?)?;
    writeln!(out, "{}", tables(&db.list()?))?;
    writeln!(out, "{}", counters(&db.metrics()))?;
    let open = &args.open;
    writeln!(out, "options: pool {} MiB, direct I/O {}", open.pool_mb, if open.no_direct { "off" } else { "on" })?;
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

/// Returns the engine's counters since it was opened, which covers recovery.
fn counters(metrics: &duramen::Metrics) -> Table {
    let mut table = two_columns(["counter", "value"]);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row("I/O", metrics.backend.to_owned());
    row("reads", format!("{}, {}", format::count(metrics.disk.reads), format::bytes(metrics.disk.read_bytes)));
    row("writes", format!("{}, {}", format::count(metrics.disk.writes), format::bytes(metrics.disk.written_bytes)));
    row("syncs", format::count(metrics.disk.syncs));
    if metrics.logs > 1 {
        row(
            "logs",
            format!("{} by {}; the positions below are those of the first log", metrics.logs, metrics.log_partition),
        );
    }
    match (&metrics.heap, &metrics.pcm) {
        (Some(heap), _) => of_heap(heap, &mut row),
        (None, Some(pcm)) => of_pcm(pcm, &mut row),
        (None, None) => of_log(metrics, &mut row),
    }
    if let Some(tier) = &metrics.page_tier {
        let (pages, slots) = (format::count(tier.pages), format::count(tier.slots));
        row("page tier", format!("{pages} of {slots} pages, {} read, {} written", tier.hits, tier.written));
    }
    if metrics.unredone_pages > 0 {
        row("pages still to be redone", format::count(metrics.unredone_pages));
    }
    row("commits", format::count(metrics.commits));
    row("aborts", format::count(metrics.aborts));
    row("deadlocks", format::count(metrics.deadlocks));
    table
}

/// Adds the counters of the log.
fn of_log(metrics: &duramen::Metrics, row: &mut dyn FnMut(&str, String)) {
    row("log start", metrics.log.start.get().to_string());
    row("log durable", metrics.log.durable.get().to_string());
    row("log end", metrics.log.end.get().to_string());
    row("log segments", metrics.log.segments_live.to_string());
    if !metrics.log.archived.is_zero() {
        row("log archived below", metrics.log.archived.get().to_string());
    }
    if metrics.logs > 1 {
        row("all logs complete before GSN", metrics.log.hardened_gsn.get().to_string());
    }
    row("log records", format::count(metrics.log.records));
    row("log bytes", format::count(metrics.log.bytes));
    row("log flushes", format!("{}, {}", format::count(metrics.log.flushes), format::bytes(metrics.log.flushed_bytes)));
}

/// Adds the counters of the heap.
fn of_heap(heap: &duramen::HeapMetrics, row: &mut dyn FnMut(&str, String)) {
    row("heap pages", format::count(heap.pages));
    row("changes of pages", format::count(heap.changes));
    row("barriers", format::count(heap.barriers));
    if heap.batches > 0 {
        row("batches", format::count(heap.batches));
        row("bytes of batches", format::bytes(heap.batch_bytes));
        row("transactions carried", format::count(heap.carried));
    }
    row("journals", format::bytes(heap.journal_bytes));
    row("journals that are free", format::bytes(heap.journal_bytes_free));
}

/// Adds the counters of the memory of pcm-logging.
fn of_pcm(pcm: &duramen::PcmMetrics, row: &mut dyn FnMut(&str, String)) {
    row("PCM", format!("{} slots, {} free", format::count(pcm.slots), format::count(pcm.slots_free)));
    row("pages in PCM", format::count(pcm.pages));
    row("tuples in PCM", format!("{}, in {} slots", format::count(pcm.tuples), format::count(pcm.tuple_slots)));
    row("reads in PCM", format!("{}, and {} misses", format::count(pcm.hits), format::count(pcm.misses)));
    row("records read as tuples", format::count(pcm.tuple_hits));
    row("pages written to PCM", format::count(pcm.written));
    row("tuples written to PCM", format::count(pcm.tuples_written));
    row("pages left to tuples", format::count(pcm.left_to_tuples));
    row("pages written back", format::count(pcm.written_back));
    row("structure changes", format::count(pcm.structure_changes));
    row("bytes stored", format::bytes(pcm.bytes_stored));
    row("barriers", format::count(pcm.barriers));
}
