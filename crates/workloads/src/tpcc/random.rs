//! The specification's constants, distributions and names (clauses 2.1.6 and 4.3.2).

use rand::RngExt;
use rand::rngs::StdRng;

use super::key::Name;
use super::row::Address;
use super::scale::Scale;
use crate::random::{Chooser, fill_alphanumeric, fill_digits, fill_letters};

/// The constant C of the last names of the population ...
const C_LAST_LOADED: u64 = 123;
/// ... and of the run: they must differ by 65 to 119, but not by 96 or 112.
const C_LAST_RUN: u64 = 223;
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7_911;

/// What transactions draw their rows from: numbers from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choosers {
    pub(crate) scale: Scale,
    pub(crate) customer: Chooser,
    pub(crate) name: Chooser,
    pub(crate) item: Chooser,
}

impl Choosers {
    pub(crate) fn new(scale: Scale) -> Self {
        let customer = Chooser::NonUniform { first: 1, count: scale.customers, a: 1_023, c: C_CUSTOMER };
        let item = Chooser::NonUniform { first: 1, count: scale.items, a: 8_191, c: C_ITEM };
        Self { scale, customer, name: names(scale, C_LAST_RUN), item }
    }
}

/// Returns the last names that the population draws.
pub(super) fn loaded_names(scale: Scale) -> Chooser {
    names(scale, C_LAST_LOADED)
}

fn names(scale: Scale, c: u64) -> Chooser {
    Chooser::NonUniform { first: 0, count: scale.names(), a: 255, c }
}

/// Last name number `number`, below 1,000: a syllable for each digit.
pub(super) fn last_name(number: u64) -> Name {
    const SYLLABLES: [&[u8]; 10] =
        [b"BAR", b"OUGHT", b"ABLE", b"PRI", b"PRES", b"ESE", b"ANTI", b"CALLY", b"ATION", b"EING"];
    let mut name = [0; 16];
    let mut at = 0;
    for digit in [number / 100 % 10, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[digit as usize];
        name[at..at + syllable.len()].copy_from_slice(syllable);
        at += syllable.len();
    }
    name
}

/// Letters and digits, `least` to `N` of them, zeros behind.
pub(super) fn text<const N: usize>(rng: &mut StdRng, least: usize) -> [u8; N] {
    let mut text = [0; N];
    let len = rng.random_range(least..=N);
    fill_alphanumeric(rng, &mut text[..len]);
    text
}

/// Digits.
pub(super) fn digits<const N: usize>(rng: &mut StdRng) -> [u8; N] {
    let mut digits = [0; N];
    fill_digits(rng, &mut digits);
    digits
}

/// Returns a text for an item or a stock: 26 to 50 characters, of which one in ten has "ORIGINAL"
/// somewhere.
pub(super) fn brand(rng: &mut StdRng) -> Vec<u8> {
    let mut data = vec![0; rng.random_range(26..=50)];
    fill_alphanumeric(rng, &mut data);
    if rng.random_range(0..10) == 0 {
        let at = rng.random_range(0..=data.len() - 8);
        data[at..at + 8].copy_from_slice(b"ORIGINAL");
    }
    data
}

/// Returns an address.
pub(super) fn address(rng: &mut StdRng) -> Address {
    let mut state = [0; 2];
    fill_letters(rng, &mut state);
    let mut zip = *b"000011111";
    fill_digits(rng, &mut zip[..4]);
    Address { street_1: text(rng, 10), street_2: text(rng, 10), city: text(rng, 10), state, zip }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn names_are_made_of_syllables() {
        let name =
            |number| String::from_utf8(last_name(number).into_iter().filter(|byte| *byte > 0).collect()).unwrap();
        assert_eq!([name(0), name(371), name(999)], ["BARBARBAR", "PRICALLYOUGHT", "EINGEINGEING"]);
        let longest = (0..1_000).map(|number| name(number).len()).max();
        assert_eq!(longest, Some(15));
    }

    #[test]
    fn the_constants_are_allowed() {
        let difference = C_LAST_RUN.abs_diff(C_LAST_LOADED);
        assert!((65..=119).contains(&difference) && difference != 96 && difference != 112);
        const { assert!(C_LAST_LOADED <= 255 && C_LAST_RUN <= 255 && C_CUSTOMER <= 1_023 && C_ITEM <= 8_191) };
    }

    #[test]
    fn texts_have_their_lengths() {
        let mut rng = StdRng::seed_from_u64(1);
        let mut originals = 0;
        for _ in 0..5_000 {
            let data = brand(&mut rng);
            assert!((26..=50).contains(&data.len()) && data.iter().all(u8::is_ascii_graphic));
            originals += u32::from(crate::tpcc::row::is_original(&data));
            let text: [u8; 24] = text(&mut rng, 14);
            assert!(text[..14].iter().all(u8::is_ascii_graphic));
        }
        assert!((400..600).contains(&originals), "{originals}");
    }
}
