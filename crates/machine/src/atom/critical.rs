//! What a controller saves when power fails: 128 bytes (ATOM, section IV-D).
//!
//! | bytes | content |
//! |---|---|
//! | 0-31 | allocated buckets, a bit each: the complement of the free list |
//! | 32-63 | current bucket of each update slot |
//! | 64-127 | current record of each slot, 16 bits |
//!
//! *Current record* counts the records of the current bucket whose headers are durable; all its
//! lower 15 bits are set while the slot has no log here, and all but the lowest once recovery has
//! undone the log: the current bucket is then still known. The highest bit is the slot's phase.
//! The halves are lines of their own, and each slot's record lies within a word of 8 bytes, so that
//! recovery can put slots out of use one by one.

use super::{Bytes, LINE_BYTES};

/// Slots that the critical state has room for.
pub(super) const SLOTS: usize = 32;

const IDLE: u16 = 0x7fff;
const UNDONE: u16 = 0x7ffe;
const PHASE: u16 = 0x8000;

/// The critical state of a controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CriticalState {
    allocated: [u64; 4],
    bucket: [u8; SLOTS],
    record: [u16; SLOTS],
}

impl Default for CriticalState {
    fn default() -> Self {
        Self { allocated: [0; 4], bucket: [0; SLOTS], record: [IDLE; SLOTS] }
    }
}

impl CriticalState {
    /// Marks a bucket allocated.
    pub(super) fn allocate(&mut self, bucket: usize) {
        self.allocated[bucket / 64] |= 1 << (bucket % 64);
    }

    /// Marks no bucket allocated.
    pub(super) fn free_all(&mut self) {
        self.allocated = [0; 4];
    }

    /// Returns whether the bucket is allocated.
    pub fn is_allocated(&self, bucket: usize) -> bool {
        self.allocated[bucket / 64] >> (bucket % 64) & 1 == 1
    }

    /// Sets a slot: its phase, and its current bucket and record unless it has no log here.
    pub(super) fn set(&mut self, slot: usize, phase: bool, current: Option<(u8, u16)>) {
        let (bucket, record) = current.unwrap_or((0, IDLE));
        self.bucket[slot] = bucket;
        self.record[slot] = record & IDLE | if phase { PHASE } else { 0 };
    }

    /// Puts a slot out of use after recovery; it keeps the number of its current bucket.
    pub(super) fn retire(&mut self, slot: usize, phase: bool) {
        if self.record[slot] & IDLE != IDLE {
            self.record[slot] = UNDONE;
        }
        self.record[slot] = self.record[slot] & IDLE | if phase { PHASE } else { 0 };
    }

    /// The slot's current bucket, also of a log that was undone.
    pub(super) fn named_bucket(&self, slot: usize) -> Option<u8> {
        (self.record[slot] & IDLE != IDLE).then_some(self.bucket[slot])
    }

    /// The slot's phase.
    pub fn phase(&self, slot: usize) -> bool {
        self.record[slot] & PHASE != 0
    }

    /// The slot's current bucket and the number of its valid records; nothing if the slot has no
    /// log here.
    pub fn current(&self, slot: usize) -> Option<(u8, u16)> {
        let record = self.record[slot] & IDLE;
        (record < UNDONE).then_some((self.bucket[slot], record))
    }

    /// Returns its two lines.
    pub fn encode(&self) -> [Bytes; 2] {
        let mut lines = [[0; LINE_BYTES]; 2];
        for (to, word) in lines[0].chunks_exact_mut(8).zip(self.allocated) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        lines[0][32..].copy_from_slice(&self.bucket);
        for (to, record) in lines[1].chunks_exact_mut(2).zip(self.record) {
            to.copy_from_slice(&record.to_le_bytes());
        }
        lines
    }

    /// Reads it; any 128 bytes are a critical state.
    pub fn decode(lines: &[Bytes; 2]) -> Self {
        let mut state = Self::default();
        for (word, from) in state.allocated.iter_mut().zip(lines[0].chunks_exact(8)) {
            *word = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        state.bucket.copy_from_slice(&lines[0][32..]);
        for (record, from) in state.record.iter_mut().zip(lines[1].chunks_exact(2)) {
            *record = u16::from(from[0]) | u16::from(from[1]) << 8;
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_128_bytes_and_comes_back() {
        let mut state = CriticalState::default();
        state.allocate(0);
        state.allocate(255);
        state.set(3, true, Some((255, 17)));
        state.set(31, true, None);
        assert_eq!(size_of_val(&state.encode()), 128);
        assert_eq!(CriticalState::decode(&state.encode()), state);
        assert!(state.is_allocated(255) && !state.is_allocated(254));
        assert_eq!((state.current(3), state.current(31), state.current(0)), (Some((255, 17)), None, None));
        state.retire(3, true);
        state.retire(0, true);
        assert_eq!((state.current(3), state.named_bucket(3), state.named_bucket(0)), (None, Some(255), None));
        state.retire(0, false);
        assert!(state.phase(3) && state.phase(31) && !state.phase(0));
    }
}
