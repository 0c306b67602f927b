//! How much memory a piece of work takes, where the program counts it: damage must not make the
//! engine take unlimited memory.
//!
//! The counts are the standard library's atomics and not those of `duramen_sync`: an allocator runs
//! below everything else.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, with a count of the bytes that are in use. A program installs it as its
/// global allocator.
pub struct Counting;

fn add(bytes: usize) {
    let in_use = IN_USE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(in_use, Ordering::Relaxed);
}

// SAFETY: everything is the system allocator's; the counts touch no memory of its.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// A piece of work under observation. Other threads' memory counts, too.
pub struct Watch(usize);

impl Watch {
    /// From now on.
    pub fn begin() -> Self {
        let in_use = IN_USE.load(Ordering::Relaxed);
        MOST.store(in_use, Ordering::Relaxed);
        Self(in_use)
    }

    /// By how many bytes the memory in use has grown at most; 0 in a program that does not count
    /// it.
    pub fn growth(&self) -> usize {
        MOST.load(Ordering::Relaxed).saturating_sub(self.0)
    }
}
