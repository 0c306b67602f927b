//! Heaps: opening them and running transactions.

use duramen_pmem::Source;
use duramen_sync::{Condvar, Mutex, Process, Retry, RwLock, Striped, thread};
use duramen_types::{crc32c, crc32c_append};

use crate::error::{Error, Result};
use crate::layout::{LINE, ROOT_AT};
use crate::line_locks::LineLocks;
use crate::open::open;
use crate::options::HeapOptions;
use crate::pointer::{Addr, Ptr, Root};
use crate::recovery::Recovered;
use crate::slabs::Slabs;
use crate::tx::Tx;
use crate::undo_log::Buckets;
use crate::update::{Count, Parts, Update};

/// Number of conflicts after which a transaction runs alone.
const ALONE_AFTER: u32 = 64;

/// An open heap. Threads share it by reference. Dropping it closes it and writes nothing.
#[derive(Debug)]
pub struct Heap {
    parts: Parts,
    slots: Mutex<Slots>,
    slot_is_free: Condvar,
    /// Transactions hold it shared; one that has met too many conflicts holds it alone.
    alone: RwLock<()>,
    recovered: Recovered,
    /// A forked child would share the memory, but not the locks.
    process: Process,
}

#[derive(Debug)]
struct Slots {
    #[allow(clippy::vec_box, reason = "an update is large, and moves out and in with each transaction")]
    free: Vec<Box<Update>>,
    /// The threads that have one.
    owners: Vec<u64>,
}

/// What a heap has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapStats {
    /// Transactions that ended with their changes, or had none.
    pub commits: u64,
    /// Transactions that were rolled back by an error or a panic of their closure.
    pub rollbacks: u64,
    /// Attempts that were rolled back because another transaction was in the way.
    pub conflicts: u64,
    /// Lines whose old contents were logged.
    pub lines_logged: u64,
    /// Barriers after undo records.
    pub log_barriers: u64,
    /// Barriers after lines in their places.
    pub home_barriers: u64,
    /// Barriers after the ends of updates.
    pub end_barriers: u64,
}

impl Heap {
    /// Opens the heap in `source`, or makes one there if the file does not exist or the memory is
    /// all zeros. Transactions that a crash has interrupted are undone.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory cannot be opened, is in use, or is less durable than
    /// required; [`Error::Foreign`], [`Error::Version`], [`Error::Corrupt`] if it holds something
    /// else than a whole heap; [`Error::TooSmall`], [`Error::InvalidOption`].
    pub fn open(source: &Source, options: &HeapOptions) -> Result<Self> {
        let opened = open(source, options)?;
        let (layout, log) = (opened.layout, opened.layout.header.log);
        let slot = |(slot, number): (u32, u64)| Box::new(Update::new(slot, number));
        // The last of the list is the first to be used.
        let free = (0..log.slots).zip(opened.next).map(slot).rev().collect();
        let parts = Parts {
            medium: opened.medium,
            locks: LineLocks::new(layout.len() / LINE),
            slabs: Slabs::new(&layout, log.slots, &opened.found),
            buckets: Buckets::new(log.buckets),
            counts: Striped::default(),
            layout,
        };
        Ok(Self {
            parts,
            slots: Mutex::new(Slots { free, owners: Vec::new() }),
            slot_is_free: Condvar::new(),
            alone: RwLock::new(()),
            recovered: opened.recovered,
            process: Process::current(),
        })
    }

