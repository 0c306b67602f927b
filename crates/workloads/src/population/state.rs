//! What the loader threads share.

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::thread::Parker;

use crate::error::Error;

/// What the loader threads share.
#[derive(Default)]
pub(super) struct LoadState {
    pub(super) next_portion: AtomicU64,
    pub(super) present: AtomicU64,
    pub(super) written: AtomicU64,
    stop: AtomicBool,
    pub(super) failure: Mutex<Option<Error>>,
    /// Unparked by a loader that is done.
    pub(super) waiter: Parker,
}

impl LoadState {
    /// Returns whether a loader has failed.
    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Notes rows written.
    pub(super) fn wrote(&self, rows: u64) {
        self.written.fetch_add(rows, Ordering::Relaxed);
    }

    /// Notes rows that were there before.
    pub(super) fn found(&self, rows: u64) {
        self.present.fetch_add(rows, Ordering::Relaxed);
    }

    /// Stops the loaders because of an error.
    pub(super) fn fail(&self, error: Error) {
        self.failure.lock().get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }
}
