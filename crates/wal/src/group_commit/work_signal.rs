//! The wake-up protocol between threads that publish work without a lock and the attendant, the
//! thread that does the work.
//!
//! Most published work needs no action: the attendant is busy and will look again anyway, or it has
//! set a timer and is collecting more work. If each publisher took a lock or woke a thread, that
//! would cost more time than the log buffer itself. So the attendant states how much unseen work it
//! will find by itself, and a publisher acts only if there is more.
//!
//! # Protocol
//! 1. A publisher puts its work where the attendant will look: in [`PendingCounters`], or in memory
//!    of its own.
//! 2. The publisher calls [`WorkSignal::is_unattended`]. If that returns true, the publisher has to
//!    act: it does the attendant's work, or wakes the attendant ([`WorkSignal::claim`]).
//! 3. The attendant calls [`WorkSignal::attend`] as soon as it is certain to look later, and states
//!    how much may be published until then.
//! 4. Before the attendant relies on a look, to decide something or to sleep, it calls
//!    [`WorkSignal::withdraw`], unless it finds work without that ([`WorkSignal::look`]).
//!
//! Each side writes, executes a sequentially consistent fence, and reads what the other writes:
//!
//! | publisher | attendant |
//! |---|---|
//! | publish the work | withdraw: `attended` = 0 |
//! | fence | fence |
//! | read `attended` | look for work |
//!
//! One fence comes first: if it is the publisher's, the attendant finds the work; if it is the
//! attendant's, the publisher finds that nothing attends. So at least one side sees the work.
//!
//! In the [commit queue](crate::group_commit::queue), the attendant is the holder of the lock,
//! which a publisher that has to act takes. In [commit rounds](crate::several::commit_rounds) of
//! rings, it is a daemon, which such a publisher wakes.

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::{CachePadded, Striped};

/// How much work may be published that the attendant has not seen. See the module header.
#[derive(Debug, Default)]
pub(crate) struct WorkSignal {
    /// On its own cache line: all publishers read it, and it seldom changes.
    attended: CachePadded<AtomicUsize>,
}

impl WorkSignal {
    /// Returns whether the caller, which has just published work, has to act on `unseen` pieces.
    pub(crate) fn is_unattended(&self, unseen: usize) -> bool {
        // Pairs with the fence in `withdraw`.
        fence(Ordering::SeqCst);
        unseen > self.attended.load(Ordering::Relaxed)
    }

    /// Returns whether the caller, which has just published work, has to wake the attendant,
    /// because the caller is the first to find that nothing attends.
    pub(crate) fn claim(&self) -> bool {
        self.is_unattended(1) && self.attended.swap(usize::MAX, Ordering::AcqRel) == 0
    }

    /// Returns whether the attendant has to look: it attends, or has been woken since it withdrew.
    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Acquire) > 0
    }

    /// Declares that the attendant will look later; until then, `pieces` may be published unseen.
    pub(crate) fn attend(&self, pieces: usize) {
        if self.attended.load(Ordering::Relaxed) != pieces {
            self.attended.store(pieces, Ordering::Release);
        }
    }

    /// Ends attendance: from now on, a later look finds the published work, or its publisher acts.
    pub(crate) fn withdraw(&self) {
        self.attend(0);
        // Pairs with the fence in `is_unattended`.
        fence(Ordering::SeqCst);
    }

    /// Returns what `work` finds. If that is nothing, the attendant has withdrawn and may sleep.
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

/// The number of stripes, a power of two.
pub(crate) const STRIPES: usize = if cfg!(duramen_loom) { 2 } else { 32 };

/// Uncollected requests to harden the log: their number and highest position, in stripes. Few
/// threads use each stripe, so its cache line stays with them.
#[derive(Debug, Default)]
pub(crate) struct PendingCounters {
    stripes: Striped<Stripe, STRIPES>,
    /// States how many requests may be pending in each stripe.
    pub(crate) signal: WorkSignal,
}

#[derive(Debug, Default)]
struct Stripe {
    count: AtomicUsize,
    /// The highest position ever requested in this stripe.
    highest: AtomicU64,
}

impl PendingCounters {
    /// Posts a request for the record at a position; returns whether the caller has to act.
    pub(crate) fn post(&self, at: u64) -> bool {
        let (_, stripe) = self.stripes.own();
        stripe.highest.fetch_max(at, Ordering::Relaxed);
        // Release: the thread that collects the count finds the position.
        let pending = stripe.count.fetch_add(1, Ordering::Release) + 1;
        self.signal.is_unattended(pending)
    }

    /// Collects the posted requests: their number and highest position, for each stripe.
    pub(crate) fn collect(&self) -> impl Iterator<Item = (usize, u64)> {
        let has_some = |stripe: &&Stripe| stripe.count.load(Ordering::Relaxed) > 0;
        self.stripes.iter().filter(has_some).map(|stripe| {
            let count = stripe.count.swap(0, Ordering::Acquire);
            (count, stripe.highest.load(Ordering::Relaxed))
        })
    }
}

#[cfg(test)]
#[path = "work_signal_tests.rs"]
mod tests;
