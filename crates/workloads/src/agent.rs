//! A thread that runs the transactions of one client or many.
//!
//! With one client it waits for each commit. With many it does as Aether's agent threads do (section 4): a commit is left on
//! its way, the thread goes on with the transaction of another client, of its own or of a neighbour ([`crate::lane`]), and
//! waits only when none of them has one to begin: they wait for commits, or, at a fixed rate, for their time. Commits
//! are acknowledged about in the order in which they were made, which is the order in which one log hardens them.

use std::time::Duration;

use duramen_sync::atomic::Ordering;
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, MutexGuard, thread};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::lane::{Away, Lane, Lanes, Task};
use crate::runner::{Shared, Tally};
use crate::store::Acknowledge;
use crate::workload::{Executed, Session};

/// One client of an agent.
pub(crate) struct Client {
    pub(crate) id: u32,
    /// The one whose lane it belongs to.
    pub(crate) agent: usize,
    pub(crate) session: Box<dyn Session>,
    pub(crate) rng: StdRng,
    /// Transactions it may still begin.
    pub(crate) quota: u64,
    committed: u64,
    aborted: u64,
    /// Its transaction, from the commit to the acknowledgement.
    executed: Option<Executed>,
    /// When its transaction begins: when the one before was acknowledged, for it has no think time, or as the pace says.
    pub(crate) start: Instant,
    /// Failed attempts of the transaction that has been drawn; `None` when none has been.
    attempts: Option<u32>,
    /// After a failed attempt the next one is not made before this.
    again: Instant,
}

impl Client {
    pub(crate) fn new(id: u32, agent: usize, session: Box<dyn Session>, rng: StdRng, quota: u64) -> Self {
        let now = Instant::now();
        Self {
            id,
            agent,
            session,
            rng,
            quota,
            committed: 0,
            aborted: 0,
            executed: None,
            start: now,
            attempts: None,
            again: now,
        }
    }

    /// When it has something to do.
    pub(crate) fn due(&self) -> Instant {
        self.start.max(self.again)
    }

    /// Whether the last attempt of its transaction has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.attempts.is_some()
    }

    /// Whether its transaction is on its way no more.
    pub(crate) fn is_done(&self) -> bool {
        self.executed.as_ref().is_none_or(|executed| executed.pending.is_done())
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
    number: usize,
    lanes: Lanes,
    acknowledge: Acknowledge,
    helps: bool,
    pace: Option<Pace>,
    latencies: Latencies,
    tallies: Vec<Tally>,
    /// When its last transaction was acknowledged.
    end: Instant,
    shared: Arc<Shared>,
}

/// What an agent does next.
enum Next {
    Do(Task),
    /// For a client of this neighbour.
    Help(usize, Task),
    /// There is something to do later.
    Sleep(Duration),
    End,
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

    /// So long at most does a thread sleep while a neighbour is at work for one of its clients.
    const NAP: Duration = Duration::from_micros(20);

    /// Agent `number`, whose lane has its clients.
    pub(crate) fn new(number: usize, lanes: Lanes, kinds: usize, pace: Option<Pace>, shared: Arc<Shared>) -> Self {
        let is_alone = lanes.of(number).lock().ready.len() == 1;
        Self {
            number,
            acknowledge: if is_alone { Acknowledge::OnReturn } else { Acknowledge::Later },
            // A thread with one client does nothing else.
            helps: !is_alone,
            lanes,
            pace,
            latencies: Latencies::new(),
            tallies: vec![Tally::default(); kinds],
            end: Instant::now(),
            shared,
        }
    }

    pub(crate) fn start(mut self) -> Result<thread::JoinHandle<Finished>> {
        thread::spawn(&format!("agent-{}", self.number), move || {
            let shared = self.shared.clone();
            let start = shared.gate.wait();
            let mut leave = Leave { shared: &shared, outcome: None };
            self.end = start;
            leave.outcome = Some(self.work(start));
            drop(leave);
            Finished { latencies: self.latencies, tallies: self.tallies, end: self.end }
        })
        .map_err(Error::Thread)
    }

