//! ATOM's evaluation, repeated on the event-driven model (`duramen_machine::atom`).
//!
//! The parameters here and the machine's description were fixed before the first of these
//! experiments ran. Runs that do not depend on each other share the processors: a run has one
//! thread, and gives the same report each time.

mod logging;
mod new_order;
mod redo;
mod regimes;
mod throughput;

pub(super) use logging::{Collation, Crashes, Full, Sourced};
pub(super) use new_order::OrderEntering;
pub(super) use redo::{Entries, Latency, Redo};
pub(super) use throughput::{Large, Small};

use duramen_machine::atom::{
    self, Bytes, Cpu, Design, LINE_BYTES, Lock, Machine, Plan, Program, Report, Setup, StoreWidth,
};
use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::{parallel, thread};
use duramen_workloads::regions::{
    Addr, AtomicMemory, EntrySize, Kind, PlainMemory, RegionAccess, RegionError, Scale, Structure,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use regimes::Besides;

use crate::error::{Error, Result};
use crate::experiment::{Context, EVENT_MODEL as WORLD, Effort};
use crate::figure::{Axis, Figure, Series, Shape};
use crate::kept::Kept;

const MACHINE: &str = "atom-events";
/// Entries of an instance when it is new; the shared one has those of all programs.
const ENTRIES: u64 = 256;
const SMALL: EntrySize = EntrySize::Small;
const LARGE: EntrySize = EntrySize::Large;
/// The benchmarks, in the paper's order.
const KINDS: [Kind; 6] = [Kind::BTree, Kind::Hash, Kind::Queue, Kind::RbTree, Kind::Sdg, Kind::Sps];
/// Operations of each program before and in the measured part.
const WARM_UP: u64 = 50;
const MEASURED: u64 = 250;

pub(super) const UNDO: [(Design, &str); 4] =
    [(Design::Base, "BASE"), (Design::Atom, "ATOM"), (Design::AtomOpt, "ATOM-OPT"), (Design::NonAtomic, "NON-ATOMIC")];

/// A core of the model, as memory with atomic regions.
struct Simulated<'a>(&'a mut Cpu);

/// The same within a region.
struct Region<'a>(&'a mut Cpu);

impl RegionAccess for Region<'_> {
    type Error = RegionError;

    fn load(&mut self, at: Addr) -> Result<u64, RegionError> {
        Ok(self.0.load(at))
    }

    fn read(&mut self, at: Addr, to: &mut [u8]) -> Result<(), RegionError> {
        self.0.read(at, to);
        Ok(())
    }

    fn store(&mut self, at: Addr, value: u64) -> Result<(), RegionError> {
        self.0.store(at, value);
        Ok(())
    }

    fn write(&mut self, at: Addr, from: &[u8]) -> Result<(), RegionError> {
        self.0.write(at, from);
        Ok(())
    }

    fn work(&mut self, instructions: u64) {
        self.0.work(instructions);
    }
}

impl<'a> AtomicMemory for Simulated<'a> {
    type Error = RegionError;
    /// In the order in which they are taken.
    type Lock = &'a [Lock];
    type Region<'region> = Region<'region>;

    fn atomic<R>(
        &mut self,
        locks: &'a [Lock],
        mut body: impl FnMut(&mut Region<'_>) -> Result<R, RegionError>,
    ) -> Result<R, RegionError> {
        self.0.begin(locks);
        let result = body(&mut Region(self.0));
        self.0.end(locks);
        result
    }
}

/// The instances of a benchmark, one for each program or one for all, and the bytes they take.
fn instances(kind: Kind, size: EntrySize, programs: u64, is_shared: bool) -> (Vec<Structure>, u64) {
    let shared = is_shared || kind == Kind::Queue;
    let scale = Scale { entries: if shared { ENTRIES * programs } else { ENTRIES }, size };
    // Four whole pages and one more, so that each instance begins behind another controller.
    let apart = Structure::bytes(kind, scale).next_multiple_of(4 * 4096) + 4096;
    let count = if shared { 1 } else { programs };
    // Address 0 stands for none.
    ((0..count).map(|index| Structure::at(kind, scale, 4096 + index * apart)).collect(), 4096 + count * apart)
}

/// A run of a benchmark.
#[derive(Clone)]
struct Bench {
    kind: Kind,
    size: EntrySize,
    plan: Plan,
    besides: Besides,
}

impl Bench {
    fn new(context: &Context<'_>, kind: Kind, size: EntrySize, design: Design, seed: u64) -> Result<Self> {
        let machine = Machine::named(MACHINE).map_err(failed)?;
        let programs = machine.core.cores as u64;
        let mut plan = Plan::new(machine, design, context.pick(MEASURED, MEASURED / 5, 4) * programs);
        plan.warm_up = context.pick(WARM_UP, WARM_UP / 5, 1) * programs;
        plan.seed = seed;
        Ok(Self { kind, size, plan, besides: Besides::default() })
    }

