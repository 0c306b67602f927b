//! Memory with atomic regions, as structures see it.

use std::convert::Infallible;

/// Memory whose words are read and written, and whose regions are atomic if power fails. Addresses
/// are bytes from its start.
pub trait AtomicMemory {
    /// Why an access fails.
    type Error;
    /// Names a lock.
    type Lock: Copy;

    /// Loads the word at `at`; what follows depends on it.
    ///
    /// # Errors
    /// Those of the memory.
    fn load(&mut self, at: u64) -> Result<u64, Self::Error>;

    /// Reads bytes; the loads do not depend on each other.
    ///
    /// # Errors
    /// Those of the memory.
    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Self::Error>;

    /// Stores a word, in a region.
    ///
    /// # Errors
    /// Those of the memory.
    fn store(&mut self, at: u64, value: u64) -> Result<(), Self::Error>;

    /// Stores bytes, word by word, in a region; a multiple of eight.
    ///
    /// # Errors
    /// Those of the memory.
    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Self::Error>;

    /// Tells how many instructions are executed that no access stands for; nothing natively.
    fn work(&mut self, instructions: u64);

    /// Runs `body` as an atomic region under `lock`.
    ///
    /// # Errors
    /// Those of `body`, and those of the memory.
    fn atomic<R>(
        &mut self,
        lock: Self::Lock,
        body: impl FnMut(&mut Self) -> Result<R, Self::Error>,
    ) -> Result<R, Self::Error>;
}

/// Memory of the process, for one thread: nothing is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plain {
    words: Vec<u64>,
}

impl Plain {
    /// Returns memory of `bytes` zeros.
    pub fn new(bytes: u64) -> Self {
        Self { words: vec![0; bytes.div_ceil(8) as usize] }
    }

    /// Returns memory with these lines.
    pub fn of_lines(lines: &[[u8; 64]]) -> Self {
        let words = lines.iter().flat_map(|line| line.chunks_exact(8));
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self { words: words.map(word).collect() }
    }

    /// Returns its lines.
    pub fn lines(&self) -> Vec<[u8; 64]> {
        let line = |words: &[u64]| {
            let mut line = [0; 64];
            for (to, word) in line.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_le_bytes());
            }
            line
        };
        self.words.chunks(8).map(line).collect()
    }

    /// Returns the word at `at`; zero beyond its end.
    pub fn word(&self, at: u64) -> u64 {
        self.words.get((at / 8) as usize).copied().unwrap_or(0)
    }
}

impl AtomicMemory for Plain {
    type Error = Infallible;
    type Lock = ();

    fn load(&mut self, at: u64) -> Result<u64, Infallible> {
        Ok(self.word(at))
    }

    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Infallible> {
        for (index, byte) in to.iter_mut().enumerate() {
            let at = at + index as u64;
            *byte = self.word(at).to_le_bytes()[at as usize % 8];
        }
        Ok(())
    }

    fn store(&mut self, at: u64, value: u64) -> Result<(), Infallible> {
        self.words[(at / 8) as usize] = value;
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Infallible> {
        for (index, word) in from.chunks_exact(8).enumerate() {
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            self.store(at + 8 * index as u64, word)?;
        }
        Ok(())
    }

    fn work(&mut self, _: u64) {}

    fn atomic<R>(&mut self, _: (), mut body: impl FnMut(&mut Self) -> Result<R, Infallible>) -> Result<R, Infallible> {
        body(self)
    }
}
