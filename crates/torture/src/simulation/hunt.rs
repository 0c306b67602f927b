//! Results of many simulated runs: which rare branches they reach, and how soon they notice a
//! planted bug.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use duramen_sync::probe::Probe;
use duramen_types::planted::{Bug, plant};

use super::plan::{Plan, Simulated};
use crate::world::LogEnd;

/// Which rare branches runs have reached.
#[derive(Clone, Debug, Default)]
pub struct Reached {
    runs: u64,
    /// For each probe: runs that reached it, and how often all of them did.
    counts: Vec<(u64, u64)>,
    /// Plans of each kind.
    kinds: BTreeMap<&'static str, u64>,
    /// Of them, those on a slow device, those with other options at each opening.
    slow: u64,
    changing: u64,
    /// Those with the end of the log in a ring.
    rings: u64,
    /// Operations on shared memory, all of them together.
    operations: u64,
}

impl Reached {
    /// Adds a run of `plan`.
    pub fn add(&mut self, plan: &Plan, run: &Simulated) {
        self.runs += 1;
        *self.kinds.entry(plan.scenario.kind()).or_default() += 1;
        self.slow += u64::from(plan.circumstances.pace.is_some());
        self.changing += u64::from(plan.circumstances.changes);
        self.rings += u64::from(plan.circumstances.log != LogEnd::Files);
        self.operations += run.operations;
        self.counts.resize(Probe::ALL.len(), (0, 0));
        for (count, times) in self.counts.iter_mut().zip(&run.probes) {
            count.0 += u64::from(*times > 0);
            count.1 += times;
        }
    }

    /// Returns the number of runs.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Each probe, with the number of runs that reached it and how often they did together.
    pub fn counts(&self) -> impl Iterator<Item = (Probe, u64, u64)> {
        let count = |probe: &Probe| self.counts.get(*probe as usize).copied().unwrap_or_default();
        Probe::ALL.iter().map(move |probe| (*probe, count(probe).0, count(probe).1))
    }

    /// Those that no run has reached.
    pub fn missed(&self) -> Vec<Probe> {
        self.counts().filter(|(_, runs, _)| *runs == 0).map(|(probe, ..)| probe).collect()
    }
}

/// What was done, on one line.
impl fmt::Display for Reached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs, {:.1} billion operations", self.runs, self.operations as f64 / 1e9)?;
        self.kinds.iter().try_for_each(|(kind, runs)| write!(f, "; {kind}: {runs}"))?;
        let times = |probe: Probe| self.counts.get(probe as usize).map_or(0, |count| count.1);
        let (slow, changing, rings) = (self.slow, self.changing, self.rings);
        write!(
            f,
            "; slow devices: {slow}; changing options: {changing}; rings: {rings}; power cuts: {}",
            times(Probe::PowerCut)
        )?;
        let failed = times(Probe::OperationFailed) + times(Probe::SyncFailed);
        write!(f, "; failed operations: {failed}; hangs: {}", times(Probe::DeviceHung))?;
        let (all, missed) = (self.counts().count(), self.missed().len());
        write!(f, "; rare branches reached: {} of {all}", all - missed)
    }
}

/// How a hunt for a planted bug ended.
#[derive(Clone, Debug)]
pub struct Hunted {
    /// The bug.
    pub bug: Bug,
    /// The plan that showed it, and what was noticed.
    pub caught: Option<(Plan, String)>,
    /// Seeds tried until then, that one included.
    pub seeds: u64,
    /// Plans that fail without the bug, too, and how.
    pub unrelated: Vec<(Plan, String)>,
    /// Time taken.
    pub time: Duration,
}

/// Plants `bug` and simulates seeds from `first` on until it is noticed, `most` at most. What
/// noticed it is run again without the bug, and must pass. The switch is global to the process:
/// nothing else may run meanwhile.
pub fn hunt(bug: Bug, first: u64, most: u64, mut progress: impl FnMut(u64)) -> Hunted {
    let start = Instant::now();
    let mut hunted = Hunted { bug, caught: None, seeds: 0, unrelated: Vec::new(), time: Duration::ZERO };
    for seed in (first..).take(most as usize) {
        hunted.seeds += 1;
        let plan = Plan::of(seed);
        let planted = plant(bug);
        let failure = plan.run().result.err();
        drop(planted);
        if let Some(failure) = failure {
            match plan.run().result {
                Ok(_) => hunted.caught = Some((plan, failure)),
                Err(unrelated) => hunted.unrelated.push((plan, unrelated)),
            }
        }
        if hunted.caught.is_some() {
            break;
        }
        progress(hunted.seeds);
    }
    hunted.time = start.elapsed();
    hunted
}
