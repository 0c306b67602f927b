//! The page table: it maps a page number to a frame.
//!
//! Page numbers are dense, so the table is an array with two levels: a fixed top of pointers to
//! chunks, and chunks of entries. A chunk is allocated when one of its pages is first requested,
//! and stays until the table is dropped. A look-up is two loads and takes no lock. An entry is the
//! frame's number plus 1, or 0 when the page is not in the pool. The bit [`WRITTEN`] is independent
//! of the frame. It stays once it is set, and says that the page was written since the table was
//! made.
//!
//! An entry's frame changes in two ways. The thread that holds a new frame exclusively changes it
//! from 0 by a CAS. The holder of that frame's exclusive latch changes it back to 0. So a page is
//! never in two frames. A page that is being read from disk is already in the table, and its frame
//! is latched exclusively.

use duramen_sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use duramen_types::PageId;

use super::frames::FrameId;
use crate::zeroed::zeroed;

// A model has a handful of pages, and every atomic makes it slower.
const CHUNK_BITS: u32 = if cfg!(duramen_loom) { 2 } else { 16 };
const CHUNK: usize = 1 << CHUNK_BITS;
const TOP: usize = if cfg!(duramen_loom) { 1 } else { 1 << 15 };

type Chunk = [AtomicU32];

/// The bit of an entry that is set once the page has been written.
const WRITTEN: u32 = 1 << 31;

/// The table.
#[derive(Debug)]
pub(super) struct PageTable {
    /// Each pointer is null or points to a leaked boxed slice of `CHUNK` entries.
    top: Box<[AtomicPtr<AtomicU32>]>,
}

impl PageTable {
    /// Pages from this number on cannot exist (16 TiB).
    pub(super) const LIMIT: PageId = PageId::new((TOP * CHUNK) as u64);

    /// A frame number from this one on would overlap the bit.
    pub(super) const FRAME_LIMIT: usize = WRITTEN as usize - 1;

    /// Creates a table without pages.
    pub(super) fn new() -> Self {
        Self { top: zeroed(TOP) }
    }

    /// Returns the frame that held `page` a moment ago.
    ///
    /// # Panics
    /// When `page` is not below [`PageTable::LIMIT`].
    #[inline]
    pub(super) fn get(&self, page: PageId) -> Option<FrameId> {
        let chunk = self.top[(page.get() >> CHUNK_BITS) as usize].load(Ordering::Acquire);
        if chunk.is_null() {
            return None;
        }
        // SAFETY: a pointer in `top` points to `CHUNK` entries that live as long as the table, and
        // the index is below that.
        let entry = unsafe { &*chunk.add(page.get() as usize % CHUNK) };
        frame_of(entry.load(Ordering::Acquire))
    }

    /// Puts `page` into `frame`, which the caller holds exclusively, unless it is in the pool
    /// already.
    pub(super) fn try_insert(&self, page: PageId, frame: FrameId) -> bool {
        let entry = self.entry(page);
        // Only pages in the pool are written, so the bit does not change while the page has no
        // frame.
        let before = entry.load(Ordering::Relaxed) & WRITTEN;
        let after = before | (frame.get() + 1);
        entry.compare_exchange(before, after, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Takes `page` out of `frame`, which the caller holds exclusively.
    pub(super) fn remove(&self, page: PageId, frame: FrameId) {
        let before = self.entry(page).fetch_and(WRITTEN, Ordering::AcqRel);
        assert_eq!(frame_of(before), Some(frame), "{page} was in another frame than its header says");
    }

    /// Records that `page`, which is in the pool, has been written.
    pub(super) fn note_written(&self, page: PageId) {
        self.entry(page).fetch_or(WRITTEN, Ordering::AcqRel);
    }

    /// Returns whether `page` has been written.
    pub(super) fn is_written(&self, page: PageId) -> bool {
        self.entry(page).load(Ordering::Acquire) & WRITTEN != 0
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
        let fresh: Box<Chunk> = zeroed(CHUNK);
        let fresh = Box::into_raw(fresh).cast::<AtomicU32>();
        match slot.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: made from a box above, and no other thread has seen it.
                unsafe { Self::free(fresh) };
                other
            }
        }
    }

    /// # Safety
    /// `chunk` came from `install`, and no thread uses it any more.
    unsafe fn free(chunk: *mut AtomicU32) {
        // SAFETY: the caller's promise; `install` made it from a boxed slice of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(chunk, CHUNK)) });
    }
}

/// Returns the frame in an entry.
#[inline]
fn frame_of(entry: u32) -> Option<FrameId> {
    (entry & !WRITTEN).checked_sub(1).map(FrameId::new)
}

impl Drop for PageTable {
    fn drop(&mut self) {
        for slot in &self.top {
            let chunk = slot.load(Ordering::Relaxed);
            if !chunk.is_null() {
                // SAFETY: no other thread has the table any more.
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
            assert!(!table.is_written(page));
            table.note_written(page);
            assert_eq!(table.get(page), Some(FrameId::new(7)));
            table.remove(page, FrameId::new(7));
            assert_eq!(table.get(page), None);
            assert!(table.is_written(page));
            assert!(table.try_insert(page, FrameId::new(9)));
            assert_eq!(table.get(page), Some(FrameId::new(9)));
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
