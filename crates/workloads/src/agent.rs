//! A thread that runs the transactions of one client or many.
//!
//! With one client it waits for each commit. With many it does as Aether's agent threads do (section 4): a commit is left on
//! its way, the thread goes on with the transaction of another client, and waits only when none of its clients has one to
//! begin: they wait for commits, or, at a fixed rate, for their time. Commits
//! are acknowledged in the order in which they were made, which is the order in which the log hardens them.

use std::collections::VecDeque;
use std::time::Duration;

use duramen_sync::atomic::Ordering;
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, thread};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::runner::{Shared, Tally};
use crate::store::Acknowledge;
use crate::workload::{Executed, Session};

/// One client of an agent.
pub(crate) struct Client {
    pub(crate) id: u32,
    pub(crate) session: Box<dyn Session>,
    pub(crate) rng: StdRng,
    /// Transactions it may still begin.
    pub(crate) quota: u64,
    committed: u64,
    aborted: u64,
    /// When its transaction begins: when the one before was acknowledged, for it has no think time, or as the pace says.
    start: Instant,
    /// Failed attempts of the transaction that has been drawn; `None` when none has been.
    attempts: Option<u32>,
    /// After a failed attempt the next one is not made before this.
    again: Instant,
}

impl Client {
    pub(crate) fn new(id: u32, session: Box<dyn Session>, rng: StdRng, quota: u64) -> Self {
        let now = Instant::now();
        Self { id, session, rng, quota, committed: 0, aborted: 0, start: now, attempts: None, again: now }
    }

    /// When it has something to do.
    fn due(&self) -> Instant {
        self.start.max(self.again)
    }

    /// What went wrong, with its client's number.
    fn failure(&self, source: Error) -> Error {
        Error::Client { client: self.id, source: Box::new(source) }
    }
}

/// When clients begin their transactions if not as soon as they can.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Between two transactions of one client.
    interval: Duration,
    clients: u32,
}

impl Pace {
    /// All clients together begin `rate` transactions in a second.
    pub(crate) fn new(rate: f64, clients: u32) -> Self {
        Self { interval: Duration::from_secs_f64(f64::from(clients) / rate), clients }
    }

    /// When client `id` begins its first transaction: they take turns.
    fn first(&self, start: Instant, id: u32) -> Instant {
        start.after(self.interval.mul_f64(f64::from(id) / f64::from(self.clients)))
    }
}

/// What an agent did.
pub(crate) struct Finished {
    pub(crate) latencies: Latencies,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) end: Instant,
}

/// The thread's state.
pub(crate) struct Agent {
    clients: Vec<Client>,
    /// Clients that have a transaction to run, by their place in `clients`.
    ready: VecDeque<usize>,
    /// Clients that wait for an acknowledgement, in the order of their commits.
    in_flight: VecDeque<(usize, Executed)>,
    acknowledge: Acknowledge,
    pace: Option<Pace>,
    latencies: Latencies,
    tallies: Vec<Tally>,
    shared: Arc<Shared>,
}

/// Leaves the gate even when the agent panics, so that the calling thread does not wait for it for ever.
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

impl Agent {
    /// Pause after the first failed attempt, when there is nothing else to do; it doubles up to 64 times this, and a random
    /// part of it is slept.
    const FIRST_PAUSE: Duration = Duration::from_micros(20);

    /// After so long at most, a thread without work looks whether the run is over.
    const LONGEST_SLEEP: Duration = Duration::from_millis(20);

    pub(crate) fn new(clients: Vec<Client>, kinds: usize, pace: Option<Pace>, shared: Arc<Shared>) -> Self {
        Self {
            pace,
            ready: (0..clients.len()).filter(|at| clients[*at].quota > 0).collect(),
            in_flight: VecDeque::with_capacity(clients.len()),
            acknowledge: if clients.len() == 1 { Acknowledge::OnReturn } else { Acknowledge::Later },
            clients,
            latencies: Latencies::new(),
            tallies: vec![Tally::default(); kinds],
            shared,
        }
    }

    pub(crate) fn start(mut self, number: usize) -> Result<thread::JoinHandle<Finished>> {
        thread::spawn(&format!("agent-{number}"), move || {
            let shared = self.shared.clone();
            shared.gate.wait();
            let mut leave = Leave { shared: &shared, outcome: None };
            let outcome = self.work();
            let end = Instant::now();
            leave.outcome = Some(outcome);
            // The sessions end before the run does: their last words must be in when the caller audits.
            let Self { clients, latencies, tallies, .. } = self;
            drop(clients);
            drop(leave);
            Finished { latencies, tallies, end }
        })
        .map_err(Error::Thread)
    }

