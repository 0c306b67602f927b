//! References to one value, counted in stripes.
//!
//! An [`Arc`] counts its references in one word. If every transaction takes a reference and drops
//! it, that word moves from processor to processor with every transaction, as a lock would that all
//! of them take. Here each stripe has a count, and a thread counts in a stripe that it shares with
//! few other threads.

use std::fmt;
use std::ops::Deref;

use crate::{Arc, CachePadded, stripe};

/// A power of two.
const STRIPES: usize = 32;

/// A value to which threads take references for a short time each. The value lives as long as this
/// or a reference does.
pub struct References<T> {
    value: Arc<T>,
    stripes: [Arc<CachePadded<Arc<T>>>; STRIPES],
}

impl<T> References<T> {
    /// Makes references to `value`.
    pub fn new(value: Arc<T>) -> Self {
        Self { stripes: std::array::from_fn(|_| Arc::new(CachePadded::new(Arc::clone(&value)))), value }
    }

    /// Takes a reference.
    #[inline]
    pub fn take(&self) -> Reference<T> {
        Reference(Arc::clone(&self.stripes[stripe(STRIPES)]))
    }
}

impl<T> Deref for References<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for References<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// A reference to the value. Any thread may hold it and drop it.
pub struct Reference<T>(Arc<CachePadded<Arc<T>>>);

impl<T> Clone for Reference<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for Reference<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Reference<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;
    use crate::Weak;

    #[test]
    fn a_value_lives_as_long_as_a_reference_to_it() {
        let value = Arc::new(7);
        let weak: Weak<i32> = Arc::downgrade(&value);
        let references = References::new(value);
        let first = references.take();
        let second = first.clone();
        drop(references);
        drop(first);
        let thread = std::thread::spawn(move || *second);
        assert_eq!(thread.join().unwrap(), 7);
        assert!(weak.upgrade().is_none(), "the last one is gone");
    }
}
