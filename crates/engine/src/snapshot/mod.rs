//! Snapshots: reading the database as it was after a prefix of its commits, without locks.
//!
//! `version/mod.rs` has the protocol. This file has the handle and point reads; `cursor.rs` reads
//! ranges, a leaf at a time; `split.rs` divides a table for several threads.

mod cursor;
mod split;

use std::ops::ControlFlow;

pub use cursor::{Cursor, SnapshotScan};
pub use split::KeyBounds;

use duramen_sync::atomic::AtomicBool;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Backoff, OnceLock, Reference};
use duramen_types::{Gsn, planted};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockId;
use crate::maintenance::Maintenance;
use crate::options::Isolation;
use crate::page::{Node, SlotFlags};
use crate::pool::{Interrupt, PoolError};
use crate::record::Tree;
use crate::storage::catalog::{self, CATALOG, NEXT_TABLE_KEY, Table};
use crate::storage::overflow::{Parts, Stored};
use crate::storage::store::Store;
use crate::txn::{Txn, check_key};
use crate::version::{OpenSnapshot, Version};

/// The database as it was at one moment: after a prefix of its commits, all of them durable. Made
/// by [`crate::Db::snapshot`].
///
/// A snapshot takes no locks, waits for nobody and stops nobody. What it shows never changes, is
/// serializable, and contains everything that was acknowledged before the snapshot was made (under
/// [`crate::CommitMode::Async`] including what is not durable yet). It can be cloned and shared by
/// threads; what it needs is kept until the last clone is dropped. A snapshot keeps the database in
/// use, as a transaction does.
///
/// While it is open, the values from before later changes are kept in memory: those of each
/// transaction that has changed a record first since the snapshot was opened. Deleted records,
/// replaced large values and dropped tables keep their space. [`crate::Options::version_bytes`]
/// limits the memory: the calls of a snapshot that exceeds it return [`Error::SnapshotTooOld`].
///
/// ```
/// # fn main() -> duramen::Result<()> {
/// let db = duramen::Db::in_memory(duramen::Options { snapshots: true, ..duramen::Options::small() })?;
/// let table = db.table("t")?;
/// db.run(|txn| txn.put(&table, b"key", b"before"))?;
/// let snapshot = db.snapshot()?;
/// db.run(|txn| txn.put(&table, b"key", b"after"))?;
/// assert_eq!(snapshot.get(&table, b"key")?.as_deref(), Some(&b"before"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<Inner>);

const _: () = {
    const fn is_shared_by_threads<T: Send + Sync>() {}
    is_shared_by_threads::<Snapshot>();
};

#[derive(Debug)]
struct Inner {
    engine: Reference<Engine>,
    open: Arc<OpenSnapshot>,
    /// The bulk loads that had ended when it was made.
    loads: u64,
    /// Pages with lower GSNs have only records as the snapshot shows them; found by the first scan.
    unchanged_below: OnceLock<Gsn>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.engine.health.is_forked() {
            return std::mem::forget(self.engine.clone());
        }
        self.engine.versions.close(&self.open);
        // With a log, the next checkpoint is soon enough.
        if self.engine.scheme().log().is_none()
            && self.engine.deferred_frees.has_due(self.engine.versions.reclaimable())
        {
            self.engine.checkpointer.wake();
        }
    }
}

impl Snapshot {
    pub(crate) fn open(engine: Reference<Engine>) -> Result<Self> {
        engine.health.check()?;
        if !engine.versions.is_on() {
            let reason = "snapshots need it: open the database with `snapshots: true`".to_owned();
            return Err(Error::InvalidOption { option: "snapshots", reason });
        }
        // The changes of in-doubt transactions have no versions.
        engine.finish_in_doubt(&AtomicBool::new(false))?;
        let loads = engine.tables.loads_ended();
        let open = engine.versions.open();
        Ok(Self(Arc::new(Inner { engine, open, loads, unchanged_below: OnceLock::new() })))
    }

    /// Returns the position of the snapshot in the order of commits. It shows exactly the commits
    /// up to this position.
    ///
    /// With a log the position is a global sequence number (GSN): a restore to the next one
    /// ([`crate::RestoreTo::Gsn`]) has what the snapshot shows. With
    /// [`crate::Scheme::NvramGroupCommit`] it is the number of a batch, and with
    /// [`crate::Scheme::InPlace`] or under [`crate::CommitMode::Async`] the number of commits since
    /// the database was opened.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// # let films = db.table("films")?;
    /// let before = db.snapshot()?;
    /// db.run(|txn| txn.put(&films, b"Metropolis", b"1927"))?;
    /// let after = db.snapshot()?;
    /// assert!(before.gsn() < after.gsn());
    /// # Ok(())
    /// # }
    /// ```
    pub fn gsn(&self) -> Gsn {
        self.0.open.at()
    }

