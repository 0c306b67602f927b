//! A page tier between the pool and the data file: a file on a fast medium, or a region in
//! persistent memory (`medium`).
//!
//! Dirty pages are written to the tier, each into a free slot, and are then durable. A page leaves
//! the tier for the data file when its slot is needed and it was used least recently. So pages that
//! change often reach the data file seldom, and writes to it come in sorted batches. This is the
//! page cache of PCMLogging (Gao et al., CIKM 2011, section 3) under a write-ahead log, where it
//! needs neither a list of transactions nor a directory: a slot holds a sealed page (`slots`), and
//! the newest version of a page counts, in the tier or, if there is none, in the data file.
//!
//! # Protocol
//! *Write*: pages go to free slots; the tier is synced; the pages' slots until then become free.
//!
//! *Write back*, when slots are needed:
//! 1. The coldest pages are read from their slots and written to the data file as the pool would
//!    write them (double-write area, in place, sync). They come in *runs* (`run`), if the
//!    application wants them: with the other pages of the tier that are near to them in the data
//!    file, and with the pages between.
//! 2. Old versions of these pages in free slots are erased, and the tier is synced.
//! 3. The slots become free.
//!
//! # Crashes
//! Opening reads all slots. Of the whole pages in them, the one with the highest GSN is the page.
//! This is right at any point of the protocol:
//! - A slot is overwritten only when it is free. Then a newer version of its page is durable in
//!   another slot, or the same version is durable in the data file. So a torn slot loses nothing.
//! - A version that is found and is not the newest one cannot be the only one that is found: the
//!   newest version is in the tier until, by step 2, no older one is there. Without step 2 an old
//!   version could be found after the newest had gone to the data file, and would count again.
//! - A page that is in the data file already and is found in its free slot is the same version.
//!   It counts as in the tier again, which does no harm.
//!
//! One thing breaks the second point: after a failed sync a slot may hold its earlier contents on
//! the medium, though a process that starts then reads the later ones. So after a power cut a
//! version may be found that left the tier long before. The recorded versions (`versions.rs`) tell:
//! what is older than they say does not count, and recovery repeats whatever they do not cover.
//! Recovery may write the very version that the failed sync lost, into another slot. The next
//! opening finds it in two slots, and only one of them has it on the medium. So opening writes
//! again what it finds in more than one slot (`Slots::write_again`).
//!
//! A damaged slot is no page. Its page is then found in an older version, or not in the tier; the
//! recorded versions tell that, too, and a reader gets an error. The same holds for a slot that
//! cannot be read when the tier is opened, which is then left alone. If a slot decays while the
//! tier is in use, the page stays where it is, for readers to get the error.
//!
//! # Reads
//! A reader looks up the slot, reads it without a lock, and looks again: if the page has left the
//! slot meanwhile, the read is repeated. A page that is read cannot be written meanwhile
//! ([`PageStore`]), so a slot that is still the page's own had its contents all the time.

mod map;
mod medium;
mod run;
mod slots;
#[cfg(all(test, not(duramen_loom)))]
mod tests;

use std::fmt;

use duramen_io::AlignedBuf;
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::{Mutex, MutexGuard};
use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::batch::{BATCH_PAGES, Batch};
use super::error::Damage;
use super::file_pages::FilePages;
use super::page_store::{PageStore, PageTier, PageWriter, WalRule};
use super::{PoolError, Stamp};
use crate::metrics::TierMetrics;
use crate::page;
use map::Map;
use slots::{Found, Slot};

pub(crate) use medium::Medium;
pub(crate) use slots::{FoundTier, Slots};

/// The pages of a data file with a tier above them.
pub(crate) struct TieredPages {
    file: FilePages,
    slots: Slots,
    map: Mutex<Map>,
    /// Pages of a run: a power of two.
    run: u64,
    /// The pages that leave the tier. Locked while pages are written to the tier or leave it.
    leaving: Mutex<Batch>,
    /// Whether the tier takes no more pages. Set under the mutex.
    is_drained: AtomicBool,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    written_back: AtomicU64,
}

