//! The state of a run, and the loop that takes one event after another.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::cache::Cache;
use super::commit::Slots;
use super::controller::{Controller, Write};
use super::counters::Counters;
use super::cpu::{Cpu, Mailbox};
use super::crash::Crashes;
use super::description::Machine;
use super::events::{Event, Events, Request};
use super::front_end::{Core, LockState, Wait};
use super::hierarchy::{PrivateLine, SharedLine};
use super::log_manager::LogManager;
use super::mesh::{Mesh, Node};
use super::nvm::Values;
use super::redo::Backend;
use super::{Cycle, Design, Error, Fault, Plan, Report, Setup};
use crate::fiber::Fiber;
use crate::schedule::Chance;

/// Lines of a core's stack that its stores go to in turn.
pub(super) const STACK_LINES: usize = 4;

/// A run.
pub(super) struct System {
    pub(super) plan: Plan,
    pub(super) now: Cycle,
    pub(super) events: Events,
    pub(super) mesh: Mesh,
    pub(super) cores: Vec<Core>,
    pub(super) private: Vec<Cache<PrivateLine>>,
    pub(super) shared: Vec<Cache<SharedLine>>,
    /// Lines that the directory is dealing with, and the requests that wait for it.
    pub(super) busy: Vec<bool>,
    pub(super) blocked: BTreeMap<u32, VecDeque<Request>>,
    pub(super) controllers: Vec<Controller>,
    pub(super) managers: Vec<LogManager>,
    /// Locks on each line by record headers.
    pub(super) locked: Vec<u8>,
    pub(super) writes: Vec<Option<Write>>,
    pub(super) free_writes: Vec<u32>,
    pub(super) values: Values,
    pub(super) locks: Vec<LockState>,
    pub(super) slots: Slots,
    pub(super) backend: Backend,
    pub(super) counters: Counters,
    pub(super) chance: Chance,
    pub(super) error: Option<Error>,
    pub(super) measured: Measured,
}

/// The measured part of a run.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) done: u64,
    pub(super) start: Option<(Cycle, Counters)>,
    pub(super) end: Option<(Cycle, Counters)>,
}

impl System {
    fn new(plan: &Plan, setup: Setup) -> Self {
        let machine = &plan.machine;
        let cores = machine.core.cores;
        assert!((1..=cores).contains(&setup.programs.len()), "there is a program for each core at most");
        let values = Values::new(machine, setup.image, setup.locks + cores * STACK_LINES);
        let lines = values.nvm.len();
        let controllers = machine.memory.controllers;
        let channels = 1 + usize::from(plan.design == Design::RedoTwoChannels);
        let mut system = Self {
            now: 0,
            events: Events::default(),
            mesh: Mesh::new(machine, plan.seed),
            private: (0..cores).map(|_| Cache::new(machine.l1.lines, machine.l1.ways, 1)).collect(),
            shared: (0..machine.l2.tiles)
                .map(|_| Cache::new(machine.l2.lines, machine.l2.ways, machine.l2.tiles))
                .collect(),
            busy: vec![false; lines],
            blocked: BTreeMap::new(),
            controllers: (0..controllers).map(|_| Controller::new(channels, machine.memory.banks)).collect(),
            managers: (0..controllers).map(|_| LogManager::new(machine)).collect(),
            locked: vec![0; lines],
            writes: Vec::new(),
            free_writes: Vec::new(),
            values,
            locks: (0..setup.locks).map(|_| LockState::default()).collect(),
            slots: Slots::new(machine),
            backend: Backend::new(machine),
            counters: Counters::default(),
            chance: Chance::new(plan.seed),
            error: None,
            measured: Measured::default(),
            cores: Vec::new(),
            plan: plan.clone(),
        };
        if plan.warm_up == 0 {
            system.measured.start = Some((0, system.counters));
        }
        for (number, program) in setup.programs.into_iter().enumerate() {
            let mailbox = Rc::new(Mailbox::default());
            let (theirs, design) = (Rc::clone(&mailbox), plan.design);
            let fiber = Fiber::new(move |yielder| program(&mut Cpu::new(theirs, yielder, design, number)))
                .expect("there is memory for a program's stack");
            system.cores.push(Core::new(fiber, mailbox, machine));
            system.events.push(0, Event::Core { core: number as u8 });
        }
        system
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.plan.machine
    }

    pub(super) fn has(&self, fault: Fault) -> bool {
        self.plan.fault == Some(fault)
    }

    /// Lets `event` happen `delay` cycles from now.
    pub(super) fn after(&mut self, delay: Cycle, event: Event) {
        self.events.push(self.now + delay, event);
    }

