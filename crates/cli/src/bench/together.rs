//! Threads that begin together.

use std::time::Duration;

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::thread::{JoinHandle, spawn, yield_now};

use crate::failure::{Failure, Result};

/// Runs what `work` makes for each of so many threads; they begin when all of them are there.
/// Returns what they return, and the time from their beginning to the end of the last.
pub(super) fn together<T: Send + 'static, W: FnOnce() -> T + Send + 'static>(
    threads: usize,
    mut work: impl FnMut(usize) -> W,
) -> Result<(Vec<T>, Duration)> {
    let go = Arc::new(AtomicBool::new(false));
    let spawned: std::io::Result<Vec<_>> = (0..threads)
        .map(|thread| {
            let (go, work) = (Arc::clone(&go), work(thread));
            spawn("duramen-measure", move || {
                while !go.load(Ordering::Acquire) {
                    yield_now();
                }
                work()
            })
        })
        .collect();
    let start = Instant::now();
    go.store(true, Ordering::Release);
    let threads = spawned.map_err(|error| Failure::Run(format!("cannot start a thread: {error}")))?;
    let join = |thread: JoinHandle<T>| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let returned = threads.into_iter().map(join).collect();
    Ok((returned, start.elapsed()))
}
