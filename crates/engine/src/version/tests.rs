//! Tests of the version store on its own.

use duramen_sync::atomic::AtomicU64 as Counter;

use super::*;
use crate::page::SlotFlags;
use crate::record::Tree;
use duramen_sync::Arc;
use duramen_sync::atomic::Ordering;
use duramen_types::{Gsn, PageId, TableId};

const TABLE: TableId = TableId::new(16);
const TREE: Tree = Tree { root: PageId::new(9), table: TABLE };

/// A store whose horizon the test moves, with a single bucket, so that keys meet.
fn store() -> (VersionStore, Arc<Counter>) {
    let horizon = Arc::new(Counter::new(0));
    let shown = Arc::clone(&horizon);
    let order = CommitOrder::Gsns(Box::new(move || Gsn::new(shown.load(Ordering::SeqCst))));
    (VersionStore::with_buckets(order, 1 << 20, 0, true), horizon)
}

fn value(bytes: &[u8]) -> Before<'_> {
    Before::Value(bytes, SlotFlags::NONE)
}

/// Runs a transaction that replaces the value `before` of `key` and commits at `at`.
fn change(store: &VersionStore, key: &[u8], before: Before<'_>, at: u64) {
    let mut txn = TxnVersions::default();
    store.push(&mut txn, TABLE, key, before, false);
    commit(store, txn, at, Vec::new());
}

fn ghost_of(key: &[u8]) -> Ghost {
    Ghost { tree: TREE, key: key.to_vec(), last: None }
}

fn commit(store: &VersionStore, mut txn: TxnVersions, at: u64, ghosts: Vec<Ghost>) {
    store.begin_commit(&txn);
    let at = store.commit(&mut txn, Gsn::new(at), Gsn::new(at));
    store.retire(&mut txn, Cleanup { at, first: at, ghosts, has_frees: false });
}

/// Returns what is beside the page at a position, with the older value.
fn seen(store: &VersionStore, key: &[u8], at: u64) -> (Version, Vec<u8>) {
    let mut out = b"in front ".to_vec();
    let version = store.version_at(TABLE, key, Gsn::new(at), &mut out);
    assert!(out.starts_with(b"in front "), "older values are appended");
    (version, out.split_off(9))
}

const PLAIN: Version = Version::Value(SlotFlags::NONE);

#[test]
fn a_reader_sees_the_value_from_before_the_first_change_that_it_does_not_see() {
    let (store, _) = store();
    let _snapshot = store.open();
    change(&store, b"a", Before::Absent, 10);
    change(&store, b"a", value(b"one"), 20);
    change(&store, b"b", value(b"other"), 25);
    change(&store, b"a", value(b"two"), 30);
    assert_eq!(seen(&store, b"a", 9), (Version::Absent, vec![]));
    assert_eq!(seen(&store, b"a", 10), (PLAIN, b"one".to_vec()));
    assert_eq!(seen(&store, b"a", 29), (PLAIN, b"two".to_vec()));
    assert_eq!(seen(&store, b"a", 30), (Version::Current, vec![]));
    assert_eq!(seen(&store, b"b", 24), (PLAIN, b"other".to_vec()));
    assert_eq!(seen(&store, b"c", 0), (Version::Current, vec![]));
    let mut out = Vec::new();
    assert_eq!(store.version_at(TableId::new(17), b"a", Gsn::ZERO, &mut out), Version::Current);
}

#[test]
fn a_transaction_keeps_the_first_value_and_none_after_an_abort() {
    let (store, _) = store();
    let _snapshot = store.open();
    let mut txn = TxnVersions::default();
    store.push(&mut txn, TABLE, b"a", value(b"first"), false);
    store.push(&mut txn, TABLE, b"a", value(b"second"), false);
    store.push(&mut txn, TABLE, b"b", Before::Absent, false);
    assert_eq!(seen(&store, b"a", 100), (PLAIN, b"first".to_vec()), "it is active");
    assert_eq!(seen(&store, b"b", 100), (Version::Absent, vec![]));
    store.begin_commit(&txn);
    assert_eq!(seen(&store, b"a", 100).0, Version::Unsettled);
    store.commit(&mut txn, Gsn::new(50), Gsn::new(50));
    assert_eq!(seen(&store, b"a", 49), (PLAIN, b"first".to_vec()));
    assert_eq!(seen(&store, b"a", 50).0, Version::Current);

    let mut other = TxnVersions::default();
    store.push(&mut other, TABLE, b"a", value(b"third"), false);
    assert_eq!(seen(&store, b"a", 50), (PLAIN, b"third".to_vec()));
    store.abort(&other);
    assert_eq!(seen(&store, b"a", 50).0, Version::Current);
    assert_eq!(seen(&store, b"a", 49), (PLAIN, b"first".to_vec()));
}

