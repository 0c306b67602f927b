//! What `duramen bench` prints when it is done.

use std::io::Write;

use comfy_table::{Table, presets};
use duramen::{BackupReport, Metrics, PcmMetrics, TierMetrics};
use duramen_workloads::{AuditReport, RunReport};
use serde::Serialize;

use super::agents;
use super::scans::Scanned;
use crate::args::BenchArgs;
use crate::backup::describe;
use crate::failure::Result;
use crate::format;

/// What was run, beyond what the command line says.
pub(super) struct Settings {
    pub(super) workload: &'static str,
    /// The storage scheme.
    pub(super) scheme: &'static str,
    pub(super) scale: String,
    /// The kinds of transactions.
    pub(super) kinds: &'static [&'static str],
    pub(super) seed: u64,
    /// What recovery did when the database was opened, if there was something to do.
    pub(super) recovery: Option<String>,
    /// The backup that was taken during the run.
    pub(super) backup: Option<BackupReport>,
    /// What threads have read through snapshots during the run.
    pub(super) scanned: Option<Scanned>,
}

/// What the run did, and what it cost the log and the device.
pub(super) struct Measured<'a> {
    run: &'a RunReport,
    audit: &'a AuditReport,
    backend: &'static str,
    log_bytes: u64,
    flushes: u64,
    flushed_bytes: u64,
    syncs: u64,
    deadlocks: u64,
    /// Waits for several logs to be hardened, and those that had to wait for at most one log.
    waits_for_logs: u64,
    sync_records: u64,
    log_end: u64,
    fences: u64,
    drains: u64,
    /// With a heap: changes of pages, barriers and batches.
    heap: Option<(u64, u64, u64)>,
    /// With pcm-logging: pages written to the memory and from there to the data file, barriers, and
    /// bytes stored.
    pcm: Option<Pcm>,
    tier: Option<Tier>,
    page_reads: u64,
    page_writes: u64,
    /// On a disk that can be slowed down.
    random_writes: Option<u64>,
}

/// What happened in the page tier.
#[derive(Clone, Copy, Serialize)]
struct Tier {
    slots: u64,
    pages: u64,
    hits: u64,
    misses: u64,
    written: u64,
    written_back: u64,
    bytes_written: u64,
}

impl Tier {
    fn between(before: &TierMetrics, after: &TierMetrics) -> Self {
        Self {
            slots: after.slots,
            pages: after.pages,
            hits: after.hits - before.hits,
            misses: after.misses - before.misses,
            written: after.written - before.written,
            written_back: after.written_back - before.written_back,
            bytes_written: after.bytes_written - before.bytes_written,
        }
    }
}

/// The work of the memory of pcm-logging.
#[derive(Clone, Copy)]
struct Pcm {
    pages: u64,
    tuples: u64,
    tuple_hits: u64,
    written_back: u64,
    barriers: u64,
    bytes: u64,
}

impl Pcm {
    fn between(before: &PcmMetrics, after: &PcmMetrics) -> Self {
        Self {
            pages: after.written - before.written,
            tuples: after.tuples_written - before.tuples_written,
            tuple_hits: after.tuple_hits - before.tuple_hits,
            written_back: after.written_back - before.written_back,
            barriers: after.barriers - before.barriers,
            bytes: after.bytes_stored - before.bytes_stored,
        }
    }
}