    /// Sends a message over the mesh.
    pub(super) fn send(&mut self, from: Node, to: Node, data: bool, event: Event) {
        let delay = self.mesh.send(from, to, data);
        self.after(delay, event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::BankDone { mc, channel, bank } => {
                self.bank_done(usize::from(mc), usize::from(channel), usize::from(bank));
            }
            Event::TileArrive(request) => self.tile_arrive(request),
            Event::TileLook(request) => self.tile_look(request),
            Event::Fill { request, log } => self.fill(request, log),
            Event::ReadArrives(request) => self.read_arrives(request),
            Event::ReadReturns { request, log } => self.read_returns(request, log),
            Event::WriteArrives { mc, write } => self.write_arrives(usize::from(mc), write),
            Event::FlushArrives { mc, core, line } => self.flush_arrives(usize::from(mc), core, line),
            Event::FlushAck { core, line } => self.flush_acknowledged(usize::from(core), line),
            Event::LogAck { core } => self.log_acknowledged(usize::from(core)),
            Event::BeginArrives { core } => self.begin_arrives(core),
            Event::BeginAck { core, slot } => self.begin_acknowledged(usize::from(core), slot),
            Event::SlotReturns { slot } => self.slot_returns(slot),
            Event::EndArrives { mc, core, slot, outer } => self.end_arrives(usize::from(mc), core, slot, outer),
            Event::EndAck { core } => self.end_acknowledged(usize::from(core)),
            Event::ClearArrives { mc, core, slot, outer } => self.clear_arrives(usize::from(mc), core, slot, outer),
            Event::ClearAck { core } => self.clear_acknowledged(usize::from(core)),
            Event::Grown { mc } => self.log_grown(usize::from(mc)),
            Event::Redo { core, step, number } => self.redo_step(usize::from(core), step, number),
            Event::Schedule { mc, channel } => self.schedule(usize::from(mc), usize::from(channel)),
            Event::Drain { core } => self.drain(usize::from(core)),
            Event::Core { core } => self.advance(usize::from(core)),
        }
    }

    fn waiting(&self) -> String {
        let describe = |(number, core): (usize, &Core)| match core.wait {
            Wait::Ended => None,
            wait => Some(format!("core {number}: {wait:?}, store queue: {}", core.head())),
        };
        self.cores.iter().enumerate().filter_map(describe).collect::<Vec<_>>().join("; ")
    }
}

/// Runs programs on a machine.
///
/// # Errors
/// If the log is full or nothing can go on; see [`Error`]. Crashes that recovery does not mend are
/// no error but counted in [`Report::crashes`].
pub fn run(plan: &Plan, setup: Setup) -> Result<Report, Error> {
    let mut system = System::new(plan, setup);
    let mut crashes = Crashes::new(plan);
    let (mut events, mut digest) = (0u64, 0u64);
    while let Some((at, event)) = system.events.pop() {
        crashes.before(&system, at);
        system.now = at;
        events += 1;
        digest = (digest ^ at ^ word(event)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        system.handle(event);
        crashes.after(&system);
        if system.error.is_some() || crashes.is_enough() {
            break;
        }
    }
    let ended = system.cores.iter().all(|core| core.wait == Wait::Ended);
    let waiting = system.waiting();
    for core in &mut system.cores {
        if let Some(fiber) = core.fiber.take() {
            fiber.discard();
        }
    }
    if let Some(error) = system.error {
        return Err(error);
    }
    if !ended && !crashes.is_enough() {
        return Err(Error::Stuck { cycle: system.now, waiting });
    }
    let busiest_link = system.mesh.busiest() * 1000 / system.now.max(1);
    if busiest_link > 500 {
        return Err(Error::Link(busiest_link));
    }
    let (start, before) = system.measured.start.unwrap_or_default();
    let (end, after) = system.measured.end.unwrap_or((system.now, system.counters));
    Ok(Report {
        cycles: end - start,
        counters: after.since(&before),
        total: system.counters,
        all_cycles: system.now,
        events,
        digest,
        crashes: crashes.report(),
        busiest_link,
        image: system.values.coherent[..system.values.scratch as usize].to_vec(),
    })
}

/// A number that tells events apart.
fn word(event: Event) -> u64 {
    let number = |kind: u64, a: u64, b: u64| kind << 56 | a << 40 | b;
    let of = |kind, request: Request| number(kind, u64::from(request.core), u64::from(request.line));
    match event {
        Event::BankDone { mc, channel, bank } => number(1, u64::from(mc), u64::from(channel) << 8 | u64::from(bank)),
        Event::TileArrive(request) => of(2, request),
        Event::TileLook(request) => of(3, request),
        Event::Fill { request, log } => of(4 + u64::from(log), request),
        Event::ReadArrives(request) => of(6, request),
        Event::ReadReturns { request, log } => of(7 + u64::from(log), request),
        Event::WriteArrives { mc, write } => number(9, u64::from(mc), u64::from(write)),
        Event::FlushArrives { core, line, .. } => number(10, u64::from(core), u64::from(line)),
        Event::FlushAck { core, line } => number(11, u64::from(core), u64::from(line)),
        Event::LogAck { core } => number(12, u64::from(core), 0),
        Event::BeginArrives { core } => number(13, u64::from(core), 0),
        Event::BeginAck { core, slot } => number(14, u64::from(core), u64::from(slot)),
        Event::SlotReturns { slot } => number(15, 0, u64::from(slot)),
        Event::EndArrives { mc, core, slot, .. } => number(16, u64::from(core), u64::from(mc) << 8 | u64::from(slot)),
        Event::EndAck { core } => number(17, u64::from(core), 0),
        Event::ClearArrives { mc, core, slot, .. } => number(18, u64::from(core), u64::from(mc) << 8 | u64::from(slot)),
        Event::ClearAck { core } => number(19, u64::from(core), 0),
        Event::Grown { mc } => number(20, u64::from(mc), 0),
        Event::Redo { core, step, number: of } => number(21 + u64::from(step), u64::from(core), u64::from(of)),
        Event::Schedule { mc, channel } => number(40, u64::from(mc), u64::from(channel)),
        Event::Drain { core } => number(41, u64::from(core), 0),
        Event::Core { core } => number(42, u64::from(core), 0),
    }
}
