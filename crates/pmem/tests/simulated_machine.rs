//! Regions on a simulated computer with non-volatile memory: what is charged. In the machine build
//! only:
//!
//! ```sh
//! RUSTFLAGS="--cfg duramen_machine --cfg duramen_planted" cargo test --profile instrumented \
//!     --target-dir target/machine -p duramen-pmem --test simulated_machine
//! ```
#![cfg(duramen_machine)]

use std::time::Duration;

use duramen_machine::{Allocator, Description, Outcome, Plan, run};
use duramen_pmem::{Placement, Region, RegionOptions, Source, Survive, Timing};
use duramen_sync::clock::Instant;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Virtual nanoseconds that each of many records takes.
fn nanos_of(options: RegionOptions, write: impl Fn(&Region, u64) + 'static) -> u64 {
    const RECORDS: u64 = 200;
    let plan = Plan::new(Description::named("atom-mesh").expect("a computer with non-volatile memory"));
    let report = run(&plan, move || {
        let region = Region::open(&Source::Anonymous, &options).unwrap();
        let begin = Instant::now();
        (0..RECORDS).for_each(|record| write(&region, record * 128));
        begin.elapsed().as_nanos() as u64 / RECORDS
    });
    match report.outcome {
        Outcome::Done(nanos) => nanos,
        other => panic!("{other:?}"),
    }
}

fn options() -> RegionOptions {
    let placement = Placement::Node(0);
    RegionOptions { survive: Survive::Nothing, placement, ..RegionOptions::new(1 << 20) }
}

const RECORD: [u8; 128] = [7; 128];

#[test]
fn what_waits_for_the_memory_takes_longer() {
    let stored = nanos_of(options(), |region, at| region.store(at, &[&RECORD]));
    let flushed = nanos_of(options(), |region, at| {
        region.store(at, &[&RECORD]);
        region.persist(at, 128);
    });
    let fenced = nanos_of(options(), |region, at| {
        region.stream(at, &[&RECORD]);
        region.fence();
    });
    assert!(flushed > 2 * stored && fenced > 2 * stored, "stored {stored}, flushed {flushed}, streamed {fenced}");
}

#[test]
fn delays_are_virtual_time() {
    let timing = Timing { write: Duration::from_nanos(1200), ..Timing::NONE };
    let store = |region: &Region, at| region.store(at, &[&RECORD]);
    let (without, with) = (nanos_of(options(), store), nanos_of(RegionOptions { timing, ..options() }, store));
    assert!((1100..1400).contains(&(with - without)), "{without}, {with}");
    assert_eq!(with, nanos_of(RegionOptions { timing, ..options() }, store), "the same each time");
}
