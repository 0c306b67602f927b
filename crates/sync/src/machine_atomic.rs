//! Atomic variables whose operations the simulated machine orders and charges.

use std::fmt;

use duramen_machine::shared;

use Ordering::SeqCst;
pub use std::sync::atomic::Ordering;

/// Orders memory operations; a full fence costs what the machine's description states, others
/// nothing.
#[inline]
pub fn fence(order: Ordering) {
    if order == SeqCst {
        shared::fence();
    }
}

macro_rules! atomic {
    ($name:ident, $value:ty $(, $operation:ident)*) => {
        #[doc = concat!("As `std::sync::atomic::", stringify!($name), "`.")]
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(std::sync::atomic::$name);

        #[allow(missing_docs, reason = "these are the methods of the standard library")]
        impl $name {
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }

            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            pub const fn as_ptr(&self) -> *mut $value {
                self.0.as_ptr()
            }

            #[inline]
            pub fn load(&self, _: Ordering) -> $value {
                shared::load(self);
                self.0.load(SeqCst)
            }

            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                if order == SeqCst {
                    shared::update(self);
                } else {
                    shared::store(self);
                }
                self.0.store(value, SeqCst);
            }

            #[inline]
            pub fn swap(&self, value: $value, _: Ordering) -> $value {
                shared::update(self);
                self.0.swap(value, SeqCst)
            }

            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                _: Ordering,
                _: Ordering,
            ) -> Result<$value, $value> {
                shared::update(self);
                self.0.compare_exchange(current, new, SeqCst, SeqCst)
            }

            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }

            #[inline]
            pub fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                mut f: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut value = self.load(fetch);
                while let Some(new) = f(value) {
                    match self.compare_exchange(value, new, set, fetch) {
                        Ok(value) => return Ok(value),
                        Err(now) => value = now,
                    }
                }
                Err(value)
            }

            $(
                #[inline]
                pub fn $operation(&self, value: $value, _: Ordering) -> $value {
                    shared::update(self);
                    self.0.$operation(value, SeqCst)
                }
            )*
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$value> for $name {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

atomic!(AtomicBool, bool, fetch_and, fetch_or, fetch_xor);
atomic!(AtomicU8, u8, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
atomic!(AtomicU16, u16, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
atomic!(AtomicU32, u32, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
atomic!(AtomicI64, i64, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
atomic!(AtomicU64, u64, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);
atomic!(AtomicUsize, usize, fetch_add, fetch_sub, fetch_and, fetch_or, fetch_xor, fetch_max, fetch_min);

/// Corresponds to `std::sync::atomic::AtomicPtr`.
#[repr(transparent)]
pub struct AtomicPtr<T>(std::sync::atomic::AtomicPtr<T>);

#[allow(missing_docs, reason = "these are the methods of the standard library")]
impl<T> AtomicPtr<T> {
    pub const fn new(pointer: *mut T) -> Self {
        Self(std::sync::atomic::AtomicPtr::new(pointer))
    }

    pub fn get_mut(&mut self) -> &mut *mut T {
        self.0.get_mut()
    }

    #[inline]
    pub fn load(&self, _: Ordering) -> *mut T {
        shared::load(self);
        self.0.load(SeqCst)
    }

    #[inline]
    pub fn store(&self, pointer: *mut T, order: Ordering) {
        if order == SeqCst {
            shared::update(self);
        } else {
            shared::store(self);
        }
        self.0.store(pointer, SeqCst);
    }

    #[inline]
    pub fn swap(&self, pointer: *mut T, _: Ordering) -> *mut T {
        shared::update(self);
        self.0.swap(pointer, SeqCst)
    }

    #[inline]
    pub fn compare_exchange(&self, current: *mut T, new: *mut T, _: Ordering, _: Ordering) -> Result<*mut T, *mut T> {
        shared::update(self);
        self.0.compare_exchange(current, new, SeqCst, SeqCst)
    }

    #[inline]
    pub fn compare_exchange_weak(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        self.compare_exchange(current, new, success, failure)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

impl<T> fmt::Debug for AtomicPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
