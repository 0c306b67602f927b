//! Passive group commit: it determines what is hardened in rings in persistent memory behind
//! volatile caches, without a barrier for each record (Wang and Johnson, *Scalable Logging through
//! Emerging Non-Volatile Memory*, section 4.1).
//!
//! Records are streamed past the caches. They are durable when the processor has drained its
//! write-combining buffers. A thread drains them for its own records when it commits or is about to
//! wait for something, such as a lock, a latch or a page from disk. A commit is hardened when every
//! record before it is durable, including the records of other threads: every record before it in
//! its log or, with several logs, every record up to its GSN in all of them
//! ([`crate::several::commit_rounds`]). The threads' side is the same in both cases, and is here.
//! The GSNs of a single log are its LSNs.
//!
//! Each thread has a cell. `dgsn` is the GSN below which all of its records are durable; the
//! highest bit says that the thread has inserted more since (*dirty*). A thread sets the bit before
//! it streams its first record, and clears it after a fence. A thread that determines what is
//! hardened first reads the released position, and then the cells. Every released record has been
//! streamed by a thread that had set its bit before. The reader finds each of these threads either
//! dirty or fenced since. In a database's only log, the least `dgsn` of the dirty threads bounds
//! what is hardened ([`Passive::bound`]). In several logs, the GSNs of the records that one thread
//! inserts into different logs are in no order. There each dirty thread has to fence once more, and
//! `fences` shows whether it has ([`Passive::behind`]). Clean threads do not count, however long
//! they have been idle.
//!
//! # Stragglers
//! A thread that stays dirty delays the others: it runs a long transaction, sleeps, or has ended.
//! After a while, a waiter drains the buffers of all processors instead
//! ([`duramen_pmem::drain_processors`]). Then every record that was released before is durable, in
//! all logs and from all threads. A straggler that inserts nothing more must not cause another
//! draining. Its cell counts the beginnings and ends of its insertions (`work`). If the count was
//! even before the draining and is still the same, all records of the thread are durable. Only its
//! owner writes to `dgsn` and `work`; the draining thread writes to `drained_work`.

use std::time::Duration;

use duramen_pmem::{Domain, DrainBy, Drained, Region, drain_processors};
use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, CachePadded, Mutex, thread};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::options::{LogDevice, WalOptions};

/// Maximum number of threads that may share rings without a fence for each record.
const MAX_THREADS: usize = 1024;

/// The daemon drains processors when nothing has been hardened for this long although there are
/// records to harden. Most transactions commit sooner.
const DRAIN_AFTER: Duration = Duration::from_micros(100);

/// Bit of `dgsn`: the thread has inserted records since.
const DIRTY: u64 = 1 << 63;
/// No `work` has this value.
const NEVER: u64 = u64::MAX;

/// What each thread has made durable.
#[derive(Debug)]
pub(crate) struct Passive {
    /// A hash table of cells, keyed by thread number.
    places: Box<[Place]>,
    /// In the order in which threads have registered.
    cells: Box<[CachePadded<Cell>]>,
    used: AtomicUsize,
    registering: Mutex<()>,
    draining: Mutex<()>,
    drain_by: DrainBy,
    drains: AtomicU64,
    signals: AtomicU64,
}

/// The entry of a thread in the hash table. After a collision, the next one is tried.
#[derive(Debug, Default)]
struct Place {
    /// Number of the thread, plus one.
    owner: AtomicU64,
    cell: AtomicUsize,
}

/// What one thread has made durable.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    dgsn: AtomicU64,
    /// Odd while the thread inserts.
    work: AtomicU64,
    /// `work` when processors were last drained, if that was even.
    drained_work: AtomicU64,
    /// Fences of the thread that have made something durable.
    fences: AtomicU64,
    /// A bit for each log with records since the last fence. Only the owner accesses this field
    /// and writes the count.
    logs: AtomicU64,
    /// The number of requests of the thread to harden records, and the highest GSN among them.
    requests: AtomicU64,
    requested: AtomicU64,
}

/// A thread that delayed others, and its number of fences at that time.
#[derive(Debug)]
pub(crate) struct Behind {
    cell: usize,
    fences: u64,
}

impl Passive {
    /// Creates the cells if the threads fence their own records: in a database's `only` log, or in
    /// several logs that share commit rounds.
    pub(crate) fn of(options: &WalOptions, only: bool) -> Option<Arc<Self>> {
        let LogDevice::Nvm(nvm) = &options.device else { return None };
        let is_passive = nvm.domain == Domain::VolatileCache || !only;
        is_passive.then(|| Arc::new(Self::new(MAX_THREADS, nvm.drain)))
    }

