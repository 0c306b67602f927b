//! Checks the pages of overflow values.

use duramen_types::{MAX_VALUE_LEN, PAGE_SIZE, PageId, TableId};

use super::space::Mark;
use super::{Checker, damage};
use crate::error::Result;
use crate::page::{self, PAGE_HEADER_SIZE, PageBytes, PageType};
use crate::storage::overflow::{PAGE_CONTENT, Reference};

/// The header of an overflow page, after the header that all pages share.
///
/// | offset | size | field |
/// |---|---|---|
/// | 32 | 8 | next page of the chain, 0 in the last |
/// | 40 | 8 | number of the chain |
/// | 48 | 4 | the page's place in the chain, from 0 |
/// | 52 | 4 | bytes of the value in this page, which follow |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) next: PageId,
    pub(crate) chain: u64,
    pub(crate) place: u32,
    pub(crate) length: u32,
}

/// Size of the header of an overflow page.
const LINK_SIZE: usize = 24;

const _: () = assert!(PAGE_HEADER_SIZE + LINK_SIZE + PAGE_CONTENT == PAGE_SIZE);

impl Link {
    /// Reads the header, whatever the type of the page; never panics.
    pub(crate) fn read(page: &[u8]) -> Self {
        Self {
            next: PageId::new(page.u64_at(PAGE_HEADER_SIZE)),
            chain: page.u64_at(PAGE_HEADER_SIZE + 8),
            place: page.u32_at(PAGE_HEADER_SIZE + 16),
            length: page.u32_at(PAGE_HEADER_SIZE + 20),
        }
    }
}

/// Returns the length of the part of the value in the page at `place` of its chain: every page but
/// the last is full.
fn expected_length(reference: Reference, place: usize) -> usize {
    (reference.len as usize).saturating_sub(place * PAGE_CONTENT).min(PAGE_CONTENT)
}

impl Checker<'_> {
    /// Checks an overflow value; `owner` names the record it belongs to.
    pub(super) fn check_chain(&mut self, owner: &str, table: TableId, reference: Reference) -> Result<()> {
        if reference.len as usize > MAX_VALUE_LEN {
            self.dead_end(reference.head, format_args!("{owner}: a value cannot have {} bytes", reference.len));
            return Ok(());
        }
        let pages = (reference.len as usize).div_ceil(PAGE_CONTENT).max(1);
        let mut id = reference.head;
        for place in 0..pages {
            match self.check_link(owner, table, reference, id, place)? {
                Some(next) => id = next,
                None => return Ok(()),
            }
        }
        if let Err(error) = self.store.check_overflow_chain(reference) {
            let reason = damage(error)?;
            self.dead_end(reference.head, format_args!("{owner}: {reason}"));
        }
        Ok(())
    }

    /// Checks one page of a chain and returns the next; `None` when the chain cannot be followed.
    fn check_link(
        &mut self,
        owner: &str,
        table: TableId,
        reference: Reference,
        id: PageId,
        place: usize,
    ) -> Result<Option<PageId>> {
        if id.is_zero() {
            self.dead_end(reference.head, format_args!("{owner}: the chain of a value ends after {place} pages"));
            return Ok(None);
        }
        match self.reached.mark(id) {
            Mark::New => self.report.pages += 1,
            Mark::Again => {
                self.dead_end(id, format_args!("{owner}: the page is used twice"));
                return Ok(None);
            }
            Mark::Outside => {
                self.dead_end(id, format_args!("{owner}: the page lies beyond the allocation bitmaps"));
                return Ok(None);
            }
        }
        let Some(page) = self.read(id, owner)? else { return Ok(None) };
        let link = Link::read(&page);
        let defect = if page::page_type(&page) != Some(PageType::Overflow) {
            "the chain of a value links to a page of another type".to_owned()
        } else if page::page_id(&page) != id {
            format!("the header of the page names {}", page::page_id(&page))
        } else if link.chain != reference.chain {
            format!("the page belongs to chain {:#x}, not to {:#x}", link.chain, reference.chain)
        } else if link.place as usize != place {
            format!("the page is number {} of its chain, not number {place}", link.place)
        } else if link.length as usize != expected_length(reference, place) {
            format!("the page holds {} bytes of its value, not {}", link.length, expected_length(reference, place))
        } else if page::table_id(&page) != table {
            format!("the page belongs to {}, not to {table}", page::table_id(&page))
        } else {
            return Ok(Some(link.next));
        };
        self.dead_end(id, format_args!("{owner}: {defect}"));
        Ok(None)
    }
}
