//! CRC-32C of a short block of words, as a log record is.
//!
//! The processor has an instruction that adds a word to a checksum. It takes three cycles if it
//! needs the result of the instruction before it, and one cycle otherwise. So three chains run side
//! by side: over three blocks, or over three parts of one block, whose checksums are combined at
//! the end.
//!
//! Combining checksums rests on linearity: the checksum of `a` followed by `n` words is that of `a`
//! followed by `n` zero words, xor that of the words alone from an initial zero. Zero words
//! multiply `a`'s remainder by `x^64n`, modulo the polynomial: one carry-less multiplication by a
//! constant, `SHIFT[n]`, and one more step of the instruction, which divides.

use crc_fast::{CrcAlgorithm, Digest};

/// A block: a seed, half a word, and words.
pub type Block<'a> = (u64, u32, &'a [[u8; 8]]);

/// CRC-32C of the little-endian bytes of the block's seed and half word, followed by its words.
#[inline]
pub fn crc32c_words(block: Block<'_>) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if block.2.len() <= x86::MAX_WORDS && has_instructions() {
        // SAFETY: the processor has the instructions.
        return unsafe { x86::crc32c_words(block) };
    }
    portable(block)
}

/// [`crc32c_words`] of three blocks. Faster than one after the other if they are short.
#[inline]
pub fn crc32c_words_of_three(blocks: [Block<'_>; 3]) -> [u32; 3] {
    #[cfg(target_arch = "x86_64")]
    if blocks.iter().all(|block| block.2.len() <= x86::ONE_CHAIN) && has_instructions() {
        // SAFETY: the processor has the instructions.
        return unsafe { x86::crc32c_words_of_three(blocks) };
    }
    blocks.map(crc32c_words)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn has_instructions() -> bool {
    std::arch::is_x86_feature_detected!("sse4.2") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

fn portable((seed, half, words): Block<'_>) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&seed.to_le_bytes());
    digest.update(&half.to_le_bytes());
    digest.update(words.as_flattened());
    digest.finalize() as u32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Block;
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64};

    /// Beyond this, folding many words at a time is faster.
    pub(super) const MAX_WORDS: usize = 256;

    /// Up to so many words, combining the chains costs more than they save.
    pub(super) const ONE_CHAIN: usize = 24;

    /// For each number of words, `x^(64n - 33)` modulo the polynomial, lowest power in the highest
    /// bit. The missing 33 powers come from the product of two such numbers, which is one bit short
    /// (1), and from the division (32).
    static SHIFT: [u64; MAX_WORDS] = {
        let mut table = [0; MAX_WORDS];
        let mut power: u32 = 1 << 31;
        let (mut exponent, mut n) = (0, 1);
        while n < MAX_WORDS {
            while exponent < 64 * n - 33 {
                power = if power & 1 == 0 { power >> 1 } else { power >> 1 ^ 0x82F6_3B78 };
                exponent += 1;
            }
            table[n] = power as u64;
            n += 1;
        }
        table
    };

    /// `crc` followed by `words` zero words.
    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn shift(crc: u64, words: usize) -> u64 {
        let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(SHIFT[words] as i64));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64)
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn step(crc: u64, word: &[u8; 8]) -> u64 {
        _mm_crc32_u64(crc, u64::from_le_bytes(*word))
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn begin(seed: u64, half: u32) -> u64 {
        u64::from(_mm_crc32_u32(_mm_crc32_u64(u64::from(u32::MAX), seed) as u32, half))
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn crc32c_words((seed, half, words): Block<'_>) -> u32 {
        let step = |crc: u64, word: &[u8; 8]| step(crc, word);
        let mut first = begin(seed, half);
        if words.len() <= ONE_CHAIN {
            return !words.iter().fold(first, step) as u32;
        }
        let (of_first, others) = words.split_at(words.len() / 3);
        let (of_second, of_third) = others.split_at(others.len() / 2);
        let (mut second, mut third) = (0, 0);
        for ((a, b), c) in of_first.iter().zip(of_second).zip(of_third) {
            first = step(first, a);
            second = step(second, b);
            third = step(third, c);
        }
        // The later ones may have a word more.
        second = of_second[of_first.len()..].iter().fold(second, step);
        third = of_third[of_first.len()..].iter().fold(third, step);
        !(shift(first, others.len()) ^ shift(second, of_third.len()) ^ third) as u32
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn crc32c_words_of_three([a, b, c]: [Block<'_>; 3]) -> [u32; 3] {
        let together = a.2.len().min(b.2.len()).min(c.2.len());
        let (mut of_a, mut of_b, mut of_c) = (begin(a.0, a.1), begin(b.0, b.1), begin(c.0, c.1));
        for ((a, b), c) in a.2[..together].iter().zip(&b.2[..together]).zip(&c.2[..together]) {
            of_a = step(of_a, a);
            of_b = step(of_b, b);
            of_c = step(of_c, c);
        }
        let rest = |crc, words: &[[u8; 8]]| !words[together..].iter().fold(crc, |crc, word| step(crc, word)) as u32;
        [rest(of_a, a.2), rest(of_b, b.2), rest(of_c, c.2)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c_append;

    #[test]
    fn words_have_the_checksum_of_their_bytes() {
        for len in (0..100).chain([125, 250, 255, 256, 257, 600]) {
            let words: Vec<[u8; 8]> = (0..len).map(|i: u64| (i * i * 0x0123_4567_89AB + 1).to_le_bytes()).collect();
            let mut whole = 0xDEAD_BEEF_u32.to_le_bytes().to_vec();
            whole.extend_from_slice(words.as_flattened());
            let expected = crc32c_append(42, &whole);
            let block = (42, 0xDEAD_BEEF, &words[..]);
            assert_eq!(crc32c_words(block), expected, "{len} words");
            assert_eq!(portable(block), expected, "{len} words");
        }
    }

    #[test]
    fn three_blocks_have_the_checksums_of_each() {
        let words: Vec<[u8; 8]> = (1..200).map(|i: u64| (i * i * 0x0123_4567_89AB).to_le_bytes()).collect();
        for lens in [[0, 0, 0], [14, 14, 14], [5, 14, 9], [24, 0, 23], [14, 14, 25], [150, 3, 20]] {
            let mut at = 0;
            let blocks = lens.map(|len| {
                at += 1;
                (at as u64, at as u32, &words[at..at + len])
            });
            assert_eq!(crc32c_words_of_three(blocks), blocks.map(portable), "{lens:?}");
        }
    }
}
