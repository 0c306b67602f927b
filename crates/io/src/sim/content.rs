//! File contents that are cheap to copy: blocks are shared until they are replaced.

use duramen_sync::Arc;
use duramen_types::BLOCK_SIZE;
use std::collections::BTreeMap;

/// One block of a file; never changed once shared.
pub(super) type Block = [u8; BLOCK_SIZE];

/// Blocks per group: copying a content copies one pointer per group, replacing a block copies one
/// group of pointers.
const GROUP_BLOCKS: u64 = 64;

/// A run of blocks; `None` is a hole and reads as zeros.
type Group = [Option<Arc<Block>>; GROUP_BLOCKS as usize];

/// Bytes of a file, sparse, with its length.
///
/// While un-synced changes are applied out of order there may be blocks behind the end;
/// [`Content::cut`] drops them.
#[derive(Clone, Default, Debug)]
pub(super) struct Content {
    len: u64,
    groups: BTreeMap<u64, Arc<Group>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn block(&self, index: u64) -> Option<&Arc<Block>> {
        self.groups.get(&(index / GROUP_BLOCKS))?[(index % GROUP_BLOCKS) as usize].as_ref()
    }

    /// Replaces a block; the length stays.
    pub(super) fn put(&mut self, index: u64, block: Arc<Block>) {
        let group = self
            .groups
            .entry(index / GROUP_BLOCKS)
            .or_insert_with(|| Arc::new([const { None }; GROUP_BLOCKS as usize]));
        Arc::make_mut(group)[(index % GROUP_BLOCKS) as usize] = Some(block);
    }

    /// Raises the length to at least `len`.
    pub(super) fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Lowers the length to at most `len` and forgets every byte behind the end.
    pub(super) fn cut(&mut self, len: u64) {
        self.len = self.len.min(len);
        let whole = self.len / BLOCK_SIZE as u64;
        let tail = (self.len % BLOCK_SIZE as u64) as usize;
        let kept = whole + u64::from(tail > 0);
        self.groups.split_off(&kept.div_ceil(GROUP_BLOCKS));
        if let Some(group) = self.groups.get_mut(&(kept / GROUP_BLOCKS)) {
            let first = (kept % GROUP_BLOCKS) as usize;
            if group[first..].iter().any(Option::is_some) {
                Arc::make_mut(group)[first..].fill(None);
            }
        }
        if tail > 0
            && let Some(block) = self.block(whole)
            && block[tail..].iter().any(|byte| *byte != 0)
        {
            let cut = cut_block(block, tail);
            self.put(whole, cut);
        }
    }

    /// Copies bytes out; holes and bytes behind the end are zeros. `offset` is a multiple of the
    /// block size.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) {
        let first = offset / BLOCK_SIZE as u64;
        for (index, out) in (first..).zip(buf.chunks_mut(BLOCK_SIZE)) {
            match self.block(index) {
                Some(block) => out.copy_from_slice(&block[..out.len()]),
                None => out.fill(0),
            }
        }
    }

    /// Returns the number of blocks from `first` on that are not holes.
    pub(super) fn blocks_from(&self, first: u64) -> u64 {
        let start = first / GROUP_BLOCKS;
        let count = |skip: usize, group: &Group| group.iter().skip(skip).flatten().count() as u64;
        self.groups
            .range(start..)
            .map(|(number, group)| count(if *number == start { (first % GROUP_BLOCKS) as usize } else { 0 }, group))
            .sum()
    }

    /// Inverts one bit.
    pub(super) fn flip_bit(&mut self, byte: u64, bit: u8) {
        let index = byte / BLOCK_SIZE as u64;
        let mut block = self.block(index).map_or([0; BLOCK_SIZE], |block| **block);
        block[(byte % BLOCK_SIZE as u64) as usize] ^= 1 << bit;
        self.put(index, Arc::new(block));
    }
}

/// Returns a copy of `block` with zeros from byte `tail` on.
pub(super) fn cut_block(block: &Block, tail: usize) -> Arc<Block> {
    let mut cut = *block;
    cut[tail..].fill(0);
    Arc::new(cut)
}

/// Copies the bytes of `parts`, whose lengths are multiples of the block size, into blocks.
pub(super) fn to_blocks(parts: &[&[u8]]) -> Vec<Arc<Block>> {
    let blocks = parts.iter().flat_map(|part| part.chunks_exact(BLOCK_SIZE));
    blocks.map(|bytes| Arc::<[u8]>::from(bytes).try_into().expect("chunks are one block long")).collect()
}
