//! Which of many numbered rows a transaction takes.

use rand::RngExt;
use rand::rngs::StdRng;

use super::zipf::Zipf;

/// Draws numbers from 0 to a count.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Chooser {
    /// All of them equally often.
    Uniform {
        /// How many there are.
        count: u64,
    },
    /// The skew of the TPC-C and TATP specifications: NURand(`a`, `first`, `first` + `count` - 1),
    /// less `first`.
    NonUniform {
        /// What the specification calls the first of them.
        first: u64,
        /// How many there are.
        count: u64,
        /// A power of two less 1.
        a: u64,
        /// Added before the remainder is taken.
        c: u64,
    },
    /// The lower the more often.
    Zipfian(Zipf),
}

impl Chooser {
    /// `standard`, unless a skew is asked for: then Zipfian with this exponent, 0 being uniform.
    pub fn with_skew(standard: Self, skew: Option<f64>) -> Self {
        match skew {
            None => standard,
            Some(0.0) => Self::Uniform { count: standard.count() },
            Some(theta) => Self::Zipfian(Zipf::new(standard.count(), theta)),
        }
    }

    /// Returns how many numbers there are to draw from.
    pub fn count(&self) -> u64 {
        match self {
            Self::Uniform { count } | Self::NonUniform { count, .. } => *count,
            Self::Zipfian(zipf) => zipf.count(),
        }
    }

    /// Draws a number.
    #[inline]
    pub fn draw(&self, rng: &mut StdRng) -> u64 {
        match self {
            Self::Uniform { count } => rng.random_range(0..*count),
            Self::NonUniform { first, count, a, c } => {
                ((rng.random_range(0..=*a) | rng.random_range(*first..first + count)) + c) % count
            }
            Self::Zipfian(zipf) => zipf.draw(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn numbers_stay_in_range_and_skew_shows() {
        let mut rng = StdRng::seed_from_u64(5);
        let uniform = Chooser::Uniform { count: 1_000 };
        let skewed = Chooser::NonUniform { first: 1, count: 1_000, a: 1_023, c: 7 };
        let zipfian = Chooser::with_skew(uniform, Some(1.2));
        assert_eq!(Chooser::with_skew(skewed, None), skewed);
        assert_eq!(Chooser::with_skew(skewed, Some(0.0)), uniform);
        let most = |chooser: Chooser, rng: &mut StdRng| {
            let mut found = [0u32; 1_000];
            (0..100_000).for_each(|_| found[chooser.draw(rng) as usize] += 1);
            found.into_iter().max()
        };
        let (even, uneven, steep) = (most(uniform, &mut rng), most(skewed, &mut rng), most(zipfian, &mut rng));
        assert!(even < Some(200) && uneven > Some(300) && steep > Some(10_000), "{even:?} {uneven:?} {steep:?}");
    }
}
