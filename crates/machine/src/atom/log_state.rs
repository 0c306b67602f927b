//! What the log manager of a controller knows.

use std::collections::VecDeque;

use duramen_types::undo_record::UndoHeader;

use super::critical::CriticalState;
use super::description::Machine;
use super::events::Request;
use super::{Bytes, Fault};

/// Where an entry comes from, and how it is acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// A core's LogI waits for it.
    Core(u8),
    /// The controller has read the line for this request, which is answered with the log bit set.
    Read(Request),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) line: u32,
    pub(super) old: Bytes,
    pub(super) source: Source,
}

/// A record whose header is not durable: a record header register.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) bucket: u8,
    pub(super) index: u16,
    pub(super) number: u32,
    pub(super) header: UndoHeader,
    /// Lines of it that are durable.
    pub(super) durable: usize,
    /// No further entry enters.
    pub(super) closed: bool,
    pub(super) header_queued: bool,
    pub(super) header_durable: bool,
    /// A fault has counted it already.
    pub(super) counted: bool,
    pub(super) locks: Vec<u32>,
    /// The core that BASE acknowledges when the record counts.
    pub(super) waits: Option<u8>,
}

/// What a controller knows of the update in a slot: an atomic update structure (AUS).
#[derive(Debug, Default)]
pub(super) struct Update {
    /// Its buckets, the current one last.
    pub(super) buckets: Vec<u8>,
    /// Records of the current bucket whose headers are durable.
    pub(super) counted: u16,
    /// Records of the current bucket that were begun.
    pub(super) begun: u16,
    pub(super) phase: bool,
    /// Number of the update among those of the slot.
    pub(super) number: u32,
    /// Records that it has begun.
    pub(super) records_begun: u32,
    pub(super) records: VecDeque<Record>,
    pub(super) waiting: VecDeque<Entry>,
}

/// The log manager of a controller.
#[derive(Debug)]
pub(super) struct LogManager {
    pub(super) updates: Vec<Update>,
    pub(super) allocated: Vec<bool>,
    /// Buckets that the operating system has provided.
    pub(super) limit: usize,
    pub(super) growing: bool,
    /// Entries that wait for a record.
    pub(super) waiting: usize,
}

impl LogManager {
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            updates: (0..machine.log.updates).map(|_| Update::default()).collect(),
            allocated: vec![false; machine.log.buckets],
            limit: machine.log.first_limit,
            growing: false,
            waiting: 0,
        }
    }

    /// What is saved when power fails.
    pub(super) fn critical(&self, fault: Option<Fault>) -> CriticalState {
        let mut state = CriticalState::default();
        for bucket in (0..self.allocated.len()).filter(|bucket| self.allocated[*bucket]) {
            let newest = self.updates.iter().any(|update| update.buckets.last() == Some(&(bucket as u8)));
            if fault != Some(Fault::BucketNotInVector) || !newest {
                state.allocate(bucket);
            }
        }
        for (slot, update) in self.updates.iter().enumerate() {
            let saved =
                if fault == Some(Fault::BucketNotSaved) { update.buckets.first() } else { update.buckets.last() };
            state.set(slot, update.phase, saved.map(|bucket| (*bucket, update.counted)));
        }
        state
    }
}
