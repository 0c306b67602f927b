//! Frames as a staging buffer: changed lines wait in their frames until a batch takes them to the
//! store.
//!
//! A store that says so ([`PageStore::is_staged`]) gets the changes of many transactions at once,
//! from one thread. A thread that has changed a page *stages* the changed lines while it still
//! holds the page exclusively (`Exclusive::stage`): the frame keeps a mask of them, is on a list
//! if the mask was empty, and counts as dirty, so that it keeps its page. The thread that ends a
//! batch closes the gate ([`Staging::close`]), takes masks and contents ([`Pool::take_staged`]),
//! and opens it again. When it has brought the lines home, it says so ([`Pool::staged_are_home`]),
//! and frames that were not changed meanwhile are clean.
//!
//! # Sections
//! A batch must have each action whole or not at all. An action is what a thread does while it
//! holds pages exclusively, from its first such latch to the release of the last. So each exclusive
//! guard has a [`Section`], which the thread enters *before* it asks for the latch. A thread that
//! is in a section already enters at once. A thread that is in none may have to wait until the gate
//! opens, and holds no latch meanwhile. Hence:
//!
//! - While the gate is closed, no page is held exclusively, and masks and contents do not change.
//! - A thread in a section waits only for what threads in sections, readers and loads give back.
//!   The gate closes behind it, never before it.
//! - No thread waits for a transaction lock in a section; the lock manager asserts this.
//!
//! A commit enters a section, too, so that it is wholly in one batch.
//!
//! # Space
//! A batch has to fit its log, and a thread in a section must find clean frames. Nobody enters a
//! new section when the staged bytes or the dirty frames exceed half of their limit. In a small
//! configuration each section also reserves what an action needs at most.

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use duramen_sync::{CachePadded, Mutex, OnceLock, Striped, nesting, prefetch};
use duramen_types::{Gsn, PAGE_SIZE, PageId};

use super::Pool;
use super::frames::FrameId;
use super::gate::Gate;
use crate::page::{LINE_SIZE, Lines};
use crate::pre_block_hook::PreBlockHook;

/// The most pages that an action changes: nodes of a split, their parent, bitmaps.
const ACTION_PAGES: u64 = 8;

/// The most bytes that an action adds to a batch.
pub(crate) const ACTION_BYTES: u64 = ACTION_PAGES * (PAGE_SIZE as u64 + DESCRIPTION);

/// What a batch needs for each page besides its lines, in bytes.
const DESCRIPTION: u64 = 24;

/// From this many actions on that fit half of the limits, actions do not reserve: there are fewer
/// threads in sections.
const AMPLE: u64 = 512;

/// The state of the staging buffer.
#[derive(Debug)]
pub(crate) struct Staging {
    gate: Gate,
    /// Frames with staged lines.
    frames: Striped<Mutex<Vec<FrameId>>, 32>,
    /// Bytes that the staged lines and their descriptions take in a batch.
    bytes: CachePadded<AtomicU64>,
    /// The threads in sections, if these reserve.
    reserved: CachePadded<AtomicU64>,
    reserves: bool,
    /// The most bytes of a batch.
    most_bytes: u64,
    /// The most frames that may be dirty.
    most_dirty: u64,
    /// Whether no batch ends any more.
    is_abandoned: AtomicBool,
    /// Asks for the end of the batch.
    request: OnceLock<PreBlockHook>,
}

/// The stay of a thread in which it changes pages. Nothing, unless the store is staged.
#[derive(Debug)]
pub(crate) struct Section<'p>(Option<&'p Staging>);

impl Section<'_> {
    /// The section of a guard under which nothing is staged: the page is read in.
    pub(super) const NONE: Self = Self(None);
}

impl Drop for Section<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(staging) = self.0
            && nesting::back() == 0
        {
            staging.leave();
        }
    }
}

/// What a batch takes of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) page: PageId,
    pub(crate) lines: Lines,
    frame: FrameId,
}

