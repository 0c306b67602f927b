//! A heap: the pages of a database in persistent memory, and beside them the journals in which a
//! storage scheme records changes that may have to be repeated or taken back.
//!
//! [`Heap`] is the region with its layout. All stores go through [`Heap::store`], which flushes
//! where caches are volatile; [`Heap::barrier`] makes what the calling thread has stored durable,
//! and is counted. [`HeapPages`] lets the buffer pool read pages; the storage scheme writes them.

mod layout;
mod pages;

pub(crate) use crate::region::State;
pub(crate) use layout::{BLOCK_BYTES, Header, LINE, Layout, NotAHeap, Word};
pub(crate) use pages::{HeapPages, defect};

use std::ptr::NonNull;

use duramen_pmem::{Domain, Mode, PmemError, Region, Source, Survive, Timing};
use duramen_sync::Striped;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{Gsn, PAGE_SIZE, PageId};

use crate::error::{Error, Result};
use crate::options::HeapOptions;
use crate::page;
use crate::region::{RegionPlace, word_of};
use layout::FIXED;

/// The length of a region is a multiple of this.
const MAPPED: u64 = 4096;

/// An open heap.
#[derive(Debug)]
pub(crate) struct Heap {
    region: Region,
    pub(crate) header: Header,
    pub(crate) layout: Layout,
    flushes: bool,
    barriers: Striped<AtomicU64, 32>,
}

impl Heap {
    /// Checks that a new heap could be made, before anything is made.
    ///
    /// # Errors
    /// As [`RegionPlace::check_new`].
    pub(crate) fn check_new(options: &HeapOptions, batch_bytes: u64) -> Result<()> {
        let layout = Layout::of_new(options.bytes, options.journal_bytes, batch_bytes);
        place(options).check_new(layout.bytes())
    }

    /// Makes a heap for a new database. It is in use after [`Heap::set`] has set its state.
    ///
    /// # Errors
    /// As [`Heap::check_new`], and those of the system.
    pub(crate) fn create(options: &HeapOptions, batch_bytes: u64, database: [u8; 16], scheme: u8) -> Result<Self> {
        let layout = Layout::of_new(options.bytes, options.journal_bytes, batch_bytes);
        let region = place(options).unused(layout.bytes())?;
        let header = Header { database, scheme, blocks: layout.blocks, batch_bytes };
        let heap = Self::of_region(region, options, header, layout);
        // A crash may leave any part of this, but not a state beyond `BeingMade`. Nothing else is
        // stored before the header is durable: see `check_unused`.
        heap.set(Word::State, State::Blank as u64);
        heap.store(0, &[&header.encode()]);
        heap.barrier();
        for (word, value) in [(Word::NextTxn, 1), (Word::Openings, 0), (Word::Generation, 1), (Word::Groups, 1)] {
            heap.store(word as u64, &[&u64::to_le_bytes(value)]);
        }
        heap.store(Word::Pages as u64, &[&layout.pages.to_le_bytes()]);
        for word in [Word::CommittedBatch, Word::LoggedBatch] {
            heap.store(word as u64, &[&0_u64.to_le_bytes()]);
        }
        heap.store(Word::Flushed as u64, &[&u64::from(heap.flushes).to_le_bytes()]);
        for block in 0..layout.blocks {
            heap.store(layout.block(block as u32), &[&[0; LINE as usize]]);
        }
        heap.barrier();
        heap.set(Word::State, State::BeingMade as u64);
        Ok(heap)
    }

