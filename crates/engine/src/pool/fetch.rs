//! Finds pages, reads them in, and frees frames for them.
//!
//! # Readers, loaders and evictors race for a frame
//! - *Loading*: a thread that misses a page takes an empty frame, exclusively latched, writes the
//!   page's id into the frame's header, and tries to enter the frame into the page table. If
//!   another thread entered the page first, the thread gives the frame back and looks the page up
//!   again. Otherwise it reads the page and only then releases the latch. A thread that finds the
//!   frame meanwhile waits for the latch.
//! - *Eviction*: a thread takes a frame's exclusive latch (without waiting), checks that the page
//!   is clean, removes the page from the page table and from the header, and keeps the latch until
//!   the next page is in the frame.
//! - *Reading*: a thread reads the page table, then takes a version (or a latch) of the frame, then
//!   checks that the header names the page. If the header names another page, the thread looks the
//!   page up again.
//!
//! Why these rules are enough: the page id in the header changes only under the exclusive latch, in
//! sections that increment the version. Suppose that the header names the page at some moment after
//! the version was taken, and that the version is unchanged at the end. Then no such section lies
//! in between, so the frame held the page all the time. If the look-up was stale and the frame was
//! reused, there are two cases. Either the header names another page, or the same page was loaded
//! into the same frame again before the version was taken, which is just as good. A failed load
//! leaves the header without a page. The threads that waited for it look the page up again, and get
//! the error themselves.
//!
//! A thread stops waiting for a latch when the frame gets another page. Otherwise a thread could
//! wait for a page that it never requested, and deadlock. For example, a thread holds page 1,
//! requests page 2, and finds the frame of page 2 latched by an evictor. The evictor puts page 3
//! into the frame, and the next holder of page 3 waits for page 1.
//!
//! # Frames that are the store
//! Where frame *n* is page *n* of the store, loading means to check the page in its place, and
//! there is no eviction. The rules are the same: a thread that misses a page latches its frame, if
//! no thread holds it, and enters it into the table; the others look the page up again.

use std::time::Duration;

use duramen_sync::atomic::Ordering;
use duramen_sync::clock::Instant;
use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, thread};
use duramen_types::{PageId, planted};

use super::error::Damage;
use super::frames::FrameId;
use super::page_table::PageTable;
use super::staging::Section;
use super::{Exclusive, Interrupt, Optimistic, Pool, PoolError, Restart, Shared};

/// Longest time that a thread waits for a frame, with no page cleaned in between, before it
/// declares the pool exhausted.
const FRAME_WAIT_LIMIT: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(5) };

/// After a thread has passed this many dirty or latched frames, or seven eighths of a smaller pool,
/// it cleans pages instead of searching on: passing so many takes about as long as writing a batch.
const HOPELESS: usize = 1 << 16;

/// Clean frames that the descents of some threads need.
const FOR_DESCENTS: usize = 16;

/// Repeats `attempt` until it returns a value. Each attempt that a race spoilt means that another
/// thread made progress.
#[inline]
fn retry<T, E>(mut attempt: impl FnMut() -> Result<Option<T>, E>) -> Result<T, E> {
    let mut backoff = Backoff::new();
    loop {
        if let Some(success) = attempt()? {
            return Ok(success);
        }
        backoff.snooze();
    }
}

