//! What a simulated run does: drawn from a seed, shrunk when it fails, written and read as text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::Isolation;
use duramen_machine::{Description, Outcome, Schedule, Time, Tracing};

use crate::circumstances::{Circumstances, Surrounded};
use crate::corruption::Specimen;
use crate::crash::{CrashWorkload, Only, Thoroughness, count_operations, try_point};
use crate::faults::{Case, FAULTS, try_fault, try_full_disk};
use crate::harness::{Coverage, install_hook};
use crate::isolation::history::ListKey;
use crate::isolation::lists::{Shape, try_history};
use crate::log::{Load, try_load};
use crate::workloads;
use crate::world::LogEnd;
use duramen_test_support::Rng;

/// Virtual time after which a run counts as hanging. Openings of several logs on a slow device take
/// seconds, one after another.
const LIMIT: Time = Time::from_nanos(30_000_000_000);
/// Operations on shared memory after which a run counts as hanging.
const MOST_OPERATIONS: u64 = 20_000_000;

/// What happens in a run.
#[derive(Clone, Copy)]
pub enum Scenario {
    /// Threads append to lists and scan them, the power goes off, recovery, more threads.
    Lists(Shape),
    /// Threads insert into a log and harden, the power goes off, recovery, more threads.
    Log(Load),
    /// A script; the power goes off at this part of its disk operations, in millionths, and again
    /// later and in recovery.
    Crash(&'static dyn CrashWorkload, u32),
    /// A script; at this part of its disk operations, in millionths, the disk fails.
    Fault(&'static dyn CrashWorkload, u32, usize, bool),
    /// So many bits flip, one at a time, in a database that was closed or not.
    Damage(bool, u32),
    /// A script on a disk of so many bytes.
    FullDisk(&'static dyn CrashWorkload, u64),
}

/// Everything a run depends on.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Where the random choices of clients and disk begin.
    pub seed: u64,
    /// What happens.
    pub scenario: Scenario,
    /// How threads are scheduled.
    pub schedule: Schedule,
    /// Its circumstances.
    pub circumstances: Circumstances,
}

/// How a run went.
#[derive(Clone, Debug)]
pub struct Simulated {
    /// Databases and histories compared, or what was wrong.
    pub result: Result<u64, String>,
    /// Operations on shared memory.
    pub operations: u64,
    /// Of the path that the run took.
    pub digest: u64,
    /// How often each rare branch was taken; those with higher numbers never.
    pub probes: Vec<u64>,
    /// The trace, if one was wanted.
    pub trace: Vec<String>,
}

impl Scenario {
    /// Of which kind it is.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Lists(Shape { fault: Some(_), .. }) => "lists with a fault",
            Self::Lists(_) => "lists",
            Self::Log(_) => "the log alone",
            Self::Crash(..) => "script with crashes",
            Self::Fault(..) => "script with a fault",
            Self::Damage(..) => "damage",
            Self::FullDisk(..) => "script on a full disk",
        }
    }
}

