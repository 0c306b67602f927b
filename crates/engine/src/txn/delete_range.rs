//! Deletes the records of a range.
//!
//! A scan locks the records exclusively, and the gaps between them as every serializable scan does,
//! or the whole table once there are many ([`crate::Options::lock_escalation`]). Then the records
//! of one leaf are deleted together: one operation marks them as ghosts, and one record in the log
//! has their keys. As with single deletions, snapshots still find the old values, and the ghosts
//! are purged when no snapshot needs them any more, leaf by leaf.

use super::Txn;
use super::key_range::KeyRange;
use super::write::overflow_chain_of;
use crate::btree::number;
use crate::error::Result;
use crate::page::{Node, SlotFlags};
use crate::pool::broken;
use crate::record::{FlagRun, KeyList, PageOp, Tree, Undo};
use crate::storage::catalog::Table;
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
        loop {
            match scan.delete_next(|txn, tree, keys| txn.delete_keys(tree, keys, deletion))? {
                0 => return Ok(deleted),
                count => deleted += count as u64,
            }
        }
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
        /// Bytes of a record's flags, its length and its slot in what is logged.
        const RECORD: usize = 16;
        let (engine, store, context) = self.parts();
        let bytes = TxnLog::bytes_to_delete(engine.scheme(), keys.len(), bytes + keys.len() * RECORD);
        engine.reserve_log(&mut context.log, bytes)?;
        let mut leaf = store.leaf_exclusive(tree, keys[0])?;
        let node = Node(&leaf[..]);
        let (mut deleted, mut runs, mut frees) = (Vec::with_capacity(keys.len()), Vec::new(), Vec::new());
        let mut before = Vec::with_capacity(keys.len());
        let mut run: Option<FlagRun> = None;
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
            let (flags, value) = (node.flags(slot), node.value(slot));
            let ghost = flags.with(SlotFlags::GHOST);
            frees.extend(overflow_chain_of(value, flags));
            before.push(Deleted { key, value, flags });
            run = match run {
                Some(run) if run.flags == ghost && run.slots().end == slot => {
                    Some(FlagRun { count: run.count + 1, ..run })
                }
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
        let done = deleted.len();
        for free in frees {
            engine.reserve_log(&mut context.log, 0)?;
            context.log.free_on_commit(engine.scheme(), &engine.txns, free);
        }
        Ok(done)
    }
}
