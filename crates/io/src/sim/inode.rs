//! One simulated file: what reads see, what a power cut certainly leaves, and the changes between
//! the two.

use duramen_sync::Arc;
use duramen_types::BLOCK_SIZE;

use super::content::{Block, Content, cut_block};

/// A change that a power cut may lose.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// Blocks written from block `first` on; `None` where a durable write has replaced the block
    /// since.
    Write { first: u64, blocks: Vec<Option<Arc<Block>>> },
    /// The length was raised to this.
    Extend(u64),
    /// The length was lowered to this.
    Shrink(u64),
}

/// A file without its name.
///
/// Invariant: `durable` with all of `pending` applied in order is `volatile`, except for the bytes
/// that a failed sync dropped and for bits flipped on the medium.
#[derive(Debug)]
pub(super) struct Inode {
    /// Its last name, for messages.
    pub(super) name: String,
    /// Number of open handles.
    pub(super) handles: usize,
    volatile: Content,
    durable: Content,
    pending: Vec<Pending>,
    /// Reserved blocks from the start of the file.
    reserved: u64,
}

impl Inode {
    /// Makes a fully synced file.
    pub(super) fn synced(name: String, content: Content, reserved: u64) -> Self {
        let reserved = reserved.min(content.len().div_ceil(BLOCK_SIZE as u64));
        Self { name, handles: 0, volatile: content.clone(), durable: content, pending: Vec::new(), reserved }
    }

    pub(super) fn volatile(&self) -> &Content {
        &self.volatile
    }

    pub(super) fn durable(&self) -> &Content {
        &self.durable
    }

