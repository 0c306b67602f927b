//! Finds free pages of the data file.
//!
//! The allocation bitmaps (see `bitmap.rs`) record which pages are in use. They are changed like
//! any page, by logged operations that are part of the [`MiniTransaction`] that starts or stops
//! using the page: no crash can leak a page or give one out twice. This module keeps only a hint
//! where to search, and which free pages are reserved for a thread that needs a row of them.
//!
//! Latch order: a bitmap page is latched after every tree page of the same mini-transaction, and
//! only one bitmap page at a time.

use std::ops::Range;

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{PageId, TableId};

use crate::page::bitmap::{self, GROUP_PAGES};
use crate::page::{self, PageBuf, PageType};
use crate::pool::{Damage, Exclusive, Pool, PoolError, broken};
use crate::record::PageOp;
use crate::scheme::StorageScheme;
use crate::storage::mini_transaction::MiniTransaction;

/// The purpose for which a page is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Ordinary work, which may be refused.
    Work,
    /// Taking changes back, which should find space even when the disk is full.
    Rollback,
}

/// Pages that the data file reserves behind any page that ordinary work allocates.
const ROLLBACK_PAGES: u64 = 32;

/// Finds free pages.
#[derive(Debug)]
pub(crate) struct Space {
    /// No page below this is free, except for some that could not be used because of an error;
    /// reopening finds them again.
    hint: AtomicU64,
    /// Number of groups that have a bitmap.
    groups: AtomicU64,
    growth: Mutex<()>,
    /// Pages that only one thread takes: see [`Run`]. Changed and read under the latch of the
    /// pages' bitmap, but for the end of a reservation.
    reserved: Mutex<Vec<Range<u64>>>,
}

/// A page that is being allocated: its latched bitmap, and its bit. The page is allocated when
/// [`Taken::record`] has been called and the mini-transaction is logged.
pub(crate) struct Taken<'p> {
    bitmap: Exclusive<'p>,
    bit: u32,
    /// The page.
    pub(crate) page: PageId,
    /// Bytes of log that the creation of bitmaps took before.
    grown: u64,
}

impl<'p> Taken<'p> {
    /// Adds the allocation to `mini`.
    pub(crate) fn record(self, mini: &mut MiniTransaction<'p>) {
        mini.charge(self.grown);
        let bitmap = mini.include(self.bitmap);
        mini.apply(bitmap, PageOp::Take { bit: self.bit });
    }
}

/// Free pages of one group that follow each other, and that no other thread takes. Those that are
/// left when this is dropped are as before.
pub(crate) struct Run<'s> {
    space: &'s Space,
    /// The first of all pages.
    first: u64,
    left: Range<u64>,
    grown: u64,
}

impl Run<'_> {
    /// Returns the number of pages that are left.
    pub(crate) fn len(&self) -> usize {
        (self.left.end - self.left.start) as usize
    }

    /// Returns the next page.
    pub(crate) fn next(&self) -> PageId {
        PageId::new(self.left.start)
    }

    /// Takes the next page, of which there is one, as [`Space::take`] does.
    pub(crate) fn take<'p>(&mut self, pool: &'p Pool) -> Result<Taken<'p>, PoolError> {
        assert!(self.len() > 0, "a page is left");
        let page = self.next();
        let (group, bit) = bitmap::locate(page);
        let bitmap = pool.exclusive(bitmap::bitmap_page(group))?;
        assert!(!bitmap::get(&bitmap, bit), "another thread has taken a reserved page");
        self.left.start += 1;
        self.space.move_hint(Some(page.get()), page.get() + 1);
        Ok(Taken { bitmap, bit, page, grown: std::mem::take(&mut self.grown) })
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut reserved = self.space.reserved.lock();
        let at = reserved.iter().position(|pages| pages.start == self.first).expect("it was reserved");
        reserved.swap_remove(at);
    }
}

/// Free pages that were found: their bitmap, latched, and their bits in it.
struct Found<'p> {
    bitmap: Exclusive<'p>,
    bits: Range<u32>,
    first: PageId,
    /// Bytes of log that the creation of bitmaps took.
    grown: u64,
    /// The hint from which the search came, if no free page lies between.
    hint: Option<u64>,
}

impl Space {
    /// Creates the free-space state of a data file with `groups` groups.
    pub(crate) fn new(groups: u64) -> Self {
        Self {
            hint: AtomicU64::new(0),
            groups: AtomicU64::new(groups),
            growth: Mutex::default(),
            reserved: Mutex::default(),
        }
    }

