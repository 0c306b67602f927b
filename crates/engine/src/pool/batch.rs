//! Copies of dirty pages that are written together.
//!
//! The copies lie one after another in memory that direct I/O can write from. A block of space
//! stands in front of them, so that a store can write a header and the pages in one operation.

use duramen_io::AlignedBuf;
use duramen_types::{BLOCK_SIZE, Gsn, PAGE_SIZE, PageId};

use crate::page::{self, DatabaseTag};

/// Largest number of pages in a batch.
pub(crate) const BATCH_PAGES: usize = 128;

/// Bytes in front of the pages.
pub(super) const HEADER: usize = BLOCK_SIZE;

/// A batch of pages to be written.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The space for a header, then the pages.
    bytes: AlignedBuf,
    ids: Vec<PageId>,
}

impl Batch {
    /// Bytes of a full batch with its header.
    const LEN: usize = HEADER + BATCH_PAGES * PAGE_SIZE;

    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        Self { bytes: AlignedBuf::zeroed(Self::LEN), ids: Vec::with_capacity(BATCH_PAGES) }
    }

    /// Returns the number of pages.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns batches of at most `pages` pages each that together have the same pages.
    pub(super) fn parts(&self, pages: usize) -> impl Iterator<Item = Self> {
        let bytes = self.bytes[HEADER..].chunks(pages * PAGE_SIZE);
        self.ids.chunks(pages).zip(bytes).map(|(ids, bytes)| {
            let mut part = Self::new();
            ids.iter().zip(bytes.chunks_exact(PAGE_SIZE)).for_each(|(id, page)| part.push(*id, page));
            part
        })
    }

    /// Returns a batch of those of the pages that `wanted` returns true for.
    pub(super) fn only(&self, wanted: impl Fn(PageId) -> bool) -> Self {
        let mut part = Self::new();
        self.sealed().filter(|(id, _)| wanted(*id)).for_each(|(id, page)| part.push(id, page));
        part
    }

    /// Returns the pages' ids.
    pub(super) fn ids(&self) -> &[PageId] {
        &self.ids
    }

    /// Empties the batch.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
    }

    /// Returns whether the batch has no room for another page.
    pub(super) fn is_full(&self) -> bool {
        self.ids.len() == BATCH_PAGES
    }

    /// Copies a page into the batch.
    pub(crate) fn push(&mut self, id: PageId, contents: &[u8]) {
        let start = HEADER + self.ids.len() * PAGE_SIZE;
        self.bytes[start..start + PAGE_SIZE].copy_from_slice(contents);
        self.ids.push(id);
    }

    /// Seals every page as one of this database.
    pub(crate) fn seal(&mut self, database: DatabaseTag) {
        for (page, id) in self.bytes[HEADER..].chunks_exact_mut(PAGE_SIZE).zip(&self.ids) {
            assert_eq!(page::page_id(page), *id, "a frame holds another page than it says");
            page::seal(page, database);
        }
    }

    /// Returns the space for the header with the pages behind it, and the pages' ids.
    pub(super) fn with_header(&mut self) -> (&mut [u8], &[PageId]) {
        (&mut self.bytes[..HEADER + self.ids.len() * PAGE_SIZE], &self.ids)
    }

    /// Returns the pages, each with the GSN of its copy.
    pub(super) fn pages(&self) -> impl Iterator<Item = (PageId, Gsn)> {
        self.ids.iter().copied().zip(self.bytes[HEADER..].chunks_exact(PAGE_SIZE).map(page::gsn))
    }

    /// Returns the pages with their bytes.
    pub(crate) fn sealed(&self) -> impl Iterator<Item = (PageId, &[u8])> {
        self.ids.iter().copied().zip(self.bytes[HEADER..].chunks_exact(PAGE_SIZE))
    }

    /// Returns the pages with their offsets in a file that has each page at its number; adjacent
    /// pages are joined.
    pub(super) fn in_place(&self) -> Vec<(u64, &[u8])> {
        let mut writes = Vec::new();
        let mut first = 0;
        while first < self.ids.len() {
            let start = self.ids[first].get();
            let run = self.ids[first..].iter().zip(start..).take_while(|(id, expected)| id.get() == *expected).count();
            let bytes = &self.bytes[HEADER + first * PAGE_SIZE..][..run * PAGE_SIZE];
            writes.push((start * PAGE_SIZE as u64, bytes));
            first += run;
        }
        writes
    }
}