impl Pool {
    /// Starts an optimistic read. `id` must come from validated reads.
    ///
    /// # Errors
    /// [`Interrupt::Restart`] when a thread, possibly the calling one, holds the page exclusively
    /// for long; [`Interrupt::Failed`] when the page cannot be read.
    #[inline]
    pub(crate) fn optimistic(&self, id: PageId) -> Result<Optimistic<'_>, Interrupt> {
        let _buffer = cost::scope(Category::Buffer);
        cost::visit(id.get());
        if let Some(frame) = self.resident(id) {
            let header = self.frames.header(frame);
            if let Some(version) = header.latch.version()
                && self.holds(frame, id)
            {
                self.touch(frame);
                return Ok(Optimistic::new(self, id, frame, version));
            }
        }
        self.optimistic_slow(id)
    }

    #[cold]
    fn optimistic_slow(&self, id: PageId) -> Result<Optimistic<'_>, Interrupt> {
        retry(|| {
            let frame = self.find_or_load(id)?;
            let header = self.frames.header(frame);
            match header.latch.version() {
                Some(version) if self.holds(frame, id) => {
                    self.touch(frame);
                    Ok(Some(Optimistic::new(self, id, frame, version)))
                }
                None if !header.latch.await_unlatched(&self.lot) => Err(Restart.into()),
                _ => Ok(None),
            }
        })
    }

    /// Latches a page shared. The caller must not hold the page already.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub(crate) fn shared(&self, id: PageId) -> Result<Shared<'_>, PoolError> {
        retry(|| {
            let frame = self.find_or_load(id)?;
            let latch = &self.frames.header(frame).latch;
            if !latch.shared(&self.lot, || self.holds(frame, id)) {
                return Ok(None);
            }
            if self.holds(frame, id) {
                self.touch(frame);
                return Ok(Some(Shared::new(self, frame)));
            }
            latch.release_shared(&self.lot);
            Ok(None)
        })
    }

    /// Latches a page exclusively. The caller must not hold the page already.
    ///
    /// # Errors
    /// When the page cannot be read.
    #[inline]
    pub(crate) fn exclusive(&self, id: PageId) -> Result<Exclusive<'_>, PoolError> {
        let _buffer = cost::scope(Category::Buffer);
        cost::visit(id.get());
        let section = self.enter();
        match self.resident(id) {
            Some(frame) if self.latch_page(id, frame) => Ok(Exclusive::new(self, id, frame, section)),
            _ => self.exclusive_slow(id, section),
        }
    }

    #[cold]
    fn exclusive_slow<'p>(&'p self, id: PageId, section: Section<'p>) -> Result<Exclusive<'p>, PoolError> {
        let frame = retry(|| {
            let frame = self.find_or_load(id)?;
            Ok::<_, PoolError>(self.latch_page(id, frame).then_some(frame))
        })?;
        Ok(Exclusive::new(self, id, frame, section))
    }

    /// Latches a page exclusively if no thread holds it.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub(crate) fn try_exclusive(&self, id: PageId) -> Result<Option<Exclusive<'_>>, PoolError> {
        let section = self.enter();
        let frame = retry(|| {
            let frame = self.find_or_load(id)?;
            if !self.frames.header(frame).latch.try_exclusive() {
                return Ok(Some(None));
            }
            Ok::<_, PoolError>(self.confirm_exclusive(id, frame).then_some(Some(frame)))
        })?;
        Ok(frame.map(|frame| Exclusive::new(self, id, frame, section)))
    }

    /// Latches a page exclusively without reading it, to format it anew. The bytes are all zeros
    /// when the guard is first borrowed for a change, after [`Exclusive::prepare`]. Before that
    /// they may show an earlier use of the page. [`Exclusive::gsn`] returns the GSN of that use, if
    /// the store knows it, until the page is stamped. A guard that is dropped without a change
    /// leaves the page as it was. Reserves the page's space in the store if necessary.
    ///
    /// # Errors
    /// When there is no frame, or no space in the store.
    pub(crate) fn create(&self, id: PageId) -> Result<Exclusive<'_>, PoolError> {
        self.reserve_page(id)?;
        if self.lacking(id).is_some() {
            self.find_or_load(id)?;
        }
        let section = self.enter();
        let (frame, is_new) = retry(|| match self.table.get(id) {
            Some(frame) => Ok(self.latch_page(id, frame).then_some((frame, false))),
            None => Ok::<_, PoolError>(self.claim(id)?.map(|frame| (frame, true))),
        })?;
        if !is_new {
            return Ok(Exclusive::new_stale(self, id, frame, section));
        }
        // Other threads cannot change the page any more, because its frame is claimed.
        let last = self.store.last_gsn(id).inspect_err(|_| self.abandon(id, frame))?;
        Ok(Exclusive::new_created(self, id, frame, section, last))
    }

    /// Latches a page exclusively as [`Pool::exclusive`] does, for redo. If the page is missing in
    /// the store, blank or damaged, the guard shows zeros, and [`Exclusive::was_unreadable`]
    /// tells the reason, so that the caller may rebuild the page from the log. If the caller drops
    /// the guard without a rebuild, the page stays as unreadable as it was.
    ///
    /// # Errors
    /// When the disk fails in another way, when there is no frame, or when there is no space on
    /// disk for a missing page.
    pub(crate) fn exclusive_or_blank(&self, id: PageId) -> Result<Exclusive<'_>, PoolError> {
        self.check_limit(id)?;
        retry(|| match self.table.get(id) {
            Some(frame) => Ok(self.latch_page(id, frame).then(|| Exclusive::new(self, id, frame, Section::NONE))),
            None => self.claim(id)?.map(|frame| self.read_or_blank(id, frame)).transpose(),
        })
    }

    /// Fills a claimed frame from the store, or with zeros if the page cannot be read.
    pub(super) fn read_or_blank(&self, id: PageId, frame: FrameId) -> Result<Exclusive<'_>, PoolError> {
        let Err(defect) = self.read_in(id, frame) else { return Ok(Exclusive::new_loaded(self, id, frame)) };
        let rebuildable = match &defect {
            // The page is whole, and the log lacks something. Rebuilding the page would hide that.
            PoolError::Corrupt { damage: Damage::AheadOfLog, .. } => Err(defect.clone()),
            PoolError::Corrupt { .. } => Ok(()),
            PoolError::Disk(error) if error.kind == std::io::ErrorKind::UnexpectedEof => self.reserve_page(id),
            _ => Err(defect.clone()),
        };
        if let Err(error) = rebuildable {
            self.abandon(id, frame);
            return Err(error);
        }
        Ok(Exclusive::new_blank(self, id, frame, Section::NONE, Some(defect)))
    }

    /// Returns whether a page is in the pool at this moment.
    pub(crate) fn is_resident(&self, id: PageId) -> bool {
        self.resident(id).is_some()
    }

    /// Returns the frame that held the page a moment ago.
    #[inline]
    fn resident(&self, id: PageId) -> Option<FrameId> {
        if id < PageTable::LIMIT { self.table.get(id) } else { None }
    }

    /// Tells the clock that the page was used. Mostly this only reads, because all users of the
    /// page share the header.
    #[inline]
    fn touch(&self, frame: FrameId) {
        let referenced = &self.frames.header(frame).referenced;
        if !referenced.load(Ordering::Relaxed) {
            referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether `frame` holds the page. The answer stays true while the frame's latch is
    /// held.
    #[inline]
    fn holds(&self, frame: FrameId, id: PageId) -> bool {
        self.frames.header(frame).page.load(Ordering::Relaxed) == id.get()
    }

    /// Latches `frame` exclusively. Returns `false`, and holds no latch, if the frame does not hold
    /// the page.
    #[inline]
    fn latch_page(&self, id: PageId, frame: FrameId) -> bool {
        self.frames.header(frame).latch.exclusive(&self.lot, || self.holds(frame, id))
            && self.confirm_exclusive(id, frame)
    }

    /// Returns whether `frame`, which was just latched exclusively, holds the page; unlatches it if
    /// not.
    #[inline]
    fn confirm_exclusive(&self, id: PageId, frame: FrameId) -> bool {
        let held = self.holds(frame, id);
        if held {
            self.touch(frame);
        } else {
            self.frames.header(frame).latch.release_exclusive(false, &self.lot);
        }
        held
    }

    /// Returns the frame that holds the page at some moment during the call; reads the page in if
    /// no frame holds it.
    #[inline]
    pub(super) fn find_or_load(&self, id: PageId) -> Result<FrameId, PoolError> {
        self.check_limit(id)?;
        match self.table.get(id) {
            Some(frame) => Ok(frame),
            None => retry(|| match self.load(id)? {
                Some(frame) => Ok(Some(frame)),
                None => Ok(self.table.get(id)),
            }),
        }
    }

    pub(super) fn check_limit(&self, id: PageId) -> Result<(), PoolError> {
        if id.is_zero() || id >= PageTable::LIMIT {
            let defect = "no page has this number".to_owned();
            return Err(PoolError::corrupt(id, Damage::Other, defect, self.store.location()));
        }
        Ok(())
    }

    /// Reads the page into a frame, unless another thread does so first.
    #[cold]
    fn load(&self, id: PageId) -> Result<Option<FrameId>, PoolError> {
        let Some(frame) = self.claim(id)? else { return Ok(None) };
        if let Some(unredone) = self.lacking(id) {
            self.redo_loaded(self.read_or_blank(id, frame)?, unredone)?;
            return Ok(Some(frame));
        }
        match self.read_in(id, frame) {
            Ok(()) => {
                let changed = !planted!(FrameReusedUnseen);
                self.frames.header(frame).latch.release_exclusive(changed, &self.lot);
                Ok(Some(frame))
            }
            Err(error) => {
                self.abandon(id, frame);
                Err(error)
            }
        }
    }

    /// Returns a frame for the page, exclusively latched and entered in the page table, whose bytes
    /// are not the page's yet. Returns `None` when the page has entered the pool meanwhile.
    fn claim(&self, id: PageId) -> Result<Option<FrameId>, PoolError> {
        self.lot.before_blocking();
        let frame = if self.frames.are_the_store() { self.frame_in_store(id)? } else { Some(self.take_frame()?) };
        Ok(frame.and_then(|frame| self.enter_page(id, frame)))
    }

    /// Enters a page with an exclusively latched frame that has no page in the page table. Returns
    /// `None`, and gives the frame back, when the page has entered the pool meanwhile.
    fn enter_page(&self, id: PageId, frame: FrameId) -> Option<FrameId> {
        let arrival = self.counters.misses.fetch_add(1, Ordering::Relaxed) + 1;
        let header = self.frames.header(frame);
        header.page.store(id.get(), Ordering::Relaxed);
        header.arrival.store(arrival, Ordering::Relaxed);
        if self.table.try_insert(id, frame) {
            // A page that is read for the first time may stay for one round of the clock.
            header.referenced.store(true, Ordering::Relaxed);
            return Some(frame);
        }
        reach(Probe::FrameRaceLost);
        self.release_empty(frame);
        None
    }

    /// Latches the one frame that can hold the page if the frames are the store. Returns `None` if
    /// another thread has latched it.
    fn frame_in_store(&self, id: PageId) -> Result<Option<FrameId>, PoolError> {
        // Says what is wrong with a page behind the end of the store.
        self.store.last_gsn(id)?;
        let frame = FrameId::new(id.get() as u32);
        let header = self.frames.header(frame);
        if !header.latch.try_exclusive() {
            return Ok(None);
        }
        if self.holds(frame, id) {
            header.latch.release_exclusive(false, &self.lot);
            return Ok(None);
        }
        Ok(Some(frame))
    }

    /// Fills a claimed frame from the store.
    fn read_in(&self, id: PageId, frame: FrameId) -> Result<(), PoolError> {
        if self.frames.are_the_store() {
            // SAFETY: the frame is latched exclusively by this thread.
            return self.store.verify(id, self.table.is_written(id), unsafe { self.frames.bytes(frame) });
        }
        // SAFETY: the frame is latched exclusively by this thread, and no guard for it exists yet.
        let bytes = unsafe { self.frames.bytes_mut(frame) };
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        self.store.read(id, self.table.is_written(id), bytes)
    }

    /// Reads in pages that are about to be needed, several at a time, as far as they can be read
    /// and frames are available at once. The errors of the other pages appear when a thread
    /// requests those pages.
    pub(crate) fn prefetch(&self, ids: &[PageId]) {
        const BATCH: usize = 128;
        if self.frames.are_the_store() {
            return;
        }
        let end = PageId::new(self.store.pages());
        let wanted: Vec<PageId> =
            ids.iter().copied().filter(|&id| !id.is_zero() && id < end && self.resident(id).is_none()).collect();
        // Only a few frames at a time, because they stay latched during the read.
        for part in wanted.chunks(BATCH.min(self.frames() / 8)) {
            let (mut claimed, mut is_out_of_frames) = (Vec::with_capacity(part.len()), false);
            self.lot.before_blocking();
            for &id in part {
                // Threads that held some frames and waited for more would wait for each other.
                let Some(frame) = self.frame_at_once() else {
                    is_out_of_frames = true;
                    break;
                };
                claimed.extend(self.enter_page(id, frame).map(|frame| (id, frame)));
            }
            let mut reads: Vec<(PageId, &mut [u8])> = claimed
                .iter()
                .map(|&(id, frame)| {
                    // SAFETY: the frames are different, latched exclusively by this thread, and no
                    // guard for them exists.
                    (id, unsafe { self.frames.bytes_mut(frame) })
                })
                .collect();
            self.counters.reads.fetch_add(reads.len() as u64, Ordering::Relaxed);
            let read = self.store.read_batch(&mut reads);
            for (id, frame) in claimed {
                // SAFETY: as above; the borrows for the batch are over.
                let bytes = unsafe { self.frames.bytes(frame) };
                if read.is_err() || self.store.verify(id, self.table.is_written(id), bytes).is_err() {
                    self.abandon(id, frame);
                } else if let Some(unredone) = self.lacking(id) {
                    // As above: the error appears later.
                    let _ = self.redo_loaded(Exclusive::new_loaded(self, id, frame), unredone);
                } else {
                    self.frames.header(frame).latch.release_exclusive(true, &self.lot);
                }
            }
            if is_out_of_frames {
                return;
            }
        }
    }

    /// Takes a clean page out of its frame, which the caller holds exclusively, and gives back both
    /// the page table entry and the frame.
    pub(super) fn abandon(&self, id: PageId, frame: FrameId) {
        self.table.remove(id, frame);
        self.release_empty(frame);
    }

    /// Gives back an exclusively latched frame that is in no table entry.
    fn release_empty(&self, frame: FrameId) {
        let header = self.frames.header(frame);
        assert!(!header.recovery_gsn.is_dirty(), "a dirty page would be lost");
        header.page.store(0, Ordering::Relaxed);
        header.latch.release_exclusive(true, &self.lot);
        if !self.frames.are_the_store() {
            self.free.lock().push(frame);
        }
    }

    /// Returns an exclusively latched frame without a page.
    fn take_frame(&self) -> Result<FrameId, PoolError> {
        let mut stuck_since = None;
        let mut spares = true;
        loop {
            if let Some(frame) = self.free_frame().or_else(|| self.evict(spares)) {
                return Ok(frame);
            }
            // A poisoned pool cleans no page.
            self.check_poison()?;
            self.counters.stalls.fetch_add(1, Ordering::Relaxed);
            // Other threads may change pages as fast as they are cleaned.
            spares = false;
            match self.clean_for_eviction() {
                Ok(true) => {
                    reach(Probe::EvictorCleaned);
                    stuck_since = None;
                    continue;
                }
                Ok(false) => {}
                Err(error) => return self.evict(false).ok_or(error),
            }
            if stuck_since.get_or_insert_with(Instant::now).elapsed() > FRAME_WAIT_LIMIT {
                return Err(PoolError::Exhausted { frames: self.frames() });
            }
            self.request_batch();
            // Every frame is latched at this moment, and the latch holders need the processor more;
            // or frames wait for the end of a batch.
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Returns an exclusively latched frame without a page, if there is one or one can be cleaned.
    fn frame_at_once(&self) -> Option<FrameId> {
        let take = || self.free_frame().or_else(|| self.evict(true));
        take().or_else(|| self.clean_for_eviction().is_ok_and(|cleaned| cleaned).then(take).flatten())
    }

    fn free_frame(&self) -> Option<FrameId> {
        let frame = {
            let mut free = self.free.lock();
            free.pop().or_else(|| self.frames.take_unused())?
        };
        // Another thread with a stale look-up may hold the latch for an instant before it finds
        // that the page is gone.
        let latched = self.frames.header(frame).latch.exclusive(&self.lot, || true);
        assert!(latched);
        Some(frame)
    }

    /// Turns the clock until it finds a clean page that was not used since the last time around,
    /// and evicts that page. If two rounds find no such page, there is none. Long before that, when
    /// nearly all pages are dirty, it is better to clean some. `spares` says whether to leave the
    /// last few clean pages.
    fn evict(&self, spares: bool) -> Option<FrameId> {
        let is_poisoned = self.poisoned.load(Ordering::Relaxed);
        // In the last few clean frames, descents would evict the pages that they need themselves,
        // and from each other, again and again. The dirty pages of a poisoned pool stay dirty.
        let for_descents = FOR_DESCENTS.max(self.frames() / if is_poisoned { 8 } else { 64 }).min(self.frames() / 4);
        let spares = is_poisoned || spares && self.staging().is_none();
        if spares && self.dirty.load(Ordering::Relaxed) + for_descents > self.frames() {
            return None;
        }
        let mut hopeless = 0;
        for _ in 0..2 * self.frames() {
            let frame = self.advance_hand();
            let header = self.frames.header(frame);
            if header.page.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Dirty pages lose their mark too, so that they can be evicted as soon as they have
            // been cleaned.
            let referenced = header.referenced.load(Ordering::Relaxed);
            if referenced {
                header.referenced.store(false, Ordering::Relaxed);
            }
            if (header.recovery_gsn.is_dirty() && !planted!(StagedPageDropped)) || header.latch.is_held() {
                hopeless += 1;
                // Where dirty frames wait for a batch, or can never be cleaned, there is nothing
                // else to do than to search on.
                let is_hopeless = hopeless >= HOPELESS.min(self.frames() - self.frames() / 8);
                if is_hopeless && self.staging().is_none() && !is_poisoned {
                    return None;
                }
                continue;
            }
            if referenced {
                continue;
            }
            if !header.latch.try_exclusive() {
                continue;
            }
            let page = header.page.load(Ordering::Relaxed);
            if planted!(StagedPageDropped) && self.staging().is_some() && header.recovery_gsn.forget() {
                self.dirty.fetch_sub(1, Ordering::Relaxed);
                header.changed.forget();
            }
            if page == 0 || header.recovery_gsn.is_dirty() {
                reach(Probe::FrameRaceLost);
                header.latch.release_exclusive(false, &self.lot);
                continue;
            }
            self.table.remove(PageId::new(page), frame);
            header.page.store(0, Ordering::Relaxed);
            reach(Probe::PageEvicted);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            return Some(frame);
        }
        None
    }

    /// Returns the frame under the clock's hand, and moves the hand on.
    pub(super) fn advance_hand(&self) -> FrameId {
        let passed = self.hand.fetch_add(1, Ordering::Relaxed);
        FrameId::new((passed % self.frames()) as u32)
    }
}
