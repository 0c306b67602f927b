//! The catalog: a tree at a fixed page that maps table names to tables.
//!
//! | key | value |
//! |---|---|
//! | empty | the next table id, u32 |
//! | a table's name | its id, u32; its root page, u64 |
//!
//! The catalog's records are read and written through ordinary transactions, which makes creating
//! and dropping a table as atomic as any update. Numbers are little-endian.

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex};
use duramen_types::{MAX_TABLE_NAME_LEN, PageId, TableId};

use crate::error::{Error, Result};
use crate::record::Tree;

/// The catalog's own tree.
pub(crate) const CATALOG: Tree = Tree { root: PageId::new(2), table: TableId::new(1) };

/// The id of the first table that a user creates.
pub(crate) const FIRST_TABLE: u32 = 16;

/// Key of the record that holds the next table id.
pub(crate) const NEXT_TABLE_KEY: &[u8] = b"";

/// A table of an open database. Cheap to clone; valid as long as the table exists and the database
/// is open.
#[derive(Clone, Debug)]
pub struct Table(pub(crate) Arc<TableInner>);

#[derive(Debug)]
pub(crate) struct TableInner {
    name: String,
    pub(crate) tree: Tree,
    dropped: AtomicBool,
    /// The opening of the database that created the handle.
    opening: Opening,
}

/// Identifies one opening of a database by the address of this value; table handles and savepoints
/// carry it. (The content exists only to give it an address.)
#[derive(Clone, Debug, Default)]
pub(crate) struct Opening(Arc<u8>);

impl PartialEq for Opening {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Opening {}

impl Table {
    fn new(name: &str, tree: Tree, opening: &Opening) -> Self {
        let (name, opening) = (name.to_owned(), opening.clone());
        Self(Arc::new(TableInner { name, tree, dropped: AtomicBool::new(false), opening }))
    }

    /// Returns the table's name.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let films = db.create_table("films")?;
    /// assert_eq!(films.name(), "films");
    ///
    /// // A handle from before does not learn the new name.
    /// db.change_tables(|tables| tables.rename("films", "movies"))?;
    /// assert_eq!(films.name(), "films");
    /// assert_eq!(db.open_table("movies")?.name(), "movies");
    /// # Ok(())
    /// # }
    /// ```
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the table's id, which no other table of the database has or will have.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let before = db.create_table("sessions")?;
    /// db.drop_table("sessions")?;
    /// let after = db.create_table("sessions")?;
    /// assert_eq!(before.name(), after.name());
    /// assert_ne!(before.id(), after.id());
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(&self) -> TableId {
        self.0.tree.table
    }

    /// Returns the tree, or an error if the table belongs to another database than `handles`. The
    /// table may have been dropped.
    #[inline]
    pub(crate) fn tree(&self, handles: &Handles) -> Result<Tree> {
        if self.0.opening != handles.opening {
            return Err(Error::ForeignTable { name: self.0.name.clone() });
        }
        Ok(self.0.tree)
    }

    /// Returns an error if the table has been dropped. Without a lock on the table the answer may
    /// be ahead of the disk. A table is marked as dropped before any of its pages is freed.
    #[inline]
    pub(crate) fn check_not_dropped(&self) -> Result<()> {
        if self.0.dropped.load(Ordering::Acquire) {
            return Err(Error::NoSuchTable { name: self.0.name.clone() });
        }
        Ok(())
    }

    pub(crate) fn mark_dropped(&self) {
        self.0.dropped.store(true, Ordering::Release);
    }
}

/// The handles given out, so that all users of a table share one and learn when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    tables: Mutex<Vec<Table>>,
    pub(crate) opening: Opening,
    /// Bulk loads that have begun to become tables, and those of them that have ended.
    loads_begun: AtomicU64,
    loads_ended: AtomicU64,
}

/// A bulk load that becomes a table, until it is dropped.
#[derive(Debug)]
pub(crate) struct Loading<'h>(&'h Handles);

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        self.0.loads_ended.fetch_add(1, Ordering::AcqRel);
    }
}

