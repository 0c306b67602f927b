//! The double-write area: a durable copy of every page that is about to be overwritten.
//!
//! The device writes each sector whole, but a page has many sectors. A power cut during a write in
//! place can leave a mixture of the old and the new page. Neither checksum fits that mixture, and
//! redo cannot start from it. So the pool first writes a batch of pages to this area in one durable
//! operation, and only then writes the pages in place. After a crash, a page that is torn in place
//! is whole in the area, because the pool reuses the area only when the batch is durable in place.
//! If the area itself is torn, no page of the batch was touched in place.
//!
//! A page that the data file has never had needs no copy (`new_pages`).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURADBLW` |
//! | 8 | 4 | format version, 2 |
//! | 12 | 4 | CRC-32C of the bytes from 16 to the end of the last page |
//! | 16 | 4 | number of pages, at most 128 |
//! | 20 | 4 | page size |
//! | 24 | 16 | database id |
//! | 40 | 8 | generation (see `generation.rs`) |
//! | 48 | 8 each | page ids |
//! | 4096 | page size each | the pages, sealed, in the order of their ids above |
//!
//! All numbers are little-endian. The file grows to the largest batch that was written; on a full
//! disk, a batch that has no space is written in parts. The area is valid when magic, version, page
//! size, count and CRC fit; an invalid area is ignored. The pages of a valid area are always the
//! last ones that were written in place, except for new pages: a later write of any other page
//! would have replaced the area. In version 1, the ids began at offset 24 and there was no stamp.
//!
//! # Whether a copy is used
//! Opening reads the area only if the database was not closed in order and the area has the
//! generation that the control file names. Then a page that fails its checksum in place gets its
//! copy back. A page that is whole in place stays: it has changed since, or the crash came before
//! the write in place reached it, and redo brings it up to date. A page that is identical to its
//! copy is written again, durably. It may never have reached the medium if the sync after its write
//! failed, and the area is about to be reused for other pages.

use duramen_io::{AlignedBuf, File};
use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{PAGE_SIZE, PageId, crc32c, planted};

use super::PoolError;
use super::Stamp;
use super::batch::{BATCH_PAGES, Batch, HEADER};
use super::page_table::PageTable;
use crate::page;

const MAGIC: &[u8; 8] = b"DURADBLW";
const VERSION: u32 = 2;
/// The format version without stamps.
const UNSTAMPED: u32 = 1;
const CRC: usize = 12;
const CHECKED: usize = 16;
const PAGE_SIZE_FIELD: usize = 20;
const DATABASE: usize = 24;
const GENERATION: usize = 40;
const IDS: usize = 48;
const UNSTAMPED_IDS: usize = 24;
const PAGES: usize = HEADER;

const _: () = assert!(IDS + 8 * BATCH_PAGES <= PAGES, "the ids fit into the header block");

/// Pages for which a new area has space.
const FIRST_PAGES: usize = 8;

/// The area that this process writes.
#[derive(Debug)]
pub(super) struct Area {
    file: Arc<dyn File>,
    /// Number of pages for which the file has space.
    room: usize,
    stamp: Stamp,
}

impl Area {
    /// Uses `file` for the area. Reserves space for small batches, so that a write to the area
    /// cannot run out of space.
    pub(super) fn new(file: Arc<dyn File>) -> Result<Self, PoolError> {
        let pages = (file.len()?.saturating_sub(PAGES as u64) / PAGE_SIZE as u64).min(BATCH_PAGES as u64) as usize;
        let room = pages.max(FIRST_PAGES);
        file.allocate(bytes_of(room))?;
        Ok(Self { file, room, stamp: Stamp::default() })
    }

