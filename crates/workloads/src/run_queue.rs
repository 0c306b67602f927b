//! The clients of one agent: those with a transaction to run, and those that wait for an
//! acknowledgement.

use std::collections::VecDeque;

use duramen_sync::clock::Instant;

use crate::client::Client;

/// The run queue of an agent.
#[derive(Default)]
pub(crate) struct RunQueue {
    /// Clients that have a transaction to run.
    ready: VecDeque<Box<Client>>,
    /// Clients that wait for an acknowledgement, about in the order of their commits.
    in_flight: VecDeque<Box<Client>>,
    /// Clients that begin no more transactions. Their sessions end with the queue, after the timed
    /// run, because ending a session may take longer than a transaction.
    #[expect(clippy::vec_box, reason = "clients are handed on without being copied")]
    ended: Vec<Box<Client>>,
}

/// What an agent can do for a client.
pub(crate) enum Task {
    /// Run its transaction.
    Run(Box<Client>),
    /// Take note that its transaction has been acknowledged, after waiting for that.
    Acknowledge(Box<Client>),
}

impl RunQueue {
    /// With these clients.
    pub(crate) fn new(clients: Vec<Client>) -> Self {
        let mut queue = Self::default();
        clients.into_iter().for_each(|client| queue.put_back(Box::new(client)));
        queue
    }

    /// Gives each client the time at which it begins.
    pub(crate) fn begin(&mut self, start: impl Fn(&Client) -> Instant) {
        self.ready.iter_mut().for_each(|client| client.start = start(client));
    }

    /// Takes back a client whose transaction has ended.
    pub(crate) fn put_back(&mut self, client: Box<Client>) {
        if client.quota > 0 {
            self.ready.push_back(client);
        } else {
            self.ended.push(client);
        }
    }

    /// Takes back a client whose attempt has failed.
    pub(crate) fn retry(&mut self, client: Box<Client>) {
        self.ready.push_back(client);
    }

    /// Takes a client whose commit is in flight.
    pub(crate) fn committed(&mut self, client: Box<Client>) {
        self.in_flight.push_back(client);
    }

    /// No client begins a transaction any more.
    pub(crate) fn end(&mut self) {
        self.ended.extend(self.ready.drain(..));
    }

    /// Returns what can be done at once. `now` is `None` if no client waits for a time.
    pub(crate) fn take(&mut self, now: Option<Instant>) -> Option<Task> {
        if self.in_flight.front().is_some_and(|client| client.is_done()) {
            return self.take_in_flight();
        }
        self.take_ready(now).map(Task::Run)
    }

    /// Returns the client that has waited longest for its acknowledgement.
    pub(crate) fn take_in_flight(&mut self) -> Option<Task> {
        self.in_flight.pop_front().map(Task::Acknowledge)
    }

    /// Returns a client whose time has come.
    fn take_ready(&mut self, now: Option<Instant>) -> Option<Box<Client>> {
        let Some(now) = now else { return self.ready.pop_front() };
        let due = self.ready.iter().position(|client| client.due() <= now)?;
        self.ready.remove(due)
    }

    /// Clients with a transaction to run.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Returns the time when the next client's time comes.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.ready.iter().map(|client| client.due()).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duramen_sync::Arc;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::error::Result;
    use crate::store::Acknowledge;
    use crate::workload::{Executed, Session};

    struct Idle(#[expect(dead_code, reason = "it is counted")] Arc<()>);

    impl Session for Idle {
        fn draw(&mut self, _: &mut StdRng) {}

        fn execute(&mut self, _: Acknowledge) -> Result<Executed> {
            unreachable!("no test runs it")
        }
    }

    fn queue(alive: &Arc<()>, quotas: &[u64]) -> RunQueue {
        let client = |(id, quota): (usize, &u64)| {
            Client::new(id as u32, Box::new(Idle(Arc::clone(alive))), StdRng::seed_from_u64(1), *quota)
        };
        RunQueue::new(quotas.iter().enumerate().map(client).collect())
    }

    #[test]
    fn sessions_last_as_long_as_the_queue() {
        let alive = Arc::new(());
        let mut queue = queue(&alive, &[0, 1, 2]);
        assert_eq!(queue.ready(), 2);
        let Some(Task::Run(mut last)) = queue.take(None) else { panic!("there are two") };
        last.quota = 0;
        queue.put_back(last);
        queue.end();
        assert!(queue.take(None).is_none() && queue.take_in_flight().is_none());
        assert_eq!(Arc::strong_count(&alive), 4, "to end a session may take long, and the run is timed");
        drop(queue);
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn the_client_whose_time_has_come_is_taken_first() {
        let mut queue = queue(&Arc::new(()), &[9, 9]);
        let now = Instant::now();
        let late = now.after(Duration::from_secs(3600));
        queue.begin(|client| if client.id == 0 { late } else { now });
        assert_eq!(queue.next_due(), Some(now));
        let Some(Task::Run(client)) = queue.take(Some(Instant::now())) else { panic!("one is due") };
        assert_eq!(client.id, 1);
        assert!(queue.take(Some(Instant::now())).is_none(), "the other one is not due");
        queue.committed(client);
        let Some(Task::Acknowledge(client)) = queue.take(Some(Instant::now())) else { panic!("it is done") };
        assert_eq!((client.id, queue.next_due()), (1, Some(late)));
    }
}