    /// Returns the number of groups that have a bitmap.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// Counts the groups of the data file, of which `known` certainly have a bitmap. Called once
    /// redo has restored all bitmaps.
    ///
    /// The file grows ahead of its use, and a group's bitmap is created when its first page is
    /// allocated. So behind the known groups, a blank page in place of a bitmap, or no page at all,
    /// marks the end of the groups. Among the known groups it means that a bitmap is lost: pages
    /// that are in use would be given out again.
    pub(crate) fn discover(&self, pool: &Pool, known: u64, pages_in_file: u64) -> Result<(), PoolError> {
        let mut groups = 1;
        while groups < known || groups * GROUP_PAGES < pages_in_file {
            let id = bitmap::bitmap_page(groups);
            match pool.shared(id) {
                Ok(bitmap) if page::page_type(&bitmap) == Some(PageType::Bitmap) => groups += 1,
                Ok(_) => return Err(broken(id, "an allocation bitmap was overwritten")),
                Err(error) if !is_absent(&error) => return Err(error),
                Err(_) if groups < known => {
                    return Err(broken(id, "an allocation bitmap is lost, but its pages are in use"));
                }
                Err(_) => break,
            }
        }
        self.groups.store(groups, Ordering::Release);
        Ok(())
    }

    /// Takes it that so many groups have a bitmap, where a scheme knows the number. Reads no page.
    pub(crate) fn resume(&self, groups: u64) {
        self.groups.store(groups, Ordering::Release);
    }

