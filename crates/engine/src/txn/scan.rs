//! Range scans in both directions.
//!
//! A scan reads a batch of records from a leaf optimistically and takes the locks for all of them
//! (waiting where it must; it holds no latch). Then it validates the versions of all leaves that it
//! has read since the last record it returned. If one has changed, the scan reads again with the
//! locks held and a smaller batch. A batch that passes validation is exactly what the leaves held
//! at a moment when all the locks were held.
//!
//! A serializable scan locks each key, ghosts included, and the gap below it. An ascending scan
//! also locks the gap that ends the range; a descending scan first locks the gap above the range. A
//! read-committed scan holds the record locks of a batch only while it reads the batch, and
//! validates only the leaf that the records come from.
//!
//! # Escalation
//! A serializable scan that has locked many records ([`crate::Options::lock_escalation`]) locks the
//! table as a whole, if no other transaction writes to it at that moment. It then takes no more
//! locks, and reads a leaf at a time. Otherwise it goes on with keys and gaps, and tries again
//! after as many records. So it does not wait for the lock of the table, and most of a long scan
//! needs neither time nor memory for locks.
//!
//! A scan that again and again steps over many empty leaves in a row, and then finds one of them
//! changed or out of the pool, does wait for the lock of the table ([`TooFar`]). Under that lock
//! only ghosts go away, so the leaves need not be seen at one moment.
//!
//! # Locked records
//! A scan that skips locked records reads one record at a time, locks it if the lock is free, and
//! passes over it otherwise. It locks no gap.

mod batch;

use std::ops::Bound;

use crate::sim_cost;
use duramen_sync::atomic::Ordering;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Backoff, cost};
use duramen_types::{Gsn, planted};

use super::Txn;
use super::delete_range::Rest;
use super::key_range::{self, KeyRange};
use crate::btree::{Direction, OUT_OF_ORDER, TooFar, step_down, step_up};
use crate::error::Result;
use crate::lock::{LockId, LockMode};
use crate::options::Isolation;
use crate::page::{Node, SlotFlags};
use crate::pool::{Interrupt, Optimistic, broken};
use crate::record::Tree;
use crate::storage::catalog::Table;
use crate::storage::overflow::Stored;
use crate::storage::store::Store;
use batch::Batch;

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests;

/// The most records of one batch.
const RECORDS: usize = 64;

/// The records of a range, in order. Made by [`Txn::scan`] and [`Txn::scan_rev`].
///
/// The first error ends the scan; it leaves the transaction as an error of [`Txn::get`] would.
#[derive(Debug)]
pub struct Scan<'t> {
    txn: &'t mut Txn,
    /// The table, until its tree is known.
    table: Option<Table>,
    tree: Option<Tree>,
    direction: Direction,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
    /// The last key processed.
    position: Option<Vec<u8>>,
    /// The records that were read and locked last.
    ready: Batch,
    /// The first of them that was not returned yet.
    at: usize,
    finished: bool,
    skips_locked: bool,
    /// Whether the records are about to be deleted: they are locked exclusively, to the end of the
    /// transaction, and their values are not read.
    deletes: bool,
    /// The most records that are read and locked at a time.
    batch: usize,
    /// Records that were locked one by one since the scan has last tried to lock the table.
    locked: usize,
}

/// The records of a range, in order, lent one at a time. Made by [`Txn::cursor`] and
/// [`Txn::cursor_rev`].
///
/// It copies a record once, from its leaf. The first error ends it; it leaves the transaction as an
/// error of [`Txn::get`] would.
#[derive(Debug)]
pub struct TxnCursor<'t>(Scan<'t>);

