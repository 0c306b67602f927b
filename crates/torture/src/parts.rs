//! The suites of crashes and of isolation as parts, each of which is a line of a table or is run in
//! turn with the others in every combination of a matrix.

use duramen::Isolation;

use crate::circumstances::Circumstances;
use crate::crash::{self, CrashWorkload, Only, Thoroughness};
use crate::harness::{Budget, Coverage, Tally};
use crate::isolation::anomalies::{self, Setting};
use crate::isolation::lists::{Shape, try_history};
use crate::world::LogEnd;

/// What a part is run with.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The seed of everything random.
    pub seed: u64,
    /// How far apart seeds are, in a part that tries one after another.
    pub step: usize,
    /// Where the end of the log is.
    pub log: LogEnd,
    /// How much of what there is.
    pub extent: Extent,
}

/// How much a part does of what there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Everything.
    All,
    /// Everything, but at each crash point a sample of what may happen there.
    Points,
    /// A sample.
    Sample,
    /// A sample that does less at each point, so that there can be more of them in a short time.
    Brief,
}

impl Extent {
    /// Returns whether no point is left out.
    pub fn is_all(self) -> bool {
        matches!(self, Self::All | Self::Points)
    }
}

impl Situation {
    /// Everything, or a sample of this size.
    pub fn coverage(&self, sample: usize) -> Coverage {
        if self.extent.is_all() { Coverage::All } else { Coverage::Sample(sample) }
    }

    /// Tries so many seeds, starting with this one, until the budget is spent.
    pub fn each_seed(
        &self,
        count: usize,
        budget: &Budget,
        progress: Progress<'_>,
        mut one: impl FnMut(u64) -> Result<u64, String>,
    ) -> Tally {
        let mut tally = Tally::default();
        for seed in (self.seed..).step_by(self.step).take(count) {
            if budget.is_spent(&tally) {
                break;
            }
            tally.add(Tally::of(one(seed)));
            progress(&tally, count);
        }
        tally
    }
}

/// Receives what has been done, and the number of points.
pub type Progress<'a> = &'a mut dyn FnMut(&Tally, usize);

type Run = Box<dyn Fn(&Situation, &Budget, Progress<'_>) -> Tally>;

/// A part of a suite.
pub struct Part {
    /// What commands call it.
    pub name: String,
    run: Run,
}

impl Part {
    /// Returns a part that does this.
    pub fn new(name: impl Into<String>, run: impl Fn(&Situation, &Budget, Progress<'_>) -> Tally + 'static) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// Runs it until it is done or the budget is spent.
    pub fn run(&self, situation: &Situation, budget: &Budget, progress: Progress<'_>) -> Tally {
        (self.run)(situation, budget, progress)
    }
}

/// Power cuts, a part for each of these workloads: anywhere, or at one operation.
pub fn crashes(workloads: &[&'static dyn CrashWorkload], op: Option<u64>, only: Only) -> Vec<Part> {
    let points = Coverage::Sample(1000);
    let thoroughness = move |extent| match extent {
        Extent::All => Thoroughness::ALL,
        Extent::Points => Thoroughness { points: Coverage::All, continued: Coverage::All, ..Thoroughness::SAMPLE },
        Extent::Sample => {
            let recovery_points = Coverage::Sample(6);
            Thoroughness { points, random_images: 4, recovery_points, continued: Coverage::All, ..Thoroughness::SAMPLE }
        }
        Extent::Brief => Thoroughness { points, ..Thoroughness::SAMPLE },
    };
    let part = |workload: &&'static dyn CrashWorkload| {
        let workload = *workload;
        Part::new(workload.name(), move |situation, budget, progress| {
            let Situation { seed, log, extent, .. } = *situation;
            let thoroughness = Thoroughness { log, ..thoroughness(extent) };
            match op {
                Some(op) => Tally::of(crash::try_point(workload, seed, op, thoroughness, only)),
                None => crash::sweep(workload, seed, thoroughness, budget, progress),
            }
        })
    };
    workloads.iter().map(part).collect()
}

/// Transactions look as if they ran one after another: a part for each anomaly and level, or the
/// one of this name.
pub fn isolation(only: Option<&str>) -> Vec<Part> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let mut parts = Vec::new();
    for anomaly in anomalies::all().into_iter().filter(|anomaly| wanted(anomaly.name)) {
        for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
            if isolation == Isolation::Serializable || anomaly.under_read_committed {
                let anomaly = anomaly.clone();
                parts.push(Part::new(format!("{}, {isolation}", anomaly.name), move |situation, budget, _| {
                    let setting = Setting { isolation, coverage: situation.coverage(60), log: situation.log };
                    anomalies::try_anomaly(&anomaly, setting, situation.seed, budget)
                }));
            }
        }
    }
    if wanted("random") {
        parts.push(Part::new("random", |situation, budget, _| {
            let sets = if situation.extent.is_all() { 5000 } else { 400 };
            let setting = Setting { log: situation.log, ..Setting::RANDOM };
            anomalies::try_random(sets, setting, situation.seed, budget)
        }));
    }
    if wanted("lists") {
        parts.push(Part::new("lists", |situation, budget, progress| {
            let circumstances = Circumstances { log: situation.log, ..Circumstances::default() };
            let histories = if situation.extent.is_all() { 1000 } else { 100 };
            situation.each_seed(histories, budget, progress, |seed| try_history(Shape::of(seed), seed, circumstances))
        }));
    }
    parts
}