impl<'a> Measured<'a> {
    /// Takes the difference between the engine's counters before and after the run.
    pub(super) fn new(
        run: &'a RunReport,
        (before, after): (&Metrics, &Metrics),
        audit: &'a AuditReport,
        random_writes: Option<u64>,
    ) -> Self {
        Self {
            run,
            audit,
            backend: after.backend,
            log_bytes: after.log.bytes - before.log.bytes,
            flushes: after.log.flushes - before.log.flushes,
            flushed_bytes: after.log.flushed_bytes - before.log.flushed_bytes,
            syncs: after.disk.syncs - before.disk.syncs,
            deadlocks: after.deadlocks - before.deadlocks,
            waits_for_logs: after.log.waits_for_logs - before.log.waits_for_logs,
            sync_records: after.log.sync_records - before.log.sync_records,
            log_end: after.log.hardened_gsn.get(),
            fences: after.log.fences - before.log.fences,
            drains: after.log.drains - before.log.drains,
            heap: after.heap.zip(before.heap).map(|(after, before)| {
                let batches = after.batches - before.batches;
                (after.changes - before.changes, after.barriers - before.barriers, batches)
            }),
            pcm: after.pcm.zip(before.pcm).map(|(after, before)| Pcm::between(&before, &after)),
            tier: after.page_tier.zip(before.page_tier).map(|(after, before)| Tier::between(&before, &after)),
            page_reads: after.page_reads - before.page_reads,
            page_writes: after.page_writes - before.page_writes,
            random_writes,
        }
    }
}

/// The object of the command-line contract. Scripts rely on these names.
#[derive(Serialize)]
struct Line<'a> {
    workload: &'a str,
    clients: u32,
    /// Measured, from the start of the clients to the end of the last transaction.
    seconds: f64,
    commit: String,
    log_insert: String,
    logs: u16,
    partition: String,
    log_device: &'a str,
    /// Of the log device `nvm`, of the heap, or of the memory of pcm-logging.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    scheme: &'a str,
    /// With a heap.
    #[serde(skip_serializing_if = "Option::is_none")]
    page_changes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    residence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    barrier_protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    barriers: Option<u64>,
    /// With batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    batches: Option<u64>,
    /// With pcm-logging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_to_pcm: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tuples_to_pcm: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tuple_hits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pages_written_back: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pcm_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_tier: Option<Tier>,
    /// With --disk-delay-ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    random_writes: Option<u64>,
    committed: u64,
    tps: f64,
    aborted: u64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
    log_bytes: u64,
    flushes: u64,
    syncs: u64,
    /// Pages read into the pool, and pages written to the data file.
    page_reads: u64,
    page_writes: u64,
    audit: String,
    /// With a backup: the GSN of its end, and of the end of the log after the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    backup_end: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_end: Option<u64>,
    /// With --scans: those that came to their end, the rows that all have read, and the snapshots
    /// that were ended before.
    #[serde(skip_serializing_if = "Option::is_none")]
    scans: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rows_scanned: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshots_too_old: Option<u64>,
}

/// Returns the persistence domain, if the log is in persistent memory.
fn domain(args: &BenchArgs, settings: &Settings) -> Option<String> {
    let is_used = args.open.log.log_device == "nvm"
        || args.tier_region.is_some()
        || !["wal", "no-pcm"].contains(&settings.scheme);
    is_used.then(|| args.open.log.domain.unwrap_or_default().to_string())
}

