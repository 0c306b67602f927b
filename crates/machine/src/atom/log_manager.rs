//! LogM, the log manager of a controller: records, buckets and locks (ATOM, section IV-C).
//!
//! An entry's old value is written to the log as it comes; its address enters the record header
//! register, which locks the line. The header is written when seven entries are in, or when a data
//! write finds its line locked. Once the header is durable, the record counts, and its lines are
//! unlocked. BASE writes value and header of each entry together, a record for each, and
//! acknowledges when both are durable.

use duramen_types::undo_record::{LINES_PER_RECORD, UndoHeader};

use super::events::Event;
use super::log_state::{Entry, Record, Source, Update};
use super::mesh::Node;
use super::queues::{Purpose, Write};
use super::recovery::Geometry;
use super::system::System;
use super::{Bytes, Design, Error, Fault, LINE_BYTES};

impl System {
    fn update(&mut self, mc: usize, slot: u8) -> &mut Update {
        &mut self.managers[mc].updates[usize::from(slot)]
    }

    /// An entry reaches the log manager.
    pub(super) fn log_entry(&mut self, mc: usize, slot: u8, line: u32, old: Bytes, source: Source) {
        self.counters.entries += 1;
        self.counters.sourced += u64::from(matches!(source, Source::Read(_)));
        self.managers[mc].waiting += 1;
        self.update(mc, slot).waiting.push_back(Entry { line, old, source });
        self.pump(mc, slot);
    }

    /// Puts waiting entries of all updates into records, as far as there is room.
    pub(super) fn pump_all(&mut self, mc: usize) {
        if self.managers[mc].waiting > 0 {
            for slot in 0..self.managers[mc].updates.len() {
                self.pump(mc, slot as u8);
            }
        }
    }

    fn pump(&mut self, mc: usize, slot: u8) {
        while !self.update(mc, slot).waiting.is_empty() && self.log_queue_has_room(mc) {
            let registers = self.plan.machine.log.headers;
            let update = self.update(mc, slot);
            let is_open = update.records.back().is_some_and(|record| !record.closed);
            if !is_open && (update.records.len() >= registers || !self.begin_record(mc, slot)) {
                return;
            }
            self.managers[mc].waiting -= 1;
            let entry = self.update(mc, slot).waiting.pop_front().expect("there is one");
            self.add_entry(mc, slot, entry);
        }
    }

    /// Begins a record, in a new bucket if the current one is full; returns whether there is one.
    fn begin_record(&mut self, mc: usize, slot: u8) -> bool {
        let per_bucket = self.plan.machine.log.records;
        let update = self.update(mc, slot);
        if update.buckets.is_empty() || update.begun == per_bucket {
            // A bucket is left when its last header is durable.
            if !update.records.is_empty() || !self.allocate_bucket(mc, slot) {
                return false;
            }
        }
        let update = self.update(mc, slot);
        let bucket = *update.buckets.last().expect("there is a bucket");
        let (index, number) = (update.begun, update.records_begun);
        update.begun += 1;
        update.records_begun += 1;
        let header = UndoHeader::new(slot, number, update.number);
        update.records.push_back(Record {
            bucket,
            index,
            number,
            header,
            durable: 0,
            closed: false,
            header_queued: false,
            header_durable: false,
            counted: false,
            locks: Vec::new(),
            waits: None,
        });
        true
    }

    fn allocate_bucket(&mut self, mc: usize, slot: u8) -> bool {
        let manager = &mut self.managers[mc];
        let free = manager.allocated[..manager.limit].iter().position(|allocated| !allocated);
        let update = &mut manager.updates[usize::from(slot)];
        let Some(bucket) = free else {
            if self.plan.fault == Some(Fault::OverflowWraps) && !update.buckets.is_empty() {
                (update.begun, update.counted) = (0, 0);
                return true;
            }
            self.grow_log(mc);
            return false;
        };
        manager.allocated[bucket] = true;
        self.counters.bucket_switches += u64::from(!update.buckets.is_empty());
        update.buckets.push(bucket as u8);
        (update.begun, update.counted) = (0, 0);
        true
    }

    /// Log overflow: the operating system is to add buckets.
    fn grow_log(&mut self, mc: usize) {
        let manager = &mut self.managers[mc];
        if manager.growing {
            return;
        }
        let buckets = manager.allocated.len();
        if manager.limit == buckets {
            self.error = Some(Error::LogFull { controller: mc, buckets });
            return;
        }
        manager.growing = true;
        self.after(self.plan.machine.log.grow, Event::Grown { mc: mc as u8 });
    }

    pub(super) fn log_grown(&mut self, mc: usize) {
        self.counters.log_growths += 1;
        let step = self.plan.machine.log.limit_step;
        let manager = &mut self.managers[mc];
        manager.growing = false;
        manager.limit = (manager.limit + step).min(manager.allocated.len());
        self.pump_all(mc);
    }

    fn add_entry(&mut self, mc: usize, slot: u8, entry: Entry) {
        let is_base = self.plan.design == Design::Base;
        let locks = !is_base && !self.has(Fault::AckWithoutLock);
        let geometry = Geometry::of(self.machine());
        let update = self.update(mc, slot);
        let number = update.number;
        let record = update.records.back_mut().expect("a record is open");
        let index = record.header.push(u64::from(entry.line) * LINE_BYTES as u64).expect("the record has room");
        let at = geometry.record(record.bucket, record.index) + index as u32;
        let purpose = Purpose::LogLine { slot, update: number, record: record.number, at };
        if locks {
            record.locks.push(entry.line);
        }
        record.closed = is_base || index + 1 == LINES_PER_RECORD;
        let closed = record.closed;
        if let (true, Source::Core(core)) = (is_base, entry.source) {
            record.waits = Some(core);
        }
        if locks {
            self.locked[entry.line as usize] += 1;
        }
        self.values.sourced[mc][at as usize] = matches!(entry.source, Source::Read(_));
        let write = self.new_write(Write::new(purpose, entry.old));
        self.queue_log(mc, write);
        match entry.source {
            Source::Core(core) if !is_base => {
                let event = Event::LogAck { core };
                self.send(Node::Controller(mc), Node::Tile(usize::from(core)), false, event);
            }
            Source::Core(_) => {}
            Source::Read(request) => self.send_data(mc, request, true),
        }
        if closed {
            self.record_closed(mc, slot);
        }
    }

