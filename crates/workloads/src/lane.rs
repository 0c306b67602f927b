//! The clients of an agent that have nobody at work for them.
//!
//! An agent that has nothing else to do helps its neighbour, whose lane it looks into: it may be asleep, and about to be woken
//! by the flush that its clients have waited for, while they could go on. A client that has been helped with goes back to
//! its own lane.

use std::collections::VecDeque;

use duramen_sync::clock::Instant;
use duramen_sync::{Arc, CachePadded, Mutex};

use crate::agent::Client;

/// The lanes of a run's agents.
#[derive(Clone)]
pub(crate) struct Lanes(Arc<[CachePadded<Mutex<Lane>>]>);

/// One agent's.
#[derive(Default)]
pub(crate) struct Lane {
    /// Clients that have a transaction to run.
    pub(crate) ready: VecDeque<Box<Client>>,
    /// Clients that wait for an acknowledgement, about in the order of their commits.
    pub(crate) in_flight: VecDeque<Box<Client>>,
    /// Clients that go on no more. Their sessions end with the lanes, and not within the time of the run: that all of them leave
    /// the database may take longer than a transaction.
    #[expect(clippy::vec_box, reason = "clients are handed on without being copied")]
    ended: Vec<Box<Client>>,
    /// Clients that a neighbour is at work for.
    away: usize,
    /// Its agent has begun.
    begun: bool,
}

/// What an agent can do for a client.
pub(crate) enum Task {
    /// Run its transaction.
    Run(Box<Client>),
    /// Take note that its transaction has been acknowledged, after waiting for that.
    Settle(Box<Client>),
}

/// A client is away from this lane, until this is dropped: by then it has been put back, unless something went wrong.
pub(crate) struct Away<'l>(pub(crate) &'l Mutex<Lane>);

impl Drop for Away<'_> {
    fn drop(&mut self) {
        self.0.lock().away -= 1;
    }
}

impl Lanes {
    /// With these clients.
    pub(crate) fn new(clients: Vec<Vec<Client>>) -> Self {
        let lane = |clients: Vec<Client>| {
            let mut lane = Lane::default();
            clients.into_iter().for_each(|client| lane.put_back(Box::new(client)));
            CachePadded::new(Mutex::new(lane))
        };
        Self(clients.into_iter().map(lane).collect())
    }

    /// The lane of this agent.
    pub(crate) fn of(&self, agent: usize) -> &Mutex<Lane> {
        &self.0[agent]
    }

    /// The agent that this one helps, if there is another.
    pub(crate) fn neighbour(&self, agent: usize) -> Option<usize> {
        Some((agent + 1) % self.0.len()).filter(|neighbour| *neighbour != agent)
    }
}

impl Lane {
    /// Its agent begins, and with it the clients, each at its time.
    pub(crate) fn begin(&mut self, start: impl Fn(&Client) -> Instant) {
        self.ready.iter_mut().for_each(|client| client.start = start(client));
        self.begun = true;
    }

    /// Takes a client in again whose transaction has ended.
    pub(crate) fn put_back(&mut self, client: Box<Client>) {
        if client.quota > 0 {
            self.ready.push_back(client);
        } else {
            self.ended.push(client);
        }
    }

    /// No client begins a transaction any more.
    pub(crate) fn end(&mut self) {
        self.ended.extend(self.ready.drain(..));
    }

    /// What can be done at once. `now` is `None` if nobody waits for a time.
    pub(crate) fn take(&mut self, now: Option<Instant>) -> Option<Task> {
        self.take_done().map(Task::Settle).or_else(|| self.take_ready(now).map(Task::Run))
    }

    /// A client whose transaction has been acknowledged.
    fn take_done(&mut self) -> Option<Box<Client>> {
        if self.in_flight.front().is_some_and(|client| client.is_done()) { self.in_flight.pop_front() } else { None }
    }

