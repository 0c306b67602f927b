//! Deferred frees: pages that a committed transaction no longer needs (overflow chains, and the
//! trees of dropped tables) are freed after the commit.
//!
//! The transaction's `FreeOnCommit` records list them; its `End` record marks the frees as done.
//! Between these records a crash may happen at any point, and recovery starts the frees again. A
//! page is therefore freed only after every page that is found through it, and only if it still has
//! the expected identity.
//!
//! With several logs "after" means a higher GSN. The pages of one tree or chain may have their bits
//! in different bitmaps, so no GSN on a page enforces this order. Instead each free is logged with
//! a GSN above that of the previous free.

use std::collections::{HashSet, VecDeque};

use duramen_sync::{Condvar, Mutex};
use duramen_types::{Gsn, PageId, TableId, planted};

use crate::btree::MAX_LEVELS;
use crate::error::{Error, Result};
use crate::health::Failures;
use crate::maintenance::Maintenance;
use crate::page::{self, Node, PageType, SlotFlags};
use crate::record::{DeferredFree, Tree};
use crate::storage::overflow::Reference;
use crate::storage::store::Store;
use crate::version::VersionStore;

use super::log::TxnLog;
use super::table::TxnTable;

/// A committed transaction whose deferred frees could not be completed yet, or wait for snapshots.
#[derive(Debug)]
struct Unfreed {
    log: TxnLog,
    frees: Vec<DeferredFree>,
    /// The position of the commit, for which snapshots may need the pages; zero if none does.
    at: Gsn,
}

/// The committed transactions whose deferred frees could not be completed yet.
#[derive(Debug, Default)]
pub(crate) struct DeferredFrees {
    waiting: Mutex<Waiting>,
    /// Notified when the last transaction that was taken from the list is done with.
    none_taken: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// In about the order of their commits.
    list: VecDeque<Unfreed>,
    /// Number of transactions that threads have taken from the list, to carry out their frees.
    taken: usize,
    /// Number of checks under way, which need the list to stay as it is.
    checks: usize,
    /// Tables whose trees are being freed, or wait for it.
    dropped: HashSet<TableId>,
}

impl DeferredFrees {
    fn push(&self, unfreed: Unfreed) {
        self.waiting.lock().list.push_back(unfreed);
    }

    /// Notes the trees among the frees of a transaction that has committed and still holds its
    /// locks: from now on nobody changes them but the thread that frees them.
    pub(crate) fn note_dropped(&self, frees: &[DeferredFree]) {
        for free in frees {
            if let DeferredFree::Tree(tree) = free {
                self.waiting.lock().dropped.insert(tree.table);
            }
        }
    }

    /// Returns whether the tree of a table is to be freed. The caller has a lock on the table.
    pub(crate) fn is_dropped(&self, table: TableId) -> bool {
        self.waiting.lock().dropped.contains(&table)
    }

    /// Returns how many transactions wait for nothing but snapshots.
    pub(crate) fn waiting_for_snapshots(&self) -> usize {
        self.waiting.lock().list.iter().filter(|unfreed| !unfreed.at.is_zero()).count()
    }

    /// Returns whether there is one that has waited for snapshots, and that none of them needs any
    /// more: they need commits above `reclaimable`.
    pub(crate) fn has_due(&self, reclaimable: Gsn) -> bool {
        self.waiting.lock().list.iter().any(|unfreed| !unfreed.at.is_zero() && unfreed.at <= reclaimable)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().list.is_empty()
    }

    /// Waits until no thread carries out frees of the list, and prevents it until the guard is
    /// dropped. Transactions that commit meanwhile carry out their own.
    pub(crate) fn hold(&self) -> HeldFrees<'_> {
        let mut waiting = self.waiting.lock();
        while waiting.taken > 0 {
            self.none_taken.wait(&mut waiting);
        }
        waiting.checks += 1;
        HeldFrees(self)
    }
}

/// Keeps the frees that wait from being carried out.
pub(crate) struct HeldFrees<'d>(&'d DeferredFrees);