    /// Leaves the fifth part of the operations, which is at least one for each program.
    fn shorten(&mut self) {
        let programs = self.plan.machine.core.cores as u64;
        for operations in [&mut self.plan.operations, &mut self.plan.warm_up] {
            *operations = (*operations / programs / 5).max(1) * programs;
        }
    }

    fn run(&self) -> Result<Report> {
        let programs = self.plan.machine.core.cores as u64;
        let (structures, bytes) = instances(self.kind, self.size, programs, self.besides.is_shared);
        let mut memory = PlainMemory::new(bytes);
        let mut random = StdRng::seed_from_u64(self.plan.seed);
        for structure in &structures {
            structure.make(&mut memory, ()).map_err(broken)?;
            // Until about half of the keys are there.
            for number in 0..4 * ENTRIES * programs / structures.len() as u64 {
                structure.operate(&mut memory, (), number, &mut random).map_err(broken)?;
            }
        }
        let image = image_of(&mut memory, bytes)?;
        let program = |number| self.program(&structures, number, random.random());
        let setup = Setup { image, locks: structures.len(), programs: (0..programs).map(program).collect() };
        let report = atom::run(&self.plan, setup).map_err(failed)?;
        let mut memory = memory_of(&report.image)?;
        for structure in &structures {
            structure.audit(&mut memory, ()).map_err(broken)?;
        }
        Ok(report)
    }

