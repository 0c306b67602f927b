//! Numbers in the order of their last use.

/// No number.
const NONE: u32 = u32::MAX;

/// A list of small numbers, the least recently used one first: links in two arrays.
#[derive(Debug)]
pub(super) struct Recency {
    /// Of each number its neighbours in the list; of one that is not in it, itself twice. The last
    /// entry is the list's head.
    links: Vec<(u32, u32)>,
    len: usize,
}

impl Recency {
    /// Returns an empty list for numbers below `count`.
    pub(super) fn new(count: usize) -> Self {
        assert!(count < NONE as usize);
        Self { links: (0..=count as u32).map(|number| (number, number)).collect(), len: 0 }
    }

    fn head(&self) -> u32 {
        self.links.len() as u32 - 1
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn contains(&self, number: u32) -> bool {
        self.links[number as usize].0 != number
    }

    /// Makes `number` the most recently used one.
    pub(super) fn touch(&mut self, number: u32) {
        assert!(number < self.head());
        self.remove(number);
        let head = self.head();
        let newest = self.links[head as usize].0;
        self.links[number as usize] = (newest, head);
        self.links[newest as usize].1 = number;
        self.links[head as usize].0 = number;
        self.len += 1;
    }

    /// Takes `number` out; returns whether it was there.
    pub(super) fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        let (older, newer) = self.links[number as usize];
        self.links[older as usize].1 = newer;
        self.links[newer as usize].0 = older;
        self.links[number as usize] = (number, number);
        self.len -= 1;
        true
    }

    /// Returns the least recently used number.
    pub(super) fn oldest(&self) -> Option<u32> {
        self.newer(self.head())
    }

    /// Returns all numbers, the least recently used one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        std::iter::successors(self.oldest(), |number| self.newer(*number))
    }

    fn newer(&self, number: u32) -> Option<u32> {
        let next = self.links[number as usize].1;
        (next != self.head()).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_last_use() {
        let mut recency = Recency::new(4);
        assert_eq!((recency.oldest(), recency.len()), (None, 0));
        for number in [2, 0, 3, 2] {
            recency.touch(number);
        }
        assert_eq!(recency.iter().collect::<Vec<_>>(), [0, 3, 2]);
        assert!(recency.remove(3) && !recency.remove(3) && !recency.contains(3) && recency.contains(0));
        assert_eq!((recency.oldest(), recency.len()), (Some(0), 2));
        recency.touch(0);
        assert_eq!(recency.iter().collect::<Vec<_>>(), [2, 0]);
    }

    /// A list as it is written in books.
    #[test]
    fn it_agrees_with_a_plain_list() {
        let (mut recency, mut list, mut random) =
            (Recency::new(9), Vec::<u32>::new(), duramen_sync::SplitMix64::new(3));
        for _ in 0..5000 {
            let number = random.below(9) as u32;
            let there = list.iter().position(|other| *other == number).map(|at| list.remove(at)).is_some();
            if random.below(3) == 0 {
                assert_eq!(recency.remove(number), there);
            } else {
                recency.touch(number);
                list.push(number);
            }
            assert_eq!((recency.iter().collect::<Vec<_>>(), recency.len()), (list.clone(), list.len()));
        }
    }
}
