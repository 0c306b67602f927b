//! T8: TPC-C's new order.
//!
//! The parameters here, and the constants in `regions::new_order`, were fixed before the first run;
//! the controlled runs, which are not judged, were added after it.

use std::cell::Cell;
use std::rc::Rc;

use duramen_machine::atom::{
    self, Bytes, Counters, Cpu, CrashPlan, CrashReport, Design, Lock, Machine, Plan, Program, Report, Setup,
};
use duramen_sync::Arc;
use duramen_workloads::regions::{OrderEntry, PlainMemory, Terminal};
use duramen_workloads::tpcc::Scale;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::redo::REDO;
use super::regimes::{self, Besides, REGIMES, Regime};
use super::{MACHINE, Simulated, UNDO, WORLD, broken, failed, image_of, memory_of, seeds, side_by_side};
use crate::bounds::{Bound, Check};
use crate::error::{Error, Result};
use crate::experiment::{About, Context, Experiment, Findings};
use crate::figure::{Axis, Figure, Series, Shape};

/// The columns of table IV, and beside them the bound that T1 has, too.
const DESIGNS: [(Design, &str); 5] = [UNDO[0], UNDO[1], UNDO[2], REDO, UNDO[3]];
const TABLE_IV: [f64; 4] = [1.0, 1.58, 1.60, 1.47];
/// Orders of each terminal before and in the measured part.
const WARM_UP: u64 = 30;
const MEASURED: u64 = 60;
/// Instructions that draw an order's inputs, and those of a line.
const DRAW: u64 = 60;
const DRAW_LINE: u64 = 40;
/// Crashes are so many cycles apart on average, at most so many in a run, and one in so many
/// recovered images is audited.
const CRASH_GAP: u64 = 100_000;
const CRASHES: u64 = 100;
const AUDITED: u64 = 50;
const POPULATION: u64 = 8;
/// Other conditions that are tried: all but the last, which changes nothing here.
const CONDITIONS: usize = REGIMES.len() - 1;
/// Nothing lies at address 0, which stands for none.
const BASE: u64 = 4096;

/// What a run changes of the experiment, to show what its result depends on.
#[derive(Clone, Copy)]
struct Control {
    what: &'static str,
    /// Cycles that memory takes to read a line.
    read: Option<u64>,
    /// Terminals, which enter as many orders together.
    terminals: Option<usize>,
}

const UNCHANGED: Control = Control { what: "", read: None, terminals: None };
/// Not judged.
const CONTROLS: [Control; 2] = [
    Control { what: "with reads of 24 cycles, DRAM's latency", read: Some(24), ..UNCHANGED },
    Control { what: "with one terminal, which waits for no lock", terminals: Some(1), ..UNCHANGED },
];

/// TPC-C.
pub(crate) struct OrderEntering;

