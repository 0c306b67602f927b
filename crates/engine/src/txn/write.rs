//! Inserts, changes and deletes records.

use crate::sim_cost;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, cost};
use duramen_types::{PAGE_SIZE, PageId, planted};

use super::{Txn, check_key, check_value};
use crate::btree::{Lookup, number};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::{LockError, LockId, LockMode};
use crate::options::Isolation;
use crate::page::{MAX_INLINE_SIZE, Node, SlotFlags};
use crate::pool::{Exclusive, Interrupt};
use crate::record::{DeferredFree, PageOp, Tree, Undo, difference};
use crate::storage::catalog::Table;
use crate::storage::free_space::Purpose;
use crate::storage::mini_transaction::MiniTransaction;
use crate::storage::overflow::{OverflowWriter, Reference};
use crate::storage::store::Store;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::{Deletion, TxnLog};
use crate::version::Before;

/// What a write expects to find at the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    /// No record: [`Error::KeyExists`] otherwise.
    Absence,
    /// A record: [`Error::KeyNotFound`] otherwise.
    Presence,
    /// Either.
    Anything,
}

/// The value to write, as the leaf holds it.
#[derive(Clone, Copy)]
struct Entry<'a> {
    tree: Tree,
    key: &'a [u8],
    payload: &'a [u8],
    flags: SlotFlags,
}

/// The result of one attempt at a leaf.
enum Attempt {
    Done,
    /// The attempt gave up the latch for other work; the caller searches again.
    Again,
    /// The caller must wait for the lock on this gap.
    Gap(LockId),
}

/// The lock on a gap that an insertion keeps, after a wait for it, until its record is in the leaf.
struct Passage {
    gap: LockId,
    /// The mode in which the transaction held the lock before.
    before: Option<LockMode>,
}

impl Passage {
    fn end(self, engine: &Engine, context: &mut Context) {
        engine.locks.restore(&mut context.locks, self.gap, self.before);
    }
}

/// Writes overflow chains for a transaction.
pub(super) struct ChainLog<'a> {
    pub(super) engine: &'a Engine,
    pub(super) log: &'a mut TxnLog,
}

impl OverflowWriter for ChainLog<'_> {
    fn number(&mut self) -> Result<u64> {
        self.log.next_overflow_chain()
    }

    fn reserve_log(&mut self) -> Result<()> {
        self.engine.reserve_log(self.log, PAGE_SIZE)
    }

    fn allocate(&mut self, mini: MiniTransaction<'_>, page: PageId) {
        self.log.allocate(self.engine.scheme(), &self.engine.txns, mini, page);
    }
}

