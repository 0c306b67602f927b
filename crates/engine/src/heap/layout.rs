//! The layout of a heap region, and its header.
//!
//! | offset | content |
//! |---|---|
//! | 0 | magic `DURAHEAP`; version u32; CRC-32C u32 of the first 64 bytes with this field zero; database id, 16 bytes; storage scheme u8, then 7 zero bytes; number of journal blocks u64; bytes of the batch log u64, 0 without one; zero up to 64 |
//! | 192 | state: 0 blank, 1 being made, 2 in use, 3 closed in order |
//! | 256 | no transaction id below this is given out again |
//! | 320 | number of openings: the upper part of every lease |
//! | 384 | generation (see `checkpoint/generation.rs`) |
//! | 448 | number of groups of pages that have a bitmap, at least |
//! | 512 | number of pages |
//! | 576 | the latest batch that kept old lines and is committed |
//! | 640 | the latest batch whose old lines are durable |
//! | 704 | the domain of the last opening: 1 if it flushed what it stored; otherwise 0, as in heaps of earlier versions |
//! | 64 KiB | journal blocks of 64 KiB |
//! | behind them | the batch log, if there is one: two halves |
//! | behind it | the pages: page *n* at `pages + 8192 n` |
//!
//! Numbers are little-endian. Each word from offset 192 on has a cache line of its own, and changes
//! atomically and independently of the others. The pages come last, so that a heap can grow at its
//! end.

use duramen_types::{PAGE_SIZE, PageId, crc32c};

/// Size of a journal block in bytes.
pub(crate) const BLOCK_BYTES: u64 = 64 << 10;

/// Size of a cache line in bytes.
pub(crate) const LINE: u64 = 64;

const MAGIC: [u8; 8] = *b"DURAHEAP";
const VERSION: u32 = 1;
/// Size, in bytes, of the part of the header that is written once.
pub(super) const FIXED: usize = 64;

/// Returns the first word of a heap.
pub(super) const fn magic_word() -> u64 {
    u64::from_le_bytes(MAGIC)
}

/// A word of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Word {
    State = 192,
    NextTxn = 256,
    Openings = 320,
    Generation = 384,
    Groups = 448,
    Pages = 512,
    CommittedBatch = 576,
    LoggedBatch = 640,
    Flushed = 704,
}

/// The part of the header that is written once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) database: [u8; 16],
    pub(crate) scheme: u8,
    /// Number of journal blocks.
    pub(crate) blocks: u64,
    /// Bytes of the batch log; 0 without one.
    pub(crate) batch_bytes: u64,
}

/// The reason why a region is not a heap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotAHeap {
    #[error("it does not begin with the header of a heap")]
    Foreign,
    #[error("its header fails its checksum")]
    Damaged,
    #[error("its header has version {0}, and this program reads version {VERSION}")]
    Version(u32),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; FIXED] {
        let mut bytes = [0; FIXED];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.database);
        bytes[32] = self.scheme;
        bytes[40..48].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.batch_bytes.to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; FIXED]) -> Result<Self, NotAHeap> {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[0..8] != MAGIC {
            return Err(NotAHeap::Foreign);
        }
        let mut unsealed = *bytes;
        unsealed[12..16].fill(0);
        if half(12) != crc32c(&unsealed) {
            return Err(NotAHeap::Damaged);
        }
        if half(8) != VERSION {
            return Err(NotAHeap::Version(half(8)));
        }
        Ok(Self {
            database: bytes[16..32].try_into().expect("sixteen bytes"),
            scheme: bytes[32],
            blocks: u64::from_le_bytes(bytes[40..48].try_into().expect("eight bytes")),
            batch_bytes: u64::from_le_bytes(bytes[48..56].try_into().expect("eight bytes")),
        })
    }
}

/// Where the parts of a heap lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) blocks: u64,
    pub(crate) batch_bytes: u64,
    pub(crate) pages: u64,
}

impl Layout {
    /// The largest batch log, in bytes.
    pub(crate) const MOST_BATCH_BYTES: u64 = 4 << 30;

    /// Divides a new heap of `bytes` bytes; by default one part in sixteen is for journals, at
    /// least 1 MiB and at most 256 MiB.
    pub(crate) fn of_new(bytes: u64, journal_bytes: Option<u64>, batch_bytes: u64) -> Self {
        let journal_bytes = journal_bytes.unwrap_or_else(|| (bytes / 16).clamp(1 << 20, 256 << 20));
        Self::with_blocks(bytes, journal_bytes / BLOCK_BYTES, batch_bytes)
    }

    /// Divides a heap with this many journal blocks and this batch log.
    pub(crate) fn with_blocks(bytes: u64, blocks: u64, batch_bytes: u64) -> Self {
        let before = BLOCK_BYTES.saturating_mul(blocks.saturating_add(1)).saturating_add(batch_bytes);
        Self { blocks, batch_bytes, pages: bytes.saturating_sub(before) / PAGE_SIZE as u64 }
    }

    /// Returns whether a heap can have this layout.
    pub(crate) fn is_possible(&self) -> bool {
        const MOST_PAGES: u64 = (1 << 46) / PAGE_SIZE as u64;
        (16..=1 << 20).contains(&self.blocks)
            && (3..=MOST_PAGES).contains(&self.pages)
            && self.batch_bytes.is_multiple_of(BLOCK_BYTES)
            && self.batch_bytes <= Self::MOST_BATCH_BYTES
    }

    /// Returns the length of the whole region in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages_start() + self.pages * PAGE_SIZE as u64
    }

    /// Returns the offset of a journal block.
    pub(crate) fn block(&self, block: u32) -> u64 {
        BLOCK_BYTES * (1 + u64::from(block))
    }

    /// Returns the journal block that an offset lies in.
    pub(crate) fn block_of(&self, offset: u64) -> Option<u32> {
        let block = (offset / BLOCK_BYTES).checked_sub(1)?;
        if block < self.blocks { u32::try_from(block).ok() } else { None }
    }

    /// Returns the offset of a page.
    pub(crate) fn page(&self, page: PageId) -> u64 {
        self.pages_start() + page.get() * PAGE_SIZE as u64
    }

    fn pages_start(&self) -> u64 {
        self.batch_log() + self.batch_bytes
    }

    /// Returns the offset of the batch log.
    pub(crate) fn batch_log(&self) -> u64 {
        BLOCK_BYTES * (self.blocks + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_every_flipped_bit_shows() {
        let header = Header { database: [7; 16], scheme: 1, blocks: 64, batch_bytes: 1 << 20 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in 0..FIXED * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn parts_fit_and_do_not_overlap() {
        for bytes in [2 << 20, 3 << 20, 100 << 20, 64 << 30] {
            let layout = Layout::of_new(bytes, None, 4 * BLOCK_BYTES);
            assert!(layout.bytes() <= bytes && layout.bytes() + PAGE_SIZE as u64 > bytes);
            let last = u32::try_from(layout.blocks - 1).unwrap();
            assert_eq!(layout.block(last) + BLOCK_BYTES, layout.batch_log());
            assert_eq!(layout.batch_log() + 4 * BLOCK_BYTES, layout.page(PageId::ZERO));
            assert_eq!(layout.block_of(layout.block(last) + 100), Some(last));
            assert_eq!(layout.block_of(layout.page(PageId::ZERO)), None);
            assert_eq!(layout.block_of(BLOCK_BYTES - 1), None);
        }
    }
}