impl TieredPages {
    /// Puts a tier above `file`, which has space for the pages in it. The tier writes back runs of
    /// `run` pages.
    ///
    /// # Errors
    /// Those of writing again what several slots hold.
    pub(crate) fn new(file: FilePages, tier: FoundTier, run: u32) -> Result<Self, PoolError> {
        let FoundTier { slots, contents } = tier;
        slots.write_again(&contents.repeated())?;
        let is_old = |found: &Found| !planted!(OlderVersionWins) && found.gsn < file.least(found.page, false);
        let is_newer = |a: &Found, b: &Found| if planted!(OlderVersionWins) { a.gsn < b.gsn } else { a.gsn > b.gsn };
        Ok(Self {
            map: Mutex::new(Map::new(slots.count(), &contents, is_old, is_newer)),
            file,
            slots,
            run: run.into(),
            leaving: Mutex::new(Batch::new()),
            is_drained: AtomicBool::new(false),
            counters: Counters::default(),
        })
    }

    /// Writes the coldest pages to the data file, and frees their slots. A page that is damaged or
    /// unreadable stays: the database works without it.
    ///
    /// # Errors
    /// Those of writing; that of a page that stays if there are only such pages.
    fn write_back(&self, batch: &mut Batch) -> Result<(), PoolError> {
        let mut leaving = {
            let mut map = self.map.lock();
            if map.coldest(1).is_empty() {
                map.keep_none_back();
            }
            if self.run > 1 {
                map.coldest_runs(BATCH_PAGES, self.run)
            } else {
                // A small tier keeps most of its pages.
                map.coldest(BATCH_PAGES.min(self.slots.count() as usize / 4))
            }
        };
        let mut bytes = AlignedBuf::zeroed(leaving.len() * PAGE_SIZE);
        let damaged = self.read_leaving(&mut leaving, &mut bytes);
        if let Some(error) = damaged.filter(|_| leaving.is_empty() && self.map.lock().coldest(1).is_empty()) {
            return Err(error);
        }
        let old = self.map.lock().old_slots(&leaving);
        self.fill_runs(&leaving, &bytes, batch);
        self.file.write(batch)?;
        if !old.is_empty() && !planted!(NewestFreedFirst) {
            self.slots.erase(&old)?;
            self.slots.sync()?;
        }
        let mut map = self.map.lock();
        map.erased(&old);
        leaving.iter().for_each(|(page, _)| map.release(*page));
        self.counters.written_back.fetch_add(leaving.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads pages that are to leave the tier into `bytes`, one after another. Pages that are
    /// damaged or unreadable are removed from `leaving`; returns the error of one of them.
    fn read_leaving(&self, leaving: &mut Vec<(PageId, Slot)>, bytes: &mut [u8]) -> Option<PoolError> {
        let mut reads: Vec<(Slot, &mut [u8])> =
            leaving.iter().map(|(_, slot)| *slot).zip(bytes.chunks_exact_mut(PAGE_SIZE)).collect();
        let are_read = self.slots.read(&mut reads).is_ok();
        let (mut damaged, mut at, mut kept) = (None, 0, 0);
        leaving.retain(|(page, slot)| {
            let place = at * PAGE_SIZE;
            at += 1;
            let read = &mut bytes[place..][..PAGE_SIZE];
            // If one of them is unreadable, each is read by itself.
            let result = if are_read { Ok(()) } else { self.slots.read(&mut [(*slot, &mut *read)]) };
            if let Err(error) = result.and_then(|()| self.verify_own(*page, read)) {
                self.map.lock().keep_back(*page);
                damaged.get_or_insert(self.in_slot(error, *slot));
                return false;
            }
            bytes.copy_within(place..place + PAGE_SIZE, kept * PAGE_SIZE);
            kept += 1;
            true
        });
        damaged
    }

    /// Checks a page that this process may have written.
    fn verify_own(&self, page: PageId, bytes: &[u8]) -> Result<(), PoolError> {
        self.file.verify(page, page::gsn(bytes) >= self.file.log_end(), bytes)
    }

    /// Takes `count` free slots.
    fn take(&self, count: usize, leaving: &mut Batch) -> Result<Vec<Slot>, PoolError> {
        loop {
            {
                let mut map = self.map.lock();
                if map.free() >= count {
                    return Ok(std::iter::from_fn(|| map.take()).take(count).collect());
                }
            }
            self.write_back(leaving)?;
        }
    }

    /// Returns the slot of a page, if it is in the tier.
    fn slot(&self, page: PageId) -> Option<Slot> {
        self.map.lock().slot(page)
    }

    /// Reads pages without checking them.
    fn read_raw(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        let places: Vec<Option<Slot>> = {
            let mut map = self.map.lock();
            pages.iter().map(|(page, _)| map.slot(*page).inspect(|_| map.touch(*page))).collect()
        };
        let (mut here, mut below) = (Vec::new(), Vec::new());
        for ((page, bytes), place) in pages.iter_mut().zip(&places) {
            match place {
                Some(slot) => here.push((*slot, &mut **bytes)),
                None => below.push((*page, &mut **bytes)),
            }
        }
        self.counters.hits.fetch_add(here.len() as u64, Ordering::Relaxed);
        self.counters.misses.fetch_add(below.len() as u64, Ordering::Relaxed);
        if !here.is_empty() {
            self.slots.read(&mut here)?;
        }
        if !below.is_empty() {
            self.file.read_batch(&mut below)?;
        }
        for ((page, bytes), place) in pages.iter_mut().zip(places) {
            if place.is_some() && self.slot(*page) != place {
                self.read_raw(&mut [(*page, &mut **bytes)])?;
            }
        }
        Ok(())
    }

    /// Returns the error of a damaged page with the place where it was read.
    fn in_slot(&self, error: PoolError, slot: Slot) -> PoolError {
        match error {
            PoolError::Corrupt { page, defect, damage, .. } => {
                PoolError::Corrupt { page, defect, damage, file: self.slots.path(), offset: self.slots.offset(slot) }
            }
            other => other,
        }
    }
}

impl PageStore for TieredPages {
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.read_raw(&mut [(id, &mut *bytes)])?;
        self.verify(id, was_written, bytes)
    }

    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        self.read_raw(pages)
    }

