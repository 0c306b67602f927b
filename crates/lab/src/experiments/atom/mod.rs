//! ATOM's evaluation, repeated on the event-driven model (`duramen_machine::atom`).
//!
//! The parameters here and the machine's description were fixed before the first of these
//! experiments ran.

mod logging;
mod redo;
mod throughput;

pub(super) use logging::{Collation, Crashes, Full, Sourced};
pub(super) use redo::{Entries, Latency, Redo};
pub(super) use throughput::{Large, Small};

use std::convert::Infallible;

use duramen_machine::atom::{self, Cpu, Design, Lock, Machine, Plan, Program, Report, Setup};
use duramen_sync::SplitMix64;
use duramen_workloads::regions::{AtomicMemory, Instance, Kind, Plain};

use crate::error::{Error, Result};
use crate::experiment::{Context, EVENT_MODEL as WORLD};

const MACHINE: &str = "atom-events";
/// Entries of an instance when it is new; the shared one has those of all programs.
const ENTRIES: u64 = 256;
const SMALL: u64 = 512;
const LARGE: u64 = 4096;
/// Operations of each program before and in the measured part.
const WARM_UP: u64 = 50;
const MEASURED: u64 = 250;

pub(super) const UNDO: [(Design, &str); 4] =
    [(Design::Base, "BASE"), (Design::Atom, "ATOM"), (Design::AtomOpt, "ATOM-OPT"), (Design::NonAtomic, "NON-ATOMIC")];

/// A core of the model, as structures see it.
struct Simulated<'a>(&'a mut Cpu);

impl AtomicMemory for Simulated<'_> {
    type Error = Infallible;
    type Lock = Lock;

    fn load(&mut self, at: u64) -> Result<u64, Infallible> {
        Ok(self.0.load(at))
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Infallible> {
        self.0.read(at, to);
        Ok(())
    }

    fn store(&mut self, at: u64, value: u64) -> Result<(), Infallible> {
        self.0.store(at, value);
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Infallible> {
        self.0.write(at, from);
        Ok(())
    }

    fn work(&mut self, instructions: u64) {
        self.0.work(instructions);
    }

    fn atomic<R>(
        &mut self,
        lock: Lock,
        mut body: impl FnMut(&mut Self) -> Result<R, Infallible>,
    ) -> Result<R, Infallible> {
        self.0.begin(&[lock]);
        let result = body(self);
        self.0.end(&[lock]);
        result
    }
}

/// The instances of a benchmark, one for each program or one for all.
fn instances(kind: Kind, entry_bytes: u64, programs: u64) -> Vec<Instance> {
    let entries = if kind.is_shared() { ENTRIES * programs } else { ENTRIES };
    let mut base = 0;
    let count = if kind.is_shared() { 1 } else { programs };
    let one = |_| {
        let instance = Instance { kind, base, entries, entry_bytes };
        // Whole pages, so that instances share no line and each begins behind another controller.
        base += instance.bytes().next_multiple_of(4096) + 4096;
        instance
    };
    (0..count).map(one).collect()
}

/// A run of a benchmark, with the work between its operations.
#[derive(Clone)]
struct Bench {
    kind: Kind,
    entry_bytes: u64,
    work: u64,
    plan: Plan,
}

impl Bench {
    fn new(context: &Context<'_>, kind: Kind, entry_bytes: u64, design: Design, seed: u64) -> Result<Self> {
        let machine = Machine::named(MACHINE).map_err(failed)?;
        let programs = machine.core.cores as u64;
        let mut plan = Plan::new(machine, design, context.pick(MEASURED, MEASURED / 5, 4) * programs);
        plan.warm_up = context.pick(WARM_UP, WARM_UP / 5, 1) * programs;
        plan.seed = seed;
        Ok(Self { kind, entry_bytes, work: 0, plan })
    }

    fn run(&self) -> Result<Report> {
        let programs = self.plan.machine.core.cores as u64;
        let instances = instances(self.kind, self.entry_bytes, programs);
        let end = instances.iter().map(|instance| instance.base + instance.bytes()).max().unwrap_or(0);
        let mut memory = Plain::new(end);
        let mut random = SplitMix64::new(self.plan.seed);
        for instance in &instances {
            let Ok(()) = instance.build(&mut memory, &mut random);
        }
        let setup = Setup {
            image: memory.lines(),
            locks: instances.len(),
            programs: (0..programs).map(|number| self.program(&instances, number, random.bits())).collect(),
        };
        let report = atom::run(&self.plan, setup).map_err(failed)?;
        let mut after = Plain::of_lines(&report.image);
        for instance in &instances {
            instance.check(&mut after).map_err(Error::Audit)?;
        }
        Ok(report)
    }

    fn program(&self, instances: &[Instance], number: u64, seed: u64) -> Program {
        let which = number as usize % instances.len();
        let (instance, work) = (instances[which], self.work);
        Box::new(move |cpu: &mut Cpu| {
            let mut random = SplitMix64::new(seed);
            for operation in number.. {
                let Ok(()) = instance.operation(&mut Simulated(cpu), Lock(which), &mut random, operation);
                cpu.work(work);
                if !cpu.done() {
                    return;
                }
            }
        })
    }
}

fn failed(error: atom::Error) -> Error {
    Error::Simulation { machine: MACHINE, reason: error.to_string() }
}

/// Means over the seeds.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Operations in a million cycles.
    throughput: f64,
    /// For each operation.
    queue_full: f64,
    entries: f64,
    log_writes: f64,
    data_writes: f64,
    sourced_share: f64,
    /// Share of the time that a channel was busy.
    channel: f64,
}

