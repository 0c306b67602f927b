//! Clients that replay a trace on a scheme, in virtual time.
//!
//! Each client takes the next transaction of the trace when it has ended one, so that all schemes
//! get the same transactions in the same order. An access waits for its lock; while a client waits
//! for a lock or for a device, others go on. When a client would wait in a circle, the youngest
//! transaction of the circle is taken back and run again after a random time (PCMLogging,
//! section 4).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use duramen_sync::SplitMix64;

use super::devices::{Counts, Devices, Nanos};
use super::locks::{Client, Locks, Mode};
use super::scheme::{Scheme, Xid};
use super::trace::Trace;

/// Processor time of an access. It shifts the clients against each other, and nothing else.
const ACCESS_TIME: Nanos = 5_000;
/// The longest pause after a deadlock.
const LONGEST_PAUSE: u64 = 10_000_000;

/// What a replay gave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Replayed {
    /// The counts and the time, each time so many more transactions had ended.
    samples: Vec<(Counts, Nanos)>,
    every: usize,
    /// How many transactions had ended when the PCM was full for the first time.
    pub(crate) full_after: Option<usize>,
}

impl Replayed {
    /// Returns what was counted, and how long it took, from the first sample after `from`
    /// transactions to the end.
    pub(crate) fn after(&self, from: usize) -> (Counts, Nanos) {
        let start = from.div_ceil(self.every).min(self.samples.len() - 1);
        let ((before, begin), (counts, end)) = (self.samples[start], *self.samples.last().expect("there is one"));
        (counts.since(&before), end - begin)
    }
}

/// A transaction in progress.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Its number in the trace, which says how old it is.
    txn: usize,
    xid: Xid,
    /// Accesses it has made.
    done: usize,
}

/// Replays.
struct Replay<'r> {
    trace: &'r Trace,
    scheme: &'r mut dyn Scheme,
    devices: Devices,
    locks: Locks,
    /// When clients go on, with a number that keeps those of one time in order.
    agenda: BinaryHeap<Reverse<(Nanos, u64, Client)>>,
    entered: u64,
    running: Vec<Option<Running>>,
    next_txn: usize,
    next_xid: u64,
    ended: usize,
    random: SplitMix64,
    replayed: Replayed,
}

/// Replays `trace` with so many clients, and takes a sample every so many transactions.
pub(crate) fn replay(trace: &Trace, scheme: &mut dyn Scheme, clients: usize, every: usize) -> Replayed {
    let mut replay = Replay {
        trace,
        scheme,
        devices: Devices::new(trace.pages()),
        locks: Locks::new(clients),
        agenda: BinaryHeap::new(),
        entered: 0,
        running: vec![None; clients],
        next_txn: 0,
        next_xid: 0,
        ended: 0,
        random: SplitMix64::new(0),
        replayed: Replayed { every, samples: vec![(Counts::default(), 0)], full_after: None },
    };
    for client in 0..clients {
        replay.enter(client, 0);
    }
    while let Some(Reverse((now, _, client))) = replay.agenda.pop() {
        replay.devices.now = now;
        replay.step(client);
    }
    assert_eq!(replay.ended, trace.len(), "every transaction ended");
    replay.replayed
}

