//! Zipfian ranks.
//!
//! Rejection-inversion (W. Hörmann, G. Derflinger: *Rejection-inversion to generate variates from
//! monotone discrete distributions*, TOMACS 1996): exact for every exponent, in constant time, and
//! without the table or the sum over all ranks that other methods need, so that the number of ranks
//! may change at any time.

use rand::RngExt;
use rand::rngs::StdRng;

/// Ranks from 0 to `count` - 1; rank `k` comes up with a probability in proportion to 1 / (k +
/// 1)^`theta`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Zipf {
    count: u64,
    theta: f64,
    /// The integral of the hat function up to the left end of the first rank, ...
    first: f64,
    /// ... and to the right end of the last.
    last: f64,
    /// Points so close below their rank are accepted without further computation.
    close: f64,
}

impl Zipf {
    /// `count` ranks, at least 1, with exponent `theta`, at least 0 (all ranks equally likely).
    ///
    /// # Panics
    /// When there is no rank, or when `theta` is negative or no number.
    pub fn new(count: u64, theta: f64) -> Self {
        assert!(count > 0 && theta >= 0.0 && theta.is_finite(), "no distribution: {count} ranks, exponent {theta}");
        let mut zipf = Self { count: 0, theta, first: integral(1.5, theta) - 1.0, last: 0.0, close: 0.0 };
        zipf.close = 2.0 - inverse(integral(2.5, theta) - 2f64.powf(-theta), theta);
        zipf.set_count(count);
        zipf
    }

    /// Changes the number of ranks.
    pub fn set_count(&mut self, count: u64) {
        self.count = count;
        self.last = integral(count as f64 + 0.5, self.theta);
    }

    /// Returns the number of ranks.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Draws a rank.
    pub fn draw(&self, rng: &mut StdRng) -> u64 {
        loop {
            let share: f64 = rng.random();
            let area = self.last + share * (self.first - self.last);
            let point = inverse(area, self.theta);
            let rank = ((point + 0.5) as u64).clamp(1, self.count);
            let whole = rank as f64;
            if whole - point <= self.close || area >= integral(whole + 0.5, self.theta) - whole.powf(-self.theta) {
                return rank - 1;
            }
        }
    }
}

/// Returns the integral of x^-theta from 1 to `x`.
fn integral(x: f64, theta: f64) -> f64 {
    let log = x.ln();
    let exponent = (1.0 - theta) * log;
    // expm1(e) / e, which tends to 1.
    let ratio = if exponent.abs() > 1e-8 { exponent.exp_m1() / exponent } else { 1.0 + exponent / 2.0 };
    ratio * log
}

/// Returns the point up to which the integral is `area`.
fn inverse(area: f64, theta: f64) -> f64 {
    let scaled = (area * (1.0 - theta)).max(-1.0);
    // ln(1 + s) / s, which tends to 1.
    let ratio = if scaled.abs() > 1e-8 { scaled.ln_1p() / scaled } else { 1.0 - scaled / 2.0 };
    (ratio * area).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn ranks_come_up_as_often_as_they_should() {
        const DRAWS: u32 = 200_000;
        for theta in [0.0, 0.5, 0.99, 1.0, 2.5] {
            for count in [1, 2, 30, 5_000] {
                let zipf = Zipf::new(count, theta);
                let mut rng = StdRng::seed_from_u64(11);
                let mut found = vec![0u32; count as usize];
                (0..DRAWS).for_each(|_| found[zipf.draw(&mut rng) as usize] += 1);
                let weight = |rank: usize| (rank as f64 + 1.0).powf(-theta);
                let sum: f64 = (0..count as usize).map(weight).sum();
                for (rank, &found) in found.iter().enumerate().take(10) {
                    let expected = weight(rank) / sum * f64::from(DRAWS);
                    let tolerance = 6.0 * expected.sqrt() + 3.0;
                    assert!(
                        (f64::from(found) - expected).abs() < tolerance,
                        "exponent {theta}, rank {rank} of {count}: {found}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_number_of_ranks_may_grow() {
        let mut zipf = Zipf::new(10, 0.99);
        zipf.set_count(1_000);
        assert_eq!(zipf, Zipf::new(1_000, 0.99));
        assert_eq!(zipf.count(), 1_000);
    }
}
