//! What a thread does before it waits for another one, perhaps for long.

use std::fmt;

/// A function that is called then; nothing by default.
#[derive(Default)]
pub(crate) struct BeforeWaits(Option<Box<dyn Fn() + Send + Sync>>);

impl BeforeWaits {
    /// Has `f` called.
    pub(crate) fn new(f: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(f)))
    }

    /// The caller is about to wait.
    pub(crate) fn call(&self) {
        if let Some(f) = &self.0 {
            f();
        }
    }
}

impl fmt::Debug for BeforeWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BeforeWaits")
    }
}
