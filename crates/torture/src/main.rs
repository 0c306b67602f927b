//! `torture`: the long versions of the suites, with progress and a table at the end.

#[cfg(machine)]
mod sim;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use comfy_table::{Table, presets};

use duramen::Isolation;
use duramen_io::Fault;
use duramen_torture::circumstances::Circumstances;
use duramen_torture::corruption::{self, Damage, Specimen};
use duramen_torture::crash::{self, CrashWorkload, Image, Only, Thoroughness};
use duramen_torture::faults::{self, Case, FAULTS};
use duramen_torture::harness::{Budget, Coverage, Tally};
use duramen_torture::hunt::hunt;
use duramen_torture::isolation::anomalies::{self, Setting};
use duramen_torture::isolation::lists::{Shape, try_history};
use duramen_torture::restore;
use duramen_torture::rng::fresh_seed;
use duramen_torture::variant::Variant;
use duramen_torture::workloads;
use duramen_torture::world::LogEnd;
use duramen_types::planted::Bug;

/// Simulated threads get their memory from the simulated machine's heap, everyone else from the system.
#[cfg(machine)]
#[global_allocator]
static ALLOCATOR: duramen_machine::Allocator = duramen_machine::Allocator;

/// Crash, fault, corruption and isolation suites for Duramen. Exits with 1 if anything failed.
#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    suite: Suite,
    /// The seed of everything random; a fresh one if left out.
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Time for each line of the table, in seconds; without limit under --all.
    #[arg(long, global = true)]
    seconds: Option<u64>,
    /// Everything instead of a sample.
    #[arg(long, global = true)]
    all: bool,
    /// One after another with every log insertion design in every durable commit mode. (Without this, the seed decides.)
    #[arg(long, global = true)]
    matrix: bool,
}

#[derive(Clone, Subcommand)]
enum Suite {
    /// The power goes off.
    Crash {
        /// One workload instead of all.
        #[arg(long, value_parser = workload)]
        workload: Option<&'static dyn CrashWorkload>,
        /// Where the end of the log is: file, or persistent memory with the domain durable-cache or volatile-cache.
        #[arg(long, default_value = "file")]
        log: LogEnd,
        /// One disk operation instead of many; with persistent memory, numbered in turn through the memory of each log and the disk.
        #[arg(long, requires = "workload")]
        op: Option<u64>,
        /// One image: nothing, everything, subset:BITS, random:SEED.
        #[arg(long, requires = "op")]
        image: Option<Image>,
        /// A crash at this operation of the recovery from the image.
        #[arg(long, requires = "image", requires = "recovery_image")]
        recovery_op: Option<u64>,
        /// The image of that crash.
        #[arg(long, requires = "recovery_op")]
        recovery_image: Option<Image>,
    },
    /// Disk operations fail, data is dropped, disks and logs fill up.
    IoErrors {
        /// One workload instead of all.
        #[arg(long, value_parser = workload)]
        workload: Option<&'static dyn CrashWorkload>,
        /// One disk operation instead of many.
        #[arg(long, requires = "workload", requires = "fault")]
        op: Option<u64>,
        /// The fault: eio, enospc, failed-sync, short-read, short-write.
        #[arg(long, requires = "op", value_parser = fault)]
        fault: Option<Fault>,
        /// The fault stays.
        #[arg(long, requires = "op")]
        persistent: bool,
        /// After the fault, the process restarts, works on, and the power goes off.
        #[arg(long, requires = "op")]
        restart: bool,
        /// One full disk of this many bytes.
        #[arg(long, requires = "workload", conflicts_with = "op")]
        capacity: Option<u64>,
        /// A log limited to so many bytes.
        #[arg(long, requires = "workload", conflicts_with_all = ["op", "capacity"])]
        log_limit: Option<u64>,
    },
    /// Bits flip; files are lost, cut, mixed up.
    BitFlips {
        /// The log of a crashed database only.
        #[arg(long)]
        crashed: bool,
        /// One damage: flip:FILE:BYTE:BIT, remove:FILE, cut:FILE:BYTES, swap:FILE:PAGE:PAGE.
        #[arg(long)]
        damage: Option<Damage>,
    },
    /// Deliberate defects of durability are noticed.
    Planted {
        /// One bug instead of all.
        #[arg(long, value_parser = bug)]
        bug: Option<Bug>,
    },
    /// The engine on a simulated machine, with any interleaving of its threads, crashes and faults: seed after seed.
    /// In the machine build only: `cargo sim`.
    #[cfg(machine)]
    Sim(sim::Sim),
    /// Archived databases are restored from backups, after crashes.
    Restore,
    /// Transactions look as if they ran one after another.
    Isolation {
        /// One anomaly, `random` or `lists`.
        #[arg(long)]
        only: Option<String>,
    },
}

