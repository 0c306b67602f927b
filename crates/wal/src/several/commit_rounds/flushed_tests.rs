//! A commit is complete only when its own log is hardened beyond it, in every interleaving of a
//! committer and a round.

use super::*;

use crate::buffer::clock::Clock;
use crate::buffer::epochs::{EpochEnd, Epochs};
use crate::several::durable_gsn::DurableGsn;
use duramen_sync::thread;
use duramen_types::Lsn;

const RECORD: u64 = 8;

/// Two logs, as far as a round reads them.
struct Two {
    clocks: [Clock; 2],
    ends: [AtomicU64; 2],
    timed: [AtomicU64; 2],
    hardened: [AtomicU64; 2],
    complete: DurableGsn,
}

impl Two {
    fn new() -> Self {
        let epochs = Arc::new(Epochs::new(Gsn::new(RECORD)));
        let clock = || Clock::new(Lsn::new(RECORD), Gsn::new(RECORD), Arc::clone(&epochs));
        let positions = || [AtomicU64::new(RECORD), AtomicU64::new(RECORD)];
        let complete = DurableGsn::new(Gsn::ZERO);
        Self { clocks: [clock(), clock()], ends: positions(), timed: positions(), hardened: positions(), complete }
    }

    /// Inserts one record, as the holder of the insertion lock does; returns its end and GSN.
    fn insert(&self, log: usize) -> (u64, Gsn) {
        let lsn = self.ends[log].load(Ordering::Relaxed);
        self.ends[log].store(lsn + RECORD, Ordering::Release);
        self.clocks[log].pass(Lsn::new(lsn), || Lsn::new(RECORD));
        self.timed[log].store(lsn + RECORD, Ordering::Release);
        (lsn + RECORD, self.clocks[log].gsn(Lsn::new(lsn)))
    }

    fn round(&self, log: usize) -> Gsn {
        self.insert(log);
        let ends = || self.ends.iter().map(|end| Lsn::new(end.load(Ordering::Acquire)));
        let timed = |log: usize| {
            let timed = Lsn::new(self.timed[log].load(Ordering::Acquire));
            (timed, self.clocks[log].now(timed))
        };
        let EpochEnd { boundary, tails, .. } = self.clocks[log].epochs().end(|| [0, 1].into_iter().map(timed), ends);
        for (hardened, tail) in self.hardened.iter().zip(tails) {
            hardened.fetch_max(tail.get(), Ordering::AcqRel);
        }
        self.complete.note(boundary);
        boundary
    }
}

#[test]
fn a_round_that_completes_a_commit_has_hardened_it() {
    loom::model(|| {
        let two = Arc::new(Two::new());
        let committer = {
            let two = Arc::clone(&two);
            thread::spawn("committer", move || {
                let (end, gsn) = two.insert(1);
                if two.complete.get() >= gsn {
                    assert!(two.hardened[1].load(Ordering::Acquire) >= end, "{gsn} ends at {end}");
                }
                (end, gsn)
            })
            .unwrap()
        };
        two.round(0);
        let (end, gsn) = committer.join().unwrap();
        assert!(two.round(0) > gsn, "a round that begins later covers the commit");
        assert!(two.hardened[1].load(Ordering::Acquire) >= end);
    });
}
