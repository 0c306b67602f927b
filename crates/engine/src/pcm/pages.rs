//! The pages of a database with a PCM region: in the region, or else in the data file.
//!
//! # Writing
//! Changed pages are dirty in their frames, and the pool writes them here when it needs frames, and
//! when a transaction ends. A page goes to free slots, with the covers that it had when it was
//! copied ([`Covers`]); its slots until then are *replaced*. One thread at a time stores to the
//! region, and each makes durable what it has stored, so no thread relies on a barrier of another.
//!
//! | step | stores | barrier |
//! |---|---|---|
//! | list, if a transaction of the covers, or the structure change, is not listed yet (with [`Barriers::Paper`]) | entries of the list | 1 |
//! | write | the pages; zeros in the headers of replaced slots | 1 |
//!
//! The pages of one structure change are stored under the number of the list's entry 0. It is
//! replaced, with a barrier, when all of them are durable: until then none of them counts.
//!
//! # Replacement
//! When slots are needed, the coldest pages go to the data file, except for pages with a cover of
//! a transaction that has not ended:
//!
//! 1. The replaced slots are freed durably. Else an older version of a page could count again when
//!    the newest one is gone.
//! 2. The pages are written in place, and the data file is synced. A page that is torn then is
//!    still in the region: there is no double-write area.
//! 3. Their slots are freed durably.
//!
//! [`Barriers::Paper`]: crate::options::Barriers::Paper

use std::fmt;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Backoff, Mutex};
use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::active::{Active, Xid};
use super::covers::{Covers, CoversOfPage};
use super::image::Image;
use super::layout::{COVERS_APART, HEADER, Slot, SlotHeader, SlotKind, Word};
use super::map::{Held, Map};
use super::tuples::Base;
use super::{Found, Pcm};
use crate::metrics::PcmMetrics;
use crate::options::Granularity;
use crate::page::{self, PageType};
use crate::pool::{
    BATCH_PAGES, Batch, Damage, FilePages, PageStore, PageWriter, PoolError, Stamp, TupleStore, WalRule,
};

/// Slots that are kept for what must go on when all others are in use: recovery.
const KEPT: usize = 2;

/// Slots that any region can give to pages that are written at once.
const AT_ONCE: usize = 8;

/// The pages.
pub(crate) struct PcmPages {
    pub(super) pcm: Arc<Pcm>,
    pub(crate) active: Active,
    pub(crate) covers: Covers,
    granularity: Granularity,
    /// Slots that stay free: those for recovery, and those for leaves that leave as pages where
    /// they have been tuples.
    kept: usize,
    pub(super) file: FilePages,
    pub(super) map: Mutex<Map>,
    /// Locked while something is stored to the region or leaves it.
    pub(super) storing: Mutex<Storing>,
    pub(super) counters: Counters,
}

pub(super) struct Storing {
    /// The pages that go to the data file.
    leaving: Batch,
    /// Pages could not leave. What was made of their tuples may be here, without the changes of
    /// transactions under way, so nothing else may be stored.
    pub(super) has_failed: bool,
}

#[derive(Default)]
pub(super) struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    written: AtomicU64,
    written_back: AtomicU64,
    groups: AtomicU64,
    pub(super) tuples_written: AtomicU64,
    /// Leaves whose tuples were put into them before they left.
    pub(super) tuple_pages: AtomicU64,
    pub(super) tuple_hits: AtomicU64,
    /// Dirty leaves that were not written, because their tuples tell it all.
    left_to_tuples: AtomicU64,
}

/// A page that is being read.
#[derive(Clone, Copy)]
struct Reading {
    /// It was read from its slot; else it is to be read from the data file.
    is_here: bool,
    has_tuples: bool,
}

/// The clock as the pool needs it: there is no log to harden.
#[derive(Debug)]
pub(crate) struct Clock(pub(crate) Arc<Pcm>);

