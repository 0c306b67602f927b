//! Everything that a round considers hardened survives every power cut, while threads insert into
//! two logs.

use super::*;

use duramen_pmem::{Domain, DrainBy, RegionOptions, SimMemory, Source};

use crate::test_support::what_is_sure;

const LEN: u64 = 4096;
const RECORD: u64 = 8;

/// Two logs of one record each in simulated memory, and threads that track which of their records
/// they have made durable.
struct Two {
    passive: Passive,
    regions: [Region; 2],
    memories: [SimMemory; 2],
    ends: [AtomicU64; 2],
    released: [AtomicU64; 2],
}

impl Two {
    fn new() -> Arc<Self> {
        let memories = [(); 2].map(|()| SimMemory::new(LEN, Domain::VolatileCache));
        let open =
            |memory: &SimMemory| Region::open(&Source::Simulated(memory.clone()), &RegionOptions::new(LEN)).unwrap();
        let regions = [open(&memories[0]), open(&memories[1])];
        let positions = || [AtomicU64::new(0), AtomicU64::new(0)];
        let passive = Passive::new(4, DrainBy::Membarrier);
        Arc::new(Self { passive, regions, memories, ends: positions(), released: positions() })
    }

    fn insert(&self, log: usize) {
        self.ends[log].store(RECORD, Ordering::Release);
        let writing = self.passive.begin(Gsn::new(1), LogId::new(log as u16));
        self.regions[log].stream(0, &[&1_u64.to_ne_bytes()]);
        self.passive.end(writing, &self.regions[log]);
        self.released[log].store(RECORD, Ordering::Release);
    }

    fn fence(&self) {
        self.passive.fence(|log| &self.regions[usize::from(log.get())]);
    }

    fn begin(&self) -> CommitRound {
        let tails = self.ends.iter().map(|end| Lsn::new(end.load(Ordering::Acquire))).collect();
        CommitRound::new(Gsn::new(1), tails)
    }

    /// Advances the round and checks that everything it considers hardened is durable; returns
    /// whether the round is hardened.
    fn look(&self, round: &mut CommitRound) -> bool {
        let released = |log: usize| Lsn::new(self.released[log].load(Ordering::Acquire));
        let is_hardened = round.is_released(released) && round.is_durable(&self.passive);
        if is_hardened {
            self.check(round);
        }
        is_hardened
    }

    fn check(&self, round: &CommitRound) {
        for (memory, tail) in self.memories.iter().zip(&round.tails) {
            assert!(
                tail.is_zero() || what_is_sure(memory, LEN).read_word(0) == 1,
                "what is before the tails is durable"
            );
        }
    }
}

#[cfg(not(duramen_loom))]
mod one_by_one {
    use super::*;
    use crate::test_support::on_another_thread;

    #[test]
    fn a_round_waits_for_others_in_other_logs() {
        let two = Two::new();
        on_another_thread(&two, |two| two.insert(0));
        two.insert(1);
        two.fence();
        let mut round = two.begin();
        assert!(!two.look(&mut round), "the other thread has not fenced");
        two.passive.drain(&two.regions, || ()).unwrap();
        assert!(two.look(&mut round));
    }

    #[test]
    fn a_thread_that_goes_on_after_a_fence_delays_no_round() {
        let two = Two::new();
        two.insert(0);
        let mut round = two.begin();
        assert!(!two.look(&mut round));
        two.fence();
        two.insert(1);
        assert!(two.look(&mut round), "what has been inserted since lies behind the tails");
    }

    #[test]
    fn a_round_waits_for_what_is_being_filled_in() {
        let two = Two::new();
        two.insert(0);
        two.fence();
        two.ends[1].store(RECORD, Ordering::Release);
        let mut round = two.begin();
        assert!(!two.look(&mut round));
        two.insert(1);
        assert!(!two.look(&mut round));
        two.fence();
        assert!(two.look(&mut round));
    }

    #[test]
    fn a_fence_is_for_all_logs() {
        let two = Two::new();
        two.insert(0);
        two.insert(1);
        two.fence();
        assert!(two.look(&mut two.begin()));
    }
}

/// Every interleaving.
#[cfg(duramen_loom)]
mod models {
    use super::*;
    use crate::test_support::model;

    /// One thread commits in one log and begins to insert into the other; meanwhile a round is
    /// checked twice.
    fn insert_and_harden() {
        model(3, || {
            let two = Two::new();
            let other = Arc::clone(&two);
            let inserter = thread::spawn("inserter", move || {
                other.insert(0);
                other.fence();
                other.insert(1);
            });
            let mut round = two.begin();
            if !two.look(&mut round) {
                two.look(&mut round);
            }
            inserter.unwrap().join().unwrap();
        });
    }

    #[test]
    #[ignore = "long; the gate draws some of these"]
    fn a_round_looks_while_a_thread_inserts_and_commits() {
        insert_and_harden();
    }

    /// A planted bug affects the whole process, so this test, which needs `--cfg duramen_planted`,
    /// runs alone.
    #[cfg(duramen_planted)]
    #[test]
    fn forgetting_others_is_noticed() {
        use duramen_types::planted::{Bug, plant};
        for bug in [Bug::OwnFenceOnly, Bug::DirtyBitIgnored, Bug::RingFenceDropped, Bug::OwnLogHardenedOnly] {
            let _planted = plant(bug);
            assert!(std::panic::catch_unwind(insert_and_harden).is_err(), "{bug:?}");
        }
    }

    #[test]
    fn a_straggler_is_drained_while_it_inserts() {
        model(2, || {
            let two = Two::new();
            let other = Arc::clone(&two);
            let inserter = thread::spawn("inserter", move || {
                other.insert(0);
                other.insert(1);
            });
            let mut round = two.begin();
            let released = |log: usize| Lsn::new(two.released[log].load(Ordering::Acquire));
            if round.is_released(released) {
                two.passive.drain(&two.regions, || ()).unwrap();
                two.check(&round);
            }
            two.look(&mut two.begin());
            inserter.unwrap().join().unwrap();
        });
    }
}
