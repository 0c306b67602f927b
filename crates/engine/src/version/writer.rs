//! The outcome and the older values of one writing transaction, as its versions refer to it.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Gsn;

use super::values::Values;

/// The low bits of the word say what the others mean.
const TAG_BITS: u32 = 2;
const TAG: u64 = (1 << TAG_BITS) - 1;
const ACTIVE: u64 = 0;
const COMMITTING: u64 = 1;
const ABORTED: u64 = 2;
const COMMITTED: u64 = 3;

/// How a transaction ended, if it has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Outcome {
    /// It has not begun to commit: a commit record of it will come behind every horizon taken so
    /// far.
    #[default]
    Active,
    /// It inserts its commit record, whose position is not known yet.
    Committing,
    /// Its commit has this position in the order of commits, and this turn among those of the same
    /// position.
    Committed(Gsn, u64),
    /// Its changes are undone.
    Aborted,
}

/// A writing transaction. Only the transaction itself sets its outcome, once its versions are
/// published.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// The position of the commit above the tag.
    word: AtomicU64,
    /// The turn.
    turn: AtomicU64,
    pub(super) values: Values,
}

impl Writer {
    /// Makes it that of another transaction.
    pub(super) fn reset(&mut self) {
        self.values.shrink();
        self.set(Outcome::Active);
    }

    pub(super) fn set(&self, outcome: Outcome) {
        let word = match outcome {
            Outcome::Active => ACTIVE,
            Outcome::Committing => COMMITTING,
            Outcome::Aborted => ABORTED,
            Outcome::Committed(at, turn) => {
                self.turn.store(turn, Ordering::Relaxed);
                at.get() << TAG_BITS | COMMITTED
            }
        };
        self.word.store(word, Ordering::Release);
    }

    pub(super) fn outcome(&self) -> Outcome {
        let word = self.word.load(Ordering::Acquire);
        match word & TAG {
            ACTIVE => Outcome::Active,
            COMMITTING => Outcome::Committing,
            ABORTED => Outcome::Aborted,
            _ => Outcome::Committed(Gsn::new(word >> TAG_BITS), self.turn.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_each_outcome() {
        let writer = Writer::default();
        assert_eq!(writer.outcome(), Outcome::Active);
        writer.set(Outcome::Committing);
        assert_eq!(writer.outcome(), Outcome::Committing);
        for at in [0, 1, 7, 1 << 61] {
            writer.set(Outcome::Committed(Gsn::new(at), 5));
            assert_eq!(writer.outcome(), Outcome::Committed(Gsn::new(at), 5));
        }
        writer.set(Outcome::Aborted);
        assert_eq!(writer.outcome(), Outcome::Aborted);
    }
}
