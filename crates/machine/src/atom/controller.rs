//! Memory controllers: queues of reads, data writes and log writes before a channel and its banks.
//!
//! Reads go first; then the oldest write whose bank is free and whose line is not locked. An access
//! occupies the channel for a line's time and its bank for that and the access latency. A full
//! queue holds back what arrives for it.

use std::collections::VecDeque;

use super::events::{Event, NO_SLOT, Request, Want};
use super::log_state::Source;
use super::mesh::Node;
use super::queues::{Access, Purpose, Read, Write};
use super::system::System;
use super::{Bytes, Cycle, Design, Error, Fault};

impl System {
    pub(super) fn new_write(&mut self, write: Write) -> u32 {
        if let Some(free) = self.free_writes.pop() {
            self.writes[free as usize] = Some(write);
            return free;
        }
        self.writes.push(Some(write));
        self.writes.len() as u32 - 1
    }

    pub(super) fn write(&self, number: u32) -> &Write {
        self.writes[number as usize].as_ref().expect("the write is under way")
    }

    fn write_mut(&mut self, number: u32) -> &mut Write {
        self.writes[number as usize].as_mut().expect("the write is under way")
    }

    pub(super) fn take_write(&mut self, number: u32) -> Write {
        self.free_writes.push(number);
        self.writes[number as usize].take().expect("the write is under way")
    }

    /// The channel of log accesses.
    fn log_channel(&self) -> usize {
        usize::from(self.plan.design == Design::RedoTwoChannels)
    }

    fn bank_of_line(&self, line: u32) -> usize {
        let memory = &self.plan.machine.memory;
        let local =
            line / (memory.interleave * memory.controllers as u32) * memory.interleave + line % memory.interleave;
        self.bank_of(local)
    }

    fn bank_of_log(&self, at: u32) -> usize {
        self.bank_of(at)
    }

    /// Returns the bank of a controller's line. Permuted banks depend on all bits of the line's
    /// number, so that what lies at equal offsets of pages is not all in one bank.
    fn bank_of(&self, line: u32) -> usize {
        let memory = &self.plan.machine.memory;
        let banks = memory.banks as u32;
        let (mut bank, mut rest) = (line % banks, line / banks);
        while memory.permuted && rest > 0 {
            bank ^= rest % banks;
            rest /= banks;
        }
        bank as usize
    }

    fn bank_of_write(&self, number: u32) -> usize {
        match self.write(number).purpose {
            Purpose::Data { line } | Purpose::RedoPlace { line, .. } => self.bank_of_line(line),
            Purpose::LogLine { at, .. } | Purpose::Header { at, .. } | Purpose::RedoLog { at, .. } => {
                self.bank_of_log(at)
            }
            Purpose::Entry { .. } => unreachable!("entries are no writes of memory"),
        }
    }

    pub(super) fn write_arrives(&mut self, mc: usize, write: u32) {
        match self.write(write).purpose {
            Purpose::Data { line } => {
                self.release(line);
                self.queue_data(mc, write);
            }
            Purpose::Entry { core, slot, line } => {
                let bytes = self.take_write(write).bytes;
                self.log_entry(mc, slot, line, bytes, Source::Core(core));
            }
            Purpose::RedoLog { .. } => self.queue_log(mc, write),
            Purpose::LogLine { .. } | Purpose::Header { .. } | Purpose::RedoPlace { .. } => {
                unreachable!("the controller makes these itself")
            }
        }
    }

    /// Queues a data write.
    pub(super) fn queue_data(&mut self, mc: usize, write: u32) {
        self.arrived(mc, write);
        let limit = self.plan.machine.memory.write_queue;
        let controller = &mut self.controllers[mc];
        if controller.data.len() < limit && controller.held_data.is_empty() {
            controller.data.push_back(write);
        } else {
            controller.held_data.push_back(write);
        }
        self.kick(mc, 0);
    }

    /// Queues a log write.
    pub(super) fn queue_log(&mut self, mc: usize, write: u32) {
        if self.has(Fault::OneQueue) {
            return self.queue_data(mc, write);
        }
        self.arrived(mc, write);
        let (limit, channel) = (self.plan.machine.memory.log_queue, self.log_channel());
        let controller = &mut self.controllers[mc];
        if controller.logs.len() < limit && controller.held_logs.is_empty() {
            controller.logs.push_back(write);
        } else {
            controller.held_logs.push_back(write);
        }
        self.kick(mc, channel);
    }

    /// Whether the log queue has room for a line of an entry; one place is for headers.
    pub(super) fn log_queue_has_room(&self, mc: usize) -> bool {
        let controller = &self.controllers[mc];
        self.has(Fault::OneQueue)
            || controller.logs.len() + controller.held_logs.len() + 1 < self.plan.machine.memory.log_queue
    }

    fn arrived(&mut self, mc: usize, write: u32) {
        self.controllers[mc].arrivals += 1;
        self.write_mut(write).arrived = self.controllers[mc].arrivals;
    }

