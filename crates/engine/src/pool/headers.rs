//! The header of a frame, and the headers of all frames. A native build takes the memory of a
//! header from the system when the frame is first used: a pool has a header of 128 bytes for each
//! frame, and a small database uses few frames.

use std::ops::Deref;

use duramen_sync::CachePadded;
use duramen_sync::atomic::{AtomicBool, AtomicU64};

use super::latch::Latch;
use super::recovery_gsn::RecoveryGsn;
use super::staged_lines::StagedLines;

/// The state of a frame and of the page in it.
#[derive(Debug)]
pub(super) struct Header {
    /// Guards the frame's bytes, and the fields below as their comments say.
    pub(super) latch: Latch,
    /// The page in the frame, or 0 for none. Changes only under the exclusive latch, in a section
    /// that increments the version.
    pub(super) page: AtomicU64,
    /// Whether the page is dirty, and from which log record on.
    pub(super) recovery_gsn: RecoveryGsn,
    /// The lines that wait for a batch, if the store is staged.
    pub(super) staged: StagedLines,
    /// Whether the page was used since the eviction clock last passed.
    pub(super) referenced: AtomicBool,
    /// The sequence number of this page's arrival among all pages ever brought into a frame.
    /// Changes under the same rule as `page`.
    pub(super) arrival: AtomicU64,
    /// Combines the arrivals of the page and of the page that it was last found to be a child of;
    /// see [`super::Optimistic::is_known_child_of`].
    pub(super) child_of: AtomicU64,
}

impl Header {
    #[cfg_attr(not(any(test, duramen_loom, duramen_machine)), allow(dead_code, reason = "zeros are a new header"))]
    pub(super) fn new() -> Self {
        Self {
            latch: Latch::new(),
            page: AtomicU64::new(0),
            recovery_gsn: RecoveryGsn::new(),
            staged: StagedLines::default(),
            referenced: AtomicBool::new(false),
            arrival: AtomicU64::new(0),
            child_of: AtomicU64::new(0),
        }
    }
}

type Slot = CachePadded<Header>;

/// The headers of all frames.
#[derive(Debug)]
pub(super) struct Headers(imp::Slots);

impl Headers {
    /// Makes `count` headers of empty frames. Returns `None` when the system cannot provide the
    /// memory.
    pub(super) fn new(count: usize) -> Option<Self> {
        imp::Slots::new(count).map(Self)
    }
}

impl Deref for Headers {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        &self.0
    }
}

// The documents state what the headers take where each page of a store has one.
#[cfg(all(target_arch = "x86_64", not(any(duramen_loom, duramen_machine))))]
const _: () = assert!(size_of::<CachePadded<Header>>() == 128);

#[cfg(not(any(duramen_loom, duramen_machine)))]
mod imp {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ops::Deref;
    use std::ptr::NonNull;

    use super::Slot;

    // Dropping the memory is enough.
    const _: () = assert!(!std::mem::needs_drop::<Slot>());

    /// Memory of zeros from the system, which is what a new header is.
    #[derive(Debug)]
    pub(super) struct Slots {
        memory: NonNull<u8>,
        layout: Layout,
        /// The first address in `memory` with the required alignment.
        start: NonNull<Slot>,
        count: usize,
    }

    // SAFETY: the memory belongs to this value, and headers can be shared between threads.
    unsafe impl Send for Slots {}
    // SAFETY: as above.
    unsafe impl Sync for Slots {}

    impl Slots {
        pub(super) fn new(count: usize) -> Option<Self> {
            // Requesting a longer piece with byte alignment lets the allocator take fresh zero
            // pages from the system without touching them.
            let len = count.checked_mul(size_of::<Slot>())?.checked_add(align_of::<Slot>())?;
            let layout = Layout::array::<u8>(len).ok()?;
            // SAFETY: the size is not zero.
            let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
            let skip = memory.as_ptr().align_offset(align_of::<Slot>());
            // SAFETY: `skip` is less than the alignment, by which the memory is longer than the
            // headers.
            let start = unsafe { memory.add(skip) }.cast();
            Some(Self { memory, layout, start, count })
        }
    }

    impl Deref for Slots {
        type Target = [Slot];

        #[inline]
        fn deref(&self) -> &[Slot] {
            // SAFETY: `start` points to `count` headers that live as long as `self`. All fields of
            // a header are atomic integers and booleans, for which zeros are valid; zeros are also
            // what `Header::new` gives them.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }
    }

    impl Drop for Slots {
        fn drop(&mut self) {
            // SAFETY: allocated in `new` with this very layout.
            unsafe { dealloc(self.memory.as_ptr(), self.layout) }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::pool::headers::Header;

        #[test]
        fn zeros_are_new_headers() {
            let slots = Slots::new(3).unwrap();
            assert_eq!(slots.len(), 3);
            for slot in &*slots {
                assert!(std::ptr::from_ref(slot).is_aligned());
                assert_eq!(format!("{slot:?}"), format!("{:?}", Slot::new(Header::new())));
            }
        }
    }
}

#[cfg(any(duramen_loom, duramen_machine))]
mod imp {
    use std::ops::Deref;

    use super::Slot;
    use crate::pool::headers::Header;

    #[derive(Debug)]
    pub(super) struct Slots(Box<[Slot]>);

    impl Slots {
        pub(super) fn new(count: usize) -> Option<Self> {
            let mut slots = Vec::new();
            slots.try_reserve_exact(count).ok()?;
            slots.extend((0..count).map(|_| Slot::new(Header::new())));
            Some(Self(slots.into()))
        }
    }

    impl Deref for Slots {
        type Target = [Slot];

        fn deref(&self) -> &[Slot] {
            &self.0
        }
    }
}