    fn verify(&self, id: PageId, was_written: bool, bytes: &[u8]) -> Result<(), PoolError> {
        self.file.verify(id, was_written, bytes).map_err(|error| match self.slot(id) {
            Some(slot) => self.in_slot(error, slot),
            None => error,
        })
    }

    fn last_gsn(&self, id: PageId) -> Result<Gsn, PoolError> {
        self.file.last_gsn(id)
    }

    fn reserve(&self, id: PageId) -> Result<(), PoolError> {
        self.file.reserve(id)
    }

    fn pages(&self) -> u64 {
        self.file.pages()
    }

    fn location(&self) -> String {
        self.file.location()
    }

    fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        let _leaving = self.leaving.lock();
        if !self.is_drained() {
            self.slots.stamp(stamp)?;
        }
        self.file.stamp(stamp)
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        let leaving = self.leaving.lock();
        if !self.is_drained() {
            self.slots.verify_name()?;
        }
        drop(leaving);
        self.file.verify_name()
    }

    fn writer(&self) -> Option<&dyn PageWriter> {
        Some(self)
    }

    fn tier(&self) -> Option<&dyn PageTier> {
        Some(self)
    }
}

impl PageWriter for TieredPages {
    fn wal_rule(&self) -> &dyn WalRule {
        self.file.wal_rule()
    }

