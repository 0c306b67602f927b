//! A gate that many threads pass in and out, and that one thread closes to be alone.
//!
//! # Protocol
//! A thread that enters adds one to its stripe of `inside`, executes a sequentially consistent
//! fence, and reads `state`. If the gate is open, the thread is inside. Otherwise it takes the one
//! back and waits at the door. The closing thread writes `state`, executes a fence, and reads the
//! stripes until each of them is zero. One of the two fences comes first:
//!
//! | | thread that enters | thread that closes |
//! |---|---|---|
//! | writes | its stripe | `state` |
//! | fence | fence | fence |
//! | reads | `state` | the stripes |
//!
//! If the fence of the entering thread is first, the closing thread sees it inside and waits for
//! it. Otherwise the entering thread sees that the gate is closed. A thread that leaves subtracts
//! with release ordering, and the closing thread reads with acquire ordering. So the closing thread
//! sees everything that was done inside, and the threads that enter after [`Gate::open`] see what
//! it did.
//!
//! A waiting thread holds the mutex of the door while it checks `state` and goes to sleep. The
//! opening thread changes `state` first, then takes the mutex, then wakes all. So no thread sleeps
//! through an opening.
//!
//! The gate has two reasons to be shut: it is *closed* by the thread that is alone inside, or it is
//! *full*, which any thread may say and only the closing thread takes back.

use duramen_sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use duramen_sync::{Backoff, CachePadded, Condvar, Mutex, Striped};
use duramen_types::planted;

const CLOSED: u8 = 1;
const FULL: u8 = 2;

/// Stripes of the count of threads inside.
const STRIPES: usize = if cfg!(duramen_loom) { 2 } else { 32 };

/// The gate.
#[derive(Debug, Default)]
pub(super) struct Gate {
    inside: Striped<AtomicU64, STRIPES>,
    state: CachePadded<AtomicU8>,
    door: Mutex<()>,
    opened: Condvar,
}

impl Gate {
    /// Enters, if the gate is neither closed nor full.
    #[inline]
    pub(super) fn try_enter(&self) -> bool {
        self.inside.own().1.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.leave();
        false
    }

    /// Leaves.
    #[inline]
    pub(super) fn leave(&self) {
        self.inside.own().1.fetch_sub(1, Ordering::Release);
    }

    /// Waits until the gate is neither closed nor full. The caller is outside.
    #[cold]
    pub(super) fn wait(&self) {
        let mut backoff = Backoff::new();
        while self.state.load(Ordering::Acquire) != 0 {
            if !backoff.is_long() {
                backoff.snooze();
                continue;
            }
            let mut door = self.door.lock();
            while self.state.load(Ordering::Acquire) != 0 {
                self.opened.wait(&mut door);
            }
        }
    }

    /// Closes the gate and waits until nobody is inside. One thread at a time may do this.
    pub(super) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if planted!(SectionIgnored) {
            return;
        }
        for stripe in self.inside.iter() {
            let mut backoff = Backoff::new();
            while stripe.load(Ordering::Acquire) != 0 {
                backoff.snooze();
            }
        }
    }

    /// Opens the gate after [`Gate::close`].
    pub(super) fn open(&self) {
        self.clear(CLOSED);
    }

    /// Lets nobody in until [`Gate::clear_full`]; returns whether this is new.
    pub(super) fn fill(&self) -> bool {
        self.state.load(Ordering::Relaxed) & FULL == 0 && self.state.fetch_or(FULL, Ordering::Relaxed) & FULL == 0
    }

    /// Takes back [`Gate::fill`].
    pub(super) fn clear_full(&self) {
        if self.is_full() {
            self.clear(FULL);
        }
    }

    /// Returns whether the gate is full.
    pub(super) fn is_full(&self) -> bool {
        self.state.load(Ordering::Relaxed) & FULL != 0
    }

    fn clear(&self, bit: u8) {
        if self.state.fetch_and(!bit, Ordering::Release) == bit {
            drop(self.door.lock());
            self.opened.notify_all();
        }
    }
}

#[cfg(all(test, duramen_loom))]
mod models {
    use duramen_sync::{Arc, thread};

    use super::*;

    /// A thread that changes two words in a section, and one that wants to see them alike.
    #[test]
    fn who_closes_sees_no_half_of_an_action() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let gate = Arc::new(Gate::default());
            let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
            let writer = {
                let (gate, words) = (Arc::clone(&gate), Arc::clone(&words));
                thread::spawn("writer", move || {
                    while !gate.try_enter() {
                        gate.wait();
                    }
                    words[0].fetch_add(1, Ordering::Relaxed);
                    words[1].fetch_add(1, Ordering::Relaxed);
                    gate.leave();
                })
                .unwrap()
            };
            gate.close();
            let seen = [0, 1].map(|word: usize| words[word].load(Ordering::Relaxed));
            assert_eq!(seen[0], seen[1]);
            // Nobody is inside until the gate opens.
            words[0].store(seen[0] + 10, Ordering::Relaxed);
            words[1].store(seen[1] + 10, Ordering::Relaxed);
            gate.open();
            writer.join().unwrap();
            assert_eq!([0, 1].map(|word: usize| words[word].load(Ordering::Relaxed)), [11, 11]);
        });
    }

    /// A thread that waits because the gate is full is woken when there is room.
    #[test]
    fn no_thread_sleeps_through_an_opening() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(2);
        builder.check(|| {
            let gate = Arc::new(Gate::default());
            assert!(gate.fill() && !gate.fill());
            let waiter = {
                let gate = Arc::clone(&gate);
                thread::spawn("waiter", move || {
                    while !gate.try_enter() {
                        gate.wait();
                    }
                    gate.leave();
                })
                .unwrap()
            };
            gate.close();
            gate.clear_full();
            gate.open();
            waiter.join().unwrap();
        });
    }
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use duramen_sync::atomic::AtomicBool;
    use duramen_sync::{Arc, thread};
    use duramen_test_support::is_long;

    use super::*;

    #[test]
    fn many_threads_pass_and_one_is_alone() {
        let gate = Arc::new(Gate::default());
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let stop = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (gate, words, stop) = (Arc::clone(&gate), Arc::clone(&words), Arc::clone(&stop));
                thread::spawn("writer", move || {
                    while !stop.load(Ordering::Relaxed) {
                        while !gate.try_enter() {
                            gate.wait();
                        }
                        words[0].fetch_add(1, Ordering::Relaxed);
                        words[1].fetch_add(1, Ordering::Relaxed);
                        gate.leave();
                    }
                })
                .unwrap()
            })
            .collect();
        for round in 0..if is_long() { 2000 } else { 500 } {
            if round % 3 == 0 {
                gate.fill();
            }
            gate.close();
            let seen = || [0, 1].map(|word: usize| words[word].load(Ordering::Relaxed));
            let first = seen();
            thread::yield_now();
            assert!(first == seen() && first[0] == first[1], "{first:?}");
            gate.clear_full();
            gate.open();
        }
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
