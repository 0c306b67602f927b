//! What a page tier lies on: a file, or a region in persistent memory.
//!
//! | | file | persistent memory |
//! |---|---|---|
//! | a write reaches | the device, at the next sync | the memory, at the next fence of its thread |
//! | what tears when the power goes off | sectors | words of eight bytes |
//! | the header, of 56 bytes | lies in one sector | is written twice, one copy after the other |
//!
//! Pages are streamed past the processor's caches, so both persistence domains are alike, except
//! for the header, which is stored and flushed.

use std::fmt::Debug;

use duramen_io::{AlignedBuf, File};
use duramen_pmem::{DrainBy, Drained, Region, drain_processors};
use duramen_sync::Arc;
use duramen_types::BLOCK_SIZE;

use crate::pool::PoolError;

/// Where the second copy of a header lies within its block.
pub(super) const COPY: usize = 2048;

/// What a page tier lies on. Offsets count bytes.
pub(crate) trait Medium: Send + Sync + Debug {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// Those of the medium.
    fn len(&self) -> Result<u64, PoolError>;

    /// Makes it `len` bytes long, durably, if it is shorter.
    ///
    /// # Errors
    /// Those of the medium; that of a full one.
    fn grow(&self, len: u64) -> Result<(), PoolError>;

    /// Fills `block` with the beginning, a header and its copy.
    ///
    /// # Errors
    /// Those of the medium.
    fn read_header(&self, block: &mut AlignedBuf) -> Result<(), PoolError>;

    /// Writes the first bytes of `block`, up to `end`, to the beginning, durably. After a crash the
    /// earlier header or this one is valid, in one of its two places.
    ///
    /// # Errors
    /// Those of the medium.
    fn write_header(&self, block: &AlignedBuf, end: usize) -> Result<(), PoolError>;

    /// Fills each buffer with the bytes from its offset on.
    ///
    /// # Errors
    /// Those of the medium.
    fn read(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), PoolError>;

    /// Writes whole pages or blocks. They are durable after the next [`Medium::sync`] of the same
    /// thread.
    ///
    /// # Errors
    /// Those of the medium.
    fn write(&self, writes: &[(u64, &[u8])]) -> Result<(), PoolError>;

    /// Makes durable what the calling thread has written.
    ///
    /// # Errors
    /// Those of the medium.
    fn sync(&self) -> Result<(), PoolError>;

    /// Begins to read what a process has written that has ended since: the header is durable, and
    /// so is what [`Medium::read_found`] reads.
    ///
    /// # Errors
    /// Those of the medium.
    fn harden_found(&self) -> Result<(), PoolError>;

    /// Fills the buffer, after [`Medium::harden_found`].
    ///
    /// # Errors
    /// Those of the medium.
    fn read_found(&self, at: u64, bytes: &mut [u8]) -> Result<(), PoolError>;

    /// Returns whether [`Medium::harden_found`] leaves nothing to be read that is not durable. A
    /// file may still have what a failed sync has lost.
    fn hardens_all_found(&self) -> bool;

    /// Returns its name in messages, usually a path.
    fn location(&self) -> String;

    /// Checks that it still has its name.
    ///
    /// # Errors
    /// Those of the medium.
    fn verify_name(&self) -> Result<(), PoolError>;

    /// Returns a warning if what is durable on it survives less than a power cut.
    fn shortfall(&self) -> Option<String> {
        None
    }
}

impl Medium for Arc<dyn File> {
    fn len(&self) -> Result<u64, PoolError> {
        Ok((**self).len()?)
    }

    fn grow(&self, len: u64) -> Result<(), PoolError> {
        self.allocate(len)?;
        Ok((**self).sync()?)
    }

    fn read_header(&self, block: &mut AlignedBuf) -> Result<(), PoolError> {
        Ok(self.read_at(block, 0)?)
    }

    fn write_header(&self, block: &AlignedBuf, _end: usize) -> Result<(), PoolError> {
        Ok(self.write_durable(&[block], 0)?)
    }

    fn read(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), PoolError> {
        match reads {
            [(at, bytes)] => Ok(self.read_at(bytes, *at)?),
            reads => Ok(self.read_batch(reads)?),
        }
    }

    fn write(&self, writes: &[(u64, &[u8])]) -> Result<(), PoolError> {
        Ok(self.write_batch(writes)?)
    }

    fn sync(&self) -> Result<(), PoolError> {
        Ok((**self).sync()?)
    }

    fn harden_found(&self) -> Result<(), PoolError> {
        Ok((**self).sync()?)
    }

    fn read_found(&self, at: u64, bytes: &mut [u8]) -> Result<(), PoolError> {
        Ok(self.read_at(bytes, at)?)
    }

    fn hardens_all_found(&self) -> bool {
        false
    }

    fn location(&self) -> String {
        self.path()
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        Ok((**self).verify_name()?)
    }
}

impl Medium for Region {
    fn len(&self) -> Result<u64, PoolError> {
        Ok(Region::len(self))
    }

    fn grow(&self, len: u64) -> Result<(), PoolError> {
        // The region was opened with the length that it is to have.
        assert!(len <= Region::len(self), "a tier lies within its region");
        Ok(())
    }

    fn read_header(&self, block: &mut AlignedBuf) -> Result<(), PoolError> {
        Region::read(self, 0, block);
        Ok(())
    }

    fn write_header(&self, block: &AlignedBuf, end: usize) -> Result<(), PoolError> {
        for at in [0, COPY] {
            self.store(at as u64, &[&block[..end]]);
            self.persist(at as u64, end);
        }
        Ok(())
    }

    fn read(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), PoolError> {
        reads.iter_mut().for_each(|(at, bytes)| Region::read(self, *at, bytes));
        Ok(())
    }

    fn write(&self, writes: &[(u64, &[u8])]) -> Result<(), PoolError> {
        writes.iter().for_each(|(at, bytes)| self.stream(*at, &[bytes]));
        Ok(())
    }

    fn sync(&self) -> Result<(), PoolError> {
        self.fence();
        Ok(())
    }

    fn harden_found(&self) -> Result<(), PoolError> {
        // A process that has ended runs on no processor, so it does not matter whether they can be
        // drained.
        let _: Drained = drain_processors([self], DrainBy::default());
        self.persist(0, BLOCK_SIZE);
        Ok(())
    }

    fn read_found(&self, at: u64, bytes: &mut [u8]) -> Result<(), PoolError> {
        Region::read(self, at, bytes);
        self.persist(at, bytes.len());
        Ok(())
    }

    fn hardens_all_found(&self) -> bool {
        true
    }

    fn location(&self) -> String {
        Region::location(self).to_owned()
    }

    /// A mapping needs no name.
    fn verify_name(&self) -> Result<(), PoolError> {
        Ok(())
    }

    fn shortfall(&self) -> Option<String> {
        Region::shortfall(self)
    }
}
