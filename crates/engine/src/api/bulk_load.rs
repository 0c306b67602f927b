//! Loading a table in bulk.

use duramen_types::TableId;

use super::db::Db;
use super::tables::TableChanges;
use crate::btree::{Fill, TreeBuilder};
use crate::error::{Error, Result};
use crate::record::Tree;
use crate::storage::catalog::{self, Table};
use crate::txn::Txn;

/// A table that is being loaded. Made by [`Db::bulk_load`]. Dropping it takes everything back.
#[derive(Debug)]
pub struct BulkLoad {
    db: Db,
    txn: Txn,
    name: String,
    table: TableId,
    tree: TreeBuilder,
}

impl Db {
    /// Begins to load a table, which is new or has no records, with records in the order of their
    /// keys. Much faster than inserting them: pages are built in memory, almost full and from the
    /// leaves upwards, and each is logged and written once. The records appear all at once when
    /// [`BulkLoad::finish`] returns; after a crash before that there is none of them.
    ///
    /// The log has to hold the whole load ([`crate::Options::log_max_bytes`]); with the schemes
    /// `in-place` and `pcm-logging` the journals, or the memory, have to.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let mut load = db.bulk_load("squares")?;
    /// for number in 0..10_000_u64 {
    ///     load.add(&number.to_be_bytes(), &(number * number).to_be_bytes())?;
    /// }
    /// let squares = load.finish()?;
    /// assert_eq!(db.run(|txn| txn.get(&squares, &12_u64.to_be_bytes()))?, Some(144_u64.to_be_bytes().to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotEmpty`], [`Error::BadTableName`], and those of a commit.
    pub fn bulk_load(&self, name: &str) -> Result<BulkLoad> {
        self.begin_load(name, Fill::WithRoom)
    }

    /// Begins to load a table whose pages will be as full as `fill` says.
    pub(super) fn begin_load(&self, name: &str, fill: Fill) -> Result<BulkLoad> {
        catalog::check_name(name)?;
        match self.open_table(name) {
            Err(Error::NoSuchTable { .. }) => {}
            Ok(table) => {
                if self.run(|txn| txn.first(&table))?.is_some() {
                    return Err(Error::TableNotEmpty { name: name.to_owned() });
                }
            }
            Err(error) => return Err(error),
        }
        // Committed by itself, because the catalog is not locked while the table is loaded.
        let mut txn = self.begin_catalog()?;
        let table = Self::take_table_id(&mut txn)?;
        txn.commit_durably()?;
        Ok(BulkLoad {
            db: self.clone(),
            txn: self.begin(),
            name: name.to_owned(),
            table,
            tree: TreeBuilder::new(table, fill),
        })
    }
}

impl BulkLoad {
    /// Adds a record, whose key must be above the one before it.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let mut load = db.bulk_load("films")?;
    /// load.add(b"Alien", b"1979")?;
    /// // A key out of order is refused, and the load goes on without it.
    /// let refused = load.add(b"Akira", b"1988");
    /// assert!(matches!(refused, Err(duramen::Error::KeyNotAscending)));
    /// load.add(b"Brazil", b"1985")?;
    /// let films = load.finish()?;
    /// assert_eq!(db.begin().scan(&films, ..).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyNotAscending`], [`Error::KeyTooLarge`], [`Error::ValueTooLarge`] and
    /// [`Error::TooManyLargeValues`], after which the load can go on without the record;
    /// [`Error::Full`] and the others that leave only an abort.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.txn.load_record(self.table, &mut self.tree, key, value)
    }

    /// Makes the records the contents of the table, durably. A handle of the empty table that was
    /// there before gives [`Error::NoSuchTable`] from then on. Waits for transactions that use that
    /// table.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let mut load = db.bulk_load("words")?;
    /// load.add(b"cat", b"Katze")?;
    /// load.add(b"dog", b"Hund")?;
    /// assert!(db.list()?.is_empty()); // not there yet
    ///
    /// let words = load.finish()?;
    /// assert_eq!(db.begin().get(&words, b"dog")?.as_deref(), Some(&b"Hund"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableNotEmpty`] if the table has got records meanwhile; otherwise as
    /// [`Db::drop_table`].
    pub fn finish(self) -> Result<Table> {
        let Self { db, mut txn, name, table, tree } = self;
        let root = txn.load_end(tree)?;
        let mut changes = TableChanges::of(&db, txn)?;
        if changes.contains(&name)? {
            let before = changes.remove(&name)?;
            if !changes.txn().is_tree_empty(before)? {
                return Err(Error::TableNotEmpty { name });
            }
        }
        let _loading = db.engine().tables.begin_load();
        let table = changes.link(&name, Tree { root, table })?;
        changes.commit()?;
        Ok(table)
    }
}
