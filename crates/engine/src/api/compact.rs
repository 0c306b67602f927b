//! Copying a database without its gaps.

use super::bulk_load::BulkLoad;
use super::db::Db;
use crate::btree::Fill;
use crate::error::{Error, Result};
use crate::storage::catalog::Table;
use crate::txn::Txn;

/// What a compaction has copied so far, or in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactProgress {
    /// Tables, with those without records.
    pub tables: u64,
    /// Records of these tables.
    pub records: u64,
}

/// A table that is being copied.
enum Copying {
    /// As one load.
    Loading(Box<BulkLoad>),
    /// By ordinary transactions, because one load cannot have so many large values: the present one
    /// has put so many bytes.
    Putting { table: Table, txn: Txn, bytes: usize },
}

impl Copying {
    fn add(self, target: &Db, key: &[u8], value: &[u8]) -> Result<Self> {
        /// Bytes of a transaction.
        const TOGETHER: usize = 1 << 20;
        let (table, mut txn, bytes) = match self {
            Self::Loading(mut load) => match load.add(key, value) {
                Err(Error::TooManyLargeValues { .. }) => (load.finish()?, target.begin(), 0),
                added => return added.map(|()| Self::Loading(load)),
            },
            Self::Putting { table, txn, bytes: TOGETHER.. } => {
                txn.commit_durably()?;
                (table, target.begin(), 0)
            }
            Self::Putting { table, txn, bytes } => (table, txn, bytes),
        };
        txn.put(&table, key, value)?;
        Ok(Self::Putting { table, txn, bytes: bytes + key.len() + value.len() })
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Loading(load) => load.finish().map(drop),
            Self::Putting { txn, .. } => txn.commit_durably().map(drop),
        }
    }
}

impl Db {
    /// Copies all tables into an empty database, in which pages are full and nothing lies between
    /// them. A data file never shrinks by itself; a copy is as small as its records allow. The copy
    /// is what one snapshot shows ([`Db::snapshot`]), so transactions continue meanwhile. Each
    /// table is loaded in bulk ([`Db::bulk_load`]) as far as one load can have its large values. In
    /// the end the target takes a checkpoint, and gives back the space of its log before it, unless
    /// that is archived: a backup of the empty target does not help any more.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options { snapshots: true, ..duramen::Options::small() })?;
    /// # let table = db.table("t")?;
    /// # db.run(|txn| txn.put(&table, b"key", b"value"))?;
    /// # let target = duramen::Db::in_memory(duramen::Options::small())?;
    /// let copied = db.compact_into(&target, |_| {})?;
    /// assert_eq!((copied.tables, copied.records), (1, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// `progress` is called from time to time. After an error the target has some of the tables.
    ///
    /// # Errors
    /// [`Error::TableNotEmpty`] if the target has a table; those of [`Db::snapshot`], of reading
    /// from it, of [`Db::bulk_load`] and of [`Db::checkpoint`].
    pub fn compact_into(&self, target: &Self, mut progress: impl FnMut(CompactProgress)) -> Result<CompactProgress> {
        /// Records between two calls of `progress`.
        const STEP: u64 = 1024;
        if let Some(name) = target.list()?.into_iter().next() {
            return Err(Error::TableNotEmpty { name });
        }
        let snapshot = self.snapshot()?;
        let mut copied = CompactProgress::default();
        for name in snapshot.list()? {
            let table = snapshot.open_table(&name)?;
            let mut load = Copying::Loading(Box::new(target.begin_load(&name, Fill::Whole)?));
            let mut cursor = snapshot.cursor(&table, ..);
            while let Some((key, value)) = cursor.next()? {
                load = load.add(target, key, value)?;
                copied.records += 1;
                if copied.records.is_multiple_of(STEP) {
                    progress(copied);
                }
            }
            load.finish()?;
            copied.tables += 1;
            progress(copied);
        }
        target.checkpoint()?;
        if let Some(log) = target.engine().scheme().log() {
            log.discard_past();
        }
        Ok(copied)
    }
}