    /// A client whose time has come.
    fn take_ready(&mut self, now: Option<Instant>) -> Option<Box<Client>> {
        let Some(now) = now else { return self.ready.pop_front() };
        let due = self.ready.iter().position(|client| client.due() <= now)?;
        self.ready.remove(due)
    }

    /// Something to do for a neighbour's client, if the neighbour has another. What is taken is [`Away`].
    pub(crate) fn take_for_neighbour(&mut self, now: Option<Instant>) -> Option<Task> {
        if !self.begun || self.ready.len() + self.in_flight.len() < 2 {
            return None;
        }
        // Who has failed tries again after a pause, which is the agent's to keep.
        let has_failed = self.ready.front().is_some_and(|client| client.has_failed());
        let task = if has_failed { self.take_done().map(Task::Settle) } else { self.take(now) };
        self.away += usize::from(task.is_some());
        task
    }

    /// Whether a neighbour is at work for one of its clients.
    pub(crate) fn has_away(&self) -> bool {
        self.away > 0
    }

    /// When the next client's time comes.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.ready.iter().map(|client| client.due()).min()
    }

    /// Whether there is nothing to do, now or later.
    pub(crate) fn is_over(&self) -> bool {
        self.ready.is_empty() && self.in_flight.is_empty() && !self.has_away()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::error::Result;
    use crate::store::Acknowledge;
    use crate::workload::{Executed, Session};

    #[derive(Default)]
    struct Idle {
        _alive: Arc<()>,
    }

    impl Session for Idle {
        fn draw(&mut self, _: &mut StdRng) {}

        fn execute(&mut self, _: Acknowledge) -> Result<Executed> {
            unreachable!("nobody runs it")
        }
    }

    fn client(id: u32) -> Client {
        Client::new(id, 0, Box::new(Idle::default()), StdRng::seed_from_u64(1), 1)
    }

    #[test]
    fn sessions_last_as_long_as_the_lanes() {
        let alive = Arc::new(());
        let client = |quota| {
            let session = Box::new(Idle { _alive: Arc::clone(&alive) });
            Client::new(0, 0, session, StdRng::seed_from_u64(1), quota)
        };
        let lanes = Lanes::new(vec![vec![client(0), client(1), client(2)]]);
        let mut lane = lanes.of(0).lock();
        assert_eq!(lane.ready.len(), 2);
        let mut last = lane.take_ready(None).expect("there are two");
        last.quota = 0;
        lane.put_back(last);
        lane.end();
        assert!(lane.is_over());
        assert_eq!(Arc::strong_count(&alive), 4, "to end a session may take long, and the run is timed");
        drop(lane);
        drop(lanes);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn the_last_client_is_not_taken_and_a_lane_is_not_over_while_one_is_away() {
        let lanes = Lanes::new(vec![vec![client(0), client(1)], Vec::new()]);
        assert_eq!((lanes.neighbour(0), lanes.neighbour(1)), (Some(1), Some(0)));
        let mut lane = lanes.of(0).lock();
        let gone = Away(lanes.of(0));
        assert!(lane.take_for_neighbour(None).is_none(), "its agent has not begun");
        let now = Instant::now();
        lane.begin(|_| now);
        let Some(Task::Run(away)) = lane.take_for_neighbour(None) else { panic!("there are two") };
        assert!(lane.take_for_neighbour(None).is_none(), "the last one");
        assert!(lane.take_ready(None).is_some());
        assert!(lane.ready.is_empty() && !lane.is_over());
        lane.ready.push_back(away);
        drop(lane);
        drop(gone);
        let mut lane = lanes.of(0).lock();
        assert!(lane.take_ready(Some(Instant::now())).is_some() && lane.is_over());
        assert!(lanes.of(1).lock().is_over());
    }

    #[test]
    fn who_is_alone_has_no_neighbour() {
        assert_eq!(Lanes::new(vec![vec![client(0)]]).neighbour(0), None);
    }
}
