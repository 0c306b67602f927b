//! What every [`Store`] must pass before its figures mean anything. The checks panic at the first
//! difference.

use std::ops::ControlFlow;

use duramen_sync::thread;

use super::{Access, Connection, ScanRange, Store, Transaction, transact};
use crate::error::Result;

/// Checks everything but serializability, on a store that holds none of the checks' tables yet.
///
/// # Panics
/// When the store does not keep a promise of [`Store`].
///
/// # Errors
/// The engine's.
pub fn check<S: Store>(store: &S) -> Result<()> {
    check_tables(store)?;
    check_rows(store)?;
    check_rollback(store)?;
    check_scans(store)?;
    check_lost_updates(store)
}

fn check_tables<S: Store>(store: &S) -> Result<()> {
    assert!(store.find_table("conformance_none")?.is_none());
    assert!(matches!(store.table("conformance_none"), Err(crate::Error::MissingTable { .. })));
    let one = store.make_table("conformance_one")?;
    let two = store.make_table("conformance_two")?;
    transact(&mut store.connect()?, Access::ReadWrite, |txn| txn.put(&one, b"key", b"one"))?;
    let again = store.make_table("conformance_one")?;
    assert!(store.find_table("conformance_one")?.is_some());
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadOnly)?;
    assert_eq!(txn.get(&again, b"key", <[u8]>::to_vec)?.as_deref(), Some(&b"one"[..]), "made once");
    assert_eq!(txn.get(&two, b"key", |_| ())?, None, "tables are apart");
    txn.commit()?;
    store.quiesce()
}

fn check_rows<S: Store>(store: &S) -> Result<()> {
    let table = store.make_table("conformance_rows")?;
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadWrite)?;
    assert!(txn.insert(&table, b"a", b"1")?);
    assert!(!txn.insert(&table, b"a", b"2")?, "the key is there");
    assert!(!txn.update(&table, b"b", b"2")?, "the key is not there");
    assert!(!txn.delete(&table, b"b")?, "the key is not there");
    assert_eq!(txn.modify(&table, b"b", |_| ())?, None);
    txn.put(&table, b"b", b"2")?;
    txn.put(&table, b"b", b"")?;
    txn.put(&table, b"c", &[7; 1_000])?;
    assert!(txn.update(&table, b"a", b"3")?);
    assert_eq!(txn.get(&table, b"a", |row| row[0])?, Some(b'3'), "its own changes are seen");
    assert_eq!(txn.get_for_update(&table, b"b", <[u8]>::len)?, Some(0), "rows may be empty");
    let before = txn.modify(&table, b"c", |row| {
        row.truncate(10);
        row.push(8);
        row.len()
    })?;
    assert_eq!(before, Some(11));
    txn.commit()?;

    let mut txn = connection.begin(Access::ReadWrite)?;
    assert_eq!(txn.get(&table, b"c", |row| (row.len(), row[10]))?, Some((11, 8)));
    assert!(txn.delete(&table, b"c")?);
    assert_eq!(txn.get(&table, b"c", |_| ())?, None);
    assert!(txn.insert(&table, b"c", b"new")?, "a removed key is free");
    txn.commit()?;
    for access in [Access::ReadOnly, Access::ReadCommitted] {
        let mut txn = connection.begin(access)?;
        assert_eq!(txn.get(&table, b"c", <[u8]>::to_vec)?.as_deref(), Some(&b"new"[..]));
        txn.commit()?;
    }
    Ok(())
}

fn check_rollback<S: Store>(store: &S) -> Result<()> {
    let table = store.make_table("conformance_rollback")?;
    let mut connection = store.connect()?;
    transact(&mut connection, Access::ReadWrite, |txn| txn.put(&table, b"old", b"1"))?;
    for drop_it in [false, true] {
        let mut txn = connection.begin(Access::ReadWrite)?;
        txn.put(&table, b"new", b"2")?;
        txn.put(&table, b"old", b"2")?;
        if drop_it {
            drop(txn)
        } else {
            txn.abort()?
        }
        let mut txn = connection.begin(Access::ReadOnly)?;
        assert_eq!(txn.get(&table, b"new", |_| ())?, None, "rolled back");
        assert_eq!(txn.get(&table, b"old", |row| row[0])?, Some(b'1'), "rolled back");
        txn.commit()?;
    }
    Ok(())
}