fn workload(name: &str) -> Result<&'static dyn CrashWorkload, String> {
    workloads::named(name).ok_or_else(|| format!("`{name}` is none of {}", workloads::names().join(", ")))
}

fn fault(name: &str) -> Result<Fault, String> {
    let found = FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault);
    found.ok_or_else(|| {
        format!("`{name}` is none of {}", FAULTS.iter().map(|fault| fault.0).collect::<Vec<_>>().join(", "))
    })
}

fn bug(name: &str) -> Result<Bug, String> {
    let known = || Bug::ALL.iter().map(|bug| format!("{bug:?}"));
    let found = Bug::ALL.iter().copied().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("`{name}` is none of {}", known().collect::<Vec<_>>().join(", ")))
}

/// The settings that all suites share.
struct Long {
    seed: u64,
    seconds: Option<u64>,
    all: bool,
}

/// Failures after which a line of the table ends.
const MOST_FAILURES: usize = 10;

impl Long {
    /// Time for one line of the table that has `standard` seconds unless it is told otherwise.
    fn time(&self, standard: u64) -> Duration {
        let standard = if self.all { u64::from(u32::MAX) } else { standard };
        Duration::from_secs(self.seconds.unwrap_or(standard))
    }

    fn budget(&self) -> Budget {
        Budget::lasting(self.time(30)).with_failures(MOST_FAILURES)
    }

    fn coverage(&self, sample: usize) -> Coverage {
        if self.all { Coverage::All } else { Coverage::Sample(sample) }
    }
}

/// The lines of the final table.
struct Lines {
    rows: Vec<(String, Tally, Duration)>,
}

impl Lines {
    fn add(&mut self, name: &str, run: impl FnOnce(&mut dyn FnMut(&Tally, usize)) -> Tally) {
        let start = Instant::now();
        let shows = std::io::stderr().is_terminal();
        let mut shown = Instant::now();
        let tally = run(&mut |tally, total| {
            if shows && shown.elapsed() > Duration::from_millis(200) {
                shown = Instant::now();
                let failures = tally.failures.len();
                eprint!(
                    "\r\x1b[K{name}: {} of {total} points, {} checks, {failures} failures",
                    tally.points, tally.checks
                );
                let _ = std::io::stderr().flush();
            }
        });
        if shows {
            eprint!("\r\x1b[K");
        }
        let time = start.elapsed();
        eprintln!("{name}: {tally}, {} failures, {:.1} s", tally.failures.len(), time.as_secs_f64());
        tally.failures.iter().for_each(|failure| eprintln!("FAILED {failure}"));
        self.rows.push((name.to_owned(), tally, time));
    }

    fn finish(self, what: &str) -> bool {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header([what, "points", "checks", "failures", "seconds"]);
        let mut sum = Tally::default();
        for (name, tally, time) in self.rows {
            table.add_row(row(&name, &tally, &format!("{:.1}", time.as_secs_f64())));
            sum.add(tally);
        }
        table.add_row(row("all", &sum, ""));
        println!("{table}");
        sum.failures.is_empty()
    }
}

fn row(name: &str, tally: &Tally, time: &str) -> [String; 5] {
    let counts = [tally.points, tally.checks, tally.failures.len() as u64].map(|count| count.to_string());
    let [points, checks, failures] = counts;
    [name.to_owned(), points, checks, failures, time.to_owned()]
}

