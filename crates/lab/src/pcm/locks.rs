//! Strict two-phase locking, with detection of deadlocks (PCMLogging, section 4).
//!
//! Requests for a lock wait in their order; one that asks for more than it holds goes first.

use std::collections::{HashMap, VecDeque};

/// Number of a client.
pub(super) type Client = usize;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

impl Mode {
    fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

#[derive(Debug, Default)]
struct Lock {
    holders: Vec<(Client, Mode)>,
    queue: VecDeque<(Client, Mode)>,
}

impl Lock {
    fn held_by(&self, client: Client) -> Option<Mode> {
        self.holders.iter().find(|holder| holder.0 == client).map(|holder| holder.1)
    }

    /// Returns whether `client` could hold it in `mode` beside the other holders.
    fn admits(&self, client: Client, mode: Mode) -> bool {
        self.holders.iter().all(|holder| holder.0 == client || !mode.conflicts(holder.1))
    }

    fn grant(&mut self, client: Client, mode: Mode) {
        match self.holders.iter_mut().find(|holder| holder.0 == client) {
            Some(holder) => holder.1 = mode,
            None => self.holders.push((client, mode)),
        }
    }
}

/// The lock table. What is locked has a number.
#[derive(Debug)]
pub(super) struct Locks {
    table: HashMap<u32, Lock>,
    held: Vec<Vec<u32>>,
    /// What each client waits for.
    waits: Vec<Option<u32>>,
}

impl Locks {
    pub(super) fn new(clients: usize) -> Self {
        Self { table: HashMap::new(), held: vec![Vec::new(); clients], waits: vec![None; clients] }
    }

    /// Locks `what` for `client`; false when it has to wait.
    pub(super) fn acquire(&mut self, client: Client, what: u32, mode: Mode) -> bool {
        assert!(self.waits[client].is_none(), "a client that waits asks for nothing");
        let lock = self.table.entry(what).or_default();
        let held = lock.held_by(client);
        if held.is_some_and(|held| held >= mode) {
            return true;
        }
        if lock.admits(client, mode) && (held.is_some() || lock.queue.is_empty()) {
            lock.grant(client, mode);
            if held.is_none() {
                self.held[client].push(what);
            }
            return true;
        }
        match held {
            Some(_) => lock.queue.push_front((client, mode)),
            None => lock.queue.push_back((client, mode)),
        }
        self.waits[client] = Some(what);
        false
    }

    pub(super) fn is_waiting(&self, client: Client) -> bool {
        self.waits[client].is_some()
    }

    /// Ends the client's wait, if it waits, and releases its locks; returns the clients that have
    /// got what they waited for.
    pub(super) fn release(&mut self, client: Client) -> Vec<Client> {
        let mut touched = std::mem::take(&mut self.held[client]);
        if let Some(what) = self.waits[client].take() {
            let lock = self.table.get_mut(&what).expect("somebody waits for it");
            lock.queue.retain(|waiting| waiting.0 != client);
            if !touched.contains(&what) {
                touched.push(what);
            }
        }
        let mut woken = Vec::new();
        for what in touched {
            let lock = self.table.get_mut(&what).expect("it was held or waited for");
            lock.holders.retain(|holder| holder.0 != client);
            while let Some(&(next, mode)) = lock.queue.front() {
                if !lock.admits(next, mode) {
                    break;
                }
                lock.queue.pop_front();
                if lock.held_by(next).is_none() {
                    self.held[next].push(what);
                }
                lock.grant(next, mode);
                self.waits[next] = None;
                woken.push(next);
            }
            if lock.holders.is_empty() && lock.queue.is_empty() {
                self.table.remove(&what);
            }
        }
        woken
    }

    /// Returns the clients of a deadlock that `client` is part of; none when it is part of none.
    pub(super) fn deadlock(&self, client: Client) -> Vec<Client> {
        let mut visited = vec![false; self.held.len()];
        let mut path = Vec::new();
        if self.leads_back(client, client, &mut visited, &mut path) { path } else { Vec::new() }
    }

