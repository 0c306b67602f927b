//! From the store queue to the private cache: stores leave in order, one at a time, and LogI
//! initiates a log write for the first store of an update to each line.

use super::core_state::{Entry, Head, Kind, Wait};
use super::events::{Event, Want};
use super::mesh::Node;
use super::nvm::set_word_of;
use super::queues::{Purpose, Write};
use super::system::System;
use super::{Cycle, Design, Fault, LINE_BYTES};

/// What became of the head.
enum Outcome {
    /// It has left.
    Left,
    /// It waits.
    Stays,
}

impl System {
    /// Lets the store queue go on at cycle `at`, or earlier if it is to already.
    pub(super) fn drain_from(&mut self, c: usize, at: Cycle) {
        let at = at.max(self.now);
        if self.cores[c].drain_at.is_none_or(|planned| at < planned) {
            self.cores[c].drain_at = Some(at);
            self.events.push(at, Event::Drain { core: c as u8 });
        }
    }

    /// The head need not wait any more.
    pub(super) fn free_head(&mut self, c: usize) {
        self.cores[c].head = Head::Free;
        self.drain_from(c, self.now);
    }

    pub(super) fn drain(&mut self, c: usize) {
        if self.cores[c].drain_at != Some(self.now) {
            return;
        }
        self.cores[c].drain_at = None;
        let mut at = self.now;
        while let Some(&Entry { kind, at: entered }) = self.cores[c].queue.front() {
            if self.cores[c].head != Head::Free {
                return;
            }
            let is_store = matches!(kind, Kind::Store { .. });
            // Stores that need nothing leave one in a cycle; what comes after them waits its turn.
            if entered > at || at > self.now && (!is_store || self.is_watched(c)) {
                return self.drain_from(c, entered.max(at));
            }
            let outcome = match kind {
                Kind::Store { address, value, second } => {
                    if at > self.now && !self.is_ready(c, address) {
                        return self.drain_from(c, at);
                    }
                    self.store(c, address, value, second)
                }
                Kind::Flush { done, .. } => self.flush(c, done),
                Kind::Fence => Outcome::Left,
                Kind::Begin { outer } => self.begin(c, outer),
                Kind::End { outer } => self.end(c, outer),
                Kind::Unlock { lock } => self.unlock(c, lock),
            };
            match outcome {
                Outcome::Left => self.pop(c),
                Outcome::Stays => return,
            }
            at += Cycle::from(is_store);
        }
    }

    /// Whether the front end waits for entries to leave.
    fn is_watched(&self, c: usize) -> bool {
        matches!(self.cores[c].wait, Wait::QueueSpace | Wait::Drained)
    }

    fn pop(&mut self, c: usize) {
        self.cores[c].queue.pop_front();
        self.left_queue(c);
    }

    /// Whether a store to `address` would need no message.
    fn is_ready(&self, c: usize, address: u64) -> bool {
        let core = &self.cores[c];
        let state = self.private[c].get((address / LINE_BYTES as u64) as u32);
        let logged = |epoch| !core.in_region || !self.plan.design.is_undo() || epoch == core.epoch;
        !self.plan.design.is_redo() && state.is_some_and(|state| state.is_owned() && logged(state.log_epoch()))
    }

    fn store(&mut self, c: usize, address: u64, value: u64, second: Option<u64>) -> Outcome {
        let line = (address / LINE_BYTES as u64) as u32;
        let epoch = self.cores[c].epoch;
        let Some(state) = self.private[c].touch(line).filter(|state| state.is_owned()) else {
            self.cores[c].head = Head::Line;
            self.request(c, line, Want::Store);
            return Outcome::Stays;
        };
        if self.cores[c].in_region {
            if self.plan.design.is_undo() && state.log_epoch() != epoch {
                self.initiate_log(c, line, address, value);
                return Outcome::Stays;
            }
            if self.plan.design.is_redo() && !self.redo_store(c, address, value, second) {
                self.cores[c].head = Head::Redo;
                return Outcome::Stays;
            }
        }
        self.private[c].touch(line).expect("the line is there").make_dirty();
        self.values.set_word(address, value);
        if let Some(second) = second {
            self.values.set_word(address + 8, second);
        }
        self.counters.stores += 1;
        if line >= self.values.scratch && self.follows_stacks() {
            self.values.stack_stored(line);
        }
        if self.cores[c].in_region && line < self.values.scratch {
            let writer = &mut self.values.writer[line as usize];
            if *writer == 0 {
                *writer = c as u8 + 1;
                self.cores[c].written.push(line);
            }
            assert_eq!(usize::from(*writer), c + 1, "two open updates write line {line}: undo restores whole lines");
        }
        Outcome::Left
    }

