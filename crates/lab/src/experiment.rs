//! What an experiment is, and what it measures with.

use crate::bounds::Check;
use crate::error::Result;
use crate::figure::Figure;

/// Where experiments on a simulated machine run: [`About::world`].
pub const SIMULATED: &str = "simulated";

/// Where experiments on the event-driven model of ATOM run: in any build, always with the same
/// figures.
pub const EVENT_MODEL: &str = "event model";

/// Where experiments run that trace which pages are visited: [`About::world`].
pub const TRACED: &str = "native, trace build";

/// What an experiment repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// Its name on the command line: the claim's.
    pub id: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// The paper and its figure.
    pub source: &'static str,
    /// Where it runs: natively, or on a simulated machine.
    pub world: &'static str,
    /// What the paper found.
    pub found: &'static str,
    /// What must be measured for the finding to count as reproduced.
    pub wanted: &'static str,
}

/// An experiment of a paper.
pub trait Experiment: Sync {
    /// Returns what it repeats.
    fn about(&self) -> About;

    /// Why some of the paper's findings do not hold here, where the reason is known; printed when
    /// one does not.
    fn difference(&self) -> Option<&'static str> {
        None
    }

    /// Runs it.
    ///
    /// # Errors
    /// Those of the engine and the workload, and an audit that fails.
    fn run(&self, context: &mut Context<'_>) -> Result<Findings>;
}

/// What an experiment measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Findings {
    /// How it was set up, a sentence each.
    pub setting: Vec<String>,
    /// The series.
    pub figures: Vec<Figure>,
    /// The finding, part by part.
    pub checks: Vec<Check>,
}

/// How much work an experiment is to make of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// All points, measured long enough.
    Full,
    /// Few points, measured for a moment: shows that things work, and roughly how it looks.
    Quick,
    /// Next to nothing: for tests. The figures mean nothing.
    Tiny,
}

/// How far an experiment is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Step {
    /// Measurements that are done.
    pub done: u64,
    /// Measurements there will be.
    pub total: u64,
    /// What is done next.
    pub next: String,
}

/// The effort that an experiment makes, and the observer of its progress.
pub struct Context<'a> {
    effort: Effort,
    observe: &'a mut dyn FnMut(&Step),
    step: Step,
}

impl std::fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("effort", &self.effort).field("step", &self.step).finish()
    }
}

impl<'a> Context<'a> {
    pub(crate) fn new(effort: Effort, observe: &'a mut dyn FnMut(&Step)) -> Self {
        Self { effort, observe, step: Step::default() }
    }

    /// How much work to make of it.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Returns the one of three values that fits the effort.
    pub(crate) fn pick<T>(&self, full: T, quick: T, tiny: T) -> T {
        match self.effort {
            Effort::Full => full,
            Effort::Quick => quick,
            Effort::Tiny => tiny,
        }
    }

    /// Announces the number of measurements.
    pub(crate) fn expect(&mut self, total: usize) {
        self.step.total = total as u64;
    }

    /// Announces so many measurements besides those that were announced before.
    pub(crate) fn expect_more(&mut self, number: usize) {
        self.step.total += number as u64;
    }

    /// Announces the next step, before any measurement.
    pub(crate) fn prepare(&mut self, what: &str) {
        what.clone_into(&mut self.step.next);
        (self.observe)(&self.step);
    }

    /// Makes one of the measurements.
    pub(crate) fn measure<T>(&mut self, what: String, measure: impl FnOnce() -> Result<T>) -> Result<T> {
        self.prepare(&what);
        let measured = measure()?;
        self.step.done += 1;
        (self.observe)(&self.step);
        Ok(measured)
    }
}
