//! CRC-32C of a short block while it is being put together.
//!
//! A log record is a few words in registers and a payload of perhaps a hundred bytes elsewhere. To write them into their
//! place and then read the checksum off it would have to wait until what was written is in the cache, so the checksum is
//! taken of the parts. The processor has an instruction for a word, but one that needs the result of the one before takes
//! three cycles; so for more than a few words three chains of them run side by side, and are put together in the end.
//!
//! Putting together rests on linearity: the checksum of `a` followed by `n` words is that of `a` followed by `n` zero words,
//! xor that of the words alone from an initial zero. Zero words multiply `a`'s remainder by `x^64n`, modulo the polynomial:
//! one carry-less multiplication by a constant, `SHIFT[n]`, and one more step of the instruction, which divides.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of the little-endian bytes of `seed`, `half` and `words`, followed by `tail` and zeros up to a multiple of 8.
#[inline]
pub fn crc32c_parts(seed: u64, half: u32, words: [u64; 5], tail: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if tail.len() <= x86::MAX_TAIL
        && std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
    {
        // SAFETY: the processor has the instructions.
        return unsafe { x86::crc32c_parts(seed, half, words, tail) };
    }
    portable(seed, half, words, tail)
}

fn portable(seed: u64, half: u32, words: [u64; 5], tail: &[u8]) -> u32 {
    let mut head = [0; 52];
    head[..8].copy_from_slice(&seed.to_le_bytes());
    head[8..12].copy_from_slice(&half.to_le_bytes());
    for (place, word) in head[12..].as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&head);
    digest.update(tail);
    digest.update(&[0; 8][..tail.len().next_multiple_of(8) - tail.len()]);
    digest.finalize() as u32
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm_clmulepi64_si128, _mm_crc32_u32, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64};

    /// Beyond this, folding many words at a time is faster.
    pub(super) const MAX_TAIL: usize = 2048;

    /// Up to so many bytes, what the chains save is lost in putting them together.
    const ONE_CHAIN: usize = 128;

    const MAX_SHIFT: usize = MAX_TAIL / 8 + 1;

    /// For each number of words, `x^(64n - 33)` modulo the polynomial, lowest power in the highest bit. The missing 33
    /// powers come from the product of two such numbers, which is one bit short (1), and from the division (32).
    static SHIFT: [u64; MAX_SHIFT] = {
        let mut table = [0; MAX_SHIFT];
        let mut power: u32 = 1 << 31;
        let (mut exponent, mut n) = (0, 1);
        while n < MAX_SHIFT {
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
        if words == 0 {
            return crc;
        }
        let product = _mm_clmulepi64_si128::<0>(_mm_cvtsi64_si128(crc as i64), _mm_cvtsi64_si128(SHIFT[words] as i64));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64)
    }

    #[inline]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    pub(super) fn crc32c_parts(seed: u64, half: u32, words: [u64; 5], tail: &[u8]) -> u32 {
        /// Steps that the first chain has taken before it comes to the tail.
        const HEAD: usize = 7;

        let step = |crc: u64, word: &[u8; 8]| _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        let mut first = _mm_crc32_u64(u64::from(u32::MAX), seed);
        first = u64::from(_mm_crc32_u32(first as u32, half));
        for word in words {
            first = _mm_crc32_u64(first, word);
        }
        let (whole, rest) = tail.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        if tail.len() <= ONE_CHAIN {
            first = whole.iter().fold(first, step);
            return !(if rest.is_empty() { first } else { step(first, &last) }) as u32;
        }
        let (of_first, others) = whole.split_at((whole.len() + HEAD).div_ceil(3).saturating_sub(HEAD).min(whole.len()));
        let (of_second, of_third) = others.split_at(others.len() / 2);

        let (mut second, mut third) = (0, 0);
        let together = of_first.len().min(of_second.len());
        for i in 0..together {
            first = step(first, &of_first[i]);
            second = step(second, &of_second[i]);
            third = step(third, &of_third[i]);
        }
        first = of_first[together..].iter().fold(first, step);
        for (a, b) in of_second[together..].iter().zip(&of_third[together..]) {
            second = step(second, a);
            third = step(third, b);
        }
        third = of_third[of_second.len()..].iter().fold(third, step);
        let mut after = of_third.len();
        if !rest.is_empty() {
            third = step(third, &last);
            after += 1;
        }
        !(shift(first, of_second.len() + after) ^ shift(second, after) ^ third) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32c_append;

    #[test]
    fn parts_have_the_checksum_of_the_whole() {
        let words = [1, u64::MAX, 0x0123_4567_89AB_CDEF, 0, 1 << 63];
        for len in (0..300).chain([1000, 2040, 2047, 2048, 2049, 5000]) {
            let tail: Vec<u8> = (0..len).map(|i| (i * i * 7 + 1) as u8).collect();
            let mut whole = 0xDEAD_BEEF_u32.to_le_bytes().to_vec();
            words.iter().for_each(|word: &u64| whole.extend_from_slice(&word.to_le_bytes()));
            whole.extend_from_slice(&tail);
            whole.resize(whole.len() + (tail.len().next_multiple_of(8) - tail.len()), 0);
            let expected = crc32c_append(42, &whole);
            assert_eq!(crc32c_parts(42, 0xDEAD_BEEF, words, &tail), expected, "{len} bytes");
            assert_eq!(portable(42, 0xDEAD_BEEF, words, &tail), expected, "{len} bytes");
        }
    }
}
