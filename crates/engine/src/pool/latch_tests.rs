//! Models of the latch (loom) and the same scenarios on real threads.

use duramen_sync::atomic::AtomicU64;
use duramen_sync::{Arc, thread};

use super::*;

/// A latch and two words that are equal whenever no thread holds the latch exclusively.
struct Pair {
    latch: Latch,
    lot: ParkingLot,
    words: [AtomicU64; 2],
}

impl Pair {
    fn new() -> Arc<Self> {
        Arc::new(Self { latch: Latch::new(), lot: ParkingLot::new(), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }

    /// Adds one to both, by plain loads and stores.
    fn change(&self) {
        for word in &self.words {
            let value = word.load(Ordering::Relaxed);
            word.store(value + 1, Ordering::Relaxed);
        }
    }

    fn read(&self) -> [u64; 2] {
        [self.words[1].load(Ordering::Relaxed), self.words[0].load(Ordering::Relaxed)]
    }

    fn change_exclusively(&self) {
        assert!(self.latch.exclusive(&self.lot, || true));
        self.change();
        self.latch.release_exclusive(true, &self.lot);
    }

    fn check_optimistically(&self) -> bool {
        let Some(version) = self.latch.version() else { return false };
        let [a, b] = self.read();
        let valid = self.latch.validate(version);
        assert!(!valid || a == b, "validated {a} and {b}");
        valid
    }

    fn check_shared(&self) {
        assert!(self.latch.shared(&self.lot, || true));
        let [a, b] = self.read();
        self.latch.release_shared(&self.lot);
        assert_eq!(a, b);
    }

    /// Changes both words by way of an optimistic read; returns whether no other thread interfered.
    fn change_by_upgrade(&self) -> bool {
        let Some(version) = self.latch.version() else { return false };
        let [before, _] = self.read();
        if self.latch.try_upgrade(version) != Upgrade::Granted {
            return false;
        }
        assert_eq!(self.read(), [before, before], "changed between the version and the upgrade");
        self.change();
        self.latch.release_exclusive(true, &self.lot);
        true
    }
}

fn spawn(pair: &Arc<Pair>, body: impl FnOnce(&Pair) + Send + 'static) -> thread::JoinHandle<()> {
    let pair = Arc::clone(pair);
    thread::spawn("latch-test", move || body(&pair)).expect("a thread starts")
}

#[cfg(duramen_loom)]
mod models {
    use super::*;

    fn model(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    // Loom searches for other orders from the last access to each atomic, which a thread's own load
    // hides. So the first thread, the model's own, only changes the words, and a spawned thread
    // reads them.

    #[test]
    fn validated_reads_are_of_one_moment() {
        model(|| {
            let pair = Pair::new();
            let reader = spawn(&pair, |pair| {
                pair.check_optimistically();
            });
            pair.change_exclusively();
            reader.join().unwrap();
            assert!(pair.check_optimistically());
        });
    }

    #[test]
    fn writers_exclude_each_other_and_wake_sleepers() {
        model(|| {
            let pair = Pair::new();
            let other = spawn(&pair, Pair::change_exclusively);
            pair.change_exclusively();
            other.join().unwrap();
            assert_eq!(pair.read(), [2, 2]);
        });
    }

    #[test]
    fn readers_and_writers_exclude_each_other() {
        model(|| {
            let pair = Pair::new();
            let reader = spawn(&pair, Pair::check_shared);
            pair.change_exclusively();
            reader.join().unwrap();
        });
    }

    #[test]
    fn an_upgrade_sees_what_was_read() {
        model(|| {
            let pair = Pair::new();
            let upgraded = Arc::new(AtomicU64::new(0));
            let upgrader = {
                let upgraded = Arc::clone(&upgraded);
                spawn(&pair, move |pair| upgraded.store(u64::from(pair.change_by_upgrade()), Ordering::Relaxed))
            };
            pair.change_exclusively();
            upgrader.join().unwrap();
            let changes = 1 + upgraded.load(Ordering::Relaxed);
            assert_eq!(pair.read(), [changes, changes]);
        });
    }

    /// A waiter stops waiting when the page leaves the frame, even if another thread then holds the
    /// latch for good.
    #[test]
    fn an_unwanted_latch_is_not_waited_for() {
        model(|| {
            let pair = Pair::new();
            assert!(pair.latch.try_exclusive());
            let waiter = spawn(&pair, |pair| {
                let wanted = || pair.words[0].load(Ordering::Relaxed) == 0;
                if pair.latch.exclusive(&pair.lot, wanted) {
                    assert_ne!(pair.words[0].load(Ordering::Relaxed), 0, "was free only after the change");
                    pair.latch.release_exclusive(false, &pair.lot);
                }
            });
            pair.change();
            pair.latch.release_exclusive(true, &pair.lot);
            let held = pair.latch.try_exclusive();
            waiter.join().unwrap();
            if held {
                pair.latch.release_exclusive(false, &pair.lot);
            }
            assert!(pair.latch.shared(&pair.lot, || true), "nobody waits any more");
        });
    }
}

#[cfg(not(duramen_loom))]
mod stress {
    use duramen_sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn words_stay_equal_under_every_kind_of_access() {
        const ROUNDS: u64 = 20_000;
        let pair = Pair::new();
        let done = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..2)
            .map(|_| spawn(&pair, |pair| (0..ROUNDS).for_each(|_| pair.change_exclusively())))
            .chain([spawn(&pair, |pair| {
                (0..ROUNDS).for_each(|_| {
                    while !pair.change_by_upgrade() {
                        std::hint::spin_loop()
                    }
                })
            })])
            .collect();
        let readers: Vec<_> = (0..2)
            .map(|kind| {
                let done = Arc::clone(&done);
                spawn(&pair, move |pair| {
                    while !done.load(Ordering::Relaxed) {
                        if kind == 0 {
                            pair.check_optimistically();
                        } else {
                            pair.check_shared();
                        }
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(pair.read(), [3 * ROUNDS, 3 * ROUNDS]);
        assert_eq!(pair.latch.word.load(Ordering::Relaxed) & !(VERSION_MASK | PARKED), 0, "nobody is left behind");
    }

    #[test]
    fn a_section_that_changed_nothing_disturbs_no_reader() {
        let pair = Pair::new();
        let version = pair.latch.version().unwrap();
        assert!(pair.latch.try_exclusive());
        assert!(!pair.latch.validate(version));
        assert_eq!(pair.latch.version(), None);
        pair.latch.release_exclusive(false, &pair.lot);
        assert!(pair.latch.validate(version));
        pair.change_exclusively();
        assert!(!pair.latch.validate(version));
    }

    #[test]
    fn upgrades_tell_changes_from_shared_holders() {
        let pair = Pair::new();
        let version = pair.latch.version().unwrap();
        assert!(pair.latch.try_shared());
        assert_eq!(pair.latch.try_upgrade(version), Upgrade::Busy);
        assert!(!pair.latch.try_exclusive());
        pair.latch.release_shared(&pair.lot);
        assert_eq!(pair.latch.try_upgrade(version), Upgrade::Granted);
        assert!(!pair.latch.try_shared());
        pair.latch.release_exclusive(true, &pair.lot);
        assert_eq!(pair.latch.try_upgrade(version), Upgrade::Stale);
    }

    #[test]
    #[should_panic(expected = "not held")]
    fn releasing_twice_is_noticed() {
        let pair = Pair::new();
        pair.latch.release_exclusive(false, &pair.lot);
    }
}
