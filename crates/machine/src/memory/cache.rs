//! Which lines a cache holds.

use super::Line;
use crate::description::Cache;

/// The tags of a set-associative cache; each set is ordered from the line used last to the one that
/// leaves next.
#[derive(Debug)]
pub(super) struct Tags {
    ways: usize,
    sets: u32,
    /// Whether the set depends on all of a line's number, as in last-level caches: lines a power of
    /// two apart do not meet.
    hashed: bool,
    /// Line number plus one; zero is an empty way.
    tags: Vec<u32>,
}

impl Tags {
    pub(super) fn new(cache: &Cache, hashed: bool) -> Self {
        let sets = u32::try_from(cache.sets).expect("checked by the description");
        Self { ways: cache.ways, sets, hashed, tags: vec![0; cache.sets * cache.ways] }
    }

    /// Uses the line. Returns whether it is there.
    pub(super) fn use_line(&mut self, line: Line) -> bool {
        let (tag, set) = self.find(line);
        let Some(way) = set.iter().position(|&held| held == tag) else { return false };
        for way in (0..way).rev() {
            set[way + 1] = set[way];
        }
        set[0] = tag;
        true
    }

    /// Puts the line in, used last. Returns the line that has left for it.
    pub(super) fn insert(&mut self, line: Line) -> Option<Line> {
        let (tag, set) = self.find(line);
        let mut moved = tag;
        for held in set {
            std::mem::swap(held, &mut moved);
            if moved == tag || moved == 0 {
                return None;
            }
        }
        Some(Line(u64::from(moved - 1)))
    }

    /// Takes the line out, if it is there.
    pub(super) fn remove(&mut self, line: Line) {
        let (tag, set) = self.find(line);
        if let Some(way) = set.iter().position(|&held| held == tag) {
            for way in way + 1..set.len() {
                set[way - 1] = set[way];
            }
            set[set.len() - 1] = 0;
        }
    }

    fn find(&mut self, line: Line) -> (u32, &mut [u32]) {
        let number = u32::try_from(line.0).ok().filter(|&number| number < u32::MAX).expect("fewer than 2^32 - 1 lines");
        let index = if self.hashed { number ^ number >> 10 ^ number >> 20 } else { number };
        let set = if self.sets.is_power_of_two() { index & (self.sets - 1) } else { index % self.sets };
        let set = set as usize * self.ways;
        (number + 1, &mut self.tags[set..set + self.ways])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn tags() -> Tags {
        Tags::new(&Cache { sets: 2, ways: 2, latency: Time::ZERO }, false)
    }

    #[test]
    fn the_line_used_least_recently_leaves() {
        let mut tags = tags();
        assert_eq!(tags.insert(Line(0)), None);
        assert_eq!(tags.insert(Line(2)), None);
        assert_eq!(tags.insert(Line(1)), None, "another set");
        assert!(tags.use_line(Line(0)));
        assert_eq!(tags.insert(Line(4)), Some(Line(2)));
        assert!(!tags.use_line(Line(2)));
        assert!(tags.use_line(Line(0)) && tags.use_line(Line(1)) && tags.use_line(Line(4)));
    }

    #[test]
    fn hashing_parts_lines_that_are_a_power_of_two_apart() {
        let cache = Cache { sets: 1024, ways: 1, latency: Time::ZERO };
        let lost = |hashed| {
            let mut tags = Tags::new(&cache, hashed);
            (0..512).filter(|nth| tags.insert(Line(nth << 12)).is_some()).count()
        };
        assert_eq!((lost(false), lost(true)), (511, 0));
    }

    #[test]
    fn a_line_is_held_once() {
        let mut tags = tags();
        assert_eq!(tags.insert(Line(0)), None);
        assert_eq!(tags.insert(Line(0)), None);
        assert_eq!(tags.insert(Line(2)), None);
    }

    #[test]
    fn a_removed_line_leaves_room() {
        let mut tags = tags();
        tags.insert(Line(0));
        tags.insert(Line(2));
        tags.remove(Line(2));
        tags.remove(Line(2));
        assert!(!tags.use_line(Line(2)));
        assert_eq!(tags.insert(Line(4)), None);
        assert!(tags.use_line(Line(0)));
    }
}
