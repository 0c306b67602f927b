//! Byte layout of pages: the common header, the slotted B+-tree node, and page images for the log.
//!
//! Every page starts with the same 32 bytes, little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C, seeded with the page id, of bytes 4..8192; valid only on disk |
//! | 4 | 1 | page type |
//! | 5 | 1 | level: 0 for leaves, height above the leaves for inner nodes |
//! | 6 | 2 | reserved, zero |
//! | 8 | 8 | GSN of the last log record applied to the page |
//! | 16 | 8 | page id |
//! | 24 | 4 | id of the table the page belongs to, 0 if none |
//! | 28 | 4 | tag of the database, 0 if a program wrote the page that knew no tags; valid only on disk |
//!
//! What follows depends on the type; [`node`] describes leaves and inner nodes.

pub(crate) mod bitmap;
mod bytes;
mod check;
mod image;
mod lines;
mod node;
mod node_mut;
mod page_mut;
mod slot;
mod split;

#[cfg(test)]
mod tests;

pub(crate) use bytes::{OptimisticPage, PageBytes, fetch_whole};
pub(crate) use check::check;
pub(crate) use image::{image, image_of, restore_image};
pub(crate) use lines::{LINE_SIZE, Lines};
pub(crate) use node::{MAX_INLINE_SIZE, Node, OVERFLOW_REFERENCE_SIZE};
pub(crate) use node_mut::NodeMut;
pub(crate) use page_mut::{PageBuf, PageMut};
pub(crate) use slot::{SlotFlags, entry_size};
pub(crate) use split::{
    build_right, merge_fits, merge_into, merged_size, node_size, separator, split_point, split_point_for,
};

use std::num::NonZeroU32;

use duramen_types::{Gsn, PAGE_SIZE, PageId, TableId, crc32c, crc32c_append, planted};

/// Size of the header that all pages share, in bytes.
pub(crate) const PAGE_HEADER_SIZE: usize = 32;

/// The line that [`seal`] changes.
pub(crate) const HEADER_LINE: Lines = Lines::from_bits(1);

const _: () = assert!(PAGE_HEADER_SIZE <= LINE_SIZE);

const CHECKSUM: usize = 0;
const TYPE: usize = 4;
const LEVEL: usize = 5;
const GSN: usize = 8;

/// Offset of the GSN in a page.
pub(crate) const GSN_OFFSET: u64 = GSN as u64;
const PAGE_ID: usize = 16;
const TABLE_ID: usize = 24;
const DATABASE_TAG: usize = 28;

/// Stands for a database in each of its pages on disk, so that a page of another database is not
/// taken for one of this database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DatabaseTag(NonZeroU32);

impl DatabaseTag {
    /// Returns the tag of the database with this id. Zero is the tag of no database.
    pub(crate) fn of(database: &[u8; 16]) -> Self {
        Self(NonZeroU32::new(crc32c(database)).unwrap_or(NonZeroU32::MAX))
    }
}

/// The contents of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum PageType {
    /// Nothing: the page is not allocated.
    Free = 0,
    /// A piece of the allocation bitmap.
    Bitmap = 1,
    /// Records of a B+-tree.
    Leaf = 2,
    /// Separators and children of a B+-tree.
    Inner = 3,
    /// A piece of a value that is too large for a leaf.
    Overflow = 4,
    /// The file's stamp: page 0 (see `generation.rs`).
    Stamp = 5,
}

impl PageType {
    /// Returns the type that `raw` stands for.
    pub(crate) const fn from_u8(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Free),
            1 => Some(Self::Bitmap),
            2 => Some(Self::Leaf),
            3 => Some(Self::Inner),
            4 => Some(Self::Overflow),
            5 => Some(Self::Stamp),
            _ => None,
        }
    }
}

/// The reason why the bytes read for a page are not that page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum PageDefect {
    /// All bytes are zero: the page was never written, or its write was lost.
    #[error("the page is blank")]
    Blank,
    /// The contents do not match the checksum.
    #[error("the page stores the checksum {stored:#010x}, but its contents have {computed:#010x}")]
    BadChecksum {
        /// The checksum in the header.
        stored: u32,
        /// The checksum of the contents.
        computed: u32,
    },
    /// The page is intact, but it is another page.
    #[error("{found} is in its place")]
    WrongPage {
        /// The page id in the header.
        found: PageId,
    },
    /// The page is intact, but another database wrote it.
    #[error("a page of another database is in its place")]
    OtherDatabase,
    /// The type byte has no meaning.
    #[error("the page has the unknown type {found}")]
    BadType {
        /// The type byte in the header.
        found: u8,
    },
}

