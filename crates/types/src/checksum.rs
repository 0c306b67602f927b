//! CRC-32C (Castagnoli), the one checksum of every on-disk structure.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of `parts`, one behind the other.
#[inline]
pub fn crc32c_of(parts: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::new();
    parts.iter().for_each(|part| crc.update(part));
    crc.finish()
}

/// A CRC-32C of bytes that come in parts.
#[derive(Debug)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Begins without a byte.
    #[allow(clippy::new_without_default, reason = "a checksum of nothing is no useful default")]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Adds the next bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the checksum of all bytes.
    pub fn finish(&self) -> u32 {
        self.0.finalize() as u32
    }
}

/// CRC-32C of the little-endian bytes of `seed` followed by `bytes`.
///
/// Seeding with a position (a log sequence number, a page id) makes a block that is intact but in
/// the wrong place, or left over from an earlier use of the place, fail its check.
#[inline]
pub fn crc32c_append(seed: u64, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&seed.to_le_bytes());
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn seed_is_a_prefix() {
        let mut whole = 7u64.to_le_bytes().to_vec();
        whole.extend_from_slice(b"abc");
        assert_eq!(crc32c_append(7, b"abc"), crc32c(&whole));
        assert_ne!(crc32c_append(8, b"abc"), crc32c(&whole));
        assert_eq!(crc32c_of(&[&whole[..5], b"", &whole[5..]]), crc32c(&whole));
    }
}
