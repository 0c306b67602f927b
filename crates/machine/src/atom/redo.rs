//! Redo logging, which ATOM is compared with (ATOM, section V): every store of a region makes an
//! entry; controllers apply the entries of committed updates in place, in the background.
//!
//! An entry is an address and a word, four of them a log line; a core combines entries until a
//! line is full. An entry goes to the controller of its line. When all log lines of an update are
//! durable, a *commit record* is written at the core's home controller; its durability is the
//! commit point. It has the update's number, which orders updates, and where its log lines are at
//! each controller. A controller retires committed updates in the order of their numbers: it reads
//! their log lines back and writes the lines in place. The number up to which it has done so is its
//! critical state. Dirty lines that leave the shared cache go to a victim cache without limit.
//!
//! The log space of a core at a controller: a quarter of it for commit records, the rest for lines.

use std::collections::BTreeMap;

use super::backend::{ENTRIES, Ended, Space, checksum, commit_record, entries_of, log_line};
use super::core_state::Head;
use super::description::Machine;
use super::events::Event;
use super::mesh::Node;
use super::nvm::{set_word_of, word_of};
use super::queues::{Access, Purpose, Read, Write};
use super::recovery::{Image, Place};
use super::system::System;
use super::{Bytes, Error, Fault, LINE_BYTES};

/// Updates that a controller retires at a time.
const AT_A_TIME: usize = 8;

/// Steps of [`Event::Redo`].
const LINE_DURABLE: u8 = 0;
const COMMITTED: u8 = 1;

impl System {
    /// Logs a store; returns whether it may complete: it may not while the core's log is full of
    /// updates that are not retired. A store of two words makes one entry of twice the size.
    pub(super) fn redo_store(&mut self, c: usize, address: u64, value: u64, second: Option<u64>) -> bool {
        let mc = self.machine().controller_of((address / LINE_BYTES as u64) as u32);
        let log = &mut self.backend.cores[c];
        let mut added = Vec::new();
        for (address, value) in [(address, value)].into_iter().chain(second.map(|second| (address + 8, second))) {
            match log.open[mc].iter_mut().find(|entry| entry.0 == address) {
                Some(entry) => entry.1 = value,
                None => added.push((address, value)),
            }
        }
        let lines: u32 = log.ranges.iter().map(|range| range.1).sum();
        let fills = log.open[mc].len() + added.len() >= ENTRIES;
        if fills && log.unretired > 0 && (log.unretired + lines) as usize >= self.plan.machine.redo.lines {
            return false;
        }
        self.counters.entries += u64::from(!added.is_empty());
        for entry in added {
            let open = &mut self.backend.cores[c].open[mc];
            open.push(entry);
            if open.len() == ENTRIES {
                self.send_log_line(c, mc);
            }
        }
        true
    }

    fn send_log_line(&mut self, c: usize, mc: usize) {
        let space = self.backend.space;
        let log = &mut self.backend.cores[c];
        let entries = std::mem::take(&mut log.open[mc]);
        let range = &mut log.ranges[mc];
        if range.1 >= space.lines() {
            self.error = Some(Error::LogFull { controller: mc, buckets: self.plan.machine.log.buckets });
            return;
        }
        let at = space.line(c, range.0 + range.1);
        range.1 += 1;
        log.pending += 1;
        let purpose = Purpose::RedoLog { core: c as u8, at, number: 0, commits: false };
        let write = self.new_write(Write::new(purpose, log_line(&entries)));
        self.send(Node::Tile(c), Node::Controller(mc), true, Event::WriteArrives { mc: mc as u8, write });
    }

    /// The update ends: the rest of its log goes out.
    pub(super) fn redo_end(&mut self, c: usize) {
        for mc in 0..self.controllers.len() {
            if !self.backend.cores[c].open[mc].is_empty() {
                self.send_log_line(c, mc);
            }
        }
        self.backend.cores[c].ending = true;
        self.redo_commit(c);
    }

