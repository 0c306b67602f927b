//! Passive group commit: what is hardened in a ring in persistent memory when caches are volatile, without a barrier for each
//! record (Wang and Johnson, *Scalable Logging through Emerging Non-Volatile Memory*, section 4.1).
//!
//! Records are streamed past the caches. They are durable when the processor has drained its write-combining buffers, which a
//! thread sees to, for its own records, when it commits or is about to wait for something. A commit is hardened when
//! everything before it in the log is durable, records of other threads included.
//!
//! Each thread has a cell. `dgsn` is the position below which all of its records are durable; its highest bit says that it
//! has inserted more since (*dirty*). A thread sets the bit before it streams its first record, and clears it after a fence.
//! So for whoever wants to know what is hardened ([`Passive::advance`]): it looks at `released` first and at the cells then.
//! All that is released has been streamed by threads that had set their bits before; each of them is either found dirty, with
//! a position that is not behind its first record in question, or has fenced since. The least of these positions bounds
//! what is hardened. Threads that are clean do not count, however long they have been idle.
//!
//! # Stragglers
//! A thread that stays dirty holds the others back: it runs a long transaction, sleeps, or has ended. After a while who waits
//! drains the buffers of all processors instead ([`duramen_pmem::drain_processors`]): everything that was released before is
//! durable then, whoever has inserted it. A straggler that inserts nothing more must not be drained again. Its cell counts
//! the beginnings and ends of its insertions (`work`): if the count was even before the draining and is still the same, it has
//! nothing that is not durable. Only its owner writes to `dgsn` and `work`; whoever drains writes to `drained_work`.

use duramen_pmem::{DrainBy, Drained, Region, drain_processors};
use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{CachePadded, Mutex, thread};
use duramen_types::Lsn;
use duramen_types::planted::{Bug, is_on};

/// Bit of `dgsn`: the thread has inserted more since.
const DIRTY: u64 = 1 << 63;
/// No `work` has this value.
const NEVER: u64 = u64::MAX;

/// What each thread knows to be durable.
#[derive(Debug)]
pub(crate) struct Passive {
    /// By the numbers of threads.
    places: Box<[Place]>,
    /// In the order in which threads came.
    cells: Box<[CachePadded<Cell>]>,
    used: AtomicUsize,
    registering: Mutex<()>,
    /// Everything below is durable since processors were drained. Changed with the mutex held.
    drained: AtomicU64,
    draining: Mutex<()>,
    drain_by: DrainBy,
    drains: AtomicU64,
    signals: AtomicU64,
    fences: AtomicU64,
}

/// Where the cell of a thread is. Places collide, and the next one is tried.
#[derive(Debug, Default)]
struct Place {
    /// Number of the thread, plus one.
    owner: AtomicU64,
    cell: AtomicUsize,
}

#[derive(Debug)]
struct Cell {
    dgsn: AtomicU64,
    /// Odd while the thread inserts.
    work: AtomicU64,
    /// `work` when processors were last drained, if that was even.
    drained_work: AtomicU64,
}

/// A thread that is inserting a record.
#[derive(Debug)]
pub(crate) struct Writing<'a> {
    /// Without one, each record is fenced.
    cell: Option<&'a Cell>,
}

impl Passive {
    /// For so many threads in the course of time; those that come later fence each record.
    pub(crate) fn new(threads: usize, drain_by: DrainBy) -> Self {
        let cell = || Cell { dgsn: AtomicU64::new(0), work: AtomicU64::new(0), drained_work: AtomicU64::new(NEVER) };
        Self {
            places: (0..(2 * threads).next_power_of_two()).map(|_| Place::default()).collect(),
            cells: (0..threads).map(|_| CachePadded::new(cell())).collect(),
            used: AtomicUsize::new(0),
            registering: Mutex::new(()),
            drained: AtomicU64::new(0),
            draining: Mutex::new(()),
            drain_by,
            signals: AtomicU64::new(0),
            drains: AtomicU64::new(0),
            fences: AtomicU64::new(0),
        }
    }

