//! `torture`: the long versions of the suites, with progress and a table at the end.

#[cfg(duramen_machine)]
mod sim;

mod table;

use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use comfy_table::{Table, presets};

use duramen_io::Fault;
use duramen_test_support::fresh_seed;
use duramen_torture::corruption::{self, Damage, Specimen};
use duramen_torture::crash::{CrashWorkload, Image, Only};
use duramen_torture::faults::{self, Case, FAULTS};
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::hunt::{hunt, places};
use duramen_torture::matrix::Combination;
use duramen_torture::misplaced::{self, Album, Misplaced};
use duramen_torture::parts::{self, Extent, Part, Situation};
use duramen_torture::restore;
use duramen_torture::workloads;
use duramen_torture::world::LogEnd;
use duramen_types::planted::{self, Bug};
use table::Lines;

/// Simulated threads get their memory from the simulated machine's heap, all other threads from the
/// system.
#[cfg(duramen_machine)]
#[global_allocator]
static ALLOCATOR: duramen_machine::Allocator = duramen_machine::Allocator;

/// Natively, suites can tell how much memory damage makes the engine take.
#[cfg(not(duramen_machine))]
#[global_allocator]
static ALLOCATOR: duramen_torture::memory::Counting = duramen_torture::memory::Counting;

/// Crash, fault, corruption and isolation suites for Duramen. The exit code is 1 if a check failed.
#[derive(Parser)]
struct Command {
    #[command(subcommand)]
    suite: Suite,
    /// Seed of all random choices; a fresh one by default.
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Time for each line of the table, in seconds; unlimited with --all.
    #[arg(long, global = true)]
    seconds: Option<u64>,
    /// Run all cases instead of a sample.
    #[arg(long, global = true)]
    all: bool,
    /// Run every combination of log layout, log device, persistence domain, insertion design and
    /// durable commit mode, with a line of the table for each. Without this option, the seed
    /// chooses all of them except device and domain.
    #[arg(long, global = true)]
    matrix: bool,
    /// Print the table as one JSON object on one line of standard output.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Clone, Subcommand)]
enum Suite {
    /// Crash suite: the power fails.
    Crash {
        /// Run one workload instead of all.
        #[arg(long, value_parser = workload)]
        workload: Option<&'static dyn CrashWorkload>,
        #[command(flatten)]
        place: Place,
        /// Crash at one disk operation instead of many. With persistent memory, the operations of
        /// each log's memory and of the disk are numbered in turn.
        #[arg(long, requires = "workload")]
        op: Option<u64>,
        /// Test one crash image: nothing, everything, subset:BITS, random:SEED.
        #[arg(long, requires = "op")]
        image: Option<Image>,
        /// Crash again at this operation of the recovery from the image.
        #[arg(long, requires = "image", requires = "recovery_image")]
        recovery_op: Option<u64>,
        /// The image of the second crash.
        #[arg(long, requires = "recovery_op")]
        recovery_image: Option<Image>,
    },
    /// Fault suite: disk operations fail, data is dropped, disks and logs fill up.
    IoErrors {
        /// Run one workload instead of all.
        #[arg(long, value_parser = workload)]
        workload: Option<&'static dyn CrashWorkload>,
        /// Fail one disk operation instead of many.
        #[arg(long, requires = "workload", requires = "fault")]
        op: Option<u64>,
        /// The fault: eio, enospc, failed-sync, short-read, short-write.
        #[arg(long, requires = "op", value_parser = fault)]
        fault: Option<Fault>,
        /// The fault persists: all later operations to which it applies fail, too.
        #[arg(long, requires = "op")]
        persistent: bool,
        /// After the fault, restart the process, continue the work, and cut the power.
        #[arg(long, requires = "op")]
        restart: bool,
        /// Test one disk that is full at this many bytes.
        #[arg(long, requires = "workload", conflicts_with = "op")]
        capacity: Option<u64>,
        /// Test one log that is limited to this many bytes.
        #[arg(long, requires = "workload", conflicts_with_all = ["op", "capacity"])]
        log_limit: Option<u64>,
    },
    /// Corruption suite: bits flip; files are removed, truncated and exchanged.
    BitFlips {
        /// Damage only the log of a crashed database.
        #[arg(long)]
        crashed: bool,
        /// Test one damage: flip:FILE:BYTE:BIT, remove:FILE, cut:FILE:BYTES, swap:FILE:PAGE:PAGE.
        #[arg(long)]
        damage: Option<Damage>,
    },
    /// Misplacement suite: files, rings and pages are outdated, come from another database, or are
    /// exchanged with each other.
    Misplaced {
        /// Test one misplacement: stale:FILES:MOMENT, foreign:FILES, exchanged:FILE:FILE,
        /// stale-page:FILE:PAGE:MOMENT, foreign-page:FILE:PAGE, exchanged-pages:FILE:PAGE:PAGE,
        /// stale-ring:LOG:MOMENT, foreign-ring:LOG, exchanged-rings:LOG:LOG.
        #[arg(long)]
        what: Option<Misplaced>,
    },
    /// The suites must notice planted durability bugs. Needs the build with planted bugs: `cargo
    /// planted`.
    Planted {
        /// Plant one bug instead of all.
        #[arg(long, value_parser = bug)]
        bug: Option<Bug>,
    },
    /// Simulation: the engine runs on a simulated machine with random thread schedules, crashes and
    /// faults, seed after seed. Needs the machine build: `cargo sim`.
    #[cfg(duramen_machine)]
    Sim(sim::Sim),
    /// Restore suite: archived databases are restored from backups after crashes.
    Restore,
    /// Isolation suite: transactions must behave as if they ran one after another.
    Isolation {
        /// Test one anomaly, or only `random` or `lists`.
        #[arg(long)]
        only: Option<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// Of a suite that can be run on several devices.
#[derive(Clone, Copy, Args)]
struct Place {
    /// Device for the end of the log: file, or persistent memory with the domain durable-cache or
    /// volatile-cache; or, for in-place updates without a log, a heap: heap-durable-cache or
    /// heap-volatile-cache, with `paper-` behind `heap-` for the barriers of the paper, and with
    /// `direct-` before the domain for pages that are read in the heap; or, for batches, the first
    /// four of them with `batches` for `heap`; or, for PCMLogging, these four with `pcm` or, where
    /// pages go on to the data file, `pcm-small`. The default is file, and all of them with
    /// --matrix.
    #[arg(long)]
    log: Option<LogEnd>,
}

fn workload(name: &str) -> Result<&'static dyn CrashWorkload, String> {
    workloads::named(name).ok_or_else(|| format!("`{name}` is not one of {}", workloads::names().join(", ")))
}

fn fault(name: &str) -> Result<Fault, String> {
    let found = FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault);
    found.ok_or_else(|| {
        format!("`{name}` is not one of {}", FAULTS.iter().map(|fault| fault.0).collect::<Vec<_>>().join(", "))
    })
}

fn bug(name: &str) -> Result<Bug, String> {
    let known = || Bug::ALL.iter().map(|bug| format!("{bug:?}"));
    let found = Bug::ALL.iter().copied().find(|bug| format!("{bug:?}").eq_ignore_ascii_case(name));
    found.ok_or_else(|| format!("`{name}` is not one of {}", known().collect::<Vec<_>>().join(", ")))
}

/// The settings that all suites share.
struct Long {
    seed: u64,
    seconds: Option<u64>,
    all: bool,
    json: bool,
}

/// Failures after which a line of the table ends.
const MOST_FAILURES: usize = 10;

impl Long {
    /// Returns the time for one line of the table that has `standard` seconds unless it is told
    /// otherwise.
    fn time(&self, standard: u64) -> Duration {
        let standard = if self.all { u64::from(u32::MAX) } else { standard };
        Duration::from_secs(self.seconds.unwrap_or(standard))
    }

