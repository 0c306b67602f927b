//! Random strings, written in place.

use rand::RngExt;
use rand::rngs::StdRng;

const ALPHANUMERIC: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";

/// Fills `text` with letters, digits and two more characters, all equally likely.
pub(crate) fn fill_alphanumeric(rng: &mut StdRng, text: &mut [u8]) {
    // Ten characters from each random number: populations consist of such strings for the most
    // part.
    for piece in text.chunks_mut(10) {
        let mut bits: u64 = rng.random();
        for place in piece {
            *place = ALPHANUMERIC[(bits & 63) as usize];
            bits >>= 6;
        }
    }
}

/// Fills `text` with upper-case letters.
pub(crate) fn fill_letters(rng: &mut StdRng, text: &mut [u8]) {
    text.iter_mut().for_each(|place| *place = rng.random_range(b'A'..=b'Z'));
}

/// Fills `text` with decimal digits.
pub(crate) fn fill_digits(rng: &mut StdRng, text: &mut [u8]) {
    text.iter_mut().for_each(|place| *place = rng.random_range(b'0'..=b'9'));
}
