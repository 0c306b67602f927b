//! Where rows are: the map from keys to tuples.
//!
//! The tables are heap files, as those of the paper's PostgreSQL. Rows of the population lie in the
//! order of their keys; a row that is inserted later takes the next place at the end of its table.
//! A place is not used again after its row is deleted.

use std::collections::HashMap;

use super::trace::{Page, TUPLES, Tuple};

/// A table's rows.
#[derive(Debug)]
struct File {
    /// Bytes of each key of the population.
    width: usize,
    /// The keys of the population, one behind the other, in their order.
    keys: Vec<u8>,
    first: Page,
    added: HashMap<Box<[u8]>, Tuple>,
    /// The page with room at the end, and how many of its places are taken.
    tail: (Page, u32),
}

/// The places of all rows.
#[derive(Debug, Default)]
pub(super) struct Layout {
    files: Vec<File>,
    /// Pages of the population.
    stored: u32,
    pages: u32,
}

impl Layout {
    /// Adds a table with these keys, which come in order and have one length. Returns its number.
    pub(super) fn add_table(&mut self, mut keys: impl FnMut(&mut dyn FnMut(&[u8]))) -> usize {
        assert_eq!(self.stored, self.pages, "the population comes first");
        let (mut width, mut all) = (0, Vec::new());
        keys(&mut |key| {
            assert!(all.is_empty() || key.len() == width, "keys of one table have one length");
            width = key.len();
            all.extend_from_slice(key);
        });
        let rows = all.len().checked_div(width).unwrap_or(0) as u32;
        let first = Page::new(self.pages);
        // An empty table has a page, too.
        self.pages += rows.div_ceil(TUPLES).max(1);
        self.stored = self.pages;
        let last = Page::new(self.pages - 1);
        let tail = (last, rows - (last.get() - first.get()) * TUPLES);
        self.files.push(File { width, keys: all, first, added: HashMap::new(), tail });
        self.files.len() - 1
    }

    /// Returns the pages of the population.
    pub(super) fn stored(&self) -> u32 {
        self.stored
    }

    /// Returns the place of the row under `key`, if it has one.
    pub(super) fn find(&self, table: usize, key: &[u8]) -> Option<Tuple> {
        let file = &self.files[table];
        file.populated(key).or_else(|| file.added.get(key).copied())
    }

    /// Returns the place of the row under `key`, a new one if it has none, and whether it is new.
    pub(super) fn find_or_add(&mut self, table: usize, key: &[u8]) -> (Tuple, bool) {
        if let Some(there) = self.find(table, key) {
            return (there, false);
        }
        let file = &mut self.files[table];
        if file.tail.1 == TUPLES {
            file.tail = (Page::new(self.pages), 0);
            self.pages += 1;
        }
        let place = file.tail.0.tuple(file.tail.1);
        file.tail.1 += 1;
        file.added.insert(key.into(), place);
        (place, true)
    }
}

impl File {
    fn populated(&self, key: &[u8]) -> Option<Tuple> {
        if self.width == 0 || key.len() != self.width {
            return None;
        }
        let (mut low, mut high) = (0, self.keys.len() / self.width);
        while low < high {
            let middle = low.midpoint(high);
            match self.keys[middle * self.width..][..self.width].cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let row = middle as u32;
                    return Some(Page::new(self.first.get() + row / TUPLES).tuple(row % TUPLES));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn population_lies_in_key_order_and_new_rows_behind_it() {
        let mut layout = Layout::default();
        let first = layout.add_table(|add| (0..65_u32).for_each(|row| add(&(row * 2).to_be_bytes())));
        let empty = layout.add_table(|_| {});
        assert_eq!(layout.stored(), 3);
        assert_eq!(layout.find(first, &0_u32.to_be_bytes()), Some(Page::new(0).tuple(0)));
        assert_eq!(layout.find(first, &126_u32.to_be_bytes()), Some(Page::new(0).tuple(63)));
        assert_eq!(layout.find(first, &128_u32.to_be_bytes()), Some(Page::new(1).tuple(0)));
        assert_eq!((layout.find(first, &1_u32.to_be_bytes()), layout.find(first, b"x")), (None, None));
        assert_eq!(layout.find_or_add(first, &128_u32.to_be_bytes()), (Page::new(1).tuple(0), false));
        assert_eq!(layout.find_or_add(first, &1_u32.to_be_bytes()), (Page::new(1).tuple(1), true));
        assert_eq!(layout.find_or_add(first, &1_u32.to_be_bytes()), (Page::new(1).tuple(1), false));
        assert_eq!(layout.find_or_add(empty, b"a"), (Page::new(2).tuple(0), true));
        for row in 1..=63_u32 {
            layout.find_or_add(first, &(row * 2 + 1).to_be_bytes());
        }
        assert_eq!(layout.find(first, &127_u32.to_be_bytes()), Some(Page::new(3).tuple(0)), "a new page");
        assert_eq!(layout.find_or_add(empty, b"b"), (Page::new(2).tuple(1), true));
        assert_eq!(layout.stored(), 3);
    }
}
