//! The consistency conditions of YCSB.

use super::row::{check_row, key};
use super::{Scale, TABLE};
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Access, Connection, Store, Transaction, for_each};

/// Checks every record; `inserted` says from which number on how many records were inserted, where
/// that is known.
pub(super) fn audit<S: Store>(
    store: &S,
    scale: Scale,
    inserted: Option<(u64, u64)>,
    report: &mut AuditReport,
) -> Result<()> {
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    let (mut count, mut populated, mut new) = (0u64, 0, 0);
    let first_new = inserted.map_or(u64::MAX, |(first, _)| first);
    for_each(&mut txn, &store.table(TABLE)?, |found, row| {
        count += 1;
        match check_row(row) {
            // Every record number has one key, so that counting the records shows whether all are
            // there.
            Some(number) if found == key(number) => {
                populated += u64::from(number < scale.records);
                new += u64::from(number >= first_new);
            }
            Some(number) => report.problem(format!("record {number} is stored under another record's key")),
            None => report.problem(format!("the record with key {} is damaged", String::from_utf8_lossy(found))),
        }
    })?;
    txn.commit()?;
    report.require(populated == scale.records, || {
        format!("the population has {populated} records, not {}", scale.records)
    });
    if let Some((_, inserted)) = inserted {
        // More may be of earlier runs, behind a number that was given out and never used.
        report.require(new >= inserted, || {
            format!("the database has {new} inserted records, but {inserted} inserts were acknowledged")
        });
    }
    report.fact(format!("records: {count}"));
    Ok(())
}
