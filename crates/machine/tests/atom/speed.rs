//! How fast the model is.

use std::time::Instant;

use duramen_machine::atom::{Design, Machine, Plan, run};

use crate::programs::random;

/// Three million events a second are what the paper's experiments need to end within ten minutes.
#[test]
#[ignore = "measures the host: run with --release --nocapture"]
fn the_model_is_fast_enough() {
    let machine = Machine::named("atom-events").unwrap();
    let mut best: f64 = 0.0;
    for _ in 0..5 {
        let plan = Plan::new(machine.clone(), Design::AtomOpt, 40_000);
        let start = Instant::now();
        let report = run(&plan, random(machine.core.cores, 1)).unwrap();
        let rate = report.events as f64 / start.elapsed().as_secs_f64();
        println!("{} events, {:.2} million a second", report.events, rate / 1e6);
        best = best.max(rate);
    }
    assert!(best > 3e6, "{best}");
}
