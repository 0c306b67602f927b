//! The result of an experiment, as it is kept in a file.

use serde::{Deserialize, Serialize};

use crate::bounds::{Check, Verdict};
use crate::experiment::{About, Effort, Findings};
use crate::figure::Figure;
use crate::machine::Machine;

/// The result of an experiment, with everything needed to read it later.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The claim.
    pub id: String,
    /// What it is about, in a line.
    pub title: String,
    /// The paper and its figure.
    pub source: String,
    /// Where it ran.
    pub world: String,
    /// What the paper found.
    pub found: String,
    /// What had to be measured for the finding to count as reproduced.
    pub wanted: String,
    /// Whether it was a quick run: few points, each measured for a moment.
    pub quick: bool,
    /// Under which conditions it ran.
    pub conditions: Conditions,
    /// How it was set up.
    pub setting: Vec<String>,
    /// The series.
    pub figures: Vec<Figure>,
    /// The finding, part by part.
    pub checks: Vec<Check>,
}

/// Under which conditions an experiment ran.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Conditions {
    /// How long it took.
    pub seconds: f64,
    /// Processors that other programs kept busy meanwhile, on average; nothing where the system
    /// does not say.
    pub others: Option<f64>,
    /// The machine.
    pub machine: Machine,
}

impl Outcome {
    pub(crate) fn new(about: About, effort: Effort, conditions: Conditions, findings: Findings) -> Self {
        let Findings { setting, figures, checks } = findings;
        Self {
            id: about.id.to_owned(),
            title: about.title.to_owned(),
            source: about.source.to_owned(),
            world: about.world.to_owned(),
            found: about.found.to_owned(),
            wanted: about.wanted.to_owned(),
            quick: effort != Effort::Full,
            conditions,
            setting,
            figures,
            checks,
        }
    }

    /// Returns what the checks come to, those of controlled runs apart.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.checks.iter().filter(|check| check.under.is_none()))
    }

    /// Returns what the checks of controlled runs come to, if there are any.
    pub fn controlled_verdict(&self) -> Option<Verdict> {
        let mut checks = self.checks.iter().filter(|check| check.under.is_some()).peekable();
        checks.peek()?;
        Some(Verdict::of(checks))
    }

    /// Returns the names of the verdicts: one, or two if there were controlled runs.
    pub fn verdicts(&self) -> String {
        let first = self.named(&self.verdict(), false);
        match self.controlled_verdict() {
            Some(second) => format!("{first}; {} under the paper's conditions", self.named(&second, true)),
            None => first,
        }
    }

    /// Returns the name of a verdict, and whether noise may have decided it.
    pub fn named(&self, verdict: &Verdict, is_controlled: bool) -> String {
        let mut checks = self.checks.iter().filter(|check| check.under.is_some() == is_controlled);
        let is_noisy = *verdict == Verdict::Reproduced && checks.any(Check::holds_within_noise);
        format!("{}{}", verdict.name(), if is_noisy { " within the noise" } else { "" })
    }

    /// Returns the command that repeats it.
    pub fn command(&self) -> String {
        format!("duramen lab run {}{}", self.id, if self.quick { " --quick" } else { "" })
    }
}
