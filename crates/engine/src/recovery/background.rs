//! What recovery leaves for after the opening ([`crate::Options::open_early`]), and the thread that does it: first the losers,
//! since others may wait for their locks; then the pages that nobody has needed yet.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Mutex, OnceLock};

use super::on_demand::Unredone;
use super::unfinished::Unfinished;
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::pool::Pool;

/// What is left, and the thread.
#[derive(Debug, Default)]
pub(crate) struct BackgroundRecovery {
    pub(super) unfinished: Unfinished,
    unredone: OnceLock<Arc<Unredone>>,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl BackgroundRecovery {
    /// Has the pool redo these pages when they are needed.
    pub(super) fn leave(&self, pool: &Pool, unredone: Unredone) {
        let unredone = Arc::new(unredone);
        pool.redo_on_touch(Arc::clone(&unredone) as _);
        assert!(self.unredone.set(unredone).is_ok(), "recovery runs once");
    }

    /// Pages that have not been redone, at this moment.
    pub(crate) fn pages(&self) -> u64 {
        self.unredone.get().map_or(0, |unredone| unredone.count())
    }

    /// Transactions that have not been brought to their end, at this moment.
    pub(crate) fn transactions(&self) -> u64 {
        self.unfinished.count()
    }

    /// Starts the thread, if there is something to do. It ends when all is done, with a checkpoint, or at
    /// [`BackgroundRecovery::stop`].
    pub(crate) fn start(core: &Arc<Core>) -> std::io::Result<()> {
        let background = &core.background;
        if background.pages() == 0 && background.transactions() == 0 {
            return Ok(());
        }
        let (shared, stop) = (Arc::clone(core), Arc::clone(&background.stop));
        let work = move || {
            // A failure has put the database out of service. A damaged page is for those to report who need it.
            let finished = shared.background.unfinished.finish_all(&shared, &stop);
            let redone = finished.and_then(|()| {
                loop {
                    match shared.redo_left(&stop) {
                        // It has waited for a frame already.
                        Err(Error::PoolExhausted { .. }) if !stop.load(Ordering::Acquire) => {}
                        redone => break redone,
                    }
                }
            });
            if redone.is_ok() && !stop.load(Ordering::Acquire) {
                let _ = shared.checkpoint();
            }
        };
        *background.thread.lock() = Some(thread::spawn("duramen-redo", work)?);
        Ok(())
    }

    /// Stops the thread.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.lock().take() {
            // A panic in it has been printed; what it left is done when it is needed, or by the next opening.
            let _ = thread.join();
        }
    }
}

impl Core {
    /// Redoes every page that still lacks changes. The caller must hold no latch.
    pub(crate) fn finish_redo(&self) -> Result<()> {
        self.redo_left(&AtomicBool::new(false))
    }

    fn redo_left(&self, stop: &AtomicBool) -> Result<()> {
        match self.background.unredone.get() {
            Some(unredone) if unredone.count() > 0 => {
                self.health.check()?;
                unredone.redo_all(&self.store.pool, stop).map_err(|error| self.note(Error::from(error)))
            }
            _ => Ok(()),
        }
    }
}
