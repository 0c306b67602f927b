//! I/O errors: any disk operation fails, once or from then on, or the disk fills up. The client
//! must get an error that says so, the engine must refuse further writes after it lost a write, and
//! after reopening everything acknowledged must be there.

use std::time::Duration;

use duramen::{Db, Error, Options};
use duramen_io::{CrashChoice, Fault, SimDisk};
use duramen_sync::Arc;

use crate::client::{Client, OnError, Stop};
use crate::crash::{CrashWorkload, compare, open_and_compare};
use crate::harness::{Budget, Coverage, Phase, Tally, guarded};
use crate::model::Model;
use duramen_test_support::Rng;

/// Longest time for one fault.
const LIMIT: Duration = Duration::from_secs(60);

/// The faults, each with the name that commands give it.
pub const FAULTS: &[(&str, Fault)] = &[
    ("eio", Fault::Eio),
    ("enospc", Fault::Enospc),
    ("failed-sync", Fault::FailedSync),
    ("short-read", Fault::ShortRead),
    ("short-write", Fault::ShortWrite),
];

/// One fault of one run.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The fault.
    pub fault: Fault,
    /// The disk operation that it happens to, or the first after it that it can happen to.
    pub op: u64,
    /// Whether it persists.
    pub persistent: bool,
}

impl Case {
    fn repeat(self, workload: &dyn CrashWorkload, seed: u64) -> String {
        let fault = FAULTS.iter().find(|(_, fault)| *fault == self.fault).map_or("", |(name, _)| *name);
        let persistent = if self.persistent { " --persistent" } else { "" };
        let Self { op, .. } = self;
        format!("torture io-errors --workload {} --seed {seed} --op {op} --fault {fault}{persistent}", workload.name())
    }
}

/// Returns whether the fault makes the system drop data that was written.
fn drops_data(fault: Fault) -> bool {
    matches!(fault, Fault::Eio | Fault::FailedSync)
}

/// How a run met its faults.
struct Ended {
    /// What may be found on reopening.
    candidates: Vec<Model>,
}

/// Returns whether `error` is a fair report of `fault`, or of its consequences.
fn is_fair(error: &Error, fault: Fault) -> bool {
    match fault {
        Fault::Eio | Fault::FailedSync => {
            matches!(error, Error::Io { .. } | Error::Poisoned { .. } | Error::OpenFailed { .. })
        }
        Fault::Enospc => {
            matches!(error, Error::Io { .. } | Error::Poisoned { .. } | Error::OpenFailed { .. } | Error::Full { .. })
        }
        Fault::TooManyFiles => matches!(error, Error::TooManyFiles { .. }),
        // These are not errors: the disk continues with the rest.
        Fault::ShortRead | Fault::ShortWrite => false,
    }
}

/// Returns whether the message of `error` is about a write or a sync.
fn lost_a_write(error: &Error) -> bool {
    match error {
        Error::Io { reason } | Error::Poisoned { reason } => {
            ["cannot write", "cannot sync"].iter().any(|operation| reason.contains(operation))
        }
        _ => false,
    }
}

fn run_with(
    workload: &dyn CrashWorkload,
    seed: u64,
    disk: &SimDisk,
    fault: Fault,
    rng: &mut Rng,
) -> Result<Ended, String> {
    let options = workload.options(seed);
    let nothing = Model::default();
    let mut client = match Client::open(disk, &options, nothing.clone()) {
        Ok(client) => client,
        Err(error) if is_fair(&error, fault) => return Ok(Ended { candidates: vec![nothing] }),
        Err(error) => return Err(format!("opening: the fault is reported as: {error}")),
    };
    let on_error = |error: &Error| match error {
        Error::Full { .. } if fault == Fault::Enospc => OnError::GiveUpTransaction,
        _ => OnError::Stop,
    };
    let stop = client.run(&workload.script(seed, &nothing), on_error);
    let mut ended = Ended { candidates: vec![client.oracle.committed.clone()] };
    match stop {
        Ok(()) => {}
        Err(Stop::Wrong(text)) => return Err(text),
        Err(Stop::Error { step, error, in_flight }) => {
            if !is_fair(&error, fault) {
                return Err(format!("{step}: the fault is reported as: {error}"));
            }
            ended.candidates.extend(in_flight.map(|model| *model));
            if lost_a_write(&error) {
                refuses_writes(&client).map_err(|text| format!("{step}: {error}; after that {text}"))?;
            }
        }
    }
    for error in client.abort_all() {
        if !is_fair(&error, fault) {
            return Err(format!("aborting: the fault is reported as: {error}"));
        }
    }
    if rng.percent(50) {
        match client.close() {
            Ok(()) => {}
            Err(error) if is_fair(&error, fault) => {}
            Err(error) => return Err(format!("closing: the fault is reported as: {error}")),
        }
    }
    Ok(ended)
}

