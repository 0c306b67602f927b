//! Shared memory in stripes, each of which few threads use, so that its cache lines stay in their
//! caches.

use crate::CachePadded;
use crate::imp::thread;

/// `N` values, a power of two, on separate cache lines.
#[derive(Debug)]
pub struct Striped<T, const N: usize>([CachePadded<T>; N]);

impl<T: Default, const N: usize> Default for Striped<T, N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| CachePadded::default()))
    }
}

impl<T, const N: usize> Striped<T, N> {
    /// Returns the value of the calling thread, and its number.
    #[inline]
    pub fn own(&self) -> (usize, &T) {
        let number = stripe(N);
        (number, &self.0[number])
    }

    /// Returns the value with this number.
    #[inline]
    pub fn at(&self, number: usize) -> &T {
        &self.0[number]
    }

    /// Returns all values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|stripe| &**stripe)
    }
}

/// Returns a number below `of`, a power of two: the same for a thread each time, and mostly a
/// different one for each of a few threads.
#[inline]
pub fn stripe(of: usize) -> usize {
    stripe_of(thread::id(), of)
}

/// Returns the stripe of the thread with this number.
#[inline]
pub fn stripe_of(thread: u64, of: usize) -> usize {
    // Fibonacci hashing: the numbers of threads count up.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    debug_assert!(of.is_power_of_two(), "stripes are found with a shift");
    // Two shifts: with one stripe, a single shift by 64 would not shift at all.
    (thread.wrapping_mul(SPREAD) >> (63 - of.ilog2()) >> 1) as usize
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn threads_spread_over_all_stripes() {
        assert_eq!(stripe(1), 0);
        assert_eq!(stripe(64), stripe(64));
        let barrier = std::sync::Barrier::new(64);
        let used: BTreeSet<usize> = std::thread::scope(|scope| {
            let look = || {
                barrier.wait();
                stripe(4)
            };
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(look)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(used.len() > 1 || cfg!(duramen_machine), "{used:?}");
        assert!(used.iter().all(|stripe| *stripe < 4));
    }

    #[test]
    fn a_thread_finds_its_own_again() {
        let counts = Striped::<std::cell::Cell<u32>, 8>::default();
        for _ in 0..3 {
            let (number, own) = counts.own();
            own.set(own.get() + 1);
            assert!(std::ptr::eq(own, counts.at(number)));
        }
        assert_eq!(counts.iter().map(std::cell::Cell::get).max(), Some(3));
    }
}
