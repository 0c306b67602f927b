//! Cores up to the store queue: they execute what programs ask for, and run ahead of the model's
//! clock until something stops them.

use std::ops::Range;

use super::core_state::{Entry, Kind, Wait};
use super::cpu::Ask;
use super::events::{Event, NO_SLOT, Request, Want};
use super::mesh::Node;
use super::system::{STACK_LINES, System};
use super::{Cycle, LINE_BYTES, Scope};

/// Whether a request is done.
enum Progress {
    Done,
    Waits(Wait),
}

impl System {
    /// Lets a front end go on until it must wait or is too far ahead.
    pub(super) fn advance(&mut self, c: usize) {
        loop {
            let core = &mut self.cores[c];
            if core.wait != Wait::Nothing {
                return;
            }
            core.time = core.time.max(self.now * 10);
            let cycle = core.time / 10;
            if cycle > self.now + self.plan.machine.core.run_ahead {
                self.events.push(cycle, Event::Core { core: c as u8 });
                return;
            }
            if core.ask.is_none() && !self.next_ask(c) {
                return;
            }
            let progress = if self.execute_work(c) { self.execute(c) } else { Progress::Waits(Wait::QueueSpace) };
            let core = &mut self.cores[c];
            match progress {
                Progress::Done => {
                    core.ask = None;
                    core.step = 0;
                }
                Progress::Waits(wait) => core.wait = wait,
            }
        }
    }

    /// Resumes the program until it asks for something; returns whether it did.
    fn next_ask(&mut self, c: usize) -> bool {
        let core = &mut self.cores[c];
        let fiber = core.fiber.as_mut().expect("the program has not ended");
        let ended = fiber.resume();
        core.work += core.mailbox.work.take();
        if ended {
            core.wait = Wait::Ended;
            if let Some(fiber) = core.fiber.take() {
                fiber.discard();
            }
            return false;
        }
        core.ask = core.mailbox.ask.take();
        // The request is an instruction, too.
        core.work += 1;
        true
    }

    /// Executes instructions without memory, and in a region their stores to the stack; returns
    /// whether all are done.
    fn execute_work(&mut self, c: usize) -> bool {
        let per_ten = self.plan.machine.core.cycles_per_ten;
        let core = &mut self.cores[c];
        if core.depth == 0 || self.plan.scope == Scope::Persistent {
            core.time += std::mem::take(&mut core.work) * per_ten;
            return true;
        }
        loop {
            let core = &mut self.cores[c];
            let step = core.work.min(10 - core.since_stack);
            core.time += step * per_ten;
            core.work -= step;
            core.since_stack += step;
            if core.since_stack < 10 {
                return true;
            }
            let line = self.stack_line(c);
            let core = &mut self.cores[c];
            let address = u64::from(line) * LINE_BYTES as u64;
            let value = core.time;
            if !self.enqueue(c, Kind::Store { address, value, second: None }) {
                return false;
            }
            let core = &mut self.cores[c];
            core.since_stack = 0;
            core.next_stack = (core.next_stack + 1) % STACK_LINES;
        }
    }

    fn stack_line(&self, c: usize) -> u32 {
        self.stack_lines(c).start + self.cores[c].next_stack as u32
    }

    /// The lines of a core's stack.
    pub(super) fn stack_lines(&self, c: usize) -> Range<u32> {
        let first = (self.values.scratch as usize + self.locks.len() + c * STACK_LINES) as u32;
        first..first + STACK_LINES as u32
    }

    pub(super) fn lock_line(&self, lock: usize) -> u32 {
        self.values.scratch + lock as u32
    }

