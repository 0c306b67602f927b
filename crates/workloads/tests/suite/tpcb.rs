//! TPC-B from population to audit, through the public interface.

use std::time::Duration;

use duramen::{Db, Options, Table};
use duramen_workloads::tpcb::{BalanceRow, HistoryKey, Ledger, Scale, Tables, id_key, verify};
use duramen_workloads::{Error, Limit, LoadOutcome, Marker, RunOptions, RunReport, Tpcb, Workload, run};

const SCALE: Scale = Scale { accounts_per_branch: 500, ..Scale::standard(3) };

fn open(home: &tempfile::TempDir) -> Db {
    let options = Options { pool_bytes: 8 << 20, log_segment_bytes: 1 << 20, ..Options::default() };
    Db::open(home.path().join("db"), options).unwrap()
}

fn loaded(home: &tempfile::TempDir) -> (Db, Tpcb) {
    let db = open(home);
    let tpcb = Tpcb::new(SCALE, None);
    assert_eq!(tpcb.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Loaded { rows: SCALE.rows() });
    (db, tpcb)
}

fn transactions(db: &Db, tpcb: &Tpcb, clients: u32, count: u64) -> RunReport {
    let limit = Limit::Transactions(count);
    let options = RunOptions {
        clients,
        agents: clients.div_ceil(3),
        rate: None,
        limit,
        seed: 42,
        observe_every: Duration::from_millis(5),
    };
    run(db, tpcb, &options, &mut |_| {}).unwrap()
}

/// Overwrites or removes one row in a transaction of its own.
fn tamper(db: &Db, change: impl FnOnce(&mut duramen::Txn, &Tables<Table>)) {
    let tables = Tables::open(db).unwrap();
    let mut txn = db.begin();
    change(&mut txn, &tables);
    txn.commit().unwrap();
}

fn assert_problem(tpcb: &Tpcb, db: &Db, words: &str) {
    let report = tpcb.audit(db).unwrap();
    assert!(report.problems().iter().any(|problem| problem.contains(words)), "{words}: {:?}", report.problems());
}

#[test]
fn load_run_audit() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    assert!(tpcb.audit(&db).unwrap().is_ok());
    assert_eq!(tpcb.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Present);
    let report = transactions(&db, &tpcb, 7, 1_000);
    assert_eq!(report.committed, 1_000);
    assert_eq!(report.latencies.count(), 1_000);
    assert!(report.latencies.quantile(0.5) <= report.latencies.max());
    let audit = tpcb.audit(&db).unwrap();
    assert!(audit.is_ok(), "{audit}");
    assert!(audit.facts().iter().any(|fact| fact.starts_with("history: 1000 rows of 7 terminals")), "{audit:?}");
}

#[test]
fn a_run_by_time_stops_and_is_observed() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    let limit = Limit::Time(Duration::from_millis(300));
    let options =
        RunOptions { clients: 4, agents: 2, rate: None, limit, seed: 1, observe_every: Duration::from_millis(20) };
    let mut observed = Vec::new();
    let report = run(&db, &tpcb, &options, &mut |progress| observed.push(progress.committed)).unwrap();
    assert!(report.elapsed >= Duration::from_millis(300));
    assert!(report.committed > 0);
    assert!(observed.len() >= 3 && observed.is_sorted(), "{observed:?}");
    assert!(tpcb.audit(&db).unwrap().is_ok());
}

#[test]
fn history_keys_continue_after_reopening() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    transactions(&db, &tpcb, 3, 90);
    db.close().unwrap();
    let db = open(&home);
    let tpcb = Tpcb::new(SCALE, None);
    transactions(&db, &tpcb, 4, 40);
    let audit = tpcb.audit(&db).unwrap();
    assert!(audit.is_ok(), "{audit}");
    assert!(audit.facts().iter().any(|fact| fact.starts_with("history: 130 rows of 4 terminals")), "{audit:?}");
}

