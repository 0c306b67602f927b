//! PCMLogging: the pages that transactions have changed go to persistent memory when the
//! transactions end, and are the log at the same time (Gao et al., *PCMLogging: Reducing
//! Transaction Logging Overhead with PCM*, CIKM 2011, section 3.2).
//!
//! There is no log, no checkpoint, and no double-write area. Frames of the pool are copies of pages
//! in the region or, if they are not there, in the data file; pages leave the region for the data
//! file when it is full (`pcm/pages.rs`).
//!
//! | step | stores | barriers with [`Barriers::Fewest`] | with [`Barriers::Paper`] |
//! |---|---|---|---|
//! | change of a leaf | nothing | 0 | 0 |
//! | structure change | its pages; the list's entry | 2 | 3 |
//! | eviction of a changed page | the page, with the covers of transactions under way | 1 | 1, and 1 to list them |
//! | commit, rollback | the list's entry | 0 | 1 |
//! | | the pages that the transaction has changed, as far as they are not in the region | 1 | 1 |
//! | | the list's entry | 1 | 1 |
//!
//! So a commit costs two barriers or, as in the paper, three. A commit with deferred frees costs
//! one more for their slot, and so does a barrier for each part of pages that a small region takes
//! at once.
//!
//! With [`Granularity::Tuple`] the end of a transaction stores the records that it has changed
//! instead of their leaves, with as many barriers (`pcm/tuple_pages.rs`). One more is for pages
//! that are not leaves, or that must be stored as pages.
//!
//! # What differs from the paper
//! - Transactions here lock keys and share pages. A page becomes durable with the changes of
//!   transactions under way, and with *covers* that say what was there before (`pcm/covers.rs`).
//!   Recovery discards changes, not pages.
//! - Structure changes belong to no transaction and are never undone. Their pages become durable at
//!   once, as one.
//! - A rollback ends like a commit: its changes undo those of the transaction, so the pages become
//!   durable as they are then, before the transaction leaves the list.
//!
//! # Space
//! A page with a cover of a transaction under way cannot leave the region. So each transaction
//! reserves the slots that its pages and covers may take, and is refused when there are not enough.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use duramen_sync::atomic::{AtomicI64, Ordering};
use duramen_sync::{Arc, Backoff, Mutex, OnceLock};
use duramen_types::{Gsn, LogAddress, PageId, TxnId, planted};
use duramen_wal::NewRecord;

use super::{Change, Hardening, Home, LogService, Recorded, StorageScheme};
use crate::error::{Error, Result};
use crate::metrics::{HeapMetrics, PcmMetrics};
use crate::options::Granularity;
use crate::page::{self, DatabaseTag, PageType, bitmap};
use crate::pcm::{
    ChangedKey, ChangedLeaf, Covered, CoversOfPage, ENTRIES, Ended, Image, Loser, Pcm, PcmPages, SLOT_BYTES, Slot,
    Winner, Word, Xid, slots_with,
};
use crate::pool::{Exclusive, Pool, PoolError};
use crate::record::{FLAG_HAS_DEFERRED_FREES, Kind, Reader, Undo};
use crate::region::State;

/// How many transaction ids become available with one barrier.
const TXN_STEP: u64 = 65_536;

/// What a transaction reserves at once ([`crate::txn_state::log`]): a transaction under way never
/// has less.
const STEP: u64 = 64 << 10;

/// Slots that nobody reserves, besides those that a write needs before it frees the old ones:
/// structure changes may move covers to more pages.
const UNRESERVED: u64 = 24;

/// PCMLogging.
#[derive(Debug)]
pub(crate) struct PcmLogging {
    pcm: Arc<Pcm>,
    pages: Arc<PcmPages>,
    pool: Arc<Pool>,
    /// The transaction of each entry of the list.
    txns: Box<[Mutex<Txn>]>,
    /// Entries that no transaction has.
    free: Mutex<Vec<u32>>,
    /// Bytes of slots that are not reserved, divided by `scale`. Below zero when structure changes
    /// have moved covers to more pages than there is space for.
    space: AtomicI64,
    all_space: u64,
    scale: u64,
    /// Held by the thread that makes transaction ids available.
    ids: Mutex<u64>,
    /// Entries of the transactions that recovery resumes.
    resumed: Vec<(TxnId, u32)>,
    failure: OnceLock<String>,
}

