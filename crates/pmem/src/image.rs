//! The images that a power cut can leave: all of them, or a random sample.

use crate::crash::SimMemory;
use crate::survivors::Survivors;

/// An iterator over images that a power cut at one moment can leave.
#[derive(Debug)]
pub struct Images {
    memory: SimMemory,
    next: u64,
    count: u64,
    /// The seed if images are drawn; `None` if there are few enough to number them all.
    seed: Option<u64>,
}

impl SimMemory {
    /// Returns the images that power cuts at this moment can leave: all of them if there are at
    /// most `most`, or else `most` images drawn from `seed`.
    pub fn images(&self, most: u64, seed: u64) -> Images {
        Images::new(self.clone(), self.ways(), most, seed)
    }
}

impl Images {
    fn new(memory: SimMemory, ways: u64, most: u64, seed: u64) -> Self {
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
