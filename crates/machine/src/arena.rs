//! The heap of a run: memory whose addresses, counted from where it begins, are the same on every
//! host.
//!
//! Which objects share a cache line decides much of what the model charges, so simulated threads
//! must not get their memory from the host's allocator. [`Allocator`] is the program's global
//! allocator: it serves simulated threads from the heap of their run and all other threads from the
//! system.
//!
//! Blocks are powers of two from 16 bytes up, aligned to their size (to a page at most), with one
//! free list for each size. A heap is thrown away as a whole: what a crashed run has left in it
//! needs no destructor.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// Address space of one heap.
pub(crate) const HEAP_BYTES: usize = 1 << 36;
/// Heaps that may exist at a time.
const HEAPS: usize = 48;
/// Alignment beyond which no block is aligned.
const MAX_ALIGN: usize = 4096;

thread_local! {
    /// The heap that this host thread allocates from at this moment, if it runs a simulated thread.
    static CURRENT: Cell<Option<NonNull<Heap>>> = const { Cell::new(None) };
}

/// Address space for all heaps: reserved once, so that one comparison tells whose a pointer is.
/// Each heap begins at a multiple of its size: programs hash addresses, and systems differ in how
/// they align what they map.
fn space() -> usize {
    static SPACE: OnceLock<usize> = OnceLock::new();
    *SPACE.get_or_init(|| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: reserves address space that nothing else uses; the result is checked.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), (HEAPS + 1) * HEAP_BYTES, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED, "no address space for simulated heaps");
        let base = (base as usize).next_multiple_of(HEAP_BYTES);
        SPACE_BASE.store(base as u64, Ordering::Release);
        base
    })
}

/// [`space`], without the initialisation: an allocator must not wait. Zero before.
static SPACE_BASE: AtomicU64 = AtomicU64::new(0);
/// Heaps in use, a bit each.
static IN_USE: AtomicU64 = AtomicU64::new(0);

/// Memory for the simulated threads of one run.
#[derive(Debug)]
pub(crate) struct Heap {
    index: usize,
    base: usize,
    /// First byte never handed out.
    next: usize,
    /// Heads of the free lists by the logarithm of the block's size; a free block holds the next
    /// one's address.
    free: [usize; 48],
}

impl Heap {
    /// Returns an empty heap.
    pub(crate) fn new() -> Box<Self> {
        let space = space();
        let index = loop {
            let in_use = IN_USE.load(Ordering::Acquire);
            let index = (!in_use).trailing_zeros() as usize;
            assert!(index < HEAPS, "more than {HEAPS} simulated heaps at a time");
            if IN_USE.compare_exchange(in_use, in_use | 1 << index, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                break index;
            }
        };
        let base = space + index * HEAP_BYTES;
        protect(base, libc::PROT_READ | libc::PROT_WRITE);
        Box::new(Self { index, base, next: base, free: [0; 48] })
    }

    /// Returns where it begins.
    pub(crate) fn base(&self) -> usize {
        self.base
    }

    /// Returns the number of bytes of address space taken so far.
    pub(crate) fn used(&self) -> usize {
        self.next - self.base
    }

    /// Returns a block and whether it has never been used, that is, holds zeros.
    fn allocate(&mut self, layout: Layout) -> (*mut u8, bool) {
        let size = block_size(layout);
        let list = &mut self.free[size.trailing_zeros() as usize];
        if *list != 0 {
            let block = *list;
            // SAFETY: a free block of ours is at least 16 bytes long and holds the next one's
            // address.
            *list = unsafe { *(block as *const usize) };
            return (block as *mut u8, false);
        }
        let block = self.next.next_multiple_of(size.min(MAX_ALIGN));
        if block + size > self.base + HEAP_BYTES {
            return (std::ptr::null_mut(), false);
        }
        self.next = block + size;
        (block as *mut u8, true)
    }

    fn free(&mut self, block: *mut u8, layout: Layout) {
        let list = &mut self.free[block_size(layout).trailing_zeros() as usize];
        // SAFETY: the block is free, ours, aligned to 16 and at least 16 bytes long.
        unsafe { *block.cast::<usize>() = *list };
        *list = block as usize;
    }
}

/// Memory that simulated threads have mapped: address, length, and the heap of their run.
static MAPPED: Mutex<Vec<(usize, usize, usize)>> = Mutex::new(Vec::new());

/// Records memory that a simulated thread has mapped: if the run ends before it is unmapped, it is
/// unmapped with the run.
pub(crate) fn own(base: usize, len: usize) {
    let Some(current) = switch(None) else { return };
    // SAFETY: the heap outlives the run that has set it, and only this host thread uses it.
    let index = unsafe { current.as_ref() }.index;
    MAPPED.lock().expect("nobody panics with it locked").push((base, len, index));
    switch(Some(current));
}