fn single(result: Result<u64, String>) -> Tally {
    let mut tally = Tally { points: 1, ..Tally::default() };
    match result {
        Ok(checks) => tally.checks = checks,
        Err(failure) => tally.failures.push(failure),
    }
    tally
}

fn main() -> ExitCode {
    let Command { suite, seed, seconds, all, matrix } = Command::parse();
    let seed = seed.unwrap_or_else(fresh_seed);
    if !matrix {
        let good = run(&suite, &Long { seed, seconds, all });
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut failed = Vec::new();
    for variant in Variant::all() {
        println!("{variant}");
        if !run(&suite, &Long { seed: variant.seed(seed), seconds, all }) {
            failed.push(variant.to_string());
        }
    }
    match failed.is_empty() {
        true => println!("all {} pairs passed", Variant::all().len()),
        false => println!("failed: {}", failed.join("; ")),
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a suite; returns whether all went well.
fn run(suite: &Suite, long: &Long) -> bool {
    eprintln!("seed {}", long.seed);
    let mut lines = Lines { rows: Vec::new() };
    let what = match suite.clone() {
        Suite::Crash { workload, log, op, image, recovery_op, recovery_image } => {
            let only = Only { image, recovery: recovery_op.zip(recovery_image) };
            crashes(long, (workload, log), op, only, &mut lines);
            "workload"
        }
        Suite::IoErrors { workload, op, fault, persistent, restart, capacity, log_limit } => {
            let sick = if restart { Sick::FaultAndRestart } else { Sick::Fault };
            let case = op.zip(fault).map(|(op, fault)| sick(Case { fault, op, persistent }));
            let sick = case.or(capacity.map(Sick::Full)).or(log_limit.map(Sick::FullLog));
            io_errors(long, workload, sick, &mut lines);
            "workload"
        }
        Suite::BitFlips { crashed, damage } => {
            bit_flips(long, crashed, damage, &mut lines);
            "damage"
        }
        Suite::Restore => {
            restores(long, &mut lines);
            "histories"
        }
        Suite::Planted { bug } => return planted(long, bug),
        #[cfg(machine)]
        Suite::Sim(sim) => return sim::run(long, &sim),
        Suite::Isolation { only } => {
            isolation(long, only.as_deref(), &mut lines);
            "isolation"
        }
    };
    if lines.rows.is_empty() {
        eprintln!("nothing of this name");
        return false;
    }
    lines.finish(what)
}

fn chosen(workload: Option<&'static dyn CrashWorkload>) -> Vec<&'static dyn CrashWorkload> {
    workload.map_or_else(workloads::all, |workload| vec![workload])
}

fn crashes(
    long: &Long,
    (workload, log): (Option<&'static dyn CrashWorkload>, LogEnd),
    op: Option<u64>,
    only: Only,
    lines: &mut Lines,
) {
    let sample = Thoroughness {
        points: Coverage::Sample(1000),
        random_images: 4,
        recovery_points: Coverage::Sample(6),
        ..Thoroughness::SAMPLE
    };
    let thoroughness = Thoroughness { log, ..if long.all { Thoroughness::ALL } else { sample } };
    for workload in chosen(workload) {
        lines.add(workload.name(), |progress| match op {
            Some(op) => single(crash::try_point(workload, long.seed, op, thoroughness, only)),
            None => crash::sweep(workload, long.seed, thoroughness, &long.budget(), progress),
        });
    }
}

/// One thing to go wrong instead of many.
#[derive(Clone, Copy)]
enum Sick {
    Fault(Case),
    FaultAndRestart(Case),
    /// A disk of so many bytes.
    Full(u64),
    /// A log of so many bytes.
    FullLog(u64),
}

fn io_errors(long: &Long, workload: Option<&'static dyn CrashWorkload>, sick: Option<Sick>, lines: &mut Lines) {
    for workload in chosen(workload) {
        let seed = long.seed;
        lines.add(workload.name(), |progress| match sick {
            Some(Sick::Fault(case)) => single(faults::try_fault(workload, seed, case)),
            Some(Sick::FaultAndRestart(case)) => single(faults::try_restart_after_dropped_data(workload, seed, case)),
            Some(Sick::Full(capacity)) => {
                let mut tally = single(faults::try_full_disk(workload, seed, capacity));
                tally.add(single(faults::try_room_made(workload, seed, capacity)));
                tally
            }
            Some(Sick::FullLog(limit)) => single(faults::try_full_log(workload, seed, limit).map(|(checks, _)| checks)),
            None => faults::sweep(workload, seed, long.coverage(2000), &long.budget(), progress),
        });
        if sick.is_none() {
            lines.add(&format!("{}, dropped data", workload.name()), |progress| {
                faults::sweep_restarts(workload, seed, long.coverage(500), &long.budget(), progress)
            });
            lines.add(&format!("{}, full logs", workload.name()), |progress| {
                faults::sweep_full_logs(workload, seed, long.coverage(100), &long.budget(), progress)
            });
        }
    }
}

fn bit_flips(long: &Long, crashed: bool, damage: Option<Damage>, lines: &mut Lines) {
    let kinds: &[bool] = if crashed { &[false] } else { &[true, false] };
    for was_closed in kinds.iter().copied().take(if damage.is_some() { 1 } else { 2 }) {
        let name = if was_closed { "closed database" } else { "log of a crashed database" };
        lines.add(name, |progress| match &damage {
            Some(damage) => single(Specimen::make(long.seed, was_closed).and_then(|made| made.try_damage(damage))),
            None => corruption::sweep(long.seed, was_closed, long.coverage(5000), &long.budget(), progress),
        });
    }
}

fn isolation(long: &Long, only: Option<&str>, lines: &mut Lines) {
    let seed = long.seed;
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    for anomaly in anomalies::all().iter().filter(|anomaly| wanted(anomaly.name)) {
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            if isolation == Isolation::Serializable || anomaly.under_read_committed {
                let setting = Setting { isolation, coverage: long.coverage(60) };
                lines.add(&format!("{}, {isolation}", anomaly.name), |_| {
                    anomalies::try_anomaly(anomaly, setting, seed, &long.budget())
                });
            }
        }
    }
    if wanted("random") {
        let sets = if long.all { 5000 } else { 400 };
        lines.add("random", |_| anomalies::try_random(sets, Isolation::Serializable, seed, &long.budget()));
    }
    if wanted("lists") {
        lines.add("lists", |progress| {
            let (budget, histories) = (long.budget(), if long.all { 1000 } else { 100 });
            let mut tally = Tally::default();
            for seed in (seed..).take(histories) {
                if budget.is_spent(&tally) {
                    break;
                }
                tally.add(single(try_history(Shape::of(seed), seed, Circumstances::default())));
                progress(&tally, histories);
            }
            tally
        });
    }
}

fn restores(long: &Long, lines: &mut Lines) {
    lines.add("restore", |progress| {
        let (budget, histories) = (long.budget(), if long.all { 10_000 } else { 500 });
        let mut tally = Tally::default();
        for seed in (long.seed..).take(histories) {
            if budget.is_spent(&tally) {
                break;
            }
            tally.add(single(restore::try_history(seed)));
            progress(&tally, histories);
        }
        tally
    });
}

fn planted(long: &Long, bug: Option<Bug>) -> bool {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["bug", "caught by", "points", "checks until then", "seconds"]);
    let mut good = true;
    for bug in bug.map_or_else(|| Bug::DURABILITY.to_vec(), |bug| vec![bug]) {
        let hunted = hunt(bug, long.seed, long.time(120));
        let by = match &hunted.caught {
            Some((suite, failure)) => {
                eprintln!("{bug:?}: {suite}: {failure}");
                suite.to_string()
            }
            None => "NOT CAUGHT".to_owned(),
        };
        good &= hunted.caught.is_some() && hunted.unrelated.is_empty();
        hunted.unrelated.iter().for_each(|failure| eprintln!("FAILED without {bug:?} too: {failure}"));
        let (points, checks) = (hunted.points.to_string(), hunted.checks.to_string());
        table.add_row([format!("{bug:?}"), by, points, checks, format!("{:.1}", hunted.time.as_secs_f64())]);
    }
    println!("{table}");
    good
}