fn u32_at(page: &[u8], off: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&page[off..off + 4]);
    u32::from_le_bytes(raw)
}

fn u64_at(page: &[u8], off: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&page[off..off + 8]);
    u64::from_le_bytes(raw)
}

/// Returns the page's type; `None` when the byte has no meaning.
pub(crate) fn page_type(page: &[u8]) -> Option<PageType> {
    PageType::from_u8(page[TYPE])
}

/// Returns the height of the page above the leaves of its tree.
pub(crate) fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

/// Returns the GSN of the last log record applied to the page.
pub(crate) fn gsn(page: &[u8]) -> Gsn {
    Gsn::new(u64_at(page, GSN))
}

/// Stamps the page with the GSN of the record just applied.
pub(crate) fn set_gsn(page: &mut PageMut<'_>, gsn: Gsn) {
    page.put_field(GSN, gsn.get().to_le_bytes());
}

/// Returns the page's own number.
pub(crate) fn page_id(page: &[u8]) -> PageId {
    PageId::new(u64_at(page, PAGE_ID))
}

/// Changes the page's number, for contents copied from another page.
pub(crate) fn set_page_id(page: &mut PageMut<'_>, id: PageId) {
    page.put_field(PAGE_ID, id.get().to_le_bytes());
}

/// Returns the table that the page belongs to, zero if none.
pub(crate) fn table_id(page: &[u8]) -> TableId {
    TableId::new(u32_at(page, TABLE_ID))
}

/// Zeroes the page and writes its header.
pub(crate) fn init_header(page: &mut PageMut<'_>, ty: PageType, level: u8, id: PageId, table: TableId) {
    page.zero_from(0);
    page.put_field(TYPE, [ty as u8]);
    page.put_field(LEVEL, [level]);
    set_page_id(page, id);
    page.put_field(TABLE_ID, table.get().to_le_bytes());
}

/// Writes the tag of the database and the checksum into a copy of the page: the last step before
/// the copy goes to disk.
pub(crate) fn seal(page: &mut [u8], database: DatabaseTag) {
    assert_eq!(page.len(), PAGE_SIZE);
    page[DATABASE_TAG..PAGE_HEADER_SIZE].copy_from_slice(&database.0.get().to_le_bytes());
    let checksum = checksum(page, page_id(page));
    page[CHECKSUM..CHECKSUM + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Checks that `page`, just read from disk, is page `id` as it was sealed.
///
/// # Errors
/// The defect. This checks nothing beyond the header and the checksum; [`check()`] checks the
/// contents of nodes.
pub(crate) fn verify(page: &[u8], id: PageId) -> Result<(), PageDefect> {
    assert_eq!(page.len(), PAGE_SIZE);
    if page.iter().all(|&byte| byte == 0) {
        return Err(PageDefect::Blank);
    }
    let found = page_id(page);
    let stored = u32_at(page, CHECKSUM);
    if !planted!(IgnorePageChecksum) {
        let computed = checksum(page, id);
        if stored != computed {
            // The seed also differs when an intact page is at the wrong offset, so this
            // distinguishes that case from damage.
            return Err(if found != id && stored == checksum(page, found) {
                PageDefect::WrongPage { found }
            } else {
                PageDefect::BadChecksum { stored, computed }
            });
        }
    }
    if found != id {
        return Err(PageDefect::WrongPage { found });
    }
    match page_type(page) {
        Some(_) => Ok(()),
        None => Err(PageDefect::BadType { found: page[TYPE] }),
    }
}

/// Checks that this database wrote `page`, which is as it was sealed. A page without a tag passes:
/// a program that knew no tags wrote it.
///
/// # Errors
/// [`PageDefect::OtherDatabase`].
pub(crate) fn verify_database(page: &[u8], database: DatabaseTag) -> Result<(), PageDefect> {
    match NonZeroU32::new(u32_at(page, DATABASE_TAG)) {
        Some(found) if found != database.0 => Err(PageDefect::OtherDatabase),
        _ => Ok(()),
    }
}

fn checksum(page: &[u8], id: PageId) -> u32 {
    crc32c_append(id.get(), &page[TYPE..])
}