    fn execute(&mut self, c: usize) -> Progress {
        let ask = self.cores[c].ask.expect("there is a request");
        match ask {
            Ask::Load(address) => self.execute_load(c, address),
            Ask::Read(address, len) => self.execute_read(c, address, len),
            Ask::Store(address, value, second) => self.execute_queued(c, Kind::Store { address, value, second }),
            Ask::Flush(line) => self.execute_queued(c, Kind::Flush { line, done: false }),
            Ask::Fence => self.execute_queued(c, Kind::Fence),
            Ask::Begin(outer) => {
                let progress = self.execute_queued(c, Kind::Begin { outer });
                self.cores[c].depth += usize::from(matches!(progress, Progress::Done));
                progress
            }
            Ask::End(outer) => {
                let progress = self.execute_queued(c, Kind::End { outer });
                self.cores[c].depth -= usize::from(matches!(progress, Progress::Done));
                progress
            }
            Ask::Lock(lock) => self.execute_lock(c, lock),
            Ask::Unlock(lock) => self.execute_queued(c, Kind::Unlock { lock }),
            Ask::Done => {
                self.operation_done(c);
                Progress::Done
            }
        }
    }

    fn execute_queued(&mut self, c: usize, kind: Kind) -> Progress {
        if self.enqueue(c, kind) { Progress::Done } else { Progress::Waits(Wait::QueueSpace) }
    }

    /// Puts an entry into the store queue, if there is room.
    fn enqueue(&mut self, c: usize, kind: Kind) -> bool {
        let core = &mut self.cores[c];
        if core.queue.len() == self.plan.machine.core.store_queue {
            return false;
        }
        let at = core.time / 10;
        core.queue.push_back(Entry { kind, at });
        if core.queue.len() == 1 || matches!(kind, Kind::Flush { .. }) {
            self.drain_from(c, at);
        }
        true
    }

    fn execute_load(&mut self, c: usize, address: u64) -> Progress {
        let line = (address / LINE_BYTES as u64) as u32;
        let queued = self.queued_word(c, address);
        if queued.is_none() && self.cores[c].step == 0 && self.private[c].touch(line).is_none() {
            self.cores[c].step = 1;
            self.cores[c].loads = 1;
            self.request(c, line, Want::Load);
            return Progress::Waits(Wait::Loads);
        }
        let latency = self.plan.machine.l1.latency;
        let core = &mut self.cores[c];
        core.time += latency * 10;
        core.mailbox.answer.set(queued.unwrap_or_else(|| self.values.word(address)));
        Progress::Done
    }

    /// The newest value for a word in the store queue.
    fn queued_word(&self, c: usize, address: u64) -> Option<u64> {
        self.cores[c].queue.iter().rev().find_map(|entry| match entry.kind {
            Kind::Store { address: of, value, .. } if of & !7 == address => Some(value),
            Kind::Store { address: of, second, .. } if of + 8 == address => second,
            _ => None,
        })
    }

