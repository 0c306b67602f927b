//! The record of a batch.
//!
//! The batch log has two halves; batch *b* is in half *b* mod 2. A record begins its half:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the rest, seeded with the database |
//! | 4 | 1 | what the lines are: 1 the new contents, 2 the old ones |
//! | 5 | 3 | zero |
//! | 8 | 8 | number of the batch |
//! | 16 | 8 | length in bytes, a multiple of 64 |
//! | 24 | 4 | number of pages |
//! | 28 | 4 | number of carried transactions |
//! | 32 | 8 | no transaction id below this is given out again |
//! | 40 | 8 | number of groups of pages that have a bitmap, at least |
//! | 48 | 8 | offset of the lines in the record, a multiple of 64 |
//! | 56 | 8 | zero |
//! | 64 | 24 each | for each page: its number, and the lines of it that the record holds |
//! | behind | 24 each | for each carried transaction: its number; u8 state, 1 active, 2 committed with pages to be freed; 3 zero bytes; u32 number of undo blocks; u64 bytes of undo information |
//! | | 8 each | behind it, for each of its undo blocks: u32 number, u32 CRC-32C of the used part |
//! | behind, zero-padded | 64 each | the contents of the lines, page by page |

use duramen_types::{PageId, TxnId, crc32c, crc32c_append};

use crate::heap::{BLOCK_BYTES, Heap, LINE};
use crate::page::Lines;

/// Size of an undo block in bytes.
pub(crate) const UNDO_BLOCK: u64 = 16 << 10;

/// The state of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum StackState {
    #[default]
    Free = 0,
    Active = 1,
    /// The transaction has committed, and its deferred frees are not done.
    Committed = 2,
}

impl StackState {
    /// Returns the state of a carried transaction.
    pub(super) fn from_u8(raw: u8) -> Option<Self> {
        [Self::Active, Self::Committed].into_iter().find(|state| *state as u8 == raw)
    }
}

/// Returns the offset of an undo block in the heap; `None` if there is no such block.
pub(super) fn offset_of(heap: &Heap, block: u32) -> Option<u64> {
    let at = u64::from(block) * UNDO_BLOCK;
    (at < heap.layout.blocks * BLOCK_BYTES).then(|| heap.layout.block(0) + at)
}

/// Size of the fixed part in bytes.
pub(super) const HEADER: usize = 64;
/// Size of the description of a page in bytes.
const PAGE: usize = 24;
/// Size of the description of a carried transaction in bytes.
const CARRIED: usize = 24;
/// Size of the description of an undo block in bytes.
const BLOCK: usize = 8;

/// What the lines of a record are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum LineKind {
    New = 1,
    Old = 2,
}

/// What a record says about the database, besides pages and transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    pub(crate) batch: u64,
    pub(crate) next_txn: TxnId,
    pub(crate) groups: u64,
}

/// An undo block of a carried transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UndoBlock {
    pub(crate) number: u32,
    pub(crate) crc: u32,
}

/// A transaction that is under way at the end of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Carried {
    pub(crate) txn: TxnId,
    pub(crate) state: StackState,
    pub(crate) bytes: u64,
    pub(crate) blocks: Vec<UndoBlock>,
}

/// Returns the offset of the half that a batch is in, and its length in bytes.
pub(super) fn half_of(heap: &Heap, batch: u64) -> (u64, u64) {
    let len = heap.layout.batch_bytes / 2;
    (heap.layout.batch_log() + (batch % 2) * len, len)
}

/// Returns the most bytes that the staged lines and their descriptions may take in a batch.
pub(crate) fn most_staged(blocks: u64, batch_bytes: u64) -> u64 {
    let undo_blocks = blocks * (BLOCK_BYTES / UNDO_BLOCK);
    let lists = undo_blocks * (CARRIED + BLOCK) as u64;
    (batch_bytes / 2).saturating_sub(lists + HEADER as u64 + 2 * LINE)
}

/// Puts the record of a batch together, in buffers that are used again and again.
#[derive(Debug, Default)]
pub(super) struct Composer {
    head: Vec<u8>,
    lines: Vec<u8>,
    pages: u32,
}

impl Composer {
    /// Begins a record.
    pub(super) fn begin(&mut self) {
        self.head.clear();
        self.head.resize(HEADER, 0);
        self.lines.clear();
        self.pages = 0;
    }

    /// Adds lines of a page; `contents` is the page.
    pub(super) fn add_page(&mut self, page: PageId, lines: Lines, contents: &[u8]) {
        self.head.extend_from_slice(&page.get().to_le_bytes());
        self.head.extend_from_slice(&lines.bits().to_le_bytes());
        for run in lines.runs() {
            self.lines.extend_from_slice(&contents[run.start * LINE as usize..run.end * LINE as usize]);
        }
        self.pages += 1;
    }

