//! Which simulated thread runs next.

use crate::Time;
use crate::thread::ThreadId;

/// How a run chooses the thread that goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Schedule {
    /// The thread with the smallest virtual time: for figures.
    Time,
    /// The same thread until it waits or has had its share of operations, without charges: for fast
    /// preparation.
    Free,
    /// Any runnable thread, chosen anew at each operation on shared memory: to find bugs.
    Random {
        /// Where chance begins.
        seed: u64,
    },
    /// As [`Schedule::Random`], but a thread may lose its processor for long: to find bugs that
    /// need a late thread.
    Stalls {
        /// Where chance begins.
        seed: u64,
        /// One in so many operations, on average, is followed by a stall of 1 to 128 microseconds.
        one_in: u32,
    },
    /// The thread with the highest priority. Priorities are random; `changes` times, at random
    /// moments of the first `steps` operations, that of the running thread becomes the lowest
    /// (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding
    /// bugs", ASPLOS 2010): to find bugs that need few, unlikely switches.
    Priorities {
        /// Where chance begins.
        seed: u64,
        /// Number of changes.
        changes: u32,
        /// Operations among which the changes lie.
        steps: u64,
    },
}

/// Threads that will run, by time: a tournament, in which each thread has one place.
///
/// The threads of a run meet in pairs, the winners again in pairs, and so on; the first entry has
/// won them all. A change of one entry plays the games on the way from its place to the top again.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Of each thread, when it comes, and its wait.
    entries: Vec<(Moment, u64)>,
    /// The winner of each game. The winners of games 2n and 2n + 1 meet in game n. The first half
    /// are games; the second half has the threads themselves.
    winners: Vec<u32>,
    pushed: u64,
}

/// When an entry comes: its time, and among equal times the first in is the first out.
type Moment = (Time, u64);

/// Of a thread without an entry.
const NEVER: Moment = (Time::NEVER, u64::MAX);

impl Queue {
    /// Lets `thread` continue at `time`, unless its wait number `wait` has ended before. Replaces
    /// the thread's entry, if it has one.
    pub(crate) fn push(&mut self, time: Time, thread: ThreadId, wait: u64) {
        while self.entries.len() <= thread.index() {
            self.double();
        }
        self.pushed += 1;
        self.entries[thread.index()] = ((time, self.pushed), wait);
        self.play(thread.0);
    }

    /// Returns the time of the first entry.
    pub(crate) fn first(&self) -> Option<Time> {
        let (moment, _) = *self.entries.get(*self.winners.get(1)? as usize)?;
        (moment != NEVER).then_some(moment.0)
    }

    /// Takes the first entry.
    pub(crate) fn pop(&mut self) -> Option<(Time, ThreadId, u64)> {
        let time = self.first()?;
        let first = self.winners[1];
        let entry = &mut self.entries[first as usize];
        let wait = entry.1;
        entry.0 = NEVER;
        self.play(first);
        Some((time, ThreadId(first), wait))
    }

    /// Plays the games of a thread whose entry has changed.
    fn play(&mut self, thread: u32) {
        let places = self.entries.len();
        let mut game = (places + thread as usize) / 2;
        while game > 0 {
            let winner = self.game(game);
            if self.winners[game] == winner && winner != thread {
                // Neither the winner nor its entry has changed.
                return;
            }
            self.winners[game] = winner;
            game /= 2;
        }
    }

    /// Returns the winner of a game.
    fn game(&self, number: usize) -> u32 {
        let (one, other) = (self.winners[2 * number], self.winners[2 * number + 1]);
        if self.entries[other as usize].0 < self.entries[one as usize].0 { other } else { one }
    }

    /// Makes twice as many places.
    fn double(&mut self) {
        let places = (2 * self.entries.len()).max(2);
        self.entries.resize(places, (NEVER, 0));
        self.winners = std::iter::repeat_n(0, places).chain(0..places as u32).collect();
        for game in (1..places).rev() {
            self.winners[game] = self.game(game);
        }
    }
}

/// Random numbers that are the same everywhere (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_by_time_and_then_in_the_order_of_their_pushes() {
        let (mut queue, mut chance) = (Queue::default(), Chance::new(7));
        assert!(queue.first().is_none() && queue.pop().is_none());
        // What the queue must hold: of each thread at most one entry.
        let mut expected: Vec<(Time, u64, u32)> = Vec::new();
        for number in 0..20_000_u64 {
            if chance.below(3) > 0 {
                let (time, thread) = (Time::from_nanos(chance.below(50)), chance.below(300) as u32);
                queue.push(time, ThreadId(thread), number);
                expected.retain(|entry| entry.2 != thread);
                expected.push((time, number, thread));
            } else {
                let first = expected.iter().copied().min();
                assert_eq!(queue.first(), first.map(|(time, ..)| time));
                assert_eq!(queue.pop(), first.map(|(time, wait, thread)| (time, ThreadId(thread), wait)));
                expected.retain(|entry| Some(*entry) != first);
            }
        }
        assert!(!expected.is_empty());
    }
}
