//! Tags of a set-associative cache, with whatever its lines carry. Values lie elsewhere: all valid
//! copies of a line are equal, so the model has one.

/// A line in a cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<S> {
    line: u32,
    used: u64,
    pub(super) state: S,
}

/// A cache.
#[derive(Clone, Debug)]
pub(super) struct Cache<S> {
    ways: Vec<Option<Way<S>>>,
    associativity: usize,
    /// Neighbouring lines of this cache are so far apart.
    stride: u32,
    clock: u64,
}

impl<S: Copy> Cache<S> {
    /// Returns an empty cache for every `stride`-th line.
    pub(super) fn new(lines: usize, associativity: usize, stride: usize) -> Self {
        Self { ways: vec![None; lines], associativity, stride: stride as u32, clock: 0 }
    }

    fn set(&self, line: u32) -> std::ops::Range<usize> {
        let sets = self.ways.len() / self.associativity;
        let first = (line / self.stride) as usize % sets * self.associativity;
        first..first + self.associativity
    }

    /// Returns the line's state and makes it the last used.
    pub(super) fn touch(&mut self, line: u32) -> Option<&mut S> {
        self.clock += 1;
        let (clock, set) = (self.clock, self.set(line));
        let way = self.ways[set].iter_mut().flatten().find(|way| way.line == line)?;
        way.used = clock;
        Some(&mut way.state)
    }

    /// Returns the line's state.
    pub(super) fn get(&self, line: u32) -> Option<&S> {
        self.ways[self.set(line)].iter().flatten().find(|way| way.line == line).map(|way| &way.state)
    }

    /// Returns the line's state, to change it.
    pub(super) fn get_mut(&mut self, line: u32) -> Option<&mut S> {
        let set = self.set(line);
        self.ways[set].iter_mut().flatten().find(|way| way.line == line).map(|way| &mut way.state)
    }

    /// Removes the line.
    pub(super) fn remove(&mut self, line: u32) -> Option<S> {
        let set = self.set(line);
        let way = self.ways[set].iter_mut().find(|way| way.as_ref().is_some_and(|way| way.line == line))?;
        way.take().map(|way| way.state)
    }

    /// Returns what must leave before `line` can enter: nothing (`Ok(None)`), or the line that was
    /// not used for the longest time among those that `may` leave; `Err` if none may.
    pub(super) fn victim(&self, line: u32, may: impl Fn(u32) -> bool) -> Result<Option<u32>, ()> {
        let set = &self.ways[self.set(line)];
        if set.iter().any(Option::is_none) {
            return Ok(None);
        }
        let movable = set.iter().flatten().filter(|way| may(way.line));
        movable.min_by_key(|way| way.used).map(|way| Some(way.line)).ok_or(())
    }

    /// Puts in a line that is not there; its set must have room.
    pub(super) fn insert(&mut self, line: u32, state: S) {
        self.clock += 1;
        let (clock, set) = (self.clock, self.set(line));
        debug_assert!(self.get(line).is_none(), "the line is there already");
        let way = self.ways[set].iter_mut().find(|way| way.is_none()).expect("the set has room");
        *way = Some(Way { line, used: clock, state });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_that_was_not_used_for_longest_leaves() {
        let mut cache = Cache::new(4, 2, 1);
        assert_eq!(cache.victim(0, |_| true), Ok(None));
        cache.insert(0, 'a');
        cache.insert(2, 'b');
        cache.insert(1, 'c');
        assert_eq!(cache.victim(4, |_| true), Ok(Some(0)));
        assert_eq!(cache.touch(0), Some(&mut 'a'));
        assert_eq!(cache.victim(4, |_| true), Ok(Some(2)));
        assert_eq!(cache.victim(4, |line| line == 0), Ok(Some(0)));
        assert_eq!(cache.victim(4, |_| false), Err(()));
        assert_eq!((cache.remove(2), cache.remove(2)), (Some('b'), None));
        assert_eq!(cache.victim(4, |_| true), Ok(None));
    }

    #[test]
    fn a_tile_uses_all_its_sets() {
        let mut cache = Cache::new(4, 2, 8);
        for line in [0, 8, 16, 24] {
            assert_eq!(cache.victim(line, |_| true), Ok(None));
            cache.insert(line, ());
        }
    }
}