impl Drop for HeldFrees<'_> {
    fn drop(&mut self) {
        self.0.waiting.lock().checks -= 1;
    }
}

/// Transactions taken from the list.
struct Taken<'d> {
    from: &'d DeferredFrees,
    txns: Vec<Unfreed>,
    count: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut waiting = self.from.waiting.lock();
        waiting.taken -= self.count;
        if waiting.taken == 0 {
            self.from.none_taken.notify_all();
        }
    }
}

/// Deferred frees that wait for snapshots are logged again when they are this far behind the end of
/// the log, in bytes.
const MOVED_AFTER: u64 = 256 << 10;

/// The same when the log is full, and may be smaller than that.
const MOVED_WHEN_FULL: u64 = 4 << 10;

/// Deferred frees that no snapshot makes wait, and that are left nevertheless.
#[derive(Debug, Default)]
struct Left {
    /// Some that are wanted.
    wanted: bool,
    /// Some that are not.
    unwanted: bool,
}

/// The pages freed so far.
#[derive(Debug, Default)]
struct Freed {
    pages: u64,
    /// The GSN of the record that freed the latest page.
    last: Gsn,
}

/// Frees pages for transactions that have committed.
pub(crate) struct Freeing<'e> {
    pub(crate) store: &'e Store,
    pub(crate) txns: &'e TxnTable,
    pub(crate) deferred: &'e DeferredFrees,
    pub(crate) versions: &'e VersionStore,
    pub(crate) failures: Failures<'e>,
    pub(crate) maintenance: &'e dyn Maintenance,
}

