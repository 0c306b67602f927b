//! `duramen bench barrier`: what it takes to make cache lines durable in persistent memory, without
//! an engine, and the storage scheme that follows from it.
//!
//! Each thread stores to lines of its own part of the region, flushes them where caches are
//! volatile, and fences. A time is processor time, which other programs do not change much. All
//! measurements share the time that the user gives, in rounds, as those of `log_insert` do; the
//! result is the median of the rounds.
//!
//! A region that exists is measured only if it contains nothing but zeros, and it does so again
//! afterwards. A file that does not exist is created, and removed afterwards.

use std::io::Write;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use duramen::pmem::{Domain, Guarantee, Mode, PmemError, Region, RegionOptions, Source, Survive};
use duramen_sync::Arc;
use duramen_sync::clock::{Instant, thread_cpu_time};
use duramen_sync::thread::available_parallelism;
use serde::Serialize;

use super::refuse_all_but;
use super::together::together;
use crate::args::BenchArgs;
use crate::axes::BARRIER_BENCH;
use crate::failure::{Failure, Result};
use crate::progress::Narrator;

/// Lines that become durable with one barrier.
const LINES: [usize; 4] = [1, 4, 16, 128];
/// The number of lines that decides: about a change of a row with its record.
const OF_A_CHANGE: usize = 4;
const LINE: usize = 64;
/// Each thread's part of the region: more than the lines of a store buffer or a first-level cache.
const PART: u64 = 1 << 20;
/// An odd number has a median.
const ROUNDS: usize = 5;
/// Barriers between two reads of the clock.
const BATCH: u64 = 64;
/// Where a barrier takes longer, the barriers of the scheme `in-place` cost more than the waits for
/// a batch (docs/choosing-a-scheme.md).
const MOST_IN_PLACE: Duration = Duration::from_micros(1);

/// One measurement. Scripts rely on these names, and on those below.
#[derive(Serialize, Clone, Copy)]
struct Measurement {
    domain: &'static str,
    lines: usize,
    threads: usize,
    /// Nanoseconds of a thread for store, flush and fence.
    ns: f64,
}

#[derive(Serialize)]
struct Advice {
    domain: &'static str,
    /// Nanoseconds for the lines of a change, with one thread.
    ns: f64,
    /// For data that fits the region.
    scheme: &'static str,
}

#[derive(Serialize)]
struct Report {
    workload: &'static str,
    region: String,
    /// Whether the region is persistent memory.
    persistent: bool,
    guarantee: String,
    flush: &'static str,
    measurements: Vec<Measurement>,
    recommended: Vec<Advice>,
}

pub(super) fn bench(args: &BenchArgs, narrator: Narrator, out: &mut dyn Write) -> Result<()> {
    refuse_all_but(&["region", "domain", "seconds", "json"], args)?;
    let source = match &args.open.log.region[..] {
        [] => Source::Anonymous,
        [path] => Source::File(path.clone()),
        _ => return Err(Failure::Usage("`barrier` measures one region: give `--region` once".to_owned())),
    };
    let mut threads = vec![1, available_parallelism()];
    threads.dedup();
    let domain = args.open.log.domain;
    let domains = domain.map_or(Domain::NAMES.map(|(_, domain)| domain).to_vec(), |domain| vec![domain]);
    let (region, is_new) = open(&source, threads[threads.len() - 1], domain.unwrap_or_default())?;
    let region = Arc::new(region);
    let measured = measure(&region, &domains, &threads, args.seconds, narrator);
    match &source {
        Source::File(path) if is_new => std::fs::remove_file(path)
            .map_err(|error| Failure::Run(format!("cannot remove {}: {error}", path.display())))?,
        Source::File(_) => zero(&region),
        _ => {}
    }
    let measurements = measured?;
    let guarantee = region.guarantee();
    let report = Report {
        workload: BARRIER_BENCH,
        region: region.location().to_owned(),
        persistent: matches!(guarantee, Guarantee::DurableCache | Guarantee::VolatileCache),
        guarantee: guarantee.to_string(),
        flush: region.flush_instruction(),
        recommended: domains.iter().map(|domain| advice(&measurements, name(*domain))).collect(),
        measurements,
    };
    if !report.persistent {
        let _ = writeln!(
            std::io::stderr(),
            "warning: `{}` is not persistent memory ({}), so the times say little about persistent memory; name a \
             file or device of it with `--region`",
            report.region,
            report.guarantee
        );
    }
    if args.json {
        serde_json::to_writer(&mut *out, &report).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    table(&report, &threads, guarantee, out)
}

fn name(domain: Domain) -> &'static str {
    let known = Domain::NAMES.into_iter().find(|(_, known)| *known == domain);
    known.expect("every domain has a name").0
}

/// Opens the region, and returns whether its file was created.
fn open(source: &Source, threads: usize, domain: Domain) -> Result<(Region, bool)> {
    let len = PART * threads as u64;
    let options = RegionOptions { survive: Survive::Nothing, domain, mode: Mode::Create, ..RegionOptions::new(len) };
    let failed = |error: PmemError| match error {
        PmemError::System { .. } | PmemError::Busy { .. } => Failure::Run(error.to_string()),
        _ => Failure::Usage(error.to_string()),
    };
    match Region::open(source, &options) {
        Err(PmemError::AlreadyExists { .. }) => {}
        opened => return opened.map(|region| (region, true)).map_err(failed),
    }
    let region = Region::open(source, &RegionOptions { mode: Mode::Open, ..options }).map_err(failed)?;
    let mut bytes = vec![0; PART as usize];
    for part in 0..threads as u64 {
        region.read(part * PART, &mut bytes);
        if bytes.iter().any(|byte| *byte != 0) {
            return Err(Failure::Usage(format!(
                "`{}` is not empty, and the measurement would overwrite it; name a file that does not exist, or one \
                 that is filled with zeros",
                region.location()
            )));
        }
    }
    Ok((region, false))
}

