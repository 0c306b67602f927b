//! Loading that is cut off, at every place, by a loader's failure.

use duramen::{Db, Options};
use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::store::{Access, Connection, for_each};
use crate::tpcb::Scale;

const SCALE: Scale = Scale::standard(1);
/// Rows of the one portion: not a multiple of a batch.
const ROWS: u64 = 7_500;
const BATCH: u64 = Loader::<Db>::BATCH as u64;

/// Numbered rows, with a failure behind one of them.
#[derive(Clone)]
struct Numbers {
    table: duramen::Table,
    fail_at: u64,
    failed: Arc<AtomicBool>,
}

impl Population<Db> for Numbers {
    fn portions(&self) -> u64 {
        1
    }

    fn rows(&self, _: u64) -> u64 {
        ROWS
    }

    fn load(&self, _: u64, loader: &mut Loader<'_, Db>) -> Result<()> {
        for number in 0..ROWS {
            if number == self.fail_at {
                self.failed.store(true, Ordering::Relaxed);
                return Err(Error::Damaged { reason: "on purpose".into() });
            }
            loader.put(&self.table, &number.to_be_bytes(), &number.to_le_bytes())?;
        }
        Ok(())
    }
}

fn load_numbers(db: &Db, fail_at: u64) -> Result<LoadOutcome> {
    let failed = Arc::new(AtomicBool::new(false));
    let result = load(db, SCALE, &mut |_| {}, |db| {
        Ok(Numbers { table: db.make_table("numbers")?, fail_at, failed: failed.clone() })
    });
    assert_eq!(result.is_err(), failed.load(Ordering::Relaxed));
    result
}

fn numbers(db: &Db) -> Vec<u64> {
    let table = db.open_table("numbers").unwrap();
    let mut found = Vec::new();
    let mut connection = db.connect().unwrap();
    let mut txn = connection.begin(Access::ReadCommitted).unwrap();
    for_each(&mut txn, &table, |key, row| {
        let key = u64::from_be_bytes(key.try_into().unwrap());
        assert_eq!(row, key.to_le_bytes());
        found.push(key);
    })
    .unwrap();
    found
}

#[test]
fn a_population_that_was_cut_off_is_completed_behind_what_is_there() {
    let home = tempfile::tempdir().unwrap();
    let db = Db::open(home.path(), Options { pool_bytes: 4 << 20, ..Options::default() }).unwrap();
    for fail_at in [10, 1_700, 2_499, 2_000, 7_499] {
        assert!(load_numbers(&db, fail_at).unwrap_err().is_damage());
        assert_eq!(Marker::read(&db).unwrap(), Some(Marker { scale: SCALE, complete: false }));
        let report = audit(&db, SCALE, |_| unreachable!()).unwrap();
        assert!(report.to_string().contains("incomplete"), "{report}");
        assert!(numbers(&db).into_iter().eq(0..numbers(&db).len() as u64), "a beginning");
    }
    let present = 7_499 / BATCH * BATCH;
    assert_eq!(numbers(&db).len() as u64, present);
    assert_eq!(load_numbers(&db, u64::MAX).unwrap(), LoadOutcome::Resumed { rows: ROWS - present });
    assert!(numbers(&db).into_iter().eq(0..ROWS));
    assert_eq!(load_numbers(&db, u64::MAX).unwrap(), LoadOutcome::Present);
}
