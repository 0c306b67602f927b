//! The records of a journal.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the rest, seeded with the database, the lease, the journal's first block and the record's address |
//! | 4 | 4 | length in bytes, padding included: a multiple of 64 |
//! | 8 | 8 | GSN |
//! | 16 | 8 | transaction; 0 for a change that no transaction owns |
//! | 24 | 8 | address of the record to undo next, after this one |
//! | 32 | 1 | kind |
//! | 33 | 1 | flags |
//! | 34 | 2 | number of pages |
//! | 36 | 4 | length of the undo part in bytes |
//! | 40 | 24 each | for each page: its number, and the lines of it that the record holds |
//! | behind | | the undo part: the part of a log record's payload before the page operations |
//! | behind | 64 each | the contents of these lines, page by page |
//!
//! | record of | lines that it holds |
//! |---|---|
//! | a change with the fewest barriers | those that the change changes, as they are afterwards; always some of each page |
//! | a change with the barriers of the paper | none |
//! | a page log ([`super::page_log`]) | those that the change changes, as they were before |
//!
//! A record begins at a cache line. Because of the seed, no record of an earlier lease of the
//! journal, or of another database, passes for one of this lease.

use duramen_types::{Gsn, LogAddress, PageId, TxnId, crc32c_append};

use crate::heap::{Heap, LINE};
use crate::page::Lines;
use crate::pool::Exclusive;
use crate::record::Kind;

/// Size of the fixed part in bytes.
const HEADER: usize = 40;

/// Size of the description of a page in bytes.
const PAGE: usize = 24;

/// Size of the seed in bytes.
const SEED: usize = 32;

/// What the checksum of a record depends on besides the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Seed {
    pub(super) database: [u8; 16],
    pub(super) lease: u64,
    pub(super) first_block: u32,
}

impl Seed {
    fn bytes(&self) -> [u8; SEED] {
        let mut bytes = [0; SEED];
        bytes[..16].copy_from_slice(&self.database);
        bytes[16..24].copy_from_slice(&self.lease.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.first_block.to_le_bytes());
        bytes
    }
}

/// The fields of a record that come from the engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) gsn: Gsn,
    pub(super) txn: TxnId,
    pub(super) undo_next: LogAddress,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) undo: &'a [u8],
}

/// The lines that a record of a change holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Held<'h> {
    /// What the changed lines are after the change: the pages have them.
    New,
    /// None: the record tells how to undo the change, and names the pages.
    Nothing,
    /// What the changed lines were before the change: the heap still has them.
    Old(&'h Heap),
}

/// Writes records, in a buffer that is used again and again.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    /// Puts a record together, all but its seal; returns its length in bytes.
    pub(super) fn put_together(&mut self, fields: Fields<'_>, pages: &[Exclusive<'_>], held: Held<'_>) -> u64 {
        let bytes = &mut self.0;
        bytes.clear();
        bytes.resize(SEED + 8, 0);
        bytes.extend_from_slice(&fields.gsn.get().to_le_bytes());
        bytes.extend_from_slice(&fields.txn.get().to_le_bytes());
        bytes.extend_from_slice(&fields.undo_next.get().to_le_bytes());
        bytes.extend_from_slice(&[fields.kind, fields.flags]);
        bytes.extend_from_slice(&(pages.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(fields.undo.len() as u32).to_le_bytes());
        for page in pages {
            bytes.extend_from_slice(&page.id().get().to_le_bytes());
            let lines = if matches!(held, Held::Nothing) { Lines::NONE } else { page.lines() };
            bytes.extend_from_slice(&lines.bits().to_le_bytes());
        }
        bytes.extend_from_slice(fields.undo);
        for page in pages {
            for run in page.lines().runs() {
                let range = run.start * LINE as usize..run.end * LINE as usize;
                match held {
                    Held::New => bytes.extend_from_slice(&page[range]),
                    Held::Nothing => {}
                    Held::Old(heap) => {
                        let at = bytes.len();
                        bytes.resize(at + range.len(), 0);
                        heap.read(heap.layout.page(page.id()) + range.start as u64, &mut bytes[at..]);
                    }
                }
            }
        }
        let len = (bytes.len() - SEED).next_multiple_of(LINE as usize);
        bytes.resize(SEED + len, 0);
        bytes[SEED + 4..SEED + 8].copy_from_slice(&(len as u32).to_le_bytes());
        len as u64
    }

    /// Seals the record for its place, and returns it.
    pub(super) fn seal(&mut self, seed: Seed, address: u64) -> &[u8] {
        self.0[..SEED].copy_from_slice(&seed.bytes());
        let crc = crc32c_append(address, &self.0);
        let record = &mut self.0[SEED..];
        record[..4].copy_from_slice(&crc.to_le_bytes());
        record
    }
}