impl Staging {
    /// Creates the state for batches of at most `most_bytes`, in a pool with this many frames.
    pub(super) fn new(most_bytes: u64, frames: usize) -> Self {
        let most_dirty = frames as u64 / 4 * 3;
        Self {
            gate: Gate::default(),
            frames: Striped::default(),
            bytes: CachePadded::default(),
            reserved: CachePadded::default(),
            reserves: most_dirty / 2 / ACTION_PAGES < AMPLE || most_bytes / 2 / ACTION_BYTES < AMPLE,
            most_bytes,
            most_dirty,
            is_abandoned: AtomicBool::new(false),
            request: OnceLock::new(),
        }
    }

    /// Sets what asks for the end of the batch. It must not block.
    pub(crate) fn on_request(&self, request: impl Fn() + Send + Sync + 'static) {
        assert!(self.request.set(PreBlockHook::new(request)).is_ok(), "one thread ends batches");
    }

    fn request(&self) {
        if let Some(request) = self.request.get() {
            request.call();
        }
    }

    #[cold]
    fn enter_slow(&self, dirty: &AtomicUsize) {
        loop {
            self.gate.wait();
            if self.try_enter(dirty) {
                return;
            }
        }
    }

    fn try_enter(&self, dirty: &AtomicUsize) -> bool {
        if !self.gate.try_enter() {
            return false;
        }
        if !self.reserves {
            return true;
        }
        let actions = self.reserved.fetch_add(1, Ordering::AcqRel) + 1;
        let bytes = self.bytes.load(Ordering::Relaxed) + actions * ACTION_BYTES;
        let frames = dirty.load(Ordering::Relaxed) as u64 + actions * ACTION_PAGES;
        let fits = bytes <= self.most_bytes && frames <= self.most_dirty;
        if fits || self.is_abandoned.load(Ordering::Acquire) {
            return true;
        }
        self.leave();
        self.fill();
        false
    }

    fn leave(&self) {
        if self.reserves {
            self.reserved.fetch_sub(1, Ordering::AcqRel);
        }
        self.gate.leave();
    }

    #[cold]
    fn fill(&self) {
        if self.is_abandoned.load(Ordering::Acquire) || !self.gate.fill() {
            return;
        }
        // Either `abandon` finds the gate full, or this thread finds that nobody will open it.
        fence(Ordering::SeqCst);
        if self.is_abandoned.load(Ordering::Acquire) {
            self.gate.clear_full();
        } else {
            self.request();
        }
    }

    /// Lets nobody begin a section, and waits until nobody is in one.
    pub(crate) fn close(&self) {
        self.gate.close();
    }

    /// Says that no batch ends any more: the database is out of service, or closed. Nobody waits
    /// from now on.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.gate.open();
        self.gate.clear_full();
    }

    /// Returns whether threads wait for the end of a batch to begin a section.
    pub(crate) fn is_full(&self) -> bool {
        self.gate.is_full()
    }
}

impl Pool {
    /// Returns the staging buffer, if the store is staged.
    pub(crate) fn staging(&self) -> Option<&Staging> {
        self.staging.as_ref()
    }