impl Txn {
    /// Returns the records whose keys lie in `range`, in ascending order.
    ///
    /// With [`Isolation::Serializable`] they are the records of one moment, and stay so until the
    /// transaction ends. With [`Isolation::ReadCommitted`] the scan consists of many reads at many
    /// moments: each record is as committed when it was read, but the result need never have
    /// existed as a whole at one moment.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// # let table = db.create_table("t")?;
    /// let mut txn = db.begin();
    /// txn.put(&table, b"apple", b"1")?;
    /// txn.put(&table, b"pear", b"2")?;
    /// let keys: Vec<_> = txn.scan(&table, b"a"..b"b").map(|item| item.unwrap().0).collect();
    /// assert_eq!(keys, [b"apple"]);
    /// # txn.commit()
    /// # }
    /// ```
    pub fn scan(&mut self, table: &Table, range: impl KeyRange) -> Scan<'_> {
        Scan::new(self, Some(table.clone()), range, Direction::Forward)
    }

    /// Returns a cursor over the records whose keys lie in `range`, in ascending order.
    /// [`Txn::scan`] describes which records it sees.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// let stock = db.table("stock")?;
    /// db.run(|txn| (0..10_u8).try_for_each(|item| txn.put(&stock, &[item], &[item; 100])))?;
    ///
    /// let mut txn = db.begin();
    /// let mut cursor = txn.cursor(&stock, [3_u8]..);
    /// let mut bytes = 0;
    /// while let Some((_, value)) = cursor.next()? {
    ///     bytes += value.len();
    /// }
    /// assert_eq!(bytes, 700);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor(&mut self, table: &Table, range: impl KeyRange) -> TxnCursor<'_> {
        TxnCursor(self.scan(table, range))
    }

    /// Returns a cursor over the records whose keys lie in `range`, in descending order.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let events = db.table("events")?;
    /// db.run(|txn| (0..10_u8).try_for_each(|day| txn.put(&events, &[day], b"...")))?;
    ///
    /// let mut txn = db.begin();
    /// let mut cursor = txn.cursor_rev(&events, [5_u8]..[8_u8]);
    /// let mut days = Vec::new();
    /// while let Some((day, _)) = cursor.next()? {
    ///     days.push(day[0]);
    /// }
    /// assert_eq!(days, [7, 6, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cursor_rev(&mut self, table: &Table, range: impl KeyRange) -> TxnCursor<'_> {
        TxnCursor(self.scan_rev(table, range))
    }

    /// Returns the records whose keys lie in `range` and on which no other transaction has a lock,
    /// in ascending order, each locked exclusively (`SKIP LOCKED`). It never waits for the lock of
    /// a record. Transactions that each take the first of them share a queue: no two get the same
    /// record. A record is read and locked when the iteration reaches it.
    ///
    /// What is skipped depends on the moment, so this is no serializable view of the range: the
    /// records that it returns are as they are committed, and stay so until the transaction ends.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// let jobs = db.create_table("jobs")?;
    /// db.run(|txn| (0..3_u8).try_for_each(|job| txn.put(&jobs, &[job], b"to do")))?;
    ///
    /// let (mut one, mut other) = (db.begin(), db.begin());
    /// let (first, _) = one.scan_skip_locked(&jobs, ..).next().unwrap()?;
    /// let (second, _) = other.scan_skip_locked(&jobs, ..).next().unwrap()?;
    /// assert_eq!((first, second), (vec![0], vec![1]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_skip_locked(&mut self, table: &Table, range: impl KeyRange) -> Scan<'_> {
        Scan { skips_locked: true, batch: 1, ..Scan::new(self, Some(table.clone()), range, Direction::Forward) }
    }

    /// Returns the records whose keys begin with `prefix`, in ascending order. [`Txn::scan`]
    /// describes which records the scan sees.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let names = db.table("names")?;
    /// let mut txn = db.begin();
    /// for key in ["film/Metropolis", "film/Vertigo", "person/Lang"] {
    ///     txn.put(&names, key.as_bytes(), b"...")?;
    /// }
    /// let films = txn.scan_prefix(&names, b"film/").map(|item| item.unwrap().0);
    /// assert_eq!(films.collect::<Vec<_>>(), [&b"film/Metropolis"[..], &b"film/Vertigo"[..]]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_prefix(&mut self, table: &Table, prefix: &[u8]) -> Scan<'_> {
        self.scan(table, key_range::of_prefix(prefix))
    }

    /// Returns the record with the lowest key, and locks what keeps it the lowest.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// db.run(|txn| (17..20_u8).try_for_each(|number| txn.put(&orders, &[number], b"...")))?;
    ///
    /// let mut txn = db.begin();
    /// let (oldest, _) = txn.first(&orders)?.unwrap();
    /// assert_eq!(oldest, [17]);
    /// txn.delete(&orders, &oldest)?;
    /// assert_eq!(txn.first(&orders)?, Some((vec![18], b"...".to_vec())));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn first(&mut self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.one_of(table, Direction::Forward)
    }

    /// Returns the record with the highest key, and locks what keeps it the highest.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// db.run(|txn| txn.insert(&orders, &[17], b"bolts"))?;
    ///
    /// let mut txn = db.begin();
    /// let next = txn.last(&orders)?.map_or(0, |(number, _)| number[0] + 1);
    /// assert_eq!(next, 18);
    /// txn.insert(&orders, &[next], b"nuts")?; // no other transaction can take this number
    /// txn.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    pub fn last(&mut self, table: &Table) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        self.one_of(table, Direction::Backward)
    }

    fn one_of(&mut self, table: &Table, direction: Direction) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        Scan { batch: 1, ..Scan::new(self, Some(table.clone()), .., direction) }.next().transpose()
    }

    /// Returns a scan of the records in `range` that is to delete them.
    pub(super) fn scan_to_delete(&mut self, table: &Table, range: impl KeyRange) -> Scan<'_> {
        Scan { deletes: true, ..Scan::new(self, Some(table.clone()), range, Direction::Forward) }
    }

    /// Returns all records of a tree that the transaction has locked as a whole.
    pub(super) fn scan_tree(&mut self, tree: Tree) -> Scan<'_> {
        Scan { tree: Some(tree), ..Scan::new(self, None, .., Direction::Forward) }
    }

    /// Returns the records whose keys lie in `range`, in descending order. [`Txn::scan`] describes
    /// which records the scan sees.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let events = db.table("events")?;
    /// db.run(|txn| (0..10_u8).try_for_each(|day| txn.put(&events, &[day], b"...")))?;
    ///
    /// let mut txn = db.begin();
    /// let mut days = txn.scan_rev(&events, ..=[7_u8]).map(|item| item.unwrap().0);
    /// assert_eq!(days.next(), Some(vec![7]));
    /// assert_eq!(days.next(), Some(vec![6]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn scan_rev(&mut self, table: &Table, range: impl KeyRange) -> Scan<'_> {
        Scan::new(self, Some(table.clone()), range, Direction::Backward)
    }
}