impl Handles {
    /// Returns the shared handle of a table.
    pub(crate) fn intern(&self, name: &str, tree: Tree) -> Table {
        let mut handles = self.tables.lock();
        if let Some(handle) = handles.iter().find(|handle| handle.id() == tree.table) {
            return handle.clone();
        }
        let handle = Table::new(name, tree, &self.opening);
        handles.push(handle.clone());
        handle
    }

    /// Returns the shared handle of a table, if there is one.
    pub(crate) fn find(&self, id: TableId) -> Option<Table> {
        self.tables.lock().iter().find(|handle| handle.id() == id).cloned()
    }

    /// Returns a handle of a table that is dropped or may be, for snapshots that show it.
    pub(crate) fn of_dropped(&self, name: &str, tree: Tree) -> Table {
        let handle = Table::new(name, tree, &self.opening);
        handle.mark_dropped();
        handle
    }

    /// Records, before it commits, that a bulk load becomes a table.
    pub(crate) fn begin_load(&self) -> Loading<'_> {
        self.loads_begun.fetch_add(1, Ordering::AcqRel);
        Loading(self)
    }

    /// Returns how many bulk loads have ended.
    pub(crate) fn loads_ended(&self) -> u64 {
        self.loads_ended.load(Ordering::Acquire)
    }

    /// Returns whether a bulk load may have become a table since this many had ended.
    #[inline]
    pub(crate) fn have_loaded_since(&self, ended: u64) -> bool {
        self.loads_begun.load(Ordering::Acquire) != ended
    }

    /// Invalidates every handle of a dropped table.
    pub(crate) fn drop_table(&self, id: TableId) {
        let mut handles = self.tables.lock();
        handles.retain(|handle| {
            if handle.id() == id {
                handle.mark_dropped();
            }
            handle.id() != id
        });
    }
}

/// Returns an error for a name with an invalid length.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_TABLE_NAME_LEN {
        return Err(Error::BadTableName { name: name.chars().take(64).collect(), limit: MAX_TABLE_NAME_LEN });
    }
    Ok(())
}

/// Encodes a catalog record.
pub(crate) fn encode(tree: Tree) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&tree.table.get().to_le_bytes());
    bytes[4..].copy_from_slice(&tree.root.get().to_le_bytes());
    bytes
}

/// Decodes a catalog record.
pub(crate) fn decode(bytes: &[u8]) -> Result<Tree> {
    let bytes: &[u8; 12] = bytes.try_into().map_err(|_| damaged())?;
    let (table, root) = bytes.split_at(4);
    Ok(Tree {
        table: TableId::new(u32::from_le_bytes(table.try_into().expect("four bytes"))),
        root: PageId::new(u64::from_le_bytes(root.try_into().expect("eight bytes"))),
    })
}

/// Decodes the record of the next table id.
pub(crate) fn decode_next(bytes: &[u8]) -> Result<u32> {
    Ok(u32::from_le_bytes(bytes.try_into().map_err(|_| damaged())?))
}

fn damaged() -> Error {
    Error::Corrupt {
        file: "data".into(),
        offset: CATALOG.root.get() * duramen_types::PAGE_SIZE as u64,
        page: Some(CATALOG.root),
        reason: "a catalog record has the wrong length".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_round_trip() {
        let tree = Tree { root: PageId::new(1 << 40), table: TableId::new(77) };
        assert_eq!(decode(&encode(tree)).unwrap(), tree);
        assert!(decode(b"short").is_err());
        assert!(decode_next(b"12345").is_err());
    }

    #[test]
    fn dropped_tables_tell() {
        let handles = Handles::default();
        let tree = Tree { root: PageId::new(9), table: TableId::new(20) };
        let (first, second) = (handles.intern("t", tree), handles.intern("t", tree));
        handles.drop_table(tree.table);
        assert!(matches!(first.check_not_dropped(), Err(Error::NoSuchTable { .. })));
        assert!(second.check_not_dropped().is_err());
        let third = handles.intern("t", tree);
        assert!(third.check_not_dropped().is_ok() && third.tree(&handles).is_ok());
        assert!(matches!(third.tree(&Handles::default()), Err(Error::ForeignTable { .. })));
    }

    #[test]
    fn names_are_checked() {
        assert!(check_name("accounts").is_ok());
        assert!(check_name("").is_err());
        assert!(check_name(&"x".repeat(256)).is_err());
    }
}
