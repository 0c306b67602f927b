//! The words of a simulated memory: for each, the value that a power cut leaves for sure, and the
//! values that it may leave.

use std::collections::{BTreeMap, HashMap};

/// The contents of the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// What a power cut leaves for sure, word by word.
    pub(crate) sure: Vec<u64>,
    /// The values that words have had since, oldest first.
    pub(crate) unsure: BTreeMap<usize, Vec<Version>>,
    /// What the next fence of each thread makes sure: for each word, the last version that becomes
    /// sure.
    pub(crate) pending: HashMap<u64, Vec<(usize, u64)>>,
    pub(crate) versions: u64,
    pub(crate) operations: u64,
    /// Which of the operations were fences or drains.
    pub(crate) fences: Vec<u64>,
    pub(crate) crash_at: Option<u64>,
    pub(crate) is_off: bool,
    pub(crate) is_open: bool,
}

/// A value of a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) value: u64,
    /// The thread that wrote it.
    pub(crate) thread: u64,
    pub(crate) is_streamed: bool,
}

impl State {
    /// Makes version `number` of the word sure and drops the versions before it.
    pub(crate) fn make_sure(&mut self, word: usize, number: u64) {
        let Some(versions) = self.unsure.get_mut(&word) else { return };
        let known = versions.iter().take_while(|version| version.number <= number).count();
        if let Some(last) = versions.drain(..known).next_back() {
            self.sure[word] = last.value;
        }
        if versions.is_empty() {
            self.unsure.remove(&word);
        }
    }
}
