//! What `duramen-peers bench` prints.

use comfy_table::{CellAlignment, Table, presets};
use duramen_peers::engines::{Engine, Isolation};
use serde::Serialize;

use crate::args::BenchArgs;
use crate::measure::{Measurement, Outcome};

/// The measurements of one engine with one number of clients.
pub(crate) struct Cell {
    engine: Engine,
    clients: u32,
    runs: Vec<Measurement>,
    failures: Vec<String>,
}

/// Medians of a cell.
#[derive(Serialize)]
struct Medians<'c> {
    workload: &'c str,
    scale: &'c str,
    engine: &'static str,
    isolation: String,
    durability: &'static str,
    clients: u32,
    threads: u32,
    runs: usize,
    failed_runs: usize,
    tps: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    abort_rate: f64,
    /// By the count of `counted_by`.
    written_per_commit: f64,
    /// By the kernel's count.
    write_bytes_per_commit: Option<f64>,
    syncs: f64,
    commits_per_sync: Option<f64>,
    counted_by: &'c str,
    fsync: f64,
    fdatasync: f64,
    msync: f64,
    sync_file_range: f64,
    sync_writes: f64,
    waits_per_commit: f64,
    audit: &'c str,
}

/// The median; not a number if there are no values.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

impl Cell {
    pub(crate) fn new(engine: Engine, clients: u32) -> Self {
        Self { engine, clients, runs: Vec::new(), failures: Vec::new() }
    }

    pub(crate) fn add(&mut self, measured: Measurement) {
        self.runs.push(measured);
    }

    pub(crate) fn fail(&mut self, reason: String) {
        self.failures.push(reason);
    }

    /// How many there are, failed ones included.
    pub(crate) fn measurements(&self) -> usize {
        self.runs.len() + self.failures.len()
    }

    fn median(&self, of: impl Fn(&Measurement) -> f64) -> f64 {
        median(self.runs.iter().map(of))
    }

    fn medians(&self) -> Option<Medians<'_>> {
        let first = self.runs.first()?;
        let per_commit = |count: u64, m: &Measurement| count as f64 / m.committed.max(1) as f64;
        let synced = self.runs.iter().all(|m| m.syncs > 0);
        let wrote = self.runs.iter().all(|m| m.write_bytes.is_some());
        Some(Medians {
            workload: &first.workload,
            scale: &first.scale,
            engine: self.engine.name(),
            isolation: self.engine.info().isolation.to_string(),
            durability: if first.durability == "durable" { "durable" } else { "relaxed" },
            clients: self.clients,
            threads: first.threads,
            runs: self.runs.len(),
            failed_runs: self.failures.len(),
            tps: self.median(|m| m.tps),
            p50_us: self.median(|m| m.p50_us),
            p95_us: self.median(|m| m.p95_us),
            p99_us: self.median(|m| m.p99_us),
            abort_rate: self.median(|m| m.aborted as f64 / (m.aborted + m.committed).max(1) as f64),
            written_per_commit: self.median(|m| per_commit(m.written, m)),
            write_bytes_per_commit: wrote.then(|| self.median(|m| per_commit(m.write_bytes.unwrap_or(0), m))),
            syncs: self.median(|m| m.syncs as f64),
            commits_per_sync: synced.then(|| self.median(|m| m.committed as f64 / m.syncs as f64)),
            counted_by: &first.counted_by,
            fsync: self.median(|m| m.calls.fsync as f64),
            fdatasync: self.median(|m| m.calls.fdatasync as f64),
            msync: self.median(|m| m.calls.msync as f64),
            sync_file_range: self.median(|m| m.calls.sync_file_range as f64),
            sync_writes: self.median(|m| m.calls.sync_writes as f64),
            waits_per_commit: self.median(|m| per_commit(m.voluntary_switches, m)),
            audit: self.runs.iter().map(|m| m.audit.as_str()).find(|audit| *audit != "ok").unwrap_or("ok"),
        })
    }
}

/// One measurement on one line, for those who watch.
pub(crate) fn line(m: &Measurement) -> String {
    format!(
        "{}, {} clients, run {}: {} {} commits/s, p50 {}, p99 {}, {} syncs, audit {}",
        m.workload,
        m.clients,
        m.run,
        m.engine,
        count(m.tps),
        latency(m.p50_us),
        latency(m.p99_us),
        count(m.syncs as f64),
        m.audit
    )
}

/// Prints the medians as JSON.
pub(crate) fn json(cells: &[Cell], _: &str, _: &BenchArgs) -> Outcome<()> {
    for medians in cells.iter().filter_map(Cell::medians) {
        println!("{}", serde_json::to_string(&medians)?);
    }
    Ok(())
}

/// Prints the medians as tables.
pub(crate) fn tables(cells: &[Cell], workload: &str, args: &BenchArgs) {
    let medians: Vec<Medians<'_>> = cells.iter().filter_map(Cell::medians).collect();
    let scale = medians.first().map_or("", |m| m.scale);
    println!(
        "\n{workload}, {}: {scale}; {} s each, {}",
        args.durability.name(),
        args.seconds,
        if args.runs == 1 { "one run".to_owned() } else { format!("medians of {} runs", args.runs) }
    );
    throughput(cells, &medians, args);
    details(&medians);
    footnotes(cells, &medians);
}