#[test]
fn the_audit_notices_planted_damage() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    transactions(&db, &tpcb, 2, 50);
    let first = HistoryKey { terminal: 0, sequence: 1 }.encode();

    // Each change is made, noticed and taken back.
    let account = |id, balance| BalanceRow { id, branch: 0, balance }.encode();
    let before = db.begin().get(&Tables::open(&db).unwrap().account, &id_key(7)).unwrap().unwrap();
    tamper(&db, |txn, tables| txn.put(&tables.account, &id_key(7), &account(7, 123_456_789)).unwrap());
    assert_problem(&tpcb, &db, "account 7 has balance 123456789");
    assert_problem(&tpcb, &db, "the sums differ");
    tamper(&db, |txn, tables| txn.put(&tables.account, &id_key(7), &account(8, 0)).unwrap());
    assert_problem(&tpcb, &db, "account 7 holds the row of account 8");
    tamper(&db, |txn, tables| txn.put(&tables.account, &id_key(7), b"short").unwrap());
    assert_problem(&tpcb, &db, "cannot be decoded");
    tamper(&db, |txn, tables| assert!(txn.delete(&tables.account, &id_key(7)).unwrap()));
    assert_problem(&tpcb, &db, "there are 1499 account rows, not 1500");
    tamper(&db, |txn, tables| txn.put(&tables.account, &id_key(7), &before).unwrap());
    assert!(tpcb.audit(&db).unwrap().is_ok());

    // Two errors that cancel out in every sum of the specification.
    let tables = Tables::open(&db).unwrap();
    let mut moved = Vec::new();
    for (id, change) in [(1, 5), (2, -5)] {
        let row = db.begin().get(&tables.account, &id_key(id)).unwrap().unwrap();
        let mut row = BalanceRow::decode(&row).unwrap();
        row.balance += change;
        moved.push((id, row));
    }
    tamper(&db, |txn, tables| {
        moved.iter().for_each(|(id, row)| txn.update(&tables.account, &id_key(*id), &row.encode()).unwrap());
    });
    assert_problem(&tpcb, &db, "account 1 has balance");
    tamper(&db, |txn, tables| {
        for ((id, row), change) in moved.iter().zip([5, -5]) {
            let row = BalanceRow { balance: row.balance - change, ..*row };
            txn.update(&tables.account, &id_key(*id), &row.encode()).unwrap();
        }
    });
    assert!(tpcb.audit(&db).unwrap().is_ok());

    tamper(&db, |txn, tables| assert!(txn.delete(&tables.history, &first).unwrap()));
    assert_problem(&tpcb, &db, "the history of terminal 0 has a gap");
}

#[test]
fn the_audit_notices_a_lost_tail() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    transactions(&db, &tpcb, 1, 5);
    let last = HistoryKey { terminal: 0, sequence: 5 }.encode();
    tamper(&db, |txn, tables| assert!(txn.delete(&tables.history, &last).unwrap()));
    assert_problem(&tpcb, &db, "terminal 0 has 4 history rows, but 5 of its commits were acknowledged");
}

#[test]
fn another_scale_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let (db, _) = loaded(&home);
    let other = Tpcb::new(Scale { branches: 4, ..SCALE }, None);
    assert!(matches!(other.load(&db, &mut |_| {}), Err(Error::WrongScale { .. })));
    assert!(!other.audit(&db).unwrap().is_ok());
    assert_eq!(Marker::read(&db).unwrap(), Some(Marker { scale: SCALE, complete: true }));
}

#[test]
fn the_ledger_holds_what_was_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ledger");
    let (db, _) = loaded(&home);
    let tpcb = Tpcb::new(SCALE, None).with_ledger(Ledger::append_to(&path).unwrap());
    transactions(&db, &tpcb, 4, 200);
    // A record that was cut off is not an acknowledgement.
    std::fs::OpenOptions::new().append(true).open(&path).unwrap().set_len(200 * 32 + 7).unwrap();
    let entries = Ledger::read(&path).unwrap();
    assert_eq!(entries.len(), 200);
    assert!(verify(&db, &entries).unwrap().is_ok());

    let tpcb = Tpcb::new(SCALE, None).with_ledger(Ledger::append_to(&path).unwrap());
    transactions(&db, &tpcb, 1, 1);
    let entries = Ledger::read(&path).unwrap();
    assert_eq!(entries.len(), 201);
    assert!(verify(&db, &entries).unwrap().is_ok());

    tamper(&db, |txn, tables| assert!(txn.delete(&tables.history, &entries[3].key.encode()).unwrap()));
    let report = verify(&db, &entries).unwrap();
    assert!(report.to_string().contains("is lost"), "{report}");
    let mut wrong = entries[5];
    wrong.delta += 1;
    assert!(!verify(&db, &[wrong]).unwrap().is_ok());
}

#[test]
fn a_failing_client_stops_the_run_with_its_error() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcb) = loaded(&home);
    tamper(&db, |txn, tables| {
        SCALE.tellers_of(1).for_each(|teller| assert!(txn.delete(&tables.teller, &id_key(teller)).unwrap()));
    });
    let limit = Limit::Time(Duration::from_secs(30));
    let options =
        RunOptions { clients: 4, agents: 4, rate: None, limit, seed: 3, observe_every: Duration::from_millis(20) };
    let error = run(&db, &tpcb, &options, &mut |_| {}).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("tpcb_teller"), "{error}");
    let none = RunOptions { clients: 0, ..options };
    assert!(matches!(run(&db, &tpcb, &none, &mut |_| {}), Err(Error::InvalidParameter { .. })));
}