/// The transaction table's view of a transaction: its changes.
#[derive(Debug, Default)]
struct Txn {
    /// Pages that it has changed.
    pages: HashMap<PageId, ChangedPage>,
    covered: Vec<Covered>,
    /// Its deferred frees, and the bytes that they take.
    frees: Vec<Vec<u8>>,
    free_bytes: usize,
    /// The slots of its deferred frees, once it has committed.
    garbage: Vec<Slot>,
    /// Space that it has taken.
    taken: u64,
    /// The part of it that structure changes took for it, and that its reservation has not paid
    /// back yet. Otherwise it would not learn that less and less is left.
    owed: u64,
}

/// A page that a transaction has changed.
#[derive(Debug, Default)]
struct ChangedPage {
    /// Bytes of its covers in the page.
    covers: usize,
    /// More than records of a leaf have changed, so that the page must be stored as a page.
    is_whole: bool,
}

impl PcmLogging {
    /// Creates the scheme over a region, with the transactions that recovery has left to it.
    pub(crate) fn new(
        pcm: Arc<Pcm>,
        pages: Arc<PcmPages>,
        pool: Arc<Pool>,
        losers: &[(TxnId, Loser)],
        winners: &[(TxnId, Winner)],
    ) -> Self {
        let unreserved = UNRESERVED + (pages.at_once() + pages.kept()) as u64;
        let bytes = u64::from(pages.slots()).saturating_sub(unreserved) * SLOT_BYTES as u64;
        // Each transaction under way has at least one step, so that there are never more of them
        // than entries. Entry 0 is that of structure changes.
        let most = u64::from(ENTRIES - 1) * STEP;
        let scale = bytes.div_ceil(most).max(1);
        let all_space = bytes / scale;
        let ids = Mutex::new(pcm.get(Word::NextTxn));
        let txns: Box<[Mutex<Txn>]> = (0..ENTRIES).map(|_| Mutex::default()).collect();
        let mut taken: HashSet<u32> = HashSet::from([0]);
        let mut resumed = Vec::new();
        for (id, loser) in losers {
            let entry = loser.xid.entry();
            let mut txn = txns[entry as usize].lock();
            for change in &loser.changes {
                txn.pages.insert(change.page, ChangedPage::default());
                txn.covered.push(pages.covers.resume(change.page, change.cover.clone()));
            }
            taken.insert(entry);
            resumed.push((*id, entry));
        }
        for (id, winner) in winners {
            let entry = (0..ENTRIES).find(|entry| !taken.contains(entry)).expect("there were no more transactions");
            txns[entry as usize].lock().garbage.clone_from(&winner.slots);
            taken.insert(entry);
            resumed.push((*id, entry));
        }
        let mut space = all_space;
        for (_, entry) in &resumed {
            let step = STEP.min(space);
            space -= step;
            txns[*entry as usize].lock().taken = step;
        }
        let free = (0..ENTRIES).rev().filter(|entry| !taken.contains(entry)).collect();
        Self {
            pcm,
            pages,
            pool,
            txns,
            free: Mutex::new(free),
            space: AtomicI64::new(space.cast_signed()),
            all_space,
            scale,
            ids,
            resumed,
            failure: OnceLock::new(),
        }
    }