impl Experiment for OrderEntering {
    fn about(&self) -> About {
        About {
            id: "T8",
            title: "throughput of TPC-C's new order in atomic regions",
            source: "ATOM (HPCA 2017), Table IV",
            world: WORLD,
            found: "against BASE, ATOM has 1.58 times the throughput, ATOM-OPT 1.60 times, REDO 1.47 times",
            wanted: "the order holds (ties within 0.5 % count), and ATOM gains 30 % or more",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "a transaction waits longer for loads, for which about 50 lines come from memory, than for room in the \
             store queue; so even NON-ATOMIC gains less than the paper's ATOM, and with faster reads ATOM gains more",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let controls: &[Control] = context.pick(&CONTROLS, &[], &CONTROLS);
        let conditions = context.pick(CONDITIONS, 0, 1);
        let others = 2 * controls.len() + conditions * TABLE_IV.len();
        context.expect(DESIGNS.len() * seeds(context).len() + others);
        let warehouse = Warehouse::new(context)?;
        let measured = warehouse.measure(context, DESIGNS, seeds(context), UNCHANGED)?;
        let by_base: Vec<f64> = measured.iter().map(|of| of.throughput() / measured[0].throughput()).collect();
        let crashes: u64 = measured.iter().map(|of| of.crashes).sum();
        let failures: u64 = measured.iter().map(|of| of.failures).sum();
        let checks = vec![
            Check::new("ATOM by BASE", "1.58", by_base[1], Bound::AtLeast(1.3)),
            Check::new("REDO by BASE", "1.47", by_base[3], Bound::AtLeast(0.995)),
            Check::new("ATOM by REDO", "1.07", by_base[1] / by_base[3], Bound::AtLeast(0.995)),
            Check::new("ATOM-OPT by ATOM", "1.01", by_base[2] / by_base[1], Bound::AtLeast(0.995)),
            Check::new("crashes after which a line is not as committed", "0", failures as f64, Bound::AtMost(0.0)),
        ];
        let mut setting = warehouse.setting(context)?;
        setting.push(format!(
            "Cycles with a full store queue, for each order: ATOM-OPT has {:+.0} % against BASE (the paper: -42 %). \
             Source-logged entries: {:.3} % (the paper: 0.02 %). Waiting for locks takes {:.0} % of the terminals' \
             time with BASE, {:.0} % with ATOM-OPT.",
            100.0 * (measured[2].each(|counts| counts.queue_full) / measured[0].each(|counts| counts.queue_full) - 1.0),
            100.0 * measured[2].sourced_share(),
            100.0 * measured[0].of_time(|counts| counts.locks),
            100.0 * measured[2].of_time(|counts| counts.locks),
        ));
        let of_designs = measured.iter().zip(DESIGNS).zip(&by_base);
        setting.extend(of_designs.map(|((of, design), by_base)| of.describe(design.1, *by_base)));
        for &control in controls {
            let [base, atom] = warehouse.measure(context, [UNDO[0], UNDO[1]], &[1], control)?;
            setting.push(format!(
                "Not judged: {}, ATOM has {:.2} times BASE's throughput. With BASE, {} then.",
                control.what,
                atom.throughput() / base.throughput(),
                base.waits(),
            ));
        }
        setting.push(format!(
            "The audit held after each run, and on {} images that recovery left after crashes, of {crashes} that were \
             compared line by line.",
            measured.iter().map(|of| of.audited).sum::<u64>(),
        ));
        let points = |values: &[f64]| values.iter().enumerate().map(|(x, y)| (x as f64, *y)).collect();
        let figure = Figure {
            name: "T8-throughput".to_owned(),
            title: "Throughput of new orders by BASE".to_owned(),
            x: Axis::linear("design"),
            y: Axis::linear("throughput by BASE"),
            shape: Shape::Groups(DESIGNS.map(|design| design.1.to_owned()).to_vec()),
            series: vec![Series::ours("model", points(&by_base)), Series::paper("Table IV", points(&TABLE_IV))],
        };
        let mut figures = vec![figure];
        if conditions > 0 {
            let short = warehouse.shortened();
            let regimes = &REGIMES[..conditions];
            let designs = &DESIGNS[..TABLE_IV.len()];
            figures.push(regimes::figure("T8-conditions", designs, regimes, |regime| {
                short.measure_in(context, regime, designs)
            })?);
            setting.push(regimes::legend(regimes));
        }
        Ok(Findings { setting, figures, checks })
    }
}

/// The warehouse before its first order.
#[derive(Clone)]
struct Warehouse {
    machine: Machine,
    scale: Scale,
    warm_up: u64,
    measured: u64,
    tables: Arc<OrderEntry>,
    image: Arc<Vec<Bytes>>,
}

/// A run of so many terminals, each of which executes `work` instructions more for each order.
struct Run {
    warehouse: Warehouse,
    plan: Plan,
    terminals: usize,
    work: u64,
}

impl Warehouse {
    fn new(context: &mut Context<'_>) -> Result<Self> {
        let machine = Machine::named(MACHINE).map_err(failed)?;
        let terminals = machine.core.cores as u64;
        let (warm_up, measured) = context.pick((WARM_UP, MEASURED), (WARM_UP / 5, MEASURED / 5), (1, 3));
        let scale = context.pick(Scale::standard(1), Scale::standard(1), Scale::small(1, 60));
        context.prepare("population");
        // Twice what falls to a district on average.
        let room = (warm_up + measured + 1) * terminals / 5 + 20;
        let tables = OrderEntry::new(scale, room, BASE);
        let mut memory = PlainMemory::new(tables.end());
        tables.load(&mut memory, (), POPULATION).map_err(broken)?;
        let image = Arc::new(image_of(&mut memory, tables.end())?);
        Ok(Self { machine, scale, warm_up, measured, tables: Arc::new(tables), image })
    }

    fn measure<const N: usize>(
        &self,
        context: &mut Context<'_>,
        designs: [(Design, &str); N],
        seeds: &[u64],
        control: Control,
    ) -> Result<[Measured; N]> {
        let terminals = control.terminals.unwrap_or(self.machine.core.cores);
        let run = |design, seed| {
            let mut plan = self.plan(design, seed);
            plan.machine.memory.read = control.read.unwrap_or(plan.machine.memory.read);
            Run { warehouse: self.clone(), plan, terminals, work: 0 }
        };
        let runs = designs.iter().flat_map(|(design, _)| seeds.iter().map(|seed| run(*design, *seed))).collect();
        let what = [&designs.map(|(_, name)| name).join(", "), control.what].join(" ");
        let reports = side_by_side(context, what.trim_end(), runs, Run::run)?;
        let mut of_designs = reports.chunks(seeds.len());
        Ok(designs.map(|_| {
            let mut measured = Measured::new(&self.machine, terminals);
            of_designs.next().expect("each design ran").iter().for_each(|report| measured.add(report));
            measured
        }))
    }