impl<'t> Scan<'t> {
    fn new(txn: &'t mut Txn, table: Option<Table>, range: impl KeyRange, direction: Direction) -> Self {
        let (lower, upper) = range.into_bounds();
        Self {
            txn,
            table,
            tree: None,
            direction,
            lower,
            upper,
            position: None,
            ready: Batch::default(),
            at: 0,
            finished: false,
            skips_locked: false,
            deletes: false,
            batch: RECORDS,
            locked: 0,
        }
    }

    /// Reads and locks until the scan has a record to return, or the range is exhausted.
    fn fill(&mut self) -> Result<()> {
        self.txn.check_usable()?;
        if let Some(table) = self.table.take() {
            let intent =
                if self.skips_locked || self.deletes { LockMode::IntentExclusive } else { LockMode::IntentShared };
            self.tree = Some(self.txn.enter_table(&table, intent)?);
        }
        let tree = self.tree.expect("a scan has a table or a tree");
        if is_empty_range(&self.lower, &self.upper) {
            self.finished = true;
            return Ok(());
        }
        let engine = self.txn.engine.clone();
        let table = LockId::table(tree.table);
        let mut is_escalated = self.locks_to_the_end() && self.txn.holds(table, self.mode());
        let mut limit = if is_escalated { usize::MAX } else { self.batch };
        let mut backoff = Backoff::new();
        let mut too_far = TooFar::new();
        let mut batch = std::mem::take(&mut self.ready);
        self.at = 0;
        loop {
            batch.clear();
            let mut seen = Vec::new();
            let looked = match self.direction {
                Direction::Forward => self.look_forward(&engine.store, tree, limit, &mut seen, &mut batch),
                Direction::Backward => self.look_backward(&engine.store, tree, limit, &mut seen, &mut batch),
            };
            match looked {
                Ok(()) => {}
                Err(Interrupt::Restart) => {
                    backoff.snooze();
                    continue;
                }
                Err(Interrupt::Failed(error)) => return Err(error.into()),
            }
            let mut locked = None;
            let mut momentary = Vec::new();
            if self.skips_locked {
                locked = self.lock_if_free(tree, &mut batch);
            } else if !is_escalated {
                momentary = self.lock_batch(tree, &batch)?;
            }
            let unchanged = planted!(GapTrustedUnseen) || {
                // The last leaf is the one that the records come from.
                let passed = if self.is_serializable() && !is_escalated { 0 } else { seen.len() - 1 };
                seen[passed..].iter().all(|leaf| leaf.validate().is_ok())
            };
            if unchanged {
                // Any of these transactions may have deleted a record of the range without leaving
                // a lock behind.
                let pre_committed = Gsn::new(engine.pre_committed.load(Ordering::Acquire));
                self.txn.parts().2.locks.saw(pre_committed);
            }
            let accepted = if unchanged {
                self.accept(&engine.store, tree, &mut batch)
            } else {
                momentary.extend(locked);
                Ok(())
            };
            let (engine, _, context) = self.txn.parts();
            for id in momentary {
                engine.locks.release_one(&mut context.locks, id);
            }
            accepted?;
            if unchanged {
                if !batch.is_empty() || self.finished {
                    self.ready = batch;
                    return Ok(());
                }
            } else {
                limit = (limit / 2).max(1);
                backoff.snooze();
                if self.is_serializable() && !is_escalated && too_far.is_reached(seen.len()) {
                    reach(Probe::TableLockedForLeaves);
                    self.txn.lock(table, self.mode())?;
                    is_escalated = true;
                }
            }
        }
    }

