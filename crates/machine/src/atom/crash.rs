//! Crashes: observations of a run that goes on. What lies in caches and queues is lost; a write
//! that a bank is busy with is absent, whole, or torn between words of 8 bytes. Recovery runs on
//! what is left, and then every line must have its committed value.

use std::collections::BTreeMap;

use super::nvm::{Values, torn};
use super::queues::{Access, Purpose};
use super::recovery::{Geometry, Image, Place, Recovered, recover_with};
use super::redo::recover_redo;
use super::system::System;
use super::{Bytes, Cycle, Fault, Plan};
use crate::schedule::Chance;

/// One in so many crashes also cuts recovery off, and repeats it.
const CUT_ONE_IN: u64 = 100;

/// Which crashes a run is to be observed at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashPlan {
    /// None.
    None,
    /// After every event.
    Events {
        /// Crashes there, which differ in the fates of interrupted writes.
        fates: u32,
        /// Ends the run at the first crash that recovery does not mend.
        stop: bool,
    },
    /// At random cycles.
    Cycles {
        /// How far they are apart, on average.
        gap: Cycle,
        /// The most of them.
        most: u64,
        /// One in so many recovered images is kept.
        keep: u64,
    },
}

/// Rare cases that crashes met, and how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Probes {
    /// Records with fewer than seven entries that were undone.
    pub partial_records: u64,
    /// Crashes after which a line was undone more than once.
    pub logged_twice: u64,
    /// Entries undone that the controller had made of what it read.
    pub sourced: u64,
    /// Records undone that came from full buckets.
    pub from_full_buckets: u64,
    /// Logs ignored because of their phase.
    pub phases_differ: u64,
    /// Headers torn.
    pub torn_headers: u64,
    /// Recoveries cut off.
    pub cut: u64,
}

/// What crashes showed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CrashReport {
    /// Crashes observed.
    pub crashes: u64,
    /// Those after which memory was not as committed.
    pub failures: u64,
    /// The first of them, in words.
    pub first: Option<String>,
    /// Operations that were done at the first failure.
    pub operations_before: u64,
    /// Rare cases.
    pub probes: Probes,
    /// Recovered images that were kept.
    pub images: Vec<Vec<Bytes>>,
}

/// The crashes of a run.
#[derive(Debug)]
pub(super) struct Crashes {
    plan: CrashPlan,
    chance: Chance,
    next: Cycle,
    report: CrashReport,
}

impl Crashes {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut crashes = Self {
            plan: plan.crashes,
            // Not the sequence of the latencies: crashes change nothing in the run.
            chance: Chance::new(plan.seed ^ 0x00c0_ffee_0000_0000),
            next: 0,
            report: CrashReport::default(),
        };
        crashes.plan_next();
        crashes
    }

    fn plan_next(&mut self) {
        if let CrashPlan::Cycles { gap, .. } = self.plan {
            self.next += 1 + self.chance.below(2 * gap);
        }
    }

    /// The next event is at `at`: until then everything stays as it is.
    pub(super) fn before(&mut self, system: &System, at: Cycle) {
        let CrashPlan::Cycles { most, keep, .. } = self.plan else { return };
        while self.next < at && self.report.crashes < most {
            let keeps = self.report.crashes % keep == keep - 1;
            self.crash(system, keeps);
            self.plan_next();
        }
    }

    /// An event has happened.
    pub(super) fn after(&mut self, system: &System) {
        if let CrashPlan::Events { fates, .. } = self.plan {
            for _ in 0..fates {
                self.crash(system, false);
            }
        }
    }

    /// Whether the run need not go on.
    pub(super) fn is_enough(&self) -> bool {
        matches!(self.plan, CrashPlan::Events { stop: true, .. }) && self.report.failures > 0
    }

    pub(super) fn report(self) -> CrashReport {
        self.report
    }

    fn crash(&mut self, system: &System, keeps: bool) {
        let mut memory = Overlay::new(system, &mut self.chance, &mut self.report.probes);
        self.report.crashes += 1;
        if self.chance.below(CUT_ONE_IN) == 0 {
            memory.cut = Some((self.chance.below(24), Chance::new(self.chance.next())));
            self.report.probes.cut += 1;
            // A recovery that is cut off may find whatever it likes; the next one may not.
            let _ = recover_image(system, &mut memory);
            memory.power_off();
            memory.cut = None;
        }
        let problem = match recover_image(system, &mut memory) {
            Ok(recovered) => {
                self.note(system, &recovered);
                memory.first_difference(system)
            }
            Err(problem) => Some(problem),
        };
        if keeps {
            self.report.images.push(memory.data_lines());
        }
        if let Some(problem) = problem {
            if self.report.failures == 0 {
                self.report.first = Some(format!("cycle {}: {problem}", system.now));
                self.report.operations_before = system.counters.operations;
            }
            self.report.failures += 1;
        }
    }

    fn note(&mut self, system: &System, recovered: &Recovered) {
        let probes = &mut self.report.probes;
        probes.partial_records += recovered.partial;
        probes.from_full_buckets += recovered.from_full_buckets;
        probes.phases_differ += recovered.committed;
        let mut lines: Vec<u32> = recovered.undone.iter().map(|entry| entry.2).collect();
        lines.sort_unstable();
        probes.logged_twice += u64::from(lines.windows(2).any(|pair| pair[0] == pair[1]));
        let sourced = |entry: &&(u8, u32, u32)| system.values.sourced[usize::from(entry.0)][entry.1 as usize];
        probes.sourced += recovered.undone.iter().filter(sourced).count() as u64;
    }
}

