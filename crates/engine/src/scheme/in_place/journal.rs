//! Journals: where the changes of transactions are recorded before they are made in the heap.
//!
//! A transaction that writes leases a journal: a chain of blocks. The first line of the first block
//! is the head: a word with the lease and the state of the journal, and behind it, as in every
//! block, the word with the next block. While a transaction runs, its journal is active. It becomes
//! free when the transaction ends, with one store of the head word.
//!
//! | bytes of the first block | content |
//! |---|---|
//! | 0 to 64 | head word: lease × 4 + state; next block, 0 for none |
//! | 64 to 24 KiB | two slots of 12 KiB less half a line each, for compensation records |
//! | 24 KiB to 64 KiB | records |
//!
//! Further blocks have records from byte 64 on.
//!
//! # Leases
//! A lease is a number that no journal ever had before: its upper 22 bits count the openings of the
//! heap, its lower 40 bits the leases of this opening. The checksum of each record depends on the
//! lease. So nothing that an earlier lease has left in the blocks passes for a record, and neither
//! the blocks nor the words with the next block need to be erased. The head word and the first
//! record become durable together: the one without the other means that nothing was changed yet.
//!
//! # Compensations
//! A rollback must not run out of space, so its records do not lengthen the chain. They go to the
//! two slots of the first block in turn. That is enough, because recovery needs only the latest
//! record of a journal (to repeat it) and the updates that are not undone yet (to undo them): each
//! record names the record to undo next, and never a compensation record.
//!
//! # Changes that no transaction owns
//! A split or merge is one record. Each such change takes one of a few journals that only these
//! changes use, with a new lease, and does not end the lease: the next change in this journal does,
//! and recovery repeats a complete change without effect. With the barriers of the paper these
//! journals hold no records: their blocks are page logs ([`super::page_log`]).
//!
//! # The seal
//! The first word of a record has its checksum and its length. With the fewest barriers it is
//! stored with the rest, and a torn record fails its checksum. With the barriers of the paper it is
//! stored as zero at first, and again after a barrier, as the paper stores the sequence number at
//! the end of an entry.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Backoff, CachePadded, Mutex, MutexGuard, Striped};
use duramen_types::{Gsn, LogAddress, TxnId, planted};

use super::record::{Fields, Held, Record, Seed, Writer};
use crate::error::{Error, Result};
use crate::heap::{BLOCK_BYTES, Heap, LINE, Word};
use crate::options::Barriers;
use crate::pool::Exclusive;
use crate::scheme::Home;

/// Offset, in the first block, of the slots for compensation records.
const SLOTS: u64 = LINE;
/// Size of a slot in bytes: a page, a line of a bitmap, and their description.
const SLOT_BYTES: u64 = (12 << 10) - LINE / 2;
/// Offset, in the first block, of the first record of the chain.
const CHAIN: u64 = 24 << 10;
/// Bits of a lease that count the leases of one opening; 22 bits are left for the openings.
const COUNT_BITS: u32 = 40;
/// The most journals for changes that no transaction owns.
const MOST_SYSTEM: u64 = 32;

/// The largest record of an operation of a transaction, in bytes: a whole page, its undo, which is
/// not larger than a page, and the rest.
const LARGEST: u64 = 17 << 10;

/// The state of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(crate) enum JournalState {
    Free = 0,
    Active = 1,
    /// The transaction has committed, and its deferred frees are not done.
    Committed = 2,
    /// The block is a page log, and its lines must go back to the pages.
    PageLog = 3,
}

/// Returns the state and the lease in a head word.
pub(crate) fn head_of(word: u64) -> (JournalState, u64) {
    let state = match word & 3 {
        1 => JournalState::Active,
        2 => JournalState::Committed,
        3 => JournalState::PageLog,
        _ => JournalState::Free,
    };
    (state, word >> 2)
}

/// A leased journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    pub(super) lease: u64,
    /// Whether the head word says that the journal is active.
    is_headed: bool,
    /// The blocks, the first one included.
    pub(super) blocks: Vec<u32>,
    /// Where the next record of the chain goes.
    next: u64,
    /// The latest record that is not undone.
    top: LogAddress,
    /// The slot for the next compensation record.
    slot: u64,
    /// The GSN of the latest record.
    gsn: Gsn,
    /// Bytes of the space of transactions that the journal has taken.
    taken: u64,
    pub(super) writer: Writer,
}

