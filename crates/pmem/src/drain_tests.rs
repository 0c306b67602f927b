use super::*;
use crate::{RegionOptions, Source, Survive};

#[test]
fn both_ways_reach_the_other_threads() {
    let options = RegionOptions { survive: Survive::Nothing, ..RegionOptions::new(4096) };
    let region = Region::open(&Source::Anonymous, &options).unwrap();
    let (begun, over) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                begun.wait();
                over.wait();
            });
        }
        begun.wait();
        for _ in 0..20 {
            assert!(matches!(drain_processors([&region], DrainBy::Signal), Drained::Done { signals } if signals >= 2));
        }
        let interrupted = drain_processors([&region], DrainBy::Membarrier);
        assert!(matches!(interrupted, Drained::Done { signals: 0 } | Drained::Unsupported));
        over.wait();
    });
}