fn table(header: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    table.set_header(header);
    table
}

fn align(table: &mut Table, from: usize) {
    table.column_iter_mut().skip(from).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
}

fn throughput(cells: &[Cell], medians: &[Medians<'_>], args: &BenchArgs) {
    let header = std::iter::once("commits/s with clients".to_owned()).chain(args.clients.iter().map(u32::to_string));
    let mut table = table(header.collect());
    let mut engines: Vec<Engine> = Vec::new();
    for cell in cells {
        if !engines.contains(&cell.engine) {
            engines.push(cell.engine);
        }
    }
    let tps = |engine: Engine, clients| {
        medians.iter().find(|m| m.engine == engine.name() && m.clients == clients).map(|m| m.tps)
    };
    for engine in &engines {
        let name = match engine.info().isolation {
            Isolation::Serializable => engine.name().to_owned(),
            Isolation::RowLocks | Isolation::Snapshot => format!("{} *", engine.name()),
        };
        let row = args.clients.iter().map(|clients| tps(*engine, *clients).map_or("failed".to_owned(), count));
        table.add_row(std::iter::once(name).chain(row));
    }
    let is_peer = |engine: &&Engine| engine.family() != Engine::Duramen.name();
    for ours in engines.iter().filter(|engine| !is_peer(engine)) {
        let row = args.clients.iter().map(|clients| {
            let peers = engines.iter().filter(is_peer).filter_map(|engine| tps(*engine, *clients));
            match (tps(*ours, *clients), peers.max_by(f64::total_cmp)) {
                (Some(ours), Some(best)) if best > 0.0 => format!("{:.2}x", ours / best),
                _ => String::new(),
            }
        });
        if engines.iter().any(|engine| is_peer(&engine)) {
            table.add_row(std::iter::once(format!("{} / best peer", ours.name())).chain(row));
        }
    }
    align(&mut table, 1);
    println!("{table}");
}

fn details(medians: &[Medians<'_>]) {
    let header = [
        "engine",
        "clients",
        "threads",
        "commits/s",
        "p50",
        "p95",
        "p99",
        "aborts",
        "written/commit",
        "write_bytes/commit",
        "syncs",
        "commits/sync",
        "waits/commit",
        "audit",
    ];
    let mut table = table(header.map(str::to_owned).to_vec());
    for m in medians {
        table.add_row([
            m.engine.to_owned(),
            m.clients.to_string(),
            m.threads.to_string(),
            count(m.tps),
            latency(m.p50_us),
            latency(m.p95_us),
            latency(m.p99_us),
            format!("{:.1} %", m.abort_rate * 100.0),
            count(m.written_per_commit.round()),
            m.write_bytes_per_commit.map_or("?".to_owned(), |bytes| count(bytes.round())),
            count(m.syncs),
            m.commits_per_sync.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.2}", m.waits_per_commit),
            m.audit.to_owned(),
        ]);
    }
    align(&mut table, 1);
    println!("{table}");
}

fn footnotes(cells: &[Cell], medians: &[Medians<'_>]) {
    let mut told: Vec<&str> = Vec::new();
    for cell in cells {
        let name = cell.engine.name();
        if told.contains(&name) {
            continue;
        }
        told.push(name);
        let info = cell.engine.info();
        let star = if info.isolation == Isolation::Serializable { "" } else { "* " };
        println!("{star}{name}: {}; {}{}", info.isolation, info.use_, calls(name, medians));
    }
    println!(
        "written: bytes in write calls; write_bytes: the kernel's count in /proc/self/io, of whole folios made dirty"
    );
    println!("waits: voluntary context switches of the whole process, per commit");
    for cell in cells {
        for failure in &cell.failures {
            println!("failed: {} with {} clients: {failure}", cell.engine.name(), cell.clients);
        }
    }
}

/// Which calls the engine's syncs were, over all numbers of clients.
fn calls(engine: &str, medians: &[Medians<'_>]) -> String {
    let own: Vec<&Medians<'_>> = medians.iter().filter(|m| m.engine == engine).collect();
    if own.iter().any(|m| m.counted_by != "libc") {
        return "; syncs and bytes written as the engine counts them".to_owned();
    }
    let sum = |of: fn(&Medians<'_>) -> f64| own.iter().map(|m| of(m)).sum::<f64>();
    let kinds = [
        ("fsync", sum(|m| m.fsync)),
        ("fdatasync", sum(|m| m.fdatasync)),
        ("msync", sum(|m| m.msync)),
        ("synchronous writes", sum(|m| m.sync_writes)),
        ("sync_file_range (not a sync)", sum(|m| m.sync_file_range)),
    ];
    let told: Vec<String> = kinds
        .iter()
        .filter(|(_, calls)| *calls > 0.0)
        .map(|(name, calls)| format!("{} {name}", count(*calls)))
        .collect();
    if told.is_empty() { "; no syncs".to_owned() } else { format!("; {}", told.join(", ")) }
}

/// 12345.6 as `12,346`; small numbers with a digit behind the point.
fn count(number: f64) -> String {
    if number < 10.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn latency(micros: f64) -> String {
    match micros {
        m if m < 1_000.0 => format!("{m:.0} us"),
        m if m < 100_000.0 => format!("{:.2} ms", m / 1e3),
        m => format!("{:.0} ms", m / 1e3),
    }
}