    /// Takes the locks that the isolation level requires; returns those to be released once the
    /// batch has been read.
    fn lock_batch(&mut self, tree: Tree, batch: &Batch) -> Result<Vec<LockId>> {
        let (serializable, to_the_end, mode) = (self.is_serializable(), self.locks_to_the_end(), self.mode());
        let mut momentary = Vec::new();
        for key in batch.keys() {
            let record = LockId::record(tree.table, key);
            if serializable {
                self.txn.lock(LockId::gap(tree.table, key), LockMode::Shared)?;
            }
            if !to_the_end && self.txn.context().locks.held(record).is_none() {
                momentary.push(record);
            }
            self.txn.lock(record, mode)?;
        }
        if serializable && let Some(boundary) = &batch.boundary {
            self.txn.lock(Txn::gap(tree, boundary.as_deref()), LockMode::Shared)?;
        }
        momentary.dedup();
        self.locked += batch.len();
        let (engine, _, context) = self.txn.parts();
        if to_the_end && self.locked >= engine.options.lock_escalation {
            self.locked = 0;
            if engine.locks.try_acquire(&mut context.locks, LockId::table(tree.table), mode) {
                reach(if self.deletes { Probe::DeletionEscalated } else { Probe::ScanEscalated });
            }
        }
        Ok(momentary)
    }

    fn is_serializable(&self) -> bool {
        self.txn.isolation == Isolation::Serializable && !self.skips_locked
    }

    /// Returns whether the records of the scan stay locked until the transaction ends.
    fn locks_to_the_end(&self) -> bool {
        self.is_serializable() || self.deletes
    }

    /// Returns the mode in which the scan locks records.
    fn mode(&self) -> LockMode {
        if self.deletes { LockMode::Exclusive } else { LockMode::Shared }
    }

    /// Reads and locks the next records that are to be deleted, and calls `delete` with their keys;
    /// returns their number, which is zero at the end of the range.
    pub(super) fn delete_next(&mut self, delete: impl FnOnce(&mut Txn, Tree, &[&[u8]]) -> Result<()>) -> Result<usize> {
        self.ready.clear();
        if !self.finished {
            self.fill()?;
        }
        let keys: Vec<&[u8]> = self.ready.keys().collect();
        if let (Some(tree), false) = (self.tree, keys.is_empty()) {
            delete(self.txn, tree, &keys)?;
        }
        Ok(keys.len())
    }

