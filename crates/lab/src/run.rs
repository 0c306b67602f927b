//! Running an experiment.

use duramen_sync::clock::Instant;
use duramen_sync::usage::Usage;

use crate::error::Result;
use crate::experiment::{Context, EVENT_MODEL, Effort, Experiment, SIMULATED, Step};
use crate::machine::{Machine, processor_time};
use crate::outcome::{Conditions, Outcome};

/// Runs `experiment`; `observe` is called before and after each measurement.
///
/// # Errors
/// As [`Experiment::run`].
pub fn run(experiment: &dyn Experiment, effort: Effort, observe: &mut dyn FnMut(&Step)) -> Result<Outcome> {
    let start = Instant::now();
    let (all, own) = (processor_time(), Usage::now());
    let mut context = Context::new(effort, observe);
    let findings = experiment.run(&mut context)?;
    let seconds = start.elapsed().as_secs_f64();
    let own = Usage::now().since(&own).processor();
    let others = all
        .zip(processor_time())
        .map(|(before, after)| after.saturating_sub(before).saturating_sub(own).as_secs_f64() / seconds.max(1e-9));
    let about = experiment.about();
    // The files of a run in virtual time must not depend on place and time: they are the same
    // everywhere.
    let conditions = if [SIMULATED, EVENT_MODEL].contains(&about.world) {
        Conditions { seconds: 0.0, others: None, machine: Machine::simulated() }
    } else {
        Conditions { seconds, others, machine: Machine::here() }
    };
    Ok(Outcome::new(about, effort, conditions, findings))
}
