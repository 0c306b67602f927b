//! Taking changes back: to a savepoint, at an abort, and at recovery.

use duramen_types::planted;

use super::{Savepoint, Txn};
use crate::btree::{Store, Tree, broken, number};
use crate::change::Change;
use crate::contexts::Context;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::page::{Node, SlotFlags};
use crate::pool::{Exclusive, PoolError};
use crate::record::{PageOp, Undo};
use crate::space::Purpose;
use crate::txn_log::Mark;

impl Txn {
    /// Marks the present point of the transaction.
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints += 1;
        let mark = self.context().log.mark();
        self.valid_savepoints.push((self.savepoints, mark));
        Savepoint { opening: self.core.tables.opening.clone(), txn: self.id(), number: self.savepoints }
    }

    /// Takes back everything done since `savepoint`. Locks are kept. The savepoint stays valid, later ones do not.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`] for one of another transaction or database, or one that an earlier rollback has passed; those that
    /// leave only an abort.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.check_usable()?;
        let result = self.rollback_to_valid(savepoint);
        self.settle(result)
    }

    fn rollback_to_valid(&mut self, savepoint: &Savepoint) -> Result<()> {
        if savepoint.txn != self.id() || savepoint.opening != self.core.tables.opening {
            return Err(Error::NoSuchSavepoint);
        }
        let at = self
            .valid_savepoints
            .iter()
            .position(|&(number, _)| number == savepoint.number)
            .ok_or(Error::NoSuchSavepoint)?;
        let mark = self.valid_savepoints[at].1;
        self.valid_savepoints.truncate(at + 1);
        let (core, _, context) = self.parts();
        undo_to(core, context, mark, &mut |_, _| {})
    }
}

/// Undoes the transaction down to `mark`, the latest change first; tells `ghosts` which keys have become ghosts.
pub(crate) fn undo_to(
    core: &Core,
    context: &mut Context,
    mark: Mark,
    ghosts: &mut dyn FnMut(Tree, &[u8]),
) -> Result<()> {
    let mut bytes = std::mem::take(&mut context.value);
    let mut split_log = 0;
    while context.log.is_above(mark) {
        let undo_next = context.log.undo_next();
        let change = match context.log.last_inverse(&mut bytes) {
            Some(undo) => {
                let change = take_back(&core.store, undo, &mut split_log);
                context.log.charge(std::mem::take(&mut split_log));
                let change = change?;
                match undo {
                    Undo::Insert { tree, key } => ghosts(tree, key),
                    Undo::Change { tree, key, flags, .. } if flags.contains(SlotFlags::GHOST) => ghosts(tree, key),
                    _ => {}
                }
                change
            }
            None => Change::new(),
        };
        if planted!(ForgetCompensation) {
            change.forget();
        } else {
            context.log.compensate(core.scheme(), undo_next, change);
        }
        context.log.forget_last();
    }
    context.value = bytes;
    Ok(())
}

/// Applies an inverse to the pages, which stay latched in the change; adds the bytes of log that splits took to `logged`.
fn take_back<'s>(store: &'s Store, undo: Undo<'_>, logged: &mut u64) -> Result<Change<'s>, PoolError> {
    match undo {
        Undo::Allocate { page } => store.free_page_change(page),
        Undo::Insert { tree, key } => {
            let (leaf, slot) = find(store, tree, key)?;
            let flags = Node(&leaf[..]).flags(slot).with(SlotFlags::GHOST);
            Ok(changed(leaf, PageOp::Change { slot: number(slot), at: 0, remove: 0, add: &[], flags }))
        }
        Undo::Change { tree, key, at, remove, add, flags } => loop {
            let (leaf, slot) = find(store, tree, key)?;
            let node = Node(&leaf[..]);
            let grows = add.len().saturating_sub(remove.into());
            if usize::from(at) + usize::from(remove) > node.value_len(slot) {
                return Err(broken(leaf.id(), "a record is shorter than its undo information says"));
            }
            if grows > node.free_space() {
                let value_len = node.value_len(slot) + grows;
                drop(leaf);
                store.split_leaf(tree, key, value_len, Purpose::Rollback, logged)?;
                continue;
            }
            return Ok(changed(leaf, PageOp::Change { slot: number(slot), at, remove, add, flags }));
        },
    }
}

fn find<'s>(store: &'s Store, tree: Tree, key: &[u8]) -> Result<(Exclusive<'s>, usize), PoolError> {
    let leaf = store.leaf_exclusive(tree, key)?;
    match Node(&leaf[..]).lower_bound(key) {
        (slot, true) => Ok((leaf, slot)),
        (_, false) => Err(broken(leaf.id(), "a record that is to be undone is not there")),
    }
}

fn changed<'s>(leaf: Exclusive<'s>, op: PageOp<'_>) -> Change<'s> {
    let mut change = Change::new();
    let leaf = change.include(leaf);
    change.apply(leaf, op);
    change
}
