//! The wake-up protocol between threads that publish work without a lock and the attendant, who
//! does it.
//!
//! Most published work changes nothing: the attendant is busy and looks again anyway, or it has set
//! itself a time and waits for more. If each publisher took a lock or woke somebody, threads would
//! spend more time on that than on the log buffer. So the attendant says how much unseen work it
//! will find by itself, and a publisher acts only if there is more.
//!
//! # Protocol
//! 1. A publisher makes its work known where the attendant will look: in [`PendingCounters`], or in
//!    memory of its own.
//! 2. It asks [`WorkSignal::is_unattended`]. If so, it has to act: it does the attendant's work, or
//!    wakes the attendant ([`WorkSignal::claim`]).
//! 3. The attendant calls [`WorkSignal::attend`] as soon as it is certain to look later, and says
//!    how much may be published until then.
//! 4. Before it relies on a look, to decide something or to sleep, it calls
//!    [`WorkSignal::withdraw`], and looks afterwards. (If it finds work without withdrawing, it
//!    need not: see [`WorkSignal::look`].)
//!
//! Both sides write, execute a sequentially consistent fence, and read what the other side writes:
//!
//! | publisher | attendant |
//! |---|---|
//! | publish the work | withdraw: `attended` = 0 |
//! | fence | fence |
//! | read `attended` | look for work |
//!
//! One of the fences comes first. If it is the publisher's, the attendant finds the work; if it is
//! the attendant's, the publisher finds that nobody attends. So no work is unseen by both.
//!
//! Two use this. In the [commit queue](crate::group_commit::queue) the lock of the queue makes its holder the attendant, and
//! publishers who have to act take the lock. In a [shared commit round](crate::several::commit_rounds) the
//! attendant is a daemon, which publishers have to wake.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::{CachePadded, Striped};
use duramen_types::Lsn;

/// How much work may be published that the attendant has not seen. See the module's header.
#[derive(Debug, Default)]
pub(crate) struct WorkSignal {
    /// A line of its own: all publishers read it, and it seldom changes.
    attended: CachePadded<AtomicUsize>,
}

impl WorkSignal {
    /// Whether the caller, who has just published work, has to act; so many pieces are unseen.
    pub(crate) fn is_unattended(&self, unseen: usize) -> bool {
        // Pairs with the one in `withdraw`.
        fence(Ordering::SeqCst);
        unseen > self.attended.load(Ordering::Relaxed)
    }

    /// Whether the caller, who has just published work, has to wake the attendant: it is the first
    /// to find that nobody attends.
    pub(crate) fn claim(&self) -> bool {
        self.is_unattended(1) && self.attended.swap(usize::MAX, Ordering::AcqRel) == 0
    }

    /// Whether the attendant has to look: it attends, or has been woken since it withdrew.
    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire) > 0
    }

    /// The attendant will look later; until then so many pieces of work may be published unseen.
    pub(crate) fn attend(&self, pieces: usize) {
        if self.attended.load(Ordering::Relaxed) != pieces {
            self.attended.store(pieces, Ordering::Release);
        }
    }

    /// From now on work is found by a following look, or its publisher acts.
    pub(crate) fn withdraw(&self) {
        self.attend(0);
        // Pairs with the one in `is_unattended`.
        fence(Ordering::SeqCst);
    }

    /// What `work` finds. If that is nothing, the attendant has withdrawn and may sleep.
    pub(crate) fn look<T>(&self, work: impl Fn() -> Option<T>) -> Option<T> {
        work().or_else(|| {
            self.withdraw();
            let found = work();
            if found.is_some() {
                self.attend(usize::MAX);
            }
            found
        })
    }
}

/// A power of two.
pub(crate) const STRIPES: usize = if cfg!(duramen_loom) { 2 } else { 32 };

/// Requests to harden the log that nobody has collected, counted in stripes. Few threads use each,
/// so its cache line stays with them. A stripe knows how many requests were posted and the highest
/// position among them, and nothing else.
#[derive(Debug, Default)]
pub(crate) struct PendingCounters {
    stripes: Striped<Stripe, STRIPES>,
    /// How many may be pending in each stripe.
    pub(crate) signal: WorkSignal,
}

#[derive(Debug, Default)]
struct Stripe {
    count: AtomicUsize,
    /// The highest position that has been asked for here, ever.
    highest: AtomicU64,
}

impl PendingCounters {
    /// Posts a request for the record at `lsn`; returns whether the caller has to act.
    pub(crate) fn post(&self, lsn: Lsn) -> bool {
        let (_, stripe) = self.stripes.own();
        stripe.highest.fetch_max(lsn.get(), Ordering::Relaxed);
        // Release: whoever collects the count finds the position.
        let pending = stripe.count.fetch_add(1, Ordering::Release) + 1;
        self.signal.is_unattended(pending)
    }

    /// Collects what has been posted: how many requests, and the highest position, stripe by
    /// stripe.
    pub(crate) fn collect(&self) -> impl Iterator<Item = (usize, Lsn)> {
        let has_some = |stripe: &&Stripe| stripe.count.load(Ordering::Relaxed) > 0;
        self.stripes.iter().filter(has_some).map(|stripe| {
            let count = stripe.count.swap(0, Ordering::Acquire);
            (count, Lsn::new(stripe.highest.load(Ordering::Relaxed)))
        })
    }
}

#[cfg(test)]
#[path = "work_signal_tests.rs"]
mod tests;
