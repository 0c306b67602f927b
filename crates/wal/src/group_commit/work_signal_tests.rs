use super::*;

#[cfg(not(duramen_loom))]
mod native {
    use std::time::Duration;

    use duramen_sync::clock::Instant;
    use duramen_sync::{Arc, thread};

    use super::*;
    use crate::wake_event::WakeEvent;

    #[test]
    fn a_publisher_acts_if_more_is_pending_than_is_attended() {
        let pending = PendingCounters::default();
        assert!(pending.post(8), "nobody attends");
        pending.signal.attend(3);
        assert!(!pending.post(24));
        assert!(!pending.post(16));
        assert!(pending.post(32), "the fourth in its stripe");
        assert_eq!(pending.collect().collect::<Vec<_>>(), [(4, 32)]);
        assert_eq!(pending.collect().count(), 0, "they are counted once");
        assert!(!pending.post(8));
        pending.signal.withdraw();
        assert_eq!(pending.collect().collect::<Vec<_>>(), [(1, 32)], "the highest ever");
        assert!(pending.post(8));
    }

    #[test]
    fn the_first_publisher_wakes_an_attendant_that_has_found_nothing() {
        let signal = WorkSignal::default();
        assert!(signal.claim());
        assert!(!signal.claim(), "it has been woken");
        assert!(signal.is_attended());
        assert_eq!(signal.look(|| Some(1)), Some(1));
        assert!(!signal.claim(), "it looks again after what it has found");
        assert_eq!(signal.look(|| None::<()>), None);
        assert!(!signal.is_attended());
        assert!(signal.claim());
    }

    /// Longer than any thread of a busy machine waits for a processor.
    const FOR_EVER: Duration = Duration::from_secs(60);