    /// Returns the same with the fifth part of the orders.
    fn shortened(&self) -> Self {
        let fifth = |orders: u64| (orders / 5).max(1);
        Self { warm_up: fifth(self.warm_up), measured: fifth(self.measured), ..self.clone() }
    }

    /// Returns the throughputs of these designs under other conditions.
    fn measure_in(&self, context: &mut Context<'_>, regime: &Regime, designs: &[(Design, &str)]) -> Result<Vec<f64>> {
        let run = |design: &(Design, &str)| {
            let (mut plan, mut besides) = (self.plan(design.0, 1), Besides::default());
            plan.crashes = CrashPlan::None;
            (regime.change)(&mut plan, &mut besides);
            Run { warehouse: self.clone(), plan, terminals: self.machine.core.cores, work: besides.work }
        };
        let reports = side_by_side(context, regime.what, designs.iter().map(run).collect(), Run::run)?;
        Ok(reports.iter().map(|report| report.counters.operations as f64 / report.cycles as f64).collect())
    }

    fn plan(&self, design: Design, seed: u64) -> Plan {
        let terminals = self.machine.core.cores as u64;
        let mut plan = Plan::new(self.machine.clone(), design, self.measured * terminals);
        plan.warm_up = self.warm_up * terminals;
        plan.seed = seed;
        if design != Design::NonAtomic {
            plan.crashes = CrashPlan::Cycles { gap: CRASH_GAP, most: CRASHES, keep: AUDITED };
        }
        plan
    }

    /// Returns the number of orders that were entered.
    fn audit(&self, image: &[Bytes]) -> Result<u64> {
        let mut memory = memory_of(image)?;
        Ok(self.tables.audit(&mut memory, ()).map_err(broken)?.orders)
    }

    /// Returns a terminal that executes `work` instructions more for each order.
    fn terminal(&self, seed: u64, entered: &Rc<Cell<u64>>, work: u64) -> Program {
        let (tables, entered, scale) = (Arc::clone(&self.tables), Rc::clone(entered), self.scale);
        Box::new(move |cpu: &mut Cpu| {
            let mut terminal = Terminal::new(scale, seed);
            for now in 2.. {
                let order = terminal.draw();
                cpu.work(DRAW + DRAW_LINE * order.lines() + work);
                let locks: Vec<Lock> = tables.locks(&order).into_iter().map(Lock).collect();
                let done = tables.enter(&mut Simulated(cpu), &locks, &order, now).expect("the tables are whole");
                entered.set(entered.get() + u64::from(done));
                if !cpu.done() {
                    return;
                }
            }
        })
    }

    fn setting(&self, context: &Context<'_>) -> Result<Vec<String>> {
        Ok(vec![
            format!("{}; parameters {:016x}.", self.machine.title, self.machine.digest),
            format!(
                "A terminal on each of {} cores, {} orders each after {} to warm up, {} seeds. One warehouse with ten \
                 districts of {} customers, and {} items, {} MiB in all. A transaction is one region, under the lock \
                 of its district and those of its stocks' stripes. Stores to the stack are logged, too: one for every \
                 ten instructions.",
                self.machine.core.cores,
                self.measured,
                self.warm_up,
                seeds(context).len(),
                self.scale.customers,
                self.scale.items,
                self.tables.end() >> 20,
            ),
        ])
    }
}

impl Run {
    /// Runs the terminals; audits what they leave, and what the crashes that were kept leave.
    fn run(&self) -> Result<Report> {
        let Self { warehouse, plan, terminals, work } = self;
        let mut random = StdRng::seed_from_u64(plan.seed);
        let entered = Rc::new(Cell::new(0));
        let setup = Setup {
            image: warehouse.image.to_vec(),
            locks: OrderEntry::LOCKS,
            programs: (0..*terminals).map(|_| warehouse.terminal(random.random(), &entered, *work)).collect(),
        };
        let report = atom::run(plan, setup).map_err(failed)?;
        let found = warehouse.audit(&report.image)?;
        if found != entered.get() {
            return Err(Error::Audit(format!("{} orders were entered, and {found} are there", entered.get())));
        }
        for image in &report.crashes.images {
            warehouse.audit(image)?;
        }
        Ok(report)
    }
}

/// Sums over the seeds.
#[derive(Debug)]
struct Measured {
    terminals: f64,
    channels: f64,
    cycles: f64,
    counters: Vec<Counters>,
    crashes: u64,
    failures: u64,
    audited: u64,
}

impl Measured {
    fn new(machine: &Machine, terminals: usize) -> Self {
        Self {
            terminals: terminals as f64,
            channels: machine.memory.controllers as f64,
            cycles: 0.0,
            counters: Vec::new(),
            crashes: 0,
            failures: 0,
            audited: 0,
        }
    }

