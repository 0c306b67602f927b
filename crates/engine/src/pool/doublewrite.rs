//! The double-write area: a durable copy of what pages that are about to be overwritten will have
//! instead.
//!
//! The device writes each sector whole, but a page has many sectors. A power cut during a write in
//! place can leave a mixture of the old and the new page. Neither checksum fits that mixture, and
//! redo cannot start from it. So the pool first writes the changed lines of a batch of pages to
//! this area in one durable operation, and only then writes the pages in place. Each sector of a
//! page that a crash has torn is the old or the new one. Both have the same bytes in every line
//! that did not change, so the page with the lines from the area over it is the new page. The pool
//! reuses the area only when the batch is durable in place. If the area itself is torn, no page of
//! the batch was touched in place.
//!
//! The changed lines are those that differ from the page that is durable in place
//! ([`ChangedLines`](super::changed_lines::ChangedLines)). Where that page is not known, all lines
//! count as changed. A page that was formatted anew since it was last durable in place needs no
//! copy ([`changed_lines`](super::changed_lines)).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURADBLW` |
//! | 8 | 4 | format version, 3 |
//! | 12 | 4 | CRC-32C of the bytes from 16 to the end of the last line |
//! | 16 | 4 | number of pages, at most 128 |
//! | 20 | 4 | page size |
//! | 24 | 16 | database id |
//! | 40 | 8 | generation (see `generation.rs`) |
//! | 48 | 24 each | page id (8), and a bit for each of its 128 lines (16) |
//! | after them | 64 each | the lines of the sealed pages, in the order of the bits and of the ids |
//!
//! All numbers are little-endian. The file grows to the largest batch that was written; on a full
//! disk, a batch that has no space is written in parts. The area is valid when magic, version, page
//! size, count and CRC fit; an invalid area is ignored. The pages of a valid area are always the
//! last ones that were written in place, except for those that need no copy: a later write of any
//! other page would have replaced the area. So a page may have been formatted anew and written
//! since the area was. If that write is torn, the page stays damaged or becomes the former page
//! again, and redo replaces it. In versions 1 and 2, the pages were whole: the ids were at offset
//! 24 or 48 without bits, and the pages began at offset 4096. Version 1 had no stamp.
//!
//! # Whether a copy is used
//! Opening reads the area only if the database was not closed in order and the area has the
//! generation that the control file names. Then a page that fails its checksum in place gets its
//! lines back. A page that is whole in place stays: it has changed since, or the crash came before
//! the write in place reached it, and redo brings it up to date. A page that has exactly the lines
//! of its copy is written again, durably. It may never have reached the medium if the sync after
//! its write failed, and the area is about to be reused for other pages.

use duramen_io::{AlignedBuf, File};
use duramen_sync::Arc;
use duramen_sync::probe::{Probe, reach};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE, PageId, crc32c, planted};

use super::PoolError;
use super::Stamp;
use super::batch::{BATCH_PAGES, Copied};
use super::page_table::PageTable;
use crate::page::{self, LINE_SIZE, Lines};

const MAGIC: &[u8; 8] = b"DURADBLW";
const VERSION: u32 = 3;
/// The format version with whole pages.
const WHOLE_PAGES: u32 = 2;
/// The format version without stamps.
const UNSTAMPED: u32 = 1;
const CRC: usize = 12;
const CHECKED: usize = 16;
const PAGE_SIZE_FIELD: usize = 20;
const DATABASE: usize = 24;
const GENERATION: usize = 40;
const ENTRIES: usize = 48;
/// Size of a page's id and the bits of its lines.
const ENTRY: usize = 24;
const UNSTAMPED_IDS: usize = 24;
/// Offset of the first page in formats with whole pages.
const PAGES: usize = BLOCK_SIZE;

const _: () = assert!(ENTRIES + ENTRY * BATCH_PAGES <= BLOCK_SIZE, "the entries lie in the first block");

/// Number of pages for which there is always space, whatever their changes.
pub(super) const FIRST_PAGES: usize = 8;