impl Plan {
    /// Returns the plan of this seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x51_u64.rotate_left(40));
        let all = workloads::all();
        let workload = *rng.pick(&all);
        let part = (rng.bits() % 1_000_000) as u32;
        let scenario = match rng.within(0..100) {
            0..26 => Scenario::Log(Load::of(seed)),
            26..76 => {
                let shape = Shape::of(seed);
                let fault = rng.percent(25).then(|| (rng.within(0..FAULTS.len()), rng.percent(40)));
                let (closes, lives) = (*rng.pick(&[0, 0, 30, 60]), usize::from(fault.is_some()));
                let crashes = shape.crashes.max(lives);
                let calm = Shape { transactions: shape.transactions / 2, crashes, closes, fault, ..shape };
                // Many crashes and few keys, so that it matters what the last transactions before a
                // crash saw.
                let stormy = Shape {
                    transactions: rng.within(3..10),
                    crashes: rng.within(3..9),
                    keys: rng.within(2..8) as ListKey,
                    padding: rng.within(0..300),
                    closes,
                    fault,
                    ..shape
                };
                // More pages than frames.
                let crowded = Shape { tight: true, padding: 9000, keys: 80 + shape.keys % 80, ..calm };
                // Unusually many threads, with little work for each.
                let busy = Shape { threads: rng.within(8..20), transactions: rng.within(3..12), ..calm };
                Scenario::Lists(match rng.within(0..20) {
                    0..6 => stormy,
                    6..9 => crowded,
                    9..11 => busy,
                    _ => calm,
                })
            }
            76..88 => Scenario::Crash(workload, part),
            88..92 => Scenario::Damage(rng.percent(60), 8),
            92..98 => Scenario::Fault(workload, part, rng.within(0..FAULTS.len()), rng.percent(30)),
            _ => Scenario::FullDisk(workload, 1 << rng.within(19..23)),
        };
        let seed_of_schedule = rng.bits();
        let schedule = match rng.within(0..10) {
            0..4 => Schedule::Random { seed: seed_of_schedule },
            4..7 => Schedule::Stalls { seed: seed_of_schedule, one_in: *rng.pick(&[100, 1000, 10_000]) },
            _ => {
                let (changes, steps) = (rng.within(1..12) as u32, 1 << rng.within(12..20));
                Schedule::Priorities { seed: seed_of_schedule, changes, steps }
            }
        };
        Self { seed, scenario, schedule, circumstances: Circumstances::of(&mut rng) }
    }

    /// Runs it.
    pub fn run(&self) -> Simulated {
        self.run_traced(None)
    }

    /// Runs it, with a trace if one is wanted.
    ///
    /// The run has a host thread of its own: a simulated thread that is stopped in the middle of
    /// something may leave traces in variables of its host thread, and they go with it.
    ///
    /// # Panics
    /// When the host has no thread to give.
    pub fn run_traced(&self, trace: Option<Tracing>) -> Simulated {
        // What outlives runs must not lie in the memory of one.
        install_hook();
        std::thread::scope(|scope| scope.spawn(|| self.run_here(trace)).join().expect("a run ends with a report"))
    }

    fn run_here(&self, trace: Option<Tracing>) -> Simulated {
        let plan = *self;
        let description = Description::named("server-2x64").expect("the machine exists");
        let run = duramen_machine::Plan {
            schedule: self.schedule,
            limit: LIMIT,
            max_operations: MOST_OPERATIONS,
            seed: self.seed,
            trace,
            ..duramen_machine::Plan::new(description)
        };
        let mut report = duramen_machine::run(&run, move || plan.scenario());
        let result = match &report.outcome {
            // Copied, because the original lies in memory that goes with the run.
            Outcome::Done(result) => result.clone(),
            Outcome::Stopped => Err("stopped".to_owned()),
            Outcome::Aborted(why) => Err(why.clone()),
            Outcome::OutOfTime(threads) => Err(format!("makes no progress; its threads:\n{threads}")),
            Outcome::Deadlock(threads) => Err(format!("all threads wait for each other:\n{threads}")),
        };
        Simulated {
            result,
            operations: report.operations,
            digest: report.digest,
            probes: std::mem::take(&mut report.probes),
            trace: std::mem::take(&mut report.trace),
        }
    }

    fn scenario(&self) -> Result<u64, String> {
        let seed = self.seed;
        let thoroughness = Thoroughness {
            points: Coverage::Sample(1),
            random_images: 1,
            continued: Coverage::All,
            recovery_points: Coverage::Sample(1),
            limit: Duration::from_secs(100_000),
            log: self.circumstances.log,
        };
        let circumstances = self.circumstances;
        // The memory that a run allocates is freed with it.
        let surrounded =
            |workload| -> &'static Surrounded { Box::leak(Box::new(Surrounded { workload, circumstances })) };
        let at = |workload: &'static Surrounded, part: u32, log: LogEnd| {
            count_operations(workload, seed, log).map(|operations| operations.end() * u64::from(part) / 1_000_000)
        };
        match self.scenario {
            Scenario::Lists(shape) => try_history(shape, seed, circumstances),
            Scenario::Log(load) => try_load(load, seed, circumstances),
            Scenario::Crash(workload, part) => {
                let workload = surrounded(workload);
                let op = at(workload, part, circumstances.log)?;
                try_point(workload, seed, op, thoroughness, Only::default())
            }
            Scenario::Fault(workload, part, fault, persistent) => {
                let workload = surrounded(workload);
                let case = Case { fault: FAULTS[fault].1, op: at(workload, part, LogEnd::Files)?, persistent };
                try_fault(workload, seed, case)
            }
            Scenario::Damage(was_closed, flips) => try_damage(seed, was_closed, flips),
            Scenario::FullDisk(workload, capacity) => try_full_disk(surrounded(workload), seed, capacity),
        }
    }

    /// Smaller plans that fail as well, as long as there are any, trying at most `tries`; the
    /// smallest found.
    pub fn shrink(&self, tries: usize) -> Self {
        let (mut smallest, mut left) = (*self, tries);
        'smaller: loop {
            for plan in smallest.smaller() {
                if left == 0 {
                    break 'smaller;
                }
                left -= 1;
                if plan.run().result.is_err() {
                    smallest = plan;
                    continue 'smaller;
                }
            }
            break;
        }
        smallest
    }

    /// Plans that are a little smaller, the smallest first.
    fn smaller(&self) -> Vec<Self> {
        let simpler = |circumstances| Self { circumstances, ..*self };
        let mut plans: Vec<Self> = self.circumstances.simpler().into_iter().map(simpler).collect();
        if let Scenario::Lists(shape) = self.scenario {
            let shapes = [
                Shape { transactions: shape.transactions / 2, ..shape },
                Shape { threads: shape.threads - 1, ..shape },
                Shape { crashes: shape.crashes.saturating_sub(1), ..shape },
                Shape { fault: None, ..shape },
                Shape { closes: 0, ..shape },
                Shape { keys: shape.keys / 2, ..shape },
                Shape { tight: false, ..shape },
                Shape { padding: shape.padding / 2, ..shape },
                Shape { transactions: shape.transactions - 1, ..shape },
            ];
            let smaller = |new: &Shape| {
                let size = |shape: &Shape| {
                    let Shape { threads, transactions, keys, crashes, closes, fault, padding, tight, .. } = *shape;
                    let flags = usize::from(fault.is_some()) + usize::from(tight);
                    transactions * threads + crashes + closes + usize::from(keys) + padding + flags
                };
                size(new) < size(&shape) && new.threads > 0 && new.transactions > 0 && new.keys > 0
            };
            plans.extend(
                shapes.into_iter().filter(smaller).map(|shape| Self { scenario: Scenario::Lists(shape), ..*self }),
            );
        }
        if let Scenario::Log(load) = self.scenario {
            let loads = [
                Load { records: load.records / 2, ..load },
                Load { threads: load.threads - 1, ..load },
                Load { crashes: load.crashes.saturating_sub(1), ..load },
                Load { largest: load.largest / 2, ..load },
                Load { records: load.records - 1, ..load },
            ];
            let smaller = |new: &Load| {
                let size = |load: &Load| load.threads * load.records + load.crashes + load.largest;
                size(new) < size(&load) && new.threads > 0 && new.records > 0
            };
            let plan = |load| Self { scenario: Scenario::Log(load), ..*self };
            plans.extend(loads.into_iter().filter(smaller).map(plan));
        }
        if let Scenario::Damage(was_closed, flips) = self.scenario
            && flips > 1
        {
            plans.push(Self { scenario: Scenario::Damage(was_closed, flips / 2), ..*self });
        }
        if let Schedule::Priorities { seed, changes, steps } = self.schedule
            && changes > 0
        {
            plans.push(Self { schedule: Schedule::Priorities { seed, changes: changes - 1, steps }, ..*self });
        }
        plans
    }
}

