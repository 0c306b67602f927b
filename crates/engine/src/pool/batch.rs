//! Copies of dirty pages that are written together.
//!
//! The copies lie one after another in memory that direct I/O can write from.

use duramen_io::AlignedBuf;
use duramen_types::{Gsn, PAGE_SIZE, PageId};

use crate::page::{self, DatabaseTag, HEADER_LINE, Lines};

/// Largest number of pages in a batch.
pub(crate) const BATCH_PAGES: usize = 128;

/// A batch of pages to be written.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The pages.
    bytes: AlignedBuf,
    ids: Vec<PageId>,
    /// The lines of each page that may differ from the page that is durable in the store.
    lines: Vec<Lines>,
    /// Whether each page was formatted anew since that one was durable.
    anew: Vec<bool>,
}

/// One page of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copied<'a> {
    pub(super) id: PageId,
    /// The lines that may differ from the page that is durable in the store.
    pub(super) lines: Lines,
    /// Whether the page was formatted anew since that one was durable.
    pub(super) anew: bool,
    pub(super) page: &'a [u8],
}

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        let bytes = AlignedBuf::zeroed(BATCH_PAGES * PAGE_SIZE);
        Self {
            bytes,
            ids: Vec::with_capacity(BATCH_PAGES),
            lines: Vec::with_capacity(BATCH_PAGES),
            anew: Vec::with_capacity(BATCH_PAGES),
        }
    }

    /// Returns batches of at most `pages` pages each that together have the same pages.
    pub(super) fn parts(&self, pages: usize) -> impl Iterator<Item = Self> {
        (0..self.ids.len()).step_by(pages).map(move |first| {
            let mut part = Self::new();
            self.copies().skip(first).take(pages).for_each(|copy| part.push(copy));
            part
        })
    }

    /// Returns the pages with their changed lines.
    pub(super) fn copies(&self) -> impl Iterator<Item = Copied<'_>> + Clone {
        let pages = self.bytes.chunks_exact(PAGE_SIZE);
        let copies = self.ids.iter().zip(&self.lines).zip(&self.anew).zip(pages);
        copies.map(|(((&id, &lines), &anew), page)| Copied { id, lines, anew, page })
    }

    /// Empties the batch.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.lines.clear();
        self.anew.clear();
    }

    /// Returns whether the batch has no room for another page.
    pub(super) fn is_full(&self) -> bool {
        self.ids.len() == BATCH_PAGES
    }

    /// Copies a page of which all lines may differ from the page that is durable in the store.
    pub(crate) fn push_whole(&mut self, id: PageId, page: &[u8]) {
        self.push(Copied { id, lines: Lines::ALL, anew: false, page });
    }

    /// Copies a page into the batch.
    pub(super) fn push(&mut self, Copied { id, lines, anew, page }: Copied<'_>) {
        let start = self.ids.len() * PAGE_SIZE;
        self.bytes[start..start + PAGE_SIZE].copy_from_slice(page);
        self.ids.push(id);
        // Sealing changes the header.
        self.lines.push(lines | HEADER_LINE);
        self.anew.push(anew);
    }

    /// Forgets which lines of the pages have changed: all may have.
    pub(super) fn forget_lines(&mut self) {
        self.lines.fill(Lines::ALL);
        self.anew.fill(false);
    }

    /// Seals every page as one of this database.
    pub(crate) fn seal(&mut self, database: DatabaseTag) {
        for (page, id) in self.bytes.chunks_exact_mut(PAGE_SIZE).zip(&self.ids) {
            assert_eq!(page::page_id(page), *id, "a frame holds another page than it says");
            page::seal(page, database);
        }
    }

    /// Returns the pages, each with the GSN of its copy.
    pub(super) fn pages(&self) -> impl Iterator<Item = (PageId, Gsn)> {
        self.sealed().map(|(id, page)| (id, page::gsn(page)))
    }

    /// Returns the pages with their bytes.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (PageId, &[u8])> {
        self.copies().map(|copy| (copy.id, copy.page))
    }

    /// Returns the pages with their offsets in a file that has each page at its number; adjacent
    /// pages are joined.
    pub(super) fn in_place(&self) -> Vec<(u64, &[u8])> {
        let mut writes = Vec::new();
        let mut first = 0;
        while first < self.ids.len() {
            let start = self.ids[first].get();
            let run = self.ids[first..].iter().zip(start..).take_while(|(id, expected)| id.get() == *expected).count();
            let bytes = &self.bytes[first * PAGE_SIZE..][..run * PAGE_SIZE];
            writes.push((start * PAGE_SIZE as u64, bytes));
            first += run;
        }
        writes
    }
}
