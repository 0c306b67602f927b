//! The order of commits, and the snapshots that are open.

use std::fmt;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use duramen_sync::{Arc, CachePadded, Mutex};
use duramen_types::{Gsn, planted};

use crate::error::{Error, Result};

/// What gives commits their positions, and says which of them snapshots may show.
pub(crate) enum CommitOrder {
    /// The GSNs of the commits. The function returns the horizon: every commit up to it survives a
    /// crash, and a commit whose record is not inserted yet will get a higher GSN. It never
    /// decreases.
    Gsns(Box<dyn Fn() -> Gsn + Send + Sync>),
    /// As before, but commits may share a GSN: those of a batch. The counter tells them apart.
    Batches(Box<dyn Fn() -> Gsn + Send + Sync>, CachePadded<AtomicU64>),
    /// A count of the commits that may be shown: of a scheme without a common order, whose commits
    /// are durable when they are recorded, or of a database that acknowledges commits before they
    /// are durable.
    Count(CachePadded<AtomicU64>),
}

impl CommitOrder {
    /// Returns the order of GSNs that this function gives the horizon of. `are_shared` says whether
    /// several commits may have the same.
    pub(crate) fn gsns(are_shared: bool, horizon: impl Fn() -> Gsn + Send + Sync + 'static) -> Self {
        match are_shared {
            true => Self::Batches(Box::new(horizon), CachePadded::new(AtomicU64::new(0))),
            false => Self::Gsns(Box::new(horizon)),
        }
    }

    /// Returns an order that counts.
    pub(crate) fn count() -> Self {
        Self::Count(CachePadded::new(AtomicU64::new(0)))
    }

    /// Returns the position of the latest commit that a new snapshot shows.
    pub(super) fn horizon(&self) -> Gsn {
        match self {
            Self::Gsns(horizon) | Self::Batches(horizon, _) => horizon(),
            Self::Count(count) => Gsn::new(count.load(Ordering::Acquire)),
        }
    }

    /// Returns the position of a commit whose record, with this GSN, was just inserted, and its
    /// turn among those of the same position. The writer still holds its locks, so the positions
    /// and turns of conflicting commits are in the order of the commits.
    pub(super) fn position(&self, gsn: Gsn) -> (Gsn, u64) {
        match self {
            Self::Gsns(_) => (gsn, 0),
            Self::Batches(_, turns) => (gsn, turns.fetch_add(1, Ordering::AcqRel)),
            Self::Count(count) => (Gsn::new(count.fetch_add(1, Ordering::AcqRel) + 1), 0),
        }
    }

    /// Returns whether positions are GSNs.
    pub(super) fn is_of_gsns(&self) -> bool {
        !matches!(self, Self::Count(_))
    }
}

impl fmt::Debug for CommitOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_of_gsns() { "Gsns" } else { "Count" };
        f.debug_tuple(kind).field(&self.horizon()).finish()
    }
}

/// An open snapshot.
#[derive(Debug)]
pub(crate) struct OpenSnapshot {
    at: Gsn,
    is_too_old: AtomicBool,
}

impl OpenSnapshot {
    /// Returns the position of the latest commit that the snapshot shows.
    pub(crate) fn at(&self) -> Gsn {
        self.at
    }

    /// Returns an error if the versions that the snapshot needs may be gone. Called after a read:
    /// what was read before counts if there is none.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_too_old.load(Ordering::Acquire) { Err(Error::SnapshotTooOld { at: self.at }) } else { Ok(()) }
    }
}

/// The value of [`Registry::oldest`] without a snapshot.
const NONE: u64 = u64::MAX;

/// The snapshots that are open.
#[derive(Debug)]
pub(super) struct Registry {
    order: CommitOrder,
    /// The position of the oldest open snapshot. Zero, which keeps everything, while a snapshot
    /// chooses its position. Stored under the mutex.
    oldest: CachePadded<AtomicU64>,
    open: Mutex<Vec<Arc<OpenSnapshot>>>,
    too_old: AtomicU64,
    is_closed: AtomicBool,
}

