//! The images that a power cut can leave: all of them, or a random sample.

use duramen_sync::SplitMix64;

use crate::crash::{SimMemory, Version};
use crate::instructions::LINE;

/// Chooses the value of each word after a power cut, among those that it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survivors {
    /// The oldest value: only what is sure to survive.
    Nothing,
    /// The newest value.
    Everything,
    /// The image with this number, counted from 0 ([`SimMemory::ways`]).
    Nth(u64),
    /// Drawn from this seed. Each seed also draws how likely losses are, and whether words, lines
    /// or all writes of a thread are lost together, so that a few seeds cover many kinds of
    /// crashes.
    Random(u64),
}

/// An iterator over images that a power cut at one moment can leave.
#[derive(Debug)]
pub struct Images {
    memory: SimMemory,
    next: u64,
    count: u64,
    /// The seed if images are drawn; `None` if there are few enough to number them all.
    seed: Option<u64>,
}

impl Images {
    pub(crate) fn new(memory: SimMemory, ways: u64, most: u64, seed: u64) -> Self {
        Self { memory, next: 0, count: ways.min(most), seed: (ways > most).then_some(seed) }
    }

    /// Returns whether the iterator covers all possible images.
    pub fn are_all(&self) -> bool {
        self.seed.is_none()
    }
}

impl Iterator for Images {
    type Item = (Survivors, SimMemory);

    fn next(&mut self) -> Option<Self::Item> {
        let number = self.next;
        if number == self.count {
            return None;
        }
        self.next += 1;
        let survivors = match (self.seed, number) {
            (None, number) => Survivors::Nth(number),
            (Some(_), 0) => Survivors::Nothing,
            (Some(_), 1) => Survivors::Everything,
            (Some(seed), number) => Survivors::Random(seed.wrapping_add(number)),
        };
        Some((survivors, self.memory.crash_image(survivors, None)))
    }
}

/// Decides which writes to a memory survive.
#[derive(Clone, Debug)]
pub(crate) struct Dice(SplitMix64);

/// The unit that is lost together, and how likely a loss is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    unit: Unit,
    lost_percent: u64,
    salt: u64,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Word,
    Line,
    Thread,
}

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn style(&mut self) -> Style {
        let unit = [Unit::Word, Unit::Line, Unit::Thread][self.0.below(3) as usize];
        let lost_percent = [3, 20, 50, 80, 97][self.0.below(5) as usize];
        Style { unit, lost_percent, salt: self.0.bits() }
    }

    /// Returns how many of a word's versions reached the memory.
    pub(crate) fn survivor(&mut self, style: &Style, word: usize, versions: &[Version]) -> usize {
        let is_lost = |what: u64| SplitMix64::mix(what ^ style.salt) % 100 < style.lost_percent;
        match style.unit {
            Unit::Word if self.0.below(100) < style.lost_percent => self.0.below(versions.len() as u64) as usize,
            Unit::Line if is_lost((word * 8 / LINE) as u64) => 0,
            Unit::Thread => {
                let kept = versions.iter().rposition(|version| !is_lost(version.thread));
                kept.map_or(0, |last| last + 1)
            }
            _ => versions.len(),
        }
    }
}
