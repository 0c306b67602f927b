//! The log buffer alone on a simulated machine: the microbenchmark of Aether, section 6.3.

use std::time::Duration;

use duramen::InsertDesign;
use duramen_wal::measure::{BufferLoad, BufferRate};

use crate::bounds::Check;
use crate::error::Result;
use crate::experiment::Context;
use crate::experiments::simulated::machines::{Machine, NIAGARA, NIAGARA_AS_MEASURED};
use crate::figure::Series;

/// The designs of the paper in its words, and one beyond it.
pub(super) const DESIGNS: [(InsertDesign, &str); 6] = [
    (InsertDesign::Mutex, "Baseline (mutex)"),
    (InsertDesign::Consolidated, "C"),
    (InsertDesign::Decoupled, "D"),
    (InsertDesign::Hybrid, "CD"),
    (InsertDesign::Delegated, "CDE"),
    (InsertDesign::Reserved, "reserved"),
];

/// Records of the average size of the paper's workloads, for 4 ms. Figures of 1 ms depended on the
/// seed of the threads' random numbers (32 threads of A12 by 20 %), and the start was a large part
/// of them.
pub(super) fn load(threads: usize) -> BufferLoad {
    BufferLoad {
        threads,
        record_bytes: 120,
        outlier: None,
        thread_local: false,
        logs: 1,
        arrays: 1,
        array_slots: 4,
        slot_pool: 256,
        waits_for_turn: false,
        ring_bytes: 64 << 20,
        time: Duration::from_millis(4),
    }
}

/// Inserts on the simulated machine.
pub(super) fn measure(
    context: &mut Context<'_>,
    machine: Machine,
    (design, name): (InsertDesign, &str),
    load: BufferLoad,
    what: &str,
) -> Result<BufferRate> {
    context.measure(format!("{}, {name}, {what}", machine.title), || simulate(machine, design, load))
}

#[cfg(duramen_machine)]
fn simulate(machine: Machine, design: InsertDesign, load: BufferLoad) -> Result<BufferRate> {
    crate::simulation::run(machine.name, &machine.plan()?, move || Ok(duramen_wal::measure::buffer(design, &load)?))
}

#[cfg(not(duramen_machine))]
fn simulate(machine: Machine, _: InsertDesign, _: BufferLoad) -> Result<BufferRate> {
    Err(crate::error::Error::NotSimulated { machine: machine.name })
}

/// Returns the series called `name`.
pub(super) fn named<'a>(series: &'a [Series], name: &str) -> &'a Series {
    series.iter().find(|series| series.name == name).expect("every design is measured")
}

/// How it was set up.
pub(super) fn setting(machine: Machine) -> String {
    setting_with(machine, load(1))
}

/// How it was set up, with loads like this.
pub(super) fn setting_with(machine: Machine, load: BufferLoad) -> String {
    format!(
        "Simulated machine: {}. The log buffer alone, 64 MiB, without flushes, as in section 6.3 of the paper, \
         with a pool of {} slots; the code is that of the product; caches, memory and processors are modelled. Each \
         point is {} ms of virtual time. The filled-in bytes are counted: the one thread that follows the links of \
         `reserved` may be behind at the end.",
        machine.name,
        load.slot_pool,
        load.time.as_millis()
    )
}

/// As [`setting_with`], for several machines, with what is different in the controlled runs.
pub(super) fn settings(machines: &[Machine], load: BufferLoad) -> Vec<String> {
    let control = "In the controlled runs, the memory reads and writes 4.4 GB/s in all, and not the published 21: in \
                   Fig. 9 of the paper all designs end at about 2.2 GB/s of log, and each byte of it is read into a \
                   cache and written from it once. So the controlled runs do not show which bandwidth the memory has, \
                   but what follows for the designs from the one that the paper's machine showed.";
    let controlled = machines.contains(&NIAGARA_AS_MEASURED).then(|| control.to_owned());
    let plain = machines.iter().filter(|&&machine| machine != NIAGARA_AS_MEASURED);
    plain.map(|&machine| setting_with(machine, load)).chain(controlled).collect()
}

/// Returns the checks of a machine, if it is the paper's: those with its published memory, or those
/// of controlled runs.
pub(super) fn on_the_papers(machine: Machine, checks: impl FnOnce() -> Vec<Check>) -> Vec<Check> {
    match machine {
        NIAGARA => checks(),
        NIAGARA_AS_MEASURED => checks().into_iter().map(|check| check.under("with memory of 4.4 GB/s")).collect(),
        _ => Vec::new(),
    }
}