    /// Finds a table that the snapshot shows. If the table has been dropped since, only snapshots
    /// can use the handle. The first opening of a table waits for a creation or a drop of a table
    /// that is in progress.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Metropolis", b"1927"))?;
    /// let snapshot = db.snapshot()?;
    /// db.drop_table("films")?;
    ///
    /// assert!(db.open_table("films").is_err());
    /// let films = snapshot.open_table("films")?;
    /// assert_eq!(snapshot.get(&films, b"Metropolis")?, Some(b"1927".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::BadTableName`], and those of [`Snapshot::get`] and of a
    /// transaction's read.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let tree = self.find_tree(name)?;
        // A table that has been renamed since has handles with its new name.
        if let Some(table) = self.engine().tables.find(tree.table).filter(|table| table.name() == name) {
            return Ok(table);
        }
        let mut txn = Txn::begin(self.0.engine.clone(), Isolation::Serializable);
        txn.lock_exclusively(LockId::catalog())?;
        let now = txn.get_raw(CATALOG, name.as_bytes())?.map(|bytes| catalog::decode(&bytes)).transpose()?;
        let tables = &self.engine().tables;
        // The handle is made while the catalog is locked, as that of `Db::open_table`.
        let table = if now == Some(tree) { tables.intern(name, tree) } else { tables.of_dropped(name, tree) };
        txn.commit()?;
        Ok(table)
    }

    /// Finds a table, as [`Self::open_table`], but waits for nobody. The handle is for snapshots
    /// alone.
    pub(crate) fn open_for_reading(&self, name: &str) -> Result<Table> {
        Ok(self.engine().tables.of_dropped(name, self.find_tree(name)?))
    }

    fn find_tree(&self, name: &str) -> Result<Tree> {
        catalog::check_name(name)?;
        self.table_tree(name)?.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })
    }

    /// Reads the value of `key`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let options = duramen::Options { snapshots: true, ..duramen::Options::small() };
    /// # let db = duramen::Db::in_memory(options)?;
    /// # let stock = db.table("stock")?;
    /// db.run(|txn| txn.put(&stock, b"bolts", b"40"))?;
    /// let snapshot = db.snapshot()?;
    /// db.run(|txn| txn.delete(&stock, b"bolts"))?;
    /// db.run(|txn| txn.put(&stock, b"nuts", b"25"))?;
    ///
    /// assert_eq!(snapshot.get(&stock, b"bolts")?, Some(b"40".to_vec()));
    /// assert_eq!(snapshot.get(&stock, b"nuts")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] if the table was dropped before the snapshot was made;
    /// [`Error::KeyTooLarge`], [`Error::ForeignTable`]; [`Error::SnapshotTooOld`];
    /// [`Error::Closed`], [`Error::Io`], [`Error::Corrupt`].
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        match self.tree_of(table)? {
            Some(tree) => self.get_in(tree, key),
            None => Ok(None),
        }
    }

    /// Reads the value of `key` part by part, as [`Txn::get_in_parts`] does, but in copies of the
    /// parts: a snapshot locks nothing.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options { snapshots: true, ..duramen::Options::small() })?;
    /// let films = db.table("films")?;
    /// db.run(|txn| txn.put(&films, b"first", &[7; 100_000]))?;
    ///
    /// let mut beginning = Vec::new();
    /// let length = db.snapshot()?.get_in_parts(&films, b"first", |part| {
    ///     beginning.extend_from_slice(part);
    ///     if beginning.len() < 10_000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// assert_eq!(length, Some(100_000));
    /// assert!((10_000..20_000).contains(&beginning.len()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get_in_parts(
        &self,
        table: &Table,
        key: &[u8],
        part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<u64>> {
        check_key(key)?;
        let Some(tree) = self.tree_of(table)? else { return Ok(None) };
        let mut value = Vec::new();
        let Some(flags) = self.repeat(|| self.look(tree, key, &mut value))? else { return Ok(None) };
        self.read_stored(tree, &value, flags, |value, store| value.in_parts(store, Parts::Copied, part)).map(Some)
    }

    fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// Returns the tree of a table that the snapshot shows. A table that was created later is
    /// empty: its tree has only records that the snapshot does not show, or there is none, because
    /// the records of a bulk load have no versions.
    fn tree_of(&self, table: &Table) -> Result<Option<Tree>> {
        let tables = &self.engine().tables;
        let tree = table.tree(tables)?;
        // The handle is invalidated before the drop commits. So a table that was dropped before the
        // snapshot was made is found here, and the pages of one that is dropped later wait for the
        // snapshot.
        if table.check_not_dropped().is_err() {
            return if self.shows(table.name(), tree)? {
                Ok(Some(tree))
            } else {
                Err(Error::NoSuchTable { name: table.name().to_owned() })
            };
        }
        let is_shown = !tables.have_loaded_since(self.0.loads) || self.shows(table.name(), tree)?;
        Ok(is_shown.then_some(tree))
    }

    /// Returns whether the snapshot shows a tree, which may have had another name.
    fn shows(&self, name: &str, tree: Tree) -> Result<bool> {
        if self.table_tree(name)? == Some(tree) {
            return Ok(true);
        }
        let mut cursor = self.catalog();
        while let Some((name, bytes)) = cursor.next()? {
            if name != NEXT_TABLE_KEY && catalog::decode(bytes)? == tree {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn table_tree(&self, name: &str) -> Result<Option<Tree>> {
        self.get_in(CATALOG, name.as_bytes())?.map(|bytes| catalog::decode(&bytes)).transpose()
    }

    fn get_in(&self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        match self.repeat(|| self.look(tree, key, &mut value))? {
            None => Ok(None),
            Some(flags) if flags.contains(SlotFlags::OVERFLOW) => self.large_value(tree, &value).map(Some),
            Some(_) => Ok(Some(value)),
        }
    }

    /// Reads a key once: first the leaf, then the versions, then whether the leaf is still the
    /// same.
    fn look(&self, tree: Tree, key: &[u8], value: &mut Vec<u8>) -> Result<Option<SlotFlags>, Interrupt> {
        value.clear();
        let leaf = self.engine().store.leaf(tree, key)?;
        let node = Node(leaf.page());
        let (slot, found) = node.lower_bound(key);
        if !found {
            leaf.validate()?;
            return Ok(None);
        }
        let flags = node.flags(slot);
        let seen = match self.engine().versions.version_at(tree.table, key, self.gsn(), value) {
            Version::Unsettled => {
                reach(Probe::CommitUnsettled);
                return Err(Interrupt::Restart);
            }
            Version::Absent => None,
            Version::Value(flags) => Some(flags),
            Version::Current if flags.contains(SlotFlags::GHOST) => None,
            Version::Current => {
                node.value_into(slot, value);
                Some(flags)
            }
            Version::InLeaf(flags) => {
                node.value_into(slot, value);
                Some(flags)
            }
        };
        if !planted!(LeafNotRevalidated) {
            leaf.validate()?;
        }
        Ok(seen)
    }

    /// Repeats `read` until no other thread interrupts it. The result counts if the snapshot has
    /// not become too old meanwhile.
    fn repeat<T>(&self, mut read: impl FnMut() -> Result<T, Interrupt>) -> Result<T> {
        let mut backoff = Backoff::new();
        loop {
            self.engine().health.check()?;
            let result = read();
            self.0.open.check()?;
            match result {
                Ok(value) => return Ok(value),
                Err(Interrupt::Restart) => backoff.snooze(),
                Err(Interrupt::Failed(error)) => return Err(self.engine().note(error.into())),
            }
        }
    }

    /// Reads a large value, whose reference the snapshot has found.
    fn large_value(&self, tree: Tree, reference: &[u8]) -> Result<Vec<u8>> {
        self.read_stored(tree, reference, SlotFlags::OVERFLOW, |value, store| Ok(value.whole(store)?.into_owned()))
    }

    /// Reads a value, whose bytes in its leaf the snapshot has found.
    fn read_stored<'v, T>(
        &self,
        tree: Tree,
        bytes: &'v [u8],
        flags: SlotFlags,
        read: impl FnOnce(Stored<'v>, &Store) -> std::result::Result<T, PoolError>,
    ) -> Result<T> {
        let result = Stored::new(tree, bytes, flags).and_then(|value| read(value, &self.engine().store));
        // If the snapshot has become too old, the pages may have been freed and used again.
        self.0.open.check()?;
        result.map_err(|error| self.engine().note(error.into()))
    }

    /// Returns a GSN such that the records of pages with lower ones need no look for versions.
    fn unchanged_below(&self) -> Gsn {
        let find = || {
            let engine = self.engine();
            // A transaction whose commit the snapshot does not show is retired before it leaves the
            // table, or was so by the thread that published its versions: one of them shows it.
            engine.versions.unchanged_below(self.gsn(), || engine.txns.least_first())
        };
        *self.0.unchanged_below.get_or_init(find)
    }
}