impl Txn {
    /// Adds a record.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let users = db.table("users")?;
    /// let mut txn = db.begin();
    /// txn.insert(&users, b"alice", b"Alice Jones")?;
    /// let again = txn.insert(&users, b"alice", b"Alice Smith");
    /// assert!(matches!(again, Err(duramen::Error::KeyExists)));
    /// assert_eq!(txn.get(&users, b"alice")?, Some(b"Alice Jones".to_vec()));
    /// txn.commit()?; // this error does not end the transaction
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyExists`] if the key exists; [`Error::KeyTooLarge`], [`Error::ValueTooLarge`],
    /// [`Error::NoSuchTable`], [`Error::ForeignTable`], [`Error::TooManyLargeValues`];
    /// [`Error::Full`], [`Error::Deadlock`] and the others that leave only an abort.
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, value, Expect::Absence)
    }

    /// Adds a record, or replaces its value.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let prices = db.table("prices")?;
    /// let mut txn = db.begin();
    /// txn.put(&prices, b"bolts", b"12")?;
    /// txn.put(&prices, b"bolts", b"15")?;
    /// assert_eq!(txn.get(&prices, b"bolts")?, Some(b"15".to_vec()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::insert`], without [`Error::KeyExists`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, value, Expect::Anything)
    }

    /// Replaces the value of a record.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let prices = db.table("prices")?;
    /// let mut txn = db.begin();
    /// txn.insert(&prices, b"bolts", b"12")?;
    /// txn.update(&prices, b"bolts", b"15")?;
    /// let missing = txn.update(&prices, b"nuts", b"9");
    /// assert!(matches!(missing, Err(duramen::Error::KeyNotFound)));
    /// assert!(!txn.contains(&prices, b"nuts")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyNotFound`] if the key does not exist; otherwise as [`Txn::put`].
    pub fn update(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(table, key, value, Expect::Presence)
    }

    /// Removes a record; returns whether it existed.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let guests = db.table("guests")?;
    /// let mut txn = db.begin();
    /// txn.put(&guests, b"alice", b"table 4")?;
    /// assert!(txn.delete(&guests, b"alice")?);
    /// assert!(!txn.delete(&guests, b"alice")?); // it was gone already
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::KeyTooLarge`], [`Error::NoSuchTable`], [`Error::ForeignTable`]; [`Error::Full`],
    /// [`Error::Deadlock`] and the others that leave only an abort.
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        cost::work(sim_cost::WRITE);
        self.check_usable()?;
        let result = self.delete_locked(table, key);
        self.record_outcome(result)
    }

    /// Writes a catalog record; the transaction holds the lock on the catalog.
    pub(crate) fn put_raw(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_usable()?;
        let locked = self.lock(LockId::record(tree.table, key), LockMode::Exclusive);
        let result = locked.and_then(|()| self.write_at(tree, key, value, Expect::Anything));
        self.record_outcome(result)
    }

    /// Deletes a catalog record; the transaction holds the lock on the catalog.
    pub(crate) fn delete_raw(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        self.check_usable()?;
        let locked = self.lock(LockId::record(tree.table, key), LockMode::Exclusive);
        let result = locked.and_then(|()| self.delete_at(tree, key));
        self.record_outcome(result)
    }

    fn write(&mut self, table: &Table, key: &[u8], value: &[u8], expect: Expect) -> Result<()> {
        cost::work(sim_cost::WRITE);
        self.check_usable()?;
        let result = self.write_locked(table, key, value, expect);
        self.record_outcome(result)
    }

    fn write_locked(&mut self, table: &Table, key: &[u8], value: &[u8], expect: Expect) -> Result<()> {
        check_key(key)?;
        check_value(value)?;
        let tree = self.enter_table(table, LockMode::IntentExclusive)?;
        let record = LockId::record(tree.table, key);
        self.engine.versions.expect_push(record);
        self.lock(record, LockMode::Exclusive)?;
        self.write_at(tree, key, value, expect)
    }

    fn write_at(&mut self, tree: Tree, key: &[u8], value: &[u8], expect: Expect) -> Result<()> {
        if key.len() + value.len() <= MAX_INLINE_SIZE {
            return self.write_leaf(tree, key, value, SlotFlags::NONE, expect);
        }
        // The chain is written before the leaf refers to it, so first check that the leaf will.
        let (_, store, context) = self.parts();
        let found = store.lookup(tree, key, &mut context.value)?;
        match (expect, found) {
            (Expect::Absence, Lookup::Record(_)) => return Err(Error::KeyExists),
            (Expect::Presence, Lookup::Ghost | Lookup::Absent) => return self.not_found(tree, key),
            _ => {}
        }
        let (engine, store, context) = self.parts();
        let reference =
            store.write_overflow_chain(&mut ChainLog { engine, log: &mut context.log }, tree.table, value)?;
        self.write_leaf(tree, key, &reference.encode(), SlotFlags::OVERFLOW, expect)
    }

    /// Returns the error of an absent key, after making sure that no other transaction inserts the
    /// key while this one runs.
    fn not_found<T>(&mut self, tree: Tree, key: &[u8]) -> Result<T> {
        if self.isolation == Isolation::Serializable {
            self.look_and_lock_gap(tree, key)?;
        }
        Err(Error::KeyNotFound)
    }

    fn write_leaf(&mut self, tree: Tree, key: &[u8], payload: &[u8], flags: SlotFlags, expect: Expect) -> Result<()> {
        let mut passage = None;
        let result = self.write_leaf_through(tree, key, payload, flags, expect, &mut passage);
        if let Some(passage) = passage {
            let (engine, _, context) = self.parts();
            passage.end(engine, context);
        }
        result
    }

    /// Does the work of [`Self::write_leaf`]; the caller ends the passage.
    fn write_leaf_through(
        &mut self,
        tree: Tree,
        key: &[u8],
        payload: &[u8],
        flags: SlotFlags,
        expect: Expect,
        passage: &mut Option<Passage>,
    ) -> Result<()> {
        let mut backoff = Backoff::new();
        loop {
            self.reserve_log(key.len() + payload.len())?;
            let (engine, store, context) = self.parts();
            let leaf = store.leaf_exclusive(tree, key)?;
            let (slot, found) = Node(&leaf[..]).lower_bound(key);
            let present = found && !Node(&leaf[..]).is_ghost(slot);
            match expect {
                Expect::Absence if present => return Err(Error::KeyExists),
                Expect::Presence if !present => {
                    drop(leaf);
                    return self.not_found(tree, key);
                }
                _ => {}
            }
            let entry = Entry { tree, key, payload, flags };
            let attempt = if found {
                change_slot(engine, context, leaf, slot, entry)?
            } else {
                insert_slot(engine, context, leaf, slot, entry)?
            };
            match attempt {
                Attempt::Done => return Ok(()),
                Attempt::Again => backoff.snooze(),
                Attempt::Gap(gap) => {
                    reach(Probe::InsertionWaitedForGap);
                    // This is another gap: an insertion has divided the one that the previous wait
                    // was for.
                    if let Some(passed) = passage.take() {
                        passed.end(engine, context);
                    }
                    let before = context.locks.held(gap);
                    self.lock(gap, LockMode::IntentExclusive)?;
                    *passage = Some(Passage { gap, before });
                }
            }
        }
    }

    fn reserve_log(&mut self, bytes: usize) -> Result<()> {
        let (engine, _, context) = self.parts();
        engine.reserve_log(&mut context.log, bytes)
    }

    fn delete_locked(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let tree = self.enter_table(table, LockMode::IntentExclusive)?;
        self.lock(LockId::record(tree.table, key), LockMode::Exclusive)?;
        self.delete_at(tree, key)
    }

    fn delete_at(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        self.reserve_log(key.len())?;
        let (engine, store, context) = self.parts();
        let mut leaf = store.leaf_exclusive(tree, key)?;
        let node = Node(&leaf[..]);
        let (slot, found) = node.lower_bound(key);
        if !found || node.is_ghost(slot) {
            drop(leaf);
            return match self.not_found(tree, key) {
                Err(Error::KeyNotFound) => Ok(false),
                other => other,
            };
        }
        let flags = node.flags(slot);
        let free = overflow_chain_of(node.value(slot), flags);
        engine.versions.push(&mut context.versions, tree.table, key, unchanged(&node, slot), true);
        context.log.update(engine.scheme(), &engine.txns, &mut leaf, Some(Deletion::ONE), |_, out| {
            let undo = Undo::Change { tree, key, at: 0, remove: 0, add: &[], flags };
            let flags = flags.with(SlotFlags::GHOST);
            out.put(&undo, PageOp::Change { slot: number(slot), at: 0, remove: 0, add: &[], flags })
        });
        drop(leaf);
        if let Some(free) = free {
            context.log.free_on_commit(engine.scheme(), &engine.txns, free);
        }
        Ok(true)
    }
}

/// Gives the record (or ghost) at `slot` a new value.
fn change_slot<'s>(
    engine: &'s Engine,
    context: &mut Context,
    mut leaf: Exclusive<'s>,
    slot: usize,
    entry: Entry<'_>,
) -> Result<Attempt> {
    let Entry { tree, key, payload, flags } = entry;
    let node = Node(&leaf[..]);
    let old_flags = node.flags(slot);
    if !node.room_for_value(slot, payload.len()) {
        return enlarge(engine, context, leaf, entry);
    }
    let free = overflow_chain_of(node.value(slot), old_flags);
    engine.versions.push(&mut context.versions, tree.table, key, unchanged(&node, slot), false);
    context.log.update(engine.scheme(), &engine.txns, &mut leaf, None, |leaf, out| {
        let old = Node(leaf).value(slot);
        let (at, old_part, new_part) = difference(old, payload);
        let add = &old[at..at + old_part];
        let at = number(at);
        let undo = Undo::Change { tree, key, at, remove: number(new_part.len()), add, flags: old_flags };
        let remove = number(old_part);
        out.put(&undo, PageOp::Change { slot: number(slot), at, remove, add: new_part, flags })
    });
    drop(leaf);
    if let Some(free) = free {
        context.log.free_on_commit(engine.scheme(), &engine.txns, free);
    }
    Ok(Attempt::Done)
}

/// Adds a record at an unused key, if no other transaction protects the gap.
fn insert_slot<'s>(
    engine: &'s Engine,
    context: &mut Context,
    mut leaf: Exclusive<'s>,
    slot: usize,
    entry: Entry<'_>,
) -> Result<Attempt> {
    let (store, Entry { tree, key, payload, flags }) = (&engine.store, entry);
    let next = match next_key(store, tree, &leaf, slot, &mut context.key) {
        Ok(next) => next,
        Err(Interrupt::Restart) => return Ok(Attempt::Again),
        Err(Interrupt::Failed(error)) => return Err(error.into()),
    };
    let gap = Txn::gap(tree, next.then_some(&context.key[..]));
    if !planted!(SkipGapLock) {
        if !engine.locks.is_grantable(&context.locks, gap, LockMode::IntentExclusive) {
            return Ok(Attempt::Gap(gap));
        }
        // The new key divides the gap: a transaction that protects the whole gap must protect both
        // parts.
        let inherits = context.locks.held(gap).is_some_and(|held| held.covers(LockMode::Shared));
        let lower_part = LockId::gap(tree.table, key);
        if inherits && !engine.locks.try_acquire(&mut context.locks, lower_part, LockMode::Shared) {
            drop(leaf);
            let waited = engine.locks.acquire(&mut context.locks, lower_part, LockMode::Shared);
            return again(engine, context, waited);
        }
    }
    if !Node(&leaf[..]).room_for(key.len(), payload.len()) {
        return enlarge(engine, context, leaf, entry);
    }
    engine.versions.push(&mut context.versions, tree.table, key, Before::Absent, false);
    context.log.update(engine.scheme(), &engine.txns, &mut leaf, None, |_, out| {
        out.put(&Undo::Insert { tree, key }, PageOp::Insert { slot: number(slot), key, value: payload, flags })
    });
    Ok(Attempt::Done)
}

/// Frees space in a leaf for the entry: removes ghosts, or splits the leaf if it has none to
/// remove.
fn enlarge<'s>(engine: &'s Engine, context: &mut Context, leaf: Exclusive<'s>, entry: Entry<'_>) -> Result<Attempt> {
    let (store, Entry { tree, key, payload, .. }) = (&engine.store, entry);
    let mut logged = 0;
    // A transaction that has locked the whole table has no locks on the records that it has deleted
    // (`delete_range.rs`).
    let has_table = context.locks.held(LockId::table(tree.table)).is_some_and(|held| held.covers(LockMode::Exclusive));
    let enlarged = match store.purge_leaf(leaf, |key| !has_table && engine.purging().is_purgeable(tree, key)) {
        Ok(purged) => {
            logged = purged.bytes;
            Ok(())
        }
        Err(leaf) => {
            drop(leaf);
            store.split_leaf(tree, key, payload.len(), Purpose::Work, &mut logged)
        }
    };
    context.log.charge(logged);
    enlarged?;
    Ok(Attempt::Again)
}

/// The transaction waited for a lock without the latch, so the caller must search again.
fn again(engine: &Engine, context: &Context, waited: std::result::Result<(), LockError>) -> Result<Attempt> {
    match waited {
        Ok(()) => Ok(Attempt::Again),
        Err(error) => Err(engine.lock_error(context.locks.txn(), error)),
    }
}

/// Returns the record at a slot as a snapshot sees it that does not see the change to come.
fn unchanged<'a>(node: &Node<&'a [u8]>, slot: usize) -> Before<'a> {
    match node.flags(slot) {
        flags if flags.contains(SlotFlags::GHOST) => Before::Ghost(node.value(slot)),
        flags => Before::Value(node.value(slot), flags),
    }
}

/// Returns the overflow chain that a record refers to. The chain of a ghost belongs to the
/// transaction that made the record a ghost.
pub(super) fn overflow_chain_of(value: &[u8], flags: SlotFlags) -> Option<DeferredFree> {
    if !flags.contains(SlotFlags::OVERFLOW) || flags.contains(SlotFlags::GHOST) {
        return None;
    }
    let reference = Reference::decode(value)?;
    Some(DeferredFree::OverflowChain { head: reference.head, chain: reference.chain })
}

/// Puts the key (ghosts included) that follows `slot - 1` into `next`; returns `false` if there is
/// none. The leaf is latched, which keeps the answer true for the keys in it; an insertion into a
/// later leaf must pass the same gap lock.
fn next_key(
    store: &Store,
    tree: Tree,
    leaf: &Exclusive<'_>,
    slot: usize,
    next: &mut Vec<u8>,
) -> std::result::Result<bool, Interrupt> {
    let node = Node(&leaf[..]);
    if slot < node.slot_count() {
        node.key_into(slot, next);
        return Ok(true);
    }
    if !node.upper_fence_into(next) {
        return Ok(false);
    }
    match store.first_key_above(tree, std::mem::take(next), &mut Vec::new())? {
        Some(key) => {
            *next = key;
            Ok(true)
        }
        None => Ok(false),
    }
}
