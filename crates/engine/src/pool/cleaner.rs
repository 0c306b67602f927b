//! The background cleaner: it keeps a share of the frames clean, so that a thread that needs a
//! frame rarely has to write a page first.
//!
//! The cleaner wakes at a fixed interval. A thread wakes the cleaner earlier when the dirty share
//! passes its limit or when the thread finds no clean frame. The cleaner then writes pages until
//! the dirty share is a little below the limit. The pages that have been dirty the longest come
//! first: they hold back the recycling of the log, and they are the least likely to change again
//! soon. The cleaner never exceeds its configured write rate.
//!
//! With [`PoolConfig::dirty_pages`](super::PoolConfig::dirty_pages) the limit is a number of pages,
//! which may be far below the number of frames, and the cleaner stays close to it: it takes the
//! oldest pages in turn from a list that one look at all frames gives ([`Oldest`]).

use std::collections::VecDeque;
use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread::{self, JoinHandle, Parker};
use duramen_sync::{Arc, Backoff, Mutex, Weak};

use duramen_types::Gsn;

use super::batch::BATCH_PAGES;
use super::frames::FrameId;
use super::{Pool, PoolError};

/// State shared by the cleaner and the threads that wake it.
#[derive(Debug, Default)]
struct Signal {
    parker: Parker,
    stop: AtomicBool,
    /// True while a wake-up is on its way, so that many threads do not queue for the parker.
    woken: AtomicBool,
}