    /// Writes the commit record, once the log is durable and there is room for the record.
    fn redo_commit(&mut self, c: usize) {
        let early = self.has(Fault::RedoCommitEarly);
        let space = self.backend.space;
        let log = &mut self.backend.cores[c];
        if !log.ending || log.pending > 0 && !early || log.commits - log.retired + 1 >= space.commits {
            return;
        }
        log.ending = false;
        let at = space.commit(c, log.commits);
        log.commits += 1;
        let ranges = log.ranges.clone();
        for range in &mut log.ranges {
            *range = (range.0 + range.1, 0);
        }
        self.backend.last_number += 1;
        let number = self.backend.last_number;
        let bytes = commit_record(number, &ranges);
        let controllers = self.controllers.len();
        let ended = Ended {
            core: c,
            reads: ranges.iter().map(|range| range.1).collect(),
            ranges,
            durable: false,
            writes: vec![0; controllers],
            placed: vec![false; controllers],
            retired: vec![false; controllers],
        };
        self.backend.ended.insert(number, ended);
        let home = self.machine().home_of(c);
        let write = self.new_write(Write::new(Purpose::RedoLog { core: c as u8, at, number, commits: true }, bytes));
        self.send(Node::Tile(c), Node::Controller(home), true, Event::WriteArrives { mc: home as u8, write });
    }

    /// A log line or a commit record is durable.
    pub(super) fn redo_log_durable(&mut self, mc: usize, core: u8, number: u32, commits: bool) {
        let c = usize::from(core);
        let step = if commits { COMMITTED } else { LINE_DURABLE };
        self.send(Node::Controller(mc), Node::Tile(c), false, Event::Redo { core, step, number });
        if commits {
            self.commit_values(c);
            let ended = self.backend.ended.get_mut(&number).expect("the update ends");
            ended.durable = true;
            self.backend.cores[c].unretired += ended.ranges.iter().map(|range| range.1).sum::<u32>();
            for mc in 0..self.controllers.len() {
                self.redo_retire(mc);
            }
        }
    }

    pub(super) fn redo_step(&mut self, c: usize, step: u8, _number: u32) {
        if step == COMMITTED {
            return self.end_left(c, true);
        }
        self.backend.cores[c].pending -= 1;
        self.redo_commit(c);
    }

    /// Begins to retire committed updates, in order.
    fn redo_retire(&mut self, mc: usize) {
        loop {
            let next = self.backend.begun[mc] + 1;
            let under_way = (next - 1 - self.backend.retired[mc]) as usize;
            let Some(ended) = self.backend.ended.get(&next).filter(|ended| ended.durable) else { return };
            if under_way >= AT_A_TIME {
                return;
            }
            self.backend.begun[mc] = next;
            let (core, (start, count)) = (ended.core, ended.ranges[mc]);
            for line in start..start + count {
                let at = self.backend.space.line(core, line);
                self.queue_read(mc, Read::Log { at, number: next });
            }
            if count == 0 {
                self.redo_place(mc);
            }
        }
    }

    /// A log line has been read back.
    pub(super) fn redo_log_read(&mut self, mc: usize, number: u32) {
        self.backend.ended.get_mut(&number).expect("the update is not retired").reads[mc] -= 1;
        self.redo_place(mc);
    }

    /// Writes the lines of updates whose log has been read to their places, in order.
    fn redo_place(&mut self, mc: usize) {
        let any_order = self.has(Fault::RedoOutOfOrder);
        let mut ready = Vec::new();
        for (number, ended) in self.backend.ended.range(..=self.backend.begun[mc]) {
            if ended.placed[mc] {
                continue;
            }
            if ended.reads[mc] == 0 {
                ready.push(*number);
            } else if !any_order {
                break;
            }
        }
        if any_order {
            let begun = self.backend.ended.range(..=self.backend.begun[mc]);
            if ready.len() == 1 && begun.filter(|(_, ended)| !ended.placed[mc]).count() > 1 {
                return;
            }
            ready.reverse();
        }
        for number in ready {
            self.redo_place_update(mc, number);
        }
        self.redo_advance(mc);
    }

    fn redo_place_update(&mut self, mc: usize, number: u32) {
        let ended = self.backend.ended.get_mut(&number).expect("the update is not retired");
        ended.placed[mc] = true;
        let (core, (start, count)) = (ended.core, ended.ranges[mc]);
        let mut lines: BTreeMap<u32, Bytes> = BTreeMap::new();
        for index in start..start + count {
            let log = self.values.log[mc][self.backend.space.line(core, index) as usize];
            for (address, value) in entries_of(&log) {
                let line = (address / LINE_BYTES as u64) as u32;
                let old = lines.get(&line).copied().unwrap_or_else(|| self.redo_base(mc, line));
                let bytes = lines.entry(line).or_insert(old);
                set_word_of(bytes, (address % LINE_BYTES as u64) as usize, value);
            }
        }
        self.backend.ended.get_mut(&number).expect("it is there").writes[mc] = lines.len() as u32;
        for (line, bytes) in lines {
            let write = self.new_write(Write::new(Purpose::RedoPlace { line, number }, bytes));
            self.queue_data(mc, write);
        }
    }

