//! A sample of the crash sweep over every workload.

use std::time::Duration;

use duramen::pmem::Domain;
use duramen_io::CrashChoice;
use duramen_test_support::{Rng, announced_seed, is_long, search_time};
use duramen_torture::crash::{Image, Only, Thoroughness, sweep, try_point};
use duramen_torture::harness::{Budget, Tally};
use duramen_torture::workloads;
use duramen_torture::world::LogEnd;

fn sample(workload: &str) {
    sample_with(workload, LogEnd::Files, Duration::from_millis(450)).assert_clean(5);
}

fn sample_with(workload: &str, log: LogEnd, time: Duration) -> Tally {
    let seed = announced_seed(&format!("crash sweep of {workload}, log: {log}"));
    let workload = workloads::named(workload).expect("the workload exists");
    let thoroughness = Thoroughness { log, ..Thoroughness::SAMPLE };
    let tally = sweep(workload, seed, thoroughness, &Budget::lasting(search_time(time)), &mut |_, _| {});
    println!("{}: {tally}", workload.name());
    tally
}

/// Sweeps every third workload from number `third` on, so that the thirds run side by side: half of
/// these, drawn, each with some of `ends`, drawn too. The long suite sweeps all of them with all
/// ends.
fn sample_in_memory(ends: &[LogEnd], of_each: usize, third: usize) {
    let mut rng = Rng::new(announced_seed("ends of the log"));
    let mut all = Tally::default();
    let mut workloads: Vec<_> = workloads::names().into_iter().skip(third).step_by(3).collect();
    if !is_long() {
        rng.shuffle(&mut workloads);
        workloads.truncate(workloads.len() / 2);
    }
    for workload in workloads {
        let mut drawn = ends.to_vec();
        rng.shuffle(&mut drawn);
        drawn.truncate(if is_long() { ends.len() } else { of_each });
        for log in drawn {
            all.add(sample_with(workload, log, Duration::from_millis(120)));
        }
    }
    all.assert_clean(5);
}

/// Two logs were opened after the process had ended but not the power, and it went off before they
/// were in service: what was found in a ring had not been durable, and the next opening brought
/// less of it over what was in the segments already.
#[test]
fn what_is_found_in_a_ring_stays() {
    let workload = workloads::named("reopens").expect("the workload exists");
    let thoroughness = Thoroughness { log: LogEnd::Ring(Domain::VolatileCache), ..Thoroughness::SAMPLE };
    let only = Only { image: Some(Image(CrashChoice::Nothing)), recovery: None };
    try_point(workload, 427_853_989, 739, thoroughness, only).unwrap();
}

macro_rules! in_memory {
    ($($ends:ident: $all:ident, $of_each:literal;)*) => {
        $(mod $ends {
            use super::*;

            #[test]
            fn first_third() {
                sample_in_memory(&LogEnd::$all, $of_each, 0);
            }

            #[test]
            fn second_third() {
                sample_in_memory(&LogEnd::$all, $of_each, 1);
            }

            #[test]
            fn last_third() {
                sample_in_memory(&LogEnd::$all, $of_each, 2);
            }
        })*
    };
}

// Disk and memory crash together.
in_memory! {
    with_a_ring: RINGS, 2;
    with_a_tier: TIERS, 1;
    with_a_heap: HEAPS, 1;
    with_batches: BATCHES, 1;
    with_pcm: PCMS, 1;
}

macro_rules! sweeps {
    ($($test:ident: $workload:literal,)*) => {
        $(#[test] fn $test() { sample($workload); })*

        #[test]
        fn every_workload_is_swept() {
            assert_eq!(vec![$($workload),*], workloads::names());
        }
    };
}

sweeps! {
    bank: "bank",
    mixed: "mixed",
    splits: "splits",
    merges: "merges",
    overflow: "overflow",
    tables: "tables",
    steal: "steal",
    checkpoints: "checkpoints",
    recycle: "recycle",
    interleaved: "interleaved",
    carried: "carried",
    keys: "keys",
    ghosts: "ghosts",
    loads: "loads",
    ranges: "ranges",
    reopens: "reopens",
    full_pages: "full-pages",
}
