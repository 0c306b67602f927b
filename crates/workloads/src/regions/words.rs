//! A node of a tree, as a copy of its words.

use crate::regions::memory::{Addr, RegionAccess};

/// A copy of `N` words, and what they were when they were read.
#[derive(Clone, Debug)]
pub(crate) struct Words<const N: usize> {
    pub(crate) at: Addr,
    pub(crate) words: [u64; N],
    stored: [u64; N],
}

impl<const N: usize> Words<N> {
    pub(crate) fn get<M: RegionAccess>(memory: &mut M, at: Addr) -> Result<Self, M::Error> {
        let mut bytes = [[0; 8]; N];
        memory.read(at, bytes.as_flattened_mut())?;
        let mut words = [0; N];
        decode(&bytes, &mut words);
        Ok(Self { at, words, stored: words })
    }

    /// Returns zeros, all of which are to be stored.
    pub(crate) fn new(at: Addr) -> Self {
        Self { at, words: [0; N], stored: [u64::MAX; N] }
    }

    /// Stores the words that have changed.
    pub(crate) fn put<M: RegionAccess>(&mut self, memory: &mut M) -> Result<(), M::Error> {
        for (index, word) in self.words.iter().enumerate() {
            if *word != self.stored[index] {
                memory.store(self.at + index as u64 * 8, *word)?;
            }
        }
        self.stored = self.words;
        Ok(())
    }
}

/// Not generic, nor a `map`: where callers are not optimized, that is a call for each word.
fn decode(bytes: &[[u8; 8]], words: &mut [u64]) {
    for (word, bytes) in words.iter_mut().zip(bytes) {
        *word = u64::from_le_bytes(*bytes);
    }
}