    /// The line as the writes before this one leave it.
    fn redo_base(&self, mc: usize, line: u32) -> Bytes {
        let controller = &self.controllers[mc];
        let queued = controller.held_data.iter().rev().chain(controller.data.iter().rev()).copied();
        let in_banks = controller.channels[0].banks.iter().flatten().filter_map(|access| match access {
            Access::Write(number) => Some(*number),
            _ => None,
        });
        let newest = queued.chain(in_banks).find(|number| self.write(*number).data_line() == Some(line));
        newest.map_or(self.values.nvm[line as usize], |number| self.write(number).bytes)
    }

    /// A line is in its place.
    pub(super) fn redo_placed(&mut self, mc: usize, number: u32) {
        self.backend.ended.get_mut(&number).expect("the update is not retired").writes[mc] -= 1;
        self.redo_advance(mc);
    }

    /// Notes which updates are retired, in order, and frees their log.
    fn redo_advance(&mut self, mc: usize) {
        let any_order = self.has(Fault::RedoOutOfOrder);
        let mut next = self.backend.retired[mc] + 1;
        while let Some(ended) = self.backend.ended.get_mut(&next) {
            if !ended.durable || !ended.placed[mc] || ended.writes[mc] > 0 {
                break;
            }
            ended.retired[mc] = true;
            self.backend.retired[mc] = next;
            let (core, all) = (ended.core, ended.retired.iter().all(|retired| *retired));
            if all {
                let lines: u32 = ended.ranges.iter().map(|range| range.1).sum();
                self.backend.ended.remove(&next);
                let log = &mut self.backend.cores[core];
                log.unretired -= lines;
                log.retired += 1;
                if self.cores[core].head == Head::Redo {
                    if self.backend.cores[core].ending {
                        self.redo_commit(core);
                    } else if self.cores[core].queue.front().is_some_and(|entry| entry.is_store()) {
                        self.free_head(core);
                    }
                }
            }
            next += 1;
        }
        if !any_order || self.backend.begun[mc] - self.backend.retired[mc] < AT_A_TIME as u32 {
            self.redo_retire_later(mc);
        }
    }

    /// Goes on retiring if there is room for more updates.
    fn redo_retire_later(&mut self, mc: usize) {
        let next = self.backend.begun[mc] + 1;
        let room = ((next - 1 - self.backend.retired[mc]) as usize) < AT_A_TIME;
        if room && self.backend.ended.get(&next).is_some_and(|ended| ended.durable) {
            self.redo_retire(mc);
        }
    }
}

/// Recovery from redo logs: applies the committed updates that a controller has not retired, in
/// order, and then notes them as retired.
pub(super) fn recover_redo(image: &mut impl Image, machine: &Machine) {
    let space = Space::of(machine);
    let controllers = machine.memory.controllers;
    let mut committed: BTreeMap<u32, (usize, Vec<(u32, u32)>)> = BTreeMap::new();
    for core in 0..machine.core.cores {
        for number in 0..space.commits {
            let line = image.read(Place::Log(machine.home_of(core) as u8, space.commit(core, number)));
            if word_of(&line, 0) == 0 || checksum(&line) != word_of(&line, 56) {
                continue;
            }
            let range = |mc| {
                let word = word_of(&line, 8 + 8 * mc);
                (word as u32, (word >> 32) as u32)
            };
            committed.insert(word_of(&line, 0) as u32, (core, (0..controllers).map(range).collect()));
        }
    }
    let mut after = Vec::new();
    for mc in 0..controllers {
        let retired = word_of(&image.read(Place::Critical(mc as u8, 0)), 0) as u32;
        for (core, ranges) in committed.range(retired + 1..).map(|(_, update)| update) {
            let (start, count) = ranges[mc];
            for index in start..start + count {
                let log = image.read(Place::Log(mc as u8, space.line(*core, index)));
                for (address, value) in entries_of(&log) {
                    let line = (address / LINE_BYTES as u64) as u32;
                    if line < image.lines() {
                        let mut bytes = image.read(Place::Data(line));
                        set_word_of(&mut bytes, (address % LINE_BYTES as u64) as usize, value);
                        image.write(Place::Data(line), bytes);
                    }
                }
            }
        }
        let mut line = [0; LINE_BYTES];
        let last = committed.last_key_value().map_or(retired, |(number, _)| (*number).max(retired));
        set_word_of(&mut line, 0, u64::from(last));
        after.push(line);
    }
    image.fence();
    for (mc, line) in after.into_iter().enumerate() {
        image.write(Place::Critical(mc as u8, 0), line);
    }
    image.fence();
}
