//! The undo queue: in-doubt transactions that are finished after the opening, while other
//! transactions run.
//!
//! A loser holds the locks on its changes, so no other transaction sees them. A transaction that
//! needs such a record waits, as for any other transaction, until the record is as it was. All
//! losers are in the transaction table: checkpoints name them, the log is kept for them, and after
//! another crash recovery finds them like any other transaction. Log space for their rollback is
//! reserved before any other transaction gets log space.
//!
//! One background thread finishes them one after the other. Some threads need the whole queue
//! finished: a checkpoint that must leave nothing to recover, a writer that finds the log full, and
//! a check. Such a thread takes part in the work, and waits for the rest.

use std::cmp::Reverse;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Condvar, Mutex};

use super::in_doubt::InDoubt;
use super::parts::UndoParts;
use crate::error::Result;
use crate::health::Failures;

/// The transactions that are still to be finished.
#[derive(Debug, Default)]
pub(crate) struct UndoQueue {
    state: Mutex<State>,
    /// Signalled when no thread works on any of them any more.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rest: Vec<InDoubt>,
    /// The number of transactions that threads are working on.
    running: usize,
    /// Whether the log has no room for the rollback of one of them in addition to all others.
    lacks_log_space: bool,
}

impl UndoQueue {
    /// Adds a transaction to the queue. It must have its locks, and should have its log space
    /// reserved.
    pub(super) fn leave(&self, in_doubt: InDoubt, is_reserved: bool) {
        let mut state = self.state.lock();
        state.rest.push(in_doubt);
        state.lacks_log_space |= !is_reserved;
    }

    /// Prepares the queue for other transactions to run: short work comes first, and losers come
    /// before winners. If there is not enough log space for all, no other transaction may run
    /// before these have ended.
    pub(super) fn prepare(&self, parts: &UndoParts<'_>) -> Result<()> {
        let mut state = self.state.lock();
        state.rest.sort_by_key(|in_doubt| Reverse(in_doubt.effort()));
        let lacks_log_space = state.lacks_log_space;
        drop(state);
        if lacks_log_space { self.finish_all(parts, &AtomicBool::new(false)) } else { Ok(()) }
    }

    /// Returns the number of transactions.
    pub(crate) fn count(&self) -> u64 {
        let state = self.state.lock();
        (state.rest.len() + state.running) as u64
    }

    /// Finishes all transactions until `stop` is set, and waits for those that other threads work
    /// on.
    pub(super) fn finish_all(&self, parts: &UndoParts<'_>, stop: &AtomicBool) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.rest.is_empty() {
                if state.running > 0 {
                    // The caller's own log records must not hold up a commit.
                    parts.store.scheme.before_blocking();
                }
                while state.running > 0 {
                    self.idle.wait(&mut state);
                }
                // Another thread may have failed or been stopped, and the transaction that it
                // worked on is not finished.
                return parts.failures.health.check();
            }
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            parts.failures.health.check()?;
            let next = state.rest.pop().expect("it is not empty");
            state.running += 1;
            drop(state);
            let mut running = Running { queue: self, failures: parts.failures, has_returned: false };
            reach(Probe::UndoneBehindOpening);
            let finished = next.finish(parts, stop);
            running.has_returned = true;
            if let Err(error) = finished {
                if !parts.failures.health.is_closed() {
                    parts.failures.fail(&format!("recovery of an interrupted transaction failed: {error}"));
                }
                return Err(error);
            }
            drop(running);
            state = self.state.lock();
        }
    }
}

/// Signals that a thread has stopped working on a transaction, for whatever reason.
struct Running<'a> {
    queue: &'a UndoQueue,
    failures: Failures<'a>,
    has_returned: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_returned {
            self.failures.fail("recovery of an interrupted transaction failed: a thread panicked");
        }
        let mut state = self.queue.state.lock();
        state.running -= 1;
        if state.running == 0 {
            self.queue.idle.notify_all();
        }
    }
}
