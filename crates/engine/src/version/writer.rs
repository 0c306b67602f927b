//! The outcome of one writing transaction, as its versions refer to it.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Gsn;

/// The low bits of the word say what the others mean.
const TAG_BITS: u32 = 2;
const TAG: u64 = (1 << TAG_BITS) - 1;
const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1;
const ABORTED: u64 = 2;
const COMMITTED: u64 = 3;

/// How a transaction ended, if it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It has not begun to commit: a commit record of it will come behind every horizon taken so
    /// far.
    Active,
    /// It inserts its commit record, whose position is not known yet.
    Committing,
    /// Its commit has this position in the order of commits.
    Committed(Gsn),
    /// Its changes are undone.
    Aborted,
}

/// One word: the position of the commit above the tag. Only the transaction itself stores to it.
#[derive(Debug, Default)]
pub(super) struct Writer(AtomicU64);

impl Writer {
    pub(super) fn outcome(&self) -> Outcome {
        let word = self.0.load(Ordering::Acquire);
        match word & TAG {
            ACTIVE => Outcome::Active,
            COMMITTING => Outcome::Committing,
            ABORTED => Outcome::Aborted,
            _ => Outcome::Committed(Gsn::new(word >> TAG_BITS)),
        }
    }

    pub(super) fn set_committing(&self) {
        self.0.store(COMMITTING, Ordering::Release);
    }

    pub(super) fn set_committed(&self, at: Gsn) {
        self.0.store(at.get() << TAG_BITS | COMMITTED, Ordering::Release);
    }

    pub(super) fn set_aborted(&self) {
        self.0.store(ABORTED, Ordering::Release);
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_each_outcome() {
        let writer = Writer::default();
        assert_eq!(writer.outcome(), Outcome::Active);
        writer.set_committing();
        assert_eq!(writer.outcome(), Outcome::Committing);
        for at in [0, 1, 7, 1 << 61] {
            writer.set_committed(Gsn::new(at));
            assert_eq!(writer.outcome(), Outcome::Committed(Gsn::new(at)));
        }
        writer.set_aborted();
        assert_eq!(writer.outcome(), Outcome::Aborted);
    }
}
