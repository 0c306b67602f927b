//! What a power cut leaves of each word of a simulated memory.

use duramen_sync::SplitMix64;

use crate::crash_state::{State, Version};
use crate::instructions::LINE;

/// Chooses the value of each word after a power cut, among those that it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survivors {
    /// The oldest value: only what is sure to survive.
    Nothing,
    /// The newest value.
    Everything,
    /// The image with this number, counted from 0 ([`crate::SimMemory::ways`]).
    Nth(u64),
    /// Drawn from this seed. Each seed also draws how likely losses are, and whether words, lines
    /// or all writes of a thread are lost together, so that a few seeds cover many kinds of
    /// crashes.
    Random(u64),
}

impl Survivors {
    /// Returns the memory's words after a power cut.
    pub(crate) fn apply(self, state: &State) -> Vec<u64> {
        let mut image = state.sure.clone();
        let mut put = |word: usize, versions: &[Version], count: usize| {
            if let Some(version) = count.checked_sub(1).and_then(|last| versions.get(last)) {
                image[word] = version.value;
            }
        };
        match self {
            Self::Nothing => {}
            Self::Everything => {
                state.unsure.iter().for_each(|(word, versions)| put(word, versions, versions.len()));
            }
            Self::Nth(mut rest) => {
                for (word, versions) in state.unsure.iter() {
                    let values = versions.len() as u64 + 1;
                    put(word, versions, (rest % values) as usize);
                    rest /= values;
                }
            }
            Self::Random(seed) => {
                let mut dice = Dice::new(seed);
                let style = dice.style();
                for (word, versions) in state.unsure.iter() {
                    put(word, versions, dice.survivor(&style, word, versions));
                }
            }
        }
        image
    }
}

/// Decides which writes to a memory survive.
#[derive(Clone, Debug)]
struct Dice(SplitMix64);

/// The unit that is lost together, and how likely a loss is.
#[derive(Clone, Copy, Debug)]
struct Style {
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
    fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn style(&mut self) -> Style {
        let unit = [Unit::Word, Unit::Line, Unit::Thread][self.0.below(3) as usize];
        let lost_percent = [3, 20, 50, 80, 97][self.0.below(5) as usize];
        Style { unit, lost_percent, salt: self.0.bits() }
    }

    /// Returns how many of a word's versions reached the memory.
    fn survivor(&mut self, style: &Style, word: usize, versions: &[Version]) -> usize {
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