    /// Returns what is left of the range behind the records deleted last, if the transaction has
    /// locked the table as a whole.
    pub(super) fn rest_in_locked_table(&mut self) -> Option<Rest> {
        let tree = self.tree.filter(|tree| self.txn.holds(LockId::table(tree.table), LockMode::Exclusive))?;
        let position = self.position.as_ref().filter(|_| !self.finished)?;
        let engine = &self.txn.engine;
        // Any of these transactions may have deleted a record of the range without leaving a lock
        // behind.
        let pre_committed = Gsn::new(engine.pre_committed.load(Ordering::Acquire));
        let rest = Rest::behind(tree, position, self.upper.clone());
        self.txn.parts().2.locks.saw(pre_committed);
        Some(rest)
    }

    /// Locks the record of a batch of one, if that needs no wait, and otherwise makes it count as
    /// none. Returns a lock that is to be released if the batch must be read again.
    fn lock_if_free(&mut self, tree: Tree, batch: &mut Batch) -> Option<LockId> {
        let first = batch.first()?;
        let id = LockId::record(tree.table, first.key);
        let (engine, _, context) = self.txn.parts();
        let is_new = context.locks.held(id).is_none();
        let is_ghost = first.flags.contains(SlotFlags::GHOST);
        if is_ghost || !engine.locks.try_acquire(&mut context.locks, id, LockMode::Exclusive) {
            batch.pass_over_first();
            return None;
        }
        is_new.then_some(id)
    }

    /// Accepts a validated batch, whose records the caller gets.
    fn accept(&mut self, store: &Store, tree: Tree, batch: &mut Batch) -> Result<()> {
        self.finished = batch.last;
        if let Some(last) = batch.last_key() {
            let position = self.position.get_or_insert_default();
            position.clear();
            position.extend_from_slice(last);
        }
        batch.drop_ghosts();
        if self.deletes {
            return Ok(());
        }
        batch.fetch_large(|reference| Ok(Stored::new(tree, reference, SlotFlags::OVERFLOW)?.whole(store)?.into_owned()))
    }

    /// Makes sure that there is a record to return; returns `false` at the end of the range.
    fn advance(&mut self) -> Result<bool> {
        cost::work(sim_cost::SCAN_STEP);
        if self.at == self.ready.len() && !self.finished {
            let filled = self.fill();
            if let Err(error) = self.txn.record_outcome(filled) {
                self.finished = true;
                self.ready.clear();
                self.at = 0;
                return Err(error);
            }
        }
        Ok(self.at < self.ready.len())
    }

