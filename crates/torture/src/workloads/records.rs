//! Workloads about single records: keys, values, ghosts, savepoints.

use super::{T0, numbered};
use crate::model::Key;
use crate::script::Script;
use crate::step::{Action, KeyRange, Step};
use std::ops::Bound;

/// Returns a random action on keys `0..universe`.
fn random_action(script: &mut Script, universe: usize) -> Action {
    let key = numbered(script.rng.within(0..universe));
    match script.rng.within(0..12) {
        0 => Action::Get(key),
        1 => Action::GetForUpdate(key),
        2 | 3 => Action::Insert(key, script.value(0..300)),
        4 | 5 => Action::Put(key, script.value(0..300)),
        6 | 7 => Action::Update(key, script.value(0..600)),
        8 | 9 => Action::Delete(key),
        chosen => {
            let width = script.rng.within(0..20);
            let to = numbered(script.rng.within(0..universe) + width);
            let range = match script.rng.within(0..4) {
                0 => KeyRange { from: Bound::Included(key), to: Bound::Unbounded },
                1 => KeyRange { from: Bound::Unbounded, to: Bound::Excluded(key) },
                2 => KeyRange { from: Bound::Excluded(key), to: Bound::Included(to) },
                _ => KeyRange { from: Bound::Included(key), to: Bound::Excluded(to) },
            };
            if chosen == 10 {
                return Action::DeleteRange(range);
            }
            Action::Scan { range, reverse: script.rng.percent(50), limit: script.rng.within(1..40) }
        }
    }
}

/// Ranges of several leaves that are filled and deleted, with small and large values, in parts and
/// as a whole, and taken back. Insertions into leaves full of ghosts split them, so that a rollback
/// finds the records of one deletion in several leaves.
pub(super) fn ranges(script: &mut Script) {
    script.ensure_table("ranges");
    for _ in 0..12 {
        script.begin(T0);
        let start = script.rng.within(0..300);
        for number in start..start + script.rng.within(1..60) {
            let lengths = if script.rng.percent(4) { 2000..40_000 } else { 0..400 };
            let value = script.value(lengths);
            script.put(T0, "ranges", numbered(number * 4), value);
        }
        script.commit_or_abort(T0, 10);
        script.begin(T0);
        let mut savepoints = 0;
        for _ in 0..script.rng.within(1..5) {
            script.step(Step::Savepoint(T0));
            savepoints += 1;
            let from = numbered(script.rng.within(0..360) * 4);
            let to = numbered(script.rng.within(0..360) * 4);
            let range = match script.rng.within(0..5) {
                0 => KeyRange::ALL,
                1 => KeyRange { from: Bound::Unbounded, to: Bound::Included(to) },
                _ => {
                    KeyRange { from: Bound::Included(from.clone().min(to.clone())), to: Bound::Excluded(to.max(from)) }
                }
            };
            script.act(T0, "ranges", Action::DeleteRange(range));
            for _ in 0..script.rng.within(0..25) {
                let value = script.value(0..600);
                let number = script.rng.within(0..1440);
                script.put(T0, "ranges", numbered(number), value);
            }
            if script.rng.percent(25) {
                let number = script.rng.within(0..savepoints);
                script.step(Step::RollbackTo(T0, number));
                savepoints = number + 1;
            }
        }
        if script.rng.percent(20) {
            script.step(Step::Checkpoint);
        }
        script.commit_or_abort(T0, 40);
        script.begin(T0);
        script.scan_all(T0, "ranges");
        script.commit(T0);
    }
}

/// Everything a transaction can do, with savepoints, partial rollbacks and aborts.
pub(super) fn mixed(script: &mut Script) {
    script.ensure_table("a");
    script.ensure_table("b");
    for _ in 0..25 {
        script.begin(T0);
        let mut savepoints = 0;
        for _ in 0..script.rng.within(1..12) {
            match script.rng.within(0..10) {
                0 => {
                    script.step(Step::Savepoint(T0));
                    savepoints += 1;
                }
                1 if savepoints > 0 => {
                    let number = script.rng.within(0..savepoints);
                    script.step(Step::RollbackTo(T0, number));
                    savepoints = number + 1;
                }
                _ => {
                    let table = *script.rng.pick(&["a", "b"]);
                    let action = random_action(script, 120);
                    script.act(T0, table, action);
                }
            }
        }
        script.commit_or_abort(T0, 25);
    }
}