#[test]
fn versions_go_when_they_are_durable_and_no_snapshot_needs_them() {
    let (store, horizon) = store();
    let ghost = || vec![ghost_of(b"a")];
    let deleted = |at| {
        let mut txn = TxnVersions::default();
        store.push(&mut txn, TABLE, b"a", value(b"v"), true);
        commit(&store, txn, at, ghost());
    };
    deleted(10);
    assert!(store.collect(9).ghosts.is_empty(), "not durable");
    let needs = |key| store.needs_slot(TABLE, key);
    assert_eq!((needs(b"a"), needs(b"b")), (true, false));
    horizon.store(10, Ordering::SeqCst);
    assert!(!needs(b"a"));
    assert_eq!(store.collect(9).ghosts, ghost());
    assert_eq!(store.bytes(), 0);

    let snapshot = store.open();
    assert_eq!(snapshot.at(), Gsn::new(10));
    deleted(20);
    horizon.store(30, Ordering::SeqCst);
    let later = store.open();
    assert!(store.bytes() > 0);
    assert!(store.collect(9).ghosts.is_empty() && needs(b"a"));
    assert_eq!(store.reclaimable(), Gsn::new(10));
    assert_eq!(store.snapshots(), (2, 0));
    store.close(&snapshot);
    assert_eq!(store.reclaimable(), Gsn::new(30));
    assert_eq!(store.bytes(), 0, "the closing thread frees");
    assert!(store.collect(0).ghosts.is_empty());
    store.postpone([ghost_of(b"c")]);
    assert_eq!(store.collect(9).ghosts, [ghost_of(b"a"), ghost_of(b"c")]);
    store.close(&later);
    assert_eq!(store.reclaimable(), Gsn::new(30));
}

#[test]
fn a_hot_record_keeps_what_open_snapshots_need_and_what_is_not_durable() {
    let (store, horizon) = store();
    let mut open = Vec::new();
    let key = b"hot";
    for at in 1..=1000_u64 {
        change(&store, key, value(&(at - 1).to_le_bytes()), at);
        if at > 3 {
            horizon.store(at - 3, Ordering::SeqCst);
        }
        if at % 300 == 0 {
            open.push(store.open());
        }
        store.collect(0);
    }
    for snapshot in &open {
        let at = snapshot.at().get();
        assert_eq!(seen(&store, key, at), (PLAIN, at.to_le_bytes().to_vec()));
    }
    assert_eq!(seen(&store, key, 998), (PLAIN, 998_u64.to_le_bytes().to_vec()));
    // Those of 1,000 transactions would take four times as much.
    assert!(store.bytes() < 100_000, "{} bytes", store.bytes());
    for snapshot in open {
        store.close(&snapshot);
    }
    horizon.store(1000, Ordering::SeqCst);
    store.collect_all();
    assert_eq!(store.bytes(), 0);
}

#[test]
fn the_oldest_snapshot_ends_when_versions_take_too_much() {
    let (store, horizon) = store();
    let (old, same) = (store.open(), store.open());
    let put = |from: u64, to: u64| {
        for at in from..to {
            change(&store, format!("key{at}").as_bytes(), value(&[7; 400]), at);
            horizon.store(at, Ordering::SeqCst);
        }
    };
    put(1, 100);
    let young = store.open();
    put(100, 4000);
    assert!(old.check().is_err() && same.check().is_err());
    assert!(young.check().is_err(), "it alone would need too much as well");
    assert_eq!(store.snapshots(), (0, 3));
    store.collect_all();
    assert!(store.bytes() < 1 << 20);
    let new = store.open();
    assert!(new.check().is_ok());
    store.close(&old);
    store.end_all();
    assert!(new.check().is_err() && store.open().check().is_err(), "the database is closed");
}

