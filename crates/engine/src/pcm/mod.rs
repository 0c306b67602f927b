//! The persistent memory of [`crate::Scheme::PcmLogging`]: the buffer between the pool and the data
//! file that is the log at the same time (Gao et al., *PCMLogging: Reducing Transaction Logging
//! Overhead with PCM*, CIKM 2011, section 3).
//!
//! [`Pcm`] is the region with its layout: a header, the active transaction list, and slots. All
//! stores go through [`Pcm::store`], which flushes where caches are volatile; [`Pcm::barrier`]
//! makes durable what the calling thread has stored, and is counted.
//!
//! | file | meaning |
//! |---|---|
//! | `layout` | the bytes of a region |
//! | `active` | the active transaction list and the numbers in it |
//! | `cell` | tuples in their cells |
//! | `content` | what a leaf says about a key |
//! | `covers` | what keys were before transactions under way changed them |
//! | `image` | a page with its covers, as slots hold it |
//! | `inspection` | what a region holds, for a look at it |
//! | `map` | which page is in which slot, in DRAM |
//! | `overlay` | puts the tuples of a leaf into its base |
//! | `pages` | the pages, for the pool: writing, reading, replacement |
//! | `recover` | the scan that recovery consists of |
//! | `tuple_pages` | leaves whose latest changes are tuples |
//! | `tuples` | which tuples are in which cells, in DRAM |

mod active;
mod cell;
mod content;
mod covers;
mod image;
mod inspection;
mod layout;
mod map;
mod overlay;
mod pages;
mod recover;
#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests;
mod tuple_pages;
#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tuple_tests;
mod tuples;

pub(crate) use active::Xid;
pub(crate) use content::Content;
pub(crate) use covers::{ChangedKey, Cover, Covered, CoversOfPage};
pub(crate) use image::{Image, slots_with};
pub(crate) use inspection::Summary;
pub(crate) use layout::{ENTRIES, SLOT_BYTES, Slot, Word};
pub(crate) use pages::{Clock, PcmPages};
pub(crate) use recover::{Found, Loser, Winner};
pub(crate) use tuple_pages::{ChangedLeaf, Ended};

use duramen_pmem::{Domain, Mode, Region, Source};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Mutex, Striped};

use crate::error::{Error, Result};
use crate::options::PcmOptions;
use crate::region::{RegionPlace, State, word_of};
use layout::{FIXED, Header, LINE, MAGIC, bytes_of, entry_at, least_len, slots_in};

/// How many numbers of the clock become available with one barrier.
const CLOCK_STEP: u64 = 1 << 20;

/// An open region.
#[derive(Debug)]
pub(crate) struct Pcm {
    region: Region,
    database: [u8; 16],
    slots: u32,
    flushes: bool,
    barriers: Striped<AtomicU64, 32>,
    bytes_stored: AtomicU64,
    /// The latest number that was given out.
    clock: AtomicU64,
    /// Numbers below it are available.
    clock_limit: AtomicU64,
    raising: Mutex<()>,
}

impl Pcm {
    /// Checks that a new region could be made, before anything is made.
    ///
    /// # Errors
    /// As [`RegionPlace::check_new`].
    pub(crate) fn check_new(options: &PcmOptions) -> Result<()> {
        place(options).check_new(bytes_of(slots_in(options.bytes)))
    }

