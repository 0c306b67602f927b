//! Where everything is in a heap, and how its parts are encoded. All words are little-endian.
//!
//! | offset | content |
//! |---|---|
//! | 0 | magic `DURAREGN`, version (u32), CRC-32C of the line with this field zero (u32), id of the heap (16 bytes), slots, buckets, records per bucket (u32 each) |
//! | 64 | number of slabs, sealed |
//! | 128 | state, sealed: 1 once the heap has been made |
//! | 192 | the root: address, fingerprint of its type, CRC-32C of these two |
//! | 256 | sealed: 1 if the last opening flushed what it stored; otherwise 0, or nothing in heaps of earlier versions |
//! | 1024 | a line for each slot: number of its last finished update, sealed |
//! | 4096 | the buckets of undo records ([`duramen_types::undo_record`]) |
//! | behind them, from a multiple of 4096 on | slabs of 64 KiB |
//!
//! A *sealed* word has 48 bits of value and 16 bits of a checksum over the heap's id, the word's
//! place and the value. It is stored in one piece, so a power cut leaves an old or a new one.
//!
//! A slab begins with a line whose first word, sealed, is its kind. The next two lines are a bitmap
//! of its live objects, which begin at its fourth line. Kinds:
//!
//! | kind | meaning |
//! |---|---|
//! | 0 | free |
//! | 1 to 20 | objects of one size class, [`CLASS_LINES`] |
//! | 256 x n + 254 | the first of n slabs with one large object, which is live if bit 0 of the bitmap is set. The other slabs are then part of the object, their first lines, too; if it is not live, they are slabs of their own |

use duramen_types::crc32c_append;
use duramen_types::undo_record::{LINE_BYTES, RECORD_LINES};

use crate::options::LogShape;

/// Bytes of a line.
pub(crate) const LINE: u64 = LINE_BYTES as u64;
/// Bytes of an undo record.
pub(crate) const RECORD_BYTES: usize = RECORD_LINES * LINE_BYTES;
/// Bytes of a slab.
pub(crate) const SLAB: u64 = 64 << 10;
/// Lines of a slab before its first object.
pub(crate) const SLAB_HEAD: u64 = 3;
/// Words of the bitmap in these lines.
pub(crate) const BITMAP_WORDS: u64 = 16;
/// Lines of the objects of each size class.
pub(crate) const CLASS_LINES: [u64; 20] =
    [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 65, 96, 127, 204, 340, 1021];
/// The version of the format.
pub(crate) const VERSION: u32 = 1;
/// The first word of every heap.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"DURAREGN");
/// Where the header's words are.
pub(crate) const SLABS_AT: u64 = 64;
pub(crate) const STATE_AT: u64 = 128;
pub(crate) const ROOT_AT: u64 = 192;
pub(crate) const FLUSHED_AT: u64 = 256;
const SLOTS_AT: u64 = 1024;
/// Bytes before the log.
pub(crate) const FIXED: u64 = 4096;
/// The value of the state once the heap has been made.
pub(crate) const MADE: u64 = 1;
/// Values of sealed words are below this.
const SEALED: u64 = 1 << 48;

/// The part of the header that never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) id: [u8; 16],
    pub(crate) log: LogShape,
}

/// Why a header could not be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HeaderDefect {
    Version(u32),
    Checksum,
    Shape,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; LINE_BYTES] {
        let mut bytes = [0; LINE_BYTES];
        bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.id);
        bytes[32..36].copy_from_slice(&self.log.slots.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.log.buckets.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.log.records.to_le_bytes());
        let checksum = crc32c_append(0, &bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a line that begins with the magic.
    pub(crate) fn decode(bytes: &[u8; LINE_BYTES]) -> Result<Self, HeaderDefect> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| words.get(index).map_or(0, |word| u32::from_le_bytes(*word));
        let mut unsealed = *bytes;
        unsealed[12..16].fill(0);
        let is_whole = crc32c_append(0, &unsealed) == word(3);
        // Versions to come keep the version and the checksum where they are.
        if is_whole && word(2) != VERSION {
            return Err(HeaderDefect::Version(word(2)));
        }
        if !is_whole {
            return Err(HeaderDefect::Checksum);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..32]);
        let log = LogShape { slots: word(8), buckets: word(9), records: word(10) };
        log.check().map_err(|_| HeaderDefect::Shape)?;
        Ok(Self { id, log })
    }
}

/// Where the parts of one heap are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) header: Header,
    pub(crate) slabs: u64,
}

impl Layout {
    /// Returns the layout of a heap of at most `bytes` bytes.
    pub(crate) fn of(header: Header, bytes: u64) -> Self {
        let slabs = bytes.saturating_sub(slabs_from(header.log)) / SLAB;
        Self { header, slabs: slabs.min(1 << 30) }
    }

    /// Returns the size of the smallest heap with this log.
    pub(crate) fn smallest(log: LogShape) -> u64 {
        slabs_from(log) + SLAB
    }

    /// Returns where the slabs begin.
    pub(crate) fn slabs_at(&self) -> u64 {
        slabs_from(self.header.log)
    }