/// Makes a region what it was.
fn zero(region: &Region) {
    let zeros = vec![0; PART as usize];
    for at in (0..region.len()).step_by(zeros.len()) {
        region.store(at, &[&zeros]);
        region.flush(at, zeros.len());
    }
    region.fence();
}

fn measure(
    region: &Arc<Region>,
    domains: &[Domain],
    threads: &[usize],
    seconds: f64,
    narrator: Narrator,
) -> Result<Vec<Measurement>> {
    let subjects: Vec<(Domain, usize, usize)> = domains
        .iter()
        .flat_map(|domain| LINES.iter().map(move |lines| (*domain, *lines)))
        .flat_map(|(domain, lines)| threads.iter().map(move |threads| (domain, lines, *threads)))
        .collect();
    let time = Duration::from_secs_f64(seconds / (ROUNDS * subjects.len()) as f64);
    let mut times = vec![Vec::new(); subjects.len()];
    for round in 1..=ROUNDS {
        narrator.say(&format!("round {round} of {ROUNDS}"));
        for (times, &(domain, lines, threads)) in times.iter_mut().zip(&subjects) {
            times.push(barriers(region, domain, lines, threads, time)?);
        }
    }
    let measurement = |(mut times, (domain, lines, threads)): (Vec<f64>, (Domain, usize, usize))| {
        times.sort_by(f64::total_cmp);
        Measurement { domain: name(domain), lines, threads, ns: (times[ROUNDS / 2] * 10.0).round() / 10.0 }
    };
    Ok(times.into_iter().zip(subjects).map(measurement).collect())
}

/// Returns the nanoseconds of processor time that a thread takes for store, flush and fence.
fn barriers(region: &Arc<Region>, domain: Domain, lines: usize, threads: usize, time: Duration) -> Result<f64> {
    let (threads, _) = together(threads, |thread| {
        let region = Arc::clone(region);
        move || run(&region, thread as u64 * PART, domain, lines * LINE, time)
    })?;
    let (count, cpu): (Vec<u64>, Vec<Duration>) = threads.into_iter().unzip();
    Ok(cpu.iter().sum::<Duration>().as_nanos() as f64 / count.iter().sum::<u64>() as f64)
}

/// Makes `len` bytes durable again and again, all over a thread's part of the region; returns how
/// often, and the processor time.
fn run(region: &Region, part: u64, domain: Domain, len: usize, time: Duration) -> (u64, Duration) {
    // No zeros: some processors recognise a store of zeros to zeros.
    let bytes: Vec<u8> = (0..len).map(|at| at as u8 | 1).collect();
    let (start, cpu_start, mut count, mut at) = (Instant::now(), thread_cpu_time(), 0, 0);
    while start.elapsed() < time {
        for _ in 0..BATCH {
            region.store(part + at, &[&bytes]);
            if domain == Domain::VolatileCache {
                region.flush(part + at, len);
            }
            region.fence();
            at = (at + len as u64) % PART;
        }
        count += BATCH;
    }
    (count, thread_cpu_time() - cpu_start)
}

fn advice(measurements: &[Measurement], domain: &'static str) -> Advice {
    let is_decisive = |of: &&Measurement| of.domain == domain && of.lines == OF_A_CHANGE && of.threads == 1;
    let ns = measurements.iter().find(is_decisive).map_or(f64::NAN, |of| of.ns);
    let is_cheap = ns < MOST_IN_PLACE.as_nanos() as f64;
    Advice { domain, ns, scheme: if is_cheap { "in-place" } else { "nvram-group-commit" } }
}

fn table(report: &Report, threads: &[usize], guarantee: Guarantee, out: &mut dyn Write) -> Result<()> {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    let of_threads = threads.iter().map(|threads| match threads {
        1 => "1 thread".to_owned(),
        threads => format!("{threads} threads"),
    });
    table.set_header(["domain".to_owned(), "lines".to_owned()].into_iter().chain(of_threads));
    for row in report.measurements.chunks(threads.len()) {
        let times = row.iter().map(|of| format!("{:.3} us", of.ns / 1000.0));
        table.add_row([row[0].domain.to_owned(), row[0].lines.to_string()].into_iter().chain(times));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    writeln!(out, "{table}")?;
    let region = &report.region;
    writeln!(out, "store, flush ({}) and fence in `{region}`; durable-cache needs no flush", report.flush)?;
    for advice in &report.recommended {
        let Advice { domain, ns, scheme } = advice;
        let limit = if *scheme == "in-place" { "less than 1 us" } else { "1 us or more" };
        let us = ns / 1000.0;
        writeln!(out, "{domain}: {us:.3} us for the {OF_A_CHANGE} lines of a change, {limit}: `--scheme {scheme}`")?;
    }
    writeln!(out, "for data that does not fit the region: `--scheme wal --log-device nvm`")?;
    match guarantee {
        Guarantee::VolatileCache => writeln!(out, "the caches of this platform are volatile: use volatile-cache")?,
        Guarantee::DurableCache => writeln!(out, "the caches of this platform are durable: use durable-cache")?,
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_barriers_call_for_batches() {
        let measured = |ns| [Measurement { domain: "volatile-cache", lines: OF_A_CHANGE, threads: 1, ns }];
        let scheme = |ns| advice(&measured(ns), "volatile-cache").scheme;
        assert_eq!(scheme(999.0), "in-place");
        assert_eq!(scheme(1000.0), "nvram-group-commit");
    }
}