impl Registry {
    pub(super) fn new(order: CommitOrder) -> Self {
        let oldest = CachePadded::new(AtomicU64::new(NONE));
        Self { order, oldest, open: Mutex::default(), too_old: AtomicU64::new(0), is_closed: AtomicBool::new(false) }
    }

    pub(super) fn order(&self) -> &CommitOrder {
        &self.order
    }

    /// Opens a snapshot at the horizon.
    pub(super) fn open(&self) -> Arc<OpenSnapshot> {
        let mut open = self.open.lock();
        self.oldest.store(0, Ordering::SeqCst);
        // Either a thread that reclaims versions sees the zero, or the horizon taken here is not
        // below that thread's: see `reclaimable`.
        fence(Ordering::SeqCst);
        let horizon = self.order.horizon();
        let at = if planted!(HorizonBeyondDurable) { Gsn::new(u64::MAX >> 8) } else { horizon };
        let is_too_old = self.is_closed.load(Ordering::SeqCst);
        let snapshot = Arc::new(OpenSnapshot { at, is_too_old: AtomicBool::new(is_too_old) });
        open.push(Arc::clone(&snapshot));
        self.note_oldest(&open);
        snapshot
    }

    /// Closes a snapshot.
    pub(super) fn close(&self, snapshot: &Arc<OpenSnapshot>) {
        let mut open = self.open.lock();
        open.retain(|other| !Arc::ptr_eq(other, snapshot));
        self.note_oldest(&open);
    }

    /// Ends the oldest snapshots, those of the least position, if it is lower than `position`;
    /// returns whether there was one.
    pub(super) fn end_oldest_below(&self, position: Gsn) -> bool {
        let mut open = self.open.lock();
        let oldest = open.iter().map(|snapshot| snapshot.at).min();
        let Some(oldest) = oldest.filter(|oldest| *oldest < position) else { return false };
        open.retain(|snapshot| {
            let stays = snapshot.at > oldest;
            if !stays {
                // Before anything that it needs is freed.
                snapshot.is_too_old.store(true, Ordering::SeqCst);
                self.too_old.fetch_add(1, Ordering::Relaxed);
            }
            stays
        });
        self.note_oldest(&open);
        true
    }

    fn note_oldest(&self, open: &[Arc<OpenSnapshot>]) {
        let oldest = open.iter().map(|snapshot| snapshot.at.get()).min();
        self.oldest.store(oldest.unwrap_or(NONE), Ordering::SeqCst);
    }

    /// Ends all snapshots; there will be no others.
    pub(super) fn end_all(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        while self.end_oldest_below(Gsn::MAX) {}
    }

    /// Returns the position up to which no snapshot, open or still to be opened, needs the versions
    /// of commits.
    pub(super) fn reclaimable(&self) -> Gsn {
        if self.is_closed.load(Ordering::Acquire) {
            return Gsn::MAX;
        }
        // The horizon first. If this read of `oldest` misses a snapshot that is being opened, that
        // snapshot takes its horizon later and so not below this one.
        let horizon = self.order.horizon();
        fence(Ordering::SeqCst);
        horizon.min(Gsn::new(self.oldest.load(Ordering::SeqCst)))
    }

    /// Returns the positions of the open snapshots, and one such that all later snapshots have it
    /// or a higher one.
    pub(super) fn positions(&self) -> (Vec<Gsn>, Gsn) {
        let horizon = self.order.horizon();
        fence(Ordering::SeqCst);
        let open = self.open.lock();
        (open.iter().map(|snapshot| snapshot.at).collect(), horizon)
    }

    /// Returns how many snapshots are open.
    pub(super) fn count(&self) -> usize {
        self.open.lock().len()
    }

    /// Returns how many snapshots were ended before they were closed.
    pub(super) fn too_old(&self) -> u64 {
        self.too_old.load(Ordering::Relaxed)
    }
}
