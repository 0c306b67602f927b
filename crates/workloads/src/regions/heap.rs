//! [`duramen_heap`] as a memory with atomic regions.

use duramen_heap::{Addr as HeapAddr, Error, Heap, Tx};

use crate::regions::memory::{Addr, AtomicMemory, RegionAccess, RegionError};

/// What a region of a heap may fail with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeapRegionError {
    /// The heap's error.
    #[error(transparent)]
    Heap(#[from] Error),
    /// The structure's.
    #[error(transparent)]
    Structure(#[from] RegionError),
}

/// A heap; each thread has its own handle.
#[derive(Clone, Copy, Debug)]
pub struct HeapMemory<'heap>(pub &'heap Heap);

/// A transaction. What it needs of [`Tx`], whose own lifetime the trait has no name for.
trait Access {
    fn read(&mut self, at: HeapAddr, to: &mut [u8]) -> Result<(), Error>;
    fn write(&mut self, at: HeapAddr, from: &[u8]) -> Result<(), Error>;
    fn log(&mut self, extents: &[(HeapAddr, u64)]) -> Result<(), Error>;
}

impl Access for Tx<'_> {
    fn read(&mut self, at: HeapAddr, to: &mut [u8]) -> Result<(), Error> {
        Tx::read(self, at, to)
    }

    fn write(&mut self, at: HeapAddr, from: &[u8]) -> Result<(), Error> {
        Tx::write(self, at, from)
    }

    fn log(&mut self, extents: &[(HeapAddr, u64)]) -> Result<(), Error> {
        Tx::log(self, extents)
    }
}

/// A heap within a transaction.
#[allow(missing_debug_implementations, reason = "it is lent to a closure only")]
pub struct HeapRegion<'region>(&'region mut (dyn Access + 'region));

impl RegionAccess for HeapRegion<'_> {
    type Error = HeapRegionError;

    fn load(&mut self, at: Addr) -> Result<u64, HeapRegionError> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&mut self, at: Addr, to: &mut [u8]) -> Result<(), HeapRegionError> {
        Ok(self.0.read(HeapAddr::new(at), to)?)
    }

    fn store(&mut self, at: Addr, value: u64) -> Result<(), HeapRegionError> {
        self.write(at, &value.to_le_bytes())
    }

    fn write(&mut self, at: Addr, from: &[u8]) -> Result<(), HeapRegionError> {
        Ok(self.0.write(HeapAddr::new(at), from)?)
    }

    fn announce(&mut self, ranges: &[(Addr, u64)]) -> Result<(), HeapRegionError> {
        let extents: Vec<(HeapAddr, u64)> = ranges.iter().map(|(at, len)| (HeapAddr::new(*at), *len)).collect();
        Ok(self.0.log(&extents)?)
    }

    fn work(&mut self, _: u64) {}
}

impl AtomicMemory for HeapMemory<'_> {
    type Error = HeapRegionError;
    /// Transactions of a heap are isolated without locks.
    type Lock = ();
    type Region<'region> = HeapRegion<'region>;

    fn atomic<R>(
        &mut self,
        (): (),
        mut body: impl FnMut(&mut Self::Region<'_>) -> Result<R, HeapRegionError>,
    ) -> Result<R, HeapRegionError> {
        self.0.try_atomic(|tx| body(&mut HeapRegion(tx)))
    }
}
