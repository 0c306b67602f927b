//! Compares the reached pages with the allocated pages.

use std::ops::RangeInclusive;

use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::Checker;
use crate::error::Result;
use crate::page::bitmap::{self, GROUP_PAGES};
use crate::page::{self, PAGE_HEADER_SIZE, PageType};

/// Offset of the bits in a bitmap page.
const BITS: usize = PAGE_SIZE - (GROUP_PAGES / 8) as usize;

/// A set of pages, as large as the allocation bitmaps.
pub(super) struct Reached(Vec<u64>);

/// The outcome of adding a page to a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// The page was not in the set.
    New,
    /// The page was in the set already.
    Again,
    /// The page number is beyond the set.
    Outside,
}

impl Reached {
    pub(super) fn new(groups: u64) -> Self {
        Self(vec![0; (groups * GROUP_PAGES).div_ceil(64) as usize])
    }

    pub(super) fn mark(&mut self, page: PageId) -> Mark {
        let Some(word) = usize::try_from(page.get() / 64).ok().and_then(|index| self.0.get_mut(index)) else {
            return Mark::Outside;
        };
        let bit = 1 << (page.get() % 64);
        if *word & bit != 0 {
            return Mark::Again;
        }
        *word |= bit;
        Mark::New
    }

    fn contains(&self, page: PageId) -> bool {
        let word = usize::try_from(page.get() / 64).ok().and_then(|index| self.0.get(index));
        word.is_some_and(|word| word & 1 << (page.get() % 64) != 0)
    }
}

impl Checker<'_> {
    /// Checks the bitmaps and compares them with the reached pages. `file_pages` is the length of
    /// the data file.
    pub(super) fn check_space(&mut self, file_pages: u64) -> Result<()> {
        let groups = self.store.space.groups();
        for group in 0..groups {
            let id = bitmap::bitmap_page(group);
            match self.reached.mark(id) {
                Mark::New => self.report.pages += 1,
                _ => self.problem(id, "the allocation bitmap is also used for something else"),
            }
        }
        let mut taken_in_file = 0;
        let mut leak: Option<RangeInclusive<u64>> = None;
        for group in 0..groups {
            let id = bitmap::bitmap_page(group);
            let Some(bytes) = self.read_bitmap(id)? else {
                // The group's state is unknown; pages that may be in use are not counted as free.
                taken_in_file += file_pages.saturating_sub(group * GROUP_PAGES).min(GROUP_PAGES);
                continue;
            };
            for bit in 0..GROUP_PAGES as u32 {
                let page = bitmap::page_at(group, bit);
                let (taken, reached) = (bitmap::get(&bytes, bit), self.reached.contains(page));
                taken_in_file += u64::from(taken && page.get() < file_pages);
                if taken && !reached && !page.is_zero() {
                    match &mut leak {
                        Some(run) if *run.end() + 1 == page.get() => *run = *run.start()..=page.get(),
                        _ => {
                            let before = leak.replace(page.get()..=page.get());
                            self.report_leak(before);
                        }
                    }
                } else if reached && !taken {
                    self.problem(page, format_args!("the page is in use, but the bitmap in {id} says that it is free"));
                }
            }
            if group == 0 && !bitmap::get(&bytes, 0) {
                self.problem(id, "the bitmap says that page 0 is free, but page 0 is never used");
            }
        }
        self.report_leak(leak);
        self.report.free_pages = file_pages.saturating_sub(taken_in_file);
        Ok(())
    }

    fn report_leak(&mut self, pages: Option<RangeInclusive<u64>>) {
        let Some(pages) = pages else { return };
        let (first, last) = pages.into_inner();
        let what = match last - first {
            0 => "the page is allocated, but nothing uses it".to_owned(),
            more => format!("the page and the {more} after it are allocated, but nothing uses them"),
        };
        let doubt = if self.severed { "; they may belong to pages that could not be reached" } else { "" };
        self.problem(PageId::new(first), format_args!("{what}{doubt}"));
    }

    /// Returns a bitmap page; returns `None` and reports a problem when the page is no bitmap.
    fn read_bitmap(&mut self, id: PageId) -> Result<Option<Vec<u8>>> {
        let Some(bytes) = self.read(id, "allocation bitmap")? else { return Ok(None) };
        let defect = if page::page_type(&bytes) != Some(PageType::Bitmap) {
            "the page should be an allocation bitmap, but is not"
        } else if page::page_id(&bytes) != id {
            "the header of the allocation bitmap names another page"
        } else if page::table_id(&bytes) != TableId::ZERO || page::level(&bytes) != 0 {
            "the header of the allocation bitmap names a table or a level"
        } else if bytes[PAGE_HEADER_SIZE..BITS].iter().any(|&byte| byte != 0) {
            "reserved bytes of the allocation bitmap are in use"
        } else {
            return Ok(Some(bytes));
        };
        self.problem(id, defect);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_marked_once_and_within_bounds() {
        let mut reached = Reached::new(1);
        let last = PageId::new(GROUP_PAGES - 1);
        assert_eq!(reached.mark(last), Mark::New);
        assert_eq!(reached.mark(last), Mark::Again);
        assert!(reached.contains(last) && !reached.contains(PageId::new(GROUP_PAGES - 2)));
        assert_eq!(reached.mark(PageId::MAX), Mark::Outside);
        assert!(!reached.contains(PageId::MAX));
    }
}
