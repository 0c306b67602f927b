//! The only ways to access a page: optimistic, shared and exclusive guards.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;

use duramen_sync::atomic::Ordering;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, page_trace};
use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::Pool;
use super::error::{PoolError, Restart};
use super::frames::FrameId;
use super::headers::Header;
use super::latch::{Upgrade, Version};
use super::staging::Section;
use crate::page::{self, Lines, OptimisticPage, PageMut};

/// An optimistic read of a page: it holds no latch, so the data read counts only after
/// [`Optimistic::validate`].
#[derive(Clone, Copy)]
pub(crate) struct Optimistic<'a> {
    pool: &'a Pool,
    id: PageId,
    frame: FrameId,
    version: Version,
}

impl<'a> Optimistic<'a> {
    #[inline]
    pub(super) fn new(pool: &'a Pool, id: PageId, frame: FrameId, version: Version) -> Self {
        if cfg!(duramen_trace) {
            page_trace::visit(id.get(), pool.frames.page(frame));
        }
        Self { pool, id, frame, version }
    }

    /// Returns the page's number.
    #[inline]
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Returns the bytes. They may change, or become another page's, while they are read.
    #[inline]
    pub(crate) fn page(&self) -> OptimisticPage<'a> {
        // SAFETY: frames are `PAGE_SIZE` bytes of memory that stays allocated as long as the pool,
        // which outlives 'a.
        unsafe { OptimisticPage::new(self.pool.frames.page(self.frame)) }
    }

    /// Checks that all data read so far was the page's, and of one moment.
    ///
    /// # Errors
    /// [`Restart`] when the page was changed or evicted since this guard was made.
    #[inline]
    pub(crate) fn validate(&self) -> Result<(), Restart> {
        if planted!(ReadNotValidated) || self.pool.frames.header(self.frame).latch.validate(self.version) {
            return Ok(());
        }
        reach(Probe::OptimisticRestart);
        Err(Restart)
    }

    /// Returns whether the page was found to be a child of `parent` since both came into their
    /// frames. The contents of memory stay consistent, so a page has to be compared with its parent
    /// only once.
    #[inline]
    pub(crate) fn is_known_child_of(&self, parent: &Self) -> bool {
        self.header().child_of.load(Ordering::Relaxed) == self.kinship(parent)
    }

    /// Records that the page is a child of `parent`. `kinship` is what [`Self::kinship`] returned
    /// when that was found, before both pages were validated.
    pub(crate) fn note_child(&self, kinship: u64) {
        self.header().child_of.store(kinship, Ordering::Relaxed);
    }

    /// Returns a number for this pair of pages in these frames; it changes when either is replaced.
    #[inline]
    pub(crate) fn kinship(&self, parent: &Self) -> u64 {
        let arrival = |page: &Self| page.header().arrival.load(Ordering::Relaxed);
        arrival(parent).rotate_left(32) ^ arrival(self)
    }

    #[inline]
    fn header(&self) -> &'a Header {
        self.pool.frames.header(self.frame)
    }

    /// Turns the read into exclusive access, if nothing has changed since it began.
    ///
    /// # Errors
    /// [`Restart`] when the page was changed or evicted, is about to be, or has a shared holder
    /// that stays for long.
    pub(crate) fn upgrade(self) -> Result<Exclusive<'a>, Restart> {
        let latch = &self.pool.frames.header(self.frame).latch;
        let section = self.pool.enter();
        let mut backoff = Backoff::new();
        loop {
            match latch.try_upgrade(self.version) {
                Upgrade::Granted => return Ok(Exclusive::new(self.pool, self.id, self.frame, section)),
                Upgrade::Busy if !backoff.is_long() => backoff.snooze(),
                Upgrade::Busy | Upgrade::Stale => {
                    reach(Probe::UpgradeFailed);
                    return Err(Restart);
                }
            }
        }
    }
}

/// Shared access: the page does not change while the guard lives.
pub(crate) struct Shared<'a> {
    pool: &'a Pool,
    frame: FrameId,
}

impl<'a> Shared<'a> {
    /// Wraps a latch that the caller holds shared.
    pub(super) fn new(pool: &'a Pool, frame: FrameId) -> Self {
        Self { pool, frame }
    }
}

impl Deref for Shared<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the shared latch, held as long as `self`, keeps every writer out.
        unsafe { self.pool.frames.bytes(self.frame) }
    }
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.pool.frames.header(self.frame).latch.release_shared(&self.pool.lot);
    }
}