/// Prints the result as one JSON object on one line.
pub(super) fn json(args: &BenchArgs, settings: &Settings, measured: &Measured<'_>, out: &mut dyn Write) -> Result<()> {
    let run = measured.run;
    let quantile = |quantile| format::micros(run.latencies.quantile(quantile));
    let of_heap = measured.heap.map(|(_, barriers, _)| barriers);
    let barriers = of_heap.or(measured.pcm.map(|pcm| pcm.barriers));
    let line = Line {
        workload: settings.workload,
        clients: args.clients,
        seconds: (run.elapsed.as_secs_f64() * 1e6).round() / 1e6,
        commit: args.commit.to_string(),
        log_insert: args.log_insert.unwrap_or_default().to_string(),
        logs: args.logs,
        partition: args.partition.to_string(),
        log_device: if settings.scheme == "pcm-basic" { "nvm" } else { args.open.log.log_device },
        domain: domain(args, settings),
        scheme: settings.scheme,
        page_changes: measured.heap.map(|(changes, ..)| changes),
        residence: measured.heap.map(|_| args.open.heap.residence.unwrap_or_default().to_string()),
        barrier_protocol: barriers.map(|_| args.open.heap.barriers.unwrap_or_default().to_string()),
        barriers,
        batches: measured.heap.map(|(.., batches)| batches).filter(|batches| *batches > 0),
        pages_to_pcm: measured.pcm.map(|pcm| pcm.pages),
        tuples_to_pcm: measured.pcm.map(|pcm| pcm.tuples),
        tuple_hits: measured.pcm.map(|pcm| pcm.tuple_hits),
        pages_written_back: measured.pcm.map(|pcm| pcm.written_back),
        pcm_bytes: measured.pcm.map(|pcm| pcm.bytes),
        page_tier: measured.tier,
        random_writes: measured.random_writes,
        committed: run.committed,
        tps: (run.throughput() * 10.0).round() / 10.0,
        aborted: run.aborted,
        p50_us: quantile(0.50),
        p95_us: quantile(0.95),
        p99_us: quantile(0.99),
        max_us: format::micros(run.latencies.max()),
        log_bytes: measured.log_bytes,
        flushes: measured.flushes,
        syncs: measured.syncs,
        page_reads: measured.page_reads,
        page_writes: measured.page_writes,
        audit: measured.audit.to_string(),
        backup_end: settings.backup.map(|report| report.end.get()),
        log_end: settings.backup.map(|_| measured.log_end),
        scans: settings.scanned.map(|scanned| scanned.scans),
        rows_scanned: settings.scanned.map(|scanned| scanned.rows),
        snapshots_too_old: settings.scanned.map(|scanned| scanned.too_old),
    };
    serde_json::to_writer(&mut *out, &line).map_err(std::io::Error::from)?;
    Ok(writeln!(out)?)
}