    fn budget(&self) -> Budget {
        Budget::lasting(self.time(30)).with_failures(MOST_FAILURES)
    }
}

fn main() -> ExitCode {
    let Command { suite, seed, seconds, all, matrix, json } = Command::parse();
    let long = Long { seed: seed.unwrap_or_else(fresh_seed), seconds, all, json };
    eprintln!("seed {}", long.seed);
    let good = match suite.parts() {
        Some(parts) if matrix => in_all_combinations(&suite, &parts, &long),
        Some(parts) => in_one(&suite, &parts, &long),
        None if matrix || json => Command::command()
            .error(ErrorKind::ArgumentConflict, "this suite does not support --matrix and --json")
            .exit(),
        None => suite.run_whole(&long),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs a suite with the one seed, a line for each part; returns whether all went well.
fn in_one(suite: &Suite, parts: &[Part], long: &Long) -> bool {
    if parts.is_empty() {
        eprintln!("the suite has no part with this name");
        return false;
    }
    let log = suite.place().and_then(|place| place.log).unwrap_or_default();
    let situation =
        Situation { seed: long.seed, step: 1, log, extent: if long.all { Extent::All } else { Extent::Sample } };
    let mut lines = Lines::default();
    for part in parts {
        lines.add(&part.name, |progress| part.run(&situation, &long.budget(), progress));
    }
    lines.finish(suite.name(), long)
}

/// Runs a suite in one combination after another, a line for each; returns whether all went well.
fn in_all_combinations(suite: &Suite, parts: &[Part], long: &Long) -> bool {
    let is_wanted = |combination: &Combination| match suite.place() {
        Some(Place { log }) => log.is_none_or(|log| combination.log == log),
        None => combination.log == LogEnd::Files,
    };
    let extent = if long.all { Extent::Points } else { Extent::Brief };
    let mut lines = Lines::default();
    for (number, combination) in Combination::all().into_iter().filter(is_wanted).enumerate() {
        let seed = long.seed.wrapping_add(number as u64);
        lines.add(&combination.to_string(), |progress| combination.run(parts, seed, extent, &long.budget(), progress));
    }
    lines.finish(suite.name(), long)
}

impl Suite {
    /// Returns what its table is of.
    fn name(&self) -> &'static str {
        match self {
            Self::Crash { .. } => "crash",
            Self::IoErrors { .. } => "io-errors",
            Self::BitFlips { .. } => "bit-flips",
            Self::Misplaced { .. } => "misplaced",
            Self::Planted { .. } => "planted",
            #[cfg(duramen_machine)]
            Self::Sim(_) => "sim",
            Self::Restore => "restore",
            Self::Isolation { .. } => "isolation",
        }
    }

    /// Returns where the end of the log is to be, in a suite that can be run on several devices.
    fn place(&self) -> Option<Place> {
        match self {
            Self::Crash { place, .. } | Self::Isolation { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// Returns its parts, if it has any.
    fn parts(&self) -> Option<Vec<Part>> {
        Some(match self.clone() {
            Self::Crash { workload, place: _, op, image, recovery_op, recovery_image } => {
                let only = Only { image, recovery: recovery_op.zip(recovery_image) };
                parts::crashes(&chosen(workload), op, only)
            }
            Self::IoErrors { workload, op, fault, persistent, restart, capacity, log_limit } => {
                let sick = if restart { Sick::FaultAndRestart } else { Sick::Fault };
                let case = op.zip(fault).map(|(op, fault)| sick(Case { fault, op, persistent }));
                let sick = case.or(capacity.map(Sick::Full)).or(log_limit.map(Sick::FullLog));
                chosen(workload).into_iter().flat_map(|workload| io_errors(workload, sick)).collect()
            }
            Self::BitFlips { crashed, damage } => bit_flips(crashed, damage),
            Self::Misplaced { what } => vec![Part::new("misplaced", move |situation, budget, progress| match &what {
                Some(what) => Tally::of(Album::make(situation.seed).and_then(|album| album.try_one(what))),
                None => {
                    let most = if situation.extent.is_all() { usize::MAX } else { 5000 };
                    misplaced::sweep(situation.seed, 25, most, budget, progress)
                }
            })],
            Self::Restore => vec![Part::new("restore", |situation, budget, progress| {
                let histories = if situation.extent.is_all() { 10_000 } else { 500 };
                situation.each_seed(histories, budget, progress, restore::try_history)
            })],
            Self::Isolation { only, place: _ } => parts::isolation(only.as_deref()),
            _ => return None,
        })
    }

    /// Runs a suite without parts; returns whether all went well.
    fn run_whole(&self, long: &Long) -> bool {
        match self {
            Self::Planted { bug } => planted(long, *bug),
            #[cfg(duramen_machine)]
            Self::Sim(sim) => sim::run(long, sim),
            _ => unreachable!("all others have parts"),
        }
    }
}

fn chosen(workload: Option<&'static dyn CrashWorkload>) -> Vec<&'static dyn CrashWorkload> {
    workload.map_or_else(workloads::all, |workload| vec![workload])
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

fn io_errors(workload: &'static dyn CrashWorkload, sick: Option<Sick>) -> Vec<Part> {
    let name = workload.name();
    let Some(sick) = sick else {
        return vec![
            Part::new(name, move |situation, budget, progress| {
                faults::sweep(workload, situation.seed, situation.coverage(2000), budget, progress)
            }),
            Part::new(format!("{name}, dropped data"), move |situation, budget, progress| {
                faults::sweep_restarts(workload, situation.seed, situation.coverage(500), budget, progress)
            }),
            Part::new(format!("{name}, full logs"), move |situation, budget, progress| {
                faults::sweep_full_logs(workload, situation.seed, situation.coverage(100), budget, progress)
            }),
        ];
    };
    vec![Part::new(name, move |&Situation { seed, .. }, _, _| match sick {
        Sick::Fault(case) => Tally::of(faults::try_fault(workload, seed, case)),
        Sick::FaultAndRestart(case) => Tally::of(faults::try_restart_after_dropped_data(workload, seed, case)),
        Sick::Full(capacity) => {
            let mut tally = Tally::of(faults::try_full_disk(workload, seed, capacity));
            tally.add(Tally::of(faults::try_room_made(workload, seed, capacity)));
            tally
        }
        Sick::FullLog(limit) => Tally::of(faults::try_full_log(workload, seed, limit).map(|(checks, _)| checks)),
    })]
}

fn bit_flips(crashed: bool, damage: Option<Damage>) -> Vec<Part> {
    let kinds: &[bool] = if crashed { &[false] } else { &[true, false] };
    let kinds = kinds.iter().copied().take(if damage.is_some() { 1 } else { 2 });
    let part = |was_closed| {
        let name = if was_closed { "closed database" } else { "log of a crashed database" };
        let damage = damage.clone();
        Part::new(name, move |situation, budget, progress| match &damage {
            Some(damage) => {
                Tally::of(Specimen::make(situation.seed, was_closed).and_then(|made| made.try_damage(damage)))
            }
            None => corruption::sweep(situation.seed, was_closed, situation.coverage(5000), budget, progress),
        })
    };
    kinds.map(part).collect()
}

/// Ends the program if it has no planted bugs, and says which command runs one that has.
fn needs_planted_bugs(command: &str) {
    if !planted::BUILT_IN {
        let message = format!("this build does not contain the planted bugs; run `{command}`");
        Command::command().error(ErrorKind::InvalidSubcommand, message).exit();
    }
}

fn planted(long: &Long, bug: Option<Bug>) -> bool {
    needs_planted_bugs("cargo planted");
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["bug", "log", "caught by", "points", "checks until then", "seconds"]);
    let mut good = true;
    let all = || [Bug::DURABILITY, Bug::MEMORY, Bug::FILES, Bug::TIER, Bug::PCM].concat();
    let bugs = bug.map_or_else(all, |bug| vec![bug]);
    for (bug, log) in bugs.into_iter().flat_map(|bug| places(bug).iter().map(move |log| (bug, *log))) {
        let hunted = hunt(bug, log, long.seed, long.time(120));
        let by = match &hunted.caught {
            Some((suite, failure)) => {
                eprintln!("{bug:?}, log: {log}: {suite}: {failure}");
                suite.to_string()
            }
            None => "NOT CAUGHT".to_owned(),
        };
        good &= hunted.caught.is_some() && hunted.unrelated.is_empty();
        hunted.unrelated.iter().for_each(|failure| eprintln!("FAILED without {bug:?} too: {failure}"));
        let (points, checks) = (hunted.points.to_string(), hunted.checks.to_string());
        let seconds = format!("{:.1}", hunted.time.as_secs_f64());
        table.add_row([format!("{bug:?}"), log.to_string(), by, points, checks, seconds]);
    }
    println!("{table}");
    good
}
