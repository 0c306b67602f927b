//! TPC-C from population to audit, through the public interface.

use duramen::{Db, Table};
use duramen_workloads::tpcc::row::{Customer, District, Order, OrderLine, Stock, Warehouse};
use duramen_workloads::tpcc::{Mix, Scale, Tables, key};
use duramen_workloads::{LoadOutcome, Tpcc, Workload};

use crate::common::{assert_problem, assert_sound, open, run_transactions, tamper};

const SCALE: Scale = Scale { warehouses: 2, customers: 30, items: 200 };

fn loaded(home: &tempfile::TempDir, mix: Mix) -> (Db, Tpcc) {
    let db = open(home);
    let tpcc = Tpcc::new(SCALE, mix);
    assert!(matches!(tpcc.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Loaded { rows: 9_000..12_000 }));
    (db, tpcc)
}

#[test]
fn load_run_audit() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcc) = loaded(&home, Mix::Standard);
    assert_sound(&tpcc, &db);
    let report = run_transactions(&db, &tpcc, 6, 3_000);
    assert_eq!(report.committed, 3_000);
    assert_sound(&tpcc, &db);
    let shares = [0.45, 0.43, 0.04, 0.04, 0.04];
    for (tally, share) in report.tallies.iter().zip(shares) {
        assert!((tally.done as f64 / 3_000.0 - share).abs() < 0.03, "{:?}", report.tallies);
    }
    let new_orders = report.tallies[0];
    assert!((1..60).contains(&new_orders.declined), "about one in a hundred: {new_orders:?}");
    db.close().unwrap();
    let db = open(&home);
    assert_eq!(tpcc.load(&db, &mut |_| {}).unwrap(), LoadOutcome::Present);
    run_transactions(&db, &tpcc, 3, 300);
    assert_sound(&tpcc, &db);
}

#[test]
fn single_transactions_run() {
    let home = tempfile::tempdir().unwrap();
    let (db, payment) = loaded(&home, Mix::Payment);
    let report = run_transactions(&db, &payment, 4, 400);
    assert_eq!(report.tallies[1].done, 400);
    let new_order = Tpcc::new(SCALE, Mix::NewOrder);
    let report = run_transactions(&db, &new_order, 4, 400);
    assert_eq!(report.tallies[0].done, 400);
    assert_sound(&new_order, &db);
}

/// The first row of a table.
fn first(db: &Db, table: &Table) -> (Vec<u8>, Vec<u8>) {
    db.begin().scan(table, ..).next().unwrap().unwrap()
}

#[test]
fn the_audit_notices_missing_and_superfluous_rows() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcc) = loaded(&home, Mix::Standard);
    run_transactions(&db, &tpcc, 2, 60);
    let tables = Tables::open(&db).unwrap();
    let cases: [(&Table, &str); 11] = [
        (&tables.warehouse, "warehouse 1 is missing"),
        (&tables.district, "district 1 of warehouse 1 is missing"),
        (&tables.customer, "there are 29 customers"),
        (&tables.customer_name, "the index of names"),
        (&tables.history, "has a gap"),
        (&tables.order, "belongs to no order"),
        (&tables.order_customer, "the index of orders"),
        (&tables.new_order, "condition 5"),
        (&tables.order_line, "condition 6"),
        (&tables.item, "199 items"),
        (&tables.stock, "there are 399 stock rows"),
    ];
    for (table, words) in cases {
        let (key, row) = first(&db, table);
        tamper(&db, |txn| assert!(txn.delete(table, &key).unwrap()));
        assert_problem(&tpcc, &db, words);
        tamper(&db, |txn| txn.put(table, &key, &row).unwrap());
        assert_sound(&tpcc, &db);
        let mut foreign = key.clone();
        foreign[..4].copy_from_slice(&[0; 4]);
        foreign.push(1);
        tamper(&db, |txn| txn.put(table, &foreign, &row).unwrap());
        assert!(!tpcc.audit(&db).unwrap().is_ok(), "a row too many in {}", table.name());
        tamper(&db, |txn| assert!(txn.delete(table, &foreign).unwrap()));
    }
    assert_sound(&tpcc, &db);
}

#[test]
fn the_audit_notices_every_broken_condition() {
    let home = tempfile::tempdir().unwrap();
    let (db, tpcc) = loaded(&home, Mix::Standard);
    run_transactions(&db, &tpcc, 2, 60);
    let tables = Tables::open(&db).unwrap();
    // Each change is made, noticed and taken back.
    let check = |table: &Table, key: &[u8], change: &dyn Fn(&mut Vec<u8>), words: &[&str]| {
        let before = db.begin().get(table, key).unwrap().unwrap();
        let mut wrong = before.clone();
        change(&mut wrong);
        tamper(&db, |txn| txn.update(table, key, &wrong).unwrap());
        words.iter().for_each(|words| assert_problem(&tpcc, &db, words));
        tamper(&db, |txn| txn.update(table, key, &before).unwrap());
    };
    macro_rules! change {
        ($row:ident, $field:ident, $change:expr) => {
            &|row: &mut Vec<u8>| {
                let mut fields = $row::decode(row).unwrap();
                fields.$field = $change(fields.$field);
                fields.store(row);
            }
        };
    }
    let warehouse = key::warehouse(2);
    check(&tables.warehouse, &warehouse, change!(Warehouse, ytd, |ytd| ytd + 1), &["condition 1", "condition 8"]);
    let district = key::district(2, 10);
    check(&tables.district, &district, change!(District, ytd, |ytd| ytd - 1), &["condition 1", "condition 9"]);
    check(&tables.district, &district, change!(District, next_o_id, |next| next + 1), &["condition 2"]);
    let customer = key::customer(1, 3, 30);
    let both = ["condition 10", "condition 12"];
    check(&tables.customer, &customer, change!(Customer, balance, |balance| balance + 1), &both);
    check(&tables.customer, &customer, change!(Customer, ytd_payment, |paid| paid + 1), &["condition 12"]);
    check(&tables.customer, &customer, change!(Customer, delivery_count, |count| count + 1), &["condition 11"]);
    check(&tables.customer, &customer, change!(Customer, payment_count, |count| count + 1), &["payments"]);
    check(&tables.customer, &customer, change!(Customer, last, |_| *b"NOBODY          "), &["the index of names"]);
    // An order of the population that was delivered, and its first line.
    let (order, line) = (key::order(1, 1, 3), key::order_line(1, 1, 3, 1));
    check(&tables.order, &order, change!(Order, carrier_id, |_| 0), &["condition 5", "condition 7"]);
    check(&tables.order, &order, change!(Order, ol_cnt, |count| count + 1), &["condition 4", "condition 6"]);
    check(&tables.order, &order, change!(Order, c_id, |c| c % 30 + 1), &["the index of orders"]);
    check(&tables.order_line, &line, change!(OrderLine, delivery_d, |_| 0), &["condition 7"]);
    check(&tables.order_line, &line, change!(OrderLine, amount, |amount| amount + 1), &both);
    check(&tables.stock, &key::stock(1, 5), change!(Stock, ytd, |ytd| ytd + 1), &["the stock of item 5"]);
    assert_sound(&tpcc, &db);

    // The second oldest new order goes, with its order made to look delivered.
    let mut txn = db.begin();
    let (start, end) = (key::order(1, 1, 0), key::order(1, 1, u32::MAX));
    let second = txn.scan(&tables.new_order, &start[..]..&end[..]).nth(1).unwrap().unwrap().0;
    drop(txn);
    tamper(&db, |txn| assert!(txn.delete(&tables.new_order, &second).unwrap()));
    assert_problem(&tpcc, &db, "condition 3");
}
