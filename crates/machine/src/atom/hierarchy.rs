//! Caches and the directory: private caches over an inclusive shared one, MESI.
//!
//! A tile deals with one request for a line at a time; the others wait for it. What it decides, it
//! decides at once for all caches concerned, and charges the messages to them: the longest way
//! there and back.

use super::Fault;
use super::core_state::Head;
use super::events::{Event, NO_SLOT, Request, Want};
use super::lines::{PrivateLine, SharedLine};
use super::mesh::Node;
use super::queues::{Purpose, Write};
use super::system::System;

impl System {
    pub(super) fn tile_arrive(&mut self, request: Request) {
        if self.busy[request.line as usize] {
            self.blocked.entry(request.line).or_default().push_back(request);
            return;
        }
        self.busy[request.line as usize] = true;
        self.after(self.plan.machine.l2.latency, Event::TileLook(request));
    }

    /// The directory is done with the line; the next request for it has its turn.
    pub(super) fn release(&mut self, line: u32) {
        self.busy[line as usize] = false;
        if let Some(waiting) = self.blocked.get_mut(&line) {
            let next = waiting.pop_front();
            if waiting.is_empty() {
                self.blocked.remove(&line);
            }
            if let Some(request) = next {
                self.tile_arrive(request);
            }
        }
    }

    pub(super) fn tile_look(&mut self, request: Request) {
        if request.want == Want::Flush {
            return self.flush_look(request);
        }
        let tile = self.machine().tile_of(request.line);
        let Some(&state) = self.shared[tile].touch(request.line).map(|state| &*state) else {
            if self.plan.design.is_redo() && self.backend.has_victim(request.line) {
                return self.after(1, Event::ReadReturns { request, log: false });
            }
            let mc = self.machine().controller_of(request.line);
            return self.send(Node::Tile(tile), Node::Controller(mc), false, Event::ReadArrives(request));
        };
        let core = request.core;
        let others = state.sharers & !(1 << core) | state.owner.filter(|owner| *owner != core).map_or(0, |o| 1 << o);
        let mut after = state;
        let mut delay = 0;
        if request.want == Want::Load {
            if let Some(owner) = state.owner.filter(|owner| *owner != core) {
                let owner = usize::from(owner);
                delay = self.there_and_back(tile, owner, true);
                after.dirty |= self.private[owner].get(request.line).is_some_and(|line| line.dirty);
                if let Some(line) = self.private[owner].get_mut(request.line) {
                    (line.owned, line.dirty) = (false, false);
                }
            }
            after.sharers = others | 1 << core;
            after.owner = (others == 0).then_some(core);
        } else {
            for other in (0..self.cores.len()).filter(|other| others >> other & 1 == 1) {
                delay = delay.max(self.there_and_back(tile, other, state.owner.is_some()));
                after.dirty |= self.private[other].remove(request.line).is_some_and(|line| line.dirty);
            }
            (after.sharers, after.owner) = (1 << core, Some(core));
        }
        let log = self.has(Fault::BitSetOnSharedFill) && request.slot != NO_SLOT;
        *self.shared[tile].get_mut(request.line).expect("the line is there") = after;
        let way = self.mesh.send(Node::Tile(tile), Node::Tile(usize::from(core)), true);
        self.after(delay + way, Event::Fill { request, log });
    }

    fn there_and_back(&mut self, tile: usize, core: usize, data: bool) -> u64 {
        let there = self.mesh.send(Node::Tile(tile), Node::Tile(core), false);
        there + self.plan.machine.l1.latency + self.mesh.send(Node::Tile(core), Node::Tile(tile), data)
    }

    /// Data or permission are at the core.
    pub(super) fn fill(&mut self, request: Request, log: bool) {
        let c = usize::from(request.core);
        let tile = self.machine().tile_of(request.line);
        let shared = self.shared[tile].get_mut(request.line).expect("the shared cache is inclusive");
        let owned = shared.owner == Some(request.core);
        let kept = shared.kept_log.take_if(|of| *of == request.core).is_some();
        let mut epoch = if log || kept { self.cores[c].epoch } else { 0 };
        if let Some(line) = self.private[c].get_mut(request.line) {
            epoch = epoch.max(line.log);
            line.owned |= owned;
            line.log = epoch;
        } else {
            self.evict_for(c, request.line);
            self.private[c].insert(request.line, PrivateLine { owned, dirty: false, log: epoch });
        }
        self.release(request.line);
        match request.want {
            Want::Load => self.loaded(c),
            Want::Store => self.free_head(c),
            Want::Lock => self.lock_line_filled(c),
            Want::Flush => unreachable!("flushes fill nothing"),
        }
    }