    /// Opens the heap of a database. A heap that is smaller than the options ask for grows.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is not the heap of this database, and those of the system.
    pub(crate) fn open(options: &HeapOptions, database: [u8; 16], scheme: u8) -> Result<Self> {
        let (header, state, pages) = {
            let region = open_region(options, BLOCK_BYTES, Mode::Open)?;
            read_header(&region)?
        };
        let location = match &options.source {
            Source::File(path) => path.display().to_string(),
            _ => "the heap".to_owned(),
        };
        if header.database != database {
            return Err(corrupt(&location, "it is the heap of another database; name the one that belongs here"));
        }
        if header.scheme != scheme || state == State::Blank {
            return Err(corrupt(&location, "it was made for another storage scheme, or never completed"));
        }
        let found = Layout { blocks: header.blocks, batch_bytes: header.batch_bytes, pages };
        if !found.is_possible() {
            return Err(corrupt(&location, "its header names sizes that no heap has"));
        }
        let wanted = Layout::with_blocks(options.bytes, header.blocks, header.batch_bytes);
        let layout = Layout { pages: pages.max(wanted.pages), ..found };
        // A heap that is shorter than its header says has lost its end, and must not grow.
        let region = open_region(options, found.bytes(), Mode::Open)?;
        let heap = Self::of_region(region, options, header, found);
        heap.harden_found();
        if layout == found {
            return Ok(heap);
        }
        drop(heap);
        let region = open_region(options, layout.bytes(), Mode::Grow)?;
        let heap = Self::of_region(region, options, header, layout);
        for page in found.pages..layout.pages {
            heap.store(layout.page(PageId::new(page)), &[&[0; LINE as usize]]);
        }
        heap.barrier();
        heap.set(Word::Pages, layout.pages);
        Ok(heap)
    }

    /// Makes durable what the opening is about to trust. A process may have been killed between a
    /// store and its flush, so that what is found may lie in caches only: the header and the
    /// journals, and everything if the last opening flushed nothing.
    fn harden_found(&self) {
        if self.flushes {
            let has_flushed = self.get(Word::Flushed) != 0;
            let found = if has_flushed { self.layout.block(self.layout.blocks as u32) } else { self.layout.bytes() };
            self.region.flush(0, found as usize);
            self.barrier();
        }
        if self.get(Word::Flushed) != u64::from(self.flushes) {
            self.set(Word::Flushed, self.flushes.into());
        }
    }

    /// Opens a heap to look at it, damaged or not: it need not be writable, and nothing that might
    /// be stored reaches it. The layout is that part of what the header says which the region has.
    /// For a header that cannot be used, it is empty.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if this is no heap at all, and those of the system.
    pub(crate) fn open_to_inspect(options: &HeapOptions) -> Result<(Self, Result<(), NotAHeap>)> {
        let options = HeapOptions { survive: Survive::Nothing, timing: Timing::NONE, ..options.clone() };
        let mut region = open_region(&options, BLOCK_BYTES, Mode::Private)?;
        let mut fixed = [0; FIXED];
        region.read(0, &mut fixed);
        let (header, usable) = match Header::decode(&fixed) {
            Ok(header) => (header, Ok(())),
            Err(NotAHeap::Foreign) => return Err(corrupt(region.location(), &NotAHeap::Foreign.to_string())),
            Err(defect) => (Header { database: [0; 16], scheme: 0, blocks: 0, batch_bytes: 0 }, Err(defect)),
        };
        let before_pages = header.blocks.saturating_add(1).saturating_mul(BLOCK_BYTES);
        let before_pages = before_pages.saturating_add(header.batch_bytes);
        let pages = word_of(&region, Word::Pages as u64);
        let said = before_pages.saturating_add(pages.saturating_mul(PAGE_SIZE as u64));
        let len = match &options.source {
            // A device has no length of its own.
            Source::File(path) => path.metadata().map_or(0, |file| if file.is_file() { file.len() } else { said }),
            Source::Simulated(memory) => memory.len(),
            Source::Anonymous => BLOCK_BYTES,
        };
        let mut layout = Layout { blocks: 0, batch_bytes: 0, pages: 0 };
        if usable.is_ok() {
            let len = len & !(MAPPED - 1);
            let blocks = header.blocks.min(len / BLOCK_BYTES - 1);
            let behind = len.saturating_sub(before_pages) / PAGE_SIZE as u64;
            let batch_bytes = header.batch_bytes.min(len - (blocks + 1) * BLOCK_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
            layout = Layout { blocks, batch_bytes, pages: pages.min(behind) };
            drop(region);
            region = open_region(&options, layout.bytes().max(BLOCK_BYTES), Mode::Private)?;
        }
        Ok((Self::of_region(region, &options, header, layout), usable))
    }

    fn of_region(region: Region, options: &HeapOptions, header: Header, layout: Layout) -> Self {
        let flushes = options.domain == Domain::VolatileCache;
        Self { region, header, layout, flushes, barriers: Striped::default() }
    }

    /// Returns the region's name.
    pub(crate) fn location(&self) -> &str {
        self.region.location()
    }

    /// Returns a warning if what is stored survives less than a power cut.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.region.shortfall()
    }

