//! Runs on a simulated machine.

use std::panic::resume_unwind;

use duramen::Db;
use duramen_machine::{Description, Outcome, Plan};
use duramen_sync::thread;

use crate::error::{Error, Result};

/// Runs `work` as the first thread of the machine called `machine`, with all threads on these
/// contexts of it.
pub(crate) fn run_on<T: 'static>(
    machine: &'static str,
    contexts: Vec<usize>,
    work: impl FnOnce() -> Result<T> + 'static,
) -> Result<T> {
    run(machine, &Plan { contexts: Some(contexts), ..plan(machine)? }, work)
}

/// Runs `work` as the first thread of a plan of the machine called `machine`.
pub(crate) fn run<T: 'static>(
    machine: &'static str,
    plan: &Plan,
    work: impl FnOnce() -> Result<T> + 'static,
) -> Result<T> {
    let simulation = |reason: String| Error::Simulation { machine, reason };
    let mut report = duramen_machine::run(plan, work);
    match std::mem::replace(&mut report.outcome, Outcome::Stopped) {
        // An error lies in the run's memory, which goes with the report.
        Outcome::Done(result) => result.map_err(|error| simulation(error.to_string())),
        Outcome::Stopped => Err(simulation("it was stopped".to_owned())),
        Outcome::Aborted(reason) => Err(simulation(reason)),
        Outcome::OutOfTime(threads) => Err(simulation(format!("it ran out of time; its threads:\n{threads}"))),
        Outcome::Deadlock(threads) => Err(simulation(format!("all its threads wait for each other:\n{threads}"))),
    }
}

/// Returns the plan of a run on this machine.
pub(crate) fn plan(machine: &'static str) -> Result<Plan> {
    let described = Description::named(machine);
    Ok(Plan::new(described.map_err(|error| Error::Simulation { machine, reason: error.to_string() })?))
}

/// Returns what a run gave, or why it gave nothing.
pub(crate) fn finished<'a, T>(machine: &'static str, outcome: &'a Outcome<Result<T>>) -> Result<&'a T> {
    let reason = match outcome {
        Outcome::Done(Ok(value)) => return Ok(value),
        Outcome::Done(Err(error)) => error.to_string(),
        Outcome::Stopped => "it was stopped".to_owned(),
        Outcome::Aborted(reason) => reason.clone(),
        Outcome::OutOfTime(threads) => format!("it ran out of time; its threads:\n{threads}"),
        Outcome::Deadlock(threads) => format!("all its threads wait for each other:\n{threads}"),
    };
    Err(Error::Simulation { machine, reason })
}

/// Writes so many bytes of log, so that the logs are what they are in a database that has been in
/// service for some time.
///
/// The files of a log that was opened just now have some tens of kilobytes, and grow as the log
/// does; a measurement of some milliseconds would be over before they have grown.
pub(crate) fn age_logs(db: &Db, bytes: u64) -> Result<()> {
    let enough = db.metrics().log.bytes + bytes;
    let table = db.table("aged")?;
    // Each log belongs to some of the processors, and each thread begins on another one. So many
    // threads also leave the contexts of later ones as they are without them.
    let workers = (0..thread::available_parallelism()).map(|number| {
        let (db, table) = (db.clone(), table.clone());
        thread::spawn(&format!("age-{number}"), move || {
            let mut row = [0; 2048];
            while db.metrics().log.bytes < enough {
                row.iter_mut().for_each(|byte: &mut u8| *byte = byte.wrapping_add(1));
                db.run(|txn| txn.put(&table, &number.to_be_bytes(), &row))?;
            }
            Ok::<(), duramen::Error>(())
        })
    });
    let workers: Vec<_> = workers.collect::<std::io::Result<_>>().map_err(duramen_workloads::Error::Thread)?;
    workers.into_iter().try_for_each(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))?;
    Ok(db.checkpoint()?)
}
