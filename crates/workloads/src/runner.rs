//! Drives a workload with many clients and measures it.
//!
//! Clients are threads with no think time. They prepare their sessions, meet at a gate, start together and run until
//! the limit is reached or one of them meets an error that a retry does not mend. Each counts for itself, on a cache
//! line of its own; the calling thread samples the counts for progress, so that measuring adds no shared write.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, CachePadded, Condvar, Mutex, thread};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::store::Store;
use crate::workload::{Done, Session, Workload};

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
    /// Number of client threads, at least 1.
    pub clients: u32,
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
    /// From the drawing of a transaction's inputs, which come before its first attempt, to its acknowledged commit.
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
    fn add(&mut self, other: Self) {
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
/// [`Error::InvalidParameter`] for no clients; the first non-retryable error of a client, after all have stopped.
pub fn run<S: Store>(
    store: &S,
    workload: &dyn Workload<S>,
    options: &RunOptions,
    observe: &mut dyn FnMut(Progress),
) -> Result<RunReport> {
    if options.clients == 0 {
        return Err(Error::InvalidParameter { reason: "a run needs at least one client".into() });
    }
    let shared = Arc::new(Shared::new(options.clients));
    let mut clients = Vec::new();
    let mut started = Ok(());
    for id in 0..options.clients {
        let client = workload.session(store, id).and_then(|session| {
            Client {
                id,
                session,
                tallies: vec![Tally::default(); workload.kinds().len()],
                rng: StdRng::seed_from_u64(client_seed(options.seed, id)),
                quota: quota(options, id),
                shared: shared.clone(),
            }
            .start()
        });
        match client {
            Ok(client) => clients.push(client),
            Err(error) => {
                started = Err(error);
                break;
            }
        }
    }
    if started.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    let start = shared.gate.open(clients.len());
    if started.is_ok() {
        shared.watch(start, options, observe);
    }
    let mut latencies = Latencies::new();
    let mut tallies = vec![Tally::default(); workload.kinds().len()];
    let mut end = start;
    for client in clients {
        match client.join() {
            Ok(done) => {
                latencies.merge(&done.latencies);
                tallies.iter_mut().zip(&done.tallies).for_each(|(all, one)| all.add(*one));
                end = end.max(done.end);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    started?;
    if let Some(error) = shared.gate.state.lock().failure.take() {
        return Err(error);
    }
    let progress = shared.progress(start);
    assert_eq!(progress.committed, latencies.count(), "every commit has a latency");
    let Progress { committed, aborted, .. } = progress;
    Ok(RunReport { elapsed: end.since(start), committed, aborted, latencies, tallies })
}

/// Spreads the seeds of clients far apart.
fn client_seed(seed: u64, client: u32) -> u64 {
    seed ^ (u64::from(client) + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// How many transactions a client may commit.
fn quota(options: &RunOptions, client: u32) -> u64 {
    let clients = u64::from(options.clients);
    match options.limit {
        Limit::Time(_) => u64::MAX,
        Limit::Transactions(all) => all / clients + u64::from(u64::from(client) < all % clients),
    }
}

/// What clients and the calling thread share.
struct Shared {
    gate: Gate,
    stop: AtomicBool,
    counts: Vec<CachePadded<Counts>>,
}

/// Written by one client, read by the calling thread.
#[derive(Default)]
struct Counts {
    committed: AtomicU64,
    aborted: AtomicU64,
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

    /// Waits until the clients are done, observing them; stops them when their time is over.
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

/// Where clients wait for the common start and report their end.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    ready: usize,
    open: bool,
    running: usize,
    failure: Option<Error>,
}

impl Gate {
    fn wait(&self) {
        let mut state = self.state.lock();
        state.ready += 1;
        self.changed.notify_all();
        while !state.open {
            self.changed.wait(&mut state);
        }
    }

    /// Lets `clients` clients go as soon as all of them are there; returns the time of the start.
    fn open(&self, clients: usize) -> Instant {
        let mut state = self.state.lock();
        while state.ready < clients {
            self.changed.wait(&mut state);
        }
        state.running = clients;
        state.open = true;
        self.changed.notify_all();
        Instant::now()
    }

    fn leave(&self, outcome: Result<()>) {
        let mut state = self.state.lock();
        state.running -= 1;
        if let Err(error) = outcome {
            state.failure.get_or_insert(error);
        }
        self.changed.notify_all();
    }
}

struct Client {
    id: u32,
    session: Box<dyn Session>,
    tallies: Vec<Tally>,
    rng: StdRng,
    quota: u64,
    shared: Arc<Shared>,
}

struct Finished {
    latencies: Latencies,
    tallies: Vec<Tally>,
    end: Instant,
}

/// Leaves the gate even when the client panics, so that the calling thread does not wait for it for ever.
struct Leave<'s> {
    shared: &'s Shared,
    outcome: Option<Result<()>>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        if !matches!(outcome, Some(Ok(()))) {
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.gate.leave(outcome.unwrap_or(Ok(())));
    }
}

impl Client {
    /// Pause after the first failed attempt; it doubles up to 64 times this, and a random part of it is slept.
    const FIRST_PAUSE: Duration = Duration::from_micros(20);

    fn start(mut self) -> Result<thread::JoinHandle<Finished>> {
        let name = format!("client-{}", self.id);
        thread::spawn(&name, move || {
            let shared = self.shared.clone();
            shared.gate.wait();
            let mut leave = Leave { shared: &shared, outcome: None };
            let mut latencies = Latencies::new();
            let outcome = self.work(&mut latencies);
            let end = Instant::now();
            leave.outcome = Some(outcome.map_err(|source| Error::Client { client: self.id, source: Box::new(source) }));
            let tallies = std::mem::take(&mut self.tallies);
            // The session ends before the run does: its last words must be in when the caller audits.
            drop(self);
            drop(leave);
            Finished { latencies, tallies, end }
        })
        .map_err(Error::Thread)
    }

    fn work(&mut self, latencies: &mut Latencies) -> Result<()> {
        let shared = self.shared.clone();
        let counts: &Counts = &shared.counts[self.id as usize];
        let mut committed = 0;
        // Read once for each transaction: the end of one is the start of the next.
        let mut start = Instant::now();
        while committed < self.quota && !shared.stop.load(Ordering::Relaxed) {
            self.session.draw(&mut self.rng);
            let Some(Done { kind, declined }) = self.finish(counts)? else { return Ok(()) };
            let end = Instant::now();
            latencies.record(end.since(start));
            start = end;
            self.tallies[kind].add(Tally { done: 1, declined: u64::from(declined) });
            committed += 1;
            counts.committed.store(committed, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs the transaction drawn last until it succeeds; `None` when the run ends first.
    fn finish(&mut self, counts: &Counts) -> Result<Option<Done>> {
        let mut pause = Self::FIRST_PAUSE;
        loop {
            match self.session.execute() {
                Ok(done) => return Ok(Some(done)),
                Err(error) if !error.is_retryable() => return Err(error),
                Err(_) => {}
            }
            counts.aborted.fetch_add(1, Ordering::Relaxed);
            if self.shared.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            thread::sleep(pause.mul_f64(self.rng.random()));
            pause = (pause * 2).min(Self::FIRST_PAUSE * 64);
        }
    }
}