    /// Ends the record, all but its seal.
    pub(super) fn end(&mut self, kind: LineKind, summary: Summary, carried: &[Carried]) {
        for txn in carried {
            self.head.extend_from_slice(&txn.txn.get().to_le_bytes());
            self.head.extend_from_slice(&[txn.state as u8, 0, 0, 0]);
            self.head.extend_from_slice(&(txn.blocks.len() as u32).to_le_bytes());
            self.head.extend_from_slice(&txn.bytes.to_le_bytes());
            for block in &txn.blocks {
                self.head.extend_from_slice(&block.number.to_le_bytes());
                self.head.extend_from_slice(&block.crc.to_le_bytes());
            }
        }
        self.head.resize(self.head.len().next_multiple_of(LINE as usize), 0);
        let (lines_at, len) = (self.head.len() as u64, self.len());
        let head = &mut self.head;
        head[4] = kind as u8;
        head[8..16].copy_from_slice(&summary.batch.to_le_bytes());
        head[16..24].copy_from_slice(&len.to_le_bytes());
        head[24..28].copy_from_slice(&self.pages.to_le_bytes());
        head[28..32].copy_from_slice(&(carried.len() as u32).to_le_bytes());
        head[32..40].copy_from_slice(&summary.next_txn.get().to_le_bytes());
        head[40..48].copy_from_slice(&summary.groups.to_le_bytes());
        head[48..56].copy_from_slice(&lines_at.to_le_bytes());
    }

    /// Returns the length of the record in bytes.
    pub(super) fn len(&self) -> u64 {
        (self.head.len() + self.lines.len()) as u64
    }

    /// Seals the record; returns its two parts.
    pub(super) fn seal(&mut self, database: [u8; 16]) -> (&[u8], &[u8]) {
        let crc = crc_of(database, &self.head, &self.lines);
        self.head[..4].copy_from_slice(&crc.to_le_bytes());
        (&self.head, &self.lines)
    }

    /// Returns the contents of the lines, page by page in the order of [`Composer::add_page`].
    pub(super) fn lines(&self) -> &[u8] {
        &self.lines
    }
}

fn crc_of(database: [u8; 16], head: &[u8], lines: &[u8]) -> u32 {
    [&database[..], &head[4..], lines].into_iter().fold(0, |crc, part| crc32c_append(u64::from(crc), part))
}

/// A record that was read back.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    lines_at: usize,
    pub(crate) kind: LineKind,
    pub(crate) summary: Summary,
    pub(crate) carried: Vec<Carried>,
}

impl Batch {
    /// Reads the record in the half of batches that are `parity` modulo 2; `None` if no whole
    /// record of this database is there, or one that lists undo blocks whose contents are not
    /// whole.
    pub(crate) fn read(heap: &Heap, parity: u64) -> Option<Self> {
        let (at, most) = half_of(heap, parity);
        if most < HEADER as u64 {
            return None;
        }
        let len = heap.word_at(at + 16);
        if len < HEADER as u64 || len > most || !len.is_multiple_of(LINE) {
            return None;
        }
        let mut bytes = vec![0; len as usize];
        heap.read(at, &mut bytes);
        let batch = Self::decode(bytes, heap.header.database)?;
        let whole = batch.summary.batch % 2 == parity && batch.carried.iter().all(|txn| txn.read(heap).is_some());
        whole.then_some(batch)
    }

    /// Decodes a record.
    fn decode(bytes: Vec<u8>, database: [u8; 16]) -> Option<Self> {
        let mut rest = Bytes(&bytes);
        let crc = rest.number::<4>()? as u32;
        let kind = match rest.number::<4>()? {
            1 => LineKind::New,
            2 => LineKind::Old,
            _ => return None,
        };
        let (batch, len) = (rest.number::<8>()?, rest.number::<8>()?);
        let (pages, carried_count) = (rest.number::<4>()? as usize, rest.number::<4>()?);
        let summary = Summary { batch, next_txn: TxnId::new(rest.number::<8>()?), groups: rest.number::<8>()? };
        let lines_at = usize::try_from(rest.number::<8>()?).ok()?;
        rest.number::<8>()?;
        if len != bytes.len() as u64
            || lines_at > bytes.len()
            || crc != crc_of(database, &bytes[..lines_at.max(4)], &bytes[lines_at.max(4)..])
        {
            return None;
        }
        let mut lines = 0;
        for _ in 0..pages {
            rest.number::<8>()?;
            let [low, high] = [rest.number::<8>()?, rest.number::<8>()?];
            lines += (low.count_ones() + high.count_ones()) as usize;
        }
        let mut carried = Vec::new();
        for _ in 0..carried_count {
            let txn = TxnId::new(rest.number::<8>()?);
            let state = StackState::from_u8(rest.number::<4>()? as u8)?;
            let (count, used) = (rest.number::<4>()?, rest.number::<8>()?);
            if used > count * UNDO_BLOCK {
                return None;
            }
            let mut block = || Some(UndoBlock { number: rest.number::<4>()? as u32, crc: rest.number::<4>()? as u32 });
            let blocks = (0..count).map(|_| block()).collect::<Option<Vec<_>>>()?;
            carried.push(Carried { txn, state, bytes: used, blocks });
        }
        let read = bytes.len() - rest.0.len();
        if read > lines_at || bytes.len() - lines_at != lines * LINE as usize {
            return None;
        }
        Some(Self { lines_at, kind, summary, carried, bytes })
    }

