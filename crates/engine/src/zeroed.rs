//! Large arrays that begin as zeros. A native build has them from the system as fresh pages, which
//! take no memory before they are used: a small database uses few of them. (Small arrays are filled
//! with zeros.)

use std::ops::Deref;

use duramen_sync::atomic::{AtomicPtr, AtomicU8, AtomicU32};

/// A type whose default value is all zeros in a native build.
///
/// # Safety
/// That is the case.
pub(crate) unsafe trait Zeroed: Default {}

// SAFETY: an atomic has the representation of its value.
unsafe impl Zeroed for AtomicU8 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above; the default is the null pointer, which is zero.
unsafe impl<T> Zeroed for AtomicPtr<T> {}

/// A fixed number of values.
#[derive(Debug)]
pub(crate) struct ZeroedSlice<T>(imp::Slice<T>);

impl<T: Zeroed> ZeroedSlice<T> {
    /// Makes `count` default values. Returns `None` when the system cannot provide the memory.
    pub(crate) fn new(count: usize) -> Option<Self> {
        imp::Slice::new(count).map(Self)
    }
}

impl<T> Deref for ZeroedSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// Returns `count` default values of a type that needs no alignment above that of every allocation.
#[cfg(not(any(duramen_loom, duramen_machine)))]
pub(crate) fn zeroed<T: Zeroed>(count: usize) -> Box<[T]> {
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

/// Returns `count` default values of a type that needs no alignment above that of every allocation.
#[cfg(any(duramen_loom, duramen_machine))]
pub(crate) fn zeroed<T: Zeroed>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
mod imp {
    use std::ops::Deref;
    use std::ptr::NonNull;

    use duramen_io::AlignedBuf;
    use duramen_types::BLOCK_SIZE;

    use super::Zeroed;

    #[derive(Debug)]
    pub(super) struct Slice<T> {
        /// A large one is a mapping of its own. An allocator may reuse memory, and would have to
        /// fill it with zeros.
        #[allow(dead_code, reason = "held for its drop")]
        memory: AlignedBuf,
        start: NonNull<T>,
        count: usize,
    }

    // SAFETY: the memory and the values belong to this value.
    unsafe impl<T: Send> Send for Slice<T> {}
    // SAFETY: shared access gives shared access to the values only.
    unsafe impl<T: Sync> Sync for Slice<T> {}

    impl<T: Zeroed> Slice<T> {
        pub(super) fn new(count: usize) -> Option<Self> {
            const { assert!(align_of::<T>() <= BLOCK_SIZE, "a buffer begins at a block boundary") }
            let memory = AlignedBuf::try_zeroed(count.checked_mul(size_of::<T>())?)?;
            let start = memory.start().cast();
            Some(Self { memory, start, count })
        }
    }

    impl<T> Deref for Slice<T> {
        type Target = [T];

        #[inline]
        fn deref(&self) -> &[T] {
            // SAFETY: `start` points to `count` values in `memory`. Only `new` makes a slice, and
            // zeros are valid values by the contract of `Zeroed`.
            unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
        }
    }

    impl<T> Drop for Slice<T> {
        fn drop(&mut self) {
            if std::mem::needs_drop::<T>() {
                // SAFETY: as in `deref`; nobody uses the values any more.
                unsafe { NonNull::slice_from_raw_parts(self.start, self.count).drop_in_place() }
            }
        }
    }
}

#[cfg(any(duramen_loom, duramen_machine))]
mod imp {
    use std::ops::Deref;

    use super::Zeroed;

    #[derive(Debug)]
    pub(super) struct Slice<T>(Box<[T]>);

    impl<T: Zeroed> Slice<T> {
        pub(super) fn new(count: usize) -> Option<Self> {
            let mut values = Vec::new();
            values.try_reserve_exact(count).ok()?;
            values.extend((0..count).map(|_| T::default()));
            Some(Self(values.into()))
        }
    }

    impl<T> Deref for Slice<T> {
        type Target = [T];

        fn deref(&self) -> &[T] {
            &self.0
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use duramen_sync::{Arc, Mutex};

    use super::*;

    #[derive(Default, Debug)]
    #[repr(align(64))]
    struct Counted(Mutex<Option<Arc<()>>>);

    // SAFETY: an unlocked mutex and an empty option of a reference are zero.
    unsafe impl Zeroed for Counted {}

    #[test]
    fn values_are_aligned_defaults_and_are_dropped() {
        let count = Arc::new(());
        let slice = ZeroedSlice::<Counted>::new(3).unwrap();
        assert_eq!(slice.len(), 3);
        assert!(slice.iter().all(|value| std::ptr::from_ref(value).is_aligned() && value.0.lock().is_none()));
        *slice[1].0.lock() = Some(Arc::clone(&count));
        assert_eq!(Arc::strong_count(&count), 2);
        drop(slice);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_large_slice_is_a_mapping_and_a_far_too_large_one_is_none() {
        let many = (1 << 20) / size_of::<Counted>();
        let slice = ZeroedSlice::<Counted>::new(many).unwrap();
        assert!(slice.iter().all(|value| value.0.lock().is_none()));
        let count = Arc::new(());
        *slice[many - 1].0.lock() = Some(Arc::clone(&count));
        drop(slice);
        assert_eq!(Arc::strong_count(&count), 1);
        for most in [usize::MAX, usize::MAX / size_of::<Counted>(), isize::MAX as usize / size_of::<Counted>()] {
            assert!(ZeroedSlice::<Counted>::new(most).is_none());
        }
    }
}