/// A record that was read back.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(super) address: u64,
    bytes: Vec<u8>,
}

impl Record {
    /// Reads the record at `address`; `None` if none of this lease is there. `end` is the end of
    /// the part of the block that may hold it.
    pub(super) fn read(heap: &Heap, seed: Seed, address: u64, end: u64) -> Option<Self> {
        if address + LINE > end {
            return None;
        }
        let len = u64::from((heap.word_at(address) >> 32) as u32);
        if len < HEADER as u64 || !len.is_multiple_of(LINE) || len > end - address {
            return None;
        }
        let mut seeded = vec![0; SEED + len as usize];
        seeded[..SEED].copy_from_slice(&seed.bytes());
        heap.read(address, &mut seeded[SEED..]);
        let stored: [u8; 4] = seeded[SEED..SEED + 4].try_into().expect("four bytes");
        seeded[SEED..SEED + 4].fill(0);
        if u32::from_le_bytes(stored) != crc32c_append(address, &seeded) {
            return None;
        }
        let record = Self { address, bytes: seeded.split_off(SEED) };
        record.is_consistent().then_some(record)
    }

    /// Erases the seal, so that the record counts no more. Not durable before the next barrier of
    /// the calling thread. Returns the seal.
    pub(super) fn erase(&self, heap: &Heap) -> u64 {
        let seal = heap.word_at(self.address);
        heap.store(self.address, &[&[0; 8]]);
        seal
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn is_consistent(&self) -> bool {
        let fixed = HEADER + self.page_count() * PAGE + self.undo_len();
        let lines = || (0..self.page_count()).map(|index| self.lines_of(index).count() as usize).sum::<usize>();
        fixed <= self.bytes.len() && fixed + lines() * LINE as usize <= self.bytes.len() && self.kind().is_some()
    }

    fn page_count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.bytes[34], self.bytes[35]]))
    }

    fn undo_len(&self) -> usize {
        u32::from_le_bytes(self.bytes[36..40].try_into().expect("four bytes")) as usize
    }

    fn lines_of(&self, page: usize) -> Lines {
        let at = HEADER + page * PAGE + 8;
        Lines::from_bits(u128::from_le_bytes(self.bytes[at..at + 16].try_into().expect("sixteen bytes")))
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn gsn(&self) -> Gsn {
        Gsn::new(self.word(8))
    }

    pub(super) fn txn(&self) -> TxnId {
        TxnId::new(self.word(16))
    }

    pub(crate) fn undo_next(&self) -> LogAddress {
        LogAddress::new(self.word(24))
    }

    pub(super) fn raw_kind(&self) -> u8 {
        self.bytes[32]
    }

    pub(super) fn kind(&self) -> Option<Kind> {
        Kind::from_u8(self.raw_kind())
    }

    pub(super) fn is_compensation(&self) -> bool {
        self.kind() == Some(Kind::Compensation)
    }

    /// Returns the part before the page operations of the log record that this stands for.
    pub(crate) fn undo(&self) -> &[u8] {
        let at = HEADER + self.page_count() * PAGE;
        &self.bytes[at..at + self.undo_len()]
    }

    /// Returns the pages, with the lines of each and their contents, in order.
    pub(super) fn pages(&self) -> impl Iterator<Item = (PageId, Lines, &[u8])> {
        let mut at = HEADER + self.page_count() * PAGE + self.undo_len();
        (0..self.page_count()).map(move |index| {
            let lines = self.lines_of(index);
            let contents = &self.bytes[at..at + lines.count() as usize * LINE as usize];
            at += contents.len();
            (PageId::new(self.word(HEADER + index * PAGE)), lines, contents)
        })
    }
}