fn recover_image(system: &System, memory: &mut Overlay<'_>) -> Result<Recovered, String> {
    let machine = system.machine();
    if system.plan.design.is_redo() {
        recover_redo(memory, machine);
        return Ok(Recovered::default());
    }
    recover_with(memory, Geometry::of(machine), system.plan.fault).map_err(|error| error.to_string())
}

/// Memory after a crash: what differs from the run's.
struct Overlay<'a> {
    values: &'a Values,
    changed: BTreeMap<Place, Bytes>,
    unfenced: Vec<(Place, Bytes)>,
    /// Writes until power fails again, and the fates of those that are not durable then.
    cut: Option<(u64, Chance)>,
    off: bool,
    /// Cores whose commit record a bank was busy with: it may be there or not.
    undecided: Vec<u8>,
}

impl<'a> Overlay<'a> {
    fn new(system: &'a System, chance: &mut Chance, probes: &mut Probes) -> Self {
        let mut memory = Self {
            values: &system.values,
            changed: BTreeMap::new(),
            unfenced: Vec::new(),
            cut: None,
            off: false,
            undecided: Vec::new(),
        };
        for (mc, controller) in system.controllers.iter().enumerate() {
            let banks = controller.channels.iter().flat_map(|channel| channel.banks.iter().flatten());
            for access in banks {
                let Access::Write(number) = access else { continue };
                let write = system.write(*number);
                let place = match write.purpose {
                    Purpose::Data { line } | Purpose::RedoPlace { line, .. } => Place::Data(line),
                    Purpose::LogLine { at, .. } | Purpose::Header { at, .. } | Purpose::RedoLog { at, .. } => {
                        Place::Log(mc as u8, at)
                    }
                    Purpose::Entry { .. } => continue,
                };
                if let Purpose::RedoLog { core, commits: true, .. } = write.purpose {
                    memory.undecided.push(core);
                }
                let whole = memory.interrupt(place, write.bytes, chance);
                let is_header = matches!(write.purpose, Purpose::Header { .. });
                probes.torn_headers += u64::from(is_header && whole.is_none());
            }
            let critical = if system.plan.design.is_redo() {
                system.backend.critical(mc)
            } else {
                system.managers[mc].critical(system.plan.fault).encode()
            };
            memory.changed.insert(Place::Critical(mc as u8, 0), critical[0]);
            memory.changed.insert(Place::Critical(mc as u8, 1), critical[1]);
        }
        memory
    }

