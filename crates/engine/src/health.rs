//! Whether the database is fit for writing.

use duramen_sync::OnceLock;
use duramen_sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// The first failure of the disk, and whether the database was closed. After a failed write or sync nobody knows what is
/// on disk: the database is out of service until it has been reopened and recovered.
#[derive(Debug, Default)]
pub(crate) struct Health {
    unfit: AtomicBool,
    failure: OnceLock<String>,
    closed: AtomicBool,
}

impl Health {
    /// Refuses what an unfit or closed database must not do.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.unfit.load(Ordering::Acquire) { Err(self.reason()) } else { Ok(()) }
    }

    #[cold]
    fn reason(&self) -> Error {
        match self.failure.get() {
            Some(reason) => Error::Poisoned { reason: reason.clone() },
            None => Error::Closed,
        }
    }

    /// Puts the database out of service; the first reason is kept. Returns whether this is it.
    pub(crate) fn fail(&self, reason: &str) -> bool {
        let mut first = false;
        self.failure.get_or_init(|| {
            first = true;
            reason.to_owned()
        });
        self.unfit.store(true, Ordering::Release);
        first
    }

    /// Says that the database is closed.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.unfit.store(true, Ordering::Release);
    }

    /// Whether the database is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_counts() {
        let health = Health::default();
        health.check().unwrap();
        assert!(health.fail("a sync failed"));
        assert!(!health.fail("a write failed"));
        assert!(matches!(health.check(), Err(Error::Poisoned { reason }) if reason == "a sync failed"));
    }
}
