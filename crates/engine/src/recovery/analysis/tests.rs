//! Tests of the transactions that analysis finds in the checkpoint and in the logs.

use duramen_io::SimDisk;
use duramen_wal::{NewRecord, WalOptions};

use super::*;

fn logs(count: u16) -> Arc<Log> {
    let options = WalOptions {
        logs: count,
        ring_bytes: 1 << 16,
        segment_bytes: 1 << 16,
        sync_record_kind: Kind::SyncRecord as u8,
        ..WalOptions::default()
    };
    let disk: Arc<dyn duramen_io::Disk> = Arc::new(SimDisk::new(1));
    Arc::new(Log::create(&disk, &options, [1; 16]).unwrap())
}

/// Inserts a record of `txn`, with a GSN of its own; returns its GSN and its log address.
fn insert(logs: &Log, log: u16, txn: u64, kind: Kind, flags: u8, after: Gsn) -> (Gsn, LogAddress) {
    let record = NewRecord { txn: TxnId::new(txn), flags, after, ..kind.record(&[]) };
    let inserted = logs.insert(LogId::new(log), record);
    (inserted.gsn, inserted.address())
}

fn harden(logs: &Log) {
    let end = logs.insert(LogId::ZERO, Kind::SyncRecord.record(&[]));
    logs.wait_hardened(end.gsn, Some(end.address())).unwrap();
}

fn entry(txn: u64, state: TxnState, first: Gsn, last: LogAddress) -> TxnEntry {
    TxnEntry { txn: TxnId::new(txn), state, first, last }
}

/// Returns the result of an analysis that starts with these entries of a checkpoint and reads the
/// logs from these positions on.
fn analyzed(logs: &Log, table: &[TxnEntry], from: &[Lsn]) -> Vec<TxnEntry> {
    let [in_one_go, in_steps] = [u64::MAX, 1].map(|step| analyzed_in_steps(logs, table, from, step).0);
    assert_eq!(in_one_go, in_steps);
    in_one_go
}

/// Returns the same when all logs are read in steps of that many GSNs, and the largest number of
/// transactions that were kept.
fn analyzed_in_steps(logs: &Log, table: &[TxnEntry], from: &[Lsn], step: u64) -> (Vec<TxnEntry>, usize) {
    let mut analysis = Analysis {
        txns: table.iter().map(|entry| (entry.txn, *entry)).collect(),
        pages: HashMap::default(),
        next_txn: TxnId::new(1),
        behind: from.to_vec(),
        begun: Gsn::ZERO,
        known: Arc::new(table.iter().map(|entry| entry.txn).collect()),
        scattered: from.len() > 1,
        pages_end: PageId::ZERO,
    };
    let mut parts = Vec::new();
    for (log, from) in (0..).zip(from) {
        let mut scanner = logs.scan(LogId::new(log), *from);
        let next = scanner.next().unwrap().map(|record| record.gsn);
        parts.push((analysis.part(), scanner, next));
    }
    let mut most = 0;
    while let Some(next) = parts.iter().filter_map(|(.., next)| *next).min() {
        let limit = Gsn::new(next.get().saturating_add(step));
        for (part, scanner, next) in &mut parts {
            while next.is_some_and(|gsn| gsn < limit) {
                let record = scanner.again().unwrap();
                part.follow(kind_of(&record).unwrap(), &record).unwrap();
                *next = scanner.next().unwrap().map(|record| record.gsn);
            }
        }
        Part::forget_over(parts.iter_mut().map(|(part, ..)| part).collect());
        most = most.max(parts.iter().map(|(part, ..)| part.txns.len() + part.over.len()).sum());
    }
    analysis.follow(logs, parts.into_iter().map(|(part, ..)| part)).unwrap();
    let mut entries: Vec<TxnEntry> = analysis.txns.into_values().collect();
    entries.sort_by_key(|entry| entry.txn);
    (entries, most)
}

fn starts(logs: &Log) -> Vec<Lsn> {
    logs.extents().iter().map(|extent| extent.start).collect()
}