    /// Creates cells for `threads` threads of the log's lifetime; later threads fence each record.
    pub(crate) fn new(threads: usize, drain_by: DrainBy) -> Self {
        let cell = || Cell { drained_work: AtomicU64::new(NEVER), ..Cell::default() };
        Self {
            places: (0..(2 * threads).next_power_of_two()).map(|_| Place::default()).collect(),
            cells: (0..threads).map(|_| CachePadded::new(cell())).collect(),
            used: AtomicUsize::new(0),
            registering: Mutex::new(()),
            draining: Mutex::new(()),
            drain_by,
            signals: AtomicU64::new(0),
            drains: AtomicU64::new(0),
        }
    }

    /// Returns the number of drainings of all processors, of signals for them, and of fences.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let fences = self.cells().iter().map(|cell| cell.fences.load(Ordering::Relaxed)).sum();
        (self.drains.load(Ordering::Relaxed), self.signals.load(Ordering::Relaxed), fences)
    }

    /// Returns the number of requests to harden that [`Passive::request`] has counted.
    pub(crate) fn requests(&self) -> u64 {
        self.cells().iter().map(|cell| cell.requests.load(Ordering::Relaxed)).sum()
    }

    /// Returns the cells in use.
    fn cells(&self) -> &[CachePadded<Cell>] {
        &self.cells[..self.used.load(Ordering::Acquire)]
    }

    // ----- the owner of a cell -----

    /// Marks the calling thread as dirty before it streams the record of `gsn` to the ring of this
    /// log. Returns its cell; without a cell, the thread fences each record.
    #[inline]
    pub(crate) fn begin(&self, gsn: Gsn, log: LogId) -> Option<&Cell> {
        let cell = self.cell(true);
        if let Some(cell) = cell {
            // Only this thread writes these. Threads that find the record released find them, too.
            cell.work.store(cell.work.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            cell.logs.store(cell.logs.load(Ordering::Relaxed) | 1 << log.get(), Ordering::Relaxed);
            let dgsn = cell.dgsn.load(Ordering::Relaxed);
            if dgsn & DIRTY == 0 && !planted!(DirtyBitIgnored) {
                cell.dgsn.store(gsn.get() | DIRTY, Ordering::Relaxed);
            }
        }
        cell
    }

    /// Ends the writing of a record that has been streamed, with the result of [`Passive::begin`].
    #[inline]
    pub(crate) fn end(&self, cell: Option<&Cell>, region: &Region) {
        match cell {
            // Release: the record has been streamed before this store.
            Some(cell) => cell.work.store(cell.work.load(Ordering::Relaxed) + 1, Ordering::Release),
            None => region.fence(),
        }
    }

    /// Makes the calling thread's records durable. `region` returns the ring's memory of a log.
    pub(crate) fn fence<'r>(&self, region: impl Fn(LogId) -> &'r Region) {
        let Some(cell) = self.cell(false) else { return };
        let dgsn = cell.dgsn.load(Ordering::Relaxed);
        if dgsn & DIRTY != 0 {
            let mut logs = cell.logs.load(Ordering::Relaxed);
            while logs != 0 && !planted!(RingFenceDropped) {
                region(LogId::new(logs.trailing_zeros() as u16)).fence();
                logs &= logs - 1;
            }
            cell.logs.store(0, Ordering::Relaxed);
            // Release: after the fence. Threads that find a later record released find this, too.
            cell.fences.store(cell.fences.load(Ordering::Relaxed) + 1, Ordering::Release);
            cell.dgsn.store(dgsn & !DIRTY, Ordering::Release);
        }
    }

    /// Notes that the calling thread requests that everything up to `gsn` be hardened; returns
    /// whether the thread has a cell for the note.
    pub(crate) fn request(&self, gsn: Gsn) -> bool {
        let Some(cell) = self.cell(true) else { return false };
        cell.requests.store(cell.requests.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if cell.requested.load(Ordering::Relaxed) < gsn.get() {
            cell.requested.store(gsn.get(), Ordering::Release);
        }
        true
    }

    /// Returns the highest GSN that [`Passive::request`] has noted.
    pub(crate) fn requested(&self) -> Gsn {
        let requested = self.cells().iter().map(|cell| cell.requested.load(Ordering::Acquire));
        Gsn::new(requested.max().unwrap_or(0))
    }

    /// Returns the calling thread's cell, if it has one or can be given one.
    #[inline]
    fn cell(&self, wanted: bool) -> Option<&Cell> {
        let owner = thread::id().wrapping_add(1);
        let mut places = self.place_of(owner).map(|place| (place, place.owner.load(Ordering::Acquire)));
        let (place, found) = places.find(|&(_, found)| found == owner || found == 0)?;
        if found == owner {
            return Some(&self.cells[place.cell.load(Ordering::Relaxed)]);
        }
        if wanted { self.register(owner) } else { None }
    }

    /// Returns the entries of the hash table where a thread may be, in probing order.
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
        // Stored before the thread's first record is released.
        self.used.store(number + 1, Ordering::Release);
        Some(cell)
    }

    // ----- other threads -----

    /// Returns up to where a database's only log is durable, given what was `released` before.
    pub(crate) fn bound(&self, released: Lsn) -> Lsn {
        let dirty = self.cells().iter().filter_map(|cell| cell.dirty_from());
        let bound = dirty.map(Gsn::get).min().filter(|_| !planted!(OwnFenceOnly));
        Lsn::new(bound.map_or(released.get(), |bound| bound.min(released.get())))
    }

    /// Returns the threads that may have a record, in any log, that is released but not durable.
    pub(crate) fn behind(&self) -> Vec<Behind> {
        let behind = |(cell, its): (usize, &CachePadded<Cell>)| {
            let is_other = || its.logs.load(Ordering::Relaxed) & 1 == 0;
            let is_missed = planted!(OwnFenceOnly) || planted!(OwnLogHardenedOnly) && is_other();
            let is_behind = its.dirty_from().is_some() && !is_missed;
            is_behind.then(|| Behind { cell, fences: its.fences.load(Ordering::Acquire) })
        };
        self.cells().iter().enumerate().filter_map(behind).collect()
    }

    /// Returns whether a thread that [`Passive::behind`] has found is still behind: it has not
    /// fenced since, and has not been drained.
    pub(crate) fn is_behind(&self, &Behind { cell, fences }: &Behind) -> bool {
        let cell = &self.cells[cell];
        cell.dirty_from().is_some() && cell.fences.load(Ordering::Acquire) == fences
    }

    /// Makes everything durable that has been released when `look` is called; returns the result of
    /// `look`, or `None` if the system does not support draining. `regions` are the regions of all
    /// logs. Takes some ten microseconds.
    pub(crate) fn drain<'r, T>(
        &self,
        regions: impl IntoIterator<Item = &'r Region>,
        look: impl FnOnce() -> T,
    ) -> Option<T> {
        let _draining = self.draining.lock();
        let looked = look();
        let cells = self.cells();
        // Acquire: an even count says that the record has been streamed.
        let works: Vec<u64> = cells.iter().map(|cell| cell.work.load(Ordering::Acquire)).collect();
        if !self.drain_processors(regions) {
            return None;
        }
        for (cell, work) in cells.iter().zip(works) {
            cell.drained_work.store(if work.is_multiple_of(2) { work } else { NEVER }, Ordering::Release);
        }
        Some(looked)
    }

    /// Drains as [`Passive::drain`] does, for only one of several logs.
    pub(crate) fn drain_one<T>(&self, region: &Region, look: impl FnOnce() -> T) -> Option<T> {
        let looked = look();
        self.drain_processors([region]).then_some(looked)
    }

    fn drain_processors<'r>(&self, regions: impl IntoIterator<Item = &'r Region>) -> bool {
        if !planted!(StragglerSkipped) {
            match drain_processors(regions, self.drain_by) {
                Drained::Done { signals } => self.signals.fetch_add(signals, Ordering::Relaxed),
                Drained::Unsupported => return false,
            };
        }
        self.drains.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Cell {
    /// Returns the GSN below which the thread's records are durable, or `None` if all are.
    #[inline]
    fn dirty_from(&self) -> Option<Gsn> {
        // `dgsn` before `work`: if the thread has begun to insert since, `work` is odd or differs.
        let dgsn = self.dgsn.load(Ordering::Acquire);
        let is_drained = || self.work.load(Ordering::Acquire) == self.drained_work.load(Ordering::Acquire);
        (dgsn & DIRTY != 0 && !is_drained()).then_some(Gsn::new(dgsn & !DIRTY))
    }
}

/// The state at the daemon's last check.
#[derive(Debug, Default)]
pub(crate) struct Stalled {
    /// Everything below this position was hardened ...
    at: AtomicU64,
    /// ... since this time, in nanoseconds, and nothing else was.
    since: AtomicU64,
}

impl Stalled {
    /// Returns, for the daemon, whether nothing has been hardened for long although it could be.
    pub(crate) fn look(&self, hardened: Lsn, released: Lsn) -> bool {
        let now = Instant::now().nanos();
        let (at, since) = (self.at.load(Ordering::Relaxed), self.since.load(Ordering::Relaxed));
        if at == hardened.get() && hardened < released {
            return u128::from(now.saturating_sub(since)) >= DRAIN_AFTER.as_nanos();
        }
        self.at.store(hardened.get(), Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
#[path = "passive_tests.rs"]
mod tests;
