//! Pages that the data file has never had.
//!
//! A page needs the double-write area if a torn write would destroy what cannot be had otherwise. A
//! page beyond the end that the file had at the opening, until it is written for the first time, is
//! no such page. It was created since, and the record that created it has all its bytes. As the
//! page was never durable in place, its recovery GSN is not above that record: redo begins there or
//! earlier, and the first change that redo finds for the page replaces it as a whole, whatever a
//! crash has left in its place. From its first write on, the page needs the area like all others.

use duramen_types::{PageId, planted};

/// The pages that were not in the data file at the opening, and which of them were written since.
#[derive(Debug)]
pub(super) struct NewPages {
    /// The first of them.
    first: u64,
    /// A bit for each page from `first` on.
    written: Vec<u64>,
}

impl NewPages {
    /// Creates the state of a file that has `pages` pages.
    pub(super) fn new(pages: u64) -> Self {
        Self { first: pages, written: Vec::new() }
    }

    /// Returns whether the file has never had the page.
    pub(super) fn has(&self, id: PageId) -> bool {
        let Some(at) = id.get().checked_sub(self.first) else { return false };
        let word = usize::try_from(at / 64).ok().and_then(|word| self.written.get(word));
        planted!(WrittenPageTakenForNew) || word.is_none_or(|word| word >> (at % 64) & 1 == 0)
    }

    /// Notes that pages are durable in place.
    pub(super) fn note_written(&mut self, ids: &[PageId]) {
        for id in ids {
            let Some(at) = id.get().checked_sub(self.first) else { continue };
            let word = usize::try_from(at / 64).expect("the number of pages is limited");
            if word >= self.written.len() {
                self.written.resize(word + 1, 0);
            }
            self.written[word] |= 1 << (at % 64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_new_until_it_is_written() {
        let mut pages = NewPages::new(100);
        assert!(!pages.has(PageId::new(99)));
        assert!(pages.has(PageId::new(100)) && pages.has(PageId::new(100_000)));
        pages.note_written(&[PageId::new(3), PageId::new(228), PageId::new(100)]);
        assert!(!pages.has(PageId::new(100)) && !pages.has(PageId::new(228)));
        assert!(pages.has(PageId::new(101)) && pages.has(PageId::new(227)) && pages.has(PageId::new(229)));
    }
}
