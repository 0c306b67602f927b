//! Walks a tree and checks each node: it is well-formed, it is the node that its parent names, and
//! it covers the key range that its parent gives it.

use duramen_types::PageId;

use super::Checker;
use super::space::Mark;
use crate::btree::MAX_LEVELS;
use crate::error::Result;
use crate::page::{self, Node, SlotFlags};
use crate::record::Tree;
use crate::storage::overflow::Reference;

/// What a node's parent says about the node.
struct Expected<'p> {
    id: PageId,
    /// The node's level, and the fences that its parent's separators set. A root has no parent and
    /// no fences, and may be at any level.
    level: Option<u8>,
    lower: Option<&'p [u8]>,
    upper: Option<&'p [u8]>,
}

/// A tree that is being checked.
struct Subject<'t, F> {
    /// The tree's name in messages.
    name: &'t str,
    tree: Tree,
    /// Called with the keys and values of all inline records.
    visit: F,
}

impl Checker<'_> {
    /// Checks a tree; calls `visit` for the records that are whole in their leaves.
    pub(super) fn check_tree(&mut self, name: &str, tree: Tree, visit: impl FnMut(&[u8], &[u8])) -> Result<()> {
        let root = Expected { id: tree.root, level: None, lower: None, upper: None };
        self.check_node(&mut Subject { name, tree, visit }, &root)
    }

    /// Checks the tree from a node down. Levels decrease on the way, so the recursion ends.
    fn check_node<F>(&mut self, subject: &mut Subject<'_, F>, expected: &Expected<'_>) -> Result<()>
    where
        F: FnMut(&[u8], &[u8]),
    {
        let id = expected.id;
        match self.reached.mark(id) {
            Mark::New => self.report.pages += 1,
            Mark::Again => {
                self.dead_end(id, format_args!("{}: the page is used twice", subject.name));
                return Ok(());
            }
            Mark::Outside => {
                self.dead_end(id, format_args!("{}: the page lies beyond the allocation bitmaps", subject.name));
                return Ok(());
            }
        }
        let Some(bytes) = self.read(id, subject.name)? else { return Ok(()) };
        if let Err(defect) = identify(&bytes, subject.tree, expected) {
            self.dead_end(id, format_args!("{}: {defect}", subject.name));
            return Ok(());
        }
        let node = Node(&bytes[..]);
        if node.lower_fence() != expected.lower {
            self.problem(id, format_args!("{}: the lower fence is not the separator in the parent", subject.name));
        }
        if node.upper_fence() != expected.upper {
            self.problem(id, format_args!("{}: the upper fence is not the separator in the parent", subject.name));
        }
        if node.is_leaf() { self.check_records(subject, node, id) } else { self.check_children(subject, node) }
    }

    fn check_children<F>(&mut self, subject: &mut Subject<'_, F>, node: Node<&[u8]>) -> Result<()>
    where
        F: FnMut(&[u8], &[u8]),
    {
        let (mut lower, mut upper) = (Vec::new(), Vec::new());
        let mut has_lower = node.lower_fence_into(&mut lower);
        for slot in 0..=node.slot_count() {
            let last = slot == node.slot_count();
            let has_upper = if last {
                node.upper_fence_into(&mut upper)
            } else {
                node.key_into(slot, &mut upper);
                true
            };
            let child = Expected {
                id: node.child(slot),
                level: Some(node.level() - 1),
                lower: has_lower.then_some(&lower),
                upper: has_upper.then_some(&upper),
            };
            self.check_node(subject, &child)?;
            std::mem::swap(&mut lower, &mut upper);
            has_lower = true;
        }
        Ok(())
    }

    fn check_records<F>(&mut self, subject: &mut Subject<'_, F>, node: Node<&[u8]>, id: PageId) -> Result<()>
    where
        F: FnMut(&[u8], &[u8]),
    {
        let mut key = Vec::new();
        for slot in 0..node.slot_count() {
            let flags = node.flags(slot);
            if flags.contains(SlotFlags::GHOST) {
                // The deletion has freed the record's value, if it was a large one.
                self.report.ghosts += 1;
                continue;
            }
            self.report.records += 1;
            node.key_into(slot, &mut key);
            if !flags.contains(SlotFlags::OVERFLOW) {
                (subject.visit)(&key, node.value(slot));
                continue;
            }
            let owner = format!("{}, value of slot {slot} in {id}", subject.name);
            match Reference::decode(node.value(slot)) {
                Some(reference) => self.check_chain(&owner, subject.tree.table, reference)?,
                None => self.dead_end(id, format_args!("{owner}: the reference is malformed")),
            }
        }
        Ok(())
    }
}

/// Checks that the page is a well-formed node, and the node that its parent names.
fn identify(bytes: &[u8], tree: Tree, expected: &Expected<'_>) -> Result<(), String> {
    page::check(bytes)?;
    if page::page_id(bytes) != expected.id {
        return Err(format!("the header of the page names {}", page::page_id(bytes)));
    }
    if page::table_id(bytes) != tree.table {
        return Err(format!("the page belongs to {}, not to {}", page::table_id(bytes), tree.table));
    }
    let level = page::level(bytes);
    match expected.level {
        Some(wanted) if wanted != level => {
            Err(format!("the node is at level {level}, but should be at level {wanted}"))
        }
        None if usize::from(level) >= MAX_LEVELS => {
            Err(format!("the root is at level {level}, above the highest level of a tree"))
        }
        _ => Ok(()),
    }
}
