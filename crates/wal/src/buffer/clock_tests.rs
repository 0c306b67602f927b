use super::*;

fn epochs() -> Arc<Epochs> {
    Arc::new(Epochs::new(Gsn::ZERO))
}

#[test]
#[cfg(not(duramen_loom))]
fn the_lead_grows_where_the_floor_demands_it() {
    let clock = Clock::new(Lsn::new(100), Gsn::new(300), epochs());
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
    let clock = Clock::new(Lsn::new(0), Gsn::new(0), epochs());
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

    /// One thread hands out space; the other raises the floor and reads the end. Records beyond the
    /// end that it read are not below the floor.
    fn raise_while_space_is_handed_out(raise: fn(&Clock)) {
        loom::model(move || {
            let clock = Arc::new(Clock::new(Lsn::new(8), Gsn::new(8), epochs()));
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

    /// A thread that fills in late gets its record's own GSN, whatever the clock does meanwhile.
    #[test]
    fn the_lead_is_read_as_one() {
        loom::model(|| {
            let clock = Arc::new(Clock::new(Lsn::new(8), Gsn::new(8), epochs()));
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
