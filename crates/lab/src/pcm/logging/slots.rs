//! The slots of the PCM, as DRAM knows them: which are free, and which may be replaced.

use super::medium::{Slot, Stored};
use crate::pcm::recency::Recency;

/// A slot is free, *replaceable* (a committed version that is the newest of its unit), or *held*: a
/// version of a transaction in progress, or the one before it.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Option<Stored>>,
    free: Vec<Slot>,
    replaceable: Recency,
}

impl Slots {
    /// Returns `count` free slots.
    pub(super) fn new(count: usize) -> Self {
        let free = (0..count as u32).rev().map(Slot).collect();
        Self { slots: vec![None; count], free, replaceable: Recency::new(count) }
    }

    /// Returns the slots after a crash; these, which come in the order of their last use, are
    /// replaceable, and the others free.
    pub(super) fn with(count: usize, stored: &[(Slot, Stored)]) -> Self {
        let mut slots = Self::new(count);
        for &(slot, stored) in stored {
            slots.slots[slot.0 as usize] = Some(stored);
            slots.replaceable.touch(slot.0);
        }
        slots.free.retain(|slot| slots.slots[slot.0 as usize].is_none());
        slots
    }

    /// Takes a free slot, if there is one.
    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    /// Notes what a slot holds that was taken. It is held.
    pub(super) fn fill(&mut self, slot: Slot, stored: Stored) {
        let before = self.slots[slot.0 as usize].replace(stored);
        assert!(before.is_none(), "a version is never overwritten");
    }

    pub(super) fn get(&self, slot: Slot) -> &Stored {
        self.slots[slot.0 as usize].as_ref().expect("the slot is in use")
    }

    /// Makes a slot free.
    pub(super) fn release(&mut self, slot: Slot) {
        assert!(self.slots[slot.0 as usize].take().is_some(), "a slot in use");
        self.replaceable.remove(slot.0);
        self.free.push(slot);
    }

    /// Keeps a slot from being replaced.
    pub(super) fn hold(&mut self, slot: Slot) {
        self.replaceable.remove(slot.0);
    }

    /// Makes a slot replaceable, and the one used last.
    pub(super) fn offer(&mut self, slot: Slot) {
        self.replaceable.touch(slot.0);
    }

    pub(super) fn is_replaceable(&self, slot: Slot) -> bool {
        self.replaceable.contains(slot.0)
    }

    /// Returns the replaceable slot that was used longest ago.
    pub(super) fn coldest(&self) -> Option<Slot> {
        self.replaceable.oldest().map(Slot)
    }
}