    fn scaled(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.scale)
    }

    fn txn(&self, home: Home) -> &Mutex<Txn> {
        &self.txns[home.0 as usize]
    }

    /// Notes a failure: what is not durable will not be.
    fn fail(&self, error: PoolError) {
        let reason = Error::from(error).to_string();
        self.pool.poison(&reason);
        self.failure.get_or_init(|| reason);
    }

    /// Makes a structure change durable, as one. The transactions whose covers it has moved to
    /// other pages take the space for them, which nobody has reserved.
    fn change_structure(&self, pages: &[Exclusive<'_>]) {
        if let [page] = pages
            && page::page_type(page) == Some(PageType::Leaf)
        {
            // A ghost is removed. If a crash brings it back, it is removed later.
            if self.pages.granularity() == Granularity::Tuple {
                self.pages.alter(page);
            }
            return;
        }
        let tag = DatabaseTag::of(&self.pcm.database());
        let seal = |page: &Exclusive<'_>| {
            let mut copy = page.to_vec();
            page::seal(&mut copy, tag);
            copy
        };
        let copies: Vec<Vec<u8>> = pages.iter().map(seal).collect();
        let covers: Vec<CoversOfPage> = pages.iter().map(|page| self.pages.covers.of_page(page)).collect();
        let images: Vec<Image<'_>> = pages
            .iter()
            .zip(&copies)
            .zip(&covers)
            .map(|((page, bytes), covers)| Image { page: page.id(), bytes, covers })
            .collect();
        if let Err(error) = self.pages.write_together(&images) {
            self.fail(error);
        }
        for image in images {
            for xid in &image.covers.xids {
                let mut txn = self.txns[xid.entry() as usize].lock();
                if self.pages.active.current(xid.entry()) == *xid && !txn.pages.contains_key(&image.page) {
                    let covers = image.covers.bytes.len();
                    let taken = self.scaled(slots_with(covers) * SLOT_BYTES as u64);
                    txn.pages.insert(image.page, ChangedPage { covers, is_whole: false });
                    txn.taken += taken;
                    txn.owed += taken;
                    self.space.fetch_sub(taken.cast_signed(), Ordering::AcqRel);
                }
            }
        }
    }

    /// Notes what a transaction has changed; returns the space that its reservation pays for this,
    /// and for structure changes before it.
    fn change_of(&self, home: Home, change: Change<'_>, pages: &[Exclusive<'_>]) -> u64 {
        let xid = self.pages.active.current(home.0);
        let mut txn = self.txn(home).lock();
        let mut covered = 0;
        if change.record.kind == Kind::Compensation as u8 {
            if pages.is_empty() {
                // It cancels the latest deferred free.
                let cancelled = txn.frees.pop();
                txn.free_bytes -= cancelled.map_or(0, |free| free.len() + 1);
            }
            let is_free = |covered: &Covered| match covered {
                Covered::Key(..) => false,
                Covered::Page(allocated) => {
                    let (group, bit) = bitmap::locate(*allocated);
                    let bitmap = pages.iter().find(|page| page.id() == bitmap::bitmap_page(group));
                    bitmap.is_some_and(|bitmap| !bitmap::get(bitmap, bit))
                }
            };
            // Another transaction may allocate the page now.
            let has_bitmap = pages.iter().any(|page| page::page_type(page) == Some(PageType::Bitmap));
            if let [leaf] = pages
                && page::page_type(leaf) == Some(PageType::Leaf)
            {
                self.pages.covers.note_taken_back(xid, leaf);
            }
            if has_bitmap && let Some(at) = txn.covered.iter().rposition(is_free) {
                let covered = txn.covered.swap_remove(at);
                self.pages.covers.forget(xid, &covered);
            }
        } else {
            let undo = &change.record.payload[..change.prefix];
            let undo = Undo::decode(&mut Reader::new(undo)).expect("it was just encoded");
            let leaf = pages.first().map(|page| &page[..]);
            covered = self.pages.covers.note(xid, leaf, undo, &mut txn.covered);
        }
        let mut slots = 0;
        for page in pages {
            let is_leaf = page::page_type(page) == Some(PageType::Leaf);
            // Only these have covers, and others may leave the region before the transaction ends.
            let has_covers = is_leaf || page::page_type(page) == Some(PageType::Bitmap);
            let (changed, before) = match txn.pages.entry(page.id()) {
                Entry::Occupied(entry) => {
                    let before = slots_with(entry.get().covers);
                    (entry.into_mut(), before)
                }
                Entry::Vacant(entry) => (entry.insert(ChangedPage::default()), 0),
            };
            if has_covers {
                changed.covers += covered;
                slots += slots_with(changed.covers) - before;
            }
            if !is_leaf || pages.len() > 1 {
                changed.is_whole = true;
                if is_leaf {
                    self.pages.alter(page);
                }
            }
        }
        let taken = self.scaled(slots * SLOT_BYTES as u64);
        txn.taken += taken;
        // A rollback reserves nothing. Any other operation has reserved a slot for a split.
        let is_compensation = change.record.kind == Kind::Compensation as u8;
        let paid = if is_compensation { 0 } else { txn.owed.min(self.scaled(SLOT_BYTES as u64)) };
        if paid > 0 {
            txn.owed -= paid;
            self.space.fetch_add(paid.cast_signed(), Ordering::AcqRel);
        }
        taken + paid
    }

    /// Makes everything durable that a transaction has changed, and takes it off the list. Returns
    /// the slots of the deferred frees, if it has committed with some.
    fn end(&self, home: Home, has_committed: bool, frees: &[Vec<u8>]) -> std::result::Result<Vec<Slot>, PoolError> {
        let is_ended_early = if has_committed { planted!(XidReplacedEarly) } else { planted!(AbortUnlistedFirst) };
        let xid = self.pages.active.current(home.0);
        if is_ended_early {
            self.pages.end(home.0);
        }
        let is_by_tuple = self.pages.granularity() == Granularity::Tuple;
        // The pages stay in the set: a structure change may meet the transaction until it is over.
        let whole = |(page, changed): (&PageId, &ChangedPage)| (changed.is_whole || !is_by_tuple).then_some(*page);
        let (pages, covered): (Vec<PageId>, Vec<Covered>) = {
            let txn = self.txn(home).lock();
            (txn.pages.iter().filter_map(whole).collect(), if is_by_tuple { txn.covered.clone() } else { Vec::new() })
        };
        if !pages.is_empty() {
            self.flush(pages)?;
        }
        let garbage = if frees.is_empty() { Vec::new() } else { self.pages.put_garbage(xid, frees)? };
        if is_by_tuple {
            while let Ended::After(leaves) = self.pages.end_with(xid, self.changed_leaves(&covered)?, is_ended_early)? {
                leaves.iter().for_each(|leaf| self.pages.alter_page(*leaf));
                self.flush(leaves)?;
            }
        } else if !is_ended_early {
            self.pages.end(home.0);
        }
        Ok(garbage)
    }

    fn flush(&self, pages: Vec<PageId>) -> std::result::Result<(), PoolError> {
        self.pool.flush_pages(pages, Gsn::new(self.pcm.now() + 1))
    }

    /// Reads the records that a transaction has changed, as they are now.
    fn changed_leaves(&self, covered: &[Covered]) -> std::result::Result<Vec<ChangedLeaf>, PoolError> {
        let mut leaves: BTreeMap<PageId, Vec<ChangedKey>> = BTreeMap::new();
        self.pages.covers.by_leaf(covered, &mut leaves);
        let mut changed = Vec::with_capacity(leaves.len());
        while let Some((leaf, mut keys)) = leaves.pop_first() {
            // A leaf without a frame was stored before it was evicted.
            if !self.pool.is_resident(leaf) {
                continue;
            }
            changed.push(ChangedLeaf::read(&self.pool.shared(leaf)?, &mut keys));
            let moved: Vec<Covered> = keys.into_iter().map(|key| Covered::Key(key.table, key.key)).collect();
            self.pages.covers.by_leaf(&moved, &mut leaves);
        }
        Ok(changed)
    }

    /// Forgets the changes of a transaction that has ended, whose number was `xid`; returns the
    /// space that it keeps if it has deferred frees to do. An entry without any is free.
    fn forget(&self, home: Home, xid: Xid, garbage: Vec<Slot>) -> u64 {
        let mut txn = self.txn(home).lock();
        for covered in std::mem::take(&mut txn.covered) {
            self.pages.covers.forget(xid, &covered);
        }
        txn.pages.clear();
        txn.frees.clear();
        txn.free_bytes = 0;
        txn.owed = 0;
        if !garbage.is_empty() {
            // It keeps its entry when it gives back its reservation.
            let kept = STEP.max(self.scaled((garbage.len() * SLOT_BYTES) as u64));
            txn.garbage = garbage;
            let before = std::mem::replace(&mut txn.taken, kept);
            self.unreserve_unused(before.saturating_sub(kept));
            return kept.saturating_sub(before);
        }
        let taken = std::mem::take(&mut txn.taken);
        drop(txn);
        self.free.lock().push(home.0);
        self.unreserve_unused(taken);
        0
    }
}

