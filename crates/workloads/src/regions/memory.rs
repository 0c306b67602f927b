//! Memory with atomic regions.

use thiserror::Error;

/// A position in such a memory, in bytes; words are at multiples of 8.
pub type Addr = u64;

/// Why an operation on a structure failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RegionError {
    /// The memory failed.
    #[error("the memory failed: {0}")]
    Memory(String),

    /// The structure is not what it should be.
    #[error("the structure is damaged: {0}")]
    Broken(String),
}

/// What the code within an atomic region may do.
pub trait RegionAccess {
    /// What the memory may fail with.
    type Error: From<RegionError>;

    /// Loads the word at `at`, on which the next steps depend.
    ///
    /// # Errors
    /// The memory's.
    fn load(&mut self, at: Addr) -> Result<u64, Self::Error>;

    /// Reads bytes.
    ///
    /// # Errors
    /// The memory's.
    fn read(&mut self, at: Addr, to: &mut [u8]) -> Result<(), Self::Error>;

    /// Stores a word.
    ///
    /// # Errors
    /// The memory's.
    fn store(&mut self, at: Addr, value: u64) -> Result<(), Self::Error>;

    /// Writes bytes: whole words.
    ///
    /// # Errors
    /// The memory's.
    fn write(&mut self, at: Addr, from: &[u8]) -> Result<(), Self::Error>;

    /// Announces what will be written next, as positions and lengths. A memory that logs in
    /// software may log all of it at once.
    ///
    /// # Errors
    /// The memory's.
    fn announce(&mut self, _ranges: &[(Addr, u64)]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Accounts for instructions between accesses.
    fn work(&mut self, instructions: u64);
}

/// Memory whose changes within an atomic region take effect together. Structures touch memory
/// through it only, so that the same code runs on real and on simulated memory.
pub trait AtomicMemory {
    /// What the memory may fail with.
    type Error: From<RegionError>;
    /// Names what a region has to itself; a memory that isolates regions in another way ignores it.
    type Lock: Copy;
    /// The memory within a region.
    type Region<'region>: RegionAccess<Error = Self::Error>;

    /// Runs `body` as an atomic region; perhaps several times, of which one takes effect.
    ///
    /// # Errors
    /// Those of `body`, and the memory's.
    fn atomic<R>(
        &mut self,
        lock: Self::Lock,
        body: impl FnMut(&mut Self::Region<'_>) -> Result<R, Self::Error>,
    ) -> Result<R, Self::Error>;
}

/// Ordinary memory; regions have no effect. For tests of the structures.
#[derive(Clone, Debug)]
pub struct PlainMemory(Vec<u8>);

impl PlainMemory {
    /// Returns zeroed memory.
    pub fn new(bytes: u64) -> Self {
        Self(vec![0; bytes as usize])
    }

    fn part(&mut self, at: Addr, len: usize) -> Result<&mut [u8], RegionError> {
        let end = (at as usize).checked_add(len);
        let part = end.and_then(|end| self.0.get_mut(at as usize..end));
        part.ok_or_else(|| RegionError::Memory(format!("there are no {len} bytes at {at}")))
    }
}

impl RegionAccess for PlainMemory {
    type Error = RegionError;

    fn load(&mut self, at: Addr) -> Result<u64, RegionError> {
        let mut word = [0; 8];
        self.read(at, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn read(&mut self, at: Addr, to: &mut [u8]) -> Result<(), RegionError> {
        to.copy_from_slice(self.part(at, to.len())?);
        Ok(())
    }

    fn store(&mut self, at: Addr, value: u64) -> Result<(), RegionError> {
        self.write(at, &value.to_le_bytes())
    }

    fn write(&mut self, at: Addr, from: &[u8]) -> Result<(), RegionError> {
        self.part(at, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn work(&mut self, _: u64) {}
}

impl AtomicMemory for PlainMemory {
    type Error = RegionError;
    type Lock = ();
    type Region<'region> = PlainMemory;

    fn atomic<R>(
        &mut self,
        (): (),
        mut body: impl FnMut(&mut PlainMemory) -> Result<R, RegionError>,
    ) -> Result<R, RegionError> {
        body(self)
    }
}
