//! A thread that runs the transactions of one client or many.
//!
//! With one client the thread waits for each commit. With many clients it works like Aether's agent
//! threads (section 4): it leaves a commit in flight and continues with the transaction of another
//! client. It waits only when no client has a transaction to begin, because all of them wait for
//! commits or, at a fixed rate, for their time. The thread acknowledges commits roughly in the
//! order in which they were made, which is the order in which one log hardens them.

use std::time::Duration;

use duramen_sync::atomic::Ordering;
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, thread};
use rand::RngExt;

use crate::client::Client;
use crate::error::{Error, Result};
use crate::histogram::Latencies;
use crate::measurement::Tally;
use crate::run_queue::{RunQueue, Task};
use crate::run_state::RunState;
use crate::store::Acknowledge;
use crate::workload::Executed;

/// When clients begin their transactions, at a fixed rate.
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

    /// Returns the time when client `id` begins its first transaction: they take turns.
    fn first(&self, start: Instant, id: u32) -> Instant {
        start.after(self.interval.mul_f64(f64::from(id) / f64::from(self.clients)))
    }
}

/// What an agent did.
pub(crate) struct Finished {
    pub(crate) latencies: Latencies,
    pub(crate) tallies: Vec<Tally>,
    pub(crate) end: Instant,
    /// The sessions, which the caller ends after the run.
    pub(crate) queue: RunQueue,
}

/// The thread's state.
pub(crate) struct Agent {
    number: usize,
    queue: RunQueue,
    acknowledge: Acknowledge,
    pace: Option<Pace>,
    latencies: Latencies,
    tallies: Vec<Tally>,
    /// When its last transaction was acknowledged.
    end: Instant,
    shared: Arc<RunState>,
}

/// What an agent does next.
enum Next {
    Do(Task),
    /// There is something to do later.
    Sleep(Duration),
    End,
}

/// Leaves the gate even when the agent panics, so that the calling thread does not wait for it for
/// ever.
struct Leave<'s> {
    shared: &'s RunState,
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
    /// Pause after the first failed attempt, when there is no other work. It doubles up to 64 times
    /// this; the thread sleeps for a random part of it.
    const FIRST_PAUSE: Duration = Duration::from_micros(20);

    /// The longest time after which a thread without work checks whether the run is over.
    const LONGEST_SLEEP: Duration = Duration::from_millis(20);

    /// Agent `number`, with the clients in `queue`.
    pub(crate) fn new(number: usize, queue: RunQueue, kinds: usize, pace: Option<Pace>, shared: Arc<RunState>) -> Self {
        Self {
            number,
            acknowledge: if queue.ready() == 1 { Acknowledge::OnReturn } else { Acknowledge::Later },
            queue,
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
            Finished { latencies: self.latencies, tallies: self.tallies, end: self.end, queue: self.queue }
        })
        .map_err(Error::Thread)
    }

    /// Runs transactions from the common start on, until the run is over.
    fn work(&mut self, start: Instant) -> Result<()> {
        let pace = self.pace;
        self.queue.begin(|client| pace.map_or(start, |pace| pace.first(start, client.id)));
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                self.queue.end();
            }
            match self.next() {
                Next::Do(Task::Run(client)) => self.run(client)?,
                Next::Do(Task::Acknowledge(client)) => self.acknowledge(client)?,
                Next::Sleep(time) => thread::sleep(time),
                Next::End => return Ok(()),
            }
        }
    }

    fn next(&mut self) -> Next {
        // The thread waits for a commit even if a client's time comes meanwhile: a thread that
        // waits may flush the log, a sleeping one does not.
        if let Some(task) = self.queue.take(self.pace.map(|_| Instant::now())).or_else(|| self.queue.take_in_flight()) {
            return Next::Do(task);
        }
        match self.queue.next_due() {
            Some(due) => Next::Sleep(due.since(Instant::now()).min(Self::LONGEST_SLEEP)),
            None => Next::End,
        }
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
                    return self.acknowledge(client);
                }
                self.queue.committed(client);
            }
            Err(error) if error.is_retryable() => {
                client.aborted += 1;
                self.shared.counts[client.id as usize].aborted.store(client.aborted, Ordering::Relaxed);
                let attempts = client.attempts.unwrap_or(0) + 1;
                client.attempts = Some(attempts);
                let longest = Self::FIRST_PAUSE * (1 << (attempts - 1).min(6));
                let pause = longest.mul_f64(client.rng.random());
                client.again = Instant::now().after(pause);
                // At a fixed rate, `next` waits. Otherwise the transactions of the other clients
                // are a sufficient pause.
                if self.pace.is_none() && self.queue.ready() == 0 && !self.shared.stop.load(Ordering::Relaxed) {
                    thread::sleep(pause);
                }
                self.queue.retry(client);
            }
            Err(error) => return Err(client.failure(error)),
        }
        Ok(())
    }

    /// Waits for the acknowledgement of the client's transaction, and counts it.
    fn acknowledge(&mut self, mut client: Box<Client>) -> Result<()> {
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
        self.queue.put_back(client);
        Ok(())
    }
}
