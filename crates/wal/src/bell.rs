//! What a background thread sleeps at.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread::Parker;

/// Wakes one background thread. A ring that comes before the thread sleeps is kept; rings do not add up.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    parker: Parker,
    stop: AtomicBool,
}

impl Bell {
    /// A silent bell.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Wakes the thread.
    pub(crate) fn ring(&self) {
        self.parker.unpark();
    }

    /// Tells the thread to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.parker.unpark();
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Sleeps until the bell rings, no longer than `timeout` if there is one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        match timeout {
            Some(timeout) => {
                self.parker.park_timeout(timeout);
            }
            None => self.parker.park(),
        }
    }
}