/// Prints the result as a table.
pub(super) fn table(args: &BenchArgs, settings: &Settings, measured: &Measured<'_>, out: &mut dyn Write) -> Result<()> {
    let run = measured.run;
    let committed = run.committed;
    let quantile = |quantile| format::latency(run.latencies.quantile(quantile));
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    let mut row = |name: &str, value: String| {
        table.add_row([name.to_owned(), value]);
    };
    row(
        "workload",
        format!("{}, {} clients on {} threads, seed {}", settings.workload, args.clients, agents(args), settings.seed),
    );
    row("database", settings.scale.clone());
    row(
        "commit",
        format!("{}, log insertion {}, {}", args.commit, args.log_insert.unwrap_or_default(), args.isolation),
    );
    if args.logs > 1 {
        let waits = measured.waits_for_logs as f64 / measured.sync_records.max(1) as f64;
        row("logs", format!("{} by {}; {waits:.1} waits per sync record", args.logs, args.partition));
    }
    let device = match settings.scheme {
        "wal" | "no-pcm" => args.open.log.log_device,
        "pcm-basic" => "log and page tier in memory",
        "pcm-logging" => "PCM",
        _ => "heap",
    };
    let name = if settings.scheme == "wal" { "log device" } else { settings.scheme };
    row(name, domain(args, settings).map_or_else(|| device.to_owned(), |domain| format!("{device}, {domain}")));
    if let Some((changes, barriers, batches)) = measured.heap {
        let (per_commit, changes) = (barriers as f64 / committed.max(1) as f64, format::count(changes));
        let barriers = format::count(barriers);
        let protocol = args.open.heap.barriers.unwrap_or_default();
        let of_protocol = format!("{barriers} barriers ({protocol}; {per_commit:.1} for each commit)");
        let residence = args.open.heap.residence.unwrap_or_default();
        let in_batches = if batches > 0 { format!(" in {} batches", format::count(batches)) } else { String::new() };
        row("heap", format!("{changes} changes of pages{in_batches}, {of_protocol}, residence {residence}"));
    }
    if let Some(pcm) = measured.pcm {
        let (per_commit, barriers) = (pcm.barriers as f64 / committed.max(1) as f64, format::count(pcm.barriers));
        let protocol = args.open.heap.barriers.unwrap_or_default();
        let (pages, tuples) = (format::count(pcm.pages), format::count(pcm.tuples));
        row("written to PCM", format!("{pages} pages, {tuples} tuples; {} stored", format::bytes(pcm.bytes)));
        row("written back", format!("{} pages", format::count(pcm.written_back)));
        row("read as tuples", format!("{} records", format::count(pcm.tuple_hits)));
        row("barriers", format!("{barriers} ({protocol}; {per_commit:.1} for each commit)"));
    }
    if let Some(tier) = &measured.tier {
        let share = 100.0 * tier.hits as f64 / (tier.hits + tier.misses).max(1) as f64;
        row(
            "page tier",
            format!(
                "{} of {} pages; {share:.1} % of {} reads; {} pages written ({}), {} written back",
                format::count(tier.pages),
                format::count(tier.slots),
                format::count(tier.hits + tier.misses),
                format::count(tier.written),
                format::bytes(tier.bytes_written),
                format::count(tier.written_back)
            ),
        );
    } else {
        let (read, written) = (format::count(measured.page_reads), format::count(measured.page_writes));
        row("pages", format!("{read} read, {written} written"));
    }
    if let Some(writes) = measured.random_writes {
        let delay = args.disk_delay_ms.unwrap_or_default();
        row("random writes", format!("{}, each {} longer", format::count(writes), format::latency(delay)));
    }
    if measured.fences > 0 {
        let (fences, drains) = (format::count(measured.fences), format::count(measured.drains));
        row("passive group commit", format!("{fences} fences, {drains} drains of the processors for stragglers"));
    }
    row("commits", format!("{} in {:.2} s", format::count(committed), run.elapsed.as_secs_f64()));
    row("commits/s", format::count(run.throughput() as u64));
    if settings.kinds.len() > 1 {
        for (kind, tally) in settings.kinds.iter().zip(&run.tallies).filter(|(_, tally)| tally.done > 0) {
            let share = tally.done as f64 / committed as f64 * 100.0;
            let declined = match tally.declined {
                0 => String::new(),
                declined => {
                    format!(", {} of them without effect, as the specification foresees", format::count(declined))
                }
            };
            row("", format!("{kind}: {} ({share:.1} %){declined}", format::count(tally.done)));
        }
    }
    row(
        "aborts",
        format!(
            "{} ({:.2} % of attempts), {} deadlocks",
            format::count(run.aborted),
            run.abort_rate() * 100.0,
            format::count(measured.deadlocks)
        ),
    );
    row(
        "latency",
        format!(
            "p50 {}, p95 {}, p99 {}, max {}",
            quantile(0.50),
            quantile(0.95),
            quantile(0.99),
            format::latency(run.latencies.max())
        ),
    );
    row(
        "log",
        format!("{} bytes per commit, {} written", format::ratio(measured.log_bytes, committed), {
            format::bytes(measured.flushed_bytes)
        }),
    );
    row(
        "flushes",
        format!(
            "{}, {} commits per flush",
            format::count(measured.flushes),
            format::ratio(committed, measured.flushes)
        ),
    );
    row(
        "device syncs",
        format!("{}, {} commits per sync", format::count(measured.syncs), format::ratio(committed, measured.syncs)),
    );
    row("I/O", measured.backend.to_owned());
    if let Some(recovery) = &settings.recovery {
        row("recovery", recovery.clone());
    }
    if let Some(report) = &settings.backup {
        row("backup", describe(report));
    }
    if let Some(scanned) = &settings.scanned {
        row("scans", scanned.to_string());
    }
    row("audit", measured.audit.to_string());
    Ok(writeln!(out, "{table}")?)
}