/// After a lost write nothing may be acknowledged.
fn refuses_writes(client: &Client) -> Result<(), String> {
    let Some(db) = client.db() else { return Ok(()) };
    let refused = |result: Result<(), Error>| match result {
        Err(Error::Io { .. } | Error::Poisoned { .. }) => Ok(()),
        Err(error) => Err(format!("a write is refused with: {error}")),
        Ok(()) => Err("a write is acknowledged".to_owned()),
    };
    refused(db.create_table("after the failure").map(drop))?;
    let Some(name) = client.oracle.committed.tables.keys().next() else { return Ok(()) };
    let table = match db.open_table(name) {
        Ok(table) => table,
        Err(error) => return refused(Err(error)),
    };
    let mut txn = db.begin();
    // A key of its own, so that no lock of an open transaction is in the way.
    match txn.put(&table, b"~after the failure", b"x") {
        Ok(()) => refused(txn.commit()),
        Err(error) => refused(Err(error)),
    }
}

/// Checks that the database has permitted contents after a restart of the process and of the
/// machine.
fn reopen_all(disk: &SimDisk, options: &Options, ended: &Ended, rng: &mut Rng) -> Result<u64, String> {
    disk.clear_faults();
    disk.set_capacity(1 << 40);
    let images = [
        ("the process restarts", disk.image()),
        ("the machine restarts and loses all unsynced data", disk.crash_image(&CrashChoice::Nothing)),
        ("the machine restarts", disk.crash_image(&CrashChoice::Random(rng.bits()))),
    ];
    let mut checks = 0;
    for (what, image) in &images {
        let (db, model) =
            open_and_compare(image, options, &ended.candidates).map_err(|text| format!("{what}: {text}"))?;
        db.close().map_err(|error| format!("{what}: does not close: {error}"))?;
        open_and_compare(image, options, &[model]).map_err(|text| format!("{what}, closes and opens: {text}"))?;
        checks += 2;
    }
    Ok(checks)
}

/// Lets the process restart and continue, and then the machine restart.
fn work_on_and_crash(
    workload: &dyn CrashWorkload,
    seed: u64,
    disk: &SimDisk,
    options: &Options,
    ended: &Ended,
) -> Result<u64, String> {
    let (db, model) = open_and_compare(disk, options, &ended.candidates)
        .map_err(|text| format!("the process restarts on the same disk: {text}"))?;
    let mut client = Client::with(db, disk, options, model.clone());
    match client.run(&workload.script(seed ^ 7, &model), |_| OnError::Stop) {
        Ok(()) => {}
        Err(Stop::Wrong(text)) => return Err(format!("continuing: {text}")),
        Err(Stop::Error { step, error, .. }) => return Err(format!("continuing: {step}: {error}")),
    }
    client.abort_all();
    let committed = client.oracle.committed.clone();
    disk.crash();
    drop(client);
    open_and_compare(&disk.crash_image(&CrashChoice::Nothing), options, &[committed])
        .map_err(|text| format!("the process restarts and continues, then the machine restarts: {text}"))?;
    Ok(2)
}

/// Tries one fault.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_fault(workload: &'static dyn CrashWorkload, seed: u64, case: Case) -> Result<u64, String> {
    guarded(LIMIT, move |phase: &Phase| {
        phase.enter(format!("[{}]", case.repeat(workload, seed)));
        let mut rng = Rng::new(seed ^ case.op);
        let disk = workload.disk(seed);
        disk.fail_at(case.op, case.fault, case.persistent);
        let ended = run_with(workload, seed, &disk, case.fault, &mut rng)?;
        let options = workload.later_options(seed);
        let mut checks = reopen_all(&disk, &options, &ended, &mut rng)?;
        if !drops_data(case.fault) {
            checks += work_on_and_crash(workload, seed, &disk, &options, &ended)?;
        }
        Ok(checks)
    })
}

/// Tries a fault that makes the system drop written data while readers still see it. After a
/// restart the process finds other data than the medium has, and what it then acknowledges must
/// nevertheless survive a power cut.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_restart_after_dropped_data(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    case: Case,
) -> Result<u64, String> {
    guarded(LIMIT, move |phase: &Phase| {
        phase.enter(format!("[{} --restart]", case.repeat(workload, seed)));
        let mut rng = Rng::new(seed ^ case.op);
        let disk = workload.disk(seed);
        disk.fail_at(case.op, case.fault, case.persistent);
        let ended = run_with(workload, seed, &disk, case.fault, &mut rng)?;
        disk.clear_faults();
        work_on_and_crash(workload, seed, &disk, &workload.later_options(seed), &ended)
    })
}