    fn record_closed(&mut self, mc: usize, slot: u8) {
        let leaves_early = self.has(Fault::BucketLeftEarly);
        let per_bucket = self.plan.machine.log.records;
        if leaves_early && self.update(mc, slot).begun == per_bucket {
            self.allocate_bucket(mc, slot);
        }
        self.queue_header(mc, slot);
    }

    /// Writes the header of the oldest record, if the record is closed and its lines are durable.
    fn queue_header(&mut self, mc: usize, slot: u8) {
        let at_once = self.plan.design == Design::Base || self.has(Fault::HeaderBeforeLines);
        let geometry = Geometry::of(self.machine());
        let update = self.update(mc, slot);
        let number = update.number;
        let Some(record) = update.records.front_mut().filter(|record| record.closed && !record.header_queued) else {
            return;
        };
        if !at_once && record.durable < record.header.count() {
            return;
        }
        record.header_queued = true;
        let at = geometry.record(record.bucket, record.index) + LINES_PER_RECORD as u32;
        let purpose = Purpose::Header { slot, update: number, record: record.number, at };
        let write = Write::new(purpose, *record.header.bytes());
        let write = self.new_write(write);
        self.queue_log(mc, write);
    }

    /// A data write finds its line locked: the header that locks it is to be written.
    pub(super) fn force_header(&mut self, mc: usize, line: u32) {
        for slot in 0..self.managers[mc].updates.len() {
            let records = &mut self.managers[mc].updates[slot].records;
            let open = records.iter_mut().find(|record| !record.closed && record.locks.contains(&line));
            if let Some(record) = open {
                record.closed = true;
                self.counters.forced += 1;
                return self.record_closed(mc, slot as u8);
            }
        }
    }

    /// The record with this number, if the update has not ended.
    fn record(&mut self, mc: usize, slot: u8, update: u32, record: u32) -> Option<&mut Record> {
        let of = self.update(mc, slot);
        of.records.iter_mut().find(|open| of.number == update && open.number == record)
    }

    pub(super) fn log_line_durable(&mut self, mc: usize, slot: u8, update: u32, record: u32) {
        let is_base = self.plan.design == Design::Base;
        if let Some(record) = self.record(mc, slot, update, record) {
            record.durable += 1;
            if is_base && record.header_durable {
                self.record_done(mc, slot);
            } else {
                self.queue_header(mc, slot);
            }
        }
    }

    /// A header goes to its bank, which only faults take for an occasion.
    pub(super) fn header_issued(&mut self, mc: usize, slot: u8, update: u32, record: u32) {
        let (unlocks, counts) = (self.has(Fault::UnlockAtIssue), self.has(Fault::CountedAtIssue));
        if !unlocks && !counts {
            return;
        }
        let Some(record) = self.record(mc, slot, update, record) else { return };
        let mut locks = Vec::new();
        if unlocks {
            locks = std::mem::take(&mut record.locks);
        }
        if counts {
            record.counted = true;
            self.update(mc, slot).counted += 1;
        }
        self.unlock_lines(mc, locks);
    }

    pub(super) fn header_durable(&mut self, mc: usize, slot: u8, update: u32, record: u32) {
        let is_base = self.plan.design == Design::Base;
        let Some(record) = self.record(mc, slot, update, record) else { return };
        record.header_durable = true;
        if !is_base || record.durable == record.header.count() {
            self.record_done(mc, slot);
        }
    }

    /// The oldest record is durable: it counts, and its lines are unlocked.
    fn record_done(&mut self, mc: usize, slot: u8) {
        let update = self.update(mc, slot);
        let record = update.records.pop_front().expect("there is a record");
        if !record.counted && update.buckets.last() == Some(&record.bucket) {
            update.counted += 1;
        }
        if record.header.count() == LINES_PER_RECORD {
            self.counters.full_records += 1;
            self.counters.full_record_writes += record.durable as u64 + u64::from(record.header_durable);
        }
        self.unlock_lines(mc, record.locks);
        if let Some(core) = record.waits {
            let event = Event::LogAck { core };
            self.send(Node::Controller(mc), Node::Tile(usize::from(core)), false, event);
        }
        self.queue_header(mc, slot);
        self.pump(mc, slot);
    }

    fn unlock_lines(&mut self, mc: usize, lines: Vec<u32>) {
        for line in lines {
            self.locked[line as usize] -= 1;
        }
        self.kick(mc, 0);
    }

    /// Clears an update's log, which takes one cycle and ends even if power fails, and changes the
    /// slot's phase.
    pub(super) fn clear_log(&mut self, mc: usize, slot: u8) {
        let has_phases = !self.has(Fault::Broadcast);
        let manager = &mut self.managers[mc];
        let update = &mut manager.updates[usize::from(slot)];
        for bucket in update.buckets.drain(..) {
            manager.allocated[usize::from(bucket)] = false;
        }
        (update.begun, update.counted, update.records_begun) = (0, 0, 0);
        update.number += 1;
        update.phase ^= has_phases;
        let records = std::mem::take(&mut update.records);
        for record in records {
            self.unlock_lines(mc, record.locks);
        }
        self.pump_all(mc);
    }
}