    fn look_forward<'s>(
        &self,
        store: &'s Store,
        tree: Tree,
        limit: usize,
        seen: &mut Vec<Optimistic<'s>>,
        batch: &mut Batch,
    ) -> Result<(), Interrupt> {
        let (mut from, mut skip_equal) = match (&self.position, &self.lower) {
            (Some(position), _) => (position.clone(), true),
            (None, Bound::Included(key)) => (key.clone(), false),
            (None, Bound::Excluded(key)) => (key.clone(), true),
            (None, Bound::Unbounded) => (Vec::new(), false),
        };
        loop {
            let leaf = store.leaf(tree, &from)?;
            let node = Node(leaf.page());
            let (mut slot, found) = node.lower_bound(&from);
            slot += usize::from(found && skip_equal);
            while slot < node.slot_count() && batch.len() < limit && !batch.is_heavy() && batch.boundary.is_none() {
                if is_above(batch.push(&node, slot, !self.deletes), &self.upper) {
                    batch.boundary = Some(batch.pop());
                }
                slot += 1;
            }
            leaf.validate()?;
            check_order(&leaf, batch.last_key(), |last| *last > from[..] || *last == from[..] && !skip_equal)?;
            if batch.boundary.is_none() && batch.is_empty() {
                skip_equal = false;
                if step_up(&leaf, &mut from)? {
                    seen.push(leaf);
                    continue;
                }
                batch.boundary = Some(None);
            }
            seen.push(leaf);
            batch.last = batch.boundary.is_some();
            return Ok(());
        }
    }

    fn look_backward<'s>(
        &self,
        store: &'s Store,
        tree: Tree,
        limit: usize,
        seen: &mut Vec<Optimistic<'s>>,
        batch: &mut Batch,
    ) -> Result<(), Interrupt> {
        // The scan takes entries below this key, or up to it.
        let (mut below, mut include_equal) = match (&self.position, &self.upper) {
            (Some(position), _) => (Some(position.clone()), false),
            (None, Bound::Included(key)) => (Some(key.clone()), true),
            (None, Bound::Excluded(key)) => (Some(key.clone()), false),
            (None, Bound::Unbounded) => (None, false),
        };
        let mut boundary_missing = self.position.is_none() && self.is_serializable();
        loop {
            let leaf = match &below {
                Some(key) => store.leaf(tree, key)?,
                None => store.last_leaf(tree)?,
            };
            let node = Node(leaf.page());
            let mut slot = match &below {
                Some(key) => {
                    let (slot, found) = node.lower_bound(key);
                    slot + usize::from(found && include_equal)
                }
                None => node.slot_count(),
            };
            let above = slot;
            while slot > 0 && batch.len() < limit && !batch.is_heavy() && !batch.last {
                slot -= 1;
                if is_below(batch.push(&node, slot, true), &self.lower) {
                    batch.pop();
                    batch.last = true;
                }
            }
            leaf.validate()?;
            let is_further =
                |last: &[u8]| below.as_ref().is_none_or(|key| *last < key[..] || *last == key[..] && include_equal);
            check_order(&leaf, batch.last_key(), is_further)?;
            let mut is_passed = false;
            if batch.is_empty() && !batch.last {
                include_equal = true;
                is_passed = step_down(&leaf, &mut below)?;
                batch.last = !is_passed;
            }
            // On the way to the key above, this leaf may go.
            if boundary_missing {
                batch.boundary = Some(store.key_at_or_above(tree, leaf, above, seen)?);
                boundary_missing = false;
            }
            seen.push(leaf);
            if !is_passed {
                return Ok(());
            }
        }
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(false) => None,
            Ok(true) => {
                let record = self.ready.record(self.at);
                self.at += 1;
                Some(Ok((record.key.to_vec(), record.value.to_vec())))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl TxnCursor<'_> {
    /// Returns the next record, or none at the end of the range.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let stock = db.table("stock")?;
    /// let mut txn = db.begin();
    /// txn.put(&stock, b"nuts", b"25")?;
    /// txn.put(&stock, b"bolts", b"40")?;
    ///
    /// let mut cursor = txn.cursor(&stock, ..);
    /// assert_eq!(cursor.next()?, Some((&b"bolts"[..], &b"40"[..])));
    /// assert_eq!(cursor.next()?, Some((&b"nuts"[..], &b"25"[..])));
    /// assert_eq!(cursor.next()?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Txn::get`].
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let scan = &mut self.0;
        if !scan.advance()? {
            return Ok(None);
        }
        let record = scan.ready.record(scan.at);
        scan.at += 1;
        Ok(Some((record.key, record.value)))
    }
}

/// Returns an error if the last of the records read from a leaf does not get the scan further.
fn check_order(
    leaf: &Optimistic<'_>,
    last: Option<&[u8]>,
    is_further: impl FnOnce(&[u8]) -> bool,
) -> Result<(), Interrupt> {
    match last {
        Some(key) if !is_further(key) => Err(broken(leaf.id(), OUT_OF_ORDER).into()),
        _ => Ok(()),
    }
}

fn is_above(key: &[u8], upper: &Bound<Vec<u8>>) -> bool {
    match upper {
        Bound::Included(limit) => key > &limit[..],
        Bound::Excluded(limit) => key >= &limit[..],
        Bound::Unbounded => false,
    }
}

fn is_below(key: &[u8], lower: &Bound<Vec<u8>>) -> bool {
    match lower {
        Bound::Included(limit) => key < &limit[..],
        Bound::Excluded(limit) => key <= &limit[..],
        Bound::Unbounded => false,
    }
}

/// Returns whether no key at all can lie between the bounds.
fn is_empty_range(lower: &Bound<Vec<u8>>, upper: &Bound<Vec<u8>>) -> bool {
    match (lower, upper) {
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
            lower >= upper
        }
        _ => false,
    }
}