    /// LogI: sends the line as it is to its controller; the store waits.
    fn initiate_log(&mut self, c: usize, line: u32, address: u64, value: u64) {
        let mut bytes = self.values.coherent[line as usize];
        if self.has(Fault::CopiedAfterStore) {
            set_word_of(&mut bytes, (address % LINE_BYTES as u64) as usize & !7, value);
        }
        let mut mc = self.machine().controller_of(line);
        if self.has(Fault::OtherController) {
            mc = (mc + 1) % self.controllers.len();
        }
        let slot = self.cores[c].slot;
        let write = self.new_write(Write::new(Purpose::Entry { core: c as u8, slot, line }, bytes));
        self.cores[c].head = Head::Log(line);
        self.send(Node::Tile(c), Node::Controller(mc), true, Event::WriteArrives { mc: mc as u8, write });
    }

    /// The controller has the entry: the line's log bit is set, if the line is still there.
    pub(super) fn log_acknowledged(&mut self, c: usize) {
        let Head::Log(line) = self.cores[c].head else { unreachable!("the head waits for this") };
        let epoch = self.cores[c].epoch;
        if let Some(state) = self.private[c].get_mut(line) {
            state.set_log(epoch);
        }
        self.free_head(c);
    }

    /// Flushes at the head go out one in a cycle, without waiting for each other.
    fn flush(&mut self, c: usize, done: bool) -> Outcome {
        let core = &self.cores[c];
        let next = core.queue.get(core.flushing);
        if core.flushing < self.plan.machine.core.flushes_at_once
            && let Some(&Entry { kind: Kind::Flush { line, .. }, at }) = next
        {
            if at > self.now {
                self.drain_from(c, at);
            } else {
                self.cores[c].flushing += 1;
                self.request(c, line, Want::Flush);
                self.drain_from(c, self.now + 1);
            }
        }
        if done || self.has(Fault::EndBeforeFlushes) && self.cores[c].flushing > 0 {
            self.cores[c].flushing -= 1;
            return Outcome::Left;
        }
        Outcome::Stays
    }

    /// What was flushed is durable: the entry may leave, and the line's log bit is cleared.
    pub(super) fn flush_acknowledged(&mut self, c: usize, line: u32) {
        if let Some(state) = self.private[c].get_mut(line) {
            state.set_log(0);
        }
        let core = &mut self.cores[c];
        let flushing = core.flushing;
        for entry in core.queue.iter_mut().take(flushing) {
            match &mut entry.kind {
                Kind::Flush { line: of, done } if *of == line && !*done => {
                    *done = true;
                    break;
                }
                _ => {}
            }
        }
        self.drain_from(c, self.now);
    }

    fn begin(&mut self, c: usize, outer: bool) -> Outcome {
        let has_log = self.plan.design.is_undo();
        if outer && has_log {
            if self.cores[c].clears > 0 && !self.has(Fault::BeginBeforeClears) {
                self.cores[c].head = Head::Clears;
                return Outcome::Stays;
            }
            if !self.take_slot(c) {
                self.cores[c].head = Head::Slot;
                return Outcome::Stays;
            }
        }
        self.cores[c].in_region = true;
        Outcome::Left
    }

    fn end(&mut self, c: usize, outer: bool) -> Outcome {
        if !outer && !self.has(Fault::InnerEndCommits) {
            return Outcome::Left;
        }
        match self.plan.design {
            Design::Base | Design::Atom | Design::AtomOpt => {
                self.cores[c].head = Head::End;
                self.send_end(c, outer);
                Outcome::Stays
            }
            Design::NonAtomic => {
                self.commit_values(c);
                self.cores[c].in_region = false;
                Outcome::Left
            }
            Design::Redo | Design::RedoTwoChannels if outer => {
                self.cores[c].head = Head::Redo;
                self.redo_end(c);
                Outcome::Stays
            }
            Design::Redo | Design::RedoTwoChannels => Outcome::Left,
        }
    }

    /// The update is committed: the head leaves.
    pub(super) fn end_left(&mut self, c: usize, outer: bool) {
        let keeps_bits = self.has(Fault::BitKeptAcrossEnd);
        let core = &mut self.cores[c];
        if outer {
            core.in_region = false;
        }
        if !keeps_bits {
            core.epoch += 1;
        }
        core.head = Head::Free;
        self.pop(c);
        self.drain_from(c, self.now);
    }

    fn unlock(&mut self, c: usize, lock: usize) -> Outcome {
        let line = self.lock_line(lock);
        if !self.private[c].touch(line).is_some_and(|state| state.is_owned()) {
            self.cores[c].head = Head::Line;
            self.request(c, line, Want::Store);
            return Outcome::Stays;
        }
        self.private[c].touch(line).expect("the line is there").make_dirty();
        self.released(c, lock);
        Outcome::Left
    }
}
