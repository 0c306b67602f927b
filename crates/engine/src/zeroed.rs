//! Arrays of atomics that begin as zeros. A native build has them from the system as fresh pages,
//! which take no memory before they are used.

use duramen_sync::atomic::{AtomicPtr, AtomicU32};

/// A type whose default value is all zeros in a native build, and that has no alignment above that
/// of every allocation.
///
/// # Safety
/// That is the case.
pub(super) unsafe trait Zeroed: Default {}

// SAFETY: an atomic has the representation of its value.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above; the default is the null pointer, which is zero.
unsafe impl<T> Zeroed for AtomicPtr<T> {}

/// Returns `count` default values.
#[cfg(not(any(duramen_loom, duramen_machine)))]
pub(super) fn zeroed<T: Zeroed>(count: usize) -> Box<[T]> {
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

    let layout = Layout::array::<T>(count).expect("tables are far smaller than the address space");
    assert!(layout.size() > 0, "a table has entries");
    // SAFETY: the size is not zero.
    let memory = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: allocated for exactly this slice; zeros are valid values by the contract of `Zeroed`.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(memory, count)) }
}

/// Returns `count` default values.
#[cfg(any(duramen_loom, duramen_machine))]
pub(super) fn zeroed<T: Zeroed>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}
