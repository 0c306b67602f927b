//! The contents of a page tier: a header and slots, each of which holds any page.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURATIER` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of the bytes from 16 to 56 |
//! | 16 | 4 | number of slots |
//! | 20 | 4 | page size |
//! | 24 | 16 | database id |
//! | 40 | 8 | generation (see `generation.rs`) |
//! | 48 | 8 | 1 if all its pages are in the data file, too; else 0 |
//! | 2048 | 56 | in persistent memory: the header once more |
//! | 4096 | page size each | the slots |
//!
//! All numbers are little-endian. Of the two headers in persistent memory, the first counts if it
//! is whole: it is the newer one. A slot holds a sealed page, whose own header names it and whose
//! checksum tells whether it is whole. Anything else in a slot is not a page: a write that a crash
//! tore, an erased page, or nothing yet.

use duramen_io::AlignedBuf;
use duramen_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use duramen_sync::{Arc, parallel};
use duramen_types::{BLOCK_SIZE, Gsn, PAGE_SIZE, PageId, crc32c};

use super::medium::{COPY, Medium};
use crate::page;
use crate::pool::page_table::PageTable;
use crate::pool::{PoolError, Stamp};

const MAGIC: &[u8; 8] = b"DURATIER";
const VERSION: u32 = 1;
const VERSION_FIELD: usize = 8;
const CRC: usize = 12;
const COUNT: usize = 16;
const PAGE_SIZE_FIELD: usize = 20;
const DATABASE: usize = 24;
const GENERATION: usize = 40;
const DRAINED: usize = 48;
const END: usize = 56;

/// Slots that are read at a time when all are read.
const CHUNK: u32 = 128;

/// The number of a slot.
pub(super) type Slot = u32;

/// A page that a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) slot: Slot,
    pub(super) page: PageId,
    pub(super) gsn: Gsn,
}

/// A page tier without what is known of its contents.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    medium: Arc<dyn Medium>,
    count: u32,
    written: Arc<AtomicU64>,
}

/// What the header of a tier says of its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) stamp: Stamp,
    /// Whether the tier is needed no more.
    pub(crate) is_drained: bool,
}

/// What the slots of a tier hold.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// The whole pages.
    pub(super) pages: Vec<Found>,
    /// The slots that cannot be read at present.
    pub(super) unreadable: Vec<Slot>,
}

impl Contents {
    /// Returns the slots whose page another slot has in the same version.
    pub(super) fn repeated(&self) -> Vec<Slot> {
        let mut versions: Vec<(PageId, Gsn, Slot)> =
            self.pages.iter().map(|found| (found.page, found.gsn, found.slot)).collect();
        versions.sort_unstable();
        let same = versions.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).filter(|same| same.len() > 1);
        let mut repeated: Vec<Slot> = same.flatten().map(|version| version.2).collect();
        repeated.sort_unstable();
        repeated
    }
}

/// The slots of a tier and what they hold.
#[derive(Debug)]
pub(crate) struct FoundTier {
    pub(super) slots: Slots,
    pub(super) contents: Contents,
}

impl FoundTier {
    /// Reads all slots, with so many threads, or else as many as are worthwhile.
    ///
    /// # Errors
    /// Those of the disk. An unreadable slot is none, as long as there are others.
    pub(crate) fn read(slots: Slots, threads: Option<usize>) -> Result<Self, PoolError> {
        Ok(Self { contents: slots.find(threads)?, slots })
    }

    /// Returns the number of slots that hold a page, or may hold one.
    pub(crate) fn pages(&self) -> usize {
        self.contents.pages.len() + self.contents.unreadable.len()
    }

    /// Returns the number of pages that the data file must have space for.
    pub(crate) fn reach(&self) -> u64 {
        self.contents.pages.iter().map(|found| found.page.get() + 1).max().unwrap_or(0)
    }
}

impl Slots {
    /// Blanks what the first writing of a header to memory may leave: any of its words.
    pub(crate) fn blank_torn_header(bytes: &mut [u8]) {
        let first = &bytes[..MAGIC.len()];
        if first == MAGIC || first.iter().all(|byte| *byte == 0) {
            bytes[..END].fill(0);
        }
    }

    /// Returns the number of slots in a tier of so many bytes.
    pub(crate) fn count_in(bytes: u64) -> u32 {
        u32::try_from(bytes.saturating_sub(BLOCK_SIZE as u64) / PAGE_SIZE as u64).unwrap_or(u32::MAX)
    }

    fn of(medium: Arc<dyn Medium>, count: u32) -> Self {
        Self { medium, count, written: Arc::default() }
    }

    /// Makes `medium`, which holds no page, a tier. It is durable when the call returns, except for
    /// its name.
    ///
    /// # Errors
    /// Those of the medium.
    pub(crate) fn create(medium: Arc<dyn Medium>, count: u32, stamp: Stamp) -> Result<Self, PoolError> {
        let slots = Self::of(medium, count);
        slots.medium.grow(slots.offset(count))?;
        slots.stamp(stamp)?;
        Ok(slots)
    }

