//! What the agents of a run and the calling thread share: the gate, and the counts.

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{CachePadded, Condvar, Mutex};

use crate::error::{Error, Result};
use crate::measurement::{Limit, Progress, RunOptions};

/// What agents and the calling thread share.
pub(crate) struct RunState {
    pub(crate) gate: Gate,
    pub(crate) stop: AtomicBool,
    pub(crate) counts: Vec<CachePadded<Counts>>,
}

/// Written by one client, read by the calling thread.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) committed: AtomicU64,
    pub(crate) aborted: AtomicU64,
}

impl RunState {
    pub(crate) fn new(clients: u32) -> Self {
        Self {
            gate: Gate::default(),
            stop: AtomicBool::new(false),
            counts: (0..clients).map(|_| CachePadded::new(Counts::default())).collect(),
        }
    }

    /// Returns how far the run is.
    pub(crate) fn progress(&self, start: Instant) -> Progress {
        let sum = |of: fn(&Counts) -> &AtomicU64| self.counts.iter().map(|c| of(c).load(Ordering::Relaxed)).sum();
        Progress { elapsed: start.elapsed(), committed: sum(|c| &c.committed), aborted: sum(|c| &c.aborted) }
    }

    /// Waits until the agents are done, observing them; stops them when their time is over.
    pub(crate) fn watch(&self, start: Instant, options: &RunOptions, observe: &mut dyn FnMut(Progress)) {
        let mut state = self.gate.state.lock();
        while state.running > 0 {
            let mut pause = options.observe_every;
            if let Limit::Time(time) = options.limit
                && !self.stop.load(Ordering::Relaxed)
            {
                let left = time.saturating_sub(start.elapsed());
                if left.is_zero() {
                    self.stop.store(true, Ordering::Relaxed);
                }
                pause = pause.min(left);
            }
            if !pause.is_zero() {
                self.gate.changed.wait_for(&mut state, pause);
            }
            drop(state);
            observe(self.progress(start));
            state = self.gate.state.lock();
        }
    }
}

/// Where agents wait for the common start and report their end.
#[derive(Default)]
pub(crate) struct Gate {
    pub(crate) state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct GateState {
    ready: usize,
    /// When agents were let go.
    start: Option<Instant>,
    running: usize,
    pub(crate) failure: Option<Error>,
}

impl Gate {
    /// Waits until all are there; returns the time of the common start.
    pub(crate) fn wait(&self) -> Instant {
        let mut state = self.state.lock();
        state.ready += 1;
        self.changed.notify_all();
        loop {
            if let Some(start) = state.start {
                return start;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Lets `agents` agents go as soon as all of them are there; returns the time of the start.
    pub(crate) fn open(&self, agents: usize) -> Instant {
        let mut state = self.state.lock();
        while state.ready < agents {
            self.changed.wait(&mut state);
        }
        state.running = agents;
        self.changed.notify_all();
        *state.start.insert(Instant::now())
    }

    pub(crate) fn leave(&self, outcome: Result<()>) {
        let mut state = self.state.lock();
        state.running -= 1;
        if let Err(error) = outcome {
            state.failure.get_or_insert(error);
        }
        self.changed.notify_all();
    }
}