#[test]
fn one_large_transaction_ends_a_snapshot_and_is_freed_by_the_next_commit() {
    let (store, horizon) = store();
    let mut txn = TxnVersions::default();
    let large = |txn: &mut TxnVersions| {
        for key in 0..1000_u64 {
            store.push(txn, TABLE, &key.to_le_bytes(), value(&[7; 1200]), false);
        }
    };
    horizon.store(1, Ordering::SeqCst);
    let snapshot = store.open();
    large(&mut txn);
    horizon.store(10, Ordering::SeqCst);
    commit(&store, txn, 10, Vec::new());
    assert!(snapshot.check().is_err());
    assert_eq!((store.bytes(), store.snapshots()), (0, (0, 1)));

    // No snapshot needs it, but it is not hardened yet.
    let (snapshot, mut txn) = (store.open(), TxnVersions::default());
    large(&mut txn);
    commit(&store, txn, 20, Vec::new());
    store.close(&snapshot);
    assert!(store.bytes() > 1 << 20);
    horizon.store(20, Ordering::SeqCst);
    assert!(store.collect(9).ghosts.is_empty());
    assert_eq!(store.bytes(), 0);
}

/// A snapshot that has begun since cannot be what takes the memory.
#[test]
fn only_snapshots_below_a_position_are_ended() {
    let (store, horizon) = store();
    let old = store.open();
    horizon.store(10, Ordering::SeqCst);
    let young = store.open();
    let ends = |position| store.end_oldest_below(Gsn::new(position));
    assert_eq!((ends(0), ends(10), ends(10)), (false, true, false));
    assert!(old.check().is_err() && young.check().is_ok());
    assert!(ends(11) && young.check().is_err());
}