    fn program(&self, structures: &[Structure], number: u64, seed: u64) -> Program {
        let which = number as usize % structures.len();
        let (structure, work) = (structures[which], self.besides.work);
        Box::new(move |cpu: &mut Cpu| {
            let mut random = StdRng::seed_from_u64(seed);
            for operation in number.. {
                // Drawing the inputs, and the call.
                cpu.work(40 + work);
                let done = structure.operate(&mut Simulated(cpu), &[Lock(which)], operation, &mut random);
                done.expect("the structure is whole");
                if !cpu.done() {
                    return;
                }
            }
        })
    }
}

/// Returns the lines of a memory of so many bytes.
fn image_of(memory: &mut PlainMemory, bytes: u64) -> Result<Vec<Bytes>> {
    let mut image = vec![[0; LINE_BYTES]; bytes as usize / LINE_BYTES];
    memory.read(0, image.as_flattened_mut()).map_err(broken)?;
    Ok(image)
}

/// Returns a memory with these lines.
fn memory_of(image: &[Bytes]) -> Result<PlainMemory> {
    let bytes = image.as_flattened();
    let mut memory = PlainMemory::new(bytes.len() as u64);
    memory.write(0, bytes).map_err(broken)?;
    Ok(memory)
}

fn broken(error: RegionError) -> Error {
    Error::Audit(error.to_string())
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

impl Measured {
    /// Returns the means of the runs of `bench` with several seeds.
    fn of(bench: &Bench, reports: &[Report]) -> Self {
        let Plan { machine, design, .. } = &bench.plan;
        let channels = machine.memory.controllers as f64 * if *design == Design::RedoTwoChannels { 2.0 } else { 1.0 };
        let sum = |of: &dyn Fn(&Report) -> u64| reports.iter().map(of).sum::<u64>() as f64;
        let operations = sum(&|report| report.counters.operations);
        let (cycles, entries) = (sum(&|report| report.cycles), sum(&|report| report.counters.entries));
        Self {
            throughput: operations * 1e6 / cycles,
            queue_full: sum(&|report| report.counters.queue_full) / operations,
            entries: entries / operations,
            log_writes: sum(&|report| report.counters.log_lines + report.counters.headers) / operations,
            data_writes: sum(&|report| report.counters.data_writes) / operations,
            sourced_share: if entries > 0.0 { sum(&|report| report.counters.sourced) / entries } else { 0.0 },
            channel: sum(&|report| report.counters.channel_busy) / cycles / channels,
        }
    }
}

/// Runs each of `benches` with each of the seeds.
fn measure(context: &mut Context<'_>, what: &str, seeds: &[u64], benches: &[Bench]) -> Result<Vec<Measured>> {
    let with_seed = |bench: &Bench, seed| {
        let mut bench = bench.clone();
        bench.plan.seed = seed;
        bench
    };
    let runs = benches.iter().flat_map(|bench| seeds.iter().map(|&seed| with_seed(bench, seed))).collect();
    let reports = side_by_side(context, what, runs, Bench::run)?;
    Ok(benches.iter().zip(reports.chunks(seeds.len())).map(|(bench, reports)| Measured::of(bench, reports)).collect())
}

/// Runs `parts` on as many threads as there are processors; returns the results in the order of the
/// parts. Each counts as one measurement.
fn side_by_side<T: Send + Sync + 'static, R: Send + 'static>(
    context: &mut Context<'_>,
    what: &str,
    parts: Vec<T>,
    run: fn(&T) -> Result<R>,
) -> Result<Vec<R>> {
    let (count, next) = (parts.len(), AtomicUsize::new(0));
    if count == 0 {
        return Ok(Vec::new());
    }
    let threads = thread::available_parallelism().min(count);
    let work = move || {
        let mut results = Vec::new();
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && at < count
        {
            results.push((at, run(&parts[at])));
        }
        results
    };
    let mut results: Vec<_> =
        context.measure(what.to_owned(), || Ok(parallel::run(threads, "model", work)))?.into_iter().flatten().collect();
    for _ in 1..count {
        context.measure(what.to_owned(), || Ok(()))?;
    }
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Measures a benchmark with each of the designs.
fn measure_kind<const N: usize>(
    context: &mut Context<'_>,
    benchmark: (Kind, EntrySize),
    designs: [(Design, &str); N],
) -> Result<[Measured; N]> {
    measure_stores(context, benchmark, designs, StoreWidth::Word)
}

thread_local! {
    /// Several experiments judge the same runs.
    static RUNS: Kept<((Kind, EntrySize), Design, StoreWidth, Effort), Measured> = const { Kept::new() };
}

/// Measures a benchmark with stores of other widths than a word with one seed only.
fn measure_stores<const N: usize>(
    context: &mut Context<'_>,
    (kind, size): (Kind, EntrySize),
    designs: [(Design, &str); N],
    stores: StoreWidth,
) -> Result<[Measured; N]> {
    let (seeds, with) = match stores {
        StoreWidth::Word => (seeds(context), String::new()),
        _ => (&seeds(context)[..1], format!(", {stores:?} stores")),
    };
    let effort = context.effort();
    let find = |design| RUNS.with(|kept| kept.find(&((kind, size), design, stores, effort)));
    let is_new = |design: &(Design, &str)| find(design.0).is_none();
    let (new, known): (Vec<_>, Vec<_>) = designs.into_iter().partition(is_new);
    for (_, name) in known {
        for _ in seeds {
            context.measure(format!("{}, {name}{with}: measured before", kind.name()), || Ok(()))?;
        }
    }
    let mut benches = Vec::new();
    for (design, _) in &new {
        let mut bench = Bench::new(context, kind, size, *design, 0)?;
        bench.plan.stores = stores;
        benches.push(bench);
    }
    let names: Vec<&str> = new.iter().map(|(_, name)| *name).collect();
    let what = format!("{} of {} bytes, {}{with}", kind.name(), size.bytes(), names.join(", "));
    for (measured, (design, _)) in measure(context, &what, seeds, &benches)?.into_iter().zip(new) {
        RUNS.with(|kept| kept.keep(((kind, size), design, stores, effort), measured));
    }
    Ok(designs.map(|(design, _)| find(design).expect("it was measured")))
}

/// Returns a figure with a group of bars for each benchmark.
fn of_benchmarks(name: &str, y: &str, series: Vec<Series>) -> Figure {
    Figure {
        name: name.to_owned(),
        title: y.to_owned(),
        x: Axis::linear("benchmark"),
        y: Axis::linear(y),
        shape: Shape::Groups(KINDS.map(|kind| kind.name().to_owned()).to_vec()),
        series,
    }
}

/// Returns points for the benchmarks.
fn numbered(values: &[f64]) -> Vec<(f64, f64)> {
    values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect()
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
