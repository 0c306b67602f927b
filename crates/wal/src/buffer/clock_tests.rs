use super::*;

#[test]
#[cfg(not(duramen_loom))]
fn the_lead_grows_where_the_floor_demands_it() {
    let clock = Clock::new(Lsn::new(100), Gsn::new(300), CommonFloor::default());
    assert_eq!(clock.now(Lsn::new(100)), Gsn::new(300));
    clock.pass(Lsn::new(100), || Lsn::new(100));
    assert_eq!(clock.gsn(Lsn::new(100)), Gsn::new(300));
    clock.raise(Gsn::new(310));
    clock.pass(Lsn::new(140), || Lsn::new(100));
    // The clock has advanced with the bytes: it was already later.
    assert_eq!(clock.gsn(Lsn::new(140)), Gsn::new(340));
    clock.raise(Gsn::new(500));
    assert_eq!(clock.now(Lsn::new(180)), Gsn::new(500));
    clock.pass(Lsn::new(180), || Lsn::new(100));
    assert_eq!(clock.gsn(Lsn::new(180)), Gsn::new(500));
    assert_eq!(clock.gsn(Lsn::new(220)), Gsn::new(540));
    // Threads that fill in late get the offset that was in force for their records.
    assert_eq!(clock.gsn(Lsn::new(140)), Gsn::new(340));
    assert_eq!(clock.gsn(Lsn::new(100)), Gsn::new(300));
}

#[test]
#[cfg(not(duramen_loom))]
fn leads_are_kept_as_long_as_they_are_needed() {
    let clock = Clock::new(Lsn::new(0), Gsn::new(0), CommonFloor::default());
    for step in 1..=1000_u64 {
        clock.raise(Gsn::new(step * 100));
        clock.pass(Lsn::new(step * 8), || Lsn::new(8 * 500));
    }
    for step in 500..=1000 {
        assert_eq!(clock.gsn(Lsn::new(step * 8)), Gsn::new(step * 100));
    }
    assert!(clock.earlier.lock().len() <= 502);
}

#[cfg(duramen_loom)]
mod models {
    use super::*;
    use duramen_sync::{Arc, thread};

    #[test]
    fn a_thread_that_raises_the_floor_sees_all_that_is_below() {
        raise_while_space_is_handed_out(|clock| clock.raise(Gsn::new(100)));
    }

    #[test]
    fn a_thread_that_raises_the_common_floor_sees_all_that_is_below() {
        raise_while_space_is_handed_out(|clock| {
            clock.common.fetch_max(100, Ordering::AcqRel);
            fence(Ordering::SeqCst);
        });
    }

    /// One thread hands out space; the other raises the floor and reads the end. Records beyond the
    /// end that it read are not below the floor.
    fn raise_while_space_is_handed_out(raise: fn(&Clock)) {
        loom::model(move || {
            let clock = Arc::new(Clock::new(Lsn::new(8), Gsn::new(8), CommonFloor::default()));
            let end = Arc::new(AtomicU64::new(8));
            let inserter = {
                let (clock, end) = (Arc::clone(&clock), Arc::clone(&end));
                thread::spawn("inserter", move || {
                    [8, 16].map(|lsn| {
                        end.store(lsn + 8, Ordering::Release);
                        clock.pass(Lsn::new(lsn), || Lsn::new(8));
                        clock.gsn(Lsn::new(lsn)).get()
                    })
                })
                .unwrap()
            };
            raise(&clock);
            let seen = end.load(Ordering::Acquire);
            let gsns = inserter.join().unwrap();
            assert!(gsns[0] < gsns[1]);
            for (gsn, lsn) in gsns.iter().zip([8, 16]) {
                assert!(*gsn >= 100 || lsn < seen, "the record at {lsn} has GSN {gsn}, and the end was {seen}");
            }
        });
    }

    /// Two logs, of which one thread inserts into the first, and then another thread into the
    /// second. A third thread ends the epoch meanwhile.
    #[test]
    fn a_record_is_in_no_earlier_epoch_than_one_before_it() {
        epoch_ends_while_records_are_inserted();
    }

    /// A planted bug affects the whole process, so this test, which needs `--cfg duramen_planted`,
    /// runs alone.
    #[cfg(duramen_planted)]
    #[test]
    fn an_epoch_that_does_not_end_is_noticed() {
        use duramen_types::planted::{Bug, plant};
        let _planted = plant(Bug::EpochNotEnded);
        assert!(std::panic::catch_unwind(epoch_ends_while_records_are_inserted).is_err());
    }

    fn epoch_ends_while_records_are_inserted() {
        const LONG: u64 = 2 * AHEAD;
        loom::model(|| {
            let common = CommonFloor::default();
            let clock = |end: u64| Clock::new(Lsn::new(end), Gsn::new(8), Arc::clone(&common));
            let logs = Arc::new([(clock(8), AtomicU64::new(8)), (clock(8), AtomicU64::new(8))]);
            let insert = |(clock, end): &(Clock, AtomicU64), bytes: u64| {
                let lsn = end.load(Ordering::Relaxed);
                end.store(lsn + bytes, Ordering::Release);
                clock.pass(Lsn::new(lsn), || Lsn::new(8));
                (lsn, clock.gsn(Lsn::new(lsn)))
            };
            let inserter = {
                let logs = Arc::clone(&logs);
                thread::spawn("inserter", move || {
                    // More than the boundary lies ahead.
                    let long = insert(&logs[0], LONG);
                    (long, insert(&logs[0], 8), insert(&logs[1], 8))
                })
                .unwrap()
            };
            let (mut begun, mut tails) = (Vec::new(), Vec::new());
            let ends = logs.iter().map(|(clock, end)| (clock, move || Lsn::new(end.load(Ordering::Acquire))));
            let boundary = end_epoch(ends, &mut begun, &mut tails);
            let (long, first, second) = inserter.join().unwrap();
            assert!(second.1 > boundary || first.1 <= boundary, "{boundary:?}: {first:?}, {second:?}");
            for ((lsn, gsn), log) in [(long, 0), (first, 0), (second, 1)] {
                assert!(gsn > boundary || Lsn::new(lsn) < tails[log], "{gsn:?} of {boundary:?} at {lsn}");
                assert!(gsn <= boundary || Lsn::new(lsn) >= begun[log], "{gsn:?} of {boundary:?} at {lsn}");
            }
        });
    }

    /// A thread that fills in late gets its record's own GSN, whatever the clock does meanwhile.
    #[test]
    fn the_lead_is_read_as_one() {
        loom::model(|| {
            let clock = Arc::new(Clock::new(Lsn::new(8), Gsn::new(8), CommonFloor::default()));
            clock.pass(Lsn::new(8), || Lsn::new(8));
            let inserter = {
                let clock = Arc::clone(&clock);
                thread::spawn("inserter", move || {
                    clock.raise(Gsn::new(100));
                    clock.pass(Lsn::new(16), || Lsn::new(8));
                    clock.gsn(Lsn::new(16))
                })
                .unwrap()
            };
            assert_eq!(clock.gsn(Lsn::new(8)), Gsn::new(8));
            assert_eq!(inserter.join().unwrap(), Gsn::new(100));
        });
    }
}
