//! Versioned locks of lines: which transaction may write a line, and whether a reader has seen a
//! consistent state. In ordinary memory; a restart begins with fresh ones.
//!
//! Undo restores whole lines, so each line may have one writer at a time; that is a matter of
//! correctness. The locks also give transactions isolation. The method is that of time-based
//! software transactional memory with writes in place (Dice, Fetzer, Shavit: Transactional Locking
//! II, DISC 2006; Felber, Fetzer, Riegel: TinySTM, PPoPP 2008).
//!
//! # State
//! Four neighbouring lines share one of the table's words, and so may lines that are far apart. A
//! larger number makes large objects cheaper, and transactions on small neighbours meet more often.
//! A word is
//! - `version << 1`: unlocked; the lines last changed at time `version`;
//! - `owner << 1 | 1`: locked by the transaction in slot `owner`.
//!
//! The clock counts the transactions that changed lines, committed or rolled back.
//!
//! # Protocol
//! - A transaction begins by reading the clock: its *time*. All it reads is from versions not above
//!   this time, so it sees one state of the heap.
//! - A reader loads the word (`see`), reads the line, and loads the word again (`is_unchanged`). If
//!   it was locked, or has changed, or the version is above its time, the reader has seen nothing.
//!   In the last case it may move its time forward after it has checked that everything it has read
//!   before is unchanged (`extend` in `update.rs`).
//! - A writer locks the word (`lock`), which only succeeds if it is unlocked with the version that
//!   it has seen. It then stores to the lines.
//! - At its end a writer advances the clock (`tick`), checks that what it has read is unchanged,
//!   ends its update durably, and releases its words with the new time as their version. A rollback
//!   restores the lines first and releases with a new time, too: a reader between its two loads may
//!   have read what was rolled back, and must notice.
//!
//! # Why a reader cannot miss a writer
//! Lines are stored to and read as relaxed words. A writer has a release fence between its lock and
//! its stores, a reader an acquire fence between its reads and its second load: a reader that has
//! read one of these stores finds the word locked, or released with a newer version. A reader whose
//! time includes a writer's `tick` has acquired from the clock, so its first load finds the
//! writer's lock or release. At the end, two writers that have read what the other has changed
//! advance the clock one after the other; the second one acquires the first one's locks with its
//! `tick`, so its check fails.

use std::ops::Range;

use duramen_sync::SplitMix64;
use duramen_sync::atomic::{AtomicU64, Ordering, fence};

/// Neighbouring lines that share a word.
pub(crate) const LINES_OF_WORD: u64 = 4;

/// Neighbouring lines whose words lie together, in order.
pub(crate) const LINES_OF_GROUP: u64 = 8 * LINES_OF_WORD;

/// The locks of all lines of a heap.
#[derive(Debug)]
pub(crate) struct LineLocks {
    words: Box<[AtomicU64]>,
    clock: AtomicU64,
}

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Unlocked, at this version.
    Version(u64),
    /// Locked by the transaction that asks.
    Own,
    /// Locked by another transaction.
    Busy,
}

impl LineLocks {
    /// Returns locks for a heap of `lines` lines.
    pub(crate) fn new(lines: u64) -> Self {
        let words = (lines / LINES_OF_WORD).next_power_of_two().clamp(64, 1 << 18);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), clock: AtomicU64::new(0) }
    }

    /// Returns the number of the word for a line.
    #[inline]
    pub(crate) fn word_of(&self, line: u64) -> usize {
        self.word(line / LINES_OF_WORD)
    }

    /// Returns the words for these lines, which are neighbours, in their order.
    #[inline]
    pub(crate) fn words_of(&self, lines: Range<u64>) -> impl Iterator<Item = usize> {
        let groups = lines.start / LINES_OF_GROUP..lines.end.div_ceil(LINES_OF_GROUP);
        groups.flat_map(move |group| {
            let first = group * LINES_OF_GROUP;
            self.words_of_group(lines.start.max(first)..lines.end.min(first + LINES_OF_GROUP))
        })
    }

    /// Returns the words for lines of one group; at least one line.
    #[inline]
    pub(crate) fn words_of_group(&self, lines: Range<u64>) -> Range<usize> {
        let first = self.word_of(lines.start);
        first..first + ((lines.end - 1) / LINES_OF_WORD - lines.start / LINES_OF_WORD) as usize + 1
    }

    #[inline]
    fn word(&self, four: u64) -> usize {
        // The words of a group share a cache line. Further ones are apart by the mix, so that
        // objects of a power of two do not share words.
        ((SplitMix64::mix(four / 8) as usize).wrapping_mul(8) + four as usize % 8) & (self.words.len() - 1)
    }

    /// Returns the time.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        // Acquire: pairs with `tick`, so that the locks of a transaction that has ticked are seen.
        self.clock.load(Ordering::Acquire)
    }

    /// Advances the clock and returns the new time.
    #[inline]
    pub(crate) fn tick(&self) -> u64 {
        // Release: publishes the locks taken before. Acquire: sees those of earlier ticks.
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns what a word says to the transaction in slot `owner`.
    #[inline]
    pub(crate) fn see(&self, word: usize, owner: u32) -> Seen {
        // Acquire: pairs with `release`, so that a line is read no older than its version.
        match self.words[word].load(Ordering::Acquire) {
            value if value & 1 == 0 => Seen::Version(value >> 1),
            value if value == locked_by(owner) => Seen::Own,
            _ => Seen::Busy,
        }
    }

    /// Returns whether a word still has the version that a reader saw before it read the line.
    #[inline]
    pub(crate) fn is_unchanged(&self, word: usize, version: u64) -> bool {
        // Pairs with the release fence in `lock`.
        fence(Ordering::Acquire);
        self.words[word].load(Ordering::Relaxed) == version << 1
    }

    /// Locks an unlocked word that has this version; returns whether that succeeded.
    #[inline]
    pub(crate) fn lock(&self, word: usize, version: u64, owner: u32) -> bool {
        let (from, to) = (version << 1, locked_by(owner));
        // Acquire: pairs with `release`, so that the old line is read as it was left.
        let is_locked = self.words[word].compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok();
        // Pairs with the acquire fence in `is_unchanged`.
        fence(Ordering::Release);
        is_locked
    }

    /// Unlocks a word of the caller.
    #[inline]
    pub(crate) fn release(&self, word: usize, version: u64) {
        // Release: publishes the lines. Pairs with `see` and `lock`.
        self.words[word].store(version << 1, Ordering::Release);
    }
}

fn locked_by(owner: u32) -> u64 {
    u64::from(owner) << 1 | 1
}

#[cfg(all(test, duramen_loom))]
#[path = "line_locks_models.rs"]
mod models;
