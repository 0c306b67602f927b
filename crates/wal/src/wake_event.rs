//! The event for which a background thread waits.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread::Parker;

/// Wakes one background thread. A wake-up that comes before the thread parks is kept; wake-ups do
/// not add up.
#[derive(Debug, Default)]
pub(crate) struct WakeEvent {
    parker: Parker,
    stop: AtomicBool,
}

impl WakeEvent {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wake(&self) {
        self.parker.unpark();
    }

    /// Makes the thread end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.parker.unpark();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Parks for the whole `time`, however often the thread is woken, unless the thread must end.
    pub(crate) fn wait_out(&self, time: Duration) {
        let begun = Instant::now();
        while !self.is_stopped()
            && let Some(rest) = time.checked_sub(begun.elapsed()).filter(|rest| !rest.is_zero())
        {
            self.parker.park_timeout(rest);
        }
    }

    /// Parks until the thread is woken, for at most `timeout` if there is one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        let Some(timeout) = timeout else { return self.parker.park() };
        self.parker.park_timeout(timeout);
    }
}