    /// The newest queued write of a data line.
    fn newest_write(&self, mc: usize, line: u32) -> Option<u32> {
        let controller = &self.controllers[mc];
        let of_line = |number: &&u32| self.write(**number).data_line() == Some(line);
        let held = controller.held_data.iter().rev().find(of_line);
        held.or_else(|| controller.data.iter().rev().find(of_line)).copied()
    }

    /// The write of a data line that a bank is busy with.
    fn write_in_bank(&self, mc: usize, line: u32) -> Option<u32> {
        match self.controllers[mc].channels[0].banks[self.bank_of_line(line)] {
            Some(Access::Write(number)) if self.write(number).data_line() == Some(line) => Some(number),
            _ => None,
        }
    }

    pub(super) fn read_arrives(&mut self, request: Request) {
        let mc = self.machine().controller_of(request.line);
        let past_queue = self.has(Fault::SourcePastQueue) && request.slot != NO_SLOT;
        if let Some(write) = self.newest_write(mc, request.line).filter(|_| !past_queue) {
            self.counters.forwarded += 1;
            let bytes = self.write(write).bytes;
            return self.answer(mc, request, bytes);
        }
        self.queue_read(mc, Read::Data(request));
    }

    pub(super) fn queue_read(&mut self, mc: usize, read: Read) {
        let channel = if matches!(read, Read::Log { .. }) { self.log_channel() } else { 0 };
        let limit = self.plan.machine.memory.read_queue;
        let controller = &mut self.controllers[mc];
        if controller.reads.len() < limit && controller.held_reads.is_empty() {
            controller.reads.push_back(read);
        } else {
            controller.held_reads.push_back(read);
        }
        self.kick(mc, channel);
    }

    /// Answers a read with the line's value. Of a line fetched for a store in an update, ATOM-OPT
    /// logs the value first.
    fn answer(&mut self, mc: usize, request: Request, bytes: Bytes) {
        if !self.plan.design.is_redo() {
            let coherent = self.values.coherent[request.line as usize];
            if bytes != coherent {
                self.error = Some(Error::Stale { cycle: self.now, line: request.line });
            }
        }
        let source = self.plan.design == Design::AtomOpt && request.want == Want::Store && request.slot != NO_SLOT;
        if source {
            return self.log_entry(mc, request.slot, request.line, bytes, Source::Read(request));
        }
        self.send_data(mc, request, false);
    }

    pub(super) fn send_data(&mut self, mc: usize, request: Request, log: bool) {
        let tile = self.machine().tile_of(request.line);
        let way = self.mesh.send(Node::Controller(mc), Node::Tile(tile), true);
        let matching = self.plan.machine.memory.matching;
        self.after(matching + way, Event::ReadReturns { request, log });
    }

    /// A flush found nothing to write: it ends with the last write of the line under way.
    pub(super) fn flush_arrives(&mut self, mc: usize, core: u8, line: u32) {
        match self.newest_write(mc, line).or_else(|| self.write_in_bank(mc, line)) {
            Some(write) => self.write_mut(write).flushed_by.push(core),
            None => self.acknowledge_flush(mc, core, line),
        }
    }

    fn acknowledge_flush(&mut self, mc: usize, core: u8, line: u32) {
        let event = Event::FlushAck { core, line };
        self.send(Node::Controller(mc), Node::Tile(usize::from(core)), false, event);
    }

    /// Lets the channel look for its next access as soon as it is free.
    pub(super) fn kick(&mut self, mc: usize, channel: usize) {
        let now = self.now;
        let state = &mut self.controllers[mc].channels[channel];
        let at = state.free_at.max(now);
        if state.scheduled.is_none_or(|planned| at < planned) {
            state.scheduled = Some(at);
            self.events.push(at, Event::Schedule { mc: mc as u8, channel: channel as u8 });
        }
    }

    pub(super) fn schedule(&mut self, mc: usize, channel: usize) {
        if self.controllers[mc].channels[channel].scheduled != Some(self.now) {
            return;
        }
        self.controllers[mc].channels[channel].scheduled = None;
        let Some((access, bank)) = self.next_access(mc, channel) else { return };
        let memory = &self.plan.machine.memory;
        let latency = if let Access::Write(number) = access {
            let compared = Cycle::from(self.write(number).data_line().is_some()) * memory.matching;
            memory.write + compared
        } else {
            memory.read
        };
        let jitter = if memory.jitter == 0 { 0 } else { self.chance.below(memory.jitter) };
        let busy = memory.channel;
        self.counters.channel_busy += busy;
        let state = &mut self.controllers[mc].channels[channel];
        state.free_at = self.now + busy;
        state.banks[bank] = Some(access);
        self.after(busy + latency + jitter, Event::BankDone { mc: mc as u8, channel: channel as u8, bank: bank as u8 });
        if let Access::Write(number) = access {
            self.write_issued(mc, number);
        }
        self.admit(mc);
        self.kick(mc, channel);
    }

