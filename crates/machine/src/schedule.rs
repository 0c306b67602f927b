//! Which simulated thread runs next.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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

/// Threads that will run, by time.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<(Time, u64, ThreadId, u64)>>,
    pushed: u64,
}

impl Queue {
    /// Lets `thread` continue at `time`, unless its wait number `wait` has ended before. Equal
    /// times: first in, first out.
    pub(crate) fn push(&mut self, time: Time, thread: ThreadId, wait: u64) {
        self.pushed += 1;
        self.heap.push(Reverse((time, self.pushed, thread, wait)));
    }

    /// Returns the time of the first entry.
    pub(crate) fn first(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.0)
    }

    /// Takes the first entry.
    pub(crate) fn pop(&mut self) -> Option<(Time, ThreadId, u64)> {
        self.heap.pop().map(|Reverse((time, _, thread, wait))| (time, thread, wait))
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
