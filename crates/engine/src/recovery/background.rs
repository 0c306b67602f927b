//! The work that recovery leaves for after the opening ([`crate::Options::instant_recovery`]), and
//! the background thread that does it. The thread first rolls back the losers, because other
//! transactions may wait for their locks. It then redoes the pages that no thread has needed yet.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Mutex, OnceLock};

use super::on_demand::Unredone;
use super::parts::UndoParts;
use super::undo_queue::UndoQueue;
use crate::error::{Error, Result};
use crate::health::Failures;
use crate::maintenance::Maintenance;
use crate::pool::Pool;

/// The work that is left, and the background thread.
#[derive(Debug, Default)]
pub(crate) struct BackgroundRecovery {
    pub(super) undo_queue: UndoQueue,
    unredone: OnceLock<Arc<Unredone>>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BackgroundRecovery {
    /// Makes the pool redo these pages when they are needed.
    pub(super) fn leave(&self, pool: &Pool, unredone: Unredone) {
        let unredone = Arc::new(unredone);
        pool.redo_on_fetch(Arc::clone(&unredone) as _);
        assert!(self.unredone.set(unredone).is_ok(), "recovery runs once");
    }

    /// Returns the number of pages that have not been redone yet.
    pub(crate) fn pages(&self) -> u64 {
        self.unredone.get().map_or(0, |unredone| unredone.count())
    }

    /// Returns the number of transactions in the undo queue.
    pub(crate) fn transactions(&self) -> u64 {
        self.undo_queue.count()
    }

    /// Finishes the transactions in the undo queue until `stop` is set, and waits for those that
    /// other threads work on. The caller must hold no latch and must not be one of these
    /// transactions.
    pub(crate) fn finish_transactions(&self, parts: &UndoParts<'_>, stop: &AtomicBool) -> Result<()> {
        self.undo_queue.finish_all(parts, stop)
    }

    /// Redoes every page that still lacks changes, until `stop` is set. The caller must hold no
    /// latch.
    pub(crate) fn finish_redo(&self, failures: Failures<'_>, stop: &AtomicBool) -> Result<()> {
        match self.unredone.get() {
            Some(unredone) if unredone.count() > 0 => {
                failures.health.check()?;
                unredone.redo_all(failures.pool, stop).map_err(|error| failures.note(Error::from(error)))
            }
            _ => Ok(()),
        }
    }

    /// Starts the thread if there is work for it. The thread ends with a checkpoint when all work
    /// is done, or at [`BackgroundRecovery::stop`].
    pub(crate) fn start(&self, maintenance: Arc<dyn Maintenance>) -> std::io::Result<()> {
        if self.pages() == 0 && self.transactions() == 0 {
            return Ok(());
        }
        let stop = Arc::clone(&self.stop);
        let work = move || {
            // A failure has put the database out of service. A damaged page is reported to the
            // threads that need it.
            let finished = maintenance.finish_in_doubt(&stop);
            let redone = finished.and_then(|()| {
                loop {
                    match maintenance.finish_redo(&stop) {
                        // The thread has waited for a frame already.
                        Err(Error::PoolExhausted { .. }) if !stop.load(Ordering::Acquire) => {}
                        redone => break redone,
                    }
                }
            });
            if redone.is_ok() && !stop.load(Ordering::Acquire) {
                let _ = maintenance.checkpoint();
            }
        };
        *self.thread.lock() = Some(thread::spawn("duramen-redo", work)?);
        Ok(())
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            // A panic in the thread has been printed. Its remaining work is done when it is needed,
            // or by the next opening.
            let _ = thread.join();
        }
    }
}
