//! Point reads.

use std::ops::ControlFlow;

use crate::sim_cost;
use duramen_sync::cost;
use duramen_sync::probe::{Probe, reach};
use duramen_types::planted;

use super::{Txn, check_key};
use crate::btree::Lookup;
use crate::error::Result;
use crate::lock::{LockId, LockMode};
use crate::options::Isolation;
use crate::page::SlotFlags;
use crate::record::Tree;
use crate::storage::catalog::Table;
use crate::storage::overflow::{Parts, Stored};
use crate::storage::store::Store;

impl Txn {
    /// Reads the value of `key`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let capitals = db.table("capitals")?;
    /// let mut txn = db.begin();
    /// txn.put(&capitals, b"France", b"Paris")?;
    /// assert_eq!(txn.get(&capitals, b"France")?, Some(b"Paris".to_vec()));
    /// assert_eq!(txn.get(&capitals, b"Atlantis")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NoSuchTable`], [`crate::Error::ForeignTable`],
    /// [`crate::Error::KeyTooLarge`]; [`crate::Error::Deadlock`] and the others that leave only an
    /// abort.
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(table, key, <[u8]>::to_vec)
    }

    /// Reads as [`Txn::get`] does, but calls `read` with the value and returns the result, which
    /// avoids a copy.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let reviews = db.table("reviews")?;
    /// # db.run(|txn| txn.put(&reviews, b"Metropolis", b"a silent film from Berlin"))?;
    /// let mut txn = db.begin();
    /// let spaces = |text: &[u8]| text.iter().filter(|byte| **byte == b' ').count();
    /// assert_eq!(txn.get_with(&reviews, b"Metropolis", spaces)?, Some(4));
    /// assert_eq!(txn.get_with(&reviews, b"Vertigo", spaces)?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_with<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.check_usable()?;
        let result = self.get_locked(table, key, LockMode::IntentShared, LockMode::Shared, |store, value| {
            Ok(read(&value.whole(store)?))
        });
        self.record_outcome(result)
    }

    /// Reads the value of `key` part by part: calls `part` with the parts, in order, until it
    /// breaks off. Returns the length of the whole value in bytes.
    ///
    /// A large value is not put together, which [`Txn::get_with`] does: its parts, of some 8 KiB,
    /// are lent from their pages. A page stays in memory while `part` has it. The checksum of the
    /// value is known only at its end: after an error, what `part` was called with does not count.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let films = db.table("films")?;
    /// db.run(|txn| txn.put(&films, b"first", &[7; 100_000]))?;
    ///
    /// let mut sum = 0;
    /// let length = db.begin().get_in_parts(&films, b"first", |part| {
    ///     sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!((length, sum), (Some(100_000), 700_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_in_parts(
        &mut self,
        table: &Table,
        key: &[u8],
        part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Option<u64>> {
        self.check_usable()?;
        let result = self.get_locked(table, key, LockMode::IntentShared, LockMode::Shared, |store, value| {
            Ok(value.in_parts(store, Parts::Lent, part)?)
        });
        self.record_outcome(result)
    }

    /// Returns whether there is a record with the key `key`.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let guests = db.table("guests")?;
    /// let mut txn = db.begin();
    /// txn.put(&guests, b"alice", b"")?;
    /// assert!(txn.contains(&guests, b"alice")?);
    /// assert!(!txn.contains(&guests, b"bob")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn contains(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        Ok(self.get_with(table, key, |_| ())?.is_some())
    }

    /// Reads the value of `key` and locks it exclusively, for a transaction that is going to change
    /// it. Otherwise two transactions that both read the key and then write it would deadlock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use duramen::Error;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let chairs = db.table("chairs")?;
    /// # db.run(|txn| txn.put(&chairs, b"evening", &[12]))?;
    /// let mut txn = db.begin();
    /// let free = txn.get_for_update(&chairs, b"evening")?.unwrap()[0];
    ///
    /// // Others wait for the lock, even to read; this one refuses to wait.
    /// let mut other = db.begin();
    /// other.set_lock_wait_limit(Some(Duration::ZERO));
    /// assert!(matches!(other.get(&chairs, b"evening"), Err(Error::LockTimeout { .. })));
    ///
    /// txn.put(&chairs, b"evening", &[free - 1])?;
    /// txn.commit()?;
    /// # assert_eq!(db.run(|txn| txn.get(&chairs, b"evening"))?, Some(vec![11]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_for_update_with(table, key, <[u8]>::to_vec)
    }

    /// Reads as [`Txn::get_for_update`] does, but calls `read` with the value and returns the
    /// result, which avoids a copy.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let accounts = db.table("accounts")?;
    /// # db.run(|txn| txn.put(&accounts, b"alice", &100_u64.to_le_bytes()))?;
    /// let number = |value: &[u8]| u64::from_le_bytes(value.try_into().unwrap());
    /// let mut txn = db.begin();
    /// let balance = txn.get_for_update_with(&accounts, b"alice", number)?;
    /// assert_eq!(balance, Some(100));
    /// txn.put(&accounts, b"alice", &(100_u64 - 30).to_le_bytes())?;
    /// txn.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn get_for_update_with<R>(
        &mut self,
        table: &Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_usable()?;
        let result = self.get_locked(table, key, LockMode::IntentExclusive, LockMode::Exclusive, |store, value| {
            Ok(read(&value.whole(store)?))
        });
        self.record_outcome(result)
    }

    /// Reads a catalog record; the transaction holds the lock on the catalog.
    pub(crate) fn get_raw(&mut self, tree: Tree, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.internal(|engine, context| {
            let found = engine.store.lookup(tree, key, &mut context.value)?;
            let Some(flags) = record_flags(found) else { return Ok(None) };
            let value = Stored::new(tree, &context.value, flags)?.whole(&engine.store)?;
            Ok(Some(value.into_owned()))
        })
    }

    /// Reads all catalog records; the transaction holds the lock on the catalog.
    pub(crate) fn scan_raw(&mut self, tree: Tree) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.scan_tree(tree).collect()
    }

    fn get_locked<R>(
        &mut self,
        table: &Table,
        key: &[u8],
        intent: LockMode,
        mode: LockMode,
        read: impl FnOnce(&Store, Stored<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        cost::work(sim_cost::READ);
        check_key(key)?;
        let tree = self.enter_table(table, intent)?;
        let record = LockId::record(tree.table, key);
        let skip = planted!(SkipReadLock) && mode == LockMode::Shared;
        let momentary = self.isolation == Isolation::ReadCommitted
            && mode == LockMode::Shared
            && self.context().locks.held(record).is_none();
        if !skip {
            self.lock(record, mode)?;
        }
        let result = self.read_value(tree, key, read);
        if momentary && !skip {
            let (engine, _, context) = self.parts();
            engine.locks.release_one(&mut context.locks, record);
        }
        result
    }

    /// Reads under the record lock, and locks the gap if there is no record.
    fn read_value<R>(
        &mut self,
        tree: Tree,
        key: &[u8],
        read: impl FnOnce(&Store, Stored<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        let is_serializable = self.isolation == Isolation::Serializable;
        let (_, store, context) = self.parts();
        let flags = if let Some(flags) = store.lookup_tuple(tree, key, &mut context.value)? {
            (!flags.contains(SlotFlags::GHOST)).then_some(flags)
        } else if is_serializable {
            self.look_and_lock_gap(tree, key)?
        } else {
            record_flags(store.lookup(tree, key, &mut context.value)?)
        };
        let Some(flags) = flags else { return Ok(None) };
        let (_, store, context) = self.parts();
        read(store, Stored::new(tree, &context.value, flags)?).map(Some)
    }

    /// Searches for `key`. If neither a record nor a ghost is there, makes sure that none can be
    /// inserted: locks the gap around the key and searches again, until the gap that it sees is the
    /// gap that it has locked. Where too many empty leaves follow the key, it locks the table.
    pub(super) fn look_and_lock_gap(&mut self, tree: Tree, key: &[u8]) -> Result<Option<SlotFlags>> {
        let table = LockId::table(tree.table);
        loop {
            let is_locked = self.holds(table, LockMode::Shared);
            let (_, store, context) = self.parts();
            if is_locked {
                return Ok(record_flags(store.lookup(tree, key, &mut context.value)?));
            }
            let Some((found, next)) = store.lookup_or_next(tree, key, &mut context.value)? else {
                reach(Probe::TableLockedForLeaves);
                self.lock(table, LockMode::Shared)?;
                continue;
            };
            if found != Lookup::Absent {
                return Ok(record_flags(found));
            }
            let gap = Self::gap(tree, next.as_deref());
            if context.locks.held(gap).is_some_and(|held| held.covers(LockMode::Shared)) {
                return Ok(None);
            }
            self.lock(gap, LockMode::Shared)?;
            reach(Probe::GapLockedAgain);
        }
    }
}

fn record_flags(found: Lookup) -> Option<SlotFlags> {
    match found {
        Lookup::Record(flags) => Some(flags),
        Lookup::Ghost | Lookup::Absent => None,
    }
}
