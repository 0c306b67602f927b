//! When a finding counts as reproduced.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// What a measured number must be.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
    /// From the first to the second.
    Within(f64, f64),
}

impl Bound {
    /// Returns whether `value` is within the bound. A value that is not a number never is.
    pub fn holds(&self, value: f64) -> bool {
        match *self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Within(least, most) => value >= least && value <= most,
        }
    }

    /// Returns whether a value from `low` to `high` is within the bound.
    fn admits(&self, (low, high): (f64, f64)) -> bool {
        match *self {
            Self::AtLeast(least) => high >= least,
            Self::AtMost(most) => low <= most,
            Self::Within(least, most) => high >= least && low <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtLeast(least) => write!(f, "at least {}", number(least)),
            Self::AtMost(most) => write!(f, "at most {}", number(most)),
            Self::Within(least, most) => write!(f, "{} to {}", number(least), number(most)),
        }
    }
}

/// One part of a finding: a measured number and what it must be.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What was measured.
    pub what: String,
    /// What the paper has there, in words.
    pub paper: String,
    /// Our number; not a number, which JSON has as null, if it could not be measured.
    #[serde(deserialize_with = "number_or_null")]
    pub ours: f64,
    /// Where the number lies with a confidence of at least 95 %, if it is the median of enough
    /// rounds: see [`Check::of_rounds`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<(f64, f64)>,
    /// What it must be.
    pub wanted: Bound,
    /// The condition of a controlled run that it belongs to: one in which only that condition of
    /// the paper is restored. Such checks make a second verdict, and no part of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
}

impl Check {
    /// Returns a check of `ours`.
    pub fn new(what: impl Into<String>, paper: impl Into<String>, ours: f64, wanted: Bound) -> Self {
        Self { what: what.into(), paper: paper.into(), ours, interval: None, wanted, under: None }
    }

    /// Combines the checks of several rounds, each of which has the same checks in the same order.
    ///
    /// A number is then the median of the rounds' numbers. With at least six rounds it has a
    /// confidence interval, which assumes that the rounds are alike and independent, and nothing
    /// about their distribution: between the `k`-th lowest and the `k`-th highest of `n` numbers
    /// lies the true median with a probability of `1 - 2 P(X < k)`, where `X` counts the heads of
    /// `n` coins. `k` is as high as 95 % allow. A number that a round lacks is lacking.
    pub fn of_rounds(rounds: Vec<Vec<Self>>) -> Vec<Self> {
        let Some(first) = rounds.first() else { return Vec::new() };
        let combine = |(at, check): (usize, &Self)| {
            let mut numbers: Vec<f64> = rounds.iter().map(|round| round[at].ours).collect();
            if numbers.iter().any(|number| number.is_nan()) {
                return Self { ours: f64::NAN, interval: None, ..check.clone() };
            }
            numbers.sort_by(f64::total_cmp);
            let interval = rank(numbers.len()).map(|rank| (numbers[rank - 1], numbers[numbers.len() - rank]));
            Self { ours: median(numbers), interval, ..check.clone() }
        };
        first.iter().enumerate().map(combine).collect()
    }

    /// Returns it as a check of a controlled run.
    #[must_use]
    pub fn under(self, condition: impl Into<String>) -> Self {
        Self { under: Some(condition.into()), ..self }
    }

    /// Returns what was measured, with the condition of a controlled run.
    pub fn description(&self) -> String {
        match &self.under {
            Some(condition) => format!("{} {condition}", self.what),
            None => self.what.clone(),
        }
    }

    /// Returns whether our number is as it must be, or could be as far as its confidence interval
    /// says.
    pub fn holds(&self) -> bool {
        self.wanted.holds(self.ours) || self.interval.is_some_and(|interval| self.wanted.admits(interval))
    }

    /// Returns whether it holds, but the confidence interval also has numbers for which it would
    /// not.
    pub fn holds_within_noise(&self) -> bool {
        let is_inside = |(low, high)| self.wanted.holds(low) && self.wanted.holds(high);
        self.holds() && !self.interval.is_none_or(is_inside)
    }

    /// Returns our number, with its confidence interval.
    pub fn number(&self) -> String {
        match self.interval {
            Some((low, high)) => format!("{} ({} to {})", number(self.ours), number(low), number(high)),
            None => number(self.ours),
        }
    }
}

fn number_or_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// What the checks of an experiment come to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "verdict", content = "reasons", rename_all = "snake_case")]
pub enum Verdict {
    /// All of them hold.
    Reproduced,
    /// Some hold; the others, in words.
    Partly(Vec<String>),
    /// None holds; all of them, in words.
    NotReproduced(Vec<String>),
}

impl Verdict {
    /// Returns the verdict on `checks`.
    pub fn of<'c>(checks: impl IntoIterator<Item = &'c Check>) -> Self {
        let checks: Vec<&Check> = checks.into_iter().collect();
        let failed: Vec<String> = checks
            .iter()
            .filter(|check| !check.holds())
            .map(|check| format!("{}: {}, wanted {}", check.what, check.number(), check.wanted))
            .collect();
        match failed.len() {
            0 if !checks.is_empty() => Self::Reproduced,
            count if count == checks.len() => Self::NotReproduced(failed),
            _ => Self::Partly(failed),
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Partly(_) => "partly reproduced",
            Self::NotReproduced(_) => "not reproduced",
        }
    }

    /// Returns the checks that do not hold, in words.
    pub fn reasons(&self) -> &[String] {
        match self {
            Self::Reproduced => &[],
            Self::Partly(reasons) | Self::NotReproduced(reasons) => reasons,
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if !self.reasons().is_empty() {
            write!(f, ": {}", self.reasons().join("; "))?;
        }
        Ok(())
    }
}

