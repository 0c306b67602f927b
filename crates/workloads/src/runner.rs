//! Drives a workload with many clients and measures it.
//!
//! Clients have no think time. They are dealt out to threads (`agent.rs`), which prepare, meet at a
//! gate, start together and run until the limit is reached or a client meets an error that a retry
//! does not mend. Each client counts for itself, on a cache line of its own; the calling thread
//! samples the counts for progress, so that measuring adds no shared write.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, CachePadded, Condvar, Mutex};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::agent::{Agent, Client, Pace};
use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::run_queue::RunQueue;
use crate::store::Store;
use crate::workload::Workload;

/// When a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Limit {
    /// After this time; transactions in flight then are finished and counted.
    Time(Duration),
    /// After this many commits of all clients together, dealt out evenly among them.
    Transactions(u64),
}

/// How a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Number of clients, at least 1: so many transactions are in progress, or waiting for their
    /// commits, at a time.
    pub clients: u32,
    /// Number of threads that carry the clients, at least 1; no more than there are clients.
    pub agents: u32,
    /// Transactions that all clients together begin in a second, evenly spaced, whether or not
    /// earlier ones are done in time; `None` when each client begins the next one as soon as its
    /// last one is acknowledged.
    pub rate: Option<f64>,
    /// When the run ends.
    pub limit: Limit,
    /// Seed of the inputs; client `c` draws the same ones in every run with this seed.
    pub seed: u64,
    /// How often `observe` is called.
    pub observe_every: Duration,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the clients started.
    pub elapsed: Duration,
    /// Transactions committed so far.
    pub committed: u64,
    /// Attempts aborted so far.
    pub aborted: u64,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// From the common start to the end of the last transaction.
    pub elapsed: Duration,
    /// Transactions whose commit was acknowledged.
    pub committed: u64,
    /// Attempts that ended in a retryable error.
    pub aborted: u64,
    /// From the acknowledgement of a client's transaction to that of its next one; with
    /// [`RunOptions::rate`] from the time at which it was to begin. A latency therefore includes
    /// failed attempts, and the time in which the client's thread was busy with other clients, or
    /// late.
    pub latencies: Latencies,
    /// For each kind of transaction, in the order of [`Workload::kinds`], how many there were.
    pub tallies: Vec<Tally>,
}

/// How often a kind of transaction was run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Transactions brought to their end.
    pub done: u64,
    /// Those of them that ended without effect, as the specification foresees.
    pub declined: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.done += other.done;
        self.declined += other.declined;
    }
}

impl RunReport {
    /// Committed transactions per second.
    pub fn throughput(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Aborted attempts as a share of all attempts, 0 to 1.
    pub fn abort_rate(&self) -> f64 {
        self.aborted as f64 / ((self.committed + self.aborted) as f64).max(1.0)
    }
}

/// Runs `workload` on a loaded `store`; `observe` is called on the calling thread.
///
/// # Errors
/// [`Error::InvalidParameter`] for no clients; the first non-retryable error of a client, after all
/// have stopped.
pub fn run<S: Store>(
    store: &S,
    workload: &dyn Workload<S>,
    options: &RunOptions,
    observe: &mut dyn FnMut(Progress),
) -> Result<RunReport> {
    if options.clients == 0 || options.agents == 0 {
        return Err(Error::InvalidParameter { reason: "a run needs at least one client and one thread".into() });
    }
    if options.rate.is_some_and(|rate| !(1e-3..=1e9).contains(&rate)) {
        return Err(Error::InvalidParameter {
            reason: "the rate must be from 0.001 to 10^9 transactions per second".into(),
        });
    }
    let kinds = workload.kinds().len();
    let shared = Arc::new(Shared::new(options.clients));
    let pace = options.rate.map(|rate| Pace::new(rate, options.clients));
    let clients = dealt_out(store, workload, options)?;
    let mut agents = Vec::new();
    let mut started = Ok(());
    for (number, clients) in clients.into_iter().enumerate() {
        match Agent::new(number, RunQueue::new(clients), kinds, pace, shared.clone()).start() {
            Ok(agent) => agents.push(agent),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    if started.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    let start = shared.gate.open(agents.len());
    if started.is_ok() {
        shared.watch(start, options, observe);
    }
    let mut latencies = Latencies::new();
    let mut tallies = vec![Tally::default(); kinds];
    let mut end = start;
    let mut queues = Vec::new();
    for agent in agents {
        match agent.join() {
            Ok(done) => {
                latencies.merge(&done.latencies);
                tallies.iter_mut().zip(&done.tallies).for_each(|(all, one)| all.add(*one));
                end = end.max(done.end);
                queues.push(done.queue);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    // The sessions must have ended when the caller audits.
    drop(queues);
    started?;
    if let Some(error) = shared.gate.state.lock().failure.take() {
        return Err(error);
    }
    let progress = shared.progress(start);
    assert_eq!(progress.committed, latencies.count(), "every commit has a latency");
    let Progress { committed, aborted, .. } = progress;
    Ok(RunReport { elapsed: end.since(start), committed, aborted, latencies, tallies })
}

/// Returns the clients of each agent, dealt out in turn. They are made agent by agent, so that
/// neighbours in memory belong to one agent.
fn dealt_out<S: Store>(store: &S, workload: &dyn Workload<S>, options: &RunOptions) -> Result<Vec<Vec<Client>>> {
    let agents = options.agents.min(options.clients);
    let client = |id| {
        let rng = StdRng::seed_from_u64(client_seed(options.seed, id));
        Ok(Client::new(id, workload.session(store, id)?, rng, quota(options, id)))
    };
    let of_agent = |agent| (agent..options.clients).step_by(agents as usize).map(client).collect();
    (0..agents).map(of_agent).collect()
}

/// Spreads the seeds of clients far apart.
fn client_seed(seed: u64, client: u32) -> u64 {
    seed ^ (u64::from(client) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns how many transactions a client may commit.
fn quota(options: &RunOptions, client: u32) -> u64 {
    let clients = u64::from(options.clients);
    match options.limit {
        Limit::Time(_) => u64::MAX,
        Limit::Transactions(all) => all / clients + u64::from(u64::from(client) < all % clients),
    }
}

/// What agents and the calling thread share.
pub(crate) struct Shared {
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

impl Shared {
    fn new(clients: u32) -> Self {
        Self {
            gate: Gate::default(),
            stop: AtomicBool::new(false),
            counts: (0..clients).map(|_| CachePadded::new(Counts::default())).collect(),
        }
    }

    fn progress(&self, start: Instant) -> Progress {
        let sum = |of: fn(&Counts) -> &AtomicU64| self.counts.iter().map(|c| of(c).load(Ordering::Relaxed)).sum();
        Progress { elapsed: start.elapsed(), committed: sum(|c| &c.committed), aborted: sum(|c| &c.aborted) }
    }

    /// Waits until the agents are done, observing them; stops them when their time is over.
    fn watch(&self, start: Instant, options: &RunOptions, observe: &mut dyn FnMut(Progress)) {
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
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    /// When agents were let go.
    start: Option<Instant>,
    running: usize,
    failure: Option<Error>,
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
    fn open(&self, agents: usize) -> Instant {
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
