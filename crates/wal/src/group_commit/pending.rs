//! Requests to harden the log that threads leave for who looks next, without the lock of the commit queue.
//!
//! A thread that carries many sessions asks for each of their commits and goes on. Most of these requests change nothing:
//! somebody flushes, and looks at its end what else is due; or so few have asked that the daemon waits for more. If each of
//! them took the lock of the queue, threads would spend more time on that than on the log buffer. So they leave them
//! in *stripes*, each the business of a few threads, whose cache lines stay where they are used.
//!
//! # Protocol
//! - Who leaves a request notes how far it reaches, counts it, and reads how many may be left unseen ([`LeftRequests::leave`]).
//!   If there are more than that in its stripe, it has to look itself, with the lock.
//! - Whoever holds the lock may take what has been left ([`LeftRequests::take`]) and say that some may be left again
//!   ([`LeftRequests::admit`]): as long as somebody will look in time, that is.
//! - Who was to look, and does so now, calls [`LeftRequests::close`] before it takes: from now on nobody leaves a request
//!   in the belief that it will look later. Between the count and the limit lies a fence on both sides: either the
//!   request is seen here, or the one who has left it sees that it has to look itself.
//!
//! A stripe knows how many have asked and how far the highest of them reaches. That is all that becomes known of them.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::{CachePadded, Striped};
use duramen_types::Lsn;

/// A power of two.
pub(crate) const STRIPES: usize = if cfg!(duramen_loom) { 2 } else { 32 };

/// Requests that nobody has seen.
#[derive(Debug, Default)]
pub(crate) struct LeftRequests {
    stripes: Striped<Stripe, STRIPES>,
    /// How many may be left in a stripe unseen.
    admitted: CachePadded<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Stripe {
    count: AtomicUsize,
    /// The highest position that has been asked for here, ever.
    highest: AtomicU64,
}

impl LeftRequests {
    /// Leaves one for the record at `lsn`; returns whether the caller has to look, since nobody else may in time.
    pub(crate) fn leave(&self, lsn: Lsn) -> bool {
        let (_, stripe) = self.stripes.own();
        stripe.highest.fetch_max(lsn.get(), Ordering::Relaxed);
        // Release: who takes the count finds the position.
        let count = stripe.count.fetch_add(1, Ordering::Release) + 1;
        // Pairs with the one in `close`.
        fence(Ordering::SeqCst);
        count > self.admitted.load(Ordering::Relaxed)
    }

    /// So many may be left in each stripe until somebody looks, who will.
    pub(crate) fn admit(&self, requests: usize) {
        if self.admitted.load(Ordering::Relaxed) != requests {
            self.admitted.store(requests, Ordering::Relaxed);
        }
    }

    /// Whether any may be left.
    pub(crate) fn admits(&self) -> bool {
        self.admitted.load(Ordering::Relaxed) > 0
    }

    /// Until some are admitted again, nobody leaves a request that a following [`LeftRequests::take`] does not find, unless
    /// it looks itself.
    pub(crate) fn close(&self) {
        self.admit(0);
        fence(Ordering::SeqCst);
    }

    /// Takes what has been left: how many, and how far the highest of them reaches, stripe by stripe.
    pub(crate) fn take(&self) -> impl Iterator<Item = (usize, Lsn)> {
        let has_some = |stripe: &&Stripe| stripe.count.load(Ordering::Relaxed) > 0;
        self.stripes.iter().filter(has_some).map(|stripe| {
            let count = stripe.count.swap(0, Ordering::Acquire);
            (count, Lsn::new(stripe.highest.load(Ordering::Relaxed)))
        })
    }
}

#[cfg(all(test, duramen_loom))]
mod loom_models {
    use duramen_sync::{Arc, thread};

    use super::*;

    /// A request that is left while somebody looks, and says that it will look again, is found then if not now.
    #[test]
    fn models_look_again() {
        loom::model(|| {
            let left = Arc::new(LeftRequests::default());
            let leaver = {
                let left = Arc::clone(&left);
                thread::spawn("leaver", move || left.leave(Lsn::new(8))).unwrap()
            };
            let look = || {
                left.close();
                left.take().map(|(count, _)| count).sum::<usize>()
            };
            let first = look();
            left.admit(usize::MAX);
            let second = look();
            let looks = leaver.join().unwrap();
            assert!(looks || first + second == 1, "it is lost");
        });
    }

    /// A request is found by who closes, or the one who leaves it looks itself.
    #[test]
    fn models_leave_no_request_unseen() {
        loom::model(|| {
            let left = Arc::new(LeftRequests::default());
            left.admit(usize::MAX);
            let lsns = [Lsn::new(8), Lsn::new(16)];
            let threads = lsns.map(|lsn| {
                let left = Arc::clone(&left);
                thread::spawn("leaver", move || left.leave(lsn)).unwrap()
            });
            left.close();
            let seen: Vec<_> = left.take().collect();
            let looks = threads.map(|thread| thread.join().unwrap());
            for (lsn, looks) in lsns.into_iter().zip(looks) {
                let is_seen = seen.iter().any(|(_, highest)| *highest >= lsn);
                assert!(is_seen || looks, "{lsn:?} is lost");
            }
            let later: usize = left.take().map(|(count, _)| count).sum();
            assert_eq!(seen.iter().map(|(count, _)| count).sum::<usize>() + later, 2, "each is counted once");
        });
    }
}
