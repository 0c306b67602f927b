//! Deletes the records of a range.
//!
//! A scan locks the records exclusively, and the gaps between them as every serializable scan does,
//! or the whole table once there are many ([`crate::Options::lock_escalation`]). Then the records
//! of one leaf are deleted together: one operation marks them as ghosts, and one record in the log
//! has their keys. Once the table is locked, no scan is needed any more: the records are found
//! under the latch of their leaf. Snapshots still find the old values, which the ghosts have; these
//! are purged when no snapshot needs them any more, leaf by leaf.

use std::ops::Bound;

use super::Txn;
use super::key_range::KeyRange;
use super::write::overflow_chain_of;
use crate::btree::{OUT_OF_ORDER, number};
use crate::engine::Engine;
use crate::error::Result;
use crate::page::{self, Node, SlotFlags};
use crate::pool::{Exclusive, broken};
use crate::record::{FlagRun, KeyList, PageOp, Tree, Undo};
use crate::storage::catalog::Table;
use crate::txn_state::context_pool::Context;
use crate::txn_state::log::{Deletion, TxnLog};
use crate::version::Deleted;

/// The most records that are deleted with one operation.
const MOST_RECORDS: usize = 128;

/// The most bytes of keys that are deleted with one operation, unless it deletes one record only.
/// It and its undo information must fit into a journal of the scheme `in-place`.
const MOST_BYTES: usize = 3 << 10;

impl Txn {
    /// Removes all records whose keys lie in `range`; returns their number. With
    /// [`crate::Isolation::Serializable`] no other transaction adds a record to the range until
    /// this transaction ends.
    ///
    /// Much cheaper than deleting the records one by one. If it has to delete many records
    /// ([`crate::Options::lock_escalation`]) and no other transaction uses the table, it locks the
    /// whole table. To remove all records of a table at once, use [`crate::Db::truncate_table`].
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let db = duramen::Db::open(home.path(), duramen::Options::default())?;
    /// let events = db.create_table("events")?;
    /// db.run(|txn| (0..100_u8).try_for_each(|day| txn.put(&events, &[day], b"...")))?;
    ///
    /// let mut txn = db.begin();
    /// assert_eq!(txn.delete_range(&events, [0_u8]..[90_u8])?, 90);
    /// txn.commit()?;
    /// # assert_eq!(db.begin().scan(&events, ..).count(), 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::NoSuchTable`], [`crate::Error::ForeignTable`]; [`crate::Error::Full`],
    /// [`crate::Error::Deadlock`] and the others that leave only an abort.
    pub fn delete_range(&mut self, table: &Table, range: impl KeyRange) -> Result<u64> {
        self.check_usable()?;
        let result = self.delete_range_locked(table, range);
        self.record_outcome(result)
    }

    fn delete_range_locked(&mut self, table: &Table, range: impl KeyRange) -> Result<u64> {
        let deletion = self.parts().2.log.begin_deletion();
        let mut scan = self.scan_to_delete(table, range);
        let mut deleted = 0;
        let rest = loop {
            match scan.delete_next(|txn, tree, keys| txn.delete_keys(tree, keys, deletion))? {
                0 => break None,
                count => deleted += count as u64,
            }
            if let Some(rest) = scan.rest_in_locked_table() {
                break Some(rest);
            }
        };
        if let Some(mut rest) = rest {
            while !rest.is_done {
                deleted += self.delete_rest(&mut rest, deletion)? as u64;
            }
        }
        Ok(deleted)
    }

    /// Deletes records that the transaction has locked, in the order of their keys.
    fn delete_keys(&mut self, tree: Tree, mut keys: &[&[u8]], deletion: Deletion) -> Result<()> {
        while !keys.is_empty() {
            let (mut count, mut bytes) = (0, 0);
            for key in keys.iter().take(MOST_RECORDS) {
                if count > 0 && bytes + key.len() > MOST_BYTES {
                    break;
                }
                (count, bytes) = (count + 1, bytes + key.len());
            }
            let done = self.delete_in_leaf(tree, &keys[..count], bytes, deletion)?;
            keys = &keys[done..];
        }
        Ok(())
    }

    /// Deletes those of the records, whose keys have `bytes`, that lie in the leaf of the first;
    /// returns their number.
    fn delete_in_leaf(&mut self, tree: Tree, keys: &[&[u8]], bytes: usize, deletion: Deletion) -> Result<usize> {
        let (engine, store, context) = self.parts();
        reserve(engine, context, keys.len(), bytes)?;
        let leaf = store.leaf_exclusive(tree, keys[0])?;
        let node = Node(&leaf[..]);
        let mut records = Vec::with_capacity(keys.len());
        let mut next = 0;
        for &key in keys {
            // Most records follow the one before.
            let (slot, found) = if next > 0 && next < node.slot_count() && node.compare_key(next, key).is_eq() {
                (next, true)
            } else if next > 0 && !node.contains(key) {
                break;
            } else {
                node.lower_bound(key)
            };
            if !found || node.is_ghost(slot) {
                return Err(broken(leaf.id(), "a record that is locked has vanished").into());
            }
            next = slot + 1;
            records.push((slot, key));
        }
        delete_slots(engine, context, tree, leaf, &records, deletion)?;
        Ok(records.len())
    }