    /// An attendant that sleeps whenever it finds nothing is woken for each of many pieces of work.
    #[test]
    fn no_wake_up_is_lost_among_many() {
        const EACH: u64 = 20_000;
        let shared = Arc::new((WorkSignal::default(), WakeEvent::new(), [(); 3].map(|()| AtomicU64::new(0))));
        let publishers = [0, 1, 2].map(|number| {
            let shared = Arc::clone(&shared);
            let publish = move || {
                let (signal, event, published) = &*shared;
                for piece in 0..EACH {
                    published[number].fetch_add(1, Ordering::Release);
                    if signal.claim() {
                        event.wake();
                    }
                    // From time to time the attendant finds all work done, and sleeps.
                    if piece % 64 == 0 {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            };
            thread::spawn("publisher", publish).unwrap()
        });
        let (signal, event, published) = &*shared;
        let mut done = 0;
        while done < 3 * EACH {
            if !signal.is_attended() {
                let since = Instant::now();
                event.wait(Some(FOR_EVER));
                assert!(since.elapsed() < FOR_EVER, "the attendant sleeps, and {done} pieces are done");
                continue;
            }
            let all = || published.iter().map(|published| published.load(Ordering::Acquire)).sum::<u64>();
            done = signal.look(|| Some(all()).filter(|all| *all > done)).unwrap_or(done);
        }
        publishers.into_iter().for_each(|publisher| publisher.join().unwrap());
    }

    /// Each request that is posted while an attendant attends, withdraws and collects is collected
    /// once, by the attendant or by its publisher.
    #[test]
    fn every_post_is_collected_once() {
        const EACH: usize = 50_000;
        let pending = Arc::new(PendingCounters::default());
        let collect = |pending: &PendingCounters| pending.collect().map(|(count, _)| count).sum::<usize>();
        let publishers = [1, 2, 3].map(|number| {
            let pending = Arc::clone(&pending);
            let publish = move || {
                let posts = (0..EACH).map(|post| (3 * post + number) as u64);
                posts.map(|lsn| if pending.post(lsn) { collect(&pending) } else { 0 }).sum::<usize>()
            };
            thread::spawn("publisher", publish).unwrap()
        });
        let mut collected = 0;
        for round in 0..1000 {
            pending.signal.attend(round % 4 * round);
            thread::yield_now();
            pending.signal.withdraw();
            collected += collect(&pending);
        }
        // The attendant has withdrawn at the end, so the publishers have collected every request
        // that it has not found.
        collected += publishers.into_iter().map(|publisher| publisher.join().unwrap()).sum::<usize>();
        assert_eq!(collected, 3 * EACH);
        assert_eq!(collect(&pending), 0);
    }
}

/// Each step of the protocol, in every interleaving.
#[cfg(duramen_loom)]
mod loom_models {
    use duramen_sync::{Arc, thread};

    use super::*;
    use crate::test_support::model;
    use crate::wake_event::WakeEvent;

    /// Steps 1, 2 and 4: an attendant that has withdrawn finds a request, or its publisher acts.
    #[test]
    fn models_withdraw_and_look() {
        model(3, || {
            let pending = Arc::new(PendingCounters::default());
            pending.signal.attend(usize::MAX);
            let lsns = [8, 16];
            let publishers = lsns.map(|lsn| {
                let pending = Arc::clone(&pending);
                thread::spawn("publisher", move || pending.post(lsn)).unwrap()
            });
            pending.signal.withdraw();
            let seen: Vec<_> = pending.collect().collect();
            let acts = publishers.map(|publisher| publisher.join().unwrap());
            for (lsn, acts) in lsns.into_iter().zip(acts) {
                let is_seen = seen.iter().any(|(_, highest)| *highest >= lsn);
                assert!(is_seen || acts, "{lsn:?} is lost");
            }
            let later: usize = pending.collect().map(|(count, _)| count).sum();
            assert_eq!(seen.iter().map(|(count, _)| count).sum::<usize>() + later, 2, "each is counted once");
        });
    }

    /// Step 3: work that is published while the attendant looks is found when the attendant looks
    /// again, as it has declared.
    #[test]
    fn models_attend_and_look_again() {
        model(3, || {
            let pending = Arc::new(PendingCounters::default());
            let publisher = {
                let pending = Arc::clone(&pending);
                thread::spawn("publisher", move || pending.post(8)).unwrap()
            };
            let look = || {
                pending.signal.withdraw();
                pending.collect().map(|(count, _)| count).sum::<usize>()
            };
            let first = look();
            pending.signal.attend(usize::MAX);
            let second = look();
            let acts = publisher.join().unwrap();
            assert!(acts || first + second == 1, "it is lost");
        });
    }

    /// Each of two stripes holds no more requests than are attended, except those for which
    /// publishers act.
    #[test]
    fn models_attend_a_limited_number() {
        model(3, || {
            let pending = Arc::new(PendingCounters::default());
            pending.signal.attend(1);
            let publishers = [(); 3].map(|()| {
                let pending = Arc::clone(&pending);
                thread::spawn("publisher", move || pending.post(8)).unwrap()
            });
            let acts = publishers.map(|publisher| publisher.join().unwrap());
            assert!(acts.contains(&true), "three are more than one in each of two stripes");
        });
    }

    /// Steps 2 and 4 where the publisher wakes the attendant, which sleeps when it finds no work. A
    /// lost wake-up is a deadlock, which loom reports.
    #[test]
    fn models_wake_an_attendant_that_sleeps() {
        model(3, || {
            let shared = Arc::new((WorkSignal::default(), WakeEvent::new(), AtomicU64::new(0)));
            let attendant = Arc::clone(&shared);
            let attendant = thread::spawn("attendant", move || {
                let (signal, event, work) = &*attendant;
                let mut done = 0;
                while done < 2 {
                    if !signal.is_attended() {
                        event.wait(None);
                        continue;
                    }
                    let found = signal.look(|| Some(work.load(Ordering::Acquire)).filter(|found| *found > done));
                    done = found.unwrap_or(done);
                }
            });
            let (signal, event, work) = &*shared;
            for _ in 0..2 {
                work.fetch_add(1, Ordering::AcqRel);
                if signal.claim() {
                    event.wake();
                }
            }
            attendant.unwrap().join().unwrap();
        });
    }
}
