//! The background cleaner: keeps a share of the frames clean, so that threads in need of a frame
//! rarely have to write.
//!
//! It wakes at an interval, or when the dirty share passes its limit or a thread found no clean
//! frame, and writes pages until the share is an eighth below the limit, those first that have been
//! dirty the longest: they hold back the recycling of the log, and are the least likely to be
//! changed again soon. It writes no faster than its set rate.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread::{self, JoinHandle, Parker};
use duramen_sync::{Arc, Mutex, Weak};

use super::doublewrite::BATCH_PAGES;
use super::{Pool, PoolError};

/// What the cleaner and those who wake it share.
#[derive(Debug, Default)]
struct Signal {
    parker: Parker,
    stop: AtomicBool,
    /// A wake-up is on its way, so that a crowd does not queue for the parker.
    woken: AtomicBool,
}

/// The cleaner's place in the pool.
#[derive(Debug)]
pub(super) struct CleanerState {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CleanerState {
    /// No cleaner runs.
    pub(super) fn new() -> Self {
        Self { signal: Arc::default(), thread: Mutex::new(None) }
    }
}

impl Pool {
    /// Starts the background cleaner, unless it runs. It ends at [`Pool::stop_cleaner`], or when
    /// the pool goes away.
    ///
    /// # Errors
    /// [`PoolError::Log`] when the system has no thread to give.
    pub(crate) fn start_cleaner(self: &Arc<Self>) -> Result<(), PoolError> {
        let mut slot = self.cleaner.thread.lock();
        if slot.is_some() {
            return Ok(());
        }
        let signal = Arc::clone(&self.cleaner.signal);
        signal.stop.store(false, Ordering::Relaxed);
        let pool = Arc::downgrade(self);
        let interval = self.config.cleaner_interval;
        let thread = thread::spawn("duramen-cleaner", move || run(&pool, &signal, interval))
            .map_err(|error| PoolError::Log { reason: format!("cannot start the page cleaner: {error}") })?;
        *slot = Some(thread);
        Ok(())
    }

    /// Ends the background cleaner, after the batch it may be writing. Not to be called by the
    /// thread of the cleaner.
    pub(crate) fn stop_cleaner(&self) {
        let thread = self.cleaner.thread.lock().take();
        if let Some(thread) = thread {
            self.cleaner.signal.stop.store(true, Ordering::Release);
            self.cleaner.signal.parker.unpark();
            if thread.join().is_err() {
                self.poison("the page cleaner died");
            }
        }
    }

    /// Most frames that may be dirty before the cleaner goes to work.
    pub(super) fn dirty_limit(&self) -> usize {
        self.frames() * usize::from(self.config.max_dirty_percent.min(90)) / 100
    }

    /// Has the cleaner look before its time.
    pub(super) fn wake_cleaner(&self) {
        let signal = &self.cleaner.signal;
        if !signal.woken.swap(true, Ordering::Relaxed) {
            signal.parker.unpark();
        }
    }

    /// One round: cleans until few enough frames are dirty.
    fn clean_down(&self, signal: &Signal) -> Result<(), PoolError> {
        let dirty = self.dirty.load(Ordering::Relaxed);
        let limit = self.dirty_limit();
        if dirty <= limit {
            return Ok(());
        }
        self.counters.cleaner_rounds.fetch_add(1, Ordering::Relaxed);
        let rate = self.config.cleaner_pages_per_second;
        let step = if rate == 0 { BATCH_PAGES } else { (rate / 8).clamp(1, BATCH_PAGES as u64) as usize };
        for frames in self.oldest_dirty(dirty - limit * 7 / 8).chunks_mut(step) {
            if signal.stop.load(Ordering::Acquire) {
                break;
            }
            let start = Instant::now();
            self.sort_by_page(frames);
            let written = self.clean(frames)?;
            if let Some(nanos) = (written as u64 * 1_000_000_000).checked_div(rate) {
                pause(signal, start.after(Duration::from_nanos(nanos)));
            }
        }
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The thread holds no reference while it waits, so it may still be there; it ends by
        // itself.
        self.cleaner.signal.stop.store(true, Ordering::Release);
        self.cleaner.signal.parker.unpark();
    }
}

/// Waits until `end`, or until the cleaner is to stop.
fn pause(signal: &Signal, end: Instant) {
    loop {
        let left = end.since(Instant::now());
        if left.is_zero() || signal.stop.load(Ordering::Acquire) {
            return;
        }
        signal.parker.park_timeout(left);
    }
}

fn run(pool: &Weak<Pool>, signal: &Signal, interval: Duration) {
    while !signal.stop.load(Ordering::Acquire) {
        let Some(pool) = pool.upgrade() else { return };
        signal.woken.store(false, Ordering::Relaxed);
        // A failed write has poisoned the pool, and whoever needs the page written meets the error;
        // a log that cannot be hardened may be able to later.
        let _ = pool.clean_down(signal);
        drop(pool);
        signal.parker.park_timeout(interval);
    }
}