    fn write(&self, batch: &mut Batch) -> Result<(), PoolError> {
        let mut leaving: MutexGuard<'_, Batch> = self.leaving.lock();
        if self.is_drained() {
            // The frames know what has changed since the tier had their pages.
            batch.forget_lines();
            return self.file.write(batch);
        }
        batch.seal(self.file.database());
        // A small tier takes a batch in parts.
        let usable = self.map.lock().usable();
        let at_once = BATCH_PAGES.min(usable.div_ceil(2));
        if at_once == 0 {
            let (file, defect) = (self.slots.path(), "no slot of the page tier could be read".to_owned());
            let page = batch.pages().next().map_or(PageId::ZERO, |(page, _)| page);
            return Err(PoolError::Corrupt { page, defect, damage: Damage::Other, file, offset: 0 });
        }
        let pages: Vec<(PageId, &[u8])> = batch.sealed().collect();
        for part in pages.chunks(at_once) {
            {
                // Their present versions are about to be replaced: they had better not leave now.
                let mut map = self.map.lock();
                part.iter().for_each(|(page, _)| map.touch(*page));
            }
            let slots = self.take(part.len(), &mut leaving)?;
            self.slots.write(slots.iter().copied().zip(part.iter().map(|(_, bytes)| *bytes)))?;
            if !planted!(TierUnsynced) {
                self.slots.sync()?;
            }
            let mut map = self.map.lock();
            part.iter().zip(slots).for_each(|((page, _), slot)| map.install(*page, slot));
        }
        self.counters.written.fetch_add(pages.len() as u64, Ordering::Relaxed);
        self.file.note_versions(batch.pages());
        Ok(())
    }

    fn is_durable_as_read(&self, id: PageId, gsn: Gsn) -> bool {
        let is_durable = self.slots.are_durable_as_found() && self.slot(id).is_some();
        if is_durable {
            self.file.note_versions(std::iter::once((id, gsn)));
        }
        is_durable
    }

    fn write_versions(&self) -> Result<(), PoolError> {
        self.file.write_versions()
    }

    fn read_whole(&self, first: PageId, bytes: &mut [u8]) -> Result<u64, PoolError> {
        // No page changes its place meanwhile.
        let _nobody_writes = self.leaving.lock();
        let mut pages: Vec<(PageId, Option<Slot>, &mut [u8])> = {
            let map = self.map.lock();
            let pages = (first.get()..).map(PageId::new).zip(bytes.chunks_exact_mut(PAGE_SIZE));
            pages.map(|(page, bytes)| (page, map.slot(page), bytes)).collect()
        };
        let mut here: Vec<(Slot, &mut [u8])> =
            pages.iter_mut().filter_map(|(_, slot, bytes)| Some(((*slot)?, &mut **bytes))).collect();
        self.slots.read(&mut here)?;
        for (page, slot, bytes) in &pages {
            if let Some(slot) = slot {
                self.file.verify(*page, true, bytes).map_err(|error| self.in_slot(error, *slot))?;
            }
        }
        let places: Vec<bool> = pages.iter().map(|(_, slot, _)| slot.is_some()).collect();
        let (mut again, mut at) = (0, 0);
        for run in places.chunk_by(|a, b| a == b) {
            if !run[0] {
                let bytes = &mut bytes[at * PAGE_SIZE..][..run.len() * PAGE_SIZE];
                again += self.file.read_whole(PageId::new(first.get() + at as u64), bytes)?;
            }
            at += run.len();
        }
        Ok(again)
    }
}

impl PageTier for TieredPages {
    fn drain(&self, remove: &mut dyn FnMut() -> crate::Result<()>) -> crate::Result<()> {
        let mut leaving = self.leaving.lock();
        while self.map.lock().pages() > 0 {
            self.write_back(&mut leaving)?;
        }
        if let Some(slot) = self.map.lock().unreadable() {
            let defect = "the slot could not be read when the database was opened, and may hold the only newest \
                          version of a page; open the database again, and remove the tier when all of it can be read";
            return Err(PoolError::Corrupt {
                page: PageId::ZERO,
                damage: Damage::Other,
                defect: defect.to_owned(),
                file: self.slots.path(),
                offset: self.slots.offset(slot),
            }
            .into());
        }
        self.slots.mark_drained()?;
        // No page is written to the data file before the tier is gone: the versions that are still
        // in its slots would count after a crash.
        remove()?;
        self.is_drained.store(true, Ordering::Release);
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    fn metrics(&self) -> TierMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let pages = self.map.lock().pages() as u64;
        TierMetrics {
            slots: self.slots.count().into(),
            pages,
            hits: get(&self.counters.hits),
            misses: get(&self.counters.misses),
            written: get(&self.counters.written),
            written_back: get(&self.counters.written_back),
            bytes_written: self.slots.written(),
        }
    }
}

impl fmt::Debug for TieredPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TieredPages")
            .field("file", &self.file)
            .field("tier", &self.slots.path())
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}
