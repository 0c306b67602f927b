//! Workloads about transactions, the log, checkpoints and the buffer pool.

use super::{T0, numbered};
use crate::model::Value;
use crate::script::Script;
use crate::step::{Action, Step};

/// Returns a balance as the 100-byte record that TPC-B asks for.
fn balance(amount: i64) -> Value {
    let mut record = vec![b'.'; 100];
    record[..8].copy_from_slice(&amount.to_le_bytes());
    record.into()
}

fn amount(record: &[u8]) -> i64 {
    i64::from_le_bytes(record[..8].try_into().expect("records have 100 bytes"))
}

/// TPC-B in small: 2 branches, 4 tellers, 40 accounts and a history.
pub(super) fn bank(script: &mut Script) {
    let tables = [("branches", 2), ("tellers", 4), ("accounts", 40)];
    for (table, count) in tables {
        script.ensure_table(table);
        if script.get(T0, table, &numbered(0)).is_none() {
            script.begin(T0);
            for number in 0..count {
                script.put(T0, table, numbered(number), balance(0));
            }
            script.commit(T0);
        }
    }
    script.ensure_table("history");
    for _ in 0..30 {
        let delta = script.rng.within(0..2_000_000) as i64 - 1_000_000;
        script.begin(T0);
        for (table, count) in tables {
            let key = numbered(script.rng.within(0..count));
            script.act(T0, table, Action::GetForUpdate(key.clone()));
            // Scripts that begin in the middle of a crash find the tables empty; then the record is
            // new.
            let old = script.get(T0, table, &key).map_or(0, |record| amount(&record));
            script.put(T0, table, key, balance(old + delta));
        }
        let entry = script.keys(T0, "history").len();
        let mut record = vec![b' '; 50];
        record[..8].copy_from_slice(&delta.to_le_bytes());
        script.act(T0, "history", Action::Insert(numbered(entry), record.into()));
        script.commit_or_abort(T0, 10);
    }
}

/// Transactions larger than the buffer pool, so that pages with uncommitted changes are written.
pub(super) fn steal(script: &mut Script) {
    script.ensure_table("steal");
    for round in 0..4 {
        script.begin(T0);
        let start = script.rng.within(0..400);
        for i in 0..300 {
            let value = script.value(1000..1400);
            script.put(T0, "steal", numbered((start + i * 3) % 900), value);
            if i == 150 && round % 2 == 1 {
                script.step(Step::Savepoint(T0));
            }
        }
        if round % 2 == 1 {
            script.step(Step::RollbackTo(T0, 0));
            let value = script.value(10..100);
            script.put(T0, "steal", numbered(start), value);
        }
        script.commit_or_abort(T0, 50);
    }
}

/// Checkpoints between and within transactions.
pub(super) fn checkpoints(script: &mut Script) {
    script.ensure_table("points");
    for _ in 0..20 {
        script.begin(T0);
        for _ in 0..script.rng.within(1..12) {
            let key = numbered(script.rng.within(0..150));
            if script.rng.percent(20) {
                script.delete(T0, "points", key);
            } else {
                let value = script.value(100..900);
                script.put(T0, "points", key, value);
            }
            if script.rng.percent(10) {
                script.step(Step::Checkpoint);
            }
        }
        script.commit_or_abort(T0, 30);
        if script.rng.percent(30) {
            script.step(Step::Checkpoint);
        }
    }
}

/// Enough log for its segments to be used again and again.
pub(super) fn recycle(script: &mut Script) {
    script.ensure_table("recycle");
    for _ in 0..40 {
        script.begin(T0);
        for _ in 0..script.rng.within(4..14) {
            let key = numbered(script.rng.within(0..60));
            let value = script.value(800..1400);
            script.put(T0, "recycle", key, value);
        }
        script.commit_or_abort(T0, 15);
    }
}

/// Several transactions of one thread at once: a long one, and short ones that come and go on keys
/// of their own.
///
/// Each slot touches only keys of its residue class, inserts with `put`, and deletes only what
/// exists, so that none ever waits for another.
pub(super) fn interleaved(script: &mut Script) {
    const SLOTS: usize = 4;
    script.ensure_table("shared");
    // Keys of all classes lie between these, so that no insertion is the last of the table.
    script.begin(T0);
    script.put(T0, "shared", b"0".to_vec(), vec![0]);
    script.put(T0, "shared", b"z".to_vec(), vec![0]);
    script.commit(T0);
    let mut open = [false; SLOTS];
    script.begin(0);
    open[0] = true;
    for _ in 0..160 {
        let slot = script.rng.within(0..SLOTS);
        if !open[slot] {
            script.begin(slot);
            open[slot] = true;
        }
        let key = numbered(script.rng.within(0..100) * SLOTS + slot);
        if script.rng.percent(25) && script.get(slot, "shared", &key).is_some() {
            script.delete(slot, "shared", key);
        } else {
            let value = script.value(50..1000);
            script.put(slot, "shared", key, value);
        }
        if script.rng.percent(3) {
            script.step(Step::Checkpoint);
        }
        if slot != 0 && script.rng.percent(25) {
            script.commit_or_abort(slot, 30);
            open[slot] = false;
        }
    }
    // Of the transactions still open, some end; the others are open when the database goes away.
    for (slot, open) in open.into_iter().enumerate() {
        if open && script.rng.percent(70) {
            script.commit_or_abort(slot, 30);
        }
    }
}

/// A long transaction that takes changes back and goes on, while short ones of the same thread
/// commit: where commits are made durable in batches, the batches carry it. Their keys differ, as
/// in [`interleaved`].
pub(super) fn carried(script: &mut Script) {
    const LONG: usize = 1;
    script.ensure_table("carried");
    script.begin(T0);
    script.put(T0, "carried", b"0".to_vec(), vec![0]);
    script.put(T0, "carried", b"z".to_vec(), vec![0]);
    script.commit(T0);
    for _ in 0..4 {
        script.begin(LONG);
        for round in 0..6 {
            script.step(Step::Savepoint(LONG));
            for _ in 0..script.rng.within(2..12) {
                let key = numbered(script.rng.within(0..40) * 2 + 1);
                let value = script.value(50..700);
                script.put(LONG, "carried", key, value);
            }
            script.begin(T0);
            let key = numbered(script.rng.within(0..40) * 2);
            let value = script.value(50..700);
            script.put(T0, "carried", key, value);
            script.commit(T0);
            if script.rng.percent(60) {
                script.step(Step::RollbackTo(LONG, round));
            }
        }
        script.commit_or_abort(LONG, 50);
    }
}

/// Closing and opening again between transactions; or opening again without closing, in the middle
/// of one.
pub(super) fn reopens(script: &mut Script) {
    script.ensure_table("reopens");
    for _ in 0..5 {
        for _ in 0..script.rng.within(1..5) {
            script.begin(T0);
            for _ in 0..script.rng.within(1..10) {
                let key = numbered(script.rng.within(0..80));
                let lengths = if script.rng.percent(10) { 2000..20_000 } else { 0..800 };
                let value = script.value(lengths);
                script.put(T0, "reopens", key, value);
            }
            script.commit_or_abort(T0, 25);
        }
        if script.rng.percent(50) {
            script.step(Step::Reopen);
            continue;
        }
        script.begin(T0);
        let value = script.value(0..800);
        script.put(T0, "reopens", numbered(0), value);
        script.step(Step::Restart);
    }
}