    /// Power fails during a write: it is absent, whole, or torn. Returns whether it is whole, and
    /// nothing if it is torn.
    fn interrupt(&mut self, place: Place, bytes: Bytes, chance: &mut Chance) -> Option<bool> {
        let (fate, words) = (chance.below(3), chance.next() as u8);
        let old = self.durable(place);
        match fate {
            0 => Some(false),
            1 => {
                self.changed.insert(place, bytes);
                Some(true)
            }
            _ => {
                self.changed.insert(place, torn(&old, &bytes, words));
                None
            }
        }
    }

    fn durable(&self, place: Place) -> Bytes {
        if let Some(bytes) = self.changed.get(&place) {
            return *bytes;
        }
        match place {
            Place::Data(line) => self.values.nvm[line as usize],
            Place::Log(mc, at) => self.values.log[usize::from(mc)][at as usize],
            Place::Critical(..) => unreachable!("critical state was saved"),
        }
    }

    /// Power fails during recovery.
    fn power_off(&mut self) {
        let unfenced = std::mem::take(&mut self.unfenced);
        if let Some((_, mut chance)) = self.cut.take() {
            for (place, bytes) in unfenced {
                self.interrupt(place, bytes, &mut chance);
            }
        }
        self.off = false;
    }

    /// The first line that is not as committed, in words.
    fn first_difference(&self, system: &System) -> Option<String> {
        let is_wrong = |line: u32| {
            line < self.values.scratch && self.durable(Place::Data(line)) != self.values.committed[line as usize]
        };
        let changed = self.changed.keys().filter_map(|place| match place {
            Place::Data(line) => Some(*line),
            _ => None,
        });
        let mut wrong: Vec<u32> =
            self.values.differ.iter().copied().chain(changed).filter(|line| is_wrong(*line)).collect();
        self.accept_undecided(system, &mut wrong);
        if wrong.is_empty() && system.plan.design.is_undo() && !system.has(Fault::Broadcast) {
            return self.half_updated_stack();
        }
        wrong.first().map(|line| {
            let slot = self.values.writer[*line as usize];
            format!("line {line} is not as committed ({} lines are not), written by core {slot} less 1", wrong.len())
        })
    }

    /// An update may also be there as a whole while its commit is undecided: a bank was busy with
    /// its commit record; or, with the literal commit, only some controllers have cleared.
    fn accept_undecided(&self, system: &System, wrong: &mut Vec<u32>) {
        let is_literal = system.has(Fault::Broadcast);
        for (number, core) in system.cores.iter().enumerate() {
            let is_new = |line: &u32| self.durable(Place::Data(*line)) == self.values.coherent[*line as usize];
            let undecided = is_literal && core.clears > 0 || self.undecided.contains(&(number as u8));
            if undecided && core.written.iter().all(is_new) {
                wrong.retain(|line| !core.written.contains(line));
            }
        }
    }

    /// The first stack line with a value of an open update, in words.
    fn half_updated_stack(&self) -> Option<String> {
        let mut stacks = self.values.stacks.iter();
        let (line, _) = stacks.find(|(line, values)| !values.contains(&self.durable(Place::Data(**line))))?;
        Some(format!("stack line {line} has a value of an open update"))
    }

    fn data_lines(&self) -> Vec<Bytes> {
        (0..self.values.scratch).map(|line| self.durable(Place::Data(line))).collect()
    }
}

impl Image for Overlay<'_> {
    fn read(&self, place: Place) -> Bytes {
        let unfenced = self.unfenced.iter().rev().find(|write| write.0 == place);
        unfenced.map_or_else(|| self.durable(place), |write| write.1)
    }

    fn write(&mut self, place: Place, bytes: Bytes) {
        if self.off {
            return;
        }
        self.unfenced.push((place, bytes));
        if let Some((left, _)) = &mut self.cut {
            self.off = *left == 0;
            *left = left.saturating_sub(1);
        }
    }

    fn fence(&mut self) {
        if !self.off {
            for (place, bytes) in std::mem::take(&mut self.unfenced) {
                self.changed.insert(place, bytes);
            }
        }
    }

    fn lines(&self) -> u32 {
        self.values.nvm.len() as u32
    }
}
