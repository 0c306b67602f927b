//! The undo information of transactions: in DRAM, and in undo blocks for those that a batch
//! carries.
//!
//! Each transaction that writes has a stack of entries: how to undo each change that it has not
//! taken back, and what it promised to free. An entry is
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | length of the payload |
//! | 4 | 1 | kind of the record |
//! | 5 | 1 | flags of the record |
//! | 6 | 2 | zero |
//! | 8 | 8 | the entry below: its offset in the stack plus 1; 0 for none |
//! | 16 | | the payload: the part of a log record before the operations on pages |
//!
//! # Undo blocks
//! The journal blocks of the heap are divided into undo blocks of 16 KiB. At the end of a batch,
//! the batch thread stores what is new in the stack of each transaction under way to its undo
//! blocks, and lists the blocks in the record of the batch. It appends in place: behind the length
//! that the batch before has listed nothing counts. But where a transaction has taken back what
//! that batch has listed, and has done other things since, the new bytes go to other blocks, copied
//! from the first such block on. Blocks that the batch lists no more are free when it is durable.
//!
//! # Space
//! A transaction has reserved, at any time, what it has ever pushed and 64 KiB. Its blocks,
//! together with those that the batch before has listed, take at most two blocks more than it has
//! pushed. So the batch thread always finds a free block. The space of blocks that a transaction
//! leaves behind comes back when the batch is durable that lists them no more. A transaction that
//! finds no space waits for such a batch, and is refused only if none will give any back.

use duramen_sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use duramen_sync::{Backoff, CachePadded, Mutex, Striped};
use duramen_types::{LogAddress, TxnId, crc32c, planted};

use super::format::{Carried, StackState, UNDO_BLOCK, UndoBlock, offset_of};
use crate::error::{Error, Result};
use crate::heap::{BLOCK_BYTES, Heap};
use crate::scheme::Home;

/// What a transaction has reserved besides what it pushes.
pub(super) const STANDING: u64 = 64 << 10;

/// Size of the fixed part of an entry in bytes.
pub(super) const ENTRY: usize = 16;

/// Bits of an address that are the offset in the stack; the others are the number of the stack.
const OFFSET_BITS: u32 = 42;

#[derive(Debug, Default)]
struct Stack {
    txn: TxnId,
    state: StackState,
    bytes: Vec<u8>,
    /// The latest entry: its offset plus 1, or 0.
    top: u64,
    /// Bytes of space that the stack has taken.
    taken: u64,
    /// The blocks that the batch before has listed, and the bytes in them.
    blocks: Vec<UndoBlock>,
    listed: u64,
    /// The bytes of the stack that are as the blocks have them.
    stored: u64,
}

/// A transaction that recovery has found.
#[derive(Clone, Debug)]
pub(super) struct Resumed {
    pub(super) carried: Carried,
    pub(super) bytes: Vec<u8>,
}

/// An entry of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'s> {
    pub(super) kind: u8,
    pub(super) prev: u64,
    pub(super) payload: &'s [u8],
}

/// Returns the entry at an offset of a stack; `None` if none can be there.
pub(super) fn entry_at(bytes: &[u8], offset: usize) -> Option<Entry<'_>> {
    let (fixed, rest) = bytes.get(offset..)?.split_at_checked(ENTRY)?;
    let len = u32::from_le_bytes(fixed[..4].try_into().expect("four bytes")) as usize;
    let prev = u64::from_le_bytes(fixed[8..].try_into().expect("eight bytes"));
    Some(Entry { kind: fixed[4], prev, payload: rest.get(..len)? })
}

/// Returns the latest entry of a stack: its offset plus 1.
pub(super) fn top_of(bytes: &[u8]) -> u64 {
    let (mut at, mut top) = (0, 0);
    while let Some(entry) = entry_at(bytes, at) {
        top = at as u64 + 1;
        at += ENTRY + entry.payload.len();
    }
    top
}

/// Returns the address of an entry of a stack.
pub(super) fn address_of(home: u32, entry: u64) -> LogAddress {
    LogAddress::new(if entry == 0 { 0 } else { u64::from(home) << OFFSET_BITS | entry })
}

/// Returns the stack and the entry that an address names.
pub(super) fn place_of(address: LogAddress) -> (u32, u64) {
    ((address.get() >> OFFSET_BITS) as u32, address.get() & ((1 << OFFSET_BITS) - 1))
}

/// The part of a batch that is about carried transactions.
#[derive(Debug, Default)]
pub(super) struct Carrying {
    pub(super) carried: Vec<Carried>,
    /// What is to be stored, and where.
    pub(super) stores: Vec<(u64, Vec<u8>)>,
    /// The blocks that the batch lists no more, and the space that comes back with them.
    retired: Vec<u32>,
    space: i64,
}

/// The blocks that no batch lists, and those that the next one will not list.
#[derive(Debug, Default)]
struct Blocks {
    free: Vec<u32>,
    retired: Vec<u32>,
    space: i64,
}

