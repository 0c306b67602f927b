//! Giving back what a committed transaction has made cratefluous: overflow chains and the trees of dropped tables.
//!
//! The transaction's `FreeOnCommit` records say what; its `End` record says that it is done. In between, a crash may
//! happen at any point, and recovery begins again. A page is therefore freed only after everything that is found through
//! it, and a page found is freed only if it still is what it is taken for.
//!
//! With several logs "after" means a higher GSN. The pages of one tree or chain may have their bits in different bitmaps,
//! so nothing on them would see to that; each page freed comes after the one freed before.

use crate::btree::{MAX_LEVELS, Store, Tree};
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::page::{self, Node, PageType, SlotFlags};
use crate::record::Garbage;
use crate::storage::overflow::Reference;
use crate::txn::log::TxnLog;

use duramen_types::{Gsn, PageId};

/// A committed transaction that could not give its garbage back yet.
#[derive(Debug)]
pub(crate) struct Deferred {
    log: TxnLog,
    garbage: Vec<Garbage>,
}

/// What has been given back.
#[derive(Debug, Default)]
struct Freed {
    pages: u64,
    /// The record of the latest page.
    last: Gsn,
}

impl Core {
    /// Gives a committed transaction's garbage back and ends the transaction. When the log has no room even after a
    /// checkpoint, or a page cannot be read, that is put off: [`Core::retry_deferred`].
    pub(crate) fn finish_garbage(&self, mut log: TxnLog, mut garbage: Vec<Garbage>) -> Result<()> {
        let mut has_moved = false;
        loop {
            let mut freed = Freed::default();
            let freed_all = self.free_garbage(&mut garbage, &mut freed);
            let result = match freed_all.and_then(|()| log.make_room_to_end(self.scheme())) {
                Ok(()) => {
                    log.end(self.scheme());
                    log.finish(self.scheme(), &self.active);
                    return Ok(());
                }
                // The transaction itself keeps the log from being recycled, unless it moves to the log's end.
                Err(Error::Full { .. }) if freed.pages > 0 || !has_moved => {
                    has_moved = true;
                    log.release_room(self.scheme());
                    log.repeat_garbage(self.scheme(), &garbage).and_then(|()| self.checkpoint_for_room())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                log.release_room(self.scheme());
                self.deferred.lock().push(Deferred { log, garbage });
                return Err(self.note(error));
            }
        }
    }

    /// Tries again what [`Core::finish_garbage`] has put off.
    pub(crate) fn retry_deferred(&self) {
        let deferred = std::mem::take(&mut *self.deferred.lock());
        for Deferred { log, garbage } in deferred {
            // A failure puts it off again.
            let _ = self.finish_garbage(log, garbage);
        }
    }

    /// The pages that wait to be given back.
    pub(crate) fn deferred_pages(&self) -> Result<Vec<PageId>> {
        let mut pages = Vec::new();
        for item in self.deferred.lock().iter().flat_map(|deferred| &deferred.garbage) {
            match *item {
                Garbage::Chain { head, chain } => pages.extend(self.store.chain_pages(head, chain)?),
                Garbage::Tree(tree) => self.collect_tree(tree, tree.root, None, &mut pages)?,
            }
        }
        Ok(pages)
    }

    fn collect_tree(&self, tree: Tree, id: PageId, level: Option<u8>, pages: &mut Vec<PageId>) -> Result<()> {
        let Some((level, below)) = subtree(&self.store, tree, id, level)? else { return Ok(()) };
        for item in below {
            match item {
                Below::Child(child) => self.collect_tree(tree, child, Some(level - 1), pages)?,
                Below::Chain(reference) => pages.extend(self.store.chain_pages(reference.head, reference.chain)?),
            }
        }
        pages.push(id);
        Ok(())
    }

    /// Gives everything back, and forgets what is done; counts the pages.
    fn free_garbage(&self, items: &mut Vec<Garbage>, freed: &mut Freed) -> Result<()> {
        while let Some(&item) = items.last() {
            match item {
                Garbage::Chain { head, chain } => self.free_chain(head, chain, freed)?,
                Garbage::Tree(tree) => self.free_tree(tree, tree.root, None, freed)?,
            }
            items.pop();
        }
        Ok(())
    }

    /// Gives a chain's pages back, the last first.
    fn free_chain(&self, head: PageId, chain: u64, freed: &mut Freed) -> Result<()> {
        for id in self.store.chain_pages(head, chain)?.into_iter().rev() {
            self.free_page(id, freed)?;
        }
        Ok(())
    }

    /// Gives the part of a dropped tree below `id` back. `level` is the level the page must be at.
    fn free_tree(&self, tree: Tree, id: PageId, level: Option<u8>, freed: &mut Freed) -> Result<()> {
        let Some((level, below)) = subtree(&self.store, tree, id, level)? else { return Ok(()) };
        for item in below {
            match item {
                Below::Child(child) => self.free_tree(tree, child, Some(level - 1), freed)?,
                Below::Chain(reference) => self.free_chain(reference.head, reference.chain, freed)?,
            }
        }
        self.free_page(id, freed)
    }

    fn free_page(&self, id: PageId, freed: &mut Freed) -> Result<()> {
        freed.last = match self.store.free_page(id, freed.last) {
            Err(Error::Full { .. }) => {
                self.checkpoint_for_room()?;
                self.store.free_page(id, freed.last)?
            }
            other => other?,
        };
        freed.pages += 1;
        Ok(())
    }
}

enum Below {
    Child(PageId),
    Chain(Reference),
}

/// What hangs below a page of a dropped tree; `None` when the page is not, or no longer, part of it.
fn subtree(store: &Store, tree: Tree, id: PageId, level: Option<u8>) -> Result<Option<(u8, Vec<Below>)>> {
    if !store.space.is_taken(&store.pool, id)? {
        return Ok(None);
    }
    let page = store.pool.shared(id)?;
    let is_node = matches!(page::page_type(&page), Some(PageType::Leaf | PageType::Inner));
    let found = page::level(&page);
    if !is_node
        || page::table_id(&page) != tree.table
        || level.is_some_and(|level| level != found)
        || usize::from(found) >= MAX_LEVELS
    {
        return Ok(None);
    }
    let node = Node(&page[..]);
    let below = if node.is_leaf() {
        (0..node.slot_count())
            .filter(|&slot| node.flags(slot) == SlotFlags::OVERFLOW)
            .filter_map(|slot| Reference::decode(node.value(slot)).map(Below::Chain))
            .collect()
    } else {
        (0..=node.slot_count()).map(|slot| Below::Child(node.child(slot))).collect()
    };
    Ok(Some((found, below)))
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