    /// Runs transactions from the common start on, until the run is over.
    fn work(&mut self, start: Instant) -> Result<()> {
        let lanes = self.lanes.clone();
        let begin = |client: &Client| self.pace.map_or(start, |pace| pace.first(start, client.id));
        lanes.of(self.number).lock().begin(begin);
        loop {
            let is_stopped = self.shared.stop.load(Ordering::Relaxed);
            if is_stopped {
                lanes.of(self.number).lock().end();
            }
            match self.next(!is_stopped) {
                Next::Do(task) => self.perform(task)?,
                Next::Help(neighbour, task) => {
                    let _away = Away(lanes.of(neighbour));
                    self.perform(task)?;
                }
                Next::Sleep(time) => thread::sleep(time),
                Next::End => return Ok(()),
            }
        }
    }

    fn next(&self, goes_on: bool) -> Next {
        let now = self.pace.map(|_| Instant::now());
        let own = self.lanes.of(self.number);
        if let Some(task) = own.lock().take(now) {
            return Next::Do(task);
        }
        if goes_on
            && self.helps
            && let Some(neighbour) = self.lanes.neighbour(self.number)
            && let Some(task) = self.lanes.of(neighbour).lock().take_for_neighbour(now)
        {
            return Next::Help(neighbour, task);
        }
        let mut lane = own.lock();
        // A neighbour may have put a client back.
        if let Some(task) = lane.take(now) {
            return Next::Do(task);
        }
        if let Some(client) = lane.in_flight.pop_front() {
            // Even if another client's time comes meanwhile: who waits helps the log along, who sleeps does not.
            return Next::Do(Task::Settle(client));
        }
        if lane.is_over() {
            return Next::End;
        }
        let longest = if lane.has_away() { Self::NAP } else { Self::LONGEST_SLEEP };
        let due = lane.next_due().map_or(longest, |due| due.since(Instant::now()));
        Next::Sleep(due.min(longest))
    }

    /// Does it, and puts the client back into its lane.
    fn perform(&mut self, task: Task) -> Result<()> {
        match task {
            Task::Run(client) => self.run(client),
            Task::Settle(client) => {
                let client = self.settle(client)?;
                self.lane_of(&client).put_back(client);
                Ok(())
            }
        }
    }

    fn lane_of(&self, client: &Client) -> MutexGuard<'_, Lane> {
        self.lanes.of(client.agent).lock()
    }

    /// Runs the client's transaction up to its commit.
    fn run(&mut self, mut client: Box<Client>) -> Result<()> {
        if client.attempts.is_none() {
            client.quota -= 1;
            client.session.draw(&mut client.rng);
        }
        match client.session.execute(self.acknowledge) {
            Ok(executed) => {
                let is_over = executed.pending.is_nothing();
                client.executed = Some(executed);
                if is_over {
                    return self.perform(Task::Settle(client));
                }
                self.lane_of(&client).in_flight.push_back(client);
            }
            Err(error) if error.is_retryable() => {
                client.aborted += 1;
                self.shared.counts[client.id as usize].aborted.store(client.aborted, Ordering::Relaxed);
                let attempts = client.attempts.unwrap_or(0) + 1;
                client.attempts = Some(attempts);
                let longest = Self::FIRST_PAUSE * (1 << (attempts - 1).min(6));
                let pause = longest.mul_f64(client.rng.random());
                client.again = Instant::now().after(pause);
                // At a fixed rate, `next` waits. Otherwise the other clients' transactions are pause enough.
                if self.pace.is_none()
                    && client.agent == self.number
                    && self.lane_of(&client).ready.is_empty()
                    && !self.shared.stop.load(Ordering::Relaxed)
                {
                    thread::sleep(pause);
                }
                self.lane_of(&client).ready.push_back(client);
            }
            Err(error) => return Err(client.failure(error)),
        }
        Ok(())
    }

    /// Waits for the acknowledgement of the client's transaction, and counts it.
    fn settle(&mut self, mut client: Box<Client>) -> Result<Box<Client>> {
        let Executed { done, pending } = client.executed.take().expect("it has been executed");
        pending.wait().and_then(|()| client.session.acknowledged()).map_err(|error| client.failure(error))?;
        let now = Instant::now();
        self.end = now;
        self.latencies.record(now.since(client.start));
        self.tallies[done.kind].add(Tally { done: 1, declined: u64::from(done.declined) });
        client.start = self.pace.map_or(now, |pace| client.start.after(pace.interval));
        client.attempts = None;
        client.committed += 1;
        self.shared.counts[client.id as usize].committed.store(client.committed, Ordering::Relaxed);
        Ok(client)
    }
}