/// All stacks of a database.
#[derive(Debug)]
pub(super) struct Stacks {
    stacks: Box<[Mutex<Stack>]>,
    unused: Striped<Mutex<Vec<u32>>, 32>,
    /// No stack from this on was ever used.
    high: AtomicU32,
    /// Transactions with stacks: begun less ended, modulo 2^64.
    count: Striped<AtomicU64, 32>,
    blocks: Mutex<Blocks>,
    /// Bytes that transactions may still reserve.
    space: CachePadded<AtomicI64>,
    /// Bytes of space that come back when batches are durable.
    returning: AtomicI64,
    all: u64,
}

impl Stacks {
    /// Creates the stacks; the first ones belong to the transactions found.
    pub(super) fn new(heap: &Heap, found: &[Resumed]) -> Self {
        let blocks = (heap.layout.blocks * (BLOCK_BYTES / UNDO_BLOCK)) as u32;
        let mut stacks = Vec::new();
        stacks.resize_with(blocks as usize + found.len(), Mutex::<Stack>::default);
        let mut used = Vec::new();
        for (stack, resumed) in stacks.iter_mut().zip(found) {
            let Carried { txn, state, bytes: listed, blocks } = resumed.carried.clone();
            used.extend(blocks.iter().map(|block| block.number));
            let taken = blocks.len() as u64 * UNDO_BLOCK;
            let (bytes, top) = (resumed.bytes.clone(), top_of(&resumed.bytes));
            *stack.lock() = Stack { txn, state, bytes, top, taken, blocks, listed, stored: listed };
        }
        used.sort_unstable();
        let free: Vec<u32> = (0..blocks).rev().filter(|block| used.binary_search(block).is_err()).collect();
        let space = AtomicI64::new((free.len() as u64 * UNDO_BLOCK) as i64);
        let unused = Striped::<Mutex<Vec<u32>>, 32>::default();
        *unused.at(0).lock() = (found.len() as u32..stacks.len() as u32).rev().collect();
        let count = Striped::<AtomicU64, 32>::default();
        count.at(0).store(found.len() as u64, Ordering::Relaxed);
        Self {
            stacks: stacks.into(),
            unused,
            high: AtomicU32::new(found.len() as u32),
            count,
            blocks: Mutex::new(Blocks { free, ..Blocks::default() }),
            space: CachePadded::new(space),
            returning: AtomicI64::new(0),
            all: u64::from(blocks) * UNDO_BLOCK,
        }
    }

    /// Begins the stack of a transaction, which has reserved space.
    pub(super) fn begin(&self, txn: TxnId) -> Home {
        let mut backoff = Backoff::new();
        // There are as many stacks as transactions can reserve space for. But while this thread
        // looks for one, others may take it and give back another where this has looked already.
        let home = loop {
            let own = self.unused.own().1.lock().pop();
            match own.or_else(|| self.unused.iter().find_map(|unused| unused.lock().pop())) {
                Some(home) => break home,
                None => backoff.snooze(),
            }
        };
        self.high.fetch_max(home + 1, Ordering::Relaxed);
        self.count.own().1.fetch_add(1, Ordering::Relaxed);
        let mut stack = self.stacks[home as usize].lock();
        (stack.txn, stack.state) = (txn, StackState::Active);
        Home(home)
    }