/// Removes the record of the memory mapped at `base`, which is about to be unmapped.
pub(crate) fn disown(base: usize) {
    let heap = switch(None);
    MAPPED.lock().expect("nobody panics with it locked").retain(|mapped| mapped.0 != base);
    switch(heap);
}

impl Drop for Heap {
    fn drop(&mut self) {
        MAPPED.lock().expect("nobody panics with it locked").retain(|&(base, len, heap)| {
            if heap == self.index {
                // SAFETY: mapped by a thread of the run, which is over, and not unmapped since, or
                // it were not noted here.
                unsafe { libc::munmap(base as *mut libc::c_void, len) };
            }
            heap != self.index
        });
        protect(self.base, libc::PROT_NONE);
        IN_USE.fetch_and(!(1 << self.index), Ordering::AcqRel);
    }
}

/// Maps the address space of a heap anew, empty.
fn protect(base: usize, protection: libc::c_int) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: replaces a range of our own reservation, in which nothing is used any more.
    let mapped = unsafe { libc::mmap(base as *mut libc::c_void, HEAP_BYTES, protection, flags, -1, 0) };
    assert_eq!(mapped as usize, base, "a range of the reservation can be mapped");
}

fn block_size(layout: Layout) -> usize {
    assert!(layout.align() <= MAX_ALIGN, "simulated memory is aligned to a page at most");
    layout.size().max(layout.align()).max(16).next_power_of_two()
}

/// The global allocator of every program that simulates:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: duramen_machine::Allocator = duramen_machine::Allocator;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// Allocates from `heap` from now on, or from the system again; returns what was there before.
pub(crate) fn switch(heap: Option<NonNull<Heap>>) -> Option<NonNull<Heap>> {
    CURRENT.replace(heap)
}

fn is_ours(pointer: *mut u8) -> bool {
    let base = SPACE_BASE.load(Ordering::Relaxed) as usize;
    base != 0 && (pointer as usize).wrapping_sub(base) < HEAPS * HEAP_BYTES
}

// SAFETY: blocks come from `Heap`, which never hands out overlapping ones, or from the system;
// `is_ours` tells them apart.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match CURRENT.get() {
            // SAFETY: the heap outlives the run that has set it, and only this host thread uses it.
            Some(mut heap) => unsafe { heap.as_mut() }.allocate(layout).0,
            // SAFETY: the caller's promise.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(mut heap) = CURRENT.get() else {
            // SAFETY: the caller's promise.
            return unsafe { System.alloc_zeroed(layout) };
        };
        // SAFETY: as in `alloc`.
        let (block, fresh) = unsafe { heap.as_mut() }.allocate(layout);
        if !fresh && !block.is_null() {
            // SAFETY: the block is at least as long as the layout.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_ours(pointer) {
            // SAFETY: not from a heap, so from the system; the rest is the caller's promise.
            return unsafe { System.dealloc(pointer, layout) };
        }
        if let Some(mut heap) = CURRENT.get() {
            // SAFETY: as in `alloc`.
            let heap = unsafe { heap.as_mut() };
            if (pointer as usize).wrapping_sub(heap.base) < HEAP_BYTES {
                heap.free(pointer, layout);
            }
        }
        // Otherwise the run is over: its heap goes as a whole.
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if !is_ours(pointer) && CURRENT.get().is_none() {
            // SAFETY: from the system and stays there; the rest is the caller's promise.
            return unsafe { System.realloc(pointer, layout, new_size) };
        }
        // SAFETY: the caller's promise.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if is_ours(pointer) && block_size(new) == block_size(layout) {
            return pointer;
        }
        // SAFETY: `new` is a layout of more than zero bytes, as the caller promises.
        let block = unsafe { self.alloc(new) };
        if !block.is_null() {
            // SAFETY: both blocks are at least so long, and they are different ones.
            unsafe {
                std::ptr::copy_nonoverlapping(pointer, block, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_reused_and_at_the_same_place_in_each_heap() {
        let mut offsets = Vec::new();
        for _ in 0..2 {
            let mut heap = Heap::new();
            assert!(heap.base().is_multiple_of(HEAP_BYTES), "a program that hashes addresses finds the same ones");
            let mut places = Vec::new();
            for size in [1, 16, 17, 100, 4096, 5000, 1 << 20] {
                let layout = Layout::from_size_align(size, 8).unwrap();
                let (block, fresh) = heap.allocate(layout);
                assert!(fresh);
                heap.free(block, layout);
                assert_eq!(heap.allocate(layout), (block, false));
                places.push(block as usize - heap.base());
            }
            assert_eq!(places[0] + 16, places[1], "small blocks share a line");
            offsets.push(places);
        }
        assert_eq!(offsets[0], offsets[1]);
    }

    #[test]
    fn alignment_is_kept() {
        let mut heap = Heap::new();
        heap.allocate(Layout::new::<u8>());
        let (block, _) = heap.allocate(Layout::from_size_align(8, 4096).unwrap());
        assert_eq!(block as usize % 4096, 0);
    }
}