    /// Independent loads: `step` counts the lines that were looked up.
    fn execute_read(&mut self, c: usize, address: u64, len: usize) -> Progress {
        let (first, last) = (address / LINE_BYTES as u64, (address + len as u64 - 1) / LINE_BYTES as u64);
        let lines = (last - first + 1) as usize;
        while self.cores[c].step < lines && self.cores[c].loads < self.plan.machine.core.reads_at_once {
            let line = first as u32 + self.cores[c].step as u32;
            self.cores[c].step += 1;
            // Eight loads of a word for each line.
            self.cores[c].time += 8 * self.plan.machine.core.cycles_per_ten;
            if self.private[c].touch(line).is_none() {
                self.cores[c].loads += 1;
                self.request(c, line, Want::Load);
            }
        }
        if self.cores[c].loads > 0 {
            return Progress::Waits(Wait::Loads);
        }
        self.cores[c].time += self.plan.machine.l1.latency * 10;
        let before = address % 8;
        let words = (address - before..address + len as u64).step_by(8);
        let words = words.map(|at| self.queued_word(c, at).unwrap_or_else(|| self.values.word(at)));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).skip(before as usize).take(len).collect();
        self.cores[c].mailbox.bytes.replace(bytes);
        Progress::Done
    }

    /// A locked instruction: it drains the store queue, needs the line for itself and then the
    /// lock. Steps: 0 not begun, 1 needs the line, 2 has been handed the lock and needs the line.
    fn execute_lock(&mut self, c: usize, lock: usize) -> Progress {
        if !self.cores[c].queue.is_empty() {
            return Progress::Waits(Wait::Drained);
        }
        let line = self.lock_line(lock);
        if !self.private[c].touch(line).is_some_and(|state| state.is_owned()) {
            self.request(c, line, Want::Lock);
            return Progress::Waits(Wait::LockLine);
        }
        if let Some(state) = self.private[c].get_mut(line) {
            state.make_dirty();
        }
        let locked = self.plan.machine.core.locked;
        self.cores[c].time += locked * 10;
        let state = &mut self.locks[lock];
        if state.holder.is_none() || state.holder == Some(c) {
            state.holder = Some(c);
            return Progress::Done;
        }
        state.waiters.push_back(c);
        Progress::Waits(Wait::Lock)
    }

    /// Sends a request to the line's tile.
    pub(super) fn request(&mut self, c: usize, line: u32, want: Want) {
        let slot = if want == Want::Store && self.cores[c].in_region { self.cores[c].slot } else { NO_SLOT };
        let request = Request { core: c as u8, want, slot, line };
        let delay = self.mesh.send(Node::Tile(c), Node::Tile(self.machine().tile_of(line)), false);
        // A request of the front end leaves at its own time.
        let from = if want == Want::Load || want == Want::Lock { self.cores[c].time / 10 } else { self.now };
        self.events.push(from.max(self.now) + delay, Event::TileArrive(request));
    }

    /// A line for a load is there.
    pub(super) fn loaded(&mut self, c: usize) {
        let core = &mut self.cores[c];
        core.loads -= 1;
        let enough = core.loads == 0 || matches!(core.ask, Some(Ask::Read(..))) && core.step < self.lines_of(c);
        if enough && self.cores[c].wait == Wait::Loads {
            let waited = self.resume(c);
            self.counters.loads += waited;
        }
    }

    /// Lines of the read under way.
    fn lines_of(&self, c: usize) -> usize {
        match self.cores[c].ask {
            Some(Ask::Read(address, len)) => {
                ((address + len as u64 - 1) / LINE_BYTES as u64 - address / LINE_BYTES as u64 + 1) as usize
            }
            _ => 1,
        }
    }

    /// Lets a waiting front end go on now; returns for how many cycles it was stopped.
    pub(super) fn resume(&mut self, c: usize) -> Cycle {
        let core = &mut self.cores[c];
        let waited = (self.now * 10).saturating_sub(core.time);
        core.time += waited;
        core.wait = Wait::Nothing;
        self.events.push(self.now, Event::Core { core: c as u8 });
        waited / 10
    }

    /// An entry has left the store queue.
    pub(super) fn left_queue(&mut self, c: usize) {
        match self.cores[c].wait {
            Wait::QueueSpace => {
                let waited = self.resume(c);
                self.counters.queue_full += waited;
            }
            Wait::Drained if self.cores[c].queue.is_empty() => {
                let waited = self.resume(c);
                self.counters.drain += waited;
            }
            _ => {}
        }
    }

    /// The line of a lock is there.
    pub(super) fn lock_line_filled(&mut self, c: usize) {
        if self.cores[c].wait == Wait::LockLine {
            let waited = self.resume(c);
            self.counters.loads += waited;
        }
    }

    /// A lock was released: it goes to the core that has waited longest.
    pub(super) fn released(&mut self, c: usize, lock: usize) {
        let state = &mut self.locks[lock];
        assert_eq!(state.holder, Some(c), "a core releases the locks that it holds");
        state.holder = state.waiters.pop_front();
        if let Some(next) = state.holder {
            let waited = self.resume(next);
            self.counters.locks += waited;
        }
    }

    /// A program reports an operation; the answer is whether it is to do another.
    fn operation_done(&mut self, c: usize) {
        self.counters.operations += 1;
        let measured = &mut self.measured;
        measured.done += 1;
        if measured.done == self.plan.warm_up {
            measured.start = Some((self.now, self.counters));
        }
        if measured.done == self.plan.warm_up + self.plan.operations {
            measured.end = Some((self.now, self.counters));
        }
        let more = measured.end.is_none();
        self.cores[c].mailbox.answer.set(u64::from(more));
    }
}
