//! Which pages of the data file are in use.
//!
//! The truth is in the allocation bitmaps (see `bitmap.rs`), which are changed like any page, by
//! logged operations that are part of the [`MiniTransaction`] that starts or stops using the page:
//! no crash can leak a page or give one out twice. Here is only a hint where to look.
//!
//! Latch order: a bitmap page is latched after every tree page of the same mini-transaction, and
//! only one of them at a time.

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{PAGE_SIZE, PageId, TableId};

use crate::page::bitmap::{self, GROUP_PAGES};
use crate::page::{self, PageType};
use crate::pool::{Damage, Exclusive, Pool, PoolError, broken};
use crate::record::PageOp;
use crate::scheme::StorageScheme;
use crate::storage::mini_transaction::MiniTransaction;

/// What a page is taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Going forward: may be refused.
    Work,
    /// Taking changes back: should find room even when the disk is full.
    Rollback,
}

/// Pages that the data file has room for beyond any page taken for ordinary work.
const ROLLBACK_PAGES: u64 = 32;

/// Finds free pages.
#[derive(Debug)]
pub(crate) struct Space {
    /// No page below this is free, but for some that an error kept from being used; reopening finds
    /// them again.
    hint: AtomicU64,
    /// Number of groups that have a bitmap.
    groups: AtomicU64,
    growth: Mutex<()>,
}

/// A page that is being taken: its bitmap, latched, and its bit. It is taken when [`Taken::record`]
/// has been called and the mini-transaction is logged.
pub(crate) struct Taken<'p> {
    bitmap: Exclusive<'p>,
    bit: u32,
    /// The page.
    pub(crate) page: PageId,
    /// Bytes of log that it took to make bitmaps before.
    grown: u64,
}

impl<'p> Taken<'p> {
    /// Makes the allocation part of `mini`.
    pub(crate) fn record(self, mini: &mut MiniTransaction<'p>) {
        mini.charge(self.grown);
        let bitmap = mini.include(self.bitmap);
        mini.apply(bitmap, PageOp::Take { bit: self.bit });
    }
}

impl Space {
    /// For a data file with this many groups.
    pub(crate) fn new(groups: u64) -> Self {
        Self { hint: AtomicU64::new(0), groups: AtomicU64::new(groups), growth: Mutex::new(()) }
    }

    /// Number of groups that have a bitmap.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Acquire)
    }

    /// Looks at the data file for the groups it has, `known` of which have a bitmap for certain.
    /// Used once redo has brought all bitmaps back.
    ///
    /// The file grows ahead of its use, and a group's bitmap is made when its first page is wanted.
    /// So behind the groups that are known a blank page where a bitmap would be, or no page at all,
    /// is the end of the groups. Before that it is a loss: what had been in use would be given out
    /// again.
    pub(crate) fn discover(&self, pool: &Pool, known: u64, pages_in_file: u64) -> Result<(), PoolError> {
        let mut groups = 1;
        while groups < known || groups * GROUP_PAGES < pages_in_file {
            let id = bitmap::bitmap_page(groups);
            match pool.shared(id) {
                Ok(bitmap) if page::page_type(&bitmap) == Some(PageType::Bitmap) => groups += 1,
                Ok(_) => return Err(broken(id, "an allocation bitmap was overwritten")),
                Err(error) if !is_absent(&error) => return Err(error),
                Err(_) if groups < known => {
                    return Err(broken(id, "an allocation bitmap is lost, and the pages it is for are in use"));
                }
                Err(_) => break,
            }
        }
        self.groups.store(groups, Ordering::Release);
        Ok(())
    }

    /// Finds a free page, and latches its bitmap so that nobody else finds it. Room for the page in
    /// the data file is made here: a full disk is an error now and not when the page is written.
    /// Ordinary work leaves some room for rollbacks, which may have to split a page, too.
    pub(crate) fn take<'p>(
        &self,
        pool: &'p Pool,
        scheme: &dyn StorageScheme,
        purpose: Purpose,
    ) -> Result<Taken<'p>, PoolError> {
        let hint = self.hint.load(Ordering::Relaxed);
        let (mut group, mut from) = bitmap::locate(PageId::new(hint));
        let mut grown = 0;
        loop {
            if group >= self.groups() {
                grown += self.grow(pool, scheme, group)?;
            }
            let bitmap = pool.exclusive(bitmap::bitmap_page(group))?;
            if let Some(bit) = bitmap::find_clear(&bitmap, from) {
                let page = bitmap::page_at(group, bit);
                match purpose {
                    Purpose::Work => pool.reserve_page(PageId::new(page.get() + ROLLBACK_PAGES))?,
                    Purpose::Rollback => pool.reserve_page(page)?,
                }
                // Lost to a page given back meanwhile: then the hint already is lower.
                let _ = self.hint.compare_exchange(hint, page.get() + 1, Ordering::Relaxed, Ordering::Relaxed);
                return Ok(Taken { bitmap, bit, page, grown });
            }
            group += 1;
            from = 0;
        }
    }

    /// Makes the bitmap of `group`, unless another thread has; returns the bytes of log that it
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
        self.groups.store(group + 1, Ordering::Release);
        Ok(logged)
    }

    /// Makes giving `page` (part of it under `index`) back part of `mini`.
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
            return Err(broken(id, "a page that is to be given back is not in use"));
        }
        let bitmap = mini.include(bitmap);
        mini.apply(index, PageOp::Retire);
        mini.apply(bitmap, PageOp::GiveBack { bit });
        self.hint.fetch_min(id.get(), Ordering::Relaxed);
        Ok(())
    }

    /// Has the search for free pages begin at `page`.
    #[cfg(all(test, not(duramen_loom)))]
    pub(crate) fn set_hint(&self, page: PageId) {
        self.hint.store(page.get(), Ordering::Relaxed);
    }

    /// Whether `page` is in use.
    pub(crate) fn is_taken(&self, pool: &Pool, page: PageId) -> Result<bool, PoolError> {
        let (group, bit) = bitmap::locate(page);
        if group >= self.groups() {
            return Ok(false);
        }
        Ok(bitmap::get(&pool.shared(bitmap::bitmap_page(group))?, bit))
    }
}

/// Whether a page cannot be read because it is blank or behind the end of the file.
fn is_absent(error: &PoolError) -> bool {
    match error {
        PoolError::Corrupt { damage, .. } => *damage == Damage::Blank,
        PoolError::Disk(error) => error.kind == std::io::ErrorKind::UnexpectedEof,
        _ => false,
    }
}

/// The bitmap page of a group in which only the group's own pages are in use.
pub(crate) fn blank_bitmap(group: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    page::init_header(&mut bytes, PageType::Bitmap, 0, bitmap::bitmap_page(group), TableId::ZERO);
    let used = if group == 0 { 2 } else { 1 };
    for bit in 0..used {
        bitmap::set(&mut bytes, bit, true).expect("the bitmap is blank");
    }
    bytes
}

#[cfg(test)]
mod tests;
