//! What a thread has measured for one experiment and keeps for others that judge the same.

use std::cell::RefCell;

use crate::error::Result;

/// Results by what they are of. A thread-local value.
#[derive(Debug)]
pub(crate) struct Kept<K, V>(RefCell<Vec<(K, V)>>);

impl<K: PartialEq, V: Clone> Kept<K, V> {
    /// Returns an empty one.
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(Vec::new()))
    }

    /// Returns the result of `key`, if it is there.
    pub(crate) fn find(&self, key: &K) -> Option<V> {
        self.0.borrow().iter().find(|(of, _)| of == key).map(|(_, value)| value.clone())
    }

    /// Returns the result of `key`, which `measure` gives if it is not there.
    pub(crate) fn find_or(&self, key: K, measure: impl FnOnce() -> Result<V>) -> Result<V> {
        if let Some(kept) = self.find(&key) {
            return Ok(kept);
        }
        let measured = measure()?;
        self.keep(key, measured.clone());
        Ok(measured)
    }

    /// Keeps the result of `key`.
    pub(crate) fn keep(&self, key: K, value: V) {
        self.0.borrow_mut().push((key, value));
    }
}
