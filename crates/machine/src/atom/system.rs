//! The state of a run.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use super::backend::Backend;
use super::cache::Cache;
use super::core_state::{Core, LockState};
use super::counters::Counters;
use super::cpu::{Cpu, Mailbox};
use super::description::Machine;
use super::events::{Event, Events, Request};
use super::lines::{PrivateLine, SharedLine};
use super::log_state::LogManager;
use super::mesh::{Mesh, Node};
use super::nvm::Values;
use super::queues::{Controller, Write};
use super::slots::Slots;
use super::{Cycle, Design, Error, Fault, Plan, Setup};
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
    pub(super) fn new(plan: &Plan, setup: Setup) -> Self {
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
            let (theirs, plan) = (Rc::clone(&mailbox), plan.clone());
            let fiber = Fiber::new(move |yielder| program(&mut Cpu::new(theirs, yielder, &plan, number)))
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
}