/// Flips bits of a database, one at a time.
fn try_damage(seed: u64, was_closed: bool, flips: u32) -> Result<u64, String> {
    let specimen = Specimen::make(seed, was_closed)?;
    let mut rng = Rng::new(seed);
    (0..flips).map_while(|_| specimen.random_flip(&mut rng)).map(|damage| specimen.try_damage(&damage)).sum()
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};", self.seed)?;
        match self.scenario {
            Scenario::Lists(Shape {
                threads,
                transactions,
                keys,
                crashes,
                closes,
                fault,
                isolation,
                padding,
                tight,
            }) => {
                let fault = match fault {
                    None => "none".to_owned(),
                    Some((fault, persistent)) => {
                        format!("{}{}", FAULTS[fault].0, if persistent { "-stays" } else { "" })
                    }
                };
                let numbers = format!("{threads},{transactions},{keys},{crashes},{closes}");
                write!(f, "lists,{numbers},{fault},{isolation},{padding},{tight}")?;
            }
            Scenario::Log(Load { design, threads, records, largest, harden_one_in, crashes }) => {
                write!(f, "log,{design},{threads},{records},{largest},{harden_one_in},{crashes}")?;
            }
            Scenario::Crash(workload, part) => write!(f, "crash,{},{part}", workload.name())?,
            Scenario::Fault(workload, part, fault, persistent) => {
                write!(f, "fault,{},{part},{},{persistent}", workload.name(), FAULTS[fault].0)?;
            }
            Scenario::Damage(was_closed, flips) => write!(f, "damage,{was_closed},{flips}")?,
            Scenario::FullDisk(workload, bytes) => write!(f, "full-disk,{},{bytes}", workload.name())?,
        }
        match self.schedule {
            Schedule::Time => write!(f, ";time")?,
            Schedule::Free => write!(f, ";free")?,
            Schedule::Random { seed } => write!(f, ";random,{seed}")?,
            Schedule::Stalls { seed, one_in } => write!(f, ";stalls,{seed},{one_in}")?,
            Schedule::Priorities { seed, changes, steps } => write!(f, ";priorities,{seed},{changes},{steps}")?,
        }
        write!(f, ";{}", self.circumstances)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Plan {
    type Err = String;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, String> {
        fn number<T: FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("`{text}` is not a valid value in a plan"))
        }
        let workload = |name: &str| workloads::named(name).ok_or_else(|| format!("there is no workload `{name}`"));
        let fault_named = |name: &str| {
            let known = FAULTS.iter().position(|(known, _)| *known == name);
            known.ok_or_else(|| format!("there is no fault `{name}`"))
        };
        let [seed, scenario, schedule, circumstances] = text.split(';').collect::<Vec<_>>()[..] else {
            return Err(
                "a plan has four parts, SEED;SCENARIO;SCHEDULE;CIRCUMSTANCES; copy it from the output of a failure"
                    .to_owned(),
            );
        };
        let scenario = match scenario.split(',').collect::<Vec<_>>()[..] {
            ["lists", threads, transactions, keys, crashes, closes, fault, isolation, padding, tight] => {
                Scenario::Lists(Shape {
                    threads: number(threads)?,
                    transactions: number(transactions)?,
                    keys: number(keys)?,
                    crashes: number(crashes)?,
                    closes: number(closes)?,
                    fault: match fault {
                        "none" => None,
                        _ => Some((fault_named(fault.trim_end_matches("-stays"))?, fault.ends_with("-stays"))),
                    },
                    isolation: [Isolation::Serializable, Isolation::ReadCommitted]
                        .into_iter()
                        .find(|level| level.to_string() == isolation)
                        .ok_or_else(|| format!("there is no isolation level `{isolation}`"))?,
                    padding: number(padding)?,
                    tight: number(tight)?,
                })
            }
            ["log", design, threads, records, largest, harden_one_in, crashes] => Scenario::Log(Load {
                design: number(design)?,
                threads: number(threads)?,
                records: number(records)?,
                largest: number(largest)?,
                harden_one_in: number(harden_one_in)?,
                crashes: number(crashes)?,
            }),
            ["crash", name, part] => Scenario::Crash(workload(name)?, number(part)?),
            ["fault", name, part, fault, persistent] => {
                Scenario::Fault(workload(name)?, number(part)?, fault_named(fault)?, number(persistent)?)
            }
            ["damage", was_closed, flips] => Scenario::Damage(number(was_closed)?, number(flips)?),
            ["full-disk", name, bytes] => Scenario::FullDisk(workload(name)?, number(bytes)?),
            _ => return Err(format!("`{scenario}` is not a scenario")),
        };
        let schedule = match schedule.split(',').collect::<Vec<_>>()[..] {
            ["time"] => Schedule::Time,
            ["free"] => Schedule::Free,
            ["random", seed] => Schedule::Random { seed: number(seed)? },
            ["stalls", seed, one_in] => Schedule::Stalls { seed: number(seed)?, one_in: number(one_in)? },
            ["priorities", seed, changes, steps] => {
                Schedule::Priorities { seed: number(seed)?, changes: number(changes)?, steps: number(steps)? }
            }
            _ => return Err(format!("`{schedule}` is not a schedule")),
        };
        Ok(Self { seed: number(seed)?, scenario, schedule, circumstances: circumstances.parse()? })
    }
}