    /// Finds a way from `at` to `to` along those that are waited for.
    fn leads_back(&self, at: Client, to: Client, visited: &mut [bool], path: &mut Vec<Client>) -> bool {
        path.push(at);
        for next in self.blockers(at) {
            if next == to {
                return true;
            }
            if !std::mem::replace(&mut visited[next], true) && self.leads_back(next, to, visited, path) {
                return true;
            }
        }
        path.pop();
        false
    }

    /// Returns whom `client` waits for: holders, and those before it in the queue.
    fn blockers(&self, client: Client) -> Vec<Client> {
        let Some(what) = self.waits[client] else { return Vec::new() };
        let lock = &self.table[&what];
        let own = lock.queue.iter().find(|waiting| waiting.0 == client).expect("it waits").1;
        let ahead = lock.queue.iter().take_while(|waiting| waiting.0 != client);
        let others = lock.holders.iter().chain(ahead).filter(|other| other.0 != client && own.conflicts(other.1));
        others.map(|other| other.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Mode::{Exclusive, Shared};

    #[test]
    fn readers_share_and_writers_wait_in_order() {
        let mut locks = Locks::new(4);
        assert!(locks.acquire(0, 7, Shared) && locks.acquire(1, 7, Shared));
        assert!(!locks.acquire(2, 7, Exclusive));
        assert!(!locks.acquire(3, 7, Shared), "it does not overtake the writer");
        assert!(locks.release(0).is_empty());
        assert_eq!(locks.release(1), [2]);
        assert!(locks.is_waiting(3) && !locks.is_waiting(2));
        assert!(locks.acquire(2, 7, Shared), "it has more");
        assert_eq!(locks.release(2), [3]);
        assert!(locks.release(3).is_empty());
        assert!(locks.table.is_empty() && locks.held.iter().all(Vec::is_empty));
    }

    #[test]
    fn a_reader_becomes_a_writer_before_others() {
        let mut locks = Locks::new(3);
        assert!(locks.acquire(0, 1, Shared) && locks.acquire(0, 1, Exclusive), "the only reader");
        assert!(locks.release(0).is_empty());
        assert!(locks.acquire(0, 1, Shared) && locks.acquire(1, 1, Shared));
        assert!(!locks.acquire(2, 1, Exclusive) && !locks.acquire(0, 1, Exclusive));
        assert_eq!(locks.release(1), [0]);
        assert_eq!(locks.release(0), [2]);
    }

    #[test]
    fn a_circle_of_waits_is_a_deadlock() {
        let mut locks = Locks::new(4);
        for client in 0..3 {
            assert!(locks.acquire(client, client as u32, Exclusive));
        }
        assert!(!locks.acquire(0, 1, Shared) && !locks.acquire(1, 2, Shared));
        assert!(!locks.acquire(3, 0, Shared));
        assert!(locks.deadlock(3).is_empty() && locks.deadlock(0).is_empty());
        assert!(!locks.acquire(2, 0, Exclusive));
        let mut circle = locks.deadlock(2);
        circle.sort_unstable();
        assert_eq!(circle, [0, 1, 2], "and not the client that waits for one of them");
        assert_eq!(locks.release(1), [0], "a victim's locks go to the client that waits");
        assert!(locks.deadlock(2).is_empty());
    }

    #[test]
    fn two_readers_that_want_to_write_are_a_deadlock() {
        let mut locks = Locks::new(2);
        assert!(locks.acquire(0, 1, Shared) && locks.acquire(1, 1, Shared));
        assert!(!locks.acquire(0, 1, Exclusive) && locks.deadlock(0).is_empty());
        assert!(!locks.acquire(1, 1, Exclusive));
        assert_eq!(locks.deadlock(1).len(), 2);
        assert_eq!(locks.release(0), [1]);
        assert!(!locks.is_waiting(1));
    }
}