/// What recovery found of a journal that was not free.
#[derive(Debug)]
pub(super) struct FoundJournal {
    pub(super) first: u32,
    pub(super) lease: u64,
    pub(super) state: JournalState,
    pub(super) blocks: Vec<u32>,
    next: u64,
    slot: u64,
    /// Number of records that can be read, and their bytes. Of the compensations of a rollback, the
    /// latest two can be read.
    pub(super) records: (u64, u64),
    /// The record with the highest GSN.
    pub(super) last: Record,
    pub(super) txn: TxnId,
}

impl FoundJournal {
    /// Returns the latest record that is not undone.
    pub(super) fn top(&self) -> LogAddress {
        if self.last.is_compensation() { self.last.undo_next() } else { LogAddress::new(self.last.address) }
    }
}

/// All journals of a heap.
#[derive(Debug)]
pub(crate) struct Journals {
    /// The number of this opening.
    opening: u64,
    leases: CachePadded<AtomicU64>,
    /// Bytes that transactions may still reserve.
    space: CachePadded<AtomicU64>,
    free: Striped<Mutex<Vec<u32>>, 32>,
    /// One for each block, used if the block is the first of a journal.
    journals: Box<[Mutex<Journal>]>,
    /// The first journals belong to changes that no transaction owns.
    system: u32,
    barriers: Barriers,
}

impl Journals {
    /// Makes the journals of a heap that was just opened, without those that recovery has `found`
    /// in use. Counts the opening.
    ///
    /// # Errors
    /// [`Error::NotADatabase`] if the heap was opened too often.
    pub(super) fn new(heap: &Heap, found: &[FoundJournal], barriers: Barriers) -> Result<Self> {
        let opening = heap.get(Word::Openings).saturating_add(1);
        if opening >= 1 << (62 - COUNT_BITS) {
            return Err(Error::NotADatabase {
                path: heap.location().into(),
                reason: "the number of its openings has reached its limit, or is damaged; restore a backup".into(),
            });
        }
        heap.set(Word::Openings, opening);
        let system = Self::system_of(heap);
        let journals: Box<[_]> = (0..heap.layout.blocks).map(|_| Mutex::new(Journal::default())).collect();
        let free = Striped::<Mutex<Vec<u32>>, 32>::default();
        let mut used: Vec<u32> = found.iter().flat_map(|found| found.blocks.iter().copied()).collect();
        used.sort_unstable();
        let mut blocks: Vec<u32> = (system..heap.layout.blocks as u32).rev().collect();
        blocks.retain(|block| used.binary_search(block).is_err());
        let space = blocks.len() as u64 * BLOCK_BYTES;
        *free.own().1.lock() = blocks;
        for found in found {
            *journals[found.first as usize].lock() = Journal {
                lease: found.lease,
                is_headed: true,
                blocks: found.blocks.clone(),
                next: found.next,
                top: found.top(),
                slot: found.slot,
                gsn: found.last.gsn(),
                taken: found.blocks.len() as u64 * BLOCK_BYTES,
                writer: Writer::default(),
            };
        }
        for first in 0..system {
            journals[first as usize].lock().blocks = vec![first];
        }
        let space = CachePadded::new(AtomicU64::new(space));
        Ok(Self { opening, leases: CachePadded::default(), space, free, journals, system, barriers })
    }

    /// Returns the number of journals for changes that no transaction owns.
    pub(super) fn system_of(heap: &Heap) -> u32 {
        (heap.header.blocks / 4).min(MOST_SYSTEM) as u32
    }

