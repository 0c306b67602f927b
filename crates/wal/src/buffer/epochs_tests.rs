use super::*;

use crate::buffer::clock::Clock;
use duramen_sync::Arc;

/// Two logs, as far as epochs read them.
struct Two {
    epochs: Arc<Epochs>,
    logs: [Log; 2],
}

/// Its clock, its end, and up to where its records have GSNs.
struct Log(Clock, AtomicU64, AtomicU64);

const START: u64 = 8;

impl Two {
    fn new() -> Arc<Self> {
        let epochs = Arc::new(Epochs::new(Gsn::new(START)));
        let position = || AtomicU64::new(START);
        let log = || Log(Clock::new(Lsn::new(START), Gsn::new(START), Arc::clone(&epochs)), position(), position());
        let logs = [log(), log()];
        Arc::new(Self { epochs, logs })
    }

    /// Inserts a record, as the holder of the insertion lock does; returns its LSN and GSN.
    fn insert(&self, log: usize, bytes: u64) -> (Lsn, Gsn) {
        let Log(clock, end, timed) = &self.logs[log];
        let lsn = Lsn::new(end.load(Ordering::Relaxed));
        end.store(lsn.get() + bytes, Ordering::Release);
        clock.pass(lsn, || Lsn::new(START));
        timed.store(lsn.get() + bytes, Ordering::Release);
        (lsn, clock.gsn(lsn))
    }

    fn end_epoch(&self) -> EpochEnd {
        self.epochs.end(|| self.timed().into_iter(), || self.ends().into_iter())
    }

    fn timed(&self) -> [(Lsn, Gsn); 2] {
        [0, 1].map(|log| {
            let Log(clock, _, timed) = &self.logs[log];
            let timed = Lsn::new(timed.load(Ordering::Acquire));
            (timed, clock.now(timed))
        })
    }

    fn ends(&self) -> [Lsn; 2] {
        [0, 1].map(|log| Lsn::new(self.logs[log].1.load(Ordering::Acquire)))
    }
}

#[cfg(not(duramen_loom))]
#[test]
fn boundaries_are_above_everything_before_them() {
    let two = Two::new();
    let mut last = Gsn::ZERO;
    for round in 0..100 {
        let records = [0, 1].map(|log| two.insert(log, 1 + 100 * round * (log as u64 + 1)).1);
        // A record that follows one of the other log.
        two.logs[0].0.raise(Gsn::new(records[1].get() + 1));
        let follower = two.insert(0, 8).1;
        assert!(records.iter().all(|gsn| *gsn > last) && follower > records[1]);
        let EpochEnd { boundary, begun, tails } = two.end_epoch();
        assert!(records.iter().chain([&follower]).all(|gsn| *gsn <= boundary), "{round}: {boundary}");
        assert_eq!(begun, tails, "nothing was inserted meanwhile");
        last = boundary;
    }
}

#[cfg(not(duramen_loom))]
#[test]
fn an_epoch_that_is_overrun_ends_further_ahead() {
    let two = Two::new();
    let (mut reads, mut passed) = (0, Gsn::ZERO);
    let timed = || {
        reads += 1;
        let timed = two.timed();
        if reads == 1 {
            // Another thread inserts more before the floor is raised.
            two.insert(0, 3 * AHEAD);
            passed = two.insert(0, 8).1;
        }
        timed.into_iter()
    };
    let end = two.epochs.end(timed, || two.ends().into_iter());
    assert!(reads > 1 && end.boundary >= passed, "{reads} reads, {passed}, {end:?}");
    assert!(two.insert(1, 8).1 > end.boundary);
}

/// Every interleaving.
#[cfg(duramen_loom)]
mod models {
    use super::*;
    use duramen_sync::thread;

    /// One thread inserts into the first log and then into the second; another ends the epoch.
    fn an_epoch_ends_while_records_are_inserted() {
        loom::model(|| {
            let two = Two::new();
            let inserter = {
                let two = Arc::clone(&two);
                thread::spawn("inserter", move || {
                    // The first is longer than the distance of the boundary.
                    [two.insert(0, 2 * AHEAD), two.insert(0, 8), two.insert(1, 8)]
                })
                .unwrap()
            };
            let EpochEnd { boundary, begun, tails } = two.end_epoch();
            let records = inserter.join().unwrap();
            for pair in records.windows(2) {
                assert!(pair[0].1 <= boundary || pair[1].1 > boundary, "{boundary}: {pair:?}");
            }
            for ((lsn, gsn), log) in records.into_iter().zip([0, 0, 1]) {
                let is_old = gsn <= boundary;
                assert!(if is_old { lsn < tails[log] } else { lsn >= begun[log] }, "{gsn} at {lsn}, {boundary}");
            }
        });
    }

    #[test]
    fn a_record_is_in_no_earlier_epoch_than_one_before_it() {
        an_epoch_ends_while_records_are_inserted();
    }

    /// A planted bug affects the whole process, so this test, which needs `--cfg duramen_planted`,
    /// runs alone.
    #[cfg(duramen_planted)]
    #[test]
    fn an_epoch_that_does_not_end_is_noticed() {
        use duramen_types::planted::{Bug, plant};
        let _planted = plant(Bug::EpochNotEnded);
        assert!(std::panic::catch_unwind(an_epoch_ends_while_records_are_inserted).is_err());
    }
}
