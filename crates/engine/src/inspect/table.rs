//! Measures the shape of a table's tree.

use crate::api::db::Db;
use crate::check::TableReport;
use crate::error::Result;
use crate::storage::catalog::Table;

/// Measures a table by reading its whole tree, except for the overflow values. Takes no locks:
/// records count as their pages have them, committed or not, and what transactions change meanwhile
/// counts or not.
///
/// ```
/// # use duramen::{Db, Options, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let db = Db::in_memory(Options::small())?;
/// let films = db.create_table("films")?;
/// db.run(|txn| {
///     txn.put(&films, b"poster", &[7; 20_000])?;
///     (0..1000_u32).try_for_each(|film| txn.put(&films, &film.to_be_bytes(), &[7; 100]))
/// })?;
///
/// let report = inspect::table(&db, &films)?;
/// assert_eq!((report.records, report.overflow_values), (1001, 1));
/// let levels: Vec<_> = report.levels.iter().map(|level| level.level).collect();
/// assert_eq!(levels, [1, 0]); // a root and its leaves
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::NoSuchTable`], [`crate::Error::ForeignTable`], [`crate::Error::Closed`],
/// [`crate::Error::Poisoned`], [`crate::Error::Forked`], [`crate::Error::Corrupt`] and
/// [`crate::Error::Io`].
pub fn table(db: &Db, table: &Table) -> Result<TableReport> {
    db.engine().health.check()?;
    TableReport::measure(db.engine(), table, || db.engine().health.check(), |_, _| {})
}
