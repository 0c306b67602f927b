//! The matrix: layouts of the log, devices and persistence domains, with log insertion designs and
//! commit modes. A suite is run in one combination after another.

use std::fmt;
use std::time::Duration;

use duramen::{CommitMode, Options, Partition};

use crate::harness::{Budget, Tally};
use crate::parts::{Extent, Part, Progress, Situation};
use crate::variant::Variant;
use crate::world::LogEnd;
use duramen_test_support::Rng;

/// A variant of the log with its end at some place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Combination {
    /// The design, the commit mode, and how many logs there are.
    pub variant: Variant,
    /// Device and domain.
    pub log: LogEnd,
}

impl Combination {
    /// Returns every variant with the end of the log in files. For each kind of ring, the default
    /// design in all of its variants, and of the other designs as many as it takes to have every
    /// layout in every commit mode, and every design. For each kind of heap and of PCMLogging,
    /// which have no log, and for page tiers in memory, the commit modes.
    pub fn all() -> Vec<Self> {
        let in_rings = variants_in_rings();
        let variants = |log| match log {
            LogEnd::Files => Variant::all(),
            LogEnd::Ring(_) => in_rings.clone(),
            // The tier does not know of the log's design.
            LogEnd::Tier(_) | LogEnd::PcmBasic(_) => variants_in_heaps(|_| true),
            LogEnd::Heap(kind) => variants_in_heaps(|commit| !kind.has_batches || commit != CommitMode::Sync),
            LogEnd::Pcm(_) => variants_in_heaps(|_| true),
        };
        let ends = LogEnd::ALL.into_iter();
        ends.flat_map(|log| variants(log).into_iter().map(move |variant| Self { variant, log })).collect()
    }

    /// Runs the parts of a suite in this combination. A complete run does each part once. A sample
    /// does them in random order, each for a short while with a fresh seed, repeatedly until the
    /// budget is spent; it tries at least one.
    pub fn run(self, parts: &[Part], seed: u64, extent: Extent, budget: &Budget, progress: Progress<'_>) -> Tally {
        let all = extent.is_all();
        let mut rng = Rng::new(seed);
        let mut sum = Tally::default();
        let mut order: Vec<&Part> = parts.iter().collect();
        loop {
            if !all {
                rng.shuffle(&mut order);
            }
            for part in &order {
                let is_tried = sum.points > 0 || !sum.failures.is_empty();
                if is_tried && budget.is_spent(&sum) {
                    return sum;
                }
                // Short, because users copy it into commands.
                let seed = self.variant.seed(rng.bits() % 1_000_000_000);
                let situation = Situation { seed, step: Variant::all().len(), log: self.log, extent };
                let turn = if all { budget.clone() } else { budget.another(TURN.min(budget.whole())) };
                let before = sum.clone();
                let tally = part.run(&situation, &turn, &mut |tally, total| {
                    let mut so_far = before.clone();
                    so_far.add(tally.clone());
                    progress(&so_far, total);
                });
                sum.add(tally);
            }
            if all {
                return sum;
            }
        }
    }
}

/// Time of a part before another has its turn, in a sample.
const TURN: Duration = Duration::from_millis(500);

/// See [`Combination::all`].
fn variants_in_rings() -> Vec<Variant> {
    let standard = Options::default().log_insert;
    let is_standard = |variant: &Variant| variant.log_insert == standard;
    let (mut chosen, others): (Vec<_>, Vec<_>) = Variant::all().into_iter().partition(is_standard);
    for variant in others {
        let is_new_layout = chosen.iter().all(|other| layout(other) != layout(&variant));
        if is_new_layout || chosen.iter().all(|other| other.log_insert != variant.log_insert) {
            chosen.push(variant);
        }
    }
    chosen
}

/// See [`Combination::all`].
fn variants_in_heaps(has: impl Fn(CommitMode) -> bool) -> Vec<Variant> {
    let standard = Options::default().log_insert;
    let is_used = |variant: &Variant| variant.logs == 1 && variant.log_insert == standard && has(variant.commit);
    Variant::all().into_iter().filter(is_used).collect()
}

/// Returns the layout and the commit mode.
fn layout(variant: &Variant) -> (u16, Partition, CommitMode) {
    (variant.logs, variant.partition, variant.commit)
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.variant, self.log)
    }
}

#[cfg(test)]
mod tests {
    use duramen::InsertDesign;

    use super::*;

    #[test]
    fn every_layout_meets_every_device_domain_and_mode() {
        let all = Combination::all();
        for log in [LogEnd::Files].into_iter().chain(LogEnd::RINGS) {
            let here =
                || all.iter().filter(|combination| combination.log == log).map(|combination| combination.variant);
            for variant in Variant::all() {
                assert!(here().any(|other| layout(&other) == layout(&variant)), "{variant}, {log}");
            }
            for design in InsertDesign::ALL {
                assert!(here().any(|other| other.log_insert == design), "{design}, {log}");
            }
        }
    }

    #[test]
    fn a_part_is_told_its_combination() {
        for combination in Combination::all() {
            let part = Part::new("part", move |situation, _, _| {
                assert_eq!(Variant::of(situation.seed), combination.variant);
                assert_eq!(Variant::of(situation.seed + situation.step as u64), combination.variant);
                assert_eq!(situation.log, combination.log);
                Tally { points: 1, ..Tally::default() }
            });
            let budget = Budget::lasting(Duration::from_secs(60));
            let tally = combination.run(&[part], 5, Extent::All, &budget, &mut |_, _| {});
            assert_eq!(tally.points, 1);
        }
    }
}