    /// What the records of transactions hold.
    fn held(&self) -> Held<'static> {
        match self.barriers {
            Barriers::Fewest => Held::New,
            Barriers::Paper => Held::Nothing,
        }
    }

    fn lease(&self) -> u64 {
        if planted!(LeaseReused) {
            return 1 << COUNT_BITS;
        }
        let count = self.leases.fetch_add(1, Ordering::Relaxed);
        assert!(count < 1 << COUNT_BITS, "the leases of this opening are used up");
        self.opening << COUNT_BITS | count
    }

    /// Leases a journal for a transaction, which has reserved space.
    pub(super) fn begin(&self, heap: &Heap) -> Home {
        let first = self.take_block();
        let mut journal = self.journals[first as usize].lock();
        journal.lease = self.lease();
        journal.is_headed = false;
        journal.blocks.clear();
        journal.blocks.push(first);
        journal.next = heap.layout.block(first) + CHAIN;
        (journal.top, journal.slot, journal.gsn, journal.taken) = (LogAddress::ZERO, 0, Gsn::ZERO, 0);
        Home(first)
    }

    /// Takes a free block. There is one, because the transaction has reserved space for it; but
    /// while this looks for it, others may take it and give back another one where this has looked
    /// already.
    fn take_block(&self) -> u32 {
        let mut backoff = Backoff::new();
        loop {
            let own = self.free.own().1.lock().pop();
            if let Some(block) = own.or_else(|| self.free.iter().find_map(|blocks| blocks.lock().pop())) {
                return block;
            }
            backoff.snooze();
        }
    }

    /// Returns the journal that a transaction has leased.
    pub(super) fn of<'j>(&'j self, heap: &'j Heap, home: Home) -> Leased<'j> {
        Leased { all: self, heap, journal: self.journals[home.0 as usize].lock() }
    }

    /// Records a change that no transaction owns. Not durable before the next barrier of the
    /// calling thread. The journal is the caller's until it drops the guard: it must be kept until
    /// the change is in the heap.
    pub(super) fn system<'j>(
        &'j self,
        heap: &Heap,
        fields: Fields<'_>,
        pages: &[Exclusive<'_>],
    ) -> MutexGuard<'j, Journal> {
        let mut guard = self.system_block();
        let journal = &mut *guard;
        journal.is_headed = false;
        let address = heap.layout.block(journal.blocks[0]) + LINE;
        let len = journal.writer.put_together(fields, pages, Held::New);
        assert!(len <= BLOCK_BYTES - LINE, "a structure change of {len} bytes is larger than any");
        put(heap, journal, address, fields.gsn, Barriers::Fewest);
        guard
    }

    /// Leases one of the journals for changes that no transaction owns. Its holder waits for
    /// nothing.
    pub(super) fn system_block(&self) -> MutexGuard<'_, Journal> {
        let own = self.free.own().0 as u32 % self.system;
        let candidates = (own..self.system).chain(0..own);
        let mut guard = candidates
            .filter_map(|first| self.journals[first as usize].try_lock())
            .next()
            .unwrap_or_else(|| self.journals[own as usize].lock());
        guard.lease = self.lease();
        guard
    }

    /// Ends the lease of a transaction that is over, or marks it as committed if `state` says so.
    /// Not durable before the next barrier of the calling thread.
    pub(super) fn set_state(&self, heap: &Heap, home: Home, state: JournalState) {
        let journal = self.journals[home.0 as usize].lock();
        let word = journal.lease << 2 | state as u64;
        heap.store(heap.layout.block(home.0), &[&word.to_le_bytes()]);
    }

    /// Takes all of the space of a journal's blocks, for a transaction that has committed and is
    /// about to give back its reservation, but keeps its journal for a while. Returns the bytes
    /// taken. The transaction adds no record from now on.
    pub(super) fn take_rest(&self, heap: &Heap, home: Home) -> u64 {
        let mut journal = self.journals[home.0 as usize].lock();
        let Some(&last) = journal.blocks.last() else { return 0 };
        let rest = heap.layout.block(last) + BLOCK_BYTES - std::mem::take(&mut journal.next);
        journal.taken += rest;
        rest
    }

    /// Makes the blocks of a journal available whose end is durable.
    pub(super) fn release(&self, home: Home) {
        let mut journal = self.journals[home.0 as usize].lock();
        let (blocks, taken) = (std::mem::take(&mut journal.blocks), std::mem::take(&mut journal.taken));
        drop(journal);
        self.free.own().1.lock().extend(blocks);
        self.unreserve(taken);
    }

    /// Returns the bytes of the journals of transactions, and how many of them are not reserved.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let all = (self.journals.len() as u64 - u64::from(self.system)) * BLOCK_BYTES;
        (all, self.space.load(Ordering::Relaxed))
    }

    /// Returns the bytes that a transaction must have reserved before an operation.
    pub(super) const fn operation_bytes() -> u64 {
        // The record, as much again at the end of the block before, and a deferred free.
        2 * LARGEST + 4 * LINE
    }

    /// Reserves space for a transaction.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn reserve(&self, heap: &Heap, bytes: u64) -> Result<()> {
        let taken = self.space.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |space| space.checked_sub(bytes));
        taken.map(drop).map_err(|space| {
            let (all, _) = self.bytes();
            let reason = format!(
                "the journals of the heap `{}` have {all} bytes, and transactions under way need {} of them; end \
                 some, or make the heap larger",
                heap.location(),
                all - space
            );
            Error::Full { reason }
        })
    }

    /// Gives back space that was reserved or taken.
    pub(super) fn unreserve(&self, bytes: u64) {
        self.space.fetch_add(bytes, Ordering::AcqRel);
    }
}