impl Freeing<'_> {
    /// Carries out the deferred frees of a committed transaction and ends it. If the log has no
    /// space even after a checkpoint, or a page cannot be read, the rest is postponed until
    /// [`Self::retry_deferred_frees`].
    pub(crate) fn free_and_end(&self, mut log: TxnLog, mut frees: Vec<DeferredFree>) -> Result<()> {
        let mut has_moved = false;
        loop {
            let mut freed = Freed::default();
            let freed_all = self.free_all(&mut frees, &mut freed);
            let result = match freed_all.and_then(|()| log.reserve_to_end(&*self.store.scheme)) {
                Ok(()) => {
                    log.end(&*self.store.scheme);
                    log.finish(&*self.store.scheme, self.txns);
                    return Ok(());
                }
                // The transaction itself keeps the log from being recycled until its remaining
                // frees are logged again at the end of the log.
                Err(Error::Full { .. }) if freed.pages > 0 || !has_moved => {
                    has_moved = true;
                    log.release_reservation(&*self.store.scheme);
                    log.repeat_deferred_frees(&*self.store.scheme, &frees)
                        .and_then(|()| self.maintenance.checkpoint_to_free_log())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                log.release_reservation(&*self.store.scheme);
                log.give_back_memory();
                self.deferred.push(Unfreed { log, frees, at: Gsn::ZERO });
                return Err(self.failures.note(error));
            }
        }
    }

    /// Carries out the deferred frees of a transaction that committed at position `at`, and ends
    /// it, when no snapshot needs the pages: now, or in [`Self::retry_deferred_frees`]. Returns
    /// whether dropped tables are left that no snapshot needs.
    pub(crate) fn free_when_due(&self, mut log: TxnLog, frees: Vec<DeferredFree>, at: Gsn) -> bool {
        let scheme = &*self.store.scheme;
        if self.is_due(at) {
            // `free_and_end` records a failure, and the clean-up is tried again later.
            let _ = self.free_and_end(log, frees);
            return false;
        }
        log.release_reservation(scheme);
        log.give_back_memory();
        self.deferred.push(Unfreed { log, frees, at });
        if scheme.lacks_space() {
            // Until they have ended, the transactions of the list keep a part of that space.
            self.free_all_due();
            if scheme.lacks_space() {
                while self.versions.end_oldest_below(at) {}
                if !self.is_due(at) && self.versions.waits_for_hardening() {
                    scheme.hurry_hardening(at);
                    // A failure is reported to the transactions that wait for the same.
                    let _ = scheme.harden(at, None);
                }
                self.free_all_due();
            }
        }
        // It may have become due before it was there to be found.
        self.is_due(at) && self.free_some()
    }

    /// Returns whether no snapshot needs what a commit at this position has replaced.
    fn is_due(&self, at: Gsn) -> bool {
        at <= self.due_until()
    }

    /// Returns the position up to which no snapshot needs what commits have replaced.
    fn due_until(&self) -> Gsn {
        if planted!(ChainFreedUnderSnapshot) { Gsn::MAX } else { self.versions.reclaimable() }
    }

    /// Carries out some deferred frees that no snapshot needs any more, for a transaction that has
    /// found that there are some. Returns whether there are dropped tables among them: these take
    /// too long for a transaction that is not their own.
    pub(crate) fn free_some(&self) -> bool {
        /// Few, for the same reason.
        const AT_ONCE: usize = 8;
        let left = self.free_due(AT_ONCE, |frees| !frees.iter().any(|free| matches!(free, DeferredFree::Tree(_))));
        if left.wanted {
            self.versions.postpone_frees();
        }
        left.unwanted
    }

    /// Tries again the frees that [`Self::free_and_end`] has postponed, and carries out all those
    /// that no snapshot needs any more. The others move to the end of the log, so that they do not
    /// keep it.
    pub(crate) fn retry_deferred_frees(&self) {
        self.free_all_due();
        self.move_up(MOVED_AFTER);
    }

    /// As [`Self::retry_deferred_frees`], for a log that is full: it may be small. What waits
    /// behind another transaction does not move, because that would free nothing.
    pub(crate) fn free_full_log(&self) {
        self.free_all_due();
        let oldest = self.txns.least_first();
        let is_oldest = |unfreed: &Unfreed| Some(unfreed.log.first()) == oldest;
        if self.deferred.waiting.lock().list.iter().any(is_oldest) {
            self.move_up(MOVED_WHEN_FULL);
        }
    }

    /// Logs those that wait again, if they are more than `behind` bytes away from the end of the
    /// log.
    fn move_up(&self, behind: u64) {
        let end = self.store.scheme.latest().get();
        for Unfreed { log, frees, .. } in &mut self.deferred.waiting.lock().list {
            if log.first().get() + behind < end {
                // If the disk is full, the frees stay where they are.
                let _ = log.repeat_deferred_frees(&*self.store.scheme, frees);
            }
        }
    }

    /// Carries out all frees that no snapshot makes wait.
    fn free_all_due(&self) {
        if self.free_due(usize::MAX, |_| true).wanted {
            self.versions.postpone_frees();
        }
    }

    /// Carries out the frees of up to `most` transactions of the list that are wanted and that no
    /// snapshot makes wait; returns what is left of those that no snapshot makes wait.
    fn free_due(&self, most: usize, is_wanted: impl Fn(&[DeferredFree]) -> bool) -> Left {
        let (mut taken, left) = self.take_due(most, is_wanted);
        for Unfreed { log, frees, .. } in taken.txns.drain(..) {
            // A failure postpones the frees again.
            let _ = self.free_and_end(log, frees);
        }
        left
    }

    /// Takes the transactions of [`Self::free_due`] from the list.
    fn take_due(&self, most: usize, is_wanted: impl Fn(&[DeferredFree]) -> bool) -> (Taken<'_>, Left) {
        let mut waiting = self.deferred.waiting.lock();
        let until = self.due_until();
        let Waiting { list, checks, .. } = &mut *waiting;
        let most = if *checks > 0 { 0 } else { most };
        let (mut due, mut at, mut left) = (Vec::new(), 0, Left::default());
        while at < list.len() {
            let is_due = list[at].at <= until;
            let is_wanted = is_due && is_wanted(&list[at].frees);
            if is_wanted && due.len() < most {
                due.extend(list.remove(at));
                continue;
            }
            if is_wanted {
                // There will be another look.
                left.wanted = true;
                break;
            }
            left.unwanted |= is_due;
            at += 1;
        }
        waiting.taken += due.len();
        (Taken { from: self.deferred, count: due.len(), txns: due }, left)
    }

    /// Returns the pages that wait to be freed.
    pub(crate) fn pages(&self) -> Result<Vec<PageId>> {
        let mut pages = Vec::new();
        for item in self.deferred.waiting.lock().list.iter().flat_map(|txn| &txn.frees) {
            match *item {
                DeferredFree::OverflowChain { head, chain } => {
                    pages.extend(self.store.overflow_chain_pages(head, chain)?)
                }
                DeferredFree::Tree(tree) => self.collect_tree(tree, tree.root, None, &mut pages)?,
            }
        }
        Ok(pages)
    }

    fn collect_tree(&self, tree: Tree, id: PageId, level: Option<u8>, pages: &mut Vec<PageId>) -> Result<()> {
        let Some((level, below)) = subtree(self.store, tree, id, level)? else { return Ok(()) };
        for item in below {
            match item {
                Below::Child(child) => self.collect_tree(tree, child, Some(level - 1), pages)?,
                Below::OverflowChain(reference) => {
                    pages.extend(self.store.overflow_chain_pages(reference.head, reference.chain)?)
                }
            }
        }
        pages.push(id);
        Ok(())
    }

    /// Frees all items, removes each finished one from the list, and counts the pages.
    fn free_all(&self, items: &mut Vec<DeferredFree>, freed: &mut Freed) -> Result<()> {
        while let Some(&item) = items.last() {
            match item {
                DeferredFree::OverflowChain { head, chain } => self.free_overflow_chain(head, chain, freed)?,
                DeferredFree::Tree(tree) => {
                    self.free_tree(tree, tree.root, None, freed)?;
                    // Its pages are found not to be the tree's any more.
                    self.deferred.waiting.lock().dropped.remove(&tree.table);
                }
            }
            items.pop();
        }
        Ok(())
    }

    /// Frees a chain's extents, the last one first.
    fn free_overflow_chain(&self, head: PageId, chain: u64, freed: &mut Freed) -> Result<()> {
        for extent in self.store.overflow_extents(head, chain)?.into_iter().rev() {
            self.free(u64::from(extent.pages), freed, |after| self.store.free_extent(extent, after))?;
        }
        Ok(())
    }

    /// Frees the part of a dropped tree from `id` down. `level` is the expected level of the page.
    fn free_tree(&self, tree: Tree, id: PageId, level: Option<u8>, freed: &mut Freed) -> Result<()> {
        let Some((level, below)) = subtree(self.store, tree, id, level)? else { return Ok(()) };
        for item in below {
            match item {
                Below::Child(child) => self.free_tree(tree, child, Some(level - 1), freed)?,
                Below::OverflowChain(reference) => self.free_overflow_chain(reference.head, reference.chain, freed)?,
            }
        }
        self.free_page(id, freed)
    }

    fn free_page(&self, id: PageId, freed: &mut Freed) -> Result<()> {
        self.free(1, freed, |after| self.store.free_page(id, after))
    }

    /// Frees pages by `free`, which gets the GSN to come after and returns its own.
    fn free(&self, pages: u64, freed: &mut Freed, free: impl Fn(Gsn) -> Result<Gsn>) -> Result<()> {
        freed.last = match free(freed.last) {
            Err(Error::Full { .. }) => {
                self.maintenance.checkpoint_to_free_log()?;
                free(freed.last)?
            }
            other => other?,
        };
        freed.pages += pages;
        Ok(())
    }
}

enum Below {
    Child(PageId),
    OverflowChain(Reference),
}

/// Returns what hangs below a page of a dropped tree; `None` if the page is not, or no longer, part
/// of the tree.
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
            .filter_map(|slot| Reference::decode(node.value(slot)).map(Below::OverflowChain))
            .collect()
    } else {
        (0..=node.slot_count()).map(|slot| Below::Child(node.child(slot))).collect()
    };
    Ok(Some((found, below)))
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
