//! `duramen bench log-insert`: the log buffer alone, design by design, beside plain copying of the
//! same bytes, and beside copying with one addition for each record to a word that all threads
//! share.
//!
//! Each line is measured with one thread and with as many threads as there are clients. All
//! measurements share the time that the user gives. It is spent in rounds, each of which measures
//! everything once, so that a disturbance from outside affects more than one line. The result is
//! the median of the rounds.

mod measure;

use std::io::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use duramen::InsertDesign;
use serde::Serialize;

use super::refuse_all_but;
use crate::args::BenchArgs;
use crate::axes::LOG_INSERT_BENCH;
use crate::failure::Result;
use crate::format;
use crate::progress::Narrator;
use measure::{Load, Rate, Subject};

/// An odd number has a median.
const ROUNDS: usize = 5;

/// About the average of a transaction processing system (Aether, section 6.3).
const DEFAULT_RECORD_BYTES: u32 = 120;

/// The medians of one subject with so many threads. Scripts rely on these names.
#[derive(Serialize)]
struct Line {
    workload: &'static str,
    clients: usize,
    record_bytes: usize,
    log_insert: String,
    records_per_s: f64,
    bytes_per_s: f64,
    /// Processor time for each record.
    cpu_ns: f64,
    /// Part of the rate at which as many threads copy.
    of_memcpy: f64,
    /// Part of the records that joined another thread's group.
    consolidated: f64,
    ring_full_waits: u64,
}

pub(super) fn bench(args: &BenchArgs, narrator: Narrator, out: &mut dyn Write) -> Result<()> {
    refuse_all_but(&["clients", "seconds", "log-insert", "record-bytes", "json"], args)?;
    let designs = args.log_insert.map_or(InsertDesign::ALL.to_vec(), |design| vec![design]);
    let copying = [Subject::Copying, Subject::CopyingInTurns];
    let subjects: Vec<Subject> = copying.into_iter().chain(designs.into_iter().map(Subject::Design)).collect();
    let mut threads = vec![1, args.clients as usize];
    threads.dedup();
    let record_bytes = (args.record_bytes.unwrap_or(DEFAULT_RECORD_BYTES) as usize).next_multiple_of(8);
    let runs = ROUNDS * threads.len() * subjects.len();
    let time = Duration::from_secs_f64(args.seconds / runs as f64);

    let mut rates: Vec<Vec<Rate>> = vec![Vec::new(); runs / ROUNDS];
    for round in 1..=ROUNDS {
        narrator.say(&format!("round {round} of {ROUNDS}"));
        let pairs = threads.iter().flat_map(|threads| subjects.iter().map(move |subject| (*threads, *subject)));
        for (rates, (threads, subject)) in rates.iter_mut().zip(pairs) {
            rates.push(Load { threads, record_bytes, time }.measure(subject)?);
        }
    }

    let mut lines = Vec::new();
    for (of_threads, threads) in rates.chunks(subjects.len()).zip(threads) {
        let copying = median(&of_threads[0], Rate::records_per_second);
        for (rates, subject) in of_threads.iter().zip(&subjects) {
            lines.push(line(rates, *subject, copying, threads, record_bytes));
        }
    }
    if args.json { json(&lines, out) } else { table(&lines, out) }
}

fn median(rates: &[Rate], value: impl Fn(&Rate) -> f64) -> f64 {
    let mut values: Vec<f64> = rates.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn line(rates: &[Rate], subject: Subject, copying: f64, clients: usize, record_bytes: usize) -> Line {
    let records_per_s = median(rates, Rate::records_per_second);
    let rounded = |number: f64, digits: i32| (number * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
    Line {
        workload: LOG_INSERT_BENCH,
        clients,
        record_bytes,
        log_insert: match subject {
            Subject::Copying => "memcpy".to_owned(),
            Subject::CopyingInTurns => "add+memcpy".to_owned(),
            Subject::Design(design) => design.to_string(),
        },
        records_per_s: rounded(records_per_s, 0),
        bytes_per_s: rounded(records_per_s * record_bytes as f64, 0),
        cpu_ns: rounded(median(rates, Rate::cpu_nanos_per_record), 1),
        of_memcpy: rounded(records_per_s / copying, 4),
        consolidated: rounded(median(rates, |rate| rate.consolidated as f64 / rate.records as f64), 4),
        ring_full_waits: median(rates, |rate| rate.ring_full_waits as f64) as u64,
    }
}

fn json(lines: &[Line], out: &mut dyn Write) -> Result<()> {
    for line in lines {
        serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
        writeln!(out)?;
    }
    Ok(())
}

fn table(lines: &[Line], out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    let names =
        ["design", "clients", "records/s", "bytes/s", "cpu ns/record", "of memcpy", "consolidated", "full waits"];
    table.set_header(names);
    for line in lines {
        table.add_row([
            line.log_insert.clone(),
            line.clients.to_string(),
            format::count(line.records_per_s as u64),
            format::bytes(line.bytes_per_s as u64),
            format!("{:.1}", line.cpu_ns),
            format!("{:.1} %", line.of_memcpy * 100.0),
            format!("{:.1} %", line.consolidated * 100.0),
            format::count(line.ring_full_waits),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    writeln!(out, "{table}")?;
    let bytes = lines.first().map_or(0, |line| line.record_bytes);
    Ok(writeln!(out, "records of {bytes} bytes; medians of {ROUNDS} rounds; cpu time of the inserting threads")?)
}