    /// Makes all slots that `medium` has room for hold no page, durably: a tier may have been here.
    ///
    /// # Errors
    /// Those of the medium.
    pub(crate) fn erase_all(medium: Arc<dyn Medium>) -> Result<(), PoolError> {
        let count = Self::count_in(medium.len()?);
        let slots = Self::of(medium, count);
        for first in (0..count).step_by(CHUNK as usize) {
            let some: Vec<Slot> = (first..count.min(first + CHUNK)).collect();
            slots.erase(&some)?;
        }
        slots.sync()
    }

    /// Opens a tier; returns it with what its header says.
    ///
    /// # Errors
    /// What is wrong with the header; those of the medium.
    pub(crate) fn open(medium: Arc<dyn Medium>) -> Result<Result<(Self, Header), String>, PoolError> {
        let len = medium.len()?;
        if len < BLOCK_SIZE as u64 {
            return Ok(Err("it is too short to be a page tier".to_owned()));
        }
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        medium.read_header(&mut block)?;
        let first = decode(&block[..END]);
        let (count, header) = match first.or_else(|defect| decode(&block[COPY..COPY + END]).map_err(|_| defect)) {
            Ok(decoded) => decoded,
            Err(defect) => return Ok(Err(defect)),
        };
        let slots = Self::of(medium, count);
        if len < slots.offset(slots.count) {
            return Ok(Err(format!("it has {len} bytes, too few for its {} slots", slots.count)));
        }
        Ok(Ok((slots, header)))
    }