#[test]
fn the_first_record_is_known_from_the_checkpoint_or_from_the_log() {
    let logs = logs(1);
    let found: Vec<_> =
        [5, 6, 7, 5, 6, 7].map(|txn| insert(&logs, 0, txn, Kind::FreeOnCommit, 0, Gsn::ZERO)).into_iter().collect();
    harden(&logs);
    let (earlier, last) = (Gsn::new(100), LogAddress::new(5000));
    let table = [entry(5, TxnState::Active, Gsn::ZERO, last), entry(6, TxnState::Active, earlier, last)];
    let expected = [
        entry(5, TxnState::Active, found[0].0, found[3].1),
        entry(6, TxnState::Active, earlier, found[4].1),
        entry(7, TxnState::Active, found[2].0, found[5].1),
    ];
    assert_eq!(analyzed(&logs, &table, &starts(&logs)), expected);
}

/// The result is the same whatever logs the records are in.
#[test]
fn logs_are_put_together_by_time() {
    for count in [1, 2, 3] {
        let logs = logs(count);
        let mut time = Gsn::ZERO;
        let mut places = Vec::new();
        let steps = [
            (5, Kind::FreeOnCommit, 0),
            (6, Kind::FreeOnCommit, 0),
            (7, Kind::FreeOnCommit, 0),
            (5, Kind::FreeOnCommit, 0),
            (6, Kind::Commit, FLAG_HAS_DEFERRED_FREES),
            (8, Kind::FreeOnCommit, 0),
            (7, Kind::Commit, FLAG_HAS_DEFERRED_FREES),
            // This is logged again, and the commit record is not.
            (6, Kind::FreeOnCommit, 0),
            (8, Kind::Commit, 0),
            (7, Kind::End, 0),
        ];
        for (step, (txn, kind, flags)) in (0_u16..).zip(steps) {
            let (gsn, place) = insert(&logs, step * 7 % count, txn, kind, flags, time);
            time = gsn;
            places.push((gsn, place));
        }
        harden(&logs);
        let expected = [
            entry(5, TxnState::Active, places[0].0, places[3].1),
            entry(6, TxnState::Committed, places[1].0, places[4].1),
        ];
        assert_eq!(analyzed(&logs, &[], &starts(&logs)), expected, "{count} logs");
    }
}

/// A checkpoint reads the ends of the logs one after the other. If a transaction writes meanwhile,
/// one record may lie after that end in its log, and the transaction's next record, in another
/// log, before it. Analysis took the former for the latest record, and undo did not undo the
/// latter.
#[test]
fn a_checkpoint_may_know_a_later_record_than_the_logs_behind_it() {
    let logs = logs(2);
    let (first, _) = insert(&logs, 0, 5, Kind::FreeOnCommit, 0, Gsn::ZERO);
    let from = logs.extents()[0].end;
    let (earlier, _) = insert(&logs, 0, 5, Kind::FreeOnCommit, 0, first);
    let (_, latest) = insert(&logs, 1, 5, Kind::FreeOnCommit, 0, earlier);
    let from = [from, logs.extents()[1].end];
    harden(&logs);
    let table = [entry(5, TxnState::Active, first, latest)];
    assert_eq!(analyzed(&logs, &table, &from), table);
}

/// Logs by page: a transaction changes pages in one log and ends in another. All such transactions
/// were kept until the logs had been read.
#[test]
fn what_is_over_is_forgotten_at_each_step() {
    let logs = logs(2);
    let mut time = Gsn::ZERO;
    for txn in 5..105 {
        let (first, _) = insert(&logs, 1, txn, Kind::FreeOnCommit, 0, time);
        (time, _) = insert(&logs, 0, txn, Kind::Commit, 0, first);
    }
    harden(&logs);
    // The checkpoint has the first transaction, so its end must be reported.
    let table = [entry(5, TxnState::Active, Gsn::ZERO, LogAddress::new(5000))];
    let (left, most) = analyzed_in_steps(&logs, &table, &starts(&logs), 500);
    assert!(left.is_empty(), "{left:?}");
    assert!((1..20).contains(&most), "{most}");
}