    /// Returns the number of transactions that have a stack.
    pub(super) fn count(&self) -> u64 {
        self.count.iter().map(|count| count.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Pushes an entry; returns its address and the bytes taken.
    pub(super) fn push(&self, home: Home, kind: u8, flags: u8, payload: &[u8]) -> (LogAddress, u64) {
        let mut stack = self.stacks[home.0 as usize].lock();
        let (offset, prev) = (stack.bytes.len() as u64, stack.top);
        stack.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        stack.bytes.extend_from_slice(&[kind, flags, 0, 0]);
        stack.bytes.extend_from_slice(&prev.to_le_bytes());
        stack.bytes.extend_from_slice(payload);
        stack.top = offset + 1;
        let bytes = (ENTRY + payload.len()) as u64;
        stack.taken += bytes;
        (address_of(home.0, stack.top), bytes)
    }

    /// Drops what is above the entry `undo_next`, the next one to be undone.
    pub(super) fn pop_to(&self, home: Home, undo_next: LogAddress) {
        let mut stack = self.stacks[home.0 as usize].lock();
        let (_, entry) = place_of(undo_next);
        let end = match entry.checked_sub(1) {
            None => 0,
            Some(offset) => {
                let below = entry_at(&stack.bytes, offset as usize).expect("the entry was pushed");
                offset as usize + ENTRY + below.payload.len()
            }
        };
        stack.bytes.truncate(end);
        stack.top = entry;
        stack.stored = stack.stored.min(end as u64);
    }

    /// Marks a transaction as committed, with deferred frees to do. It may give back its
    /// reservation before they are done, so the stack takes what it always needs; returns the bytes
    /// taken.
    pub(super) fn commit(&self, home: Home) -> u64 {
        let mut stack = self.stacks[home.0 as usize].lock();
        stack.state = StackState::Committed;
        stack.taken += STANDING;
        STANDING
    }

    /// Ends the stack of a transaction that is over.
    pub(super) fn end(&self, home: Home) {
        let mut stack = self.stacks[home.0 as usize].lock();
        let mut bytes = std::mem::take(&mut stack.bytes);
        let old = std::mem::take(&mut *stack);
        bytes.clear();
        bytes.shrink_to(64 << 10);
        stack.bytes = bytes;
        drop(stack);
        if !old.blocks.is_empty() {
            let bytes = old.blocks.len() as u64 * UNDO_BLOCK;
            self.space.fetch_sub(bytes as i64, Ordering::AcqRel);
            self.returning.fetch_add(bytes as i64, Ordering::AcqRel);
            let mut blocks = self.blocks.lock();
            blocks.retired.extend(old.blocks.iter().map(|block| block.number));
            blocks.space += bytes as i64;
        }
        self.unreserve(old.taken);
        self.count.own().1.fetch_sub(1, Ordering::Relaxed);
        self.unused.own().1.lock().push(home.0);
    }

    /// Collects what a batch carries. Nobody is in a section. The blocks are the batch thread's.
    pub(super) fn carry(&self, heap: &Heap) -> Carrying {
        let blocks = &mut *self.blocks.lock();
        let mut carrying = Carrying {
            retired: std::mem::take(&mut blocks.retired),
            space: std::mem::take(&mut blocks.space),
            ..Carrying::default()
        };
        for stack in &self.stacks[..self.high.load(Ordering::Relaxed) as usize] {
            let stack = &mut *stack.lock();
            if stack.state != StackState::Free {
                stack.carry(heap, &mut blocks.free, &mut carrying);
            }
        }
        carrying
    }

    /// Makes the blocks available that a batch lists no more: the batch is durable.
    pub(super) fn is_durable(&self, carrying: Carrying) {
        self.blocks.lock().free.extend(carrying.retired);
        self.space.fetch_add(carrying.space, Ordering::AcqRel);
        self.returning.fetch_sub(carrying.space, Ordering::AcqRel);
    }

    /// Returns whether transactions that have ended left space that a batch will give back. Space
    /// that is not on its way any more can be reserved.
    pub(super) fn is_space_returning(&self) -> bool {
        self.returning.load(Ordering::Acquire) > 0
    }

    /// Returns all bytes for undo information, and how many of them are not reserved.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.all, self.space.load(Ordering::Relaxed).max(0) as u64)
    }

    /// Reserves space for a transaction.
    ///
    /// # Errors
    /// [`Error::Full`].
    pub(super) fn reserve(&self, heap: &Heap, bytes: u64) -> Result<()> {
        let take = |space: i64| space.checked_sub_unsigned(bytes).filter(|rest| *rest >= 0);
        let taken = self.space.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take);
        taken.map(drop).map_err(|space| {
            let reason = format!(
                "the journals of the heap `{}` have {} bytes for undo information, and transactions under way need {} \
                 of them; end some, or make the heap larger",
                heap.location(),
                self.all,
                self.all as i64 - space
            );
            Error::Full { reason }
        })
    }

    /// Gives back space.
    pub(super) fn unreserve(&self, bytes: u64) {
        self.space.fetch_add(bytes as i64, Ordering::AcqRel);
    }
}

impl Stack {
    fn carry(&mut self, heap: &Heap, free: &mut Vec<u32>, carrying: &mut Carrying) {
        let len = self.bytes.len() as u64;
        let whole = (self.stored / UNDO_BLOCK) as usize;
        if self.stored < self.listed && !planted!(CarriedOverwritten) {
            // The batch before needs what it has listed. What is unchanged of a block that is in
            // use in part is copied with the rest.
            let keep = if len > self.stored { whole } else { self.stored.div_ceil(UNDO_BLOCK) as usize };
            carrying.retired.extend(self.blocks.drain(keep..).map(|block| block.number));
        }
        // A shorter use of the last block has another checksum.
        let first = if len == self.stored && self.stored == self.listed { self.blocks.len() } else { whole };
        for index in first.. {
            let from = index as u64 * UNDO_BLOCK;
            if from >= len {
                break;
            }
            let used = &self.bytes[from as usize..(from + UNDO_BLOCK).min(len) as usize];
            let crc = crc32c(used);
            match self.blocks.get_mut(index) {
                Some(block) => {
                    block.crc = crc;
                    let skip = self.stored.saturating_sub(from).min(used.len() as u64);
                    let at = offset_of(heap, block.number).expect("it is one of the blocks") + skip;
                    if skip < used.len() as u64 {
                        carrying.stores.push((at, used[skip as usize..].to_vec()));
                    }
                }
                None => {
                    let number = free.pop().expect("a transaction has reserved the space of its blocks");
                    let at = offset_of(heap, number).expect("it is one of the blocks");
                    carrying.stores.push((at, used.to_vec()));
                    self.blocks.push(UndoBlock { number, crc });
                }
            }
        }
        (self.stored, self.listed) = (len, len);
        if len > 0 && !planted!(CarriedForgotten) {
            let blocks = self.blocks[..len.div_ceil(UNDO_BLOCK) as usize].to_vec();
            carrying.carried.push(Carried { txn: self.txn, state: self.state, bytes: len, blocks });
        }
    }
}
