//! Undo behind the opening: transactions that the crash has interrupted are brought to their end while others run.
//!
//! Losers hold their locks on what they have changed, so nobody sees that; whoever needs such a record waits, as for any other
//! transaction, until it is as it was. All of them are in the transaction table: checkpoints name them, the log is kept for them,
//! and after another crash they are found as any other. Log space for their rollback is set aside before anybody else gets some.
//!
//! One thread takes one after the other. Who needs all of them over (a checkpoint that is to leave nothing to recover, a writer
//! that finds the log full, a check) takes part, and waits for the rest.

use std::cmp::Reverse;

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Condvar, Mutex};

use super::interrupted::Interrupted;
use crate::engine::Core;
use crate::error::Result;

/// The transactions that are still to be brought to their end.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    state: Mutex<State>,
    /// Nobody works on any of them any more.
    idle: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rest: Vec<Interrupted>,
    /// How many are being worked on.
    running: usize,
    /// The log has no room for the rollback of one of them, beside all others.
    lacks_room: bool,
}

impl Unfinished {
    /// Leaves a transaction, which must have its locks, and should have its room.
    pub(super) fn leave(&self, interrupted: Interrupted, has_room: bool) {
        let mut state = self.state.lock();
        state.rest.push(interrupted);
        state.lacks_room |= !has_room;
    }

    /// Prepares for others to run: those that are soon over come first, and losers before winners. If there is no room for all,
    /// nobody else may run before they are over.
    pub(super) fn prepare(&self, core: &Core) -> Result<()> {
        let mut state = self.state.lock();
        state.rest.sort_by_key(|interrupted| Reverse(interrupted.effort()));
        let lacks_room = state.lacks_room;
        drop(state);
        if lacks_room { core.finish_interrupted() } else { Ok(()) }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        let state = self.state.lock();
        (state.rest.len() + state.running) as u64
    }

    /// Brings all of them to their end, until it is told to stop, and waits for those that others work on.
    pub(super) fn finish_all(&self, core: &Core, stop: &AtomicBool) -> Result<()> {
        let mut state = self.state.lock();
        loop {
            if state.rest.is_empty() {
                if state.running > 0 {
                    // What holds a commit up must not be the caller's own record.
                    core.scheme().settle();
                }
                while state.running > 0 {
                    self.idle.wait(&mut state);
                }
                // Somebody may have failed or been stopped, and what he worked on is not over.
                return core.health.check();
            }
            if stop.load(Ordering::Acquire) {
                return Ok(());
            }
            core.health.check()?;
            let next = state.rest.pop().expect("it is not empty");
            state.running += 1;
            drop(state);
            let mut running = Running { unfinished: self, core, has_returned: false };
            reach(Probe::UndoneBehindOpening);
            let finished = next.finish(core, stop);
            running.has_returned = true;
            if let Err(error) = finished {
                if !core.health.is_closed() {
                    core.fail(&format!("a transaction that a crash had interrupted could not be finished: {error}"));
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
    unfinished: &'a Unfinished,
    core: &'a Core,
    has_returned: bool,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.has_returned {
            self.core.fail("a transaction that a crash had interrupted could not be finished: a thread has panicked");
        }
        let mut state = self.unfinished.state.lock();
        state.running -= 1;
        if state.running == 0 {
            self.unfinished.idle.notify_all();
        }
    }
}

impl Core {
    /// Brings to their end the transactions that the last crash has interrupted. The caller must hold no latch, and must not be
    /// one of them.
    pub(crate) fn finish_interrupted(&self) -> Result<()> {
        self.background.unfinished.finish_all(self, &AtomicBool::new(false))
    }
}