/// Values of 2 KB to 300 KB that appear, grow, shrink, become small and vanish.
pub(super) fn overflow(script: &mut Script) {
    script.ensure_table("large");
    for round in 0..14 {
        script.begin(T0);
        for _ in 0..script.rng.within(1..4) {
            let key = numbered(script.rng.within(0..6));
            let size = match script.rng.within(0..8) {
                0 => 100..1500,
                1..4 => 1500..9000,
                4..7 => 9000..60_000,
                _ => 60_000..300_000,
            };
            match script.rng.within(0..6) {
                0 => script.delete(T0, "large", key),
                1 => script.act(T0, "large", Action::Get(key)),
                _ => {
                    let value = script.value(size);
                    script.put(T0, "large", key, value);
                }
            }
            if script.rng.percent(15) {
                script.step(Step::Savepoint(T0));
                let value = script.value(2000..20_000);
                script.put(T0, "large", numbered(0), value);
                script.step(Step::RollbackTo(T0, 0));
                break;
            }
        }
        script.commit_or_abort(T0, 20);
        if round % 5 == 4 {
            script.step(Step::Checkpoint);
        }
    }
}

/// Returns a key that is unusual in length or content.
fn unusual_key(script: &mut Script) -> Key {
    match script.rng.within(0..8) {
        0 => Vec::new(),
        1 => vec![0],
        2 => vec![0xff; script.rng.within(1..20)],
        3 => vec![b'm'; duramen_types::MAX_KEY_LEN],
        4 => {
            // Long keys that differ in their last byte only.
            let mut key = vec![b'p'; duramen_types::MAX_KEY_LEN - 1];
            key.push(script.rng.within(0..4) as u8);
            key
        }
        5 => {
            // Each key a prefix of the next.
            let len = script.rng.within(1..200);
            vec![b'x'; len]
        }
        6 => {
            let mut key = b"/shared/prefix/of/many/keys/".to_vec();
            let len = script.rng.within(0..30);
            key.extend(script.rng.bytes(len));
            key
        }
        _ => {
            let len = script.rng.within(1..60);
            script.rng.bytes(len)
        }
    }
}

/// Keys of every length, the empty one and the longest, and long shared prefixes.
pub(super) fn keys(script: &mut Script) {
    script.ensure_table("keys");
    for _ in 0..20 {
        script.begin(T0);
        for _ in 0..script.rng.within(1..10) {
            let key = unusual_key(script);
            match script.rng.within(0..7) {
                0 => script.delete(T0, "keys", key),
                1 => script.act(T0, "keys", Action::Get(key)),
                2 => {
                    let range = KeyRange { from: Bound::Included(key), to: Bound::Unbounded };
                    let reverse = script.rng.percent(50);
                    script.act(T0, "keys", Action::Scan { range, reverse, limit: 10 });
                }
                3 => {
                    let value = script.value(0..1500);
                    script.act(T0, "keys", Action::Insert(key, value));
                }
                _ => {
                    let value = script.value(0..400);
                    script.put(T0, "keys", key, value);
                }
            }
        }
        script.commit_or_abort(T0, 15);
    }
    script.begin(T0);
    script.scan_all(T0, "keys");
    script.commit(T0);
}

/// Few keys that are deleted and inserted again and again, in one transaction and in several.
pub(super) fn ghosts(script: &mut Script) {
    script.ensure_table("ghosts");
    for _ in 0..30 {
        script.begin(T0);
        for _ in 0..script.rng.within(1..8) {
            let key = numbered(script.rng.within(0..12));
            let value = script.value(0..200);
            match script.rng.within(0..6) {
                0 | 1 => script.delete(T0, "ghosts", key),
                2 => {
                    script.delete(T0, "ghosts", key.clone());
                    script.act(T0, "ghosts", Action::Insert(key, value));
                }
                3 => {
                    script.put(T0, "ghosts", key.clone(), value);
                    script.delete(T0, "ghosts", key);
                }
                4 => script.act(T0, "ghosts", Action::Insert(key, value)),
                _ => script.scan_all(T0, "ghosts"),
            }
        }
        script.commit_or_abort(T0, 30);
    }
}
