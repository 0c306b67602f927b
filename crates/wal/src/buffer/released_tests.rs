use duramen_sync::{Arc, thread};

use super::*;

const START: u64 = 8;

/// Spaces of one byte, numbered from zero.
fn release(released: &Released, number: u64) {
    let lsn = Lsn::new(START + number);
    released.release(lsn, lsn.advance(1), || false);
}

#[cfg(not(duramen_loom))]
mod native {
    use std::time::Duration;

    use super::*;

    #[test]
    fn notes_are_followed_in_whatever_order_they_were_left() {
        let released = Released::new(Lsn::new(START), 1 << 20);
        for number in [3, 1, 5, 2] {
            release(&released, number);
            assert_eq!(released.get(), Lsn::new(START));
        }
        release(&released, 0);
        assert_eq!(released.get(), Lsn::new(START + 4), "the thread that released in order follows");
        release(&released, 4);
        assert_eq!(released.get(), Lsn::new(START + 6));
        assert!(
            released
                .buckets
                .iter()
                .flat_map(|bucket| &bucket.0)
                .all(|entry| entry.start.load(Ordering::Relaxed) == FREE)
        );
    }

    #[test]
    fn a_passing_thread_follows_some_entries_and_a_flush_follows_all() {
        let released = Released::new(Lsn::new(START), 1 << 20);
        let most = FOLLOWED as u64 + 10;
        (1..=most).for_each(|number| release(&released, number));
        release(&released, 0);
        assert_eq!(released.get(), Lsn::new(START + 1 + FOLLOWED as u64));
        released.follow_all();
        assert_eq!(released.get(), Lsn::new(START + 1 + most));
    }

    /// More spaces than there are cells lie behind one that is not filled in: the threads that have
    /// filled them in wait.
    #[test]
    fn a_full_table_is_waited_for() {
        let released = Arc::new(Released::new(Lsn::new(START), 0));
        let spaces = 4 * (released.buckets.len() * 4) as u64;
        let early = {
            let released = Arc::clone(&released);
            thread::spawn("early", move || (1..spaces).for_each(|number| super::release(&released, number))).unwrap()
        };
        thread::sleep(Duration::from_millis(20));
        assert_eq!(released.get(), Lsn::new(START));
        release(&released, 0);
        early.join().unwrap();
        released.follow_all();
        assert_eq!(released.get(), Lsn::new(START + spaces));
    }

    #[test]
    fn nobody_waits_when_the_log_has_failed() {
        let released = Released::new(Lsn::new(START), 0);
        for number in 1..1000 {
            let lsn = Lsn::new(START + number);
            released.release(lsn, lsn.advance(1), || true);
        }
        assert_eq!(released.get(), Lsn::new(START));
    }

    #[test]
    fn without_entries_every_owner_waits() {
        let released = Arc::new(Released::without_early_entries(Lsn::new(START)));
        let early = {
            let released = Arc::clone(&released);
            thread::spawn("early", move || release(&released, 1)).unwrap()
        };
        release(&released, 0);
        early.join().unwrap();
        assert_eq!(released.get(), Lsn::new(START + 2));
    }
}

#[cfg(duramen_loom)]
mod models {
    use duramen_sync::cell::UnsafeCell;

    use super::*;
    use crate::test_support::model;

    struct Log(Released, Vec<UnsafeCell<u64>>);

    // SAFETY: the models check that accesses to the cells do not conflict.
    unsafe impl Send for Log {}
    // SAFETY: as above.
    unsafe impl Sync for Log {}

    impl Log {
        fn new(spaces: usize) -> Arc<Self> {
            let cells = (0..spaces).map(|_| UnsafeCell::new(0)).collect();
            Arc::new(Self(Released::new(Lsn::new(START), 0), cells))
        }

        fn fill(&self, number: u64) {
            // SAFETY: no other thread fills this in, nor reads it before it is released; loom
            // checks it.
            self.1[number as usize].with_mut(|cell| unsafe { *cell = number + 1 });
        }

        fn check(&self) {
            for number in 0..self.0.get().get() - START {
                // SAFETY: it has been released; loom checks it.
                assert_eq!(self.1[number as usize].with(|cell| unsafe { *cell }), number + 1);
            }
        }
    }

    fn spawn(log: &Arc<Log>, number: u64, end: impl FnOnce(&Released, Lsn) + Send + 'static) -> thread::JoinHandle<()> {
        let log = Arc::clone(log);
        thread::spawn("owner", move || {
            log.fill(number);
            end(&log.0, Lsn::new(START + number));
        })
        .unwrap()
    }

    /// Three owners come in any order. There is one cell, so one of them may have to wait for it.
    #[test]
    fn spaces_are_released_in_order() {
        model(3, || {
            let log = Log::new(3);
            let owners = [2, 1]
                .map(|number| spawn(&log, number, |released, lsn| released.release(lsn, lsn.advance(1), || false)));
            log.fill(0);
            release(&log.0, 0);
            log.check();
            owners.into_iter().for_each(|owner| owner.join().unwrap());
            log.0.follow_all();
            log.check();
            assert_eq!(log.0.get(), Lsn::new(START + 3));
        });
    }

    /// Of two threads that leave entries one behind the other, either the first finds the second's
    /// entry or the second finds the position moved.
    #[test]
    fn notes_do_not_miss_each_other() {
        loom::model(|| {
            let log = Log::new(2);
            let leave = |released: &Released, lsn: Lsn| {
                released.leave_entry(lsn, lsn.advance(1), || false);
                released.follow(2);
            };
            let second = spawn(&log, 1, leave);
            log.fill(0);
            leave(&log.0, Lsn::new(START));
            second.join().unwrap();
            log.check();
            assert_eq!(log.0.get(), Lsn::new(START + 2));
        });
    }
}
