//! Words of memory that threads share: that of a file or a device, which is not a Rust object, or
//! [`Word`]s.
//!
//! Each operation reads or writes an aligned word as a whole, without ordering, as atomic
//! operations with `Relaxed` do. No model watches these operations, and the simulated machine does
//! not charge them: the calling code charges them by [`crate::cost`].

use std::sync::atomic::{AtomicU64, Ordering};

/// A word whose readers learn from something else that it was written: under a mutex, for example.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// Reads the word.
    #[inline(always)]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Writes the word.
    #[inline(always)]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Reads the word at `word`.
///
/// # Safety
/// The address is aligned to 8 bytes and mapped, and all other code that accesses the word uses
/// these operations.
#[inline(always)]
pub unsafe fn load(word: *const u64) -> u64 {
    // SAFETY: the caller guarantees the contract.
    unsafe { AtomicU64::from_ptr(word.cast_mut()) }.load(Ordering::Relaxed)
}

/// Writes the word at `word`.
///
/// # Safety
/// The conditions of [`load`] hold, and the memory is writable.
#[inline(always)]
pub unsafe fn store(word: *mut u64, value: u64) {
    // SAFETY: the caller guarantees the contract.
    unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Relaxed);
}

/// Replaces the bits of the word at `word` that are set in `mask` by those of `value`, in one step;
/// returns the new value.
///
/// # Safety
/// The conditions of [`store`] hold.
pub unsafe fn merge(word: *mut u64, mask: u64, value: u64) -> u64 {
    // SAFETY: the caller guarantees the contract.
    let word = unsafe { AtomicU64::from_ptr(word) };
    let merged = |before: u64| before & !mask | value & mask;
    let mut before = word.load(Ordering::Relaxed);
    while let Err(now) = word.compare_exchange_weak(before, merged(before), Ordering::Relaxed, Ordering::Relaxed) {
        before = now;
    }
    merged(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_outside_the_mask_stay() {
        let mut memory = 0x1111_1111_1111_1111_u64;
        let word = &raw mut memory;
        // SAFETY: the word is ours.
        unsafe {
            assert_eq!(merge(word, 0xFF00, 0x2222), 0x1111_1111_1111_2211);
            assert_eq!(load(word), 0x1111_1111_1111_2211);
            store(word, 7);
        }
        assert_eq!(memory, 7);
    }
}
