//! Values: what programs see, what memory holds, and what it must hold after recovery.
//!
//! The protocol keeps all valid copies of a line equal, so caches have no bytes of their own:
//! `coherent` has the value that the newest store which left a store queue gave each line. Store
//! queues, write queues and the log have bytes of their own.

use std::collections::{BTreeMap, BTreeSet};

use duramen_types::undo_record::RECORD_LINES;

use super::description::Machine;
use super::{Bytes, LINE_BYTES};

#[derive(Debug)]
pub(super) struct Values {
    pub(super) coherent: Vec<Bytes>,
    pub(super) nvm: Vec<Bytes>,
    /// As of the last commit of each line.
    pub(super) committed: Vec<Bytes>,
    /// Lines whose `nvm` is not `committed`.
    pub(super) differ: BTreeSet<u32>,
    /// The log space behind each controller.
    pub(super) log: Vec<Vec<Bytes>>,
    /// Log lines that hold an entry which the controller made of what it read.
    pub(super) sourced: Vec<Vec<bool>>,
    /// The update, by core, that has written each line since its last commit; zero is none.
    pub(super) writer: Vec<u8>,
    /// Lines from here on are no data: lock words and stacks.
    pub(super) scratch: u32,
    /// Of each stack line, the values that committed updates gave it, from the one that memory has.
    /// Stacks are not flushed, so memory may have any of them, but none of an open update.
    pub(super) stacks: BTreeMap<u32, Vec<Bytes>>,
    /// The values that the open update gave it.
    open_stacks: BTreeMap<u32, Vec<Bytes>>,
}

impl Values {
    pub(super) fn new(machine: &Machine, image: Vec<Bytes>, scratch_lines: usize) -> Self {
        let scratch = image.len() as u32;
        let mut nvm = image;
        nvm.resize(nvm.len() + scratch_lines, [0; LINE_BYTES]);
        let lines = machine.log.buckets * usize::from(machine.log.records) * RECORD_LINES;
        Self {
            coherent: nvm.clone(),
            committed: nvm.clone(),
            differ: BTreeSet::new(),
            log: vec![vec![[0; LINE_BYTES]; lines]; machine.memory.controllers],
            sourced: vec![vec![false; lines]; machine.memory.controllers],
            writer: vec![0; nvm.len()],
            nvm,
            scratch,
            stacks: BTreeMap::new(),
            open_stacks: BTreeMap::new(),
        }
    }

    /// A write of a data line is durable.
    pub(super) fn persist(&mut self, line: u32, bytes: Bytes) {
        self.nvm[line as usize] = bytes;
        if line < self.scratch {
            return self.compare(line);
        }
        if let Some(values) = self.stacks.get_mut(&line)
            && let Some(known) = values.iter().rposition(|value| *value == bytes)
        {
            values.drain(..known);
        }
    }

    /// The line's value is committed.
    pub(super) fn commit(&mut self, line: u32) {
        self.committed[line as usize] = self.coherent[line as usize];
        self.writer[line as usize] = 0;
        self.compare(line);
    }

    /// An update has stored to a stack line.
    pub(super) fn stack_stored(&mut self, line: u32) {
        self.open_stacks.entry(line).or_default().push(self.coherent[line as usize]);
    }

    /// An update with this stack line is committed.
    pub(super) fn stack_committed(&mut self, line: u32) {
        let values = self.stacks.entry(line).or_insert_with(|| vec![[0; LINE_BYTES]]);
        values.append(self.open_stacks.entry(line).or_default());
    }

    fn compare(&mut self, line: u32) {
        if self.nvm[line as usize] == self.committed[line as usize] {
            self.differ.remove(&line);
        } else {
            self.differ.insert(line);
        }
    }

    /// Returns the word at `address`.
    pub(super) fn word(&self, address: u64) -> u64 {
        let at = (address % LINE_BYTES as u64) as usize;
        word_of(&self.coherent[(address / LINE_BYTES as u64) as usize], at)
    }

    /// Stores a word.
    pub(super) fn set_word(&mut self, address: u64, value: u64) {
        let at = (address % LINE_BYTES as u64) as usize & !7;
        set_word_of(&mut self.coherent[(address / LINE_BYTES as u64) as usize], at, value);
    }
}

pub(super) fn word_of(line: &Bytes, at: usize) -> u64 {
    line[at..at + 8].iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

pub(super) fn set_word_of(line: &mut Bytes, at: usize, value: u64) {
    line[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Returns `old` with those words of `new` whose bits are set in `words`.
pub(super) fn torn(old: &Bytes, new: &Bytes, words: u8) -> Bytes {
    let mut line = *old;
    for word in (0..8).filter(|word| words >> word & 1 == 1) {
        line[word * 8..word * 8 + 8].copy_from_slice(&new[word * 8..word * 8 + 8]);
    }
    line
}