    /// Times that all processors were drained, signals that took, and times that a thread fenced.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let [drains, signals, fences] =
            [&self.drains, &self.signals, &self.fences].map(|count| count.load(Ordering::Relaxed));
        (drains, signals, fences)
    }

    // ----- what the owner of a cell does -----

    /// The calling thread is about to stream the record at `lsn`, and to release it afterwards.
    #[inline]
    pub(crate) fn begin(&self, lsn: Lsn) -> Writing<'_> {
        let cell = self.cell(true);
        if let Some(cell) = cell {
            // Nobody else writes these. Who finds the record released finds them, too.
            cell.work.store(cell.work.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if cell.dgsn.load(Ordering::Relaxed) & DIRTY == 0 && !is_on(Bug::DirtyBitIgnored) {
                cell.dgsn.store(lsn.get() | DIRTY, Ordering::Relaxed);
            }
        }
        Writing { cell }
    }

    /// The record has been streamed.
    #[inline]
    pub(crate) fn end(&self, writing: Writing<'_>, region: &Region) {
        match writing.cell {
            // Release: the record has been streamed before.
            Some(cell) => cell.work.store(cell.work.load(Ordering::Relaxed) + 1, Ordering::Release),
            None => region.fence(),
        }
    }

    /// Makes what the calling thread has inserted durable.
    pub(crate) fn fence(&self, region: &Region) {
        let Some(cell) = self.cell(false) else { return };
        let dgsn = cell.dgsn.load(Ordering::Relaxed);
        if dgsn & DIRTY != 0 {
            if !is_on(Bug::RingFenceDropped) {
                region.fence();
            }
            // Release: the fence comes before.
            cell.dgsn.store(dgsn & !DIRTY, Ordering::Release);
            self.fences.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The calling thread's cell, if it has one or can be given one.
    #[inline]
    fn cell(&self, wanted: bool) -> Option<&Cell> {
        let owner = thread::id().wrapping_add(1);
        let place = self.place_of(owner).find(|place| {
            let found = place.owner.load(Ordering::Acquire);
            found == owner || found == 0
        })?;
        if place.owner.load(Ordering::Acquire) == owner {
            return Some(&self.cells[place.cell.load(Ordering::Relaxed)]);
        }
        if wanted { self.register(owner) } else { None }
    }

    /// The places where a thread may be, one after the other.
    fn place_of(&self, owner: u64) -> impl Iterator<Item = &Place> {
        let mask = self.places.len() - 1;
        let first = (owner.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
        (0..self.places.len()).map(move |step| &self.places[(first + step) & mask])
    }

    #[cold]
    fn register(&self, owner: u64) -> Option<&Cell> {
        let _registering = self.registering.lock();
        let number = self.used.load(Ordering::Relaxed);
        let cell = self.cells.get(number)?;
        let place = self.place_of(owner).find(|place| place.owner.load(Ordering::Relaxed) == 0)?;
        place.cell.store(number, Ordering::Relaxed);
        place.owner.store(owner, Ordering::Release);
        // Before the thread's first record is released.
        self.used.store(number + 1, Ordering::Release);
        Some(cell)
    }

    // ----- what others make of the cells -----

    /// Everything below is durable, of what was `released` before the call.
    pub(crate) fn bound(&self, released: Lsn) -> Lsn {
        if is_on(Bug::OwnFenceOnly) {
            return released;
        }
        let drained = self.drained.load(Ordering::Acquire);
        let mut bound = released.get();
        for cell in &self.cells[..self.used.load(Ordering::Acquire)] {
            // First: that of a thread that has begun to insert since is odd, or another.
            let dgsn = cell.dgsn.load(Ordering::Acquire);
            if dgsn & DIRTY == 0 {
                continue;
            }
            let is_drained = cell.work.load(Ordering::Acquire) == cell.drained_work.load(Ordering::Acquire);
            if !is_drained {
                bound = bound.min((dgsn & !DIRTY).max(drained));
            }
        }
        Lsn::new(bound)
    }

    /// Makes everything durable that `released` says when it is called. Some ten microseconds.
    pub(crate) fn drain(&self, region: &Region, released: impl FnOnce() -> Lsn) -> Lsn {
        let _draining = self.draining.lock();
        let released = released();
        let cells = &self.cells[..self.used.load(Ordering::Acquire)];
        // Acquire: an even count says that the record has been streamed.
        let works: Vec<u64> = cells.iter().map(|cell| cell.work.load(Ordering::Acquire)).collect();
        if !is_on(Bug::StragglerSkipped) {
            match drain_processors(region, self.drain_by) {
                Drained::Done { signals } => self.signals.fetch_add(signals, Ordering::Relaxed),
                Drained::Unsupported => return Lsn::new(self.drained.load(Ordering::Relaxed)),
            };
        }
        self.drains.fetch_add(1, Ordering::Relaxed);
        for (cell, work) in cells.iter().zip(works) {
            cell.drained_work.store(if work.is_multiple_of(2) { work } else { NEVER }, Ordering::Release);
        }
        self.drained.store(released.get(), Ordering::Release);
        released
    }
}

#[cfg(test)]
#[path = "passive_tests.rs"]
mod tests;
