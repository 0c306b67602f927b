//! What a thread does before it blocks, perhaps for long.

use std::fmt;

/// A function that a thread calls before it blocks; does nothing by default.
#[derive(Default)]
pub(crate) struct PreBlockHook(Option<Box<dyn Fn() + Send + Sync>>);

impl PreBlockHook {
    /// Creates a hook that calls `f`.
    pub(crate) fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(f)))
    }

    /// Calls the function; the caller is about to block.
    pub(crate) fn call(&self) {
        if let Some(f) = &self.0 {
            f();
        }
    }
}

impl fmt::Debug for PreBlockHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreBlockHook")
    }
}