    /// Makes a region for a new database. It is in use after [`Pcm::set`] has set its state.
    ///
    /// # Errors
    /// As [`Pcm::check_new`], and those of the system.
    pub(crate) fn create(options: &PcmOptions, database: [u8; 16]) -> Result<Self> {
        let slots = slots_in(options.bytes);
        let region = place(options).unused(bytes_of(slots))?;
        let pcm = Self::of_region(region, options, database, slots);
        // A crash may leave any part of this, but not a state beyond `BeingMade`. Nothing else is
        // stored before the header is durable: see `RegionPlace::unused`.
        pcm.set(Word::State, State::Blank as u64);
        pcm.store(0, &[&Header { database, slots }.encode()]);
        pcm.barrier();
        let words = [(Word::Clock, 1), (Word::NextTxn, 1), (Word::Groups, 1), (Word::Generation, 1)];
        for (word, value) in words.into_iter().chain([(Word::Slots, slots.into())]) {
            pcm.store(word as u64, &[&u64::to_le_bytes(value)]);
        }
        (0..ENTRIES).for_each(|entry| pcm.store(entry_at(entry), &[&[0; LINE as usize]]));
        (0..slots).for_each(|slot| pcm.free_slot(Slot(slot)));
        pcm.barrier();
        pcm.set(Word::State, State::BeingMade as u64);
        Ok(pcm)
    }

    /// Opens the region of a database. A region that is smaller than the options ask for grows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is not the region of this database, and those of the system.
    pub(crate) fn open(options: &PcmOptions, database: [u8; 16]) -> Result<Self> {
        let location = match &options.source {
            Source::File(path) => path.display().to_string(),
            _ => "the PCM".to_owned(),
        };
        let slots = {
            let region = place(options).open(least_len(), Mode::Open)?;
            let mut fixed = [0; FIXED];
            region.read(0, &mut fixed);
            let header = Header::decode(&fixed).map_err(|defect| corrupt(&location, &defect.to_string()))?;
            if header.database != database {
                return Err(corrupt(&location, "it is the PCM of another database; name the one that belongs here"));
            }
            match State::from_word(word_of(&region, Word::State as u64)) {
                None => return Err(corrupt(&location, "its state is none that it can have")),
                Some(State::Blank) => return Err(corrupt(&location, "it was never completed")),
                Some(_) => {}
            }
            let slots = u32::try_from(word_of(&region, Word::Slots as u64)).unwrap_or(0);
            if slots < header.slots || bytes_of(slots) > PcmOptions::MOST_BYTES {
                return Err(corrupt(&location, "its header names a size that it cannot have"));
            }
            slots
        };
        // A region that is shorter than its header says has lost its end, and must not grow.
        let region = place(options).open(bytes_of(slots), Mode::Open)?;
        let wanted = slots_in(options.bytes).max(slots);
        if wanted == slots {
            return Ok(Self::of_region(region, options, database, slots));
        }
        drop(region);
        let region = place(options).open(bytes_of(wanted), Mode::Grow)?;
        let pcm = Self::of_region(region, options, database, wanted);
        (slots..wanted).for_each(|slot| pcm.free_slot(Slot(slot)));
        pcm.barrier();
        pcm.set(Word::Slots, wanted.into());
        Ok(pcm)
    }

    /// Opens a region to look at it: it need not be writable, and nothing that might be stored
    /// reaches it.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is none, and those of the system.
    pub(crate) fn open_to_inspect(options: &PcmOptions) -> Result<Self> {
        let options = PcmOptions {
            survive: duramen_pmem::Survive::Nothing,
            timing: duramen_pmem::Timing::NONE,
            ..options.clone()
        };
        let region = place(&options).open(least_len(), Mode::Private)?;
        let mut fixed = [0; FIXED];
        region.read(0, &mut fixed);
        let header = Header::decode(&fixed).map_err(|defect| corrupt(region.location(), &defect.to_string()))?;
        let slots = u32::try_from(word_of(&region, Word::Slots as u64)).unwrap_or(0);
        let len = match &options.source {
            Source::File(path) => path.metadata().map_or(0, |file| file.len()),
            Source::Simulated(memory) => memory.len(),
            Source::Anonymous => least_len(),
        };
        let slots = slots.min(slots_in(len)).min(slots_in(PcmOptions::MOST_BYTES));
        drop(region);
        let region = place(&options).open(bytes_of(slots).max(least_len()), Mode::Private)?;
        Ok(Self::of_region(region, &options, header.database, slots))
    }

