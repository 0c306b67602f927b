//! The undo queue: in-doubt transactions that are brought to their end after the opening, while
//! others run.
//!
//! Losers hold their locks on what they have changed, so nobody sees that; whoever needs such a
//! record waits, as for any other transaction, until it is as it was. All of them are in the
//! transaction table: checkpoints name them, the log is kept for them, and after another crash they
//! are found as any other. Log space for their rollback is set aside before anybody else gets some.
//!
//! One thread takes one after the other. Who needs all of them over (a checkpoint that is to leave
//! nothing to recover, a writer that finds the log full, a check) takes part, and waits for the
//! rest.

use std::cmp::Reverse;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Condvar, Mutex};

use super::in_doubt::InDoubt;
use super::parts::UndoParts;
use crate::error::Result;
use crate::health::Failures;

/// The transactions that are still to be brought to their end.
#[derive(Debug, Default)]
pub(crate) struct UndoQueue {
    state: Mutex<State>,
    /// Nobody works on any of them any more.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rest: Vec<InDoubt>,
    /// How many are being worked on.
    running: usize,
    /// The log has no room for the rollback of one of them, beside all others.
    lacks_log_space: bool,
}

impl UndoQueue {
    /// Leaves a transaction, which must have its locks, and should have its log space reserved.
    pub(super) fn leave(&self, in_doubt: InDoubt, is_reserved: bool) {
        let mut state = self.state.lock();
        state.rest.push(in_doubt);
        state.lacks_log_space |= !is_reserved;
    }

    /// Prepares for others to run: those that are soon over come first, and losers before winners.
    /// If there is no room for all, nobody else may run before they are over.
    pub(super) fn prepare(&self, parts: &UndoParts<'_>) -> Result<()> {
        let mut state = self.state.lock();
        state.rest.sort_by_key(|in_doubt| Reverse(in_doubt.effort()));
        let lacks_log_space = state.lacks_log_space;
        drop(state);
        if lacks_log_space { self.finish_all(parts, &AtomicBool::new(false)) } else { Ok(()) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        let state = self.state.lock();
        (state.rest.len() + state.running) as u64
    }

    /// Brings all of them to their end, until it is told to stop, and waits for those that others
    /// work on.
    pub(super) fn finish_all(&self, parts: &UndoParts<'_>, stop: &AtomicBool) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.rest.is_empty() {
                if state.running > 0 {
                    // What holds a commit up must not be the caller's own record.
                    parts.store.scheme.before_blocking();
                }
                while state.running > 0 {
                    self.idle.wait(&mut state);
                }
                // Somebody may have failed or been stopped, and what he worked on is not over.
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
                    parts
                        .failures
                        .fail(&format!("a transaction that a crash had interrupted could not be finished: {error}"));
                }
                return Err(error);
            }
            drop(running);
            state = self.state.lock();
        }
    }
}

/// Says when a thread has done with a transaction, in whatever way.
struct Running<'a> {
    queue: &'a UndoQueue,
    failures: Failures<'a>,
    has_returned: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_returned {
            self.failures
                .fail("a transaction that a crash had interrupted could not be finished: a thread has panicked");
        }
        let mut state = self.queue.state.lock();
        state.running -= 1;
        if state.running == 0 {
            self.queue.idle.notify_all();
        }
    }
}
