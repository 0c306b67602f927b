//! Where a page is: page number to frame.
//!
//! Page numbers are dense, so the table is an array, in two levels: a fixed top of pointers to chunks, and chunks of
//! entries that are allocated when a page of theirs is first asked for and stay until the table goes away. A look-up is
//! two loads and takes no lock. An entry is the frame's number plus 1, or 0 when the page is not in the pool.
//!
//! Who changes an entry: from 0 by the CAS of the thread that holds the new frame exclusively; back to 0 by the holder
//! of that frame's exclusive latch. So a page is never in two frames. A page that is being read from disk is in the
//! table already, its frame latched exclusively.

use duramen_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use duramen_types::PageId;

use super::frames::FrameId;

// A model has a handful of pages, and pays for every atomic.
const CHUNK_BITS: u32 = if cfg!(loom) { 2 } else { 16 };
const CHUNK: usize = 1 << CHUNK_BITS;
const TOP: usize = if cfg!(loom) { 1 } else { 1 << 15 };

type Chunk = [AtomicU32];

/// The table.
#[derive(Debug)]
pub(super) struct PageTable {
    /// Each null or a leaked boxed slice of `CHUNK` entries.
    top: Box<[AtomicPtr<AtomicU32>]>,
}

impl PageTable {
    /// Pages from this number on cannot exist (16 TiB).
    pub(super) const LIMIT: PageId = PageId::new((TOP * CHUNK) as u64);

    /// A table without pages.
    pub(super) fn new() -> Self {
        Self { top: (0..TOP).map(|_| AtomicPtr::default()).collect() }
    }

    /// The frame that had `page` a moment ago.
    ///
    /// # Panics
    /// When `page` is not below [`PageTable::LIMIT`].
    #[inline]
    pub(super) fn get(&self, page: PageId) -> Option<FrameId> {
        let chunk = self.top[(page.get() >> CHUNK_BITS) as usize].load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a pointer in `top` is to `CHUNK` entries that live as long as the table, and the index is below that.
        let entry = unsafe { &*chunk.add(page.get() as usize % CHUNK) };
        entry.load(Ordering::Acquire).checked_sub(1).map(FrameId::new)
    }

    /// Puts `page` into `frame`, which the caller holds exclusively, unless it is in the pool already.
    pub(super) fn try_insert(&self, page: PageId, frame: FrameId) -> bool {
        self.entry(page).compare_exchange(0, frame.get() + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes `page` out of `frame`, which the caller holds exclusively.
    pub(super) fn remove(&self, page: PageId, frame: FrameId) {
        let before = self.entry(page).swap(0, Ordering::AcqRel);
        assert_eq!(before, frame.get() + 1, "{page} was in another frame than its header says");
    }

    fn entry(&self, page: PageId) -> &AtomicU32 {
        let slot = &self.top[(page.get() >> CHUNK_BITS) as usize];
        let mut chunk = slot.load(Ordering::Acquire);
        if chunk.is_null() {
            chunk = Self::install(slot);
        }
        // SAFETY: as in `get`.
        unsafe { &*chunk.add(page.get() as usize % CHUNK) }
    }

    #[cold]
    fn install(slot: &AtomicPtr<AtomicU32>) -> *mut AtomicU32 {
        let fresh: Box<Chunk> = (0..CHUNK).map(|_| AtomicU32::new(0)).collect();
        let fresh = Box::into_raw(fresh).cast::<AtomicU32>();
        match slot.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: made from a box above, and nobody else has seen it.
                unsafe { Self::free(fresh) };
                other
            }
        }
    }

    /// # Safety
    /// `chunk` came from `install`, and nobody uses it any more.
    unsafe fn free(chunk: *mut AtomicU32) {
        // SAFETY: the caller's promise; `install` made it from a boxed slice of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(chunk, CHUNK)) });
    }
}

impl Drop for PageTable {
    fn drop(&mut self) {
        for slot in &self.top {
            let chunk = slot.load(Ordering::Relaxed);
            if !chunk.is_null() {
                // SAFETY: nobody else has the table any more.
                unsafe { Self::free(chunk) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_in_one_frame() {
        let table = PageTable::new();
        for raw in [1, 2, CHUNK as u64 - 1, CHUNK as u64, PageTable::LIMIT.get() - 1] {
            let page = PageId::new(raw);
            assert_eq!(table.get(page), None);
            assert!(table.try_insert(page, FrameId::new(7)));
            assert!(!table.try_insert(page, FrameId::new(8)));
            assert_eq!(table.get(page), Some(FrameId::new(7)));
            table.remove(page, FrameId::new(7));
            assert_eq!(table.get(page), None);
        }
    }

    #[test]
    #[should_panic(expected = "another frame")]
    fn only_the_frame_that_has_the_page_lets_go_of_it() {
        let table = PageTable::new();
        table.try_insert(PageId::new(3), FrameId::new(1));
        table.remove(PageId::new(3), FrameId::new(2));
    }
}