    /// Deletes the next records of a table that the transaction has locked as a whole, all in one
    /// leaf; returns their number.
    fn delete_rest(&mut self, rest: &mut Rest, deletion: Deletion) -> Result<usize> {
        self.check_usable()?;
        let (engine, store, context) = self.parts();
        reserve(engine, context, MOST_RECORDS, MOST_BYTES)?;
        let leaf = store.leaf_exclusive(rest.tree, &rest.from)?;
        page::fetch_whole(&leaf);
        let node = Node(&leaf[..]);
        let first = node.lower_bound(&rest.from).0;
        let end = match &rest.upper {
            Bound::Included(key) => {
                let (slot, found) = node.lower_bound(key);
                slot + usize::from(found)
            }
            Bound::Excluded(key) => node.lower_bound(key).0,
            Bound::Unbounded => node.slot_count(),
        };
        let mut keys = Vec::with_capacity(MOST_BYTES);
        let mut found = Vec::with_capacity(MOST_RECORDS);
        let mut is_whole = true;
        for slot in (first..end).filter(|&slot| !node.is_ghost(slot)) {
            let start = keys.len();
            if found.len() == MOST_RECORDS || start + node.key_len(slot) > MOST_BYTES {
                is_whole = false;
                break;
            }
            node.append_key(slot, &mut keys);
            found.push((slot, start..keys.len()));
        }
        if is_whole {
            rest.step_behind(&leaf)?;
        } else {
            let (_, last) = found.last().expect("a leaf's key is not longer than the bound").clone();
            rest.begin_behind(&keys[last]);
        }
        let records: Vec<_> = found.into_iter().map(|(slot, key)| (slot, &keys[key])).collect();
        delete_slots(engine, context, rest.tree, leaf, &records, deletion)?;
        Ok(records.len())
    }
}

/// What is left of a range whose table the deleting transaction has locked as a whole: nobody else
/// changes its records, and its ghosts stay.
#[derive(Debug)]
pub(super) struct Rest {
    tree: Tree,
    /// The lowest key that may be left.
    from: Vec<u8>,
    upper: Bound<Vec<u8>>,
    is_done: bool,
}

impl Rest {
    /// Returns what lies behind `key`.
    pub(super) fn behind(tree: Tree, key: &[u8], upper: Bound<Vec<u8>>) -> Self {
        let mut rest = Self { tree, from: Vec::new(), upper, is_done: false };
        rest.begin_behind(key);
        rest
    }

    fn begin_behind(&mut self, key: &[u8]) {
        self.from.clear();
        self.from.extend_from_slice(key);
        self.from.push(0);
    }

    /// Goes on behind a leaf that covers the lowest key that was left.
    fn step_behind(&mut self, leaf: &Exclusive<'_>) -> Result<()> {
        let Some(fence) = Node(&leaf[..]).upper_fence() else {
            self.is_done = true;
            return Ok(());
        };
        if *fence < self.from[..] {
            return Err(broken(leaf.id(), OUT_OF_ORDER).into());
        }
        self.is_done = match &self.upper {
            Bound::Included(key) | Bound::Excluded(key) => key[..] <= *fence,
            Bound::Unbounded => false,
        };
        self.begin_behind(fence);
        Ok(())
    }
}

/// Reserves log space for the deletion of records, whose keys have `bytes`.
fn reserve(engine: &Engine, context: &mut Context, records: usize, bytes: usize) -> Result<()> {
    /// Bytes of a record's flags, its length and its slot in what is logged.
    const RECORD: usize = 16;
    let bytes = TxnLog::bytes_to_delete(engine.scheme(), records, bytes + records * RECORD);
    engine.reserve_log(&mut context.log, bytes)
}

/// Deletes records of a leaf together: each is given by its slot and its key.
fn delete_slots(
    engine: &Engine,
    context: &mut Context,
    tree: Tree,
    mut leaf: Exclusive<'_>,
    records: &[(usize, &[u8])],
    deletion: Deletion,
) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let node = Node(&leaf[..]);
    let (mut deleted, mut runs, mut frees) = (Vec::with_capacity(records.len()), Vec::new(), Vec::new());
    let mut before = Vec::with_capacity(records.len());
    let mut run: Option<FlagRun> = None;
    for &(slot, key) in records {
        let (flags, value) = (node.flags(slot), node.value(slot));
        let ghost = flags.with(SlotFlags::GHOST);
        frees.extend(overflow_chain_of(value, flags));
        before.push(Deleted { key, value, flags });
        run = match run {
            Some(run) if run.flags == ghost && run.slots().end == slot => Some(FlagRun { count: run.count + 1, ..run }),
            other => {
                if let Some(run) = other {
                    run.encode(&mut runs);
                }
                Some(FlagRun { slot: number(slot), count: 1, flags: ghost })
            }
        };
        deleted.push((key, flags));
    }
    if let Some(run) = run {
        run.encode(&mut runs);
    }
    engine.versions.push_deleted(&mut context.versions, tree.table, &before);
    let mut list = Vec::new();
    let undo = Undo::Delete { tree, keys: KeyList::of(&deleted, &mut list) };
    let together = (deletion, deleted.len());
    context.log.delete_together(engine.scheme(), &engine.txns, &mut leaf, together, |_, out| {
        out.put(&undo, PageOp::SetFlags { runs: &runs })
    });
    drop(leaf);
    for free in frees {
        engine.reserve_log(&mut context.log, 0)?;
        context.log.free_on_commit(engine.scheme(), &engine.txns, free);
    }
    Ok(())
}