    /// Adds empty slots, so that there are `count`.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn grow(&mut self, count: u32, stamp: Stamp) -> Result<(), PoolError> {
        let grown = Self { count, ..self.clone() };
        grown.medium.grow(grown.offset(count))?;
        grown.stamp(stamp)?;
        *self = grown;
        Ok(())
    }

    /// Marks a tier whose pages all are in the data file, durably. It keeps its stamp: a checkpoint
    /// may be between the stamps and the control file.
    pub(super) fn mark_drained(&self) -> Result<(), PoolError> {
        let (_, header) = Self::open(Arc::clone(&self.medium))?.map_err(|reason| PoolError::Poisoned { reason })?;
        self.write_header(Header { is_drained: true, ..header })
    }

    /// Stamps a tier that is in use, durably.
    pub(super) fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        self.write_header(Header { stamp, is_drained: false })
    }

    /// Writes the header, durably.
    fn write_header(&self, Header { stamp, is_drained }: Header) -> Result<(), PoolError> {
        let mut header = AlignedBuf::zeroed(BLOCK_SIZE);
        header[..8].copy_from_slice(MAGIC);
        header[VERSION_FIELD..CRC].copy_from_slice(&VERSION.to_le_bytes());
        header[COUNT..PAGE_SIZE_FIELD].copy_from_slice(&self.count.to_le_bytes());
        header[PAGE_SIZE_FIELD..DATABASE].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        header[DATABASE..GENERATION].copy_from_slice(&stamp.database);
        header[GENERATION..DRAINED].copy_from_slice(&stamp.generation.to_le_bytes());
        header[DRAINED..END].copy_from_slice(&u64::from(is_drained).to_le_bytes());
        let crc = crc32c(&header[COUNT..END]);
        header[CRC..COUNT].copy_from_slice(&crc.to_le_bytes());
        self.written.fetch_add(END as u64, Ordering::Relaxed);
        self.medium.write_header(&header, END)
    }

    /// Returns the number of bytes that were written to it since it was opened.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Returns a warning if what is durable in it survives less than a power cut.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.medium.shortfall()
    }

    /// Returns the number of slots.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns what all slots hold, and makes it durable: what can be read may not be, if the
    /// process that wrote it has ended. If that process has seen a sync fail, this sync may succeed
    /// and a slot still hold its earlier contents on the medium: see `mod.rs`.
    pub(super) fn find(&self, threads: Option<usize>) -> Result<Contents, PoolError> {
        self.medium.harden_found()?;
        let threads = parallel::size_for(threads, self.offset(self.count));
        let (slots, next) = (self.clone(), AtomicU32::new(0));
        let parts = parallel::run(threads, "duramen-tier", move || slots.find_part(&next));
        let (mut contents, mut failed) = (Contents::default(), None);
        for (part, error) in parts {
            contents.pages.extend(part.pages);
            contents.unreadable.extend(part.unreadable);
            failed = failed.or(error);
        }
        if let Some(error) = failed.filter(|_| contents.unreadable.len() == self.count as usize) {
            return Err(error);
        }
        contents.pages.sort_unstable_by_key(|found| found.slot);
        Ok(contents)
    }

    /// Finds what the chunks from `next` on hold, as far as no other thread takes them. Returns the
    /// error of an unreadable slot, too.
    fn find_part(&self, next: &AtomicU32) -> (Contents, Option<PoolError>) {
        let (mut contents, mut failed) = (Contents::default(), None);
        let mut buffer = AlignedBuf::zeroed(CHUNK.min(self.count.max(1)) as usize * PAGE_SIZE);
        loop {
            let first = next.fetch_add(1, Ordering::Relaxed).saturating_mul(CHUNK);
            if first >= self.count {
                return (contents, failed);
            }
            let some = &mut buffer[..CHUNK.min(self.count - first) as usize * PAGE_SIZE];
            let are_read = self.medium.read_found(self.offset(first), some).is_ok();
            for (slot, bytes) in (first..).zip(some.chunks_exact_mut(PAGE_SIZE)) {
                if !are_read && let Err(error) = self.medium.read_found(self.offset(slot), bytes) {
                    contents.unreadable.push(slot);
                    failed = Some(error);
                    continue;
                }
                let page = page::page_id(bytes);
                if !page.is_zero() && page < PageTable::LIMIT && page::verify(bytes, page).is_ok() {
                    contents.pages.push(Found { slot, page, gsn: page::gsn(bytes) });
                }
            }
        }
    }

    /// Returns the newest version of a page; `None` if no slot has one.
    pub(crate) fn page(&self, page: PageId) -> Result<Option<AlignedBuf>, PoolError> {
        let versions = self.find(None)?.pages.into_iter().filter(|found| found.page == page);
        let Some(newest) = versions.max_by_key(|found| found.gsn) else { return Ok(None) };
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        self.medium.read(&mut [(self.offset(newest.slot), &mut bytes)])?;
        Ok(Some(bytes))
    }

    /// Fills each buffer with what its slot holds.
    pub(super) fn read(&self, slots: &mut [(Slot, &mut [u8])]) -> Result<(), PoolError> {
        let mut reads: Vec<(u64, &mut [u8])> =
            slots.iter_mut().map(|(slot, bytes)| (self.offset(*slot), &mut **bytes)).collect();
        self.medium.read(&mut reads)
    }

    /// Writes a page into each slot. The pages are durable after [`Slots::sync`].
    pub(super) fn write<'p>(&self, pages: impl Iterator<Item = (Slot, &'p [u8])>) -> Result<(), PoolError> {
        let writes: Vec<(u64, &[u8])> = pages.map(|(slot, bytes)| (self.offset(slot), bytes)).collect();
        let bytes: usize = writes.iter().map(|(_, bytes)| bytes.len()).sum();
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        self.medium.write(&writes)
    }

    /// Writes what the slots hold again, durably: reading it does not prove that it is on the
    /// medium. A crash does no harm, because a slot that has it already stays as it is.
    pub(super) fn write_again(&self, slots: &[Slot]) -> Result<(), PoolError> {
        if slots.is_empty() {
            return Ok(());
        }
        for some in slots.chunks(CHUNK as usize) {
            let mut bytes = AlignedBuf::zeroed(some.len() * PAGE_SIZE);
            let mut reads: Vec<(Slot, &mut [u8])> =
                some.iter().copied().zip(bytes.chunks_exact_mut(PAGE_SIZE)).collect();
            self.read(&mut reads)?;
            self.write(some.iter().copied().zip(bytes.chunks_exact(PAGE_SIZE)))?;
        }
        self.sync()
    }

    /// Makes the slots hold no page.
    pub(super) fn erase(&self, slots: &[Slot]) -> Result<(), PoolError> {
        let blank = AlignedBuf::zeroed(BLOCK_SIZE);
        self.write(slots.iter().map(|slot| (*slot, &blank[..])))
    }

    pub(super) fn sync(&self) -> Result<(), PoolError> {
        self.medium.sync()
    }

    /// Returns whether everything that was found in the slots is durable.
    pub(super) fn are_durable_as_found(&self) -> bool {
        self.medium.hardens_all_found()
    }

    pub(super) fn path(&self) -> String {
        self.medium.location()
    }

    pub(super) fn verify_name(&self) -> Result<(), PoolError> {
        self.medium.verify_name()
    }

    /// Returns where a slot begins.
    pub(super) fn offset(&self, slot: Slot) -> u64 {
        BLOCK_SIZE as u64 + u64::from(slot) * PAGE_SIZE as u64
    }
}

/// Reads a header; returns the number of slots with what else it says, or what is wrong with it.
fn decode(header: &[u8]) -> Result<(u32, Header), String> {
    let u32_at = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
    if &header[..8] != MAGIC || u32_at(CRC) != crc32c(&header[COUNT..END]) {
        return Err("it has no valid header of a page tier".to_owned());
    }
    if u32_at(VERSION_FIELD) != VERSION {
        let found = u32_at(VERSION_FIELD);
        return Err(format!("it has format version {found}, and this program reads version {VERSION}"));
    }
    if u32_at(PAGE_SIZE_FIELD) as usize != PAGE_SIZE {
        return Err(format!("its pages have {} bytes", u32_at(PAGE_SIZE_FIELD)));
    }
    let stamp = Stamp {
        database: header[DATABASE..GENERATION].try_into().expect("sixteen bytes"),
        generation: u64::from_le_bytes(header[GENERATION..DRAINED].try_into().expect("eight bytes")),
    };
    Ok((u32_at(COUNT), Header { stamp, is_drained: u32_at(DRAINED) != 0 }))
}