/// Returns the median; not a number when there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// Returns the greatest rank, counted from 1, such that the median of a distribution lies with a
/// probability of at least 95 % between the values of this rank from below and from above, of
/// `count` values.
fn rank(count: usize) -> Option<usize> {
    let mut rank = None;
    // The probability of exactly `below` heads, and of at most as many.
    let (mut exactly, mut at_most) = (0.5_f64.powi(i32::try_from(count).ok()?), 0.0);
    for below in 0..count / 2 {
        at_most += exactly;
        if 2.0 * at_most > 0.05 {
            break;
        }
        rank = Some(below + 1);
        exactly *= (count - below) as f64 / (below + 1) as f64;
    }
    rank
}

/// Returns a number with about three digits that say something.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        size if size >= 100.0 || value.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ours: f64, wanted: Bound) -> Check {
        Check::new("speed-up", "35", ours, wanted)
    }

    #[test]
    fn a_number_that_is_missing_is_kept_as_missing() {
        let kept = serde_json::to_string(&check(f64::NAN, Bound::AtMost(1.0))).unwrap();
        assert!(serde_json::from_str::<Check>(&kept).unwrap().ours.is_nan(), "{kept}");
    }

    #[test]
    fn bounds_include_their_ends() {
        assert!(Bound::AtLeast(1.5).holds(1.5) && !Bound::AtLeast(1.5).holds(1.4));
        assert!(Bound::AtMost(1.5).holds(1.5) && !Bound::AtMost(1.5).holds(1.6));
        assert!(Bound::Within(1.0, 2.0).holds(1.0) && Bound::Within(1.0, 2.0).holds(2.0));
        assert!(!Bound::Within(1.0, 2.0).holds(0.9) && !Bound::Within(1.0, 2.0).holds(2.1));
        for bound in [Bound::AtLeast(0.0), Bound::AtMost(0.0), Bound::Within(0.0, 1.0)] {
            assert!(!bound.holds(f64::NAN), "what was not measured proves nothing");
        }
    }

    #[test]
    fn the_verdict_follows_from_the_checks() {
        let (good, bad) = (check(12.0, Bound::AtLeast(10.0)), check(3.0, Bound::AtLeast(10.0)));
        assert_eq!(Verdict::of(&[good.clone(), good.clone()]), Verdict::Reproduced);
        let reason = vec!["speed-up: 3, wanted at least 10".to_owned()];
        assert_eq!(Verdict::of(&[good, bad.clone()]), Verdict::Partly(reason.clone()));
        assert_eq!(Verdict::of(std::slice::from_ref(&bad)), Verdict::NotReproduced(reason));
        assert_eq!(Verdict::of(&[bad]).to_string(), "not reproduced: speed-up: 3, wanted at least 10");
        assert_eq!(Verdict::of(&[]), Verdict::NotReproduced(Vec::new()), "without a measurement nothing is shown");
    }

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn rounds_give_an_interval_of_confidence() {
        // Values of a table of such intervals.
        assert_eq!(
            [1, 5, 6, 7, 8, 9, 11, 15, 31].map(rank),
            [None, None, Some(1), Some(1), Some(1), Some(2), Some(2), Some(4), Some(10)]
        );
        let rounds = |numbers: &[f64]| numbers.iter().map(|n| vec![check(*n, Bound::AtLeast(10.0))]).collect();
        let seven = &Check::of_rounds(rounds(&[9.0, 8.0, 9.5, 10.5, 8.5, 9.2, 9.1]))[0];
        assert_eq!((seven.ours, seven.interval, seven.number().as_str()), (9.1, Some((8.0, 10.5)), "9.10 (8 to 10.5)"));
        assert!(seven.holds() && seven.holds_within_noise(), "10 is in the interval");
        let lower = &Check::of_rounds(rounds(&[9.0, 8.0, 9.5, 9.6, 8.5, 9.2, 9.1]))[0];
        assert!(!lower.holds() && !lower.holds_within_noise());
        let three = &Check::of_rounds(rounds(&[9.0, 8.0, 10.5]))[0];
        assert!(three.interval.is_none() && !three.holds(), "three rounds say nothing about their noise");
        let above = &Check::of_rounds(rounds(&[11.0, 9.0, 12.0, 12.0, 12.0, 12.0, 12.0]))[0];
        assert!(above.holds() && above.holds_within_noise(), "9 is in the interval");
        let high = &Check::of_rounds(rounds(&[11.0, 10.0, 12.0, 12.0, 12.0, 12.0, 12.0]))[0];
        assert!(high.holds() && !high.holds_within_noise());
        let missing = &Check::of_rounds(rounds(&[11.0, 11.0, 12.0, 12.0, 12.0, 12.0, f64::NAN]))[0];
        assert!(!missing.holds(), "a number is missing");
        assert!(Bound::AtMost(1.0).admits((0.9, 2.0)) && !Bound::AtMost(1.0).admits((1.1, 2.0)));
        assert!(Bound::Within(1.0, 2.0).admits((1.9, 3.0)) && !Bound::Within(1.0, 2.0).admits((2.1, 3.0)));
        assert!(Check::of_rounds(Vec::new()).is_empty());
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!(
            [0.0, 64.0, 12345.6, 34.56, 1.234, 0.01234].map(number),
            ["0", "64", "12346", "34.6", "1.23", "0.0123"]
        );
    }
}
