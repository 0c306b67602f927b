//! Misses of a cache with any number of pages, from one pass over the visits.
//!
//! A cache that evicts the least recently used page has a page exactly if fewer different pages
//! than it can hold were visited since the last visit of that page: its *stack distance*. A tree of
//! counts over the visits (a Fenwick tree) has a 1 at the last visit of each page, so that a sum
//! gives the distance (Mattson et al., *Evaluation techniques for storage hierarchies*, 1970).

use std::collections::HashMap;

/// Returns for each visit how many different pages were visited since the last visit of its page,
/// the page itself included; nothing at the first visit of a page.
pub(crate) fn stack_distances(pages: &[u64]) -> Vec<Option<usize>> {
    let mut counts = Fenwick(vec![0; pages.len() + 1]);
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut distances = Vec::with_capacity(pages.len());
    for (at, &page) in pages.iter().enumerate() {
        let before = last.insert(page, at);
        distances.push(before.map(|before| {
            let between = counts.below(at) - counts.below(before);
            counts.add(before, -1);
            between as usize
        }));
        counts.add(at, 1);
    }
    distances
}

/// Returns the share of visits that a cache of `size` pages misses; not a number without visits.
pub(crate) fn miss_rate<'a>(distances: impl Iterator<Item = &'a Option<usize>>, size: usize) -> f64 {
    let (mut all, mut missed) = (0_u64, 0_u64);
    for distance in distances {
        all += 1;
        missed += u64::from(distance.is_none_or(|distance| distance > size));
    }
    missed as f64 / all as f64
}

/// Sums of prefixes that can change.
struct Fenwick(Vec<i64>);

impl Fenwick {
    fn add(&mut self, at: usize, value: i64) {
        let mut node = at + 1;
        while node < self.0.len() {
            self.0[node] += value;
            node += node & node.wrapping_neg();
        }
    }

    /// Returns the sum of what lies before `at`.
    fn below(&self, at: usize) -> i64 {
        let (mut node, mut sum) = (at, 0);
        while node > 0 {
            sum += self.0[node];
            node &= node - 1;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache as it is written in books.
    fn misses(pages: &[u64], size: usize) -> usize {
        let mut cache: Vec<u64> = Vec::new();
        let mut misses = 0;
        for page in pages {
            match cache.iter().position(|cached| cached == page) {
                Some(at) => {
                    cache.remove(at);
                }
                None => misses += 1,
            }
            cache.insert(0, *page);
            cache.truncate(size);
        }
        misses
    }

    #[test]
    fn distances_give_the_misses_of_every_cache() {
        let mut random = duramen_sync::SplitMix64::new(7);
        let pages: Vec<u64> = (0..2000).map(|_| random.below(40) * random.below(3)).collect();
        let distances = stack_distances(&pages);
        for size in [1, 2, 3, 7, 20, 50, 100] {
            let expected = misses(&pages, size) as f64 / pages.len() as f64;
            assert_eq!(miss_rate(distances.iter(), size), expected, "{size}");
        }
        assert_eq!(stack_distances(&[5, 6, 5, 5]), [None, None, Some(2), Some(1)]);
        assert!(miss_rate([].iter(), 1).is_nan());
    }
}