/// Exclusive access.
///
/// A change consists of these steps: call [`Exclusive::prepare`], insert the log record, change the
/// bytes through [`Exclusive::page_mut`], stamp them with the record's GSN, and drop the guard.
/// (The bytes may also be changed before the record is inserted, but not before `prepare`.) When
/// the guard is dropped after a change, readers that overlapped with the change start over.
pub(crate) struct Exclusive<'a> {
    pool: &'a Pool,
    id: PageId,
    frame: FrameId,
    /// The frame's bytes; or a scratch page, with a copy that the thread changes, if the frame is
    /// the store's memory.
    bytes: NonNull<u8>,
    has_scratch: bool,
    changed: bool,
    prepared: Cell<bool>,
    origin: Origin,
    /// The lines changed since the guard was made.
    lines: Lines,
    /// Whether the page was formatted anew since.
    anew: bool,
    /// The GSN that the page had before it was zeroed to be formatted anew; zero for other pages.
    erased: Gsn,
    /// Entered before the latch was taken, and left after it is released.
    #[expect(dead_code, reason = "held for its drop")]
    section: Section<'a>,
}

/// The origin of the bytes under an [`Exclusive`] guard.
enum Origin {
    /// The bytes are the page.
    Page,
    /// The bytes are the page, but the guard was made to format it anew: the first change zeroes
    /// them.
    Stale,
    /// The bytes are zeros in a frame of their own, and become the page only when they are changed.
    /// Carries the error that prevented a read of the page, if a read was tried.
    Blank(Option<Box<PoolError>>),
    /// The bytes are the page, in the store: the first change copies them.
    Store,
}

impl<'a> Exclusive<'a> {
    /// Wraps a latch that the caller holds exclusively.
    #[inline]
    pub(super) fn new(pool: &'a Pool, id: PageId, frame: FrameId, section: Section<'a>) -> Self {
        let origin = if pool.frames.are_the_store() { Origin::Store } else { Origin::Page };
        Self::with_origin(pool, id, frame, section, origin)
    }

    #[inline]
    fn with_origin(pool: &'a Pool, id: PageId, frame: FrameId, section: Section<'a>, origin: Origin) -> Self {
        if cfg!(duramen_trace) {
            page_trace::visit(id.get(), pool.frames.page(frame));
        }
        let (lines, erased) = (Lines::NONE, Gsn::ZERO);
        let (bytes, prepared) = (pool.frames.page_mut(frame), Cell::new(false));
        let (has_scratch, changed, anew) = (false, false, false);
        Self { pool, id, frame, bytes, has_scratch, changed, prepared, origin, lines, anew, erased, section }
    }

    /// Wraps a latch as [`Exclusive::new`] does, for a page that was just read into the frame.
    /// Readers of the frame's earlier contents start over.
    pub(super) fn new_loaded(pool: &'a Pool, id: PageId, frame: FrameId) -> Self {
        let mut page = Self::new(pool, id, frame, Section::NONE);
        page.changed = true;
        page
    }

    /// Wraps a latch as [`Exclusive::new`] does, for a page that will be formatted anew.
    pub(super) fn new_stale(pool: &'a Pool, id: PageId, frame: FrameId, section: Section<'a>) -> Self {
        Self::with_origin(pool, id, frame, section, Origin::Stale)
    }

    /// Wraps a latch as [`Exclusive::new`] does, for a page that is not in the frame that was
    /// claimed for it; zeroes the frame.
    pub(super) fn new_blank(
        pool: &'a Pool,
        id: PageId,
        frame: FrameId,
        section: Section<'a>,
        unreadable: Option<PoolError>,
    ) -> Self {
        let mut page = Self::with_origin(pool, id, frame, section, Origin::Blank(unreadable.map(Box::new)));
        if pool.frames.are_the_store() {
            page.take_scratch();
        }
        page.bytes_mut().fill(0);
        page
    }

    /// Wraps a latch as [`Exclusive::new_blank`] does, for a page that will be formatted anew;
    /// `last` is its GSN in the store.
    pub(super) fn new_created(pool: &'a Pool, id: PageId, frame: FrameId, section: Section<'a>, last: Gsn) -> Self {
        let mut page = Self::new_blank(pool, id, frame, section, None);
        page.erased = last;
        page
    }

    /// Returns the page's number.
    #[inline]
    pub(crate) fn id(&self) -> PageId {
        self.id
    }

    /// Returns the GSN of the last log record applied to the page, also when the page has been
    /// zeroed since to be formatted anew.
    #[inline]
    pub(crate) fn gsn(&self) -> Gsn {
        page::gsn(self).max(self.erased)
    }

    /// Announces a change before its log record is inserted. From now on a checkpoint counts the
    /// page as dirty, with a bound that is not above the GSN of that record; if the store has no
    /// writer, the page stays clean. One call per guard is enough.
    #[inline]
    pub(crate) fn prepare(&self) {
        if !self.prepared.replace(true) {
            self.pool.note_change(self.frame, None);
        }
    }

    /// Counts every line of the page as changed: the page that is durable in the store may be
    /// another one than was read.
    pub(crate) fn change_all_lines(&mut self) {
        self.lines = Lines::ALL;
    }

    /// Announces a change as [`Exclusive::prepare`] does, for redo: the log already holds the
    /// change as record `gsn`.
    pub(crate) fn prepare_redo(&self, gsn: Gsn) {
        if !self.prepared.replace(true) {
            self.pool.note_change(self.frame, Some(gsn));
        }
    }

