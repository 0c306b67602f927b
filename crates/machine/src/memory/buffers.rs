//! What a context has sent off and not waited for.

use crate::Time;

/// The store buffer and the write-combining buffers of a context.
#[derive(Debug)]
pub(super) struct Buffers {
    /// When the stores leave the buffer, which they do in order; the newest overwrites the oldest.
    leaving: Ring,
    /// When the lines arrive that stores wait for.
    arriving: Ring,
    /// When controllers accept what non-temporal stores have written.
    streams: Ring,
    /// When the last store leaves, or the last stream is accepted.
    empty_at: Time,
    /// When the last store leaves.
    last_leaves: Time,
}

impl Buffers {
    pub(super) fn new(entries: usize, outstanding: usize, write_combining: usize) -> Self {
        Self {
            leaving: Ring::new(entries),
            arriving: Ring::new(outstanding),
            streams: Ring::new(write_combining),
            empty_at: Time::ZERO,
            last_leaves: Time::ZERO,
        }
    }

    /// Returns the time when the buffer has room for `count` more stores.
    pub(super) fn room(&self, count: usize, now: Time) -> Time {
        now.max(self.leaving.nth(count - 1))
    }

    /// Returns the time when one more line can be asked for.
    pub(super) fn may_ask(&self, now: Time) -> Time {
        now.max(self.arriving.nth(0))
    }

    /// Records that a line has been requested and arrives at `at`.
    pub(super) fn asked(&mut self, at: Time) {
        self.arriving.push(at);
    }

    /// Adds `count` stores to a line that arrives at `arrival`; between two stores leaving there is
    /// at least `apart`.
    pub(super) fn store(&mut self, count: usize, arrival: Time, apart: Time) {
        for _ in 0..count {
            self.last_leaves = arrival.max(self.last_leaves + apart);
            self.leaving.push(self.last_leaves);
        }
        self.empty_at = self.empty_at.max(self.last_leaves);
    }

    /// Returns the time when a write-combining buffer is free.
    pub(super) fn may_stream(&self, now: Time) -> Time {
        now.max(self.streams.nth(0))
    }

    /// Records that a non-temporal line is accepted at `at`.
    pub(super) fn stream(&mut self, at: Time) {
        self.streams.push(at);
        self.empty_at = self.empty_at.max(at);
    }

    /// Returns the time when everything has left.
    pub(super) fn empty(&self, now: Time) -> Time {
        now.max(self.empty_at)
    }
}

#[derive(Debug)]
struct Ring {
    times: Box<[Time]>,
    /// The oldest.
    next: usize,
}

impl Ring {
    fn new(len: usize) -> Self {
        Self { times: vec![Time::ZERO; len].into(), next: 0 }
    }

    /// Returns the nth oldest.
    fn nth(&self, nth: usize) -> Time {
        let at = self.next + nth;
        self.times[if at < self.times.len() { at } else { at - self.times.len() }]
    }

    fn push(&mut self, time: Time) {
        self.times[self.next] = time;
        self.next += 1;
        if self.next == self.times.len() {
            self.next = 0;
        }
    }
}