    /// Returns where a slab begins.
    pub(crate) fn slab(&self, slab: u64) -> u64 {
        self.slabs_at() + slab * SLAB
    }

    /// Returns the size of the heap.
    pub(crate) fn len(&self) -> u64 {
        self.slab(self.slabs)
    }

    /// Returns where the line of a slot is.
    pub(crate) fn slot(&self, slot: u32) -> u64 {
        SLOTS_AT + u64::from(slot) * LINE
    }

    /// Returns where a record of a bucket is.
    pub(crate) fn record(&self, bucket: u32, record: u32) -> u64 {
        let records = u64::from(bucket) * u64::from(self.header.log.records) + u64::from(record);
        FIXED + records * RECORD_BYTES as u64
    }

    /// Returns whether a record may have the old contents of the line at `at`.
    pub(crate) fn is_home(&self, at: u64) -> bool {
        at.is_multiple_of(LINE) && (at == ROOT_AT || (self.slabs_at()..self.len()).contains(&at))
    }

    /// Returns the sealed word for `value` at offset `at`.
    pub(crate) fn seal(&self, at: u64, value: u64) -> u64 {
        assert!(value < SEALED, "sealed values have 48 bits");
        value | u64::from(self.checksum(at, value)) << 48
    }

    /// Returns the value of the sealed word `word` at offset `at`; `None` if it is damaged.
    pub(crate) fn unseal(&self, at: u64, word: u64) -> Option<u64> {
        let value = word % SEALED;
        (self.seal(at, value) == word).then_some(value)
    }

    fn checksum(&self, at: u64, value: u64) -> u16 {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.header.id);
        bytes[16..].copy_from_slice(&value.to_le_bytes());
        crc32c_append(at, &bytes) as u16
    }
}

fn slabs_from(log: LogShape) -> u64 {
    (FIXED + log.bytes()).next_multiple_of(4096)
}

/// What a slab is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Free,
    /// Objects of this class.
    Class(u8),
    /// The first of this many slabs with one object.
    Large(u32),
    /// The slab this many slabs behind the first of a live large object. Not in the heap itself.
    Behind(u32),
}

impl Kind {
    pub(crate) fn encode(self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Class(class) => u64::from(class) + 1,
            Self::Large(slabs) => u64::from(slabs) << 8 | 254,
            Self::Behind(slabs) => u64::from(slabs) << 8 | 255,
        }
    }

    pub(crate) fn decode(value: u64) -> Option<Self> {
        let slabs = u32::try_from(value >> 8).ok()?;
        Some(match (value & 255, slabs) {
            (0, 0) => Self::Free,
            (class, 0) if class <= CLASS_LINES.len() as u64 => Self::Class(class as u8 - 1),
            (254, 1..) => Self::Large(slabs),
            (255, 1..) => Self::Behind(slabs),
            _ => return None,
        })
    }

    /// Returns how many objects a slab of this kind can have.
    pub(crate) fn objects(self) -> u64 {
        match self {
            Self::Class(class) => (SLAB / LINE - SLAB_HEAD) / CLASS_LINES[usize::from(class)],
            Self::Large(_) => 1,
            Self::Free | Self::Behind(_) => 0,
        }
    }
}

/// Returns the smallest class for objects of `lines` lines; `None` if they are large.
pub(crate) fn class_of(lines: u64) -> Option<u8> {
    let class = CLASS_LINES.partition_point(|of_class| *of_class < lines);
    (class < CLASS_LINES.len()).then_some(class as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header { id: [7; 16], log: LogShape { slots: 2, buckets: 3, records: 4 } };

    #[test]
    fn a_header_with_a_changed_byte_is_refused() {
        let bytes = HEADER.encode();
        assert_eq!(Header::decode(&bytes), Ok(HEADER));
        for at in 8..LINE_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Header::decode(&damaged), Err(HeaderDefect::Checksum), "byte {at}");
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = HEADER.encode();
        bytes[8] = 9;
        bytes[12..16].fill(0);
        let checksum = crc32c_append(0, &bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(HeaderDefect::Version(9)));
    }

    #[test]
    fn kinds_are_decoded_as_they_were_encoded() {
        let kinds = [Kind::Free, Kind::Class(0), Kind::Class(19), Kind::Large(2), Kind::Behind(1)];
        for kind in kinds {
            assert_eq!(Kind::decode(kind.encode()), Some(kind));
        }
        for value in [21, 253, 254, 255, 256, 257, 1 << 47] {
            assert_eq!(Kind::decode(value), None, "{value}");
        }
    }

    #[test]
    fn sealed_words_belong_to_their_place() {
        let layout = Layout { header: HEADER, slabs: 1 };
        let word = layout.seal(64, 12_345);
        assert_eq!(layout.unseal(64, word), Some(12_345));
        assert_eq!(layout.unseal(128, word), None);
        assert_eq!(layout.unseal(64, word ^ 1), None);
    }

    #[test]
    fn the_smallest_class_that_fits_is_chosen() {
        assert!(CLASS_LINES.is_sorted());
        assert_eq!((class_of(1), class_of(7), class_of(1021), class_of(1022)), (Some(0), Some(6), Some(19), None));
    }
}