impl StorageScheme for PcmLogging {
    /// There is a free entry, because the transaction has reserved space; but while this looks for
    /// it, another one may be given back.
    fn home(&self, _txn: TxnId) -> Home {
        let mut backoff = Backoff::new();
        loop {
            if let Some(entry) = self.free.lock().pop() {
                return Home(entry);
            }
            backoff.snooze();
        }
    }

    fn home_of(&self, txn: TxnId, _last: LogAddress) -> Home {
        let resumed = self.resumed.iter().find(|(resumed, _)| *resumed == txn);
        Home(resumed.expect("recovery has found the transaction").1)
    }

    fn change(&self, home: Option<Home>, change: Change<'_>, pages: &mut [Exclusive<'_>]) -> Recorded {
        let gsn = Gsn::new(self.pcm.tick());
        for page in pages.iter_mut() {
            page::set_gsn(&mut page.page_mut(), gsn);
        }
        let bytes = match home {
            None => {
                self.change_structure(pages);
                0
            }
            Some(home) => self.change_of(home, change, pages),
        };
        Recorded { gsn, address: LogAddress::ZERO, bytes }
    }

    fn note(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let mut txn = self.txn(home).lock();
        let before = txn.free_bytes / SLOT_BYTES;
        txn.free_bytes += record.payload.len() + 1;
        txn.frees.push(record.payload.to_vec());
        let after = txn.free_bytes / SLOT_BYTES;
        let is_first = txn.frees.len() == 1;
        let slots = u64::from(is_first) + (after - before) as u64;
        let bytes = self.scaled(slots * SLOT_BYTES as u64);
        txn.taken += bytes;
        Recorded { gsn: Gsn::new(self.pcm.tick()), address: LogAddress::ZERO, bytes }
    }

    fn end_txn(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let has_committed = record.kind == Kind::Commit as u8;
        let xid = self.pages.active.current(home.0);
        let (frees, garbage, is_empty) = {
            let mut txn = self.txn(home).lock();
            let frees = std::mem::take(&mut txn.frees);
            (frees, std::mem::take(&mut txn.garbage), txn.pages.is_empty())
        };
        debug_assert_eq!(
            has_committed && record.flags & FLAG_HAS_DEFERRED_FREES != 0,
            has_committed && !frees.is_empty(),
            "the transaction and its scheme know the same deferred frees"
        );
        if !garbage.is_empty() {
            self.pages.erase(&garbage);
        }
        let frees = if has_committed { &frees[..] } else { &[] };
        let ended = if is_empty && frees.is_empty() { Ok(Vec::new()) } else { self.end(home, has_committed, frees) };
        let bytes = match ended {
            Ok(garbage) => self.forget(home, xid, garbage),
            Err(error) => {
                self.fail(error);
                0
            }
        };
        Recorded { gsn: Gsn::new(self.pcm.tick()), address: record.prev, bytes }
    }

    fn harden(&self, _gsn: Gsn, _own: Option<LogAddress>) -> Result<()> {
        self.failure().map_or(Ok(()), |reason| Err(Error::Poisoned { reason }))
    }

    /// A commit is durable before any lock is released, unless it has failed.
    fn request_hardening(&self, _gsn: Gsn) -> Option<Hardening> {
        self.failure().map(Hardening::Failed)
    }

    fn before_blocking(&self) {}

    fn is_hardened(&self, _gsn: Gsn) -> bool {
        self.failure.get().is_none()
    }

    fn hardened_commits(&self) -> Option<Gsn> {
        None
    }

    fn latest(&self) -> Gsn {
        Gsn::ZERO
    }

    fn space_for_operation(&self, _payload: u64) -> u64 {
        // The page and more covers, and the page of a split that gets covers of the transaction. Or
        // the page and covers of records that were deleted together, which are less than two slots.
        4 * self.scaled(SLOT_BYTES as u64)
    }

    /// A rollback changes pages that the transaction has changed, or that a split has added.
    fn space_for_undo(&self, _payload: usize, _inverse: usize) -> u64 {
        0
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        let less = |space: i64| space.checked_sub_unsigned(bytes).filter(|space| *space >= 0);
        let taken = self.space.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less);
        taken.map(drop).map_err(|space| {
            let reason = format!(
                "the PCM `{}` has {} slots, and open transactions have reserved {} % of them; end \
                 some of these, or make it larger",
                self.pcm.location(),
                self.pages.slots(),
                100 * self.all_space.saturating_sub_signed(space) / self.all_space.max(1)
            );
            Error::Full { reason }
        })
    }

    /// The end of a transaction needs no space.
    fn reserve_end(&self) -> Result<u64> {
        Ok(0)
    }

    /// A transaction gives back at its end what it has taken.
    fn unreserve(&self, _bytes: u64) {}

    fn unreserve_unused(&self, bytes: u64) {
        self.space.fetch_add(bytes.cast_signed(), Ordering::AcqRel);
    }

    /// The pages of changes that no transaction owns can leave the region at once.
    fn reserve_system(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn note_txn_limit(&self, limit: TxnId) {
        let mut available = self.ids.lock();
        if limit.get() > *available {
            *available = limit.get().next_multiple_of(TXN_STEP);
            self.pcm.set(Word::NextTxn, *available);
        }
    }

    fn note_groups(&self, groups: u64) {
        self.pcm.set(Word::Groups, groups);
    }

    fn log(&self) -> Option<&dyn LogService> {
        None
    }

    fn heap(&self) -> Option<HeapMetrics> {
        None
    }

    fn keeps_values_of_ghosts(&self) -> bool {
        // The tuple of a ghost has no value.
        self.pages.granularity() == Granularity::Page
    }

    fn pcm(&self) -> Option<PcmMetrics> {
        Some(self.pages.metrics())
    }

    fn lacks_space(&self) -> bool {
        self.space.load(Ordering::Relaxed) < self.all_space.cast_signed() / 2
    }

    fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    fn close(&self) -> Result<()> {
        self.harden(Gsn::ZERO, None)?;
        self.pcm.set(Word::State, State::Clean as u64);
        Ok(())
    }
}