/// The cleaner's part of the pool's state.
#[derive(Debug)]
pub(super) struct CleanerState {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CleanerState {
    /// Creates the state of a pool whose cleaner does not run.
    pub(super) fn new() -> Self {
        Self { signal: Arc::default(), thread: Mutex::new(None) }
    }
}

impl Pool {
    /// Starts the background cleaner unless it already runs, or pages are never dirty. The cleaner
    /// ends at [`Pool::stop_cleaner`], or when the pool is dropped.
    ///
    /// # Errors
    /// [`PoolError::Log`] when the system cannot start a thread.
    pub(crate) fn start_cleaner(self: &Arc<Self>) -> Result<(), PoolError> {
        let mut slot = self.cleaner.thread.lock();
        if slot.is_some() || self.write_back.is_none() {
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

    /// Stops the background cleaner after the batch that it may be writing. The cleaner's own
    /// thread must not call this.
    pub(crate) fn stop_cleaner(&self) {
        let thread = self.cleaner.thread.lock().take();
        if let Some(thread) = thread {
            self.cleaner.signal.stop.store(true, Ordering::Release);
            self.cleaner.signal.parker.unpark();
            if thread.join().is_err() {
                self.poison("the page cleaner panicked");
            }
        }
    }

    /// Returns the number of dirty frames above which the cleaner starts to write.
    pub(super) fn dirty_limit(&self) -> usize {
        let share = self.frames() * usize::from(self.config.max_dirty_percent.min(90)) / 100;
        self.config.dirty_pages.map_or(share, |pages| pages.min(share))
    }

    /// Wakes the cleaner before its interval is over.
    pub(super) fn wake_cleaner(&self) {
        let signal = &self.cleaner.signal;
        if !signal.woken.swap(true, Ordering::Relaxed) {
            signal.parker.unpark();
        }
    }

    /// Runs one round: writes pages until few enough frames are dirty.
    fn clean_down(&self, signal: &Signal, oldest: &mut Oldest) -> Result<(), PoolError> {
        if self.config.dirty_pages.is_some() {
            return self.clean_to_number(signal, oldest);
        }
        let dirty = self.dirty.load(Ordering::Relaxed);
        let limit = self.dirty_limit();
        if dirty <= limit {
            return Ok(());
        }
        self.counters.cleaner_rounds.fetch_add(1, Ordering::Relaxed);
        // The smaller a round, the smoother: page reads that meet it take much longer. But each
        // round looks at all frames.
        let below = (limit / 8).clamp(1, BATCH_PAGES.max(self.frames() / 128));
        for frames in self.oldest_dirty(dirty - limit + below).chunks_mut(self.cleaner_step()) {
            if signal.stop.load(Ordering::Acquire) {
                break;
            }
            self.clean_at_rate(signal, frames)?;
        }
        Ok(())
    }

    /// Writes the oldest pages until the number of dirty ones is a sixteenth below the limit.
    fn clean_to_number(&self, signal: &Signal, oldest: &mut Oldest) -> Result<(), PoolError> {
        let limit = self.dirty_limit();
        let (mut is_round, mut backoff) = (false, Backoff::new());
        loop {
            let dirty = self.dirty.load(Ordering::Relaxed);
            if dirty <= limit || signal.stop.load(Ordering::Acquire) {
                return Ok(());
            }
            if !std::mem::replace(&mut is_round, true) {
                self.counters.cleaner_rounds.fetch_add(1, Ordering::Relaxed);
            }
            let mut frames = oldest.take(self, (dirty - limit + limit / 16).min(self.cleaner_step()));
            if self.clean_at_rate(signal, &mut frames)? > 0 {
                backoff = Backoff::new();
            } else if backoff.is_long() {
                return Ok(());
            } else {
                // Other threads hold these pages for a moment.
                backoff.snooze();
            }
        }
    }

    /// Returns the number of pages that the cleaner writes at a time.
    fn cleaner_step(&self) -> usize {
        match self.config.cleaner_pages_per_second {
            0 => BATCH_PAGES,
            rate => (rate / 8).clamp(1, BATCH_PAGES as u64) as usize,
        }
    }

    /// Writes these pages and waits as long as the write rate requires; returns the number written.
    fn clean_at_rate(&self, signal: &Signal, frames: &mut [FrameId]) -> Result<usize, PoolError> {
        let start = Instant::now();
        self.sort_by_page(frames);
        let written = self.clean(frames)?;
        if let Some(nanos) = (written as u64 * 1_000_000_000).checked_div(self.config.cleaner_pages_per_second) {
            pause(signal, start.after(Duration::from_nanos(nanos)));
        }
        Ok(written)
    }
}

/// Dirty pages in the order in which they became dirty, as one look at all frames found them. All
/// of them are older than the pages that became dirty since, so the look is repeated only when the
/// list is used up.
#[derive(Debug, Default)]
struct Oldest(VecDeque<(Gsn, FrameId)>);

impl Oldest {
    /// Returns up to `count` frames with the oldest dirty pages.
    fn take(&mut self, pool: &Pool, count: usize) -> Vec<FrameId> {
        let mut frames = Vec::with_capacity(count);
        let mut has_looked = false;
        while frames.len() < count {
            match self.0.pop_front() {
                // A page that another thread has written since is clean, or younger.
                Some((gsn, frame)) if pool.frames.header(frame).recovery_gsn.get() == Some(gsn) => frames.push(frame),
                Some(_) => {}
                None if has_looked => break,
                None => {
                    has_looked = true;
                    // The pages taken so far are in the new list, too.
                    let mut dirty = pool.dirty_frames();
                    dirty.retain(|(_, frame)| !frames.contains(frame));
                    self.0 = dirty.into();
                }
            }
        }
        frames
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The cleaner's thread holds no reference to the pool while it waits, so it may outlive
        // this call. The stop flag makes it end.
        self.cleaner.signal.stop.store(true, Ordering::Release);
        self.cleaner.signal.parker.unpark();
    }
}

/// Waits until `end`, or until the cleaner has to stop.
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
    let mut oldest = Oldest::default();
    while !signal.stop.load(Ordering::Acquire) {
        let Some(pool) = pool.upgrade() else { return };
        signal.woken.store(false, Ordering::Relaxed);
        // A failed write has poisoned the pool, and a thread that needs the page written gets the
        // error. A log that cannot be hardened now may be able to later.
        let _ = pool.clean_down(signal, &mut oldest);
        drop(pool);
        signal.parker.park_timeout(interval);
    }
}