    pub(super) fn pending(&self) -> &[Pending] {
        &self.pending
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the blocks of the device in use.
    pub(super) fn blocks_used(&self) -> u64 {
        self.reserved + self.volatile.blocks_from(self.reserved)
    }

    /// Returns how many of `count` blocks from `first` on can be written if the device has `free`
    /// blocks left.
    pub(super) fn blocks_that_fit(&self, first: u64, count: usize, free: u64) -> usize {
        let mut free = free;
        let fits = |index: &u64| {
            let new = *index >= self.reserved && self.volatile.block(*index).is_none();
            let fits = !new || free > 0;
            free -= u64::from(new && fits);
            fits
        };
        (first..first + count as u64).take_while(fits).count()
    }

    /// Returns the blocks that reserving `len` bytes would take from the device.
    pub(super) fn blocks_to_reserve(&self, len: u64) -> u64 {
        let wanted = len.div_ceil(BLOCK_SIZE as u64).max(self.reserved);
        let held = self.volatile.blocks_from(self.reserved) - self.volatile.blocks_from(wanted);
        wanted - self.reserved - held
    }

    /// Does an ordinary write.
    pub(super) fn write(&mut self, first: u64, blocks: &[Arc<Block>]) {
        self.write_cached(first, blocks);
        self.pending.push(Pending::Write { first, blocks: blocks.iter().cloned().map(Some).collect() });
    }

    /// Does a write that reads see but that never becomes durable: the system gave it up.
    pub(super) fn write_cached(&mut self, first: u64, blocks: &[Arc<Block>]) {
        for (index, block) in (first..).zip(blocks) {
            self.volatile.put(index, Arc::clone(block));
        }
        self.extend((first + blocks.len() as u64) * BLOCK_SIZE as u64);
    }

    /// Does a write that is durable at once. Older writes to its blocks cannot overwrite it later;
    /// older writes elsewhere stay pending. The length becomes durable as far as reading the bytes
    /// back needs.
    pub(super) fn write_durable(&mut self, first: u64, blocks: &[Arc<Block>]) {
        let end = first + blocks.len() as u64;
        let end_byte = end * BLOCK_SIZE as u64;
        self.write_cached(first, blocks);
        self.commit_shrinks();
        self.durable.extend(end_byte);
        for (index, block) in (first..).zip(blocks) {
            self.durable.put(index, Arc::clone(block));
        }
        self.pending.retain_mut(|pending| match pending {
            Pending::Write { first: start, blocks: old } => {
                for (index, slot) in (*start..).zip(old.iter_mut()) {
                    if (first..end).contains(&index) {
                        *slot = None;
                    }
                }
                old.iter().any(Option::is_some)
            }
            Pending::Extend(len) => *len > end_byte,
            Pending::Shrink(_) => true,
        });
    }

    /// Makes every length change up to the last shrinking one durable. Writes stay pending, cut to
    /// what remains.
    fn commit_shrinks(&mut self) {
        let Some(last) = self.pending.iter().rposition(|pending| matches!(pending, Pending::Shrink(_))) else { return };
        let later = self.pending.split_off(last + 1);
        let mut writes = Vec::new();
        for pending in std::mem::replace(&mut self.pending, later) {
            match pending {
                Pending::Write { .. } => writes.push(pending),
                Pending::Extend(len) => self.durable.extend(len),
                Pending::Shrink(len) => {
                    self.durable.cut(len);
                    writes.iter_mut().for_each(|write| cut_write(write, len));
                }
            }
        }
        self.pending.splice(0..0, writes);
    }

    /// Raises the length, if `len` is more.
    pub(super) fn extend(&mut self, len: u64) {
        if len > self.volatile.len() {
            self.volatile.extend(len);
            self.pending.push(Pending::Extend(len));
        }
    }

    /// Sets the length.
    pub(super) fn set_len(&mut self, len: u64) {
        if len < self.volatile.len() {
            self.volatile.cut(len);
            self.reserved = self.reserved.min(len.div_ceil(BLOCK_SIZE as u64));
            self.pending.push(Pending::Shrink(len));
        } else {
            self.extend(len);
        }
    }

    /// Reserves space for `len` bytes.
    pub(super) fn reserve(&mut self, len: u64) {
        self.reserved = self.reserved.max(len.div_ceil(BLOCK_SIZE as u64));
        self.extend(len);
    }

    /// Makes every completed change durable.
    pub(super) fn sync(&mut self) {
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Write { first, blocks } => {
                    for (index, block) in (first..).zip(blocks) {
                        if let Some(block) = block {
                            self.durable.put(index, block);
                        }
                    }
                }
                Pending::Extend(len) => self.durable.extend(len),
                Pending::Shrink(len) => self.durable.cut(len),
            }
        }
    }

    /// Fails a sync: the system drops the written data and marks it clean. Length changes stay
    /// pending.
    pub(super) fn fail_sync(&mut self) {
        self.pending.retain(|pending| !matches!(pending, Pending::Write { .. }));
    }

    /// Inverts one bit on the medium. Reads of a block with a newer, un-synced version still return
    /// that version.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u8) {
        let index = byte / BLOCK_SIZE as u64;
        let cached = self.pending.iter().any(|pending| match pending {
            Pending::Write { first, blocks } => {
                index.checked_sub(*first).and_then(|at| blocks.get(at as usize)).is_some_and(Option::is_some)
            }
            Pending::Extend(_) | Pending::Shrink(_) => false,
        });
        self.durable.flip_bit(byte, bit);
        if !cached && byte < self.volatile.len() {
            self.volatile.flip_bit(byte, bit);
        }
    }
}

/// Cuts the part behind `len` off an un-synced write.
fn cut_write(write: &mut Pending, len: u64) {
    let Pending::Write { first, blocks } = write else { return };
    let (whole, tail) = (len / BLOCK_SIZE as u64, (len % BLOCK_SIZE as u64) as usize);
    for (index, slot) in (*first..).zip(blocks.iter_mut()) {
        if index == whole && tail > 0 {
            *slot = slot.as_ref().map(|block| cut_block(block, tail));
        } else if index >= whole {
            *slot = None;
        }
    }
}