    /// Takes the next access from the queues, with its bank.
    fn next_access(&mut self, mc: usize, channel: usize) -> Option<(Access, usize)> {
        let log_channel = self.log_channel();
        let is_free = |system: &Self, bank: usize| system.controllers[mc].channels[channel].banks[bank].is_none();
        for index in 0..self.controllers[mc].reads.len() {
            let read = self.controllers[mc].reads[index];
            let (access, bank, of) = match read {
                Read::Data(request) => (Access::Read(request), self.bank_of_line(request.line), 0),
                Read::Log { at, number } => (Access::LogRead { number }, self.bank_of_log(at), log_channel),
            };
            if of == channel && is_free(self, bank) {
                self.controllers[mc].reads.remove(index);
                return Some((access, bank));
            }
        }
        let log = (channel == log_channel).then(|| self.ready_log(mc, channel)).flatten();
        let data = (channel == 0).then(|| self.ready_data(mc)).flatten();
        let arrived = |index: Option<usize>, queue: &VecDeque<u32>| {
            index.map_or(u64::MAX, |index| self.write(queue[index]).arrived)
        };
        let controller = &self.controllers[mc];
        let log_first = arrived(log, &controller.logs) <= arrived(data, &controller.data);
        let number = match (log, data) {
            (Some(index), _) if log_first => self.controllers[mc].logs.remove(index),
            (_, Some(index)) => self.controllers[mc].data.remove(index),
            _ => None,
        }?;
        Some((Access::Write(number), self.bank_of_write(number)))
    }

    /// The oldest log write whose bank is free.
    fn ready_log(&self, mc: usize, channel: usize) -> Option<usize> {
        let controller = &self.controllers[mc];
        let banks = &controller.channels[channel].banks;
        controller.logs.iter().position(|&number| banks[self.bank_of_write(number)].is_none())
    }

    /// The oldest data write whose bank is free and whose line no record header locks. Headers that
    /// lock lines on the way are forced out.
    fn ready_data(&mut self, mc: usize) -> Option<usize> {
        let mut index = 0;
        while let Some(&number) = self.controllers[mc].data.get(index) {
            let line = self.write(number).data_line();
            let locked = line.filter(|line| self.locked[*line as usize] > 0 && !self.has(Fault::WritesNotCompared));
            if let Some(line) = locked {
                self.counters.blocked += 1;
                self.force_header(mc, line);
            } else {
                let bank = self.bank_of_write(number);
                if self.controllers[mc].channels[0].banks[bank].is_none() {
                    return Some(index);
                }
            }
            index += 1;
        }
        None
    }

    /// Lets what was held back into the queues.
    fn admit(&mut self, mc: usize) {
        let memory = &self.plan.machine.memory;
        let controller = &mut self.controllers[mc];
        while controller.data.len() < memory.write_queue
            && let Some(write) = controller.held_data.pop_front()
        {
            controller.data.push_back(write);
        }
        while controller.logs.len() < memory.log_queue
            && let Some(write) = controller.held_logs.pop_front()
        {
            controller.logs.push_back(write);
        }
        while controller.reads.len() < memory.read_queue
            && let Some(read) = controller.held_reads.pop_front()
        {
            controller.reads.push_back(read);
        }
        self.pump_all(mc);
    }

    /// A write goes to its bank.
    fn write_issued(&mut self, mc: usize, number: u32) {
        if let Purpose::Header { slot, update, record, .. } = self.write(number).purpose {
            self.header_issued(mc, slot, update, record);
        }
    }

    pub(super) fn bank_done(&mut self, mc: usize, channel: usize, bank: usize) {
        let access = self.controllers[mc].channels[channel].banks[bank].take().expect("the bank was busy");
        match access {
            Access::Read(request) => {
                self.counters.data_reads += 1;
                let bytes = self.values.nvm[request.line as usize];
                self.answer(mc, request, bytes);
            }
            Access::LogRead { number } => {
                self.counters.log_reads += 1;
                self.redo_log_read(mc, number);
            }
            Access::Write(number) => self.write_durable(mc, number),
        }
        self.kick(mc, channel);
    }

    fn write_durable(&mut self, mc: usize, number: u32) {
        let write = self.take_write(number);
        match write.purpose {
            Purpose::Data { line } => {
                self.counters.data_writes += 1;
                self.values.persist(line, write.bytes);
                for core in write.flushed_by {
                    self.acknowledge_flush(mc, core, line);
                }
            }
            Purpose::LogLine { slot, update, record, at } => {
                self.counters.log_lines += 1;
                self.values.log[mc][at as usize] = write.bytes;
                self.log_line_durable(mc, slot, update, record);
            }
            Purpose::Header { slot, update, record, at } => {
                self.counters.headers += 1;
                self.values.log[mc][at as usize] = write.bytes;
                self.header_durable(mc, slot, update, record);
            }
            Purpose::RedoLog { core, at, number, commits } => {
                self.counters.log_lines += 1;
                self.values.log[mc][at as usize] = write.bytes;
                self.redo_log_durable(mc, core, number, commits);
            }
            Purpose::RedoPlace { line, number } => {
                self.counters.data_writes += 1;
                self.values.persist(line, write.bytes);
                self.redo_placed(mc, number);
            }
            Purpose::Entry { .. } => unreachable!("entries are no writes of memory"),
        }
    }
}
