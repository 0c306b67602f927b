//! Undo behind the opening: transactions that the crash has interrupted are brought to their end while others run.
//!
//! Losers hold their locks on what they have changed, so nobody sees that; whoever needs such a record waits, as for any other
//! transaction, until it is as it was. All of them are in the transaction table: checkpoints name them, the log is kept for them,
//! and after another crash they are found as any other. Log space for their rollback is set aside before anybody else gets some.
//!
//! One thread takes one after the other. Who needs all of them over (a checkpoint that is to leave nothing to recover, a writer
//! that finds the log full, a check) takes part, and waits for the rest.

use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Condvar, Mutex, thread};

use super::interrupted::Interrupted;
use crate::core::Core;
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
}

impl Unfinished {
    /// Leaves a transaction, which must have its locks and its room.
    pub(super) fn leave(&self, interrupted: Interrupted) {
        self.state.lock().rest.push(interrupted);
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
            let running = Running { unfinished: self, core };
            reach(Probe::UndoneBehindOpening);
            if let Err(error) = next.finish(core, stop) {
                core.fail(&format!("a transaction that a crash had interrupted could not be rolled back: {error}"));
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
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.core
                .fail("a transaction that a crash had interrupted could not be rolled back: a thread has panicked");
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