    /// Stores `parts`, one after the other, from offset `at` on. They are durable after the next
    /// [`Heap::barrier`] of the calling thread.
    #[inline]
    pub(crate) fn store(&self, at: u64, parts: &[&[u8]]) {
        self.region.store(at, parts);
        if self.flushes {
            self.region.flush(at, parts.iter().map(|part| part.len()).sum());
        }
    }

    /// Makes durable what the calling thread has stored.
    #[inline]
    pub(crate) fn barrier(&self) {
        self.region.fence();
        self.barriers.own().1.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes whole lines that are not read again soon, from offset `at` on, as [`Heap::store`]
    /// does.
    pub(crate) fn stream(&self, at: u64, bytes: &[u8]) {
        self.region.stream(at, &[bytes]);
    }

    /// Returns how many barriers there were.
    pub(crate) fn barriers(&self) -> u64 {
        self.barriers.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Copies the bytes from offset `at` on.
    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        self.region.read(at, to);
    }

    /// Returns the word at offset `at`, which is aligned.
    pub(crate) fn word_at(&self, at: u64) -> u64 {
        word_of(&self.region, at)
    }

    /// Returns a word of the header.
    pub(crate) fn get(&self, word: Word) -> u64 {
        self.word_at(word as u64)
    }

    /// Changes a word of the header, durably.
    pub(crate) fn set(&self, word: Word, value: u64) {
        self.store(word as u64, &[&value.to_le_bytes()]);
        self.barrier();
    }

    /// Returns the address of page 0. The other pages lie behind it.
    pub(crate) fn pages_at(&self) -> NonNull<u8> {
        let len = self.layout.pages as usize * PAGE_SIZE;
        self.region.address(self.layout.page(PageId::ZERO), len)
    }

    /// Returns the GSN of a page as it is in the heap.
    pub(crate) fn page_gsn(&self, page: PageId) -> Gsn {
        Gsn::new(self.word_at(self.layout.page(page) + page::GSN_OFFSET))
    }

    /// Stores a part of a page.
    pub(crate) fn store_page(&self, page: PageId, offset: usize, bytes: &[u8]) {
        self.store(self.place_in(page, offset), &[bytes]);
    }

    /// Stores whole lines of a page that is not read soon from the heap, as [`Heap::store_page`]
    /// does.
    #[inline]
    pub(crate) fn stream_page(&self, page: PageId, offset: usize, bytes: &[u8]) {
        self.stream(self.place_in(page, offset), bytes);
    }

    #[inline]
    fn place_in(&self, page: PageId, offset: usize) -> u64 {
        assert!(page.get() < self.layout.pages, "{page} is within the heap");
        self.layout.page(page) + offset as u64
    }
}

fn place(options: &HeapOptions) -> RegionPlace<'_> {
    RegionPlace::of_heap(options, layout::magic_word(), FIXED)
}

fn open_region(options: &HeapOptions, len: u64, mode: Mode) -> Result<Region, PmemError> {
    place(options).open(len, mode)
}

/// Reads the header of a heap: the part that never changes, the state, and the number of pages.
fn read_header(region: &Region) -> Result<(Header, State, u64)> {
    let mut fixed = [0; FIXED];
    region.read(0, &mut fixed);
    let header = Header::decode(&fixed).map_err(|defect| corrupt(region.location(), &defect.to_string()))?;
    let state = State::from_word(word_of(region, Word::State as u64))
        .ok_or_else(|| corrupt(region.location(), "its state is unknown"))?;
    Ok((header, state, word_of(region, Word::Pages as u64)))
}

fn corrupt(file: &str, reason: &str) -> Error {
    Error::Corrupt { file: file.to_owned(), offset: 0, page: None, reason: reason.to_owned() }
}
