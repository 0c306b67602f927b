//! Workloads about the shape of the trees and of the data file.

use super::{T0, numbered};
use crate::script::Script;
use crate::step::{Action, KeyRange, Step};

/// Inserts in ascending, descending and random order, a page's worth in a few transactions.
pub(super) fn splits(script: &mut Script) {
    for table in ["ascending", "descending", "random"] {
        script.ensure_table(table);
    }
    let base = script.keys(T0, "ascending").len();
    for round in 0..9 {
        script.begin(T0);
        for i in 0..10 {
            let number = base + round * 10 + i;
            let value = script.value(300..900);
            script.put(T0, "ascending", numbered(number), value.clone());
            script.put(T0, "descending", numbered(99_999_999 - number), value.clone());
            let anywhere = script.rng.within(0..10_000_000);
            script.put(T0, "random", numbered(anywhere), value);
        }
        script.commit_or_abort(T0, 25);
    }
}

/// A table is filled, mostly emptied, and filled again.
pub(super) fn merges(script: &mut Script) {
    script.ensure_table("merges");
    for round in 0..2 {
        for part in 0..4 {
            script.begin(T0);
            for i in 0..20 {
                let value = script.value(200..900);
                script.put(T0, "merges", numbered((part * 20 + i) * 7 + round), value);
            }
            script.commit(T0);
        }
        let mut keys = script.keys(T0, "merges");
        if script.rng.percent(50) {
            script.rng.shuffle(&mut keys);
        }
        let left = script.rng.within(0..6);
        keys.truncate(keys.len().saturating_sub(left));
        for some in keys.chunks(25) {
            script.begin(T0);
            for key in some {
                script.delete(T0, "merges", key.clone());
            }
            script.commit_or_abort(T0, 20);
        }
        script.begin(T0);
        script.scan_all(T0, "merges");
        script.commit(T0);
    }
}

/// Tables come and go, empty and full, under the same names too.
pub(super) fn tables(script: &mut Script) {
    for _ in 0..16 {
        let names = script.tables();
        match script.rng.within(0..10) {
            0..4 => {
                let name = format!("table-{}", script.rng.within(0..5));
                // Creating one that exists must be refused.
                script.step(Step::CreateTable(name));
            }
            4..6 => {
                let name = format!("table-{}", script.rng.within(0..5));
                script.step(Step::DropTable(name));
            }
            6 => script.step(Step::Checkpoint),
            _ => {}
        }
        if let Some(name) = names.iter().find(|name| script.has_table(name)).cloned() {
            script.begin(T0);
            for _ in 0..script.rng.within(1..30) {
                let key = numbered(script.rng.within(0..1000));
                let lengths = if script.rng.percent(5) { 3000..30_000 } else { 0..500 };
                let value = script.value(lengths);
                script.put(T0, &name, key, value);
            }
            script.commit_or_abort(T0, 20);
        }
    }
}

/// Tables are loaded in bulk, used, emptied in one way or another, and loaded again.
pub(super) fn loads(script: &mut Script) {
    for _ in 0..10 {
        let name = format!("load-{}", script.rng.within(0..3));
        let count = *script.rng.pick(&[0, 1, 40, 400]);
        let step = 1 + script.rng.within(0..3);
        let records = (0..count).map(|number| {
            let lengths = if script.rng.percent(3) { 2000..30_000 } else { 0..400 };
            (numbered(number * step), script.value(lengths))
        });
        let records = records.collect();
        script.step(Step::BulkLoad(name.clone(), records));
        script.begin(T0);
        for _ in 0..script.rng.within(0..20) {
            let key = numbered(script.rng.within(0..1200));
            if script.rng.percent(30) {
                script.delete(T0, &name, key);
            } else {
                let value = script.value(0..700);
                script.put(T0, &name, key, value);
            }
        }
        script.commit_or_abort(T0, 30);
        match script.rng.within(0..5) {
            0 => script.step(Step::DropTable(name)),
            1 => script.step(Step::Checkpoint),
            2 | 3 => {
                script.begin(T0);
                script.act(T0, &name, Action::DeleteRange(KeyRange::ALL));
                script.commit_or_abort(T0, 20);
            }
            _ => {}
        }
    }
}

/// Records grow and shrink in pages that are nearly full, so that pages are compacted and split by
/// updates.
pub(super) fn full_pages(script: &mut Script) {
    script.ensure_table("full");
    script.begin(T0);
    for number in 0..60 {
        let value = script.value(100..300);
        script.put(T0, "full", numbered(number * 10), value);
    }
    script.commit(T0);
    for _ in 0..16 {
        script.begin(T0);
        for _ in 0..script.rng.within(2..10) {
            let keys = script.keys(T0, "full");
            let Some(key) = keys.get(script.rng.within(0..keys.len().max(1))).cloned() else { continue };
            let lengths = match script.rng.within(0..4) {
                0 => 0..20,
                1 => 1200..1520,
                2 => 1500..1600,
                _ => 100..700,
            };
            let value = script.value(lengths);
            script.act(T0, "full", Action::Update(key, value));
        }
        script.commit_or_abort(T0, 40);
    }
}