    /// Evicts a line from a private cache, if `line` needs its place. A line whose log entry is
    /// under way stays: a miss register holds it.
    fn evict_for(&mut self, c: usize, line: u32) {
        let stays = self.logging(c);
        let victim = self.private[c].victim(line, |line| Some(line) != stays);
        if let Some(victim) = victim.expect("one of two ways can leave") {
            let state = self.private[c].remove(victim).expect("the line is there");
            let tile = self.machine().tile_of(victim);
            if state.dirty {
                self.mesh.send(Node::Tile(c), Node::Tile(tile), true);
            }
            let keeps = self.has(Fault::BitKeptAfterWriteBack) && state.log == self.cores[c].epoch;
            let shared = self.shared[tile].get_mut(victim).expect("the shared cache is inclusive");
            shared.dirty |= state.dirty;
            shared.sharers &= !(1 << c);
            shared.owner = shared.owner.filter(|owner| usize::from(*owner) != c);
            if keeps {
                shared.kept_log = Some(c as u8);
            }
        }
    }

    /// The line whose log entry is under way from this core.
    fn logging(&self, c: usize) -> Option<u32> {
        match self.cores[c].head {
            Head::Log(line) => Some(line),
            _ => None,
        }
    }

    /// Data from memory reach the tile.
    pub(super) fn read_returns(&mut self, request: Request, log: bool) {
        let tile = self.machine().tile_of(request.line);
        let logging: Vec<u32> = (0..self.cores.len()).filter_map(|c| self.logging(c)).collect();
        let busy = &self.busy;
        let may_leave = |line: u32| !busy[line as usize] && !logging.contains(&line);
        match self.shared[tile].victim(request.line, may_leave) {
            // All lines of the set are being dealt with.
            Err(()) => return self.after(10, Event::ReadReturns { request, log }),
            Ok(Some(victim)) => self.evict_shared(tile, victim),
            Ok(None) => {}
        }
        let dirty = self.plan.design.is_redo() && self.backend.take_victim(request.line);
        let state = SharedLine { owner: Some(request.core), sharers: 1 << request.core, dirty, kept_log: None };
        self.shared[tile].insert(request.line, state);
        self.send(Node::Tile(tile), Node::Tile(usize::from(request.core)), true, Event::Fill { request, log });
    }

    /// A line leaves the shared cache, and with it the private ones.
    fn evict_shared(&mut self, tile: usize, line: u32) {
        let mut state = self.shared[tile].remove(line).expect("the line is there");
        for c in (0..self.cores.len()).filter(|c| state.sharers >> c & 1 == 1) {
            self.there_and_back(tile, c, false);
            state.dirty |= self.private[c].remove(line).is_some_and(|line| line.dirty);
        }
        if !state.dirty {
            return;
        }
        if self.plan.design.is_redo() {
            self.backend.add_victim(line);
            if !self.has(Fault::RedoVictimWritten) {
                return;
            }
        }
        self.write_back(tile, line, None);
    }

    /// Sends the line's value to its controller; the directory holds the line until it is there.
    fn write_back(&mut self, tile: usize, line: u32, flushed_by: Option<u8>) {
        self.busy[line as usize] = true;
        let mc = self.machine().controller_of(line);
        let mut write = Write::new(Purpose::Data { line }, self.values.coherent[line as usize]);
        write.flushed_by.extend(flushed_by);
        let write = self.new_write(write);
        self.send(Node::Tile(tile), Node::Controller(mc), true, Event::WriteArrives { mc: mc as u8, write });
    }

    /// A flush writes the line back from wherever it is dirty, and otherwise asks the controller
    /// whether an earlier write is still on its way. Copies stay.
    fn flush_look(&mut self, request: Request) {
        let Request { core, line, .. } = request;
        let tile = self.machine().tile_of(line);
        let mut dirty = false;
        let owner = self.shared[tile].get(line).and_then(|state| state.owner);
        if let Some(state) = owner.and_then(|owner| self.private[usize::from(owner)].get_mut(line)) {
            dirty |= std::mem::take(&mut state.dirty);
        }
        let keeps = self.has(Fault::FlushStopsAtShared);
        if let Some(state) = self.shared[tile].get_mut(line) {
            dirty |= state.dirty;
            state.dirty = dirty && keeps;
        }
        if keeps {
            self.release(line);
            return self.send(Node::Tile(tile), Node::Tile(usize::from(core)), false, Event::FlushAck { core, line });
        }
        if dirty {
            return self.write_back(tile, line, Some(core));
        }
        let mc = self.machine().controller_of(line);
        self.release(line);
        let event = Event::FlushArrives { mc: mc as u8, core, line };
        self.send(Node::Tile(tile), Node::Controller(mc), false, event);
    }
}
