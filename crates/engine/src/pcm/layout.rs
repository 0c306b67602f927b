//! The bytes of a region.
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 8 | `DURAPCM1` |
//! | 8 | 4 | version (2) |
//! | 12 | 4 | CRC-32C of the first 64 bytes, with zeros in its place |
//! | 16 | 16 | id of the database |
//! | 32 | 8 | number of slots |
//! | 40 | 24 | zeros |
//! | 192 | 8 | state: 0 blank, 1 being made, 2 in use, 3 closed in order |
//! | 256 | 8 | clock: all GSNs and transaction numbers in the region and on disk are below it |
//! | 320 | 8 | the next transaction id of the engine |
//! | 384 | 8 | number of groups of pages that have a bitmap |
//! | 448 | 8 | generation |
//! | 512 | 8 | the slots that are in use, once the region has grown |
//! | 4096 | 64 KiB | the active transaction list: 1024 entries, each a word with a line of its own |
//! | 69632 | 9344 each | slots |
//!
//! A slot:
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 8 | `PCMS` and the kind: 1 page, 2 covers, 3 garbage, 4 tuples; 0 if the slot is free |
//! | 8 | 4 | CRC-32C of database id, slot number, this header with zeros in its place, and the body |
//! | 12 | 4 | bytes of covers, or of deferred frees, in this slot |
//! | 16 | 8 | the number of the structure change that the page belongs to, or of the transaction that left the garbage; 0 if none |
//! | 24 | 8 | GSN of the page |
//! | 32 | 8 | the page |
//! | 40 | 4 | page: number of slots with more covers; covers: which of them this is, from 0 on; tuples: the size of its cells (`cell.rs`) |
//! | 44 | 20 | zeros |
//! | 64 | 8192 | page: its bytes |
//! | behind | | covers (page, covers) or deferred frees (garbage); cells, each with a checksum of its own (tuples) |
//!
//! Numbers are little-endian.

use duramen_types::{Gsn, PAGE_SIZE, PageId, crc32c, crc32c_of};

/// The word that a region begins with.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"DURAPCM1");
const VERSION: u32 = 2;

/// Size, in bytes, of the part of the header that is written once.
pub(super) const FIXED: usize = 64;

/// Bytes of a cache line.
pub(super) const LINE: u64 = 64;

/// Entries of the active transaction list.
pub(crate) const ENTRIES: u32 = 1024;

const LIST_AT: u64 = 4096;
const SLOTS_AT: u64 = LIST_AT + ENTRIES as u64 * LINE;

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = 9344;

/// Bytes of a slot's header.
pub(super) const HEADER: usize = 64;

/// Bytes of covers that fit behind a page.
pub(super) const COVERS_BESIDE: usize = SLOT_BYTES - HEADER - PAGE_SIZE;

/// Bytes of covers, or of deferred frees, that fit into a slot of their own.
pub(super) const COVERS_APART: usize = SLOT_BYTES - HEADER;

/// The smallest region.
pub(super) const LEAST_BYTES: u64 = 1 << 20;

const _: () = assert!(SLOT_BYTES.is_multiple_of(LINE as usize) && SLOTS_AT.is_multiple_of(LINE));

/// A word of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum Word {
    State = 192,
    Clock = 256,
    NextTxn = 320,
    Groups = 384,
    Generation = 448,
    Slots = 512,
}

/// The number of a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// Returns the slot's offset in the region.
    pub(super) fn at(self) -> u64 {
        SLOTS_AT + u64::from(self.0) * SLOT_BYTES as u64
    }
}

/// Returns the offset of an entry of the active transaction list.
pub(super) fn entry_at(entry: u32) -> u64 {
    LIST_AT + u64::from(entry) * LINE
}

/// Returns how many slots fit into so many bytes.
pub(super) fn slots_in(bytes: u64) -> u32 {
    let slots = bytes.saturating_sub(SLOTS_AT) / SLOT_BYTES as u64;
    u32::try_from(slots).unwrap_or(u32::MAX)
}

/// Returns the bytes of a region with so many slots.
pub(super) fn bytes_of(slots: u32) -> u64 {
    Slot(slots).at()
}

/// Returns the bytes of the smallest region, which has whole slots only.
pub(super) fn least_len() -> u64 {
    bytes_of(slots_in(LEAST_BYTES))
}

/// The part of the header that is written once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) database: [u8; 16],
    /// The slots of the region when it was made.
    pub(crate) slots: u32,
}

/// Why a region is none of a database with this scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotPcm {
    #[error("it does not begin with the header of a PCM region")]
    Foreign,
    #[error("its header fails its checksum")]
    Damaged,
    #[error("its header has version {0}, and this program reads version {VERSION}")]
    Version(u32),
}

