//! What the tests of all workloads share.

use std::time::Duration;

use duramen::{Db, Options, Txn};
use duramen_workloads::{Limit, RunOptions, RunReport, Workload, run};

/// A database with little memory and a log of many segments.
pub(crate) fn open(home: &tempfile::TempDir) -> Db {
    let options = Options { pool_bytes: 8 << 20, log_segment_bytes: 1 << 20, ..Options::default() };
    Db::open(home.path().join("db"), options).unwrap()
}

/// Runs `count` transactions, the same ones each time.
pub(crate) fn run_transactions(db: &Db, workload: &dyn Workload<Db>, clients: u32, count: u64) -> RunReport {
    let limit = Limit::Transactions(count);
    // Some threads carry several clients.
    let options = RunOptions {
        clients,
        agents: clients.div_ceil(3),
        rate: None,
        limit,
        seed: 42,
        observe_every: Duration::from_millis(5),
    };
    run(db, workload, &options, &mut |_| {}).unwrap()
}

/// Changes rows in a transaction of its own.
pub(crate) fn tamper(db: &Db, change: impl FnOnce(&mut Txn)) {
    let mut txn = db.begin();
    change(&mut txn);
    txn.commit().unwrap();
}

/// Asserts that the audit finds nothing.
#[track_caller]
pub(crate) fn assert_sound(workload: &dyn Workload<Db>, db: &Db) {
    let report = workload.audit(db).unwrap();
    assert!(report.is_ok(), "{:?}", report.problems());
}

/// Asserts that the audit finds a problem with these words in it.
#[track_caller]
pub(crate) fn assert_problem(workload: &dyn Workload<Db>, db: &Db, words: &str) {
    let report = workload.audit(db).unwrap();
    assert!(report.problems().iter().any(|problem| problem.contains(words)), "{words}: {:?}", report.problems());
}
