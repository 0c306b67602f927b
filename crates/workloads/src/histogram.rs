//! Latency distributions.

use std::time::Duration;

use hdrhistogram::Histogram;

/// A distribution of latencies from 1 ns to an hour, to three significant digits. Each thread fills
/// its own; they are merged when the run is over.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Latencies {
    const LONGEST_NANOS: u64 = 3_600_000_000_000;

    /// Returns an empty distribution.
    pub fn new() -> Self {
        Self(Histogram::new_with_bounds(1, Self::LONGEST_NANOS, 3).expect("the bounds are in order"))
    }

    /// Adds one latency; longer than an hour counts as an hour.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX).max(1));
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all distributions have the same bounds");
    }

    /// Returns how many latencies there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency that the share `quantile` (0 to 1) of all does not exceed; zero when
    /// there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_quantile(quantile))
    }

    /// Returns the longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_merged_distributions() {
        let mut all = Latencies::new();
        for part in 0..2u64 {
            let mut one = Latencies::new();
            (1..=50).for_each(|step| one.record(Duration::from_micros(part * 50 + step)));
            all.merge(&one);
        }
        assert_eq!(all.count(), 100);
        assert!(all.quantile(0.5).abs_diff(Duration::from_micros(50)) < Duration::from_nanos(100));
        assert!(all.max().abs_diff(Duration::from_micros(100)) < Duration::from_nanos(200));
        all.record(Duration::from_secs(36_000));
        assert!(all.max() > Duration::from_secs(3_599));
    }
}