    /// Returns the pages, with the lines of each and their contents, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (PageId, Lines, &[u8])> {
        let count = u32::from_le_bytes(self.bytes[24..28].try_into().expect("four bytes")) as usize;
        let mut at = self.lines_at;
        (0..count).map(move |index| {
            let entry = &self.bytes[HEADER + index * PAGE..HEADER + (index + 1) * PAGE];
            let page = PageId::new(u64::from_le_bytes(entry[..8].try_into().expect("eight bytes")));
            let lines = Lines::from_bits(u128::from_le_bytes(entry[8..].try_into().expect("sixteen bytes")));
            let contents = &self.bytes[at..at + lines.count() as usize * LINE as usize];
            at += contents.len();
            (page, lines, contents)
        })
    }

    /// Returns the whole record.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Carried {
    /// Reads the undo information; `None` if it is not whole.
    pub(crate) fn read(&self, heap: &Heap) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut rest = self.bytes;
        for block in &self.blocks {
            let used = rest.min(UNDO_BLOCK);
            let at = offset_of(heap, block.number)?;
            let from = bytes.len();
            bytes.resize(from + used as usize, 0);
            heap.read(at, &mut bytes[from..]);
            if crc32c(&bytes[from..]) != block.crc {
                return None;
            }
            rest -= used;
        }
        (rest == 0).then_some(bytes)
    }
}

/// Reads little-endian numbers from bytes that may be damaged.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn number<const N: usize>(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(number);
        Some(u64::from_le_bytes(bytes))
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, Vec<Carried>) {
        let mut composer = Composer::default();
        composer.begin();
        let page: Vec<u8> = (0..8192_u32).map(|at| (at / 64) as u8).collect();
        composer.add_page(PageId::new(7), Lines::from_bits(0b1011), &page);
        composer.add_page(PageId::new(9), Lines::ALL, &page);
        let blocks = vec![UndoBlock { number: 3, crc: 5 }, UndoBlock { number: 1, crc: 9 }];
        let carried = vec![
            Carried { txn: TxnId::new(40), state: StackState::Active, bytes: UNDO_BLOCK + 5, blocks },
            Carried { txn: TxnId::new(41), state: StackState::Committed, bytes: 0, blocks: Vec::new() },
        ];
        composer.end(LineKind::New, Summary { batch: 12, next_txn: TxnId::new(99), groups: 2 }, &carried);
        let (head, lines) = composer.seal([3; 16]);
        ([head, lines].concat(), carried)
    }

    #[test]
    fn records_round_trip_and_every_flipped_bit_shows() {
        let (bytes, carried) = sample();
        let batch = Batch::decode(bytes.clone(), [3; 16]).unwrap();
        assert_eq!((batch.kind, batch.summary.batch, batch.summary.groups), (LineKind::New, 12, 2));
        assert_eq!(batch.carried, carried);
        let pages: Vec<_> = batch.pages().map(|(page, lines, bytes)| (page.get(), lines.count(), bytes[64])).collect();
        assert_eq!(pages, [(7, 3, 1), (9, 128, 1)]);
        assert!(Batch::decode(bytes.clone(), [4; 16]).is_none(), "the record of another database");
        for bit in (0..bytes.len() * 8).step_by(5) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Batch::decode(damaged, [3; 16]).is_none(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(Batch::decode(bytes[..len].to_vec(), [3; 16]).is_none());
        }
    }

    /// Counts that a checksum does not protect, because they are sealed.
    #[test]
    fn nonsense_with_a_right_checksum_is_refused() {
        let (bytes, _) = sample();
        for at in (4..bytes.len().min(400)).step_by(4) {
            let mut nonsense = bytes.clone();
            nonsense[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let crc = crc_of([3; 16], &nonsense, &[]);
            nonsense[..4].copy_from_slice(&crc.to_le_bytes());
            // Must not panic; most are refused.
            let _ = Batch::decode(nonsense, [3; 16]);
        }
    }
}
