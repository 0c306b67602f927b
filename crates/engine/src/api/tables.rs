//! Finding tables, and changing which tables there are.

use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::db::Db;
use super::table_list;
use crate::error::{Error, Result};
use crate::lock::{LockError, LockId, LockMode};
use crate::options::Isolation;
use crate::record::{DeferredFree, Tree};
use crate::storage::catalog::{self, CATALOG, FIRST_TABLE, NEXT_TABLE_KEY, Table};
use crate::storage::mini_transaction::MiniTransaction;
use crate::txn::Txn;

/// A change of which tables there are. Made by [`Db::change_tables`].
// Its transaction is not lent to write records with: undoing a creation frees the root alone, and
// would leak the pages below it.
#[derive(Debug)]
pub struct TableChanges<'db> {
    /// Dropped before the transaction, which gives the ids of the tables back.
    created: Created<'db>,
    /// Holds the catalog exclusively.
    txn: Txn,
    /// The tables whose handles no longer count once the change is made.
    gone: Vec<TableId>,
}

/// Tables whose handles no longer count if the change is not made.
#[derive(Debug)]
struct Created<'db> {
    db: &'db Db,
    tables: Vec<TableId>,
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        if self.db.engine().health.is_forked() {
            return;
        }
        let handles = &self.db.engine().tables;
        self.tables.iter().for_each(|table| handles.drop_table(*table));
    }
}

impl Db {
    /// Finds a table, or creates it; the table is durable on return.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let visits = db.table("visits")?; // creates it
    /// let same = db.table("visits")?; // finds it
    /// assert_eq!(same.id(), visits.id());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::BadTableName`], and those of a commit.
    pub fn table(&self, name: &str) -> Result<Table> {
        loop {
            match self.open_table(name) {
                Err(Error::NoSuchTable { .. }) => {}
                found => return found,
            }
            match self.create_table(name) {
                // Another thread was quicker; and if one drops the table, the loop begins anew.
                Err(Error::TableExists { .. }) => {}
                created => return created,
            }
        }
    }

    /// Creates, drops and renames tables in one transaction: `change` states what, and all of it
    /// happens, durably, or nothing. A thousand tables created together take about as long as one.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// db.create_table("orders")?;
    /// // A new version of the schema, or the old one.
    /// let orders = db.change_tables(|tables| {
    ///     tables.rename("orders", "orders_before")?;
    ///     tables.create("order_lines")?;
    ///     tables.create("orders")
    /// })?;
    /// assert_eq!(db.list()?, ["order_lines", "orders", "orders_before"]);
    /// # assert_eq!(orders.name(), "orders");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The catalog is locked meanwhile: other threads that open, create or drop tables wait. So
    /// `change` must not call methods of the database that do this, and should not take long. The
    /// new tables are locked, too: a transaction that uses one waits until the change has been
    /// made.
    ///
    /// # Errors
    /// What `change` returns, and those of a commit. [`Error::MustAbort`] if `change` ignores an
    /// error after which its transaction cannot go on. After [`Error::Deadlock`] and the other
    /// errors that [`Error::is_retryable`] knows, the change may be tried again.
    pub fn change_tables<T>(&self, change: impl FnOnce(&mut TableChanges<'_>) -> Result<T>) -> Result<T> {
        let mut changes = TableChanges::of(self, self.begin_with(Isolation::Serializable))?;
        let result = change(&mut changes)?;
        changes.commit()?;
        Ok(result)
    }

    /// Creates a table; the table is durable on return.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let films = db.create_table("films")?;
    /// assert_eq!(films.name(), "films");
    /// let again = db.create_table("films");
    /// assert!(matches!(again, Err(duramen::Error::TableExists { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], and those of a commit.
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.change_tables(|tables| tables.create(name))
    }

    /// Finds a table.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// db.create_table("films")?;
    /// let films = db.open_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", b"1979"))?;
    /// let other = db.open_table("books");
    /// assert!(matches!(other, Err(duramen::Error::NoSuchTable { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchTable`], [`Error::BadTableName`], and those of a read.
    pub fn open_table(&self, name: &str) -> Result<Table> {
        let mut txn = self.begin_catalog()?;
        let table = table_list::open(&mut txn, self.engine(), name)?;
        txn.commit()?;
        Ok(table)
    }