    fn work(&mut self) -> Result<()> {
        let start = Instant::now();
        for client in &mut self.clients {
            client.start = self.pace.map_or(start, |pace| pace.first(start, client.id));
        }
        loop {
            self.acknowledge_what_is_done()?;
            if self.shared.stop.load(Ordering::Relaxed) {
                self.ready.clear();
            }
            if let Some(client) = self.take_ready() {
                self.run(client)?;
            } else if let Some((client, executed)) = self.in_flight.pop_front() {
                // Even if another client's time comes meanwhile: who waits helps the log along, who sleeps does not.
                self.settle(client, executed, None)?;
            } else if !self.ready.is_empty() {
                self.idle();
            } else {
                return Ok(());
            }
        }
    }

    /// Takes out a client whose time has come.
    fn take_ready(&mut self) -> Option<usize> {
        if self.pace.is_none() {
            return self.ready.pop_front();
        }
        let now = Instant::now();
        let due = self.ready.iter().position(|at| self.clients[*at].due() <= now)?;
        self.ready.remove(due)
    }

    /// Sleeps until the next client's time has come.
    fn idle(&self) {
        let now = Instant::now();
        let next = self.ready.iter().map(|at| self.clients[*at].due().since(now)).min();
        thread::sleep(next.unwrap_or(Self::LONGEST_SLEEP).min(Self::LONGEST_SLEEP));
    }

    fn acknowledge_what_is_done(&mut self) -> Result<()> {
        let mut now = None;
        while self.in_flight.front().is_some_and(|(_, executed)| executed.pending.is_done()) {
            let (client, executed) = self.in_flight.pop_front().expect("it was looked at");
            let now = *now.get_or_insert_with(Instant::now);
            self.settle(client, executed, Some(now))?;
        }
        Ok(())
    }

    /// Runs the client's transaction up to its commit.
    fn run(&mut self, at: usize) -> Result<()> {
        let client = &mut self.clients[at];
        if client.attempts.is_none() {
            client.quota -= 1;
            client.session.draw(&mut client.rng);
        }
        match client.session.execute(self.acknowledge) {
            Ok(executed) if executed.pending.is_nothing() => self.settle(at, executed, None),
            Ok(executed) => {
                self.in_flight.push_back((at, executed));
                Ok(())
            }
            Err(error) if error.is_retryable() => {
                client.aborted += 1;
                self.shared.counts[client.id as usize].aborted.store(client.aborted, Ordering::Relaxed);
                let attempts = client.attempts.unwrap_or(0) + 1;
                client.attempts = Some(attempts);
                let longest = Self::FIRST_PAUSE * (1 << (attempts - 1).min(6));
                let pause = longest.mul_f64(client.rng.random());
                client.again = Instant::now().after(pause);
                // At a fixed rate, `work` waits. Otherwise the other clients' transactions are pause enough.
                if self.pace.is_none() && self.ready.is_empty() && !self.shared.stop.load(Ordering::Relaxed) {
                    thread::sleep(pause);
                }
                self.ready.push_back(at);
                Ok(())
            }
            Err(error) => Err(client.failure(error)),
        }
    }

    /// Waits for the acknowledgement of the client's transaction, and counts it. `now` is the time, if it is known.
    fn settle(&mut self, at: usize, executed: Executed, now: Option<Instant>) -> Result<()> {
        let client = &mut self.clients[at];
        let Executed { done, pending } = executed;
        pending.wait().and_then(|()| client.session.acknowledged()).map_err(|error| client.failure(error))?;
        let now = now.unwrap_or_else(Instant::now);
        self.latencies.record(now.since(client.start));
        self.tallies[done.kind].add(Tally { done: 1, declined: u64::from(done.declined) });
        client.start = self.pace.map_or(now, |pace| client.start.after(pace.interval));
        client.attempts = None;
        client.committed += 1;
        self.shared.counts[client.id as usize].committed.store(client.committed, Ordering::Relaxed);
        if client.quota > 0 {
            self.ready.push_back(at);
        }
        Ok(())
    }
}
