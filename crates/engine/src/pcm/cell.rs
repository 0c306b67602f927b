//! Tuples in the region: a slot of the kind `Tuples` is divided into cells of one size, each with
//! space for a record that a transaction has changed.
//!
//! | offset | size | content |
//! |---|---|---|
//! | 0 | 1 | kind: 1 value, 2 absent; 0 if the cell is free |
//! | 1 | 1 | zero |
//! | 2 | 2 | flags of the record |
//! | 4 | 4 | CRC-32C of database id, slot number, carving, cell number, this header with zeros in its place, key and value |
//! | 8 | 8 | the transaction's number |
//! | 16 | 8 | GSN of the page when the tuple was stored |
//! | 24 | 8 | the page |
//! | 32 | 4 | the table |
//! | 36 | 2 | bytes of the key |
//! | 38 | 2 | bytes of the value |
//! | 40 | | key, value |
//!
//! The *carving* is the clock's number when the slot was divided, which its header has as GSN: what
//! an earlier use of the slot has left in a cell is no tuple. Numbers are little-endian.

use duramen_types::{Gsn, PageId, TableId, crc32c_of};

use super::Pcm;
use super::active::Xid;
use super::content::Content;
use super::layout::{HEADER, LINE, SLOT_BYTES, Slot, SlotHeader, SlotKind, u16_at, u32_at, u64_at};
use crate::page::SlotFlags;

/// Bytes of a cell's header.
const CELL_HEADER: usize = 40;

/// The sizes of cells, in cache lines.
const LINES: [usize; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32];

const VALUE: u8 = 1;
const ABSENT: u8 = 2;

/// The size of a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Class(u8);

impl Class {
    pub(super) const COUNT: usize = LINES.len();

    /// Returns the smallest cells with space for a tuple, if there are any.
    pub(super) fn of(key: &[u8], content: &Content) -> Option<Self> {
        let value = if let Content::Value { bytes, .. } = content { bytes.len() } else { 0 };
        let lines = (CELL_HEADER + key.len() + value).div_ceil(LINE as usize);
        LINES.iter().position(|size| *size >= lines).map(|class| Self(class as u8))
    }

    pub(super) fn from_index(index: usize) -> Option<Self> {
        (index < Self::COUNT).then_some(Self(index as u8))
    }

    pub(super) fn index(self) -> usize {
        self.0.into()
    }

    /// Returns the bytes of a cell.
    pub(super) fn bytes(self) -> usize {
        LINES[self.index()] * LINE as usize
    }

    /// Returns the number of cells of a slot.
    pub(super) fn cells(self) -> u16 {
        ((SLOT_BYTES - HEADER) / self.bytes()) as u16
    }
}

/// The place of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cell {
    pub(super) slot: Slot,
    pub(super) class: Class,
    pub(super) number: u16,
    /// When the slot was divided.
    pub(super) carving: Gsn,
}

impl Cell {
    fn at(self) -> u64 {
        self.slot.at() + (HEADER + usize::from(self.number) * self.class.bytes()) as u64
    }

    fn seal(self, database: &[u8; 16], header: &[u8; CELL_HEADER], rest: &[u8]) -> u32 {
        let (slot, carving) = (self.slot.0.to_le_bytes(), self.carving.get().to_le_bytes());
        crc32c_of(&[database, &slot, &carving, &self.number.to_le_bytes(), header, rest])
    }
}

/// A record that a transaction has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Tuple {
    pub(super) xid: Xid,
    pub(super) gsn: Gsn,
    pub(super) page: PageId,
    pub(super) table: TableId,
    pub(super) key: Vec<u8>,
    pub(super) content: Content,
}

impl Pcm {
    /// Divides a free slot into cells; durable after the next barrier. Returns the carving.
    pub(super) fn carve(&self, slot: Slot, class: Class) -> Gsn {
        let (gsn, part) = (Gsn::new(self.tick()), class.index() as u32);
        self.store_slot(
            slot,
            SlotHeader { kind: SlotKind::Tuples, len: 0, owner: 0, gsn, page: PageId::ZERO, part },
            &[],
        );
        gsn
    }

    /// Stores a tuple; durable after the next barrier.
    pub(super) fn store_tuple(&self, cell: Cell, tuple: &Tuple) {
        let (kind, flags, value) = match &tuple.content {
            Content::Absent => (ABSENT, SlotFlags::NONE, &[][..]),
            Content::Value { flags, bytes } => (VALUE, *flags, &bytes[..]),
        };
        let len = |bytes: &[u8]| u16::try_from(bytes.len()).expect("it fits a cell").to_le_bytes();
        let mut header = [0; CELL_HEADER];
        header[0] = kind;
        header[2..4].copy_from_slice(&flags.bits().to_le_bytes());
        header[8..16].copy_from_slice(&tuple.xid.0.to_le_bytes());
        header[16..24].copy_from_slice(&tuple.gsn.get().to_le_bytes());
        header[24..32].copy_from_slice(&tuple.page.get().to_le_bytes());
        header[32..36].copy_from_slice(&tuple.table.get().to_le_bytes());
        header[36..38].copy_from_slice(&len(&tuple.key));
        header[38..40].copy_from_slice(&len(value));
        let rest = [&tuple.key, value].concat();
        let crc = cell.seal(&self.database(), &header, &rest);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        self.store(cell.at(), &[&header, &rest]);
    }

    /// Reads a tuple; `None` if the cell is free or torn.
    pub(super) fn read_tuple(&self, cell: Cell) -> Option<Tuple> {
        let mut bytes = vec![0; cell.class.bytes()];
        self.region.read(cell.at(), &mut bytes);
        let (mut header, rest) = bytes.split_first_chunk::<CELL_HEADER>().map(|(header, rest)| (*header, rest))?;
        let (key_len, value_len) = (usize::from(u16_at(&header, 36)), usize::from(u16_at(&header, 38)));
        let rest = rest.get(..key_len + value_len)?;
        let crc = u32_at(&header, 4);
        header[4..8].fill(0);
        if header[1] != 0 || cell.seal(&self.database(), &header, rest) != crc {
            return None;
        }
        let (key, value) = rest.split_at(key_len);
        let content = match header[0] {
            ABSENT if value.is_empty() => Content::Absent,
            VALUE => Content::Value { flags: SlotFlags::from_bits(u16_at(&header, 2)), bytes: value.to_vec() },
            _ => return None,
        };
        Some(Tuple {
            xid: Xid(u64_at(&header, 8)),
            gsn: Gsn::new(u64_at(&header, 16)),
            page: PageId::new(u64_at(&header, 24)),
            table: TableId::new(u32_at(&header, 32)),
            key: key.to_vec(),
            content,
        })
    }

    /// Makes a cell count as free; durable after the next barrier.
    pub(super) fn free_cell(&self, cell: Cell) {
        self.store(cell.at(), &[&[0; 8]]);
    }
}