    /// Removes a table and all its records; the removal is durable on return. Waits for
    /// transactions that use the table; those that come later get [`Error::NoSuchTable`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let drafts = db.create_table("drafts")?;
    /// db.run(|txn| txn.put(&drafts, b"letter", b"Dear"))?;
    /// db.drop_table("drafts")?;
    /// assert!(db.list()?.is_empty());
    /// let late = db.run(|txn| txn.get(&drafts, b"letter"));
    /// assert!(matches!(late, Err(duramen::Error::NoSuchTable { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TableChanges::drop`], and those of a commit.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.change_tables(|tables| tables.drop(name))
    }

    /// Removes all records of a table at once, whatever their number; the removal is durable on
    /// return. Returns the empty table, which is another one than before: transactions that come
    /// with a handle from before get [`Error::NoSuchTable`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let cache = db.create_table("cache")?;
    /// db.run(|txn| txn.put(&cache, b"/home", b"<html>"))?;
    ///
    /// let empty = db.truncate_table("cache")?;
    /// assert_eq!(db.run(|txn| txn.first(&empty))?, None);
    /// let before = db.run(|txn| txn.first(&cache));
    /// assert!(matches!(before, Err(duramen::Error::NoSuchTable { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TableChanges::drop`], and those of a commit.
    pub fn truncate_table(&self, name: &str) -> Result<Table> {
        self.change_tables(|tables| {
            tables.drop(name)?;
            tables.create(name)
        })
    }

    /// Returns the id for a new table in a transaction that holds the catalog.
    pub(super) fn take_table_id(txn: &mut Txn) -> Result<TableId> {
        let id = match txn.get_raw(CATALOG, NEXT_TABLE_KEY)? {
            Some(bytes) => catalog::decode_next(&bytes)?,
            None => FIRST_TABLE,
        };
        let next = id.checked_add(1).ok_or_else(|| Error::Full {
            reason: "every table id has been used; copy the tables into a new database".to_owned(),
        })?;
        txn.put_raw(CATALOG, NEXT_TABLE_KEY, &next.to_le_bytes())?;
        Ok(TableId::new(id))
    }

    /// Returns the names of all tables, sorted.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// db.create_table("orders")?;
    /// db.create_table("customers")?;
    /// assert_eq!(db.list()?, ["customers", "orders"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of a read.
    pub fn list(&self) -> Result<Vec<String>> {
        let mut txn = self.begin_catalog()?;
        let names = table_list::names(&mut txn)?;
        txn.commit()?;
        Ok(names)
    }

    /// Begins a transaction that holds the catalog exclusively.
    pub(super) fn begin_catalog(&self) -> Result<Txn> {
        table_list::begin_catalog(self.begin_reference())
    }
}

impl<'db> TableChanges<'db> {
    /// Goes on with a transaction, which may have built trees without names.
    pub(super) fn of(db: &'db Db, mut txn: Txn) -> Result<Self> {
        txn.lock_exclusively(LockId::catalog())?;
        Ok(Self { created: Created { db, tables: Vec::new() }, txn, gone: Vec::new() })
    }

    /// Creates a table. The handle can be used once the change has been made.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let films = db.change_tables(|tables| {
    ///     tables.create("actors")?;
    ///     tables.create("films")
    /// })?;
    /// db.run(|txn| txn.put(&films, b"Alien", b"1979"))?;
    /// assert_eq!(db.list()?, ["actors", "films"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::BadTableName`], and those of a write.
    pub fn create(&mut self, name: &str) -> Result<Table> {
        self.check_unused(name)?;
        let table = Db::take_table_id(&mut self.txn)?;
        let root = self.txn.plant(table)?;
        self.link(name, Tree { root, table })
    }

    /// Removes a table and all its records. Waits for transactions that use the table; those that
    /// come later get [`Error::NoSuchTable`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// db.create_table("letters")?;
    /// let result = db.change_tables(|tables| {
    ///     tables.drop("letters")?;
    ///     tables.drop("memos") // there is no such table
    /// });
    /// assert!(matches!(result, Err(duramen::Error::NoSuchTable { .. })));
    /// assert_eq!(db.list()?, ["letters"]); // so nothing is done
    ///
    /// db.change_tables(|tables| tables.drop("letters"))?;
    /// assert!(db.list()?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableInUse`] if one of these transactions is known to be open in the calling
    /// thread, which would wait for itself: a transaction counts as open in the thread that used it
    /// last. [`Error::Deadlock`] if one of them waits for a lock that the calling thread holds;
    /// [`Error::LockTimeout`] instead of both if [`crate::Options::lock_wait_limit`] is zero.
    /// [`Error::NoSuchTable`], [`Error::BadTableName`], and those of a write.
    pub fn drop(&mut self, name: &str) -> Result<()> {
        self.remove(name).map(drop)
    }

