//! A set of lines, as runs of neighbours: objects are many lines in a row.

use std::ops::Range;

/// The set.
#[derive(Debug, Default)]
pub(crate) struct LineSet {
    /// In order; no two touch each other.
    runs: Vec<Range<u64>>,
}

impl LineSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Returns the runs, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Range<u64>> {
        self.runs.iter()
    }

    #[inline]
    pub(crate) fn contains(&self, line: u64) -> bool {
        let from = match self.runs.last() {
            // Lines mostly come in ascending order.
            Some(last) if last.start <= line => self.runs.len() - 1,
            _ => self.runs.partition_point(|run| run.end <= line),
        };
        self.runs.get(from).is_some_and(|run| run.contains(&line))
    }

    /// Returns whether all of these lines are in the set.
    pub(crate) fn covers(&self, lines: &Range<u64>) -> bool {
        let from = self.runs.partition_point(|run| run.end <= lines.start);
        self.runs.get(from).is_some_and(|run| run.start <= lines.start && lines.end <= run.end)
    }

    /// Returns whether none of these lines is in the set.
    pub(crate) fn is_disjoint(&self, lines: &Range<u64>) -> bool {
        let from = self.runs.partition_point(|run| run.end <= lines.start);
        self.runs.get(from).is_none_or(|run| lines.end <= run.start)
    }

    /// Adds lines, of which some may be in the set.
    pub(crate) fn insert(&mut self, lines: Range<u64>) {
        match self.runs.last_mut() {
            Some(last) if last.end < lines.start => return self.runs.push(lines),
            Some(last) if last.end == lines.start => return last.end = lines.end,
            _ => {}
        }
        let from = self.runs.partition_point(|run| run.end < lines.start);
        let to = self.runs.partition_point(|run| run.start <= lines.end);
        let Some(touched) = self.runs.get(from..to).filter(|touched| !touched.is_empty()) else {
            return self.runs.insert(from, lines);
        };
        let whole = lines.start.min(touched[0].start)..lines.end.max(touched[touched.len() - 1].end);
        self.runs.splice(from..to, [whole]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use duramen_test_support::Rng;

    use super::*;

    #[test]
    fn it_behaves_like_a_set_and_keeps_neighbours_together() {
        let mut rng = Rng::new(7);
        for _ in 0..200 {
            let (mut set, mut model) = (LineSet::default(), BTreeSet::new());
            for _ in 0..rng.below(60) {
                let first = rng.below(38);
                let lines = first..first + 1 + rng.below(3);
                set.insert(lines.clone());
                model.extend(lines);
                assert!((0..42).all(|line| set.contains(line) == model.contains(&line)), "{set:?}, {model:?}");
                let from = rng.below(42);
                let some = from..from + 1 + rng.below(5);
                assert_eq!(set.covers(&some), some.clone().all(|line| model.contains(&line)), "{set:?}, {some:?}");
                assert_eq!(set.is_disjoint(&some), model.range(some.clone()).next().is_none(), "{set:?}, {some:?}");
                let flat: Vec<u64> = set.runs().cloned().flatten().collect();
                assert_eq!(flat, model.iter().copied().collect::<Vec<_>>());
                assert!(set.runs.windows(2).all(|pair| pair[0].end < pair[1].start), "{set:?}");
            }
            set.clear();
            assert!(set.is_empty() && !set.contains(0));
        }
    }
}
