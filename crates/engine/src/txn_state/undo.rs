//! Takes changes back: to a savepoint, at an abort, and at recovery.

use duramen_sync::probe::{Probe, reach};
use duramen_types::planted;

use super::context_pool::Context;
use super::log::Mark;
use crate::btree::number;
use crate::error::Result;
use crate::page::{Node, SlotFlags};
use crate::pool::{Exclusive, PoolError, broken};
use crate::record::{FlagRun, PageOp, Tree, Undo};
use crate::storage::free_space::Purpose;
use crate::storage::mini_transaction::MiniTransaction;
use crate::storage::store::Store;

/// The damage of a leaf without a record that the transaction has changed.
const MISSING: &str = "a record to be undone is missing";

/// Undoes the transaction down to `mark`, the latest change first; calls `ghosts` with the keys
/// that have become ghosts.
pub(crate) fn undo_to(
    store: &Store,
    context: &mut Context,
    mark: Mark,
    ghosts: &mut dyn FnMut(Tree, &[u8]),
) -> Result<()> {
    let mut bytes = std::mem::take(&mut context.value);
    let mut split_log = 0;
    while context.log.is_above(mark) {
        let undo_next = context.log.undo_next();
        let mini = match context.log.last_inverse(&mut bytes) {
            Some(Undo::Delete { tree, keys }) => restore(store, context, tree, &keys.to_vec())?,
            Some(undo) => {
                let mini = take_back(store, undo, &mut split_log);
                context.log.charge(std::mem::take(&mut split_log));
                let mini = mini?;
                match undo {
                    Undo::Insert { tree, key } => ghosts(tree, key),
                    Undo::Change { tree, key, flags, .. } if flags.contains(SlotFlags::GHOST) => ghosts(tree, key),
                    _ => {}
                }
                mini
            }
            None => MiniTransaction::new(),
        };
        if planted!(ForgetCompensation) {
            mini.forget();
        } else {
            context.log.compensate(&*store.scheme, undo_next, mini);
        }
        context.log.forget_last();
    }
    context.value = bytes;
    Ok(())
}

/// Gives records that were deleted together their flags again. Meanwhile splits may have brought
/// them to several leaves. Then the change of each leaf but the last is logged by itself, as a
/// compensation that leaves the whole deletion still to be undone; a crash in between makes some
/// records be restored twice. Returns the change of the last leaf.
fn restore<'s>(
    store: &'s Store,
    context: &mut Context,
    tree: Tree,
    keys: &[(Vec<u8>, SlotFlags)],
) -> Result<MiniTransaction<'s>> {
    let (mut rest, mut runs) = (keys, Vec::new());
    loop {
        let Some((first, _)) = rest.first() else { return Ok(MiniTransaction::new()) };
        let (leaf, mut slot) = find(store, tree, first)?;
        let node = Node(&leaf[..]);
        runs.clear();
        let mut count = 0;
        for (key, flags) in rest {
            if count > 0 && !node.contains(key) {
                break;
            }
            if count > 0 {
                slot = match node.lower_bound(key) {
                    (slot, true) => slot,
                    (_, false) => return Err(broken(leaf.id(), MISSING).into()),
                };
            }
            FlagRun { slot: number(slot), count: 1, flags: *flags }.encode(&mut runs);
            count += 1;
        }
        rest = &rest[count..];
        let mini = changed(leaf, PageOp::SetFlags { runs: &runs });
        if rest.is_empty() {
            return Ok(mini);
        }
        reach(Probe::DeletionRestoredInParts);
        let again = context.log.undo_again();
        context.log.compensate(&*store.scheme, again, mini);
    }
}

/// Applies an inverse to the pages, which stay latched in the mini-transaction; adds the bytes of
/// log that splits took to `logged`.
fn take_back<'s>(store: &'s Store, undo: Undo<'_>, logged: &mut u64) -> Result<MiniTransaction<'s>, PoolError> {
    match undo {
        Undo::Allocate { page } => store.begin_free_page(page),
        Undo::Delete { .. } => unreachable!("records that were deleted together may need several changes"),
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
            let value_len = node.value_len(slot) + grows;
            if !node.room_for_value(slot, value_len) {
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
        (_, false) => Err(broken(leaf.id(), MISSING)),
    }
}

fn changed<'s>(leaf: Exclusive<'s>, op: PageOp<'_>) -> MiniTransaction<'s> {
    let mut mini = MiniTransaction::new();
    let leaf = mini.include(leaf);
    mini.apply(leaf, op);
    mini
}
