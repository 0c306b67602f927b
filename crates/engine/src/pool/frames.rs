//! The memory of the pool: the page frames, and a header for each frame.
//!
//! The frames are memory of their own, or the memory of the store ([`Frames::over`]). In the second
//! case frame *n* is page *n*, and its bytes are only read here: a thread that changes a page
//! changes a copy in a *scratch page*, and the thread's change reaches the store by the store's own
//! means before the latch is released.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use duramen_io::{HUGE_PAGE, collapse_to_huge_pages, prefer_huge_pages};
use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::{Mutex, Striped};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE};

use super::headers::{Header, Headers};

/// The number of a frame, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct FrameId(u32);

impl FrameId {
    /// Wraps a frame's number.
    #[inline]
    pub(super) const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// Returns the number.
    #[inline]
    pub(super) const fn get(self) -> u32 {
        self.0
    }
}

/// Number of frames in the first huge page.
const FIRST_HUGE: usize = HUGE_PAGE / PAGE_SIZE;

/// All frames.
#[derive(Debug)]
pub(super) struct Frames {
    memory: Memory,
    /// The first frame: the first address in `memory` with the required alignment.
    start: NonNull<u8>,
    headers: Headers,
    /// No frame from this number on has ever had a page. Grows under the lock of the free frames.
    used: AtomicUsize,
}

/// The memory that the frames lie in.
#[derive(Debug)]
enum Memory {
    /// The whole allocation.
    Own(NonNull<u8>, Layout),
    /// That of the store, and the scratch pages that no thread uses.
    OfStore(Box<Striped<Mutex<Vec<Box<Scratch>>>, 32>>),
}

/// A page of memory in which a thread changes a page that lies in the store.
type Scratch = [u8; PAGE_SIZE];

