//! Handles of simulated files.

use std::ops::Range;

use duramen_sync::Arc;
use duramen_types::BLOCK_SIZE;

use super::content::{Block, to_blocks};
use super::names::InodeId;
use super::state::path;
use super::{Shared, SimDisk};
use crate::checks::{assert_aligned, assert_parts_aligned};
use crate::{File, Result};

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub(super) struct SimFile {
    shared: Arc<Shared>,
    inode: InodeId,
}

impl SimFile {
    /// Makes a handle that the inode has already counted.
    pub(super) fn new(disk: &SimDisk, inode: InodeId) -> Self {
        Self { shared: Arc::clone(&disk.shared), inode }
    }

    fn write(&self, parts: &[&[u8]], offset: u64, durable: bool) -> Result<()> {
        let bytes = assert_parts_aligned(parts, offset);
        let blocks = to_blocks(parts);
        self.shared.paced(durable, || {
            self.shared.state.lock().write(self.inode, offset / BLOCK_SIZE as u64, &blocks, durable)
        })?;
        self.shared.counters.count_write(bytes);
        Ok(())
    }

    /// Writes all ranges of a batch.
    fn write_blocks(&self, blocks: &[(u64, Vec<Arc<Block>>)]) -> Result<()> {
        let mut state = self.shared.state.lock();
        let powered = state.crashed_in.is_none();
        for (done, (first, part)) in blocks.iter().enumerate() {
            if let Err(error) = state.write(self.inode, *first, part, false) {
                if powered && state.crashed_in.is_some() {
                    // The power went off with the whole batch in flight: any of the rest may have
                    // reached the medium.
                    blocks[done + 1..].iter().for_each(|(first, part)| state.inode_mut(self.inode).write(*first, part));
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        assert_aligned(buf, offset);
        self.shared.paced(false, || self.shared.state.lock().read(self.inode, buf, offset))?;
        self.shared.counters.count_read(buf.len());
        Ok(())
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, buf)| self.read_at(buf, *offset))
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write(parts, offset, false)
    }

    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.write(parts, offset, true)?;
        self.shared.counters.count_sync();
        Ok(())
    }

    fn write_batch(&self, writes: &[(u64, &[u8])]) -> Result<()> {
        for (offset, buf) in writes {
            assert_aligned(buf, *offset);
        }
        let blocks: Vec<_> =
            writes.iter().map(|(offset, buf)| (offset / BLOCK_SIZE as u64, to_blocks(&[buf]))).collect();
        self.shared.paced(false, || self.write_blocks(&blocks))?;
        writes.iter().for_each(|(_, buf)| self.shared.counters.count_write(buf.len()));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.shared.paced(true, || self.shared.state.lock().sync(self.inode))?;
        self.shared.counters.count_sync();
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        let state = self.shared.state.lock();
        let inode = state.inode(self.inode);
        state.check_power("read the length of", &path(&inode.name))?;
        Ok(inode.volatile().len())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.shared.state.lock().resize(self.inode, len.next_multiple_of(BLOCK_SIZE as u64), true)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.shared.state.lock().resize(self.inode, len, false)
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        let garbage: Arc<Block> = Arc::new([0xdb; BLOCK_SIZE]);
        let blocks = vec![garbage; (range.end - range.start) as usize / BLOCK_SIZE];
        self.shared.state.lock().write(self.inode, range.start / BLOCK_SIZE as u64, &blocks, false)
    }

    fn path(&self) -> String {
        path(&self.shared.state.lock().inode(self.inode).name)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let inode = state.inode_mut(self.inode);
        inode.handles -= 1;
        if inode.handles == 0 {
            state.collect();
        }
    }
}
