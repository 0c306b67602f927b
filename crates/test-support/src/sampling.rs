//! What the long suite tries, and a test run that nobody waits long for samples.

use std::time::Duration;

use crate::random::announced_seed;

/// Whether this is the long suite: the environment variable `DURAMEN_LONG` is set.
pub fn is_long() -> bool {
    std::env::var_os("DURAMEN_LONG").is_some()
}

/// Time for a random search; the long suite takes ten times as much.
pub fn search_time(sample: Duration) -> Duration {
    if is_long() { sample * 10 } else { sample }
}

/// Which points of a sweep are tried.
#[derive(Clone, Copy, Debug)]
pub struct Stride {
    first: u64,
    step: u64,
}

impl Stride {
    /// Every `step`-th.
    pub fn of(step: u64) -> Self {
        Self { first: 0, step }
    }

    /// Every `step`-th in the long suite; of these, one in `one_in` otherwise, from a random one
    /// on.
    pub fn sampled(suite: &str, step: u64, one_in: u64) -> Self {
        if is_long() {
            return Self::of(step);
        }
        Self { first: announced_seed(suite) % one_in * step, step: one_in * step }
    }

    /// Those below `end`.
    pub fn until(self, end: u64) -> impl Iterator<Item = u64> {
        (self.first..end).step_by(self.step as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parts_of_the_whole() {
        assert_eq!(Stride::of(3).until(10).collect::<Vec<_>>(), [0, 3, 6, 9]);
        let sampled: Vec<u64> = Stride::sampled("a test", 3, 4).until(100).collect();
        assert!(sampled.iter().all(|point| point % 3 == 0));
        assert!(if is_long() { sampled.len() == 34 } else { (8..=9).contains(&sampled.len()) }, "{sampled:?}");
    }
}