    /// Gives a table another name. Its records stay as they are. Waits for transactions that use
    /// the table; those that come later with a handle from before get [`Error::NoSuchTable`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let clients = db.create_table("clients")?;
    /// db.run(|txn| txn.put(&clients, b"1", b"Alice"))?;
    /// db.change_tables(|tables| tables.rename("clients", "customers"))?;
    ///
    /// let customers = db.open_table("customers")?;
    /// assert_eq!(db.begin().get(&customers, b"1")?.as_deref(), Some(&b"Alice"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::TableExists`] if the other name is taken; otherwise as [`TableChanges::drop`].
    pub fn rename(&mut self, name: &str, to: &str) -> Result<()> {
        self.check_unused(to)?;
        let tree = self.unlink(name)?;
        self.txn.put_raw(CATALOG, to.as_bytes(), &catalog::encode(tree))
    }

    fn check_unused(&mut self, name: &str) -> Result<()> {
        catalog::check_name(name)?;
        if self.contains(name)? { Err(Error::TableExists { name: name.to_owned() }) } else { Ok(()) }
    }

    /// Gives a new tree a name that is not used.
    pub(super) fn link(&mut self, name: &str, tree: Tree) -> Result<Table> {
        // A handle that leaves the change too early is of no use: other transactions wait for this
        // lock.
        self.txn.lock_exclusively(LockId::table(tree.table))?;
        self.txn.put_raw(CATALOG, name.as_bytes(), &catalog::encode(tree))?;
        // The handle is made while the catalog is locked; otherwise a drop that follows at once
        // would not find it.
        self.created.tables.push(tree.table);
        Ok(self.created.db.engine().tables.intern(name, tree))
    }

    /// Takes the name from a table that nobody uses.
    fn unlink(&mut self, name: &str) -> Result<Tree> {
        catalog::check_name(name)?;
        let found = self.txn.get_raw(CATALOG, name.as_bytes())?;
        let bytes = found.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
        let tree = catalog::decode(&bytes)?;
        self.txn.internal(|engine, context| {
            let locked = engine.locks.acquire(&mut context.locks, LockId::table(tree.table), LockMode::Exclusive);
            locked.map_err(|error| match error {
                LockError::Deadlock { cycle: 0 | 1 } => Error::TableInUse { name: name.to_owned() },
                error => engine.lock_error(context.locks.txn(), error),
            })
        })?;
        self.txn.delete_raw(CATALOG, name.as_bytes())?;
        self.gone.push(tree.table);
        Ok(tree)
    }

    /// Removes a table; returns its tree, which is freed once the change has been made.
    pub(super) fn remove(&mut self, name: &str) -> Result<Tree> {
        let tree = self.unlink(name)?;
        self.txn.free_on_commit(DeferredFree::Tree(tree))?;
        Ok(tree)
    }

    /// Returns whether there is a table of this name.
    pub(super) fn contains(&mut self, name: &str) -> Result<bool> {
        Ok(self.txn.get_raw(CATALOG, name.as_bytes())?.is_some())
    }

    pub(super) fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// Makes the change, durably.
    pub(super) fn commit(self) -> Result<()> {
        // After some errors the change can only be taken back, whether they were passed on or not.
        // That drops `self`, and invalidates the handles of new tables before their ids are free.
        self.txn.check_usable()?;
        let Self { mut created, txn, gone } = self;
        // Handles are invalidated while the locks are held: a transaction that gets the table lock
        // next finds the handle invalid.
        let handles = &created.db.engine().tables;
        gone.iter().for_each(|table| handles.drop_table(*table));
        txn.commit_durably()?;
        created.tables.clear();
        Ok(())
    }
}

impl Txn {
    /// Allocates a page for the root of a new tree.
    fn plant(&mut self, table: TableId) -> Result<PageId> {
        self.internal(|engine, context| {
            engine.reserve_log(&mut context.log, PAGE_SIZE)?;
            let mut mini = MiniTransaction::new();
            let root = engine.store.plant(table, &mut mini)?;
            context.log.allocate(engine.scheme(), &engine.txns, mini, root);
            Ok(root)
        })
    }

    fn free_on_commit(&mut self, free: DeferredFree) -> Result<()> {
        self.internal(|engine, context| {
            engine.reserve_log(&mut context.log, 64)?;
            context.log.free_on_commit(engine.scheme(), &engine.txns, free);
            Ok(())
        })
    }
}
