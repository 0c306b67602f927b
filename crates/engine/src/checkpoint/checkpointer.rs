//! The schedule of checkpoints, and the thread that takes them.

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::thread::{self, JoinHandle, Parker};
use duramen_sync::{Arc, Mutex, MutexGuard, Weak};
use duramen_types::Gsn;

use crate::maintenance::Maintenance;
use crate::scheme::LogService;

/// Decides when a checkpoint is due, and takes one at a time.
#[derive(Debug, Default)]
pub(crate) struct Checkpointer {
    /// Locked while a checkpoint is taken. Holds the log space reserved for the next one, in bytes.
    running: Mutex<u64>,
    /// The log has not grown enough for the next checkpoint before it reaches this GSN.
    due: AtomicU64,
    /// The bytes that have to be behind this GSN for the next checkpoint.
    awaited: Mutex<(Gsn, u64)>,
    parker: Arc<Parker>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Checkpointer {
    /// Starts the thread that takes checkpoints when they are due.
    pub(crate) fn start(&self, maintenance: Weak<dyn Maintenance>) -> std::io::Result<()> {
        let (parker, stop) = (Arc::clone(&self.parker), Arc::clone(&self.stop));
        let thread = thread::spawn("duramen-checkpoint", move || {
            loop {
                parker.park();
                if stop.load(Ordering::Acquire) {
                    return;
                }
                let Some(maintenance) = maintenance.upgrade() else { return };
                // A failed disk has put the database out of service; a full log is reported to the
                // writers.
                let _ = maintenance.checkpoint_if_due();
            }
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.parker.unpark();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in the thread has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }

    /// Wakes the thread, which also clears away what transactions and snapshots have left.
    pub(crate) fn wake(&self) {
        self.parker.unpark();
    }

    /// Wakes the thread if the log may have grown enough.
    #[inline]
    pub(crate) fn wake_if_due(&self, end: Gsn) {
        let due = self.due.load(Ordering::Relaxed);
        if end.get() >= due && self.due.compare_exchange(due, u64::MAX, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.parker.unpark();
        }
    }

    /// Makes the next checkpoint due when there are so many `bytes` behind `end`, the end of the
    /// log.
    pub(super) fn set_due(&self, end: Gsn, bytes: u64) {
        *self.awaited.lock() = (end, bytes);
        self.due.store(end.get().saturating_add(bytes), Ordering::Relaxed);
    }

    /// Returns whether a checkpoint is due. With several logs, GSNs grow faster than any log; then
    /// the log has to grow further.
    pub(super) fn is_due(&self, log: &dyn LogService) -> bool {
        let (from, bytes) = *self.awaited.lock();
        let missing = bytes.saturating_sub(log.bytes_from(from));
        if missing > 0 {
            self.due.store(log.end().get().saturating_add(missing), Ordering::Relaxed);
        }
        missing == 0
    }

    /// Makes the caller the only thread that takes a checkpoint. Returns the log space that is
    /// reserved for it.
    pub(super) fn begin(&self) -> MutexGuard<'_, u64> {
        self.running.lock()
    }

    /// Returns the bytes of log that are reserved for checkpoints; `None` while one is being taken.
    pub(crate) fn reserved(&self) -> Option<u64> {
        self.running.try_lock().map(|standing| *standing)
    }
}