    /// Returns whether the page, which was read and has not been changed since, is durable as it
    /// is.
    pub(crate) fn is_durable_as_read(&self) -> bool {
        self.pool.store.writer().is_none_or(|writer| writer.is_durable_as_read(self.id, page::gsn(self)))
    }

    /// Returns the bytes for changes, whose lines are added to [`Exclusive::lines`].
    #[inline(always)]
    pub(crate) fn page_mut(&mut self) -> PageMut<'_> {
        if !self.prepared.get() {
            self.refuse_change();
        }
        if !matches!(self.origin, Origin::Page) {
            self.begin_changes();
        }
        self.changed = true;
        // SAFETY: as in `bytes_mut`; the lines are another field.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), PAGE_SIZE) };
        PageMut::new(bytes, &mut self.lines)
    }

    /// Returns the bytes for changes. They are a frame's or a scratch page's, not the store's.
    fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.has_scratch || !self.pool.frames.are_the_store(), "the store's bytes are only read");
        // SAFETY: the exclusive latch, held as long as `self`, keeps other latch holders out, and
        // `self` is borrowed exclusively. Optimistic readers read through `OptimisticPage`, whose
        // reads may race, and discard what they saw. A scratch page is this guard's alone.
        unsafe { std::slice::from_raw_parts_mut(self.bytes.as_ptr(), PAGE_SIZE) }
    }

    /// Continues in a scratch page, whatever it contains.
    fn take_scratch(&mut self) {
        self.bytes = self.pool.frames.lend_scratch();
        self.has_scratch = true;
    }

    #[cold]
    fn refuse_change(&self) -> ! {
        panic!("{} is changed without being prepared: the change could be lost", self.id)
    }

    /// Makes the bytes ready for the first change: copies them if they are in the store, or begins
    /// a page whose former bytes are not in the frame, or count no more.
    #[cold]
    fn begin_changes(&mut self) {
        if matches!(self.origin, Origin::Store) {
            let store = self.bytes;
            self.take_scratch();
            // SAFETY: the exclusive latch keeps writers out of the page in the store.
            let page = unsafe { std::slice::from_raw_parts(store.as_ptr(), PAGE_SIZE) };
            self.bytes_mut().copy_from_slice(page);
            self.origin = Origin::Page;
            return;
        }
        if matches!(self.origin, Origin::Stale) {
            self.erased = page::gsn(self);
            if self.pool.frames.are_the_store() {
                self.take_scratch();
            }
            self.bytes_mut().fill(0);
            self.origin = Origin::Page;
        }
        self.lines = Lines::ALL;
        self.anew = true;
    }

    /// Returns the lines that were changed through this guard. These are all lines of a page that
    /// is formatted anew: what it was before is not in the frame, or counts no more.
    pub(crate) fn lines(&self) -> Lines {
        self.lines
    }

    /// Adds the changed lines to those that wait in the frame for a batch: `batch`.
    pub(crate) fn stage(&self, batch: Gsn) {
        self.pool.stage_lines(self.frame, self.lines(), batch);
    }

    /// Takes a page that was loaded for this guard out of the pool again, including all changes
    /// made to it.
    pub(super) fn discard(mut self) {
        self.changed = false;
        self.origin = Origin::Blank(None);
    }

    /// Stops all writes of the pool: the page was changed in a way that must not reach the disk.
    pub(crate) fn poison(&self, reason: &str) {
        self.pool.poison(reason);
    }

    /// Returns why the page could not be read, if [`Pool::exclusive_or_blank`] returned zeros in
    /// its place. The zeros become the page when they are changed; until then the page stays
    /// unreadable.
    pub(crate) fn was_unreadable(&self) -> Option<&PoolError> {
        match &self.origin {
            Origin::Blank(defect) => defect.as_deref(),
            Origin::Page | Origin::Stale | Origin::Store => None,
        }
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the exclusive latch, held as long as `self`, keeps other latch holders out, and
        // `self` is borrowed shared. Optimistic readers only read. A scratch page is this guard's.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr(), PAGE_SIZE) }
    }
}

impl Drop for Exclusive<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.changed {
            if cfg!(duramen_trace) {
                page_trace::changed(self.pool.frames.page(self.frame), self.lines.bits());
            }
            assert_eq!(page::page_id(self), self.id, "a page was changed into another one");
            if self.pool.write_back.is_some() && !planted!(ChangedLinesForgotten) {
                let changed = &self.pool.frames.header(self.frame).changed;
                changed.add(self.lines);
                if self.anew {
                    changed.note_anew();
                }
            }
        }
        if self.has_scratch {
            // SAFETY: nothing borrows from a guard that is dropped.
            unsafe { self.pool.frames.give_back(self.bytes) };
        }
        if !self.changed && matches!(self.origin, Origin::Blank(_)) {
            self.pool.disown(self.id, self.frame);
            return;
        }
        self.pool.frames.header(self.frame).latch.release_exclusive(self.changed, &self.pool.lot);
    }
}
