//! Whether the database is fit for use.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::{OnceLock, Process};
use duramen_types::event;

use crate::error::{Error, Result};
use crate::lock::LockManager;
use crate::pool::Pool;

/// Records the first failure of the disk, and whether the database was closed. After a failed write
/// or sync the contents of the disk are unknown: the database is out of service until it has been
/// reopened and recovered. In a fork of the process that opened it, the database is out of service
/// for good: the child touches nothing of it, not even a mutex, because the thread that held the
/// mutex may not exist there.
#[derive(Debug, Default)]
pub(crate) struct Health {
    unfit: AtomicBool,
    failure: OnceLock<String>,
    closed: AtomicBool,
    /// The process that opened the database.
    process: Process,
}

impl Health {
    /// Returns an error if the database is out of service or closed.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.unfit.load(Ordering::Acquire) || self.is_forked() { Err(self.reason()) } else { Ok(()) }
    }

    /// Returns an error in a forked process.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Returns whether this is not the process that opened the database.
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

    /// Puts the database out of service and keeps the first reason. Returns whether `reason` is the
    /// first.
    pub(crate) fn fail(&self, reason: &str) -> bool {
        let mut first = false;
        self.failure.get_or_init(|| {
            first = true;
            reason.to_owned()
        });
        self.unfit.store(true, Ordering::Release);
        first
    }

    /// Marks the database as closed.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.unfit.store(true, Ordering::Release);
    }

    /// Returns whether the database is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }
}

/// The parts that a failure must reach, so that no thread uses the database from then on.
#[derive(Clone, Copy)]
pub(crate) struct Failures<'e> {
    pub(crate) health: &'e Health,
    pub(crate) pool: &'e Pool,
    pub(crate) locks: &'e LockManager,
}

impl Failures<'_> {
    /// Examines an error on its way to the caller: a failure of the disk puts the database out of
    /// service.
    pub(crate) fn note(&self, error: Error) -> Error {
        match &error {
            Error::Io { reason } | Error::Poisoned { reason } if !self.health.is_closed() => self.fail(reason),
            _ => {}
        }
        error
    }

    /// Puts the database out of service. Waiting transactions are woken: the locks that they wait
    /// for may never be released.
    pub(crate) fn fail(&self, reason: &str) {
        self.pool.poison(reason);
        let first = self.health.fail(reason);
        // Only once: transactions may meet the failure again and again, and closing the lock
        // manager visits every lock.
        if first {
            event!(ERROR, "the database is out of service until it is opened again", reason = reason);
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
