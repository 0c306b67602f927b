//! Whether the database is fit for use.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{OnceLock, Process};

use crate::error::{Error, Result};
use crate::lock::LockManager;
use crate::pool::Pool;

/// The first failure of the disk, and whether the database was closed. After a failed write or sync
/// nobody knows what is on disk: the database is out of service until it has been reopened and
/// recovered. In a fork of the process that has opened it, it is out of service for good: nothing
/// of it is touched there, not even a mutex, since the thread that held it may not be there.
#[derive(Debug, Default)]
pub(crate) struct Health {
    unfit: AtomicBool,
    failure: OnceLock<String>,
    closed: AtomicBool,
    /// The one that opened the database.
    process: Process,
}

impl Health {
    /// Refuses what an unfit or closed database must not do.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.unfit.load(Ordering::Acquire) || self.is_forked() { Err(self.reason()) } else { Ok(()) }
    }

    /// Refuses what a forked process must not do.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Whether this is not the process that opened the database.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    #[cold]
    fn reason(&self) -> Error {
        match self.failure.get() {
            _ if self.is_forked() => Error::Forked,
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

/// What has to hear of a failure: nobody may use the database from then on.
#[derive(Clone, Copy)]
pub(crate) struct Failures<'e> {
    pub(crate) health: &'e Health,
    pub(crate) pool: &'e Pool,
    pub(crate) locks: &'e LockManager,
}

impl Failures<'_> {
    /// Looks at an error on its way to the caller: after a failure of the disk the database is out
    /// of service.
    pub(crate) fn note(&self, error: Error) -> Error {
        match &error {
            Error::Io { reason } | Error::Poisoned { reason } if !self.health.is_closed() => self.fail(reason),
            _ => {}
        }
        error
    }

    /// Puts the database out of service. Waiting transactions are woken: what they wait for may
    /// never be released.
    pub(crate) fn fail(&self, reason: &str) {
        self.pool.poison(reason);
        let first = self.health.fail(reason);
        // Once: a transaction may meet the failure again and again, and to close the locks is to
        // look at all of them.
        if first {
            self.locks.close();
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
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