/// Tries a disk of `capacity` bytes that fills up while the script runs and then gets more space.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_full_disk(workload: &'static dyn CrashWorkload, seed: u64, capacity: u64) -> Result<u64, String> {
    guarded(LIMIT, move |phase: &Phase| {
        let name = workload.name();
        phase.enter(format!("[torture io-errors --workload {name} --seed {seed} --capacity {capacity}]"));
        let mut rng = Rng::new(seed ^ capacity);
        let disk = workload.disk(seed);
        disk.set_capacity(capacity);
        let options = workload.later_options(seed);
        let ended = run_with(workload, seed, &disk, Fault::Enospc, &mut rng)?;
        let mut checks = reopen_all(&disk, &options, &ended, &mut rng)?;
        checks += work_on_and_crash(workload, seed, &disk, &options, &ended)?;
        Ok(checks)
    })
}

/// Tries a disk that fills up and gets space while the database is open: transactions run again,
/// without reopening.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_room_made(workload: &'static dyn CrashWorkload, seed: u64, capacity: u64) -> Result<u64, String> {
    guarded(LIMIT, move |phase: &Phase| {
        let name = workload.name();
        phase.enter(format!("[torture io-errors --workload {name} --seed {seed} --capacity {capacity}] freeing space"));
        let disk = workload.disk(seed);
        disk.set_capacity(capacity);
        let options = workload.options(seed);
        let nothing = Model::default();
        let mut client = match Client::open(&disk, &options, nothing.clone()) {
            Ok(client) => client,
            Err(error) if is_fair(&error, Fault::Enospc) => return Ok(0),
            Err(error) => return Err(format!("opening: a full disk is reported as: {error}")),
        };
        let on_error = |error: &Error| match error {
            Error::Full { .. } => OnError::GiveUpTransaction,
            _ => OnError::Stop,
        };
        match client.run(&workload.script(seed, &nothing), on_error) {
            Ok(()) => {}
            Err(Stop::Wrong(text)) => return Err(text),
            // A database that failed for good must be reopened; that is the case of a full disk
            // above.
            Err(Stop::Error { error, .. }) if is_fair(&error, Fault::Enospc) => return Ok(0),
            Err(Stop::Error { step, error, .. }) => return Err(format!("{step}: a full disk is reported as: {error}")),
        }
        client.abort_all();
        let Some(db) = client.db() else { return Ok(0) };
        compare(db, std::slice::from_ref(&client.oracle.committed))?;
        disk.set_capacity(1 << 40);
        let again = workload.script(seed ^ 3, &client.oracle.committed);
        match client.run(&again, |_| OnError::Stop) {
            Ok(()) => {}
            Err(Stop::Wrong(text)) => return Err(format!("after space was freed: {text}")),
            Err(Stop::Error { step, error, .. }) => return Err(format!("after space was freed: {step}: {error}")),
        }
        client.abort_all();
        let committed = client.oracle.committed.clone();
        client.close().map_err(|error| format!("does not close: {error}"))?;
        let db = Db::open_on(Arc::new(disk.clone()), options).map_err(|error| format!("does not open: {error}"))?;
        compare(&db, &[committed])?;
        Ok(2)
    })
}

/// Tries a log that may not hold more than `limit` bytes. Transactions that do not fit get
/// [`Error::Full`] and can be rolled back, and what comes after them finds room.
///
/// # Errors
/// What is wrong and how to repeat it.
pub fn try_full_log(workload: &'static dyn CrashWorkload, seed: u64, limit: u64) -> Result<(u64, u64), String> {
    guarded(LIMIT, move |phase: &Phase| {
        let name = workload.name();
        phase.enter(format!("[torture io-errors --workload {name} --seed {seed} --log-limit {limit}]"));
        let disk = workload.disk(seed);
        let options = Options {
            log_max_bytes: limit,
            log_segment_bytes: 64 << 10,
            checkpoint_bytes: Some(limit / 4),
            ..workload.options(seed)
        };
        let mut client =
            Client::open(&disk, &options, Model::default()).map_err(|error| format!("does not open: {error}"))?;
        let mut refused = 0;
        let mut run = |client: &mut Client, script: &[crate::step::Step]| {
            let stop = client.run(script, |error| match error {
                Error::Full { .. } => {
                    refused += 1;
                    OnError::GiveUpTransaction
                }
                _ => OnError::Stop,
            });
            match stop {
                Ok(()) => Ok(()),
                Err(Stop::Wrong(text)) => Err(text),
                Err(Stop::Error { step, error, .. }) => Err(format!("{step}: a full log is reported as: {error}")),
            }
        };
        run(&mut client, &workload.script(seed, &Model::default()))?;
        if let Some(error) = client.abort_all().into_iter().next() {
            return Err(format!("a rollback finds no space: {error}"));
        }
        let Some(db) = client.db() else { return Err("the client has no open database".into()) };
        compare(db, std::slice::from_ref(&client.oracle.committed))?;
        let small = crate::workloads::named("ghosts").expect("the workload exists");
        let script = small.script(seed, &client.oracle.committed);
        match client.run(&script, |_| OnError::Stop) {
            Ok(()) => {}
            Err(stop) => return Err(format!("small transactions find no space afterwards: {stop:?}")),
        }
        let committed = client.oracle.committed.clone();
        disk.crash();
        drop(client);
        open_and_compare(&disk.crash_image(&CrashChoice::Nothing), &options, &[committed])?;
        Ok((2, refused))
    })
}

