//! Allocation bitmap pages: one bit for each page of the data file, set while the page is in use.
//!
//! The file is divided into groups of [`GROUP_PAGES`] pages. Each group's bitmap page holds the
//! bits of the whole group. The bitmap of the first group is page 1. Page 0 holds no page of a
//! table, so page number 0 can mean "none". The bitmap of any other group is the group's first
//! page.

use duramen_types::{PAGE_SIZE, PageId};

use super::{PAGE_HEADER_SIZE, PageMut};

const BITS_OFFSET: usize = PAGE_HEADER_SIZE + 32;

/// Pages in a group.
pub(crate) const GROUP_PAGES: u64 = ((PAGE_SIZE - BITS_OFFSET) * 8) as u64;

/// A bit number beyond the bitmap, or a bit that has the requested value already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BadBit;

/// Returns the group of a page, and the page's bit in the group.
pub(crate) const fn locate(page: PageId) -> (u64, u32) {
    (page.get() / GROUP_PAGES, (page.get() % GROUP_PAGES) as u32)
}

/// Returns the page at a bit of a group.
pub(crate) const fn page_at(group: u64, bit: u32) -> PageId {
    PageId::new(group * GROUP_PAGES + bit as u64)
}

/// Returns the bitmap page of a group.
pub(crate) const fn bitmap_page(group: u64) -> PageId {
    PageId::new(if group == 0 { 1 } else { group * GROUP_PAGES })
}

/// Returns whether a bit is set.
pub(crate) fn get(page: &[u8], bit: u32) -> bool {
    page.get(BITS_OFFSET + bit as usize / 8).is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
}

/// Sets or clears a bit that has the other value.
pub(crate) fn set(page: &mut PageMut<'_>, bit: u32, value: bool) -> Result<(), BadBit> {
    if get(page, bit) == value {
        return Err(BadBit);
    }
    let at = BITS_OFFSET + bit as usize / 8;
    let byte = *page.get(at).ok_or(BadBit)?;
    page.put_field(at, [byte ^ (1 << (bit % 8))]);
    Ok(())
}

/// Returns whether `count` bits from `bit` on are all in the bitmap, and set.
pub(crate) fn are_set(page: &[u8], bit: u32, count: u32) -> bool {
    bit.checked_add(count).is_some_and(|end| (bit..end).all(|bit| get(page, bit)))
}

/// Returns the first clear bit at or after `from`.
pub(crate) fn find_clear(page: &[u8], from: u32) -> Option<u32> {
    let bits = &page[BITS_OFFSET..];
    let start = from as usize / 8;
    for (index, &byte) in bits.iter().enumerate().skip(start) {
        let taken = if index == start { byte | ((1u16 << (from % 8)) - 1) as u8 } else { byte };
        if taken != 0xff {
            return Some((index * 8) as u32 + taken.trailing_ones());
        }
    }
    None
}

/// Returns the number of clear bits in a row from `bit` on, at most `most`, within the bitmap.
pub(crate) fn count_clear(page: &[u8], bit: u32, most: u32) -> u32 {
    let end = bit.saturating_add(most).min(GROUP_PAGES as u32);
    (bit..end).take_while(|&bit| !get(page, bit)).count() as u32
}

/// Returns the number of set bits.
pub(crate) fn count(page: &[u8]) -> u64 {
    page[BITS_OFFSET..].iter().map(|byte| u64::from(byte.count_ones())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_set_and_cleared() {
        let mut page = vec![0u8; PAGE_SIZE];
        let set = |page: &mut [u8], bit, value| PageMut::tracked(page, |mut page| set(&mut page, bit, value));
        for bit in 0..20 {
            assert_eq!(find_clear(&page, 0), Some(bit));
            assert_eq!(set(&mut page, bit, true), Ok(()));
        }
        assert_eq!(set(&mut page, 3, true), Err(BadBit));
        assert_eq!(set(&mut page, 3, false), Ok(()));
        assert_eq!(find_clear(&page, 0), Some(3));
        assert_eq!(find_clear(&page, 4), Some(20));
        assert_eq!(count(&page), 19);
        assert_eq!([(3, 9), (2, 9), (20, 9)].map(|(bit, most)| count_clear(&page, bit, most)), [1, 0, 9]);
        let last = GROUP_PAGES as u32 - 1;
        assert_eq!(set(&mut page, last, true), Ok(()));
        assert!(get(&page, last));
        assert_eq!(set(&mut page, last + 1, true), Err(BadBit));
        assert_eq!(find_clear(&page, last), None);
        assert_eq!([last - 4, last, last + 1].map(|bit| count_clear(&page, bit, 9)), [4, 0, 0]);
    }

    #[test]
    fn pages_and_bits_correspond() {
        for raw in [0, 1, 2, GROUP_PAGES - 1, GROUP_PAGES, 3 * GROUP_PAGES + 17] {
            let (group, bit) = locate(PageId::new(raw));
            assert_eq!(page_at(group, bit).get(), raw);
        }
        assert_eq!(bitmap_page(0).get(), 1);
        assert_eq!(bitmap_page(2).get(), 2 * GROUP_PAGES);
    }
}
