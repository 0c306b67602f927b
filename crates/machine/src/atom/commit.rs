//! Begin and end of updates: slots, the commit point, and phases.
//!
//! The home controller of a slot decides: when it clears the slot's log, it flips the slot's phase,
//! and that is the commit point. It then tells the other controllers to clear and flip. If power
//! fails in between, their phase differs from home's, and recovery knows that the update was
//! committed. The slot is not used again before all have cleared.

use super::core_state::{Head, Kind};
use super::events::{Event, NO_SLOT};
use super::mesh::Node;
use super::system::System;
use super::{CrashPlan, Fault};

impl System {
    /// Returns whether the core has a slot; if not, it has asked for one.
    pub(super) fn take_slot(&mut self, c: usize) -> bool {
        if self.slots.fixed {
            self.cores[c].slot = c as u8;
        }
        if self.cores[c].slot != NO_SLOT {
            return true;
        }
        self.send(Node::Tile(c), Node::Controller(0), false, Event::BeginArrives { core: c as u8 });
        false
    }

    /// Structural overflow: without a free slot, the core waits.
    pub(super) fn begin_arrives(&mut self, core: u8) {
        match self.slots.free.pop_front() {
            Some(slot) => self.grant_slot(core, slot),
            None if self.has(Fault::SlotShared) => self.grant_slot(core, 0),
            None => {
                self.counters.slot_waits += 1;
                self.slots.waiting.push_back(core);
            }
        }
    }

    fn grant_slot(&mut self, core: u8, slot: u8) {
        let event = Event::BeginAck { core, slot };
        self.send(Node::Controller(0), Node::Tile(usize::from(core)), false, event);
    }

    pub(super) fn begin_acknowledged(&mut self, c: usize, slot: u8) {
        self.cores[c].slot = slot;
        self.free_head(c);
    }

    pub(super) fn slot_returns(&mut self, slot: u8) {
        match self.slots.waiting.pop_front() {
            Some(core) => self.grant_slot(core, slot),
            None if self.slots.free.contains(&slot) => {}
            None => self.slots.free.push_back(slot),
        }
    }

    /// The core has no more to do with its slot.
    fn return_slot(&mut self, c: usize) {
        let slot = std::mem::replace(&mut self.cores[c].slot, NO_SLOT);
        self.send(Node::Tile(c), Node::Controller(0), false, Event::SlotReturns { slot });
    }

    /// The end of an update leaves the core.
    pub(super) fn send_end(&mut self, c: usize, outer: bool) {
        let (core, slot) = (c as u8, self.cores[c].slot);
        if self.has(Fault::Broadcast) {
            self.cores[c].clears = self.controllers.len();
            for mc in 0..self.controllers.len() {
                let event = Event::ClearArrives { mc: mc as u8, core, slot, outer };
                self.send(Node::Tile(c), Node::Controller(mc), false, event);
            }
            return;
        }
        let home = self.machine().home_of(usize::from(slot));
        let event = Event::EndArrives { mc: home as u8, core, slot, outer };
        self.send(Node::Tile(c), Node::Controller(home), false, event);
    }

    /// The commit point.
    pub(super) fn end_arrives(&mut self, home: usize, core: u8, slot: u8, outer: bool) {
        self.clear_log(home, slot);
        if outer {
            self.commit_values(usize::from(core));
        }
        self.send(Node::Controller(home), Node::Tile(usize::from(core)), false, Event::EndAck { core });
        for mc in (0..self.controllers.len()).filter(|mc| *mc != home) {
            self.cores[usize::from(core)].clears += 1;
            let event = Event::ClearArrives { mc: mc as u8, core, slot, outer };
            self.send(Node::Controller(home), Node::Controller(mc), false, event);
        }
    }

    pub(super) fn clear_arrives(&mut self, mc: usize, core: u8, slot: u8, outer: bool) {
        self.clear_log(mc, slot);
        let c = usize::from(core);
        if !self.has(Fault::Broadcast) {
            return self.send(Node::Controller(mc), Node::Tile(c), false, Event::ClearAck { core });
        }
        self.cores[c].clears -= 1;
        if self.cores[c].clears == 0 {
            if outer {
                self.commit_values(c);
            }
            self.send(Node::Controller(mc), Node::Tile(c), false, Event::EndAck { core });
        }
    }

    pub(super) fn end_acknowledged(&mut self, c: usize) {
        let outer = matches!(self.cores[c].queue.front().map(|entry| entry.kind), Some(Kind::End { outer: true }));
        self.end_left(c, outer);
        if outer && !self.slots.fixed {
            if self.cores[c].clears == 0 || self.has(Fault::BeginBeforeClears) {
                self.return_slot(c);
            } else {
                self.cores[c].returns_slot = true;
            }
        }
    }

    pub(super) fn clear_acknowledged(&mut self, c: usize) {
        self.cores[c].clears -= 1;
        if self.cores[c].clears > 0 {
            return;
        }
        if std::mem::take(&mut self.cores[c].returns_slot) {
            self.return_slot(c);
        }
        if self.cores[c].head == Head::Clears {
            self.free_head(c);
        }
    }

    /// Whether the oracle follows the values of stack lines.
    pub(super) fn follows_stacks(&self) -> bool {
        matches!(self.plan.crashes, CrashPlan::Events { .. })
    }

    /// The oracle learns that the open update of a core is committed.
    pub(super) fn commit_values(&mut self, c: usize) {
        for line in std::mem::take(&mut self.cores[c].written) {
            self.values.commit(line);
        }
        self.counters.commits += 1;
        if self.follows_stacks() {
            for line in self.stack_lines(c) {
                self.values.stack_committed(line);
            }
        }
    }
}
