use super::*;

use duramen_pmem::{Domain, RegionOptions, SimMemory, Source};
use duramen_sync::Arc;

use crate::test_support::what_is_sure;

const LEN: u64 = 4096;
const RECORD: u64 = 8;

/// A log of words in simulated memory, which are released in order.
struct Log {
    passive: Passive,
    region: Region,
    memory: SimMemory,
    released: AtomicU64,
}

impl Log {
    fn new() -> Arc<Self> {
        let memory = SimMemory::new(LEN, Domain::VolatileCache);
        let region = Region::open(&Source::Simulated(memory.clone()), &RegionOptions::new(LEN)).unwrap();
        Arc::new(Self { passive: Passive::new(4, DrainBy::Membarrier), region, memory, released: AtomicU64::new(0) })
    }

    fn released(&self) -> Lsn {
        Lsn::new(self.released.load(Ordering::Acquire))
    }

    /// Inserts record `number` and releases it if all records before it are released.
    fn insert(&self, number: u64) {
        let lsn = number * RECORD;
        let writing = self.passive.begin(Gsn::new(lsn), LogId::ZERO);
        self.region.stream(lsn, &[&(number + 1).to_ne_bytes()]);
        self.passive.end(writing, &self.region);
        // A record that comes too early is not released, and no thread takes it for released.
        let _ = self.released.compare_exchange(lsn, lsn + RECORD, Ordering::AcqRel, Ordering::Relaxed);
    }

    fn fence(&self) {
        self.passive.fence(|_| &self.region);
    }

    fn drain(&self) -> Lsn {
        self.passive.drain([&self.region], || self.released()).unwrap()
    }

    /// Checks that every hardened record survives every power cut.
    fn check(&self, hardened: Lsn) {
        let region = what_is_sure(&self.memory, LEN);
        for number in 0..hardened.get() / RECORD {
            assert_eq!(region.read_word(number * RECORD), number + 1, "record {number} is hardened");
        }
    }
}

#[cfg(not(duramen_loom))]
mod one_by_one {
    use super::*;
    use crate::test_support::on_another_thread;

    #[test]
    fn a_commit_waits_for_others_records_before_it() {
        let log = Log::new();
        on_another_thread(&log, |log| log.insert(0));
        log.insert(1);
        log.fence();
        assert_eq!(log.passive.bound(log.released()), Lsn::ZERO, "the other thread has not fenced");
        log.check(Lsn::ZERO);
        let drained = log.drain();
        assert_eq!(drained, Lsn::new(2 * RECORD));
        log.check(drained);
    }

    #[test]
    fn idle_threads_hold_nobody_back() {
        let log = Log::new();
        on_another_thread(&log, |log| {
            log.insert(0);
            log.fence();
        });
        for number in 1..10 {
            log.insert(number);
            log.fence();
            assert_eq!(log.passive.bound(log.released()), log.released());
            log.check(log.released());
        }
    }

    #[test]
    fn a_straggler_is_drained_once() {
        let log = Log::new();
        on_another_thread(&log, |log| log.insert(0));
        log.drain();
        for number in 1..10 {
            log.insert(number);
            log.fence();
            assert_eq!(log.passive.bound(log.released()), log.released(), "it has inserted nothing since");
        }
        log.check(log.released());
        assert_eq!(log.passive.counts(), (1, 0, 9));
    }

    #[test]
    fn a_thread_that_has_been_drained_counts_again_when_it_inserts() {
        let log = Log::new();
        log.insert(0);
        let drained = log.drain();
        log.insert(1);
        assert!(log.passive.bound(log.released()) <= drained);
        log.check(drained);
    }

    #[test]
    fn threads_without_a_cell_fence_each_record() {
        let log = Log::new();
        for number in 0..4 {
            on_another_thread(&log, move |log| {
                log.insert(number);
                log.fence();
            });
        }
        on_another_thread(&log, |log| log.insert(4));
        // A new thread may have the number of a thread that has ended.
        let bound = log.passive.bound(log.released());
        log.check(bound);
    }
}

/// Every interleaving of threads that insert, commit, look and drain: every record that counts as
/// hardened survives.
#[cfg(duramen_loom)]
mod models {
    use super::*;
    use crate::test_support::model;

    fn insert_and_commit() {
        model(3, || {
            let log = Log::new();
            let other = Arc::clone(&log);
            let inserter = thread::spawn("inserter", move || {
                other.insert(0);
                other.fence();
            });
            log.insert(1);
            log.fence();
            let hardened = log.passive.bound(log.released());
            log.check(hardened);
            inserter.unwrap().join().unwrap();
        });
    }

    #[test]
    fn two_threads_insert_and_commit() {
        insert_and_commit();
    }

    /// A planted bug affects the whole process, so this test, which needs `--cfg duramen_planted`,
    /// runs alone.
    #[cfg(duramen_planted)]
    #[test]
    fn forgetting_others_is_noticed() {
        use duramen_types::planted::{Bug, plant};
        for bug in [Bug::OwnFenceOnly, Bug::DirtyBitIgnored, Bug::RingFenceDropped] {
            let _planted = plant(bug);
            assert!(std::panic::catch_unwind(insert_and_commit).is_err(), "{bug:?}");
        }
    }

    #[test]
    fn a_thread_is_drained_while_it_inserts() {
        model(2, || {
            let log = Log::new();
            let other = Arc::clone(&log);
            let inserter = thread::spawn("inserter", move || {
                other.insert(0);
                other.insert(1);
            });
            let drained = log.drain();
            log.check(drained);
            let hardened = log.passive.bound(log.released());
            log.check(hardened.max(drained));
            inserter.unwrap().join().unwrap();
        });
    }
}