    /// Enters a section, and waits until it may if the thread is in none. The caller then holds
    /// neither a latch nor a mutex that a thread in a section needs.
    #[inline]
    pub(crate) fn enter(&self) -> Section<'_> {
        let Some(staging) = &self.staging else { return Section(None) };
        if nesting::deeper() == 0 && !staging.try_enter(&self.dirty) {
            staging.enter_slow(&self.dirty);
        }
        Section(Some(staging))
    }

    /// Asks for the end of the batch, for a thread that finds no clean frame.
    pub(super) fn request_batch(&self) {
        if let Some(staging) = &self.staging {
            staging.request();
        }
    }

    /// Takes what is staged. The gate is closed. Calls `each` with each page and its contents.
    pub(crate) fn take_staged(&self, mut each: impl FnMut(PageId, Lines, &[u8])) -> Vec<Taken> {
        let Some(staging) = &self.staging else { return Vec::new() };
        let frames: Vec<FrameId> =
            staging.frames.iter().flat_map(|frames| std::mem::take(&mut *frames.lock())).collect();
        let mut taken = Vec::with_capacity(frames.len());
        for (number, &frame) in frames.iter().enumerate() {
            self.request_staged(&frames[number..]);
            let header = self.frames.header(frame);
            let (page, (lines, _)) = (PageId::new(header.page.load(Ordering::Relaxed)), header.changed.take());
            if lines == Lines::NONE {
                continue;
            }
            // SAFETY: the gate is closed, so that nobody holds the frame exclusively to change it.
            // The frame is dirty, so that nobody evicts its page.
            each(page, lines, unsafe { self.frames.bytes(frame) });
            header.recovery_gsn.copied();
            taken.push(Taken { page, lines, frame });
        }
        staging.bytes.store(0, Ordering::Relaxed);
        taken
    }

    /// Requests the headers and the staged lines of frames that are taken soon. They lie in the
    /// caches of other processors, if in any, and while the gate is closed, writers wait.
    fn request_staged(&self, frames: &[FrameId]) {
        const HEADER: usize = 16;
        const LINES: usize = 8;
        if let Some(&frame) = frames.get(HEADER) {
            prefetch(std::ptr::from_ref(self.frames.header(frame)).cast());
        }
        if let Some(&frame) = frames.get(LINES) {
            let start = self.frames.page(frame);
            for run in self.frames.header(frame).changed.get().runs() {
                run.for_each(|line| prefetch(start.wrapping_add(line * LINE_SIZE)));
            }
        }
    }

    /// Says that what was taken is in the store, durably. Leaves in `taken` the frames that must be
    /// asked again later, because another thread held them.
    pub(crate) fn staged_are_home(&self, taken: &mut Vec<Taken>) {
        let Some(staging) = &self.staging else { return };
        taken.retain(|Taken { frame, .. }| {
            let header = self.frames.header(*frame);
            // A frame that was asked again may be clean since then.
            if !header.recovery_gsn.is_dirty() {
                return false;
            }
            let is_clean = header.recovery_gsn.durable(&header.latch, &self.lot);
            if is_clean {
                self.dirty.fetch_sub(1, Ordering::Relaxed);
            }
            // A frame that was changed meanwhile is on a list.
            !is_clean && !header.recovery_gsn.is_noted()
        });
        staging.gate.clear_full();
    }

    /// Lets threads into sections again, after [`Staging::close`] and [`Pool::take_staged`].
    pub(crate) fn open_sections(&self) {
        let Some(staging) = &self.staging else { return };
        if self.dirty.load(Ordering::Relaxed) as u64 * 2 <= staging.most_dirty {
            staging.gate.clear_full();
        }
        staging.gate.open();
    }
}

impl Pool {
    /// Adds changed lines to those that wait in a frame, which the caller holds exclusively. The
    /// change is of batch `batch`.
    pub(super) fn stage_lines(&self, frame: FrameId, lines: Lines, batch: Gsn) {
        let staging = self.staging.as_ref().expect("only pages of a staged store are staged");
        let header = self.frames.header(frame);
        let before = header.changed.add(lines);
        let after = before | lines;
        if after == before {
            return;
        }
        let mut bytes = u64::from(after.count() - before.count()) * LINE_SIZE as u64;
        let mut dirty = 0;
        if before == Lines::NONE {
            bytes += DESCRIPTION;
            staging.frames.own().1.lock().push(frame);
            if header.recovery_gsn.note(batch) {
                dirty = self.dirty.fetch_add(1, Ordering::Relaxed) as u64 + 1;
            }
        }
        let bytes = staging.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if bytes * 2 > staging.most_bytes || dirty * 2 > staging.most_dirty {
            staging.note_fill(bytes, dirty);
        }
    }
}

impl Staging {
    /// Asks for the end of a batch that fills its log or the frames.
    #[cold]
    fn note_fill(&self, bytes: u64, dirty: u64) {
        // Sections that reserve may fill the rest.
        if !self.reserves || bytes > self.most_bytes / 5 * 4 || dirty > self.most_dirty / 5 * 4 {
            self.fill();
        } else {
            self.request();
        }
    }
}
