//! A11: what each component adds to the baseline.

use std::time::Duration;

use duramen::{CommitMode, InsertDesign};

use super::bank::Bank;
use super::sweep::{Sweep, Swept, checks_with_control};
use crate::bed::System;
use crate::bounds::{Bound, Check};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};

/// The components of Aether, one after another.
pub(super) struct Components;

const BASELINE: &str = "baseline (sync, mutex)";
const ELR: &str = "+ early lock release";
const PIPELINED: &str = "+ flush pipelining";
const HYBRID: &str = "+ scalable buffer (hybrid)";
const RESERVED: &str = "+ scalable buffer (reserved)";
const SYSTEMS: [System; 5] = [
    System::new(BASELINE, CommitMode::Sync, InsertDesign::Mutex),
    System::new(ELR, CommitMode::Elr, InsertDesign::Mutex),
    System::new(PIPELINED, CommitMode::Pipelined, InsertDesign::Mutex),
    System::new(HYBRID, CommitMode::Pipelined, InsertDesign::Hybrid),
    System::new(RESERVED, CommitMode::Pipelined, InsertDesign::Reserved),
];
/// A fast flash drive.
const LATENCY: Duration = Duration::from_micros(100);

impl Experiment for Components {
    fn about(&self) -> About {
        About {
            id: "A11",
            title: "the components of Aether added one by one, TPC-B",
            source: "Aether (VLDB Journal 2012), Fig. 12",
            world: "native (the part on a simulated machine is A11m)",
            found: "flush pipelining gives 37 %, the scalable log buffer a further 15 %, all together 58 %",
            wanted: "each component gains, and together they give at least 1.5 times the baseline's best throughput",
        }
    }

    fn difference(&self) -> Option<&'static str> {
        Some(
            "with two processors a scalable buffer can gain nothing: 139,000 commits insert less than a million \
             records per second, at 12 to 20 ns each, which is about 2 % of the time. The systems differ by more than \
             that from run to run. A11m has 64 contexts",
        )
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let bank = Bank::hundred_tellers(context)?;
        let workload = bank.workload(None);
        let sweep = Sweep {
            bed: &bank.bed,
            workload: &*workload,
            systems: &SYSTEMS,
            clients: context.pick(&[1, 4, 16, 32, 64], &[1, 16, 64], &[1, 4]),
            latency: LATENCY,
            time: Duration::from_millis(context.pick(200, 200, 20)),
            rounds: context.pick(7, 1, 1),
        };
        let both = sweep.run_with_control(context)?;
        let setting = vec![bank.bed.setting(), bank.setting(), sweep.setting(), Sweep::control()];
        bank.audit(context)?;
        let [swept, controlled] = &both;
        let title = "Throughput as components are added, TPC-B";
        let figures = vec![swept.throughput("A11", title), controlled.throughput("A11-in-flight", title)];
        Ok(Findings { setting, figures, checks: checks_with_control(&both, checks) })
    }
}

fn checks(swept: &Swept) -> Vec<Check> {
    let best = |system| swept.series(system, |measured| measured.throughput).peak();
    let scalable = best(HYBRID).max(best(RESERVED));
    let gain = |what: &str, paper: &str, ours: f64, least: f64| Check::new(what, paper, ours, Bound::AtLeast(least));
    vec![
        gain("early lock release by the baseline", "not given", best(ELR) / best(BASELINE), 1.0),
        gain("flush pipelining and early lock release by the baseline", "1.37", best(PIPELINED) / best(BASELINE), 1.0),
        gain("the better scalable buffer by the mutex", "1.15", scalable / best(PIPELINED), 1.0),
        gain("all together by the baseline", "1.58", scalable / best(BASELINE), 1.5),
    ]
}