impl Replay<'_> {
    /// Has `client` go on at `time`.
    fn enter(&mut self, client: Client, time: Nanos) {
        self.entered += 1;
        self.agenda.push(Reverse((time, self.entered, client)));
    }

    fn step(&mut self, client: Client) {
        let Some(Running { txn: number, xid, done }) = self.running[client] else {
            if self.next_txn < self.trace.len() {
                self.begin(client, self.next_txn);
                self.next_txn += 1;
                self.enter(client, self.devices.now);
            }
            return;
        };
        let txn = self.trace.txn(number).expect("it is in the trace");
        let Some(&op) = txn.ops.get(done) else {
            self.end(client, xid, txn.commits);
            return;
        };
        if op.writes() || txn.locks_reads {
            let mode = if op.writes() { Mode::Exclusive } else { Mode::Shared };
            if !self.locks.acquire(client, self.scheme.lock_of(op.tuple()), mode) {
                self.resolve(client);
                return;
            }
        }
        self.devices.counts.accesses += 1;
        self.devices.now += ACCESS_TIME;
        self.scheme.access(xid, op, &mut self.devices);
        self.running[client] = Some(Running { txn: number, xid, done: done + 1 });
        self.enter(client, self.devices.now);
    }

    fn begin(&mut self, client: Client, txn: usize) {
        self.next_xid += 1;
        self.running[client] = Some(Running { txn, xid: Xid::new(self.next_xid), done: 0 });
    }

    fn end(&mut self, client: Client, xid: Xid, commits: bool) {
        if commits {
            self.scheme.commit(xid, &mut self.devices);
            self.devices.counts.committed += 1;
        } else {
            self.scheme.abort(xid, &mut self.devices);
        }
        self.running[client] = None;
        self.release(client);
        self.enter(client, self.devices.now);
        self.ended += 1;
        if self.replayed.full_after.is_none() && self.scheme.has_been_full() {
            self.replayed.full_after = Some(self.ended);
        }
        if self.ended.is_multiple_of(self.replayed.every) {
            self.replayed.samples.push((self.devices.counts, self.devices.now));
        }
    }

    fn release(&mut self, client: Client) {
        for woken in self.locks.release(client) {
            self.enter(woken, self.devices.now);
        }
    }

    /// Takes transactions back until `client`, which waits, does not wait in a circle.
    fn resolve(&mut self, client: Client) {
        while self.locks.is_waiting(client) {
            let circle = self.locks.deadlock(client);
            let age = |client: &Client| self.running[*client].expect("it waits in a transaction").txn;
            let Some(&youngest) = circle.iter().max_by_key(|client| age(client)) else { return };
            let Running { txn, xid, .. } = self.running[youngest].expect("it waits in a transaction");
            let now = self.devices.now;
            self.scheme.abort(xid, &mut self.devices);
            self.devices.counts.restarted += 1;
            self.release(youngest);
            self.begin(youngest, txn);
            let pause = self.random.below(LONGEST_PAUSE);
            self.enter(youngest, self.devices.now + pause);
            self.devices.now = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcm::trace::{Access, Op, Page, Tuple, Txn};

    /// Writes down what it is asked for.
    #[derive(Default)]
    struct Recorder(Vec<String>);

    impl Scheme for Recorder {
        fn lock_of(&self, tuple: Tuple) -> u32 {
            tuple.get()
        }

        fn access(&mut self, txn: Xid, op: Op, _: &mut Devices) {
            self.0.push(format!("{txn:?} {op:?}"));
        }

        fn commit(&mut self, txn: Xid, _: &mut Devices) {
            self.0.push(format!("{txn:?} commits"));
        }

        fn abort(&mut self, txn: Xid, _: &mut Devices) {
            self.0.push(format!("{txn:?} aborts"));
        }

        fn has_been_full(&self) -> bool {
            self.0.len() > 3
        }
    }

    fn trace(txns: &[(&[(Access, u32)], bool)]) -> Trace {
        let mut trace = Trace::new(1);
        for (ops, commits) in txns {
            let ops: Vec<Op> = ops.iter().map(|&(access, tuple)| Op::new(access, Page::new(0).tuple(tuple))).collect();
            trace.push(Txn { ops: &ops, locks_reads: true, commits: *commits });
        }
        trace
    }

    #[test]
    fn clients_take_turns_and_wait_for_locks() {
        use Access::{Read, Update};
        let trace = trace(&[(&[(Update, 1), (Read, 2)], true), (&[(Read, 1)], true), (&[(Read, 3)], false)]);
        let mut recorder = Recorder::default();
        let replayed = replay(&trace, &mut recorder, 2, 1);
        let expected = [
            "Xid(1) Update 1",
            "Xid(1) Read 2",
            "Xid(1) commits",
            "Xid(2) Read 1",
            "Xid(3) Read 3",
            "Xid(2) commits",
            "Xid(3) aborts",
        ];
        let mut order = recorder.0.clone();
        order.sort();
        let mut sorted = expected.map(str::to_owned).to_vec();
        sorted.sort();
        assert_eq!(order, sorted);
        let at = |what: &str| recorder.0.iter().position(|other| other == what);
        assert!(at("Xid(1) commits") < at("Xid(2) Read 1"), "{recorder:?}", recorder = recorder.0);
        assert_eq!(replayed.full_after, Some(2));
        let (all, time) = replayed.after(0);
        assert_eq!((all.committed, all.accesses, all.restarted, time > 0), (2, 4, 0, true));
        assert_eq!(replayed.after(2).0.committed + replayed.after(2).0.accesses, 0, "the last one was taken back");
    }

    #[test]
    fn the_youngest_of_a_deadlock_is_run_again() {
        use Access::Update;
        let trace = trace(&[(&[(Update, 1), (Update, 2)], true), (&[(Update, 2), (Update, 1)], true)]);
        let mut recorder = Recorder::default();
        let replayed = replay(&trace, &mut recorder, 2, 1);
        let expected = [
            "Xid(1) Update 1",
            "Xid(2) Update 2",
            "Xid(2) aborts",
            "Xid(1) Update 2",
            "Xid(1) commits",
            "Xid(3) Update 2",
            "Xid(3) Update 1",
            "Xid(3) commits",
        ];
        assert_eq!(recorder.0, expected);
        assert_eq!((replayed.after(0).0.restarted, replayed.after(0).0.committed), (1, 2));
    }
}