/// The threads of a stripe find it free while another thread frees what it holds.
#[test]
fn all_that_many_transactions_have_left_is_freed_in_parts() {
    let (store, horizon) = store();
    let snapshot = store.open();
    for at in 1..=1000_u64 {
        let mut txn = TxnVersions::default();
        store.push(&mut txn, TABLE, &at.to_le_bytes(), value(b"v"), true);
        commit(&store, txn, at, vec![ghost_of(&at.to_le_bytes())]);
    }
    horizon.store(900, Ordering::SeqCst);
    store.close(&snapshot);
    assert!(!store.needs_slot(TABLE, &900_u64.to_le_bytes()) && store.needs_slot(TABLE, &901_u64.to_le_bytes()));
    let keys = |ghosts: Vec<Ghost>| ghosts.into_iter().map(|ghost| ghost.key).collect::<Vec<_>>();
    let expected = |range: std::ops::RangeInclusive<u64>| range.map(|at| at.to_le_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(keys(store.collect_all().ghosts), expected(1..=900));
    horizon.store(1000, Ordering::SeqCst);
    assert_eq!(keys(store.collect_all().ghosts), expected(901..=1000));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn pages_that_are_older_than_all_unseen_transactions_need_no_look() {
    let (store, horizon) = store();
    horizon.store(50, Ordering::SeqCst);
    let snapshot = store.open();
    let below = |active: Option<u64>| store.unchanged_below(snapshot.at(), || active.map(Gsn::new)).get();
    assert_eq!((below(None), below(Some(40)), below(Some(90))), (51, 40, 51));
    let mut txn = TxnVersions::default();
    store.push(&mut txn, TABLE, b"a", Before::Absent, false);
    store.begin_commit(&txn);
    let at = store.commit(&mut txn, Gsn::new(60), Gsn::new(60));
    store.retire(&mut txn, Cleanup { at, first: Gsn::new(45), ghosts: Vec::new(), has_frees: false });
    assert_eq!((below(None), below(Some(40))), (45, 40));
    // Transactions that change the record again are forgotten, and that does not matter.
    for at in 61..1000 {
        change(&store, b"a", value(b"v"), at);
        horizon.store(at, Ordering::SeqCst);
    }
    assert!(store.bytes() < 100_000, "{} bytes", store.bytes());
    assert_eq!(below(None), 45);
    assert_eq!(seen(&store, b"a", 50).0, Version::Absent);
    store.close(&snapshot);
    assert_eq!(store.bytes(), 0);
}

/// Writers are used again, also after transactions with long values, and nothing of the earlier
/// ones appears.
#[test]
fn transactions_of_one_session_follow_each_other() {
    let (store, horizon) = store();
    let mut txn = TxnVersions::default();
    for round in 1..400_u64 {
        let snapshot = (round % 3 > 0).then(|| store.open());
        let len = [8, 100, 1500][round as usize % 3];
        let before = |key: u64| vec![(round * 7 + key) as u8; len];
        for key in 0..round % 5 + 1 {
            store.push(&mut txn, TABLE, &key.to_le_bytes(), value(&before(key)), false);
        }
        if round % 4 == 0 {
            store.abort(&txn);
        } else {
            store.begin_commit(&txn);
            let at = store.commit(&mut txn, Gsn::new(round), Gsn::new(round));
            store.retire(&mut txn, Cleanup { at, first: at, ghosts: Vec::new(), has_frees: false });
        }
        if let Some(snapshot) = snapshot {
            let first = seen(&store, &0_u64.to_le_bytes(), snapshot.at().get());
            let expected = if round % 4 == 0 { (Version::Current, vec![]) } else { (PLAIN, before(0)) };
            assert_eq!(first, expected, "round {round}");
            assert_eq!(seen(&store, &9_u64.to_le_bytes(), 0).0, Version::Current);
            store.close(&snapshot);
        }
        horizon.store(round, Ordering::SeqCst);
        store.collect(9);
    }
    store.collect_all();
    assert_eq!(store.bytes(), 0);
}

/// A snapshot lasts as long as the versions that it needs fit, whatever else there has been.
#[test]
fn what_no_snapshot_needs_is_dropped_though_one_stays_open() {
    let (store, horizon) = store();
    let put = |key: u64, at: u64, has_frees: bool| {
        let mut txn = TxnVersions::default();
        store.push(&mut txn, TABLE, &key.to_le_bytes(), value(&[7; 100]), false);
        store.begin_commit(&txn);
        let at = store.commit(&mut txn, Gsn::new(at), Gsn::new(at));
        store.retire(&mut txn, Cleanup { at, first: at, ghosts: Vec::new(), has_frees });
        horizon.store(at.get(), Ordering::SeqCst);
    };
    // A backlog of what was needed, and is not any more.
    let first = store.open();
    (1..1500).for_each(|at| put(at, at, false));
    assert!(first.check().is_ok());
    store.close(&first);
    assert_eq!(store.bytes(), 0);
    let second = store.open();
    for at in 2000..12_000 {
        // Every other one has something to free when the snapshot is closed.
        put(1, at, at % 2 == 0);
    }
    // Of many records, too, which are changed in turn.
    for at in 12_000..32_000 {
        put(at % 300, at, false);
    }
    assert!(second.check().is_ok(), "300 records have changed");
    assert!(store.bytes() <= 1 << 20, "{} bytes", store.bytes());
    assert!(!store.collect(9).has_frees);
    store.close(&second);
    assert!(store.collect(9).has_frees);
    assert_eq!(store.bytes(), 0);
}

#[test]
fn an_order_of_its_own_counts_commits() {
    let store = VersionStore::with_buckets(CommitOrder::count(), 1 << 20, 4, true);
    let empty = store.open();
    change(&store, b"a", Before::Absent, 7);
    change(&store, b"a", value(b"one"), 3);
    assert_eq!(empty.at(), Gsn::ZERO);
    assert_eq!(store.open().at(), Gsn::new(2));
    assert_eq!(seen(&store, b"a", 0).0, Version::Absent);
    assert_eq!(seen(&store, b"a", 1), (PLAIN, b"one".to_vec()));
    assert_eq!(store.unchanged_below(Gsn::new(2), || None), Gsn::ZERO);
}

/// What was kept when a snapshot is opened is found in the order of the commits, for any
/// transactions.
#[test]
fn what_transactions_keep_is_published_when_a_snapshot_is_opened() {
    let horizon = Arc::new(Counter::new(0));
    let shown = Arc::clone(&horizon);
    let order = CommitOrder::gsns(true, move || Gsn::new(shown.load(Ordering::SeqCst)));
    let store = VersionStore::with_buckets(order, 1 << 20, 0, true);
    let mut running = TxnVersions::default();
    // Two commits of batch 5 and one of batch 6; another is still running.
    change(&store, b"a", value(b"zero"), 5);
    change(&store, b"a", value(b"one"), 5);
    change(&store, b"a", value(b"two"), 6);
    store.push(&mut running, TABLE, b"a", value(b"three"), false);
    store.push(&mut running, TABLE, b"a", value(b"four"), false);
    assert_eq!(store.bytes(), 0);
    let snapshot = store.open();
    assert_eq!(seen(&store, b"a", 4), (PLAIN, b"zero".to_vec()));
    assert_eq!(seen(&store, b"a", 5), (PLAIN, b"two".to_vec()));
    assert_eq!(seen(&store, b"a", 6), (PLAIN, b"three".to_vec()), "the first value of the running one");
    store.push(&mut running, TABLE, b"b", Before::Absent, false);
    assert_eq!(seen(&store, b"b", 9).0, Version::Absent, "it publishes at once from now on");
    store.close(&snapshot);
    store.abort(&running);
    horizon.store(9, Ordering::SeqCst);
    store.collect_all();
    assert_eq!(store.bytes(), 0);
    store.push(&mut running, TABLE, b"a", value(b"three"), false);
    assert_eq!(store.bytes(), 0, "it keeps its versions again");
    store.push(&mut running, TABLE, b"a", value(&[7; 20_000]), false);
    store.push(&mut running, TABLE, b"a", value(b"more"), false);
    assert!(store.bytes() > 0, "a large transaction does not");
    store.abort(&running);
    assert_eq!(store.bytes(), 0);
}

/// A snapshot was opened while a commit record was inserted: the next transaction of the context
/// was taken for one that commits, and readers of what it had changed waited until it ended.
#[test]
fn a_context_that_was_published_while_it_committed_begins_anew() {
    for aborts in [false, true] {
        let (store, _) = store();
        let mut txn = TxnVersions::default();
        store.push(&mut txn, TABLE, b"a", value(b"zero"), false);
        store.begin_commit(&txn);
        let snapshot = store.open();
        assert_eq!(seen(&store, b"a", 0).0, Version::Unsettled);
        let at = store.commit(&mut txn, Gsn::new(10), Gsn::new(10));
        store.retire(&mut txn, Cleanup { at, first: at, ghosts: Vec::new(), has_frees: false });
        if aborts {
            store.push(&mut txn, TABLE, b"a", value(b"one"), false);
            store.abort(&txn);
        }
        store.push(&mut txn, TABLE, b"a", value(b"one"), false);
        assert_eq!(seen(&store, b"a", 0), (PLAIN, b"zero".to_vec()));
        assert_eq!(seen(&store, b"a", 10), (PLAIN, b"one".to_vec()));
        store.close(&snapshot);
    }
}

/// What a snapshot needs of contexts that are gone stays, and says where its transactions began.
#[test]
fn what_contexts_have_kept_stays_when_they_are_gone() {
    let (store, horizon) = store();
    horizon.store(50, Ordering::SeqCst);
    for at in 1..=1000_u64 {
        change(&store, &at.to_le_bytes(), value(b"before"), at);
    }
    let mut long = TxnVersions::default();
    store.push(&mut long, TABLE, b"long", value(b"before"), false);
    store.begin_commit(&long);
    store.commit(&mut long, Gsn::new(1001), Gsn::new(45));
    let snapshot = store.open();
    assert_eq!(store.unchanged_below(snapshot.at(), || None), Gsn::new(45));
    for at in 1..=1000_u64 {
        let expected = if at <= 50 { (Version::Current, vec![]) } else { (PLAIN, b"before".to_vec()) };
        assert_eq!(seen(&store, &at.to_le_bytes(), 50), expected, "{at}");
    }
    store.close(&snapshot);
    horizon.store(1001, Ordering::SeqCst);
    store.collect_all();
    assert_eq!(store.bytes(), 0);
    (1001..1200_u64).for_each(|at| change(&store, &at.to_le_bytes(), value(b"before"), 1001));
    assert!(store.contexts.lock().len() < 128, "contexts that nobody needs are forgotten");
}

/// A locked ghost waits for later commits of its stripe, whatever these change.
#[test]
fn locked_ghosts_are_tried_again_by_commits_that_delete_nothing() {
    let (store, _) = store();
    store.postpone_locked([b"a", b"b", b"c"].map(|key| ghost_of(key)));
    assert_eq!(store.collect(9).ghosts.len(), 2, "a commit tries a few");
    let mut txn = TxnVersions::default();
    let is_time = (1..100_u64).any(|at| {
        store.push(&mut txn, TABLE, b"b", value(b"v"), false);
        store.begin_commit(&txn);
        let at = store.commit(&mut txn, Gsn::new(at), Gsn::new(at));
        store.retire(&mut txn, Cleanup { at, first: at, ghosts: Vec::new(), has_frees: false })
    });
    assert!(is_time);
    assert_eq!(store.collect(9).ghosts, [ghost_of(b"c")]);
}

fn deleted<'a>(records: &[(&'a [u8], &'a [u8])]) -> Vec<Deleted<'a>> {
    records.iter().map(|&(key, value)| Deleted { key, value, flags: SlotFlags::NONE }).collect()
}

#[test]
fn records_that_are_deleted_together_have_the_values_of_the_oldest_change() {
    let (store, horizon) = store();
    let _snapshot = store.open();
    let mut txn = TxnVersions::default();
    store.push(&mut txn, TABLE, b"b", value(b"before"), false);
    store.push_deleted(&mut txn, TABLE, &deleted(&[(b"a", b"one"), (b"b", b"two"), (b"c", b"three")]));
    store.push(&mut txn, TABLE, b"c", Before::Ghost(b"three"), false);
    let in_leaf = (Version::InLeaf(SlotFlags::NONE), vec![]);
    for at in [0, 100] {
        assert_eq!(seen(&store, b"a", at), in_leaf);
        assert_eq!(seen(&store, b"b", at), (PLAIN, b"before".to_vec()), "the node is older");
        assert_eq!(seen(&store, b"c", at), (PLAIN, b"three".to_vec()), "the run is older");
    }
    assert_eq!(seen(&store, b"bb", 0).0, Version::Current);
    store.begin_commit(&txn);
    assert_eq!(seen(&store, b"a", 100).0, Version::Unsettled);
    let at = store.commit(&mut txn, Gsn::new(10), Gsn::new(10));
    store.retire(&mut txn, Cleanup { at, first: at, ghosts: Vec::new(), has_frees: false });
    assert_eq!(seen(&store, b"a", 9), in_leaf);
    assert_eq!(seen(&store, b"a", 10).0, Version::Current);
    let needs = |key| store.needs_slot(TABLE, key);
    assert_eq!((needs(b"a"), needs(b"d")), (true, false));

    // A second deletion of the range, while the first one is kept. The transaction that
    // inserts a record again stores its value in the first.
    let mut other = TxnVersions::default();
    store.push(&mut other, TABLE, b"a", Before::Ghost(b"one"), false);
    store.abort(&other);
    store.push_deleted(&mut other, TABLE, &deleted(&[(b"a", b"later"), (b"d", b"four")]));
    assert_eq!(seen(&store, b"a", 9), (PLAIN, b"one".to_vec()));
    assert_eq!(seen(&store, b"a", 10), (PLAIN, b"later".to_vec()));
    assert_eq!(seen(&store, b"d", 10), (PLAIN, b"four".to_vec()));
    store.abort(&other);
    assert_eq!(seen(&store, b"d", 10).0, Version::Current);
    horizon.store(10, Ordering::SeqCst);
    store.end_all();
    assert_eq!((store.bytes(), needs(b"a")), (0, false));
}
