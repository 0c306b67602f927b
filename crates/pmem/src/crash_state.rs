//! The words of a simulated memory: for each, the value that a power cut leaves for sure, and the
//! values that it may leave.

use std::collections::HashMap;

use crate::instructions::LINE;

/// The words of a line.
const LINE_WORDS: usize = LINE / 8;

/// The contents of the memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// What a power cut leaves for sure, word by word.
    pub(crate) sure: Vec<u64>,
    /// The values that words have had since.
    pub(crate) unsure: Unsure,
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
    /// Returns memory with these words, all of them sure.
    pub(crate) fn new(sure: Vec<u64>) -> Self {
        Self { unsure: Unsure::new(sure.len()), sure, ..Self::default() }
    }

    /// Makes the `pending` versions of words sure and drops the versions before them.
    pub(crate) fn make_sure(&mut self, pending: &[(usize, u64)]) {
        for of_line in pending.chunk_by(|(one, _), (next, _)| one / LINE_WORDS == next / LINE_WORDS) {
            self.unsure.take_up_to(of_line, &mut self.sure);
        }
    }
}

/// The values that words may have after a power cut besides the sure one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsure {
    /// For each line of the memory, the versions of its words; `None` if all of them are sure.
    lines: Vec<Option<Box<Line>>>,
    /// The number of lines that are not `None`. Each of them has a version.
    used: usize,
}

/// The versions of each word, oldest first.
type Line = [Vec<Version>; LINE_WORDS];

impl Unsure {
    /// Returns the state of a memory of `words` words, all of them sure.
    fn new(words: usize) -> Self {
        Self { lines: vec![None; words.div_ceil(LINE_WORDS)], used: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the versions of a word, oldest first; none if the word is sure.
    pub(crate) fn versions(&self, word: usize) -> &[Version] {
        self.lines[word / LINE_WORDS].as_ref().map_or(&[], |line| &line[word % LINE_WORDS])
    }

    /// Adds the newest version of a word.
    pub(crate) fn push(&mut self, word: usize, version: Version) {
        let line = self.lines[word / LINE_WORDS].get_or_insert_with(|| {
            self.used += 1;
            Box::default()
        });
        line[word % LINE_WORDS].push(version);
    }

    /// Returns the words that are not sure, in their order, each with its versions.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &[Version])> {
        let lines = self.lines.iter().enumerate().filter_map(|(number, line)| Some((number, line.as_ref()?)));
        let words = lines.flat_map(|(number, line)| {
            line.iter().enumerate().map(move |(place, versions)| (number * LINE_WORDS + place, &versions[..]))
        });
        words.filter(|(_, versions)| !versions.is_empty())
    }

    /// Takes `words` of one line, each with the number of a version. Drops the word's versions up
    /// to that one; the last one dropped becomes the word's `sure` value.
    fn take_up_to(&mut self, words: &[(usize, u64)], sure: &mut [u64]) {
        let Some((first, _)) = words.first() else { return };
        let place = &mut self.lines[first / LINE_WORDS];
        let Some(line) = place else { return };
        for &(word, number) in words {
            let versions = &mut line[word % LINE_WORDS];
            let known = versions.iter().take_while(|version| version.number <= number).count();
            if let Some(last) = versions.drain(..known).next_back() {
                sure[word] = last.value;
            }
        }
        if line.iter().all(Vec::is_empty) {
            *place = None;
            self.used -= 1;
        }
    }
}