/// Tries faults at the operations of one run, and full disks.
pub fn sweep(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    points: Coverage,
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
) -> Tally {
    let operations = match operations_of(workload, seed) {
        Ok(operations) => operations,
        Err(tally) => return tally,
    };
    let cases = FAULTS.len() * 2;
    // An eighth of the work goes to disks that fill up.
    let full = (operations * cases / 8).max(1);
    let used = used_by(workload, seed);
    let chosen = points.choose(operations * cases + full, &mut Rng::new(seed ^ 2));
    try_all(&chosen, budget, progress, |point| {
        if point < operations * cases {
            return try_fault(workload, seed, case_of(FAULTS, point));
        }
        let capacity = used * (point - operations * cases) as u64 / full as u64;
        let checks = try_full_disk(workload, seed, capacity)?;
        Ok(checks + try_room_made(workload, seed, capacity)?)
    })
}

/// Tries restarts of the process after faults that drop data, at the operations of one run.
pub fn sweep_restarts(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    points: Coverage,
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
) -> Tally {
    let operations = match operations_of(workload, seed) {
        Ok(operations) => operations,
        Err(tally) => return tally,
    };
    let dropping: Vec<_> = FAULTS.iter().copied().filter(|(_, fault)| drops_data(*fault)).collect();
    let chosen = points.choose(operations * dropping.len() * 2, &mut Rng::new(seed ^ 3));
    try_all(&chosen, budget, progress, |point| {
        try_restart_after_dropped_data(workload, seed, case_of(&dropping, point))
    })
}

/// Tries limits of the log, from so small that most transactions are refused to so large that none
/// is.
pub fn sweep_full_logs(
    workload: &'static dyn CrashWorkload,
    seed: u64,
    points: Coverage,
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
) -> Tally {
    const LEAST: u64 = 512 << 10;
    const STEP: u64 = 4 << 10;
    let chosen = points.choose(((2 << 20) - LEAST).div_euclid(STEP) as usize, &mut Rng::new(seed ^ 4));
    try_all(&chosen, budget, progress, |point| {
        try_full_log(workload, seed, LEAST + STEP * point as u64).map(|(checks, _)| checks)
    })
}

/// Runs `attempt` for each point as long as the budget lasts.
fn try_all(
    points: &[usize],
    budget: &Budget,
    progress: &mut dyn FnMut(&Tally, usize),
    mut attempt: impl FnMut(usize) -> Result<u64, String>,
) -> Tally {
    let mut tally = Tally::default();
    for &point in points {
        if budget.is_spent(&tally) {
            break;
        }
        tally.points += 1;
        match attempt(point) {
            Ok(checks) => tally.checks += checks,
            Err(failure) => tally.failures.push(failure),
        }
        progress(&tally, points.len());
    }
    tally
}

/// Returns the case of a point: each operation has every fault, passing and staying.
fn case_of(faults: &[(&str, Fault)], point: usize) -> Case {
    let (op, case) = (point / (2 * faults.len()), point % (2 * faults.len()));
    Case { fault: faults[case / 2].1, op: op as u64, persistent: case % 2 == 1 }
}

/// Returns the number of disk operations of a run, or the failure of the run.
fn operations_of(workload: &'static dyn CrashWorkload, seed: u64) -> Result<usize, Tally> {
    match crate::crash::count_operations(workload, seed, crate::world::LogEnd::Files) {
        Ok(operations) => Ok(usize::try_from(operations.end()).expect("runs are short")),
        Err(failure) => Err(Tally { failures: vec![failure], ..Tally::default() }),
    }
}

/// Returns the bytes on the disk after a whole run. The count of its operations has already
/// reported its failures.
fn used_by(workload: &'static dyn CrashWorkload, seed: u64) -> u64 {
    let run = guarded(LIMIT, move |_| {
        let disk = workload.disk(seed);
        let options = workload.options(seed);
        let mut client = Client::open(&disk, &options, Model::default()).map_err(|error| error.to_string())?;
        let script = workload.script(seed, &Model::default());
        client.run(&script, |_| OnError::Stop).map_err(|stop| format!("{stop:?}"))?;
        Ok(disk.used())
    });
    run.unwrap_or(0)
}