/// The journal of a transaction, at work.
pub(super) struct Leased<'j> {
    all: &'j Journals,
    heap: &'j Heap,
    journal: MutexGuard<'j, Journal>,
}

impl Leased<'_> {
    /// Returns the GSN of the latest record.
    pub(super) fn gsn(&self) -> Gsn {
        self.journal.gsn
    }

    /// Records a change of the transaction, or a fact about it. Not durable before the next barrier
    /// of the calling thread; with the barriers of the paper, this comes after one already. Returns
    /// the record to undo next from now on, and the bytes taken.
    pub(super) fn append(&mut self, fields: Fields<'_>, pages: &[Exclusive<'_>]) -> (LogAddress, u64) {
        let (heap, journal) = (self.heap, &mut *self.journal);
        let before = journal.taken;
        if !journal.is_headed {
            // The part before the chain counts as taken.
            journal.taken += CHAIN;
        }
        let fields = Fields { undo_next: journal.top, ..fields };
        let len = journal.writer.put_together(fields, pages, self.all.held());
        assert!(len <= LARGEST, "a record of {len} bytes is larger than any operation needs");
        let last = *journal.blocks.last().expect("a journal has a block");
        let end = heap.layout.block(last) + BLOCK_BYTES;
        if journal.next + len > end {
            let block = self.all.take_block();
            // The rest of the last block is lost.
            journal.taken += end - journal.next + LINE;
            heap.store(heap.layout.block(last) + 8, &[&u64::from(block).to_le_bytes()]);
            journal.blocks.push(block);
            journal.next = heap.layout.block(block) + LINE;
        }
        let address = journal.next;
        journal.next += len;
        journal.taken += len;
        journal.top = LogAddress::new(address);
        put(heap, journal, address, fields.gsn, self.all.barriers);
        (journal.top, journal.taken - before)
    }

    /// Records a compensation: from now on, `fields.undo_next` is the record to undo next. Durable
    /// as what [`Leased::append`] records.
    pub(super) fn compensate(&mut self, fields: Fields<'_>, pages: &[Exclusive<'_>]) {
        let (heap, journal) = (self.heap, &mut *self.journal);
        let len = journal.writer.put_together(fields, pages, self.all.held());
        assert!(len <= slot_bytes(), "a compensation of {len} bytes is larger than any update needs");
        let address = heap.layout.block(journal.blocks[0]) + SLOTS + journal.slot * slot_bytes();
        journal.slot = 1 - journal.slot;
        journal.top = fields.undo_next;
        put(heap, journal, address, fields.gsn, self.all.barriers);
    }
}

/// Stores the record that was put together, and the head word with the first one. With the barriers
/// of the paper, the seal follows after a barrier.
fn put(heap: &Heap, journal: &mut Journal, address: u64, gsn: Gsn, barriers: Barriers) {
    let first = heap.layout.block(journal.blocks[0]);
    let seed = Seed { database: heap.header.database, lease: journal.lease, first_block: journal.blocks[0] };
    let record = journal.writer.seal(seed, address);
    let (seal, body) = record.split_at(8);
    match barriers {
        Barriers::Fewest => heap.store(address, &[record]),
        Barriers::Paper => heap.store(address, &[&[0; 8], body]),
    }
    let seal: [u8; 8] = seal.try_into().expect("eight bytes");
    journal.gsn = gsn;
    if !std::mem::replace(&mut journal.is_headed, true) {
        let word = journal.lease << 2 | JournalState::Active as u64;
        heap.store(first, &[&word.to_le_bytes()]);
    }
    if barriers == Barriers::Paper {
        heap.barrier();
        heap.store(address, &[&seal]);
    }
}

const fn slot_bytes() -> u64 {
    SLOT_BYTES / LINE * LINE
}

const _: () = assert!(SLOTS + 2 * slot_bytes() <= CHAIN && LARGEST <= BLOCK_BYTES - CHAIN);

