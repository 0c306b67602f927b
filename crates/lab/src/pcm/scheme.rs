//! What every scheme does, and the frames in DRAM that all of them have.

use super::devices::Devices;
use super::recency::Recency;
use super::trace::{Op, Page, Tuple};

/// Number of a transaction, never used twice: a transaction that is run again gets a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Xid(u64);

impl Xid {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// A way of keeping pages and committing transactions.
pub(crate) trait Scheme {
    /// Returns the number of what a transaction must lock to access `tuple`.
    fn lock_of(&self, tuple: Tuple) -> u32;

    /// Does what transaction `txn` asks for.
    fn access(&mut self, txn: Xid, op: Op, devices: &mut Devices);

    /// Makes the changes of `txn` durable.
    fn commit(&mut self, txn: Xid, devices: &mut Devices);

    /// Takes the changes of `txn` back.
    fn abort(&mut self, txn: Xid, devices: &mut Devices);

    /// Returns whether its PCM has been full.
    fn has_been_full(&self) -> bool;
}

/// The pages in DRAM. The least recently used one makes room.
#[derive(Debug)]
pub(super) struct Frames {
    recency: Recency,
    capacity: usize,
}

impl Frames {
    /// Returns `capacity` frames for pages with numbers below `pages`.
    pub(super) fn new(capacity: usize, pages: u32) -> Self {
        assert!(capacity > 0);
        Self { recency: Recency::new(pages as usize), capacity }
    }

    pub(super) fn has(&self, page: Page) -> bool {
        self.recency.contains(page.get())
    }

    /// Notes that `page` is used; returns whether it is there.
    pub(super) fn hit(&mut self, page: Page) -> bool {
        let there = self.has(page);
        if there {
            self.recency.touch(page.get());
        }
        there
    }

    /// Gives `page` a frame; returns the page that had to leave.
    pub(super) fn admit(&mut self, page: Page) -> Option<Page> {
        assert!(!self.has(page));
        let victim = if self.recency.len() == self.capacity { self.recency.oldest() } else { None };
        if let Some(victim) = victim {
            self.recency.remove(victim);
        }
        self.recency.touch(page.get());
        victim.map(Page::new)
    }

    pub(super) fn discard(&mut self, page: Page) {
        self.recency.remove(page.get());
    }

    /// Returns all pages, the least recently used one first.
    pub(super) fn pages(&self) -> impl Iterator<Item = Page> {
        self.recency.iter().map(Page::new)
    }
}

/// Which pages are on disk, or anywhere. A page that is new needs no reading.
#[derive(Debug)]
pub(super) struct Existing {
    exists: Vec<bool>,
    on_disk: Vec<bool>,
}

impl Existing {
    /// Returns a database with room for `pages` pages, of which the first `stored` are on disk.
    pub(super) fn new(stored: u32, pages: u32) -> Self {
        let on_disk: Vec<bool> = (0..pages).map(|page| page < stored).collect();
        Self { exists: on_disk.clone(), on_disk }
    }

    /// Notes that `page` exists; returns whether it is new.
    pub(super) fn create(&mut self, page: Page) -> bool {
        !std::mem::replace(&mut self.exists[page.index()], true)
    }

    pub(super) fn is_on_disk(&self, page: Page) -> bool {
        self.on_disk[page.index()]
    }

    pub(super) fn written(&mut self, page: Page) {
        self.on_disk[page.index()] = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_used_longest_ago_leaves() {
        let mut frames = Frames::new(2, 5);
        assert_eq!((frames.admit(Page::new(1)), frames.admit(Page::new(2))), (None, None));
        assert!(frames.hit(Page::new(1)) && !frames.hit(Page::new(3)));
        assert_eq!(frames.admit(Page::new(3)), Some(Page::new(2)));
        assert_eq!(frames.pages().collect::<Vec<_>>(), [Page::new(1), Page::new(3)]);
        frames.discard(Page::new(1));
        assert_eq!(frames.admit(Page::new(2)), None);
    }

    #[test]
    fn a_page_is_new_once_and_on_disk_when_it_was_written() {
        let mut pages = Existing::new(1, 3);
        assert!(!pages.create(Page::new(0)) && pages.create(Page::new(1)) && !pages.create(Page::new(1)));
        assert!(pages.is_on_disk(Page::new(0)) && !pages.is_on_disk(Page::new(1)));
        pages.written(Page::new(1));
        assert!(pages.is_on_disk(Page::new(1)));
    }
}