/// The area that this process writes.
#[derive(Debug)]
pub(super) struct Area {
    file: Arc<dyn File>,
    /// Bytes for which the file has space.
    room: usize,
    stamp: Stamp,
}

impl Area {
    /// Uses `file` for the area. Reserves space for [`FIRST_PAGES`] pages, so that a write of so
    /// few cannot run out of space.
    pub(super) fn new(file: Arc<dyn File>) -> Result<Self, PoolError> {
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let room = len.clamp(bytes_of(FIRST_PAGES), bytes_of(BATCH_PAGES));
        file.allocate(room as u64)?;
        Ok(Self { file, room, stamp: Stamp::default() })
    }

    /// Returns whether all of these copies can be written at once, which they can if the disk has
    /// space for them.
    pub(super) fn make_room<'a>(&mut self, copies: impl Iterator<Item = Copied<'a>>) -> Result<bool, PoolError> {
        let bytes = end_of(copies.map(|copy| copy.lines)).next_multiple_of(BLOCK_SIZE);
        if bytes > self.room {
            let room = bytes.next_power_of_two().min(bytes_of(BATCH_PAGES));
            match self.file.allocate(room as u64) {
                Ok(()) => self.room = room,
                Err(error) if error.is_full() => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Sets the generation of all later writes to the area, and empties the area. The pages of the
    /// last batch must be durable in place; then their copies are not needed any more.
    pub(super) fn set_stamp(&mut self, stamp: Stamp) -> Result<(), PoolError> {
        self.stamp = stamp;
        if planted!(StaleAreaPutBack) {
            return Ok(());
        }
        self.write(std::iter::empty())
    }

    /// Writes copies of sealed pages to the area. They are durable when the call returns.
    pub(super) fn write<'a>(&self, copies: impl Iterator<Item = Copied<'a>> + Clone) -> Result<(), PoolError> {
        let end = end_of(copies.clone().map(|copy| copy.lines));
        let mut bytes = AlignedBuf::zeroed(end.next_multiple_of(BLOCK_SIZE));
        bytes[..8].copy_from_slice(MAGIC);
        put_u32(&mut bytes, 8, VERSION);
        put_u32(&mut bytes, CHECKED, copies.clone().count() as u32);
        put_u32(&mut bytes, PAGE_SIZE_FIELD, PAGE_SIZE as u32);
        bytes[DATABASE..GENERATION].copy_from_slice(&self.stamp.database);
        bytes[GENERATION..ENTRIES].copy_from_slice(&self.stamp.generation.to_le_bytes());
        let mut at = ENTRIES;
        for copy in copies.clone() {
            bytes[at..at + 8].copy_from_slice(&copy.id.get().to_le_bytes());
            bytes[at + 8..at + ENTRY].copy_from_slice(&copy.lines.bits().to_le_bytes());
            at += ENTRY;
        }
        for copy in copies {
            for run in copy.lines.bytes() {
                bytes[at..at + run.len()].copy_from_slice(&copy.page[run.clone()]);
                at += run.len();
            }
        }
        let crc = crc32c(&bytes[CHECKED..end]);
        put_u32(&mut bytes, CRC, crc);
        Ok(self.file.write_durable(&[&bytes], 0)?)
    }
}

/// Returns where an area ends that has these lines of a page each.
fn end_of(pages: impl Iterator<Item = Lines>) -> usize {
    pages.fold(ENTRIES, |end, lines| end + ENTRY + lines.count() as usize * LINE_SIZE)
}

/// What an area has of a page.
#[derive(Clone, Copy)]
struct Found {
    id: PageId,
    lines: Lines,
    /// Offset of the first line in the area.
    at: usize,
}

/// A valid area that an earlier process left.
pub(crate) struct FoundArea {
    /// The whole area, up to the end of its last block.
    bytes: AlignedBuf,
    copies: Vec<Found>,
}

impl FoundArea {
    /// Reads the area. Returns `None` if it is not valid.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn read(file: &dyn File) -> Result<Option<Self>, PoolError> {
        let len = file.len()?;
        if len < BLOCK_SIZE as u64 {
            return Ok(None);
        }
        let mut header = AlignedBuf::zeroed(BLOCK_SIZE);
        file.read_at(&mut header, 0)?;
        let Some((copies, end)) = decode(&header) else { return Ok(None) };
        let blocks = end.next_multiple_of(BLOCK_SIZE);
        if len < blocks as u64 {
            return Ok(None);
        }
        let mut bytes = AlignedBuf::zeroed(blocks);
        file.read_at(&mut bytes, 0)?;
        Ok((crc32c(&bytes[CHECKED..end]) == u32_at(&bytes, CRC)).then_some(Self { bytes, copies }))
    }

    /// Returns the number of pages in the area.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.copies.len()
    }

    /// Returns the number of lines in the area.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> u32 {
        self.copies.iter().map(|copy| copy.lines.count()).sum()
    }

    /// Returns the database and the generation that the area belongs to. An area of the format
    /// without stamps has an empty stamp.
    pub(crate) fn stamp(&self) -> Stamp {
        if u32_at(&self.bytes, 8) == UNSTAMPED {
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
        let mut page = AlignedBuf::zeroed(PAGE_SIZE);
        let mut repaired = 0;
        for &copy in &self.copies {
            let id = copy.id;
            if id.is_zero() || id >= PageTable::LIMIT {
                continue;
            }
            let offset = id.get() * PAGE_SIZE as u64;
            match data.read_at(&mut page, offset) {
                Ok(()) => {}
                Err(error) if error.kind == std::io::ErrorKind::UnexpectedEof => page.fill(0),
                Err(error) => return Err(error.into()),
            }
            let whole = page::verify(&page, id).is_ok();
            let differs = self.overlay(&mut page, copy);
            if (whole && differs || page::verify(&page, id).is_err()) && !planted!(StaleAreaPutBack) {
                continue;
            }
            data.allocate(offset + PAGE_SIZE as u64)?;
            data.write_at(&[&page], offset)?;
            if !whole {
                reach(Probe::TornPageRepaired);
            }
            repaired += usize::from(!whole);
        }
        data.sync()?;
        Ok(repaired)
    }

    /// Copies the lines that the area has over those of a page. Returns whether that has changed
    /// the page.
    fn overlay(&self, page: &mut [u8], Found { lines, mut at, .. }: Found) -> bool {
        let mut differs = false;
        for run in lines.bytes() {
            let new = &self.bytes[at..at + run.len()];
            at += run.len();
            let old = &mut page[run];
            differs |= old != new;
            old.copy_from_slice(new);
        }
        differs
    }
}