fn seeds(context: &Context<'_>) -> &'static [u64] {
    context.pick(&[1, 2, 3], &[1], &[1])
}

fn measure(context: &mut Context<'_>, bench: impl Fn(u64) -> Result<Bench>, name: &str) -> Result<Measured> {
    let mut reports = Vec::new();
    let mut channels = 1.0;
    for &seed in seeds(context) {
        let bench = bench(seed)?;
        channels = bench.plan.machine.memory.controllers as f64
            * if bench.plan.design == Design::RedoTwoChannels { 2.0 } else { 1.0 };
        let what = format!("{} of {} bytes, {name}, seed {seed}", bench.kind.name(), bench.entry_bytes);
        reports.push(context.measure(what, || bench.run())?);
    }
    let sum = |of: &dyn Fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() as f64;
    let operations = sum(&|report| report.counters.operations);
    let (cycles, entries) = (sum(&|report| report.cycles), sum(&|report| report.counters.entries));
    Ok(Measured {
        throughput: operations * 1e6 / cycles,
        queue_full: sum(&|report| report.counters.queue_full) / operations,
        entries: entries / operations,
        log_writes: sum(&|report| report.counters.log_lines + report.counters.headers) / operations,
        data_writes: sum(&|report| report.counters.data_writes) / operations,
        sourced_share: if entries > 0.0 { sum(&|report| report.counters.sourced) / entries } else { 0.0 },
        channel: sum(&|report| report.counters.channel_busy) / cycles / channels,
    })
}

/// Measures a benchmark with a design.
fn measure_kind(context: &mut Context<'_>, kind: Kind, bytes: u64, design: (Design, &str)) -> Result<Measured> {
    let parts = Bench::new(context, kind, bytes, design.0, 0)?;
    let bench = move |seed| {
        let mut bench = parts.clone();
        bench.plan.seed = seed;
        Ok(bench)
    };
    measure(context, bench, design.1)
}

fn geometric_mean(values: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = values.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

/// What all of these experiments say of their setting.
fn setting(context: &Context<'_>) -> Result<Vec<String>> {
    let machine = Machine::named(MACHINE).map_err(failed)?;
    Ok(vec![
        format!("{}; parameters {:016x}.", machine.title, machine.digest),
        format!(
            "A program on each of {} cores, {} operations each after {} to warm up, {} seeds. Each program has an \
             instance of {ENTRIES} entries, the queue excepted, which all share. Stores to the stack are logged, too: \
             one for every ten instructions.",
            machine.core.cores,
            context.pick(MEASURED, MEASURED / 5, 4),
            context.pick(WARM_UP, WARM_UP / 5, 1),
            seeds(context).len(),
        ),
    ])
}