    /// Runs `body` as a transaction: when this returns `Ok`, all its changes are durable; otherwise
    /// none has happened. An error that `body` returns rolls back, and so does a panic.
    ///
    /// Transactions are serializable, and see one state of the heap throughout. If another
    /// transaction is in the way, `body` runs again from its beginning, so it should have no
    /// effects outside the heap that must happen once. Once `body` has met many conflicts it runs
    /// alone.
    ///
    /// # Errors
    /// What `body` returns; [`Error::LogFull`]; [`Error::Nested`] within another transaction of
    /// this thread on this heap; [`Error::Forked`].
    pub fn atomic<R>(&self, body: impl FnMut(&mut Tx<'_>) -> Result<R>) -> Result<R> {
        self.try_atomic(body)
    }

    /// Does what [`Heap::atomic`] does, for closures with an error type of their own.
    ///
    /// # Errors
    /// As [`Heap::atomic`].
    pub fn try_atomic<R, E: From<Error>>(&self, mut body: impl FnMut(&mut Tx<'_>) -> Result<R, E>) -> Result<R, E> {
        let mut slot = self.take_slot()?;
        let mut retry = Retry::among_many();
        loop {
            let is_alone = retry.attempts() >= ALONE_AFTER || slot.update().needs_all_buckets();
            let _alone = is_alone.then(|| self.alone.write());
            let _shared = (!is_alone).then(|| self.alone.read());
            let mut tx = Tx::begin(&self.parts, slot.update(), is_alone);
            match body(&mut tx) {
                Ok(result) if !tx.is_doomed() => match tx.commit() {
                    Ok(()) => return Ok(result),
                    Err(Error::Conflict) => {}
                    Err(error) => return Err(error.into()),
                },
                Err(error) if !tx.is_doomed() => return Err(error),
                _ => drop(tx),
            }
            drop((_alone, _shared));
            retry.pause();
        }
    }

    /// Returns the root object, from which a program finds all others. It is made, of zeros, when
    /// it is asked for the first time.
    ///
    /// # Errors
    /// [`Error::WrongRoot`] if the heap has a root of another type; [`Error::Corrupt`]; those of
    /// [`Heap::atomic`].
    pub fn root<T: Root>(&self) -> Result<Ptr<T>> {
        let fingerprint = u64::from(crc32c(T::NAME.as_bytes())) | (size_of::<T>() as u64) << 32;
        self.atomic(|tx| {
            let words = tx.root_line()?;
            if words == [0; 3] {
                let at = tx.alloc_bytes(size_of::<T>() as u64)?;
                let checksum = self.root_checksum(at.get(), fingerprint);
                tx.set_root_line([at.get(), fingerprint, checksum])?;
                return Ok(at.typed());
            }
            let location = || self.parts.medium.location().to_owned();
            if words[2] != self.root_checksum(words[0], words[1]) {
                let reason = "the checksum of the root does not match".to_owned();
                return Err(Error::Corrupt { location: location(), offset: ROOT_AT, reason });
            }
            if words[1] != fingerprint {
                return Err(Error::WrongRoot { location: location(), wanted: T::NAME });
            }
            Ok(Addr::new(words[0]).typed())
        })
    }

    /// Returns the live objects, with their sizes in whole size classes, in the order of their
    /// addresses: for programs that check that they have lost none. No transaction should be open.
    pub fn objects(&self) -> Vec<(Addr, u64)> {
        self.parts.slabs.objects().iter().map(|object| (Addr::new(object.start), object.len)).collect()
    }

    /// Returns what opening has undone.
    pub fn recovered(&self) -> Recovered {
        self.recovered
    }

    /// Returns the size of the heap in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no heap has no bytes")]
    pub fn len(&self) -> u64 {
        self.parts.layout.len()
    }

    /// Returns a warning if committed transactions do not survive a power cut.
    pub fn shortfall(&self) -> Option<String> {
        self.parts.medium.region().shortfall()
    }

    /// Returns what the heap has done since it was opened.
    pub fn stats(&self) -> HeapStats {
        let parts = &self.parts;
        let [log_barriers, home_barriers, end_barriers] = parts.medium.barriers();
        HeapStats {
            commits: parts.counted(Count::Commits),
            rollbacks: parts.counted(Count::Rollbacks),
            conflicts: parts.counted(Count::Conflicts),
            lines_logged: parts.counted(Count::Lines),
            log_barriers,
            home_barriers,
            end_barriers,
        }
    }

    fn root_checksum(&self, at: u64, fingerprint: u64) -> u64 {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&self.parts.layout.header.id);
        bytes[16..24].copy_from_slice(&at.to_le_bytes());
        bytes[24..].copy_from_slice(&fingerprint.to_le_bytes());
        u64::from(crc32c_append(ROOT_AT, &bytes))
    }

    /// Takes a slot for the calling thread; waits if all are taken.
    fn take_slot(&self) -> Result<Slot<'_>> {
        if !self.process.is_current() {
            return Err(Error::Forked);
        }
        let thread = thread::id();
        let mut slots = self.slots.lock();
        if slots.owners.contains(&thread) {
            return Err(Error::Nested);
        }
        let update = loop {
            match slots.free.pop() {
                Some(update) => break update,
                None => self.slot_is_free.wait(&mut slots),
            }
        };
        slots.owners.push(thread);
        Ok(Slot { heap: self, update: Some(update), thread })
    }
}

/// A slot that a thread has taken.
struct Slot<'heap> {
    heap: &'heap Heap,
    update: Option<Box<Update>>,
    thread: u64,
}

impl Slot<'_> {
    fn update(&mut self) -> &mut Update {
        self.update.as_mut().expect("a slot has its update until it is dropped")
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut slots = self.heap.slots.lock();
        slots.owners.retain(|owner| *owner != self.thread);
        slots.free.extend(self.update.take());
        self.heap.slot_is_free.notify_one();
    }
}