/// Returns what an area has according to its first block, and the area's end. Returns `None` if
/// the block begins no area.
fn decode(header: &[u8]) -> Option<(Vec<Found>, usize)> {
    let (version, count) = (u32_at(header, 8), u32_at(header, CHECKED) as usize);
    let fits = &header[..8] == MAGIC && u32_at(header, PAGE_SIZE_FIELD) as usize == PAGE_SIZE && count <= BATCH_PAGES;
    let (entries, entry, mut end) = match version {
        UNSTAMPED => (UNSTAMPED_IDS, 8, PAGES),
        WHOLE_PAGES => (ENTRIES, 8, PAGES),
        VERSION => (ENTRIES, ENTRY, ENTRIES + count.min(BATCH_PAGES) * ENTRY),
        _ => return None,
    };
    let copies = header[entries..].chunks_exact(entry).take(count).map(|entry| {
        let id = PageId::new(u64_at(entry, 0));
        let lines = entry[8..].try_into().map_or(Lines::ALL, |bits| Lines::from_bits(u128::from_le_bytes(bits)));
        let at = end;
        end += lines.count() as usize * LINE_SIZE;
        Found { id, lines, at }
    });
    let copies = copies.collect();
    fits.then_some((copies, end))
}

/// Returns the size of an area for any changes of so many pages.
fn bytes_of(pages: usize) -> usize {
    end_of(std::iter::repeat_n(Lines::ALL, pages)).next_multiple_of(BLOCK_SIZE)
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