    fn add(&mut self, report: &Report) {
        self.cycles += report.cycles as f64;
        self.counters.push(report.counters);
        let CrashReport { crashes, failures, images, .. } = &report.crashes;
        self.crashes += crashes;
        self.failures += failures;
        self.audited += images.len() as u64;
    }

    fn sum(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        self.counters.iter().map(of).sum::<u64>() as f64
    }

    /// Returns orders in a million cycles.
    fn throughput(&self) -> f64 {
        self.sum(|counts| counts.operations) * 1e6 / self.cycles
    }

    /// Returns a count for each order.
    fn each(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        self.sum(of) / self.sum(|counts| counts.operations)
    }

    /// Returns the share that such cycles have in the terminals' time.
    fn of_time(&self, of: impl Fn(&Counters) -> u64) -> f64 {
        self.sum(of) / (self.cycles * self.terminals)
    }

    fn sourced_share(&self) -> f64 {
        self.sum(|counts| counts.sourced) / self.sum(|counts| counts.entries)
    }

    fn describe(&self, name: &str, by_base: f64) -> String {
        format!(
            "{name}: {by_base:.3} of BASE, {:.1} orders in a million cycles; for each {:.1} log entries, {:.1} log \
             writes, {:.1} data writes, {:.1} lines read from memory; {}; channels are busy {:.1} %.",
            self.throughput(),
            self.each(|counts| counts.entries),
            self.each(|counts| counts.log_lines + counts.headers),
            self.each(|counts| counts.data_writes),
            self.each(|counts| counts.data_reads),
            self.waits(),
            100.0 * self.sum(|counts| counts.channel_busy) / (self.cycles * self.channels),
        )
    }

    /// What terminals wait for, in words.
    fn waits(&self) -> String {
        let percent = |of: fn(&Counters) -> u64| 100.0 * self.of_time(of);
        format!(
            "terminals wait for locks {:.1} % of the time, for loads {:.1} %, for room in the store queue {:.1} %, for \
             an empty one {:.1} %",
            percent(|counts| counts.locks),
            percent(|counts| counts.loads),
            percent(|counts| counts.queue_full),
            percent(|counts| counts.drain),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Warehouse {
        let mut observe = |_: &_| {};
        let mut context = Context::new(crate::experiment::Effort::Tiny, &mut observe);
        Warehouse::new(&mut context).unwrap()
    }

    fn run(warehouse: &Warehouse, plan: Plan) -> Result<Report> {
        Run { warehouse: warehouse.clone(), plan, terminals: 32, work: 0 }.run()
    }

    #[test]
    fn crashes_leave_whole_orders() {
        let warehouse = small();
        for design in DESIGNS.into_iter().filter(|design| design.0 != Design::NonAtomic) {
            let mut plan = warehouse.plan(design.0, 5);
            plan.crashes = CrashPlan::Cycles { gap: 1_000, most: 200, keep: 5 };
            let report = run(&warehouse, plan).unwrap();
            let crashes = report.crashes;
            assert_eq!((crashes.failures, crashes.first), (0, None), "{}", design.1);
            assert!(crashes.images.len() > 20, "{}: {} images", design.1, crashes.images.len());
        }
    }

    #[test]
    fn crashes_without_a_log_are_noticed() {
        let warehouse = small();
        let mut plan = warehouse.plan(Design::NonAtomic, 5);
        plan.crashes = CrashPlan::Cycles { gap: 1_000, most: 200, keep: 5 };
        assert!(matches!(run(&warehouse, plan), Err(Error::Audit(_))));
    }

    #[test]
    fn runs_are_repeated_exactly() {
        let warehouse = small();
        let plan = warehouse.plan(Design::AtomOpt, 6);
        let (one, other) = (run(&warehouse, plan.clone()).unwrap(), run(&warehouse, plan).unwrap());
        assert_eq!((one.digest, one.cycles, one.counters), (other.digest, other.cycles, other.counters));
    }
}
