//! Bandwidth: a path that moves one thing at a time.

use crate::Time;

/// Words of 64 slots that a channel remembers.
const WORDS: usize = 128;

/// A path that grants time in the order of the requests, each at its own time or later. Requests
/// need not come in the order of their times: a long copy claims times ahead, and later requests
/// may fit in before. Time is divided into slots, one for each thing moved. A request takes the
/// first free slot from its time on, so a path never exceeds its bandwidth, and a request within a
/// slot is early by less than one slot.
#[derive(Debug)]
pub(super) struct Channel {
    /// Picoseconds; zero for a path that is never in the way.
    slot: u64,
    /// Slots for a line.
    line: u64,
    words: Box<[Word; WORDS]>,
    /// The words from the first up to the second are full.
    full: (u64, u64),
}

#[derive(Clone, Copy, Default, Debug)]
struct Word {
    number: u64,
    taken: u64,
}

impl Channel {
    /// Returns a channel that is busy for `line` with each line.
    pub(super) fn new(line: Time) -> Self {
        Self::with_parts(line, 1)
    }

    /// Returns a channel that also moves parts of lines, `parts` of them in the time of a line.
    pub(super) fn with_parts(line: Time, parts: u64) -> Self {
        Self {
            slot: line.picos().div_ceil(parts),
            line: parts,
            words: Box::new([Word::default(); WORDS]),
            full: (0, 0),
        }
    }

    /// Moves a line. Returns the time when that begins: at `at` or later.
    pub(super) fn line(&mut self, at: Time) -> Time {
        self.parts(at, self.line)
    }

    /// Moves so many parts of a line. Returns the time when that begins.
    pub(super) fn parts(&mut self, at: Time, count: u64) -> Time {
        if self.slot == 0 {
            return at;
        }
        let begin = self.take(at);
        let mut last = begin;
        for _ in 1..count {
            last = self.take(last + Time::from_picos(self.slot));
        }
        begin
    }

    fn take(&mut self, at: Time) -> Time {
        let slot = at.picos() / self.slot;
        let (mut number, mut from) = (slot / 64, slot % 64);
        if (self.full.0..self.full.1).contains(&number) {
            (number, from) = (self.full.1, 0);
        }
        loop {
            let word = &mut self.words[number as usize % WORDS];
            if word.number > number {
                // The time is so long before the remembered slots that the path was free.
                return at;
            }
            if word.number < number {
                *word = Word { number, taken: 0 };
            }
            let free = !word.taken & u64::MAX << from;
            if free != 0 {
                let bit = free.trailing_zeros();
                word.taken |= 1 << bit;
                if word.taken == u64::MAX {
                    self.fill(number);
                }
                return at.max(Time::from_picos((number * 64 + u64::from(bit)) * self.slot));
            }
            (number, from) = (number + 1, 0);
        }
    }

    fn fill(&mut self, number: u64) {
        if number == self.full.1 {
            self.full.1 += 1;
        } else {
            self.full = (number, number + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel::new(Time::from_picos(10))
    }

    fn at(picos: u64) -> Time {
        Time::from_picos(picos)
    }

    #[test]
    fn lines_follow_each_other() {
        let mut channel = channel();
        assert_eq!(channel.line(at(0)), at(0));
        assert_eq!(channel.line(at(0)), at(10));
        assert_eq!(channel.line(at(5)), at(20));
        assert_eq!(channel.line(at(103)), at(103), "nobody is in the way");
        assert_eq!(channel.line(at(104)), at(110), "in the next slot");
    }

    #[test]
    fn no_more_is_moved_than_can_be() {
        let mut channel = channel();
        for nth in 0..1000 {
            assert_eq!(channel.line(at(nth % 7)), at((nth * 10).max(nth % 7)));
        }
        assert_eq!(channel.line(at(5)), at(10_000));
        assert_eq!(channel.line(at(20_000)), at(20_000));
        assert_eq!(channel.line(at(5)), at(10_010));
    }

    #[test]
    fn a_claim_ahead_lets_others_in_before() {
        let mut channel = channel();
        for nth in 0..20 {
            assert_eq!(channel.line(at(nth * 1000)), at(nth * 1000));
        }
        assert_eq!(channel.line(at(500)), at(500));
        assert_eq!(channel.line(at(500)), at(510));
        assert_eq!(channel.line(at(995)), at(995));
        assert_eq!(channel.line(at(995)), at(1010), "1000 is taken");
    }

    #[test]
    fn parts_of_lines_share_the_path() {
        let mut channel = Channel::with_parts(at(40), 4);
        assert_eq!(channel.parts(at(0), 1), at(0));
        assert_eq!(channel.line(at(0)), at(10));
        assert_eq!(channel.parts(at(0), 2), at(50));
        assert_eq!(channel.line(at(0)), at(70));
    }

    #[test]
    fn a_free_path_costs_nothing() {
        let mut channel = Channel::new(Time::ZERO);
        for _ in 0..1000 {
            assert_eq!(channel.line(at(7)), at(7));
        }
    }

    #[test]
    fn what_is_long_ago_is_forgotten() {
        let mut channel = channel();
        let ago = at(10_000_000 - 10 * 64 * WORDS as u64);
        channel.line(at(10_000_000));
        assert_eq!((channel.line(ago), channel.line(ago)), (ago, ago));
    }
}
