//! The log of a redo design: what cores and controllers know of it, and its bytes.

use std::collections::{BTreeMap, BTreeSet};

use duramen_types::undo_record::RECORD_LINES;

use super::description::Machine;
use super::nvm::{set_word_of, word_of};
use super::{Bytes, LINE_BYTES};

/// Entries of a log line.
pub(super) const ENTRIES: usize = 4;
/// The address of an entry that is none.
pub(super) const NO_ADDRESS: u64 = u64::MAX;
/// Where a core's log is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) per_core: u32,
    pub(super) commits: u32,
}

impl Space {
    pub(super) fn of(machine: &Machine) -> Self {
        let records = machine.log.buckets * usize::from(machine.log.records);
        let per_core = (records * RECORD_LINES / machine.core.cores) as u32;
        Self { per_core, commits: per_core / 4 }
    }

    pub(super) fn commit(self, core: usize, number: u32) -> u32 {
        core as u32 * self.per_core + number % self.commits
    }

    pub(super) fn lines(self) -> u32 {
        self.per_core - self.commits
    }

    pub(super) fn line(self, core: usize, number: u32) -> u32 {
        core as u32 * self.per_core + self.commits + number % self.lines()
    }
}

/// A core's log at the controllers.
#[derive(Clone, Debug)]
pub(super) struct CoreLog {
    /// Entries that are not sent, for each controller.
    pub(super) open: Vec<Vec<(u64, u64)>>,
    /// Where the open update's lines begin, and how many they are, for each controller.
    pub(super) ranges: Vec<(u32, u32)>,
    /// Lines that are not known to be durable.
    pub(super) pending: usize,
    pub(super) ending: bool,
    /// Lines of committed updates that are not retired.
    pub(super) unretired: u32,
    /// Commit records written, and those of retired updates.
    pub(super) commits: u32,
    pub(super) retired: u32,
}

/// An update that ends, or has been committed, until it is retired.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) core: usize,
    pub(super) ranges: Vec<(u32, u32)>,
    pub(super) durable: bool,
    /// What is left to do at each controller.
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<u32>,
    /// The controllers where its lines are on their way to their places.
    pub(super) placed: Vec<bool>,
    pub(super) retired: Vec<bool>,
}

/// The controllers' part.
#[derive(Debug)]
pub(super) struct Backend {
    pub(super) space: Space,
    pub(super) victims: BTreeSet<u32>,
    pub(super) cores: Vec<CoreLog>,
    pub(super) ended: BTreeMap<u32, Ended>,
    pub(super) last_number: u32,
    /// For each controller, the update up to which retirement has begun, and is done.
    pub(super) begun: Vec<u32>,
    pub(super) retired: Vec<u32>,
}

impl Backend {
    pub(super) fn new(machine: &Machine) -> Self {
        let controllers = machine.memory.controllers;
        let log = CoreLog {
            open: vec![Vec::new(); controllers],
            ranges: vec![(0, 0); controllers],
            pending: 0,
            ending: false,
            unretired: 0,
            commits: 0,
            retired: 0,
        };
        Self {
            space: Space::of(machine),
            victims: BTreeSet::new(),
            cores: vec![log; machine.core.cores],
            ended: BTreeMap::new(),
            last_number: 0,
            begun: vec![0; controllers],
            retired: vec![0; controllers],
        }
    }

    pub(super) fn has_victim(&self, line: u32) -> bool {
        self.victims.contains(&line)
    }

    pub(super) fn take_victim(&mut self, line: u32) -> bool {
        self.victims.remove(&line)
    }

    pub(super) fn add_victim(&mut self, line: u32) {
        self.victims.insert(line);
    }

    /// What a controller saves when power fails: the last update that it has retired.
    pub(super) fn critical(&self, mc: usize) -> [Bytes; 2] {
        let mut lines = [[0; LINE_BYTES]; 2];
        set_word_of(&mut lines[0], 0, u64::from(self.retired[mc]));
        lines
    }
}

/// A commit record: the update's number, where its lines begin and how many they are at each
/// controller, and a checksum.
pub(super) fn commit_record(number: u32, ranges: &[(u32, u32)]) -> Bytes {
    let mut line = [0; LINE_BYTES];
    set_word_of(&mut line, 0, u64::from(number));
    for (index, (start, count)) in ranges.iter().enumerate() {
        set_word_of(&mut line, 8 + 8 * index, u64::from(*start) | u64::from(*count) << 32);
    }
    let sum = checksum(&line);
    set_word_of(&mut line, 56, sum);
    line
}

pub(super) fn checksum(line: &Bytes) -> u64 {
    (0..7).fold(0x5bd1_e995, |sum: u64, word| {
        (sum ^ word_of(line, word * 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
    })
}

/// A log line of up to four entries.
pub(super) fn log_line(entries: &[(u64, u64)]) -> Bytes {
    let mut line = [0; LINE_BYTES];
    for index in 0..ENTRIES {
        let (address, value) = entries.get(index).copied().unwrap_or((NO_ADDRESS, 0));
        set_word_of(&mut line, index * 16, address);
        set_word_of(&mut line, index * 16 + 8, value);
    }
    line
}

pub(super) fn entries_of(line: &Bytes) -> impl Iterator<Item = (u64, u64)> {
    let entries: Vec<(u64, u64)> =
        (0..ENTRIES).map(|index| (word_of(line, index * 16), word_of(line, index * 16 + 8))).collect();
    let entries = entries.into_iter().filter(|(address, _)| *address != NO_ADDRESS);
    // A store of half a word has an address of its own, and carries the whole word.
    entries.map(|(address, value)| (address & !7, value))
}