impl Header {
    pub(super) fn encode(&self) -> [u8; FIXED] {
        let mut bytes = [0; FIXED];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.database);
        bytes[32..40].copy_from_slice(&u64::from(self.slots).to_le_bytes());
        let crc = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; FIXED]) -> Result<Self, NotPcm> {
        if u64_at(bytes, 0) != MAGIC {
            return Err(NotPcm::Foreign);
        }
        let mut unsealed = *bytes;
        unsealed[12..16].fill(0);
        if u32_at(bytes, 12) != crc32c(&unsealed) {
            return Err(NotPcm::Damaged);
        }
        if u32_at(bytes, 8) != VERSION {
            return Err(NotPcm::Version(u32_at(bytes, 8)));
        }
        let slots = u32::try_from(u64_at(bytes, 32)).map_err(|_| NotPcm::Damaged)?;
        Ok(Self { database: bytes[16..32].try_into().expect("sixteen bytes"), slots })
    }
}

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SlotKind {
    /// A page, with the first covers.
    Page = 1,
    /// More covers of a page.
    Covers = 2,
    /// Deferred frees of a transaction.
    Garbage = 3,
    /// Cells with tuples.
    Tuples = 4,
}

/// The header of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SlotHeader {
    pub(crate) kind: SlotKind,
    /// Bytes of covers or of deferred frees.
    pub(crate) len: u32,
    /// The structure change that a page belongs to, or the transaction that left the garbage.
    pub(crate) owner: u64,
    pub(crate) gsn: Gsn,
    pub(crate) page: PageId,
    /// Page: how many slots of covers there are. Covers: which of them this is. Tuples: the size of
    /// the cells.
    pub(crate) part: u32,
}

const SLOT_MAGIC: u32 = u32::from_le_bytes(*b"PCMS");

impl SlotHeader {
    /// Returns the header, sealed for its slot with the body `parts`.
    pub(super) fn encode(&self, database: &[u8; 16], slot: Slot, parts: &[&[u8]]) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..4].copy_from_slice(&SLOT_MAGIC.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[12..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.owner.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.gsn.get().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.page.get().to_le_bytes());
        bytes[40..44].copy_from_slice(&self.part.to_le_bytes());
        let crc = seal(database, slot, &bytes, parts);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a whole slot: its header and its body, the bytes of a page (if it is one) and those of
    /// covers or deferred frees. `None` if the slot is free or torn.
    pub(super) fn decode<'b>(database: &[u8; 16], slot: Slot, bytes: &'b [u8]) -> Option<(Self, &'b [u8], &'b [u8])> {
        if u32_at(bytes, 0) != SLOT_MAGIC || bytes[5..8] != [0; 3] {
            return None;
        }
        let kind = match bytes[4] {
            1 => SlotKind::Page,
            2 => SlotKind::Covers,
            3 => SlotKind::Garbage,
            4 => SlotKind::Tuples,
            _ => return None,
        };
        let len = u32_at(bytes, 12);
        let start = if kind == SlotKind::Page { HEADER + PAGE_SIZE } else { HEADER };
        let rest = bytes[start..].get(..len as usize)?;
        let image = &bytes[HEADER..start];
        let mut unsealed: [u8; HEADER] = bytes[..HEADER].try_into().expect("a header");
        unsealed[8..12].fill(0);
        if seal(database, slot, &unsealed, &[image, rest]) != u32_at(bytes, 8) {
            return None;
        }
        let (owner, gsn, page) = (u64_at(bytes, 16), Gsn::new(u64_at(bytes, 24)), PageId::new(u64_at(bytes, 32)));
        Some((Self { kind, len, owner, gsn, page, part: u32_at(bytes, 40) }, image, rest))
    }
}

fn seal(database: &[u8; 16], slot: Slot, header: &[u8; HEADER], parts: &[&[u8]]) -> u32 {
    let number = slot.0.to_le_bytes();
    let mut all: Vec<&[u8]> = vec![database, &number, header];
    all.extend_from_slice(parts);
    crc32c_of(&all)
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_every_flipped_bit_shows() {
        let header = Header { database: [7; 16], slots: 100 };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in 0..FIXED * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn slots_fit_and_are_those_of_their_place() {
        for bytes in [LEAST_BYTES, 3 << 20, 64 << 30] {
            let slots = slots_in(bytes);
            assert!(bytes_of(slots) <= bytes && bytes_of(slots) + SLOT_BYTES as u64 > bytes);
        }
        let header =
            SlotHeader { kind: SlotKind::Page, len: 3, owner: 9, gsn: Gsn::new(5), page: PageId::new(6), part: 1 };
        let image = [3; PAGE_SIZE];
        let mut bytes = vec![0xee; SLOT_BYTES];
        bytes[..HEADER].copy_from_slice(&header.encode(&[1; 16], Slot(4), &[&image, b"abc"]));
        bytes[HEADER..HEADER + PAGE_SIZE].copy_from_slice(&image);
        bytes[HEADER + PAGE_SIZE..][..3].copy_from_slice(b"abc");
        assert_eq!(SlotHeader::decode(&[1; 16], Slot(4), &bytes), Some((header, &image[..], &b"abc"[..])));
        assert_eq!(SlotHeader::decode(&[1; 16], Slot(5), &bytes), None);
        assert_eq!(SlotHeader::decode(&[2; 16], Slot(4), &bytes), None);
        for at in (0..HEADER + PAGE_SIZE + 3).filter(|at| *at < HEADER || at % 97 == 0) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(SlotHeader::decode(&[1; 16], Slot(4), &damaged), None, "byte {at}");
        }
    }
}