// SAFETY: the memory belongs to this value; access to it follows the latches (see `bytes`).
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl Frames {
    /// Allocates `count` frames of zeros. A large number of frames starts at a huge-page boundary,
    /// and the operating system is advised to use huge pages. The first use of a frame then commits
    /// the memory of a whole huge page. The frames of the first huge page are exempt until they are
    /// all used: a small database takes only what it uses.
    ///
    /// Returns `None` when the system cannot provide that much memory.
    pub(super) fn new(count: usize) -> Option<Self> {
        let len = count.checked_mul(PAGE_SIZE)?;
        let align = if len >= HUGE_PAGE { HUGE_PAGE } else { BLOCK_SIZE };
        // Requesting a longer piece with byte alignment lets the allocator take fresh zero pages
        // from the system without touching them.
        let layout = Layout::array::<u8>(len.checked_add(align)?).ok()?;
        let headers = Headers::new(count)?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skip = memory.as_ptr().align_offset(align);
        // SAFETY: `skip < align`, and the allocation is `align` bytes longer than the frames.
        let start = unsafe { memory.add(skip) };
        if let Some(len) = len.checked_sub(HUGE_PAGE) {
            // SAFETY: within the memory.
            prefer_huge_pages(unsafe { start.add(HUGE_PAGE) }, len);
        }
        Some(Self { memory: Memory::Own(memory, layout), start, headers, used: AtomicUsize::new(0) })
    }

    /// Makes frames of the `count` pages of a store that lie in memory from `start` on.
    ///
    /// Returns `None` when the system cannot provide the memory for the headers.
    ///
    /// # Safety
    /// The pages can be read as long as the result. Only a holder of a page's exclusive latch has
    /// them changed.
    pub(super) unsafe fn over(start: NonNull<u8>, count: usize) -> Option<Self> {
        assert!(start.cast::<u64>().is_aligned(), "pages are aligned");
        let (memory, headers) = (Memory::OfStore(Box::default()), Headers::new(count)?);
        Some(Self { memory, start, headers, used: AtomicUsize::new(count) })
    }

    /// Returns whether the frames are the store's memory, so that frame *n* is page *n*.
    #[inline]
    pub(super) fn are_the_store(&self) -> bool {
        matches!(self.memory, Memory::OfStore(_))
    }

    /// Lends a scratch page with any contents, until [`Frames::give_back`].
    pub(super) fn lend_scratch(&self) -> NonNull<u8> {
        let page = self.scratch().own().1.lock().pop().unwrap_or_else(|| Box::new([0; PAGE_SIZE]));
        NonNull::from(Box::leak(page)).cast()
    }

    /// Takes a scratch page back.
    ///
    /// # Safety
    /// `page` is from [`Frames::lend_scratch`] and is not used again.
    pub(super) unsafe fn give_back(&self, page: NonNull<u8>) {
        // SAFETY: it was a box, whose owner the caller was.
        let page = unsafe { Box::from_raw(page.cast::<Scratch>().as_ptr()) };
        self.scratch().own().1.lock().push(page);
    }

    fn scratch(&self) -> &Striped<Mutex<Vec<Box<Scratch>>>, 32> {
        match &self.memory {
            Memory::OfStore(scratch) => scratch,
            Memory::Own(..) => unreachable!("frames of their own are changed in place"),
        }
    }

    /// Returns the number of frames.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.headers.len()
    }

    /// Takes a frame that has never had a page, if there is one. The caller holds the lock of the
    /// free frames.
    pub(super) fn take_unused(&self) -> Option<FrameId> {
        let frame = self.used.load(Ordering::Relaxed);
        if frame == self.count() {
            return None;
        }
        self.used.store(frame + 1, Ordering::Release);
        if frame + 1 == FIRST_HUGE {
            collapse_to_huge_pages(self.start, HUGE_PAGE);
        }
        Some(FrameId(frame as u32))
    }

    /// Returns every frame that has had a page: at least those of all pages that were changed by
    /// records that the caller knows of.
    pub(super) fn used_ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        (0..self.used.load(Ordering::Acquire) as u32).map(FrameId)
    }

    /// Returns every frame.
    #[cfg(all(test, not(duramen_loom)))]
    pub(super) fn ids(&self) -> impl Iterator<Item = FrameId> + use<> {
        // The page table also counts frames in 32 bits.
        (0..self.headers.len() as u32).map(FrameId)
    }

    /// Returns the header of `frame`.
    #[inline]
    pub(super) fn header(&self, frame: FrameId) -> &Header {
        &self.headers[frame.0 as usize]
    }

    /// Returns the address of the frame's bytes: [`PAGE_SIZE`] bytes, aligned to [`BLOCK_SIZE`],
    /// valid as long as `self`.
    #[inline]
    pub(super) fn page(&self, frame: FrameId) -> *const u8 {
        self.page_mut(frame).as_ptr()
    }

    /// Returns the address as [`Frames::page`] does, for [`super::Exclusive`].
    #[inline]
    pub(super) fn page_mut(&self, frame: FrameId) -> NonNull<u8> {
        assert!((frame.0 as usize) < self.headers.len());
        // SAFETY: there are as many frames as headers.
        unsafe { self.start.add(frame.0 as usize * PAGE_SIZE) }
    }

    /// Returns the frame's bytes.
    ///
    /// # Safety
    /// The caller holds the frame's latch, shared or exclusively, as long as the result is used,
    /// and makes no conflicting use of [`Frames::bytes_mut`].
    #[inline]
    pub(super) unsafe fn bytes(&self, frame: FrameId) -> &[u8] {
        // SAFETY: in bounds and initialised; the caller's latch keeps writers out.
        unsafe { std::slice::from_raw_parts(self.page(frame), PAGE_SIZE) }
    }

    /// Returns the frame's bytes for changes.
    ///
    /// # Panics
    /// When the frames are the store's memory.
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively as long as the result is used, and has no
    /// other reference to them.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the frame's latch says who may change its bytes")]
    pub(super) unsafe fn bytes_mut(&self, frame: FrameId) -> &mut [u8] {
        assert!(!self.are_the_store(), "the pages of the store are changed by its own means");
        // SAFETY: in bounds and initialised; the caller's latch keeps readers and writers out.
        unsafe { std::slice::from_raw_parts_mut(self.page_mut(frame).as_ptr(), PAGE_SIZE) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        if let Memory::Own(memory, layout) = self.memory {
            // SAFETY: allocated in `new` with this very layout.
            unsafe { dealloc(memory.as_ptr(), layout) }
        }
    }
}
