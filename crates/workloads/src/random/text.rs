//! Random strings, written in place.

use rand::RngExt;
use rand::rngs::StdRng;

/// Fills `text` with upper-case letters.
pub(crate) fn fill_letters(rng: &mut StdRng, text: &mut [u8]) {
    text.iter_mut().for_each(|place| *place = rng.random_range(b'A'..=b'Z'));
}

/// Fills `text` with decimal digits.
pub(crate) fn fill_digits(rng: &mut StdRng, text: &mut [u8]) {
    text.iter_mut().for_each(|place| *place = rng.random_range(b'0'..=b'9'));
}