    /// Returns how many of a batch's `pages` pages can be written at once: all of them, if the disk
    /// has space for them.
    pub(super) fn make_room(&mut self, pages: usize) -> Result<usize, PoolError> {
        if pages > self.room {
            let room = pages.next_power_of_two().min(BATCH_PAGES);
            match self.file.allocate(bytes_of(room)) {
                Ok(()) => self.room = room,
                Err(error) if error.is_full() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.room)
    }

    /// Sets the generation of all later writes to the area, and empties the area. The pages of the
    /// last batch must be durable in place; then their copies are not needed any more.
    pub(super) fn set_stamp(&mut self, stamp: Stamp) -> Result<(), PoolError> {
        self.stamp = stamp;
        if planted!(StaleAreaPutBack) {
            return Ok(());
        }
        self.write_with(&mut AlignedBuf::zeroed(PAGES), &[])
    }

    /// Writes the batch, which is sealed, to the area. The batch is durable when the call returns.
    pub(super) fn write(&self, batch: &mut Batch) -> Result<(), PoolError> {
        let (bytes, ids) = batch.with_header();
        self.write_with(bytes, ids)
    }

    /// Writes the pages `ids`, which `bytes` has behind the space for the header.
    fn write_with(&self, bytes: &mut [u8], ids: &[PageId]) -> Result<(), PoolError> {
        let header = &mut bytes[..PAGES];
        header.fill(0);
        header[..8].copy_from_slice(MAGIC);
        put_u32(header, 8, VERSION);
        put_u32(header, CHECKED, ids.len() as u32);
        put_u32(header, PAGE_SIZE_FIELD, PAGE_SIZE as u32);
        header[DATABASE..GENERATION].copy_from_slice(&self.stamp.database);
        header[GENERATION..IDS].copy_from_slice(&self.stamp.generation.to_le_bytes());
        for (slot, id) in header[IDS..].chunks_exact_mut(8).zip(ids) {
            slot.copy_from_slice(&id.get().to_le_bytes());
        }
        let crc = crc32c(&bytes[CHECKED..]);
        put_u32(bytes, CRC, crc);
        Ok(self.file.write_durable(&[&*bytes], 0)?)
    }
}

/// A valid area that an earlier process left.
pub(crate) struct FoundArea {
    /// The header and the pages.
    bytes: AlignedBuf,
}

impl FoundArea {
    /// Reads the area. Returns `None` if it is not valid.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn read(file: &dyn File) -> Result<Option<Self>, PoolError> {
        let len = file.len()?;
        if len < PAGES as u64 {
            return Ok(None);
        }
        let mut header = AlignedBuf::zeroed(PAGES);
        file.read_at(&mut header, 0)?;
        let count = u32_at(&header, CHECKED) as usize;
        if &header[..8] != MAGIC
            || ![UNSTAMPED, VERSION].contains(&u32_at(&header, 8))
            || u32_at(&header, PAGE_SIZE_FIELD) as usize != PAGE_SIZE
            || count > BATCH_PAGES
            || len < (PAGES + count * PAGE_SIZE) as u64
        {
            return Ok(None);
        }
        let mut bytes = AlignedBuf::zeroed(PAGES + count * PAGE_SIZE);
        file.read_at(&mut bytes, 0)?;
        Ok((crc32c(&bytes[CHECKED..]) == u32_at(&bytes, CRC)).then_some(Self { bytes }))
    }

    /// Returns the number of pages in the area.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        u32_at(&self.bytes, CHECKED) as usize
    }

    fn is_stamped(&self) -> bool {
        u32_at(&self.bytes, 8) != UNSTAMPED
    }

    /// Returns the database and the generation that the area belongs to. An area of the format
    /// without stamps has an empty stamp.
    pub(crate) fn stamp(&self) -> Stamp {
        if !self.is_stamped() {
            return Stamp::default();
        }
        let database = self.bytes[DATABASE..GENERATION].try_into().expect("sixteen bytes");
        Stamp { database, generation: u64_at(&self.bytes, GENERATION) }
    }

    /// Restores the pages that a crash tore while they were written in place. Must run before
    /// anything else reads `data`. Returns the number of restored pages. The call may be repeated,
    /// and it may be interrupted at any point.
    ///
    /// # Errors
    /// Those of the disk, except that a file that ends too early is not an error.
    pub(crate) fn put_back(&self, data: &dyn File, doublewrite: &dyn File) -> Result<usize, PoolError> {
        // The area can be read, but the process that wrote it may have ended before the area was
        // durable, or may have seen the write fail. In that case it touched no page in place, and
        // no page may be touched before the copies are safe. If the area is durable already, this
        // writes the same bytes over it, which no power cut can tear.
        doublewrite.write_durable(&[&self.bytes], 0)?;
        let ids = if self.is_stamped() { IDS } else { UNSTAMPED_IDS };
        let mut in_place = AlignedBuf::zeroed(PAGE_SIZE);
        let mut repaired = 0;
        for (index, copy) in self.bytes[PAGES..].chunks_exact(PAGE_SIZE).enumerate() {
            let id = PageId::new(u64_at(&self.bytes, ids + 8 * index));
            if id.is_zero() || id >= PageTable::LIMIT || page::verify(copy, id).is_err() {
                continue;
            }
            let offset = id.get() * PAGE_SIZE as u64;
            let whole = match data.read_at(&mut in_place, offset) {
                Ok(()) => page::verify(&in_place, id).is_ok(),
                Err(error) if error.kind == std::io::ErrorKind::UnexpectedEof => false,
                Err(error) => return Err(error.into()),
            };
            if whole && in_place[..] != *copy && !planted!(StaleAreaPutBack) {
                continue;
            }
            data.allocate(offset + PAGE_SIZE as u64)?;
            data.write_at(&[copy], offset)?;
            if !whole {
                reach(Probe::TornPageRepaired);
            }
            repaired += usize::from(!whole);
        }
        data.sync()?;
        Ok(repaired)
    }
}

/// Returns the size of an area with space for so many pages.
fn bytes_of(pages: usize) -> u64 {
    (PAGES + pages * PAGE_SIZE) as u64
}

fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(raw)
}