    /// Finds a free page, and latches its bitmap so that no other thread finds it. Also extends the
    /// data file for the page: a full disk is an error now and not when the page is written.
    /// Ordinary work leaves some pages for rollbacks, which may have to split a page, too.
    pub(crate) fn take<'p>(
        &self,
        pool: &'p Pool,
        scheme: &dyn StorageScheme,
        purpose: Purpose,
    ) -> Result<Taken<'p>, PoolError> {
        // Before the mutex under which a group is added: its holders are in a section.
        let _section = pool.enter();
        let Found { bitmap, bits, first: page, grown, hint } = self.find(pool, scheme, 1)?;
        match purpose {
            Purpose::Work => pool.reserve_page(PageId::new(page.get() + ROLLBACK_PAGES))?,
            Purpose::Rollback => pool.reserve_page(page)?,
        }
        self.move_hint(hint, page.get() + 1);
        Ok(Taken { bitmap, bit: bits.start, page, grown })
    }

    /// Reserves at most `most` free pages that follow each other, for ordinary work: the first ones
    /// that are found, even if more follow each other elsewhere. Extends the data file for them.
    pub(crate) fn reserve_run(&self, pool: &Pool, scheme: &dyn StorageScheme, most: u32) -> Result<Run<'_>, PoolError> {
        let _section = pool.enter();
        let found = self.find(pool, scheme, most)?;
        let first = found.first.get();
        let end = first + u64::from(found.bits.end - found.bits.start);
        pool.reserve_page(PageId::new(end - 1 + ROLLBACK_PAGES))?;
        self.move_hint(found.hint, first);
        self.reserved.lock().push(first..end);
        Ok(Run { space: self, first, left: first..end, grown: found.grown })
    }

    /// Finds the first free page that is not reserved, and those that follow it, at most `most`
    /// together.
    fn find<'p>(&self, pool: &'p Pool, scheme: &dyn StorageScheme, most: u32) -> Result<Found<'p>, PoolError> {
        let start = self.hint.load(Ordering::Relaxed);
        let (mut group, mut from) = bitmap::locate(PageId::new(start));
        // Where the search has moved the hint, until another thread moves it, for instance because
        // a page below was freed, or a reserved page is passed; then that place is kept.
        let mut hint = Some(start);
        let mut grown = 0;
        loop {
            if group >= self.groups() {
                grown += self.grow(pool, scheme, group)?;
            }
            let bitmap = pool.exclusive(bitmap::bitmap_page(group))?;
            while let Some(bit) = bitmap::find_clear(&bitmap, from) {
                let first = bitmap::page_at(group, bit);
                match self.unreserved(first.get()) {
                    Ok(free) => {
                        let most = free.min(u64::from(most)) as u32;
                        let bits = bit..bit + bitmap::count_clear(&bitmap, bit, most);
                        return Ok(Found { bitmap, bits, first, grown, hint });
                    }
                    Err(behind) => {
                        hint = None;
                        from = (behind - bitmap::page_at(group, 0).get()) as u32;
                    }
                }
            }
            (group, from) = (group + 1, 0);
            // While no page of the full group can be freed: one that is freed behind the old hint
            // later must change the hint.
            hint = self.move_hint(hint, bitmap::page_at(group, from).get());
            drop(bitmap);
        }
    }

    /// Returns the number of pages from `page` to the next reserved one; if `page` is reserved, the
    /// page behind its run as an error.
    fn unreserved(&self, page: u64) -> Result<u64, u64> {
        let mut free = u64::MAX;
        for run in self.reserved.lock().iter() {
            if run.contains(&page) {
                return Err(run.end);
            }
            if run.start > page {
                free = free.min(run.start - page);
            }
        }
        Ok(free)
    }

    /// Moves the hint if it is still at `from`; returns where it is then.
    fn move_hint(&self, from: Option<u64>, to: u64) -> Option<u64> {
        self.hint.compare_exchange(from?, to, Ordering::Relaxed, Ordering::Relaxed).ok().map(|_| to)
    }

    /// Creates the bitmap of `group`, unless another thread has; returns the bytes of log that this
    /// took.
    pub(crate) fn grow(&self, pool: &Pool, scheme: &dyn StorageScheme, group: u64) -> Result<u64, PoolError> {
        let _growth = self.growth.lock();
        if group < self.groups() {
            return Ok(0);
        }
        let id = bitmap::bitmap_page(group);
        pool.reserve_page(id)?;
        let mut mini = MiniTransaction::new();
        let index = mini.include(pool.create(id)?);
        mini.apply(index, PageOp::Image(&page::image(&blank_bitmap(group))));
        let logged = mini.finish(scheme);
        scheme.note_groups(group + 1);
        self.groups.store(group + 1, Ordering::Release);
        Ok(logged)
    }

    /// Adds the operations that free the page at `index` of `mini` to `mini`.
    pub(crate) fn give_back<'p>(
        &self,
        pool: &'p Pool,
        mini: &mut MiniTransaction<'p>,
        index: usize,
    ) -> Result<(), PoolError> {
        let id = mini.page_id(index);
        let (group, bit) = bitmap::locate(id);
        let bitmap = pool.exclusive(bitmap::bitmap_page(group))?;
        if !bitmap::get(&bitmap, bit) {
            return Err(broken(id, "a page to be freed is not in use"));
        }
        let bitmap = mini.include(bitmap);
        mini.apply(index, PageOp::Retire);
        mini.apply(bitmap, PageOp::GiveBack { bit });
        self.hint.fetch_min(id.get(), Ordering::Relaxed);
        Ok(())
    }

    /// Adds the operation that frees pages of one group, which follow each other, to `mini`. Their
    /// bytes stay as they are.
    pub(crate) fn give_back_run<'p>(
        &self,
        pool: &'p Pool,
        mini: &mut MiniTransaction<'p>,
        first: PageId,
        count: u32,
    ) -> Result<(), PoolError> {
        let (group, bit) = bitmap::locate(first);
        let bitmap = pool.exclusive(bitmap::bitmap_page(group))?;
        if !bitmap::are_set(&bitmap, bit, count) {
            return Err(broken(first, "pages to be freed are not in use"));
        }
        let bitmap = mini.include(bitmap);
        mini.apply(bitmap, PageOp::GiveBackRun { bit, count });
        self.hint.fetch_min(first.get(), Ordering::Relaxed);
        Ok(())
    }

    /// Makes the search for free pages begin at `page`.
    #[cfg(test)]
    pub(crate) fn set_hint(&self, page: PageId) {
        self.hint.store(page.get(), Ordering::Relaxed);
    }

    /// Returns whether `page` is in use.
    pub(crate) fn is_taken(&self, pool: &Pool, page: PageId) -> Result<bool, PoolError> {
        let (group, bit) = bitmap::locate(page);
        if group >= self.groups() {
            return Ok(false);
        }
        Ok(bitmap::get(&pool.shared(bitmap::bitmap_page(group))?, bit))
    }
}

/// Returns whether a page cannot be read because it is blank or behind the end of the file.
fn is_absent(error: &PoolError) -> bool {
    match error {
        PoolError::Corrupt { damage, .. } => *damage == Damage::Blank,
        PoolError::Disk(error) => error.kind == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// Returns the bitmap page of a group in which only the group's own pages are in use.
pub(crate) fn blank_bitmap(group: u64) -> PageBuf {
    let mut bytes = PageBuf::zeroed();
    let mut page = bytes.page_mut();
    page::init_header(&mut page, PageType::Bitmap, 0, bitmap::bitmap_page(group), TableId::ZERO);
    let used = if group == 0 { 2 } else { 1 };
    for bit in 0..used {
        bitmap::set(&mut page, bit, true).expect("the bitmap is blank");
    }
    bytes
}

#[cfg(test)]
mod tests;
