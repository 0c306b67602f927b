//! A sample of the crash sweep over every workload.

use std::time::Duration;

use duramen_torture::crash::{Thoroughness, sweep};
use duramen_torture::harness::Budget;
use duramen_torture::rng::announced_seed;
use duramen_torture::workloads;

fn sample(workload: &str) {
    let seed = announced_seed(&format!("crash sweep of {workload}"));
    let workload = workloads::named(workload).expect("the workload exists");
    let tally = sweep(workload, seed, Thoroughness::SAMPLE, &Budget::lasting(Duration::from_secs(12)), &mut |_, _| {});
    println!("{}: {tally}", workload.name());
    tally.assert_clean(5);
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
    keys: "keys",
    ghosts: "ghosts",
    reopens: "reopens",
    full_pages: "full-pages",
}