/// Reads the journal that begins with this block; `None` if it is free, or has no record of its
/// lease.
pub(super) fn find_one(heap: &Heap, first: u32) -> Option<FoundJournal> {
    let (state, lease) = head_of(heap.word_at(heap.layout.block(first)));
    if matches!(state, JournalState::Free | JournalState::PageLog) {
        return None;
    }
    let seed = Seed { database: heap.header.database, lease, first_block: first };
    let start = heap.layout.block(first);
    if first < Journals::system_of(heap) {
        let last = Record::read(heap, seed, start + LINE, start + BLOCK_BYTES)?;
        let (txn, records) = (last.txn(), (1, last.len()));
        return Some(FoundJournal { first, lease, state, blocks: vec![first], next: 0, slot: 0, records, last, txn });
    }
    let (mut blocks, mut end) = (vec![first], start + BLOCK_BYTES);
    let mut next = start + CHAIN;
    let mut last: Option<Record> = None;
    let mut records = (0, 0);
    loop {
        if let Some(record) = Record::read(heap, seed, next, end) {
            next += record.len();
            records = (records.0 + 1, records.1 + record.len());
            last = Some(record);
            continue;
        }
        // The chain may go on in the next block. The word may be an old one: then no record of this
        // lease is there.
        let block = blocks[blocks.len() - 1];
        let Ok(following) = u32::try_from(heap.word_at(heap.layout.block(block) + 8)) else { break };
        if following == 0 || u64::from(following) >= heap.layout.blocks || blocks.contains(&following) {
            break;
        }
        let at = heap.layout.block(following);
        let Some(record) = Record::read(heap, seed, at + LINE, at + BLOCK_BYTES) else { break };
        next = at + LINE + record.len();
        records = (records.0 + 1, records.1 + record.len());
        end = at + BLOCK_BYTES;
        last = Some(record);
        blocks.push(following);
    }
    let slots = [0, 1].map(|slot| {
        let at = start + SLOTS + slot * slot_bytes();
        Record::read(heap, seed, at, at + slot_bytes())
    });
    let mut slot = 0;
    for (index, record) in (0..).zip(slots) {
        records.0 += u64::from(record.is_some());
        records.1 += record.as_ref().map_or(0, Record::len);
        if let Some(record) = record
            && last.as_ref().is_none_or(|last| last.gsn() < record.gsn())
        {
            // The other slot holds an older one.
            slot = 1 - index;
            last = Some(record);
        }
    }
    let last = last?;
    let txn = last.txn();
    Some(FoundJournal { first, lease, state, blocks, next, slot, records, last, txn })
}

/// Reads the record at `address` of a journal that was found.
pub(super) fn read(heap: &Heap, found: &FoundJournal, address: LogAddress) -> Option<Record> {
    let block = heap.layout.block_of(address.get()).filter(|block| found.blocks.contains(block))?;
    let seed = Seed { database: heap.header.database, lease: found.lease, first_block: found.first };
    Record::read(heap, seed, address.get(), heap.layout.block(block) + BLOCK_BYTES)
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use duramen_pmem::{Domain, SimMemory, Source};
    use duramen_sync::{Arc, thread};

    use super::*;
    use crate::options::HeapOptions;

    /// Regression: a thread that looked for a free block in one place after the other missed one
    /// that was given back where it had looked already.
    #[test]
    fn who_has_reserved_space_gets_a_block() {
        let memory = SimMemory::new(2 << 20, Domain::DurableCache);
        let options = HeapOptions::new(Source::Simulated(memory), 2 << 20, Domain::DurableCache);
        let heap = Heap::create(&options, 0, [1; 16], 1).unwrap();
        let journals = Arc::new(Journals::new(&heap, &[], Barriers::Fewest).unwrap());
        let (all, _) = journals.bytes();
        let heap = Arc::new(heap);
        while journals.bytes().1 > 3 * BLOCK_BYTES {
            journals.reserve(&heap, BLOCK_BYTES).unwrap();
            journals.begin(&heap);
        }
        let work = |seed: u64| {
            let (journals, heap) = (Arc::clone(&journals), Arc::clone(&heap));
            thread::spawn("writer", move || {
                for _ in 0..20_000 + seed {
                    if journals.reserve(&heap, BLOCK_BYTES).is_ok() {
                        let home = journals.begin(&heap);
                        journals.release(home);
                        journals.unreserve(BLOCK_BYTES);
                    }
                }
            })
            .unwrap()
        };
        let threads: Vec<_> = (0..8).map(work).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(journals.bytes(), (all, 3 * BLOCK_BYTES));
    }
}