fn check_scans<S: Store>(store: &S) -> Result<()> {
    let table = store.make_table("conformance_scans")?;
    let mut connection = store.connect()?;
    let keys: [&[u8]; 7] = [b"\0", b"a", b"a\0", b"a\xff", b"b", b"\xff", b"\xff\xff"];
    transact(&mut connection, Access::ReadWrite, |txn| keys.iter().try_for_each(|key| txn.put(&table, key, key)))?;
    let cases = [
        (ScanRange::ALL, 0..7),
        (ScanRange::ALL.limit(3), 0..3),
        (ScanRange::from(b"a\0"), 2..7),
        (ScanRange::new(b"a", b"b"), 1..4),
        (ScanRange::new(b"a", b"a"), 0..0),
        (ScanRange::new(b"b", b"a"), 0..0),
        (ScanRange::new(b"c", b"d"), 0..0),
        (ScanRange::new(b"", b"a\x01"), 0..3),
        (ScanRange::from(b"\xff\xff").limit(9), 6..7),
    ];
    let mut txn = connection.begin(Access::ReadWrite)?;
    for (range, expected) in cases {
        let mut expected = keys[expected].to_vec();
        assert_eq!(visited(&mut txn, &table, range)?, expected, "{range:?}");
        // Downwards a limit keeps other rows.
        if range.limit == usize::MAX {
            expected.reverse();
            assert_eq!(visited(&mut txn, &table, range.backward())?, expected, "{range:?} downwards");
            expected.truncate(1);
            assert_eq!(visited(&mut txn, &table, range.backward().limit(1))?, expected, "{range:?}, the last");
        }
    }
    let mut seen = 0;
    txn.scan(&table, ScanRange::ALL, |_, _| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    assert_eq!(seen, 2, "a visitor may stop");
    txn.put(&table, b"aa", b"aa")?;
    assert!(txn.delete(&table, b"b")?);
    let own = visited(&mut txn, &table, ScanRange::new(b"a\0", b"c"))?;
    assert_eq!(own, [&b"a\0"[..], b"aa", b"a\xff"], "its own changes are seen");
    txn.abort()
}

fn visited<T: Transaction>(txn: &mut T, table: &T::Table, range: ScanRange<'_>) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    txn.scan(table, range, |key, row| {
        assert_eq!(key, row);
        found.push(key.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// Runs `work` on several connections at once; the number tells which one it is.
fn side_by_side<S: Store>(
    store: &S,
    work: impl Fn(&mut S::Connection, u8) -> Result<()> + Clone + Send + 'static,
) -> Result<()> {
    let mut threads = Vec::new();
    for number in 0..4 {
        let (mut connection, work) = (store.connect()?, work.clone());
        let spawned = thread::spawn("conformance", move || work(&mut connection, number));
        threads.push(spawned.map_err(crate::Error::Thread)?);
    }
    threads.into_iter().try_for_each(|thread| thread.join().expect("no check fails"))
}

/// Counters that many connections increase lose nothing.
fn check_lost_updates<S: Store>(store: &S) -> Result<()> {
    const ROUNDS: u64 = 100;
    let table = store.make_table("conformance_counters")?;
    let mut connection = store.connect()?;
    transact(&mut connection, Access::ReadWrite, |txn| {
        (0..2u8).try_for_each(|counter| txn.put(&table, &[counter], &0u64.to_le_bytes()))
    })?;
    let own = table.clone();
    side_by_side(store, move |connection, number| {
        for round in 0..ROUNDS {
            // In both orders, so that engines that lock must deal with deadlocks.
            let first = (u64::from(number) + round) as u8 % 2;
            transact(connection, Access::ReadWrite, |txn| {
                for counter in [first, 1 - first] {
                    let done = txn.modify(&own, &[counter], |row| {
                        let count = u64::from_le_bytes(row[..].try_into().expect("a counter has 8 bytes"));
                        row.copy_from_slice(&(count + 1).to_le_bytes());
                    })?;
                    assert!(done.is_some());
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    let mut txn = connection.begin(Access::ReadOnly)?;
    for counter in 0..2u8 {
        let count = txn.get(&table, &[counter], |row| u64::from_le_bytes(row.try_into().expect("8 bytes")))?;
        assert_eq!(count, Some(4 * ROUNDS), "no increase is lost");
    }
    txn.commit()
}

/// Checks that transactions that each read what another one writes behave as if they had run one
/// after another, phantoms included: a transaction that finds a place empty takes it, so no place
/// may be taken twice. Engines that offer only snapshot isolation fail this.
///
/// # Panics
/// When transactions are not serializable.
///
/// # Errors
/// The engine's.
pub fn check_serializability<S: Store>(store: &S) -> Result<()> {
    let table = store.make_table("conformance_places")?;
    for round in 0..50u8 {
        let own = table.clone();
        side_by_side(store, move |connection, number| {
            transact(connection, Access::ReadWrite, |txn| {
                let mut taken = 0;
                let (start, end) = ([round, 0], [round, u8::MAX]);
                txn.scan(&own, ScanRange::new(&start, &end), |_, _| {
                    taken += 1;
                    ControlFlow::Continue(())
                })?;
                if taken == 0 {
                    assert!(txn.insert(&own, &[round, number], b"taken")?);
                }
                Ok(())
            })
        })?;
        let mut connection = store.connect()?;
        let mut txn = connection.begin(Access::ReadOnly)?;
        let mut taken = 0;
        txn.scan(&table, ScanRange::from(&[round]), |_, _| {
            taken += 1;
            ControlFlow::Continue(())
        })?;
        txn.commit()?;
        assert_eq!(taken, 1, "transactions are serializable, phantoms included");
    }
    Ok(())
}