    fn of_region(region: Region, options: &PcmOptions, database: [u8; 16], slots: u32) -> Self {
        let clock = word_of(&region, Word::Clock as u64).max(1);
        Self {
            region,
            database,
            slots,
            flushes: options.domain == Domain::VolatileCache,
            barriers: Striped::default(),
            bytes_stored: AtomicU64::new(0),
            clock: AtomicU64::new(clock),
            clock_limit: AtomicU64::new(clock),
            raising: Mutex::default(),
        }
    }

    /// Returns the region's name.
    pub(crate) fn location(&self) -> &str {
        self.region.location()
    }

    /// Returns a warning if what is stored survives less than a power cut.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.region.shortfall()
    }

    /// Returns the database that the region belongs to.
    pub(crate) fn database(&self) -> [u8; 16] {
        self.database
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the latest number of the clock.
    pub(crate) fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    /// Returns the next number of the clock: higher than all before, crashes or not.
    pub(crate) fn tick(&self) -> u64 {
        let number = self.clock.fetch_add(1, Ordering::AcqRel) + 1;
        if number >= self.clock_limit.load(Ordering::Acquire) {
            self.raise(number);
        }
        number
    }

    #[cold]
    fn raise(&self, number: u64) {
        let _raising = self.raising.lock();
        let limit = self.clock_limit.load(Ordering::Acquire);
        if number >= limit {
            let limit = number + CLOCK_STEP;
            self.set(Word::Clock, limit);
            self.clock_limit.store(limit, Ordering::Release);
        }
    }

    /// Stores `parts`, one after the other, from offset `at` on. They are durable after the next
    /// [`Pcm::barrier`] of the calling thread.
    fn store(&self, at: u64, parts: &[&[u8]]) {
        let len = parts.iter().map(|part| part.len()).sum();
        self.region.store(at, parts);
        if self.flushes {
            self.region.flush(at, len);
        }
        self.bytes_stored.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Makes durable what the calling thread has stored.
    pub(crate) fn barrier(&self) {
        self.region.fence();
        self.barriers.own().1.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how many barriers there were.
    pub(crate) fn barriers(&self) -> u64 {
        self.barriers.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Returns how many bytes were stored.
    pub(crate) fn bytes_stored(&self) -> u64 {
        self.bytes_stored.load(Ordering::Relaxed)
    }

    /// Returns a word of the header.
    pub(crate) fn get(&self, word: Word) -> u64 {
        word_of(&self.region, word as u64)
    }

    /// Changes a word of the header, durably.
    pub(crate) fn set(&self, word: Word, value: u64) {
        self.store(word as u64, &[&value.to_le_bytes()]);
        self.barrier();
    }

    /// Returns an entry of the active transaction list.
    pub(crate) fn entry(&self, entry: u32) -> u64 {
        word_of(&self.region, entry_at(entry))
    }

    /// Changes an entry of the active transaction list; durable after the next barrier.
    fn set_entry(&self, entry: u32, value: u64) {
        self.store(entry_at(entry), &[&value.to_le_bytes()]);
    }

    /// Marks a slot as free; durable after the next barrier.
    fn free_slot(&self, slot: Slot) {
        self.store(slot.at(), &[&[0; 8]]);
    }

    /// Makes what is found durable: it may so far be in caches only, if the process that stored it
    /// was stopped.
    fn persist_all(&self) {
        if self.flushes {
            self.region.flush(0, Slot(0).at() as usize);
            for slot in (0..self.slots).map(Slot) {
                let is_free = self.region.read_word(slot.at()) == 0;
                self.region.flush(slot.at(), if is_free { 8 } else { SLOT_BYTES });
            }
        }
        self.barrier();
    }
}

fn place(options: &PcmOptions) -> RegionPlace<'_> {
    RegionPlace::of_pcm(options, MAGIC, FIXED)
}

fn corrupt(file: &str, reason: &str) -> Error {
    Error::Corrupt { file: file.to_owned(), offset: 0, page: None, reason: reason.to_owned() }
}