impl WalRule for Clock {
    fn harden(&self, _gsn: Gsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn end(&self) -> Gsn {
        Gsn::new(self.0.now() + 1)
    }
}

impl PcmPages {
    /// The pages that recovery has found in the region, above the data file.
    pub(crate) fn new(pcm: Arc<Pcm>, file: FilePages, found: Found, granularity: Granularity) -> Self {
        let Found { map, active, .. } = found;
        let may_have_tuples = granularity == Granularity::Tuple || map.tuples.slots() > 0;
        let for_tuples = if may_have_tuples { (pcm.slots() as usize / 64).clamp(1, BATCH_PAGES / 4) } else { 0 };
        Self {
            kept: KEPT + for_tuples,
            pcm,
            active,
            covers: Covers::default(),
            granularity,
            file,
            map: Mutex::new(map),
            storing: Mutex::new(Storing { leaving: Batch::new(), has_failed: false }),
            counters: Counters::default(),
        }
    }

    /// Stores a structure change: the pages count together or not at all. They are durable when
    /// this returns.
    ///
    /// # Errors
    /// Those of the data file when pages have to leave for these; [`PoolError::PcmFull`].
    pub(crate) fn write_together(&self, images: &[Image<'_>]) -> Result<(), PoolError> {
        let mut storing = self.storing.lock();
        if let [_] = images {
            return self.put(&mut storing, images, Xid::default());
        }
        self.make_room(&mut storing, images.iter().map(|image| 1 + image.more()).sum())?;
        self.put(&mut storing, images, self.active.current(0))?;
        let next = self.active.unlist(&self.pcm, 0);
        self.pcm.barrier();
        self.active.begin_next(next);
        self.counters.groups.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Ends the transaction of an entry: what it has changed counts from now on. The pages that it
    /// has changed are durable here as they are now.
    pub(crate) fn end(&self, entry: u32) {
        let mut storing = self.storing.lock();
        self.replace_number(&mut storing, entry);
    }

    /// Replaces the number of an entry, durably.
    pub(super) fn replace_number(&self, _storing: &mut Storing, entry: u32) {
        let next = self.active.unlist(&self.pcm, entry);
        self.pcm.barrier();
        self.active.begin_next(next);
    }

    pub(crate) fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Stores the deferred frees of a transaction that is about to commit; returns their slots.
    ///
    /// # Errors
    /// As [`PcmPages::write_together`].
    pub(crate) fn put_garbage(&self, xid: Xid, frees: &[Vec<u8>]) -> Result<Vec<Slot>, PoolError> {
        let mut bodies: Vec<Vec<u8>> = vec![Vec::new()];
        for free in frees {
            if bodies.last().expect("there is one").len() + free.len() + 1 > COVERS_APART {
                bodies.push(Vec::new());
            }
            let body = bodies.last_mut().expect("there is one");
            body.push(u8::try_from(free.len()).expect("a deferred free is short"));
            body.extend_from_slice(free);
        }
        let mut storing = self.storing.lock();
        self.make_room(&mut storing, bodies.len())?;
        if self.active.list(&self.pcm, [xid]) {
            self.pcm.barrier();
        }
        let slots: Vec<Slot> = self.take(bodies.len());
        for (slot, body) in slots.iter().zip(&bodies) {
            let kind = SlotKind::Garbage;
            let header =
                SlotHeader { kind, len: body.len() as u32, owner: xid.0, gsn: Gsn::ZERO, page: PageId::ZERO, part: 0 };
            self.pcm.store_slot(*slot, header, &[body]);
        }
        self.pcm.barrier();
        Ok(slots)
    }

    /// Frees the slots of deferred frees that are done.
    pub(crate) fn erase(&self, slots: &[Slot]) {
        let _storing = self.storing.lock();
        self.erase_durably(slots);
        self.map.lock().give(slots.iter().copied());
    }

    /// Returns the number of slots.
    pub(crate) fn slots(&self) -> u32 {
        self.pcm.slots()
    }

    /// Returns how many new slots a write needs at most before it frees the old ones, but for a
    /// page with covers that take more by themselves.
    pub(crate) fn at_once(&self) -> usize {
        (self.pcm.slots() as usize / 16).clamp(AT_ONCE, BATCH_PAGES)
    }

    /// Returns the counters.
    pub(crate) fn metrics(&self) -> PcmMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (pages, free, tuples, tuple_slots) = {
            let map = self.map.lock();
            (map.pages() as u64, map.free() as u64, map.tuples.count() as u64, map.tuples.slots() as u64)
        };
        PcmMetrics {
            slots: self.pcm.slots().into(),
            slots_free: free,
            pages,
            hits: get(&self.counters.hits),
            misses: get(&self.counters.misses),
            written: get(&self.counters.written) + get(&self.counters.tuple_pages),
            written_back: get(&self.counters.written_back),
            structure_changes: get(&self.counters.groups),
            tuples,
            tuple_slots,
            tuples_written: get(&self.counters.tuples_written),
            tuple_hits: get(&self.counters.tuple_hits),
            left_to_tuples: get(&self.counters.left_to_tuples),
            bytes_stored: self.pcm.bytes_stored(),
            barriers: self.pcm.barriers(),
        }
    }

    // ----- storing -----

    /// Writes pages for which there are enough free slots. They are durable when this returns.
    pub(super) fn put(&self, storing: &mut Storing, images: &[Image<'_>], group: Xid) -> Result<(), PoolError> {
        self.check_not_failed(storing)?;
        self.make_room(storing, images.iter().map(|image| 1 + image.more()).sum())?;
        let images: Vec<&Image<'_>> = {
            let map = self.map.lock();
            // A page may have been written with a structure change since it was copied.
            images.iter().filter(|image| map.is_new(image.page, image.gsn())).collect()
        };
        if images.is_empty() {
            return Ok(());
        }
        let is_group = group != Xid::default();
        let covered = || images.iter().flat_map(|image| image.covers.xids.iter().copied());
        let xids = || covered().chain(is_group.then_some(group));
        if !planted!(XidListedLate) && self.active.list(&self.pcm, xids()) {
            self.pcm.barrier();
        }
        let replaced = self.map.lock().take_replaced();
        replaced.iter().for_each(|slot| self.pcm.free_slot(*slot));
        let mut places = Vec::with_capacity(images.len());
        for image in &images {
            let mut slots = self.take(1 + image.more());
            let (slot, more) = (slots.remove(0), slots);
            self.pcm.store_image(image, slot, &more, group);
            places.push((slot, more));
        }
        if !planted!(StolenUnfenced) {
            self.pcm.barrier();
        }
        if planted!(XidListedLate) && self.active.list(&self.pcm, xids()) {
            self.pcm.barrier();
        }
        let mut map = self.map.lock();
        map.give(replaced);
        for (image, slots) in images.iter().zip(places) {
            map.install(image.page, slots, image.gsn(), image.covers.xids.clone(), Base::of(image.bytes));
            map.tuples.stored_whole(image.page, image.gsn());
        }
        self.counters.written.fetch_add(images.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns how many of the images are written at once: a small region takes them in parts.
    fn part_of(&self, images: &[Image<'_>]) -> usize {
        let (most, mut slots) = (self.at_once(), 0);
        let fitting = images.iter().take_while(|image| {
            slots += 1 + image.more();
            slots <= most
        });
        fitting.count().max(1)
    }

    pub(super) fn take(&self, count: usize) -> Vec<Slot> {
        let mut map = self.map.lock();
        (0..count).map(|_| map.take().expect("the caller has made room")).collect()
    }

    fn erase_durably(&self, slots: &[Slot]) {
        slots.iter().for_each(|slot| self.pcm.free_slot(*slot));
        if !slots.is_empty() {
            self.pcm.barrier();
        }
    }

    /// Returns the number of slots that stay free.
    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Makes sure that `count` slots are free.
    pub(super) fn make_room(&self, storing: &mut Storing, count: usize) -> Result<(), PoolError> {
        // Slots that were replaced may have the only whole version of a page that failed to leave.
        self.check_not_failed(storing)?;
        loop {
            if self.map.lock().free() >= count + self.kept() {
                return Ok(());
            }
            let replaced = self.map.lock().take_replaced();
            if !replaced.is_empty() {
                self.erase_durably(&replaced);
                self.map.lock().give(replaced);
            } else if !self.empty_a_slot(storing) {
                self.write_back(storing)?;
            }
        }
    }

    /// Writes the coldest pages to the data file, and frees their slots.
    fn write_back(&self, storing: &mut Storing) -> Result<(), PoolError> {
        let count = (self.pcm.slots() as usize / 8).clamp(1, BATCH_PAGES);
        let replaced = self.map.lock().take_replaced();
        if !planted!(NewestFreedFirst) {
            self.erase_durably(&replaced);
            self.map.lock().give(replaced);
        }
        let coldest = {
            let mut map = self.map.lock();
            let mut coldest = self.coldest(&map, count);
            if coldest.is_empty() {
                map.keep_none_back();
                coldest = self.coldest(&map, count);
            }
            map.tuples.set_leaving(coldest.iter().map(|(page, _)| *page));
            coldest
        };
        if coldest.is_empty() {
            if self.map.lock().is_read() {
                // Their readers do not wait for this thread.
                duramen_sync::thread::yield_now();
                return Ok(());
            }
            return Err(PoolError::PcmFull { location: self.pcm.location().to_owned(), slots: self.pcm.slots() });
        }
        let mut unreadable = Vec::new();
        let left = self.write_back_these(storing, coldest, &mut unreadable);
        let mut map = self.map.lock();
        map.tuples.set_leaving([]);
        storing.has_failed |= left.is_err();
        if left? || map.has_replaced() || map.is_read() || !self.coldest(&map, 1).is_empty() {
            return Ok(());
        }
        unreadable.pop().map_or(Ok(()), Err)
    }

    /// Returns the coldest pages that may leave.
    fn coldest(&self, map: &Map, count: usize) -> Vec<(PageId, Option<Held>)> {
        let overlays = map.free().saturating_sub(KEPT);
        map.coldest(count, overlays, |xid| self.active.is_active(xid))
    }

    /// Returns an error if pages could not leave.
    pub(super) fn check_not_failed(&self, storing: &Storing) -> Result<(), PoolError> {
        if !storing.has_failed {
            return Ok(());
        }
        let reason = format!("pages could not leave the PCM `{}`", self.pcm.location());
        Err(PoolError::Poisoned { reason })
    }

    /// Writes pages to the data file; returns whether any has left. A page that cannot be read
    /// stays: transactions that need it get the error. The others leave.
    fn write_back_these(
        &self,
        storing: &mut Storing,
        coldest: Vec<(PageId, Option<Held>)>,
        unreadable: &mut Vec<PoolError>,
    ) -> Result<bool, PoolError> {
        let mut leaving = Vec::with_capacity(coldest.len());
        let mut alone = Vec::new();
        for (page, held) in coldest {
            match held {
                Some(held) => leaving.push((page, held)),
                None => alone.push(page),
            }
        }
        let made = self.make_pages_of_tuples(&alone, unreadable);
        // Of the others, the data file has all that their tuples say.
        let has_emptied = alone.len() > made.len() + unreadable.len();
        leaving.extend(made);
        leaving.sort_unstable_by_key(|(page, _)| *page);
        storing.leaving.clear();
        let mut bytes = vec![0; PAGE_SIZE];
        let mut known = Vec::with_capacity(leaving.len());
        let mut lost = None;
        leaving.retain(|(page, held)| {
            let read = self.read_slot(*page, held, &mut bytes);
            match read.and_then(|()| self.put_tuples_into(&mut self.map.lock(), *page, &mut bytes)) {
                Ok(()) => {
                    known.push((page::gsn(&bytes), Base::of(&bytes)));
                    storing.leaving.push_whole(*page, &bytes);
                }
                // The page that was just made of tuples lacks the changes of transactions under
                // way, and as long as it is here it would be taken for one that has them.
                Err(error) if alone.contains(page) => drop(lost.get_or_insert(error)),
                Err(error) => {
                    self.stays(*page, error, unreadable);
                    return false;
                }
            }
            true
        });
        if let Some(error) = lost {
            return Err(error);
        }
        if leaving.is_empty() {
            return Ok(has_emptied);
        }
        let slots: Vec<Slot> =
            leaving.iter().flat_map(|(_, held)| std::iter::once(held.slot).chain(held.more.iter().copied())).collect();
        if planted!(SlotFreedUnsynced) {
            self.erase_durably(&slots);
        }
        self.file.write(&mut storing.leaving)?;
        // Readers find the pages in the data file from now on.
        let left: Vec<Slot> = {
            let mut map = self.map.lock();
            let removed = leaving.iter().zip(known);
            removed.flat_map(|((page, held), (gsn, base))| map.remove(*page, held.slot, gsn, base)).collect()
        };
        self.erase_durably(&left);
        self.map.lock().give(left);
        self.counters.written_back.fetch_add(leaving.len() as u64, Ordering::Relaxed);
        Ok(true)
    }

    /// Notes that a page cannot leave because reading it failed. It is tried again when no other
    /// page may leave.
    pub(super) fn stays(&self, page: PageId, error: PoolError, unreadable: &mut Vec<PoolError>) {
        self.map.lock().keep_back(page);
        unreadable.push(error);
    }

    /// Writes all pages to the data file.
    #[cfg(test)]
    pub(super) fn drain(&self) -> Result<(), PoolError> {
        let mut storing = self.storing.lock();
        let is_empty = |map: &Map| map.pages() == 0 && map.tuples.count() == 0;
        while !is_empty(&self.map.lock()) {
            self.write_back(&mut storing)?;
        }
        Ok(())
    }

    // ----- reading -----

    /// Reads the page in a slot, which cannot be reused meanwhile.
    fn read_slot(&self, page: PageId, held: &Held, bytes: &mut [u8]) -> Result<(), PoolError> {
        let at = held.slot.at() + HEADER as u64;
        self.pcm.region.read(at, bytes);
        if page::page_id(bytes) == page && page::gsn(bytes) == held.gsn {
            return Ok(());
        }
        let (defect, file) = ("its slot holds something else".to_owned(), self.pcm.location().to_owned());
        Err(PoolError::Corrupt { page, defect, damage: Damage::Other, file, offset: at })
    }

    /// Reads a page if it is in a slot. The caller then puts its tuples into it
    /// ([`PcmPages::end_reading`]).
    fn begin_reading(&self, page: PageId, bytes: &mut [u8]) -> Result<Reading, PoolError> {
        let mut backoff = Backoff::new();
        loop {
            let mut map = self.map.lock();
            if !map.tuples.is_leaving(page) {
                // A slot is freed only after its page has left the map.
                map.touch(page);
                let is_here = map.get(page).is_some();
                let counter = if is_here { &self.counters.hits } else { &self.counters.misses };
                counter.fetch_add(1, Ordering::Relaxed);
                if let Some(held) = map.get(page) {
                    self.read_slot(page, held, bytes)?;
                }
                return Ok(Reading { is_here, has_tuples: map.tuples.begin_reading(page) });
            }
            drop(map);
            // The thread that writes it to the data file must not wait for readers of other pages.
            backoff.snooze();
        }
    }

    /// Puts the tuples of a page into its base, if that was read without an error.
    fn end_reading(&self, page: PageId, reading: Reading, bytes: &mut [u8], is_read: bool) -> Result<(), PoolError> {
        if !reading.has_tuples && self.granularity == Granularity::Page {
            return Ok(());
        }
        let mut map = self.map.lock();
        let put = if is_read { self.put_tuples_into(&mut map, page, bytes) } else { Ok(()) };
        if reading.has_tuples {
            map.tuples.end_reading(page);
        }
        if is_read && put.is_ok() {
            map.keep_back_no_longer(page);
        }
        put
    }

    /// Returns whether a leaf must be written although its latest changes are tuples.
    fn must_be_written(&self, map: &Map, page: PageId, bytes: &[u8], covers: &CoversOfPage) -> bool {
        self.granularity == Granularity::Page
            || page::page_type(bytes) != Some(PageType::Leaf)
            || !covers.xids.is_empty()
            || map.tuples.is_altered(page)
    }
}

impl PageStore for PcmPages {
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError> {
        let reading = self.begin_reading(id, bytes)?;
        let read = match reading.is_here {
            true => self.verify(id, was_written, bytes),
            false => self.file.read(id, was_written, bytes),
        };
        self.end_reading(id, reading, bytes, read.is_ok()).and(read)
    }

    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        let mut readings = Vec::with_capacity(pages.len());
        let mut read = Ok(());
        for (id, bytes) in pages.iter_mut() {
            match self.begin_reading(*id, bytes) {
                Ok(reading) => readings.push(reading),
                Err(error) => {
                    read = Err(error);
                    break;
                }
            }
        }
        if read.is_ok() {
            let below = pages.iter_mut().zip(&readings).filter(|(_, reading)| !reading.is_here);
            let mut below: Vec<(PageId, &mut [u8])> = below.map(|((id, bytes), _)| (*id, &mut **bytes)).collect();
            read = if below.is_empty() { Ok(()) } else { self.file.read_batch(&mut below) };
        }
        // The caller verifies the pages as they are when this returns.
        for ((id, bytes), reading) in pages.iter_mut().zip(readings) {
            let is_sound = read.is_ok() && (!reading.has_tuples || self.verify(*id, true, bytes).is_ok());
            let put = self.end_reading(*id, reading, bytes, is_sound);
            read = read.and(put);
        }
        read
    }

    /// Pages in the region are sealed as those of the data file are.
    fn verify(&self, id: PageId, was_written: bool, bytes: &[u8]) -> Result<(), PoolError> {
        self.file.verify(id, was_written, bytes)
    }

    /// Returns zero: the clock is ahead of every page.
    fn last_gsn(&self, _id: PageId) -> Result<Gsn, PoolError> {
        Ok(Gsn::ZERO)
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
        let _storing = self.storing.lock();
        self.pcm.set(Word::Generation, stamp.generation);
        self.file.stamp(stamp)
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        self.file.verify_name()
    }

    fn writer(&self) -> Option<&dyn PageWriter> {
        Some(self)
    }

    fn tuples(&self) -> Option<&dyn TupleStore> {
        (self.granularity == Granularity::Tuple).then_some(self)
    }
}

impl PageWriter for PcmPages {
    fn wal_rule(&self) -> &dyn WalRule {
        self.file.wal_rule()
    }

    fn copied(&self, id: PageId, bytes: &[u8]) {
        let covers = self.covers.of_page(bytes);
        self.map.lock().announce(id, page::gsn(bytes), covers);
    }

    fn write(&self, batch: &mut Batch) -> Result<(), PoolError> {
        batch.seal(self.file.database());
        let mut storing = self.storing.lock();
        let covers: Vec<CoversOfPage> = {
            let map = self.map.lock();
            batch.sealed().map(|(page, _)| map.announced(page)).collect()
        };
        let mut images: Vec<Image<'_>> =
            batch.sealed().zip(&covers).map(|((page, bytes), covers)| Image { page, bytes, covers }).collect();
        {
            let (map, all) = (self.map.lock(), images.len());
            images.retain(|image| self.must_be_written(&map, image.page, image.bytes, image.covers));
            self.counters.left_to_tuples.fetch_add((all - images.len()) as u64, Ordering::Relaxed);
        }
        let mut rest = &images[..];
        let mut written = Ok(());
        while !rest.is_empty() && written.is_ok() {
            let (part, others) = rest.split_at(self.part_of(rest));
            written = self.put(&mut storing, part, Xid::default());
            rest = others;
        }
        self.map.lock().end_announcements();
        written
    }

    fn write_versions(&self) -> Result<(), PoolError> {
        Ok(())
    }

    fn read_whole(&self, _first: PageId, _bytes: &mut [u8]) -> Result<u64, PoolError> {
        unreachable!("only a database with a log is copied while it is open")
    }
}

impl fmt::Debug for PcmPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PcmPages")
            .field("pcm", &self.pcm.location())
            .field("file", &self.file)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}
