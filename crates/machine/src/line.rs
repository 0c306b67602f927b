//! Cache lines.

use crate::arena::HEAP_BYTES;
use crate::number_map::NumberMap;

/// A line of memory: numbered from zero, so that the number is the same on every host. The run's
/// heap comes first; consecutive numbers in it are consecutive addresses. Pages elsewhere are
/// numbered as they are first touched; what a thread does on its own stack has no lines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Line(pub(crate) u64);

/// Bytes in a line, on every machine described here.
pub(crate) const LINE_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
const PAGE_LINES: u64 = (PAGE_BYTES / LINE_BYTES) as u64;

/// Gives addresses their lines.
#[derive(Debug)]
pub(crate) struct Lines {
    heap: usize,
    /// First lines of the pages outside the heap.
    pages: NumberMap<usize, u64>,
    next: u64,
    /// The page looked up last, and its first line.
    last: (usize, u64),
}

impl Lines {
    pub(crate) fn new(heap: usize) -> Self {
        let next = (HEAP_BYTES / LINE_BYTES) as u64;
        Self { heap, pages: NumberMap::default(), next, last: (usize::MAX, 0) }
    }

    /// Returns the line that holds the byte at `address`.
    pub(crate) fn of(&mut self, address: usize) -> Line {
        let offset = address.wrapping_sub(self.heap);
        if offset < HEAP_BYTES {
            return Line((offset / LINE_BYTES) as u64);
        }
        let page = address / PAGE_BYTES;
        if self.last.0 != page {
            let next = &mut self.next;
            let first = *self.pages.entry(page).or_insert_with(|| {
                *next += PAGE_LINES;
                *next - PAGE_LINES
            });
            self.last = (page, first);
        }
        Line(self.last.1 + (address % PAGE_BYTES / LINE_BYTES) as u64)
    }

    /// Returns how many of the `len` bytes from `address` lie on lines with consecutive numbers.
    pub(crate) fn piece(&self, address: usize, len: usize) -> usize {
        if address.wrapping_sub(self.heap) < HEAP_BYTES { len } else { len.min(PAGE_BYTES - address % PAGE_BYTES) }
    }

    /// Records that the `len` bytes from `address` are newly mapped memory, `copies` times in a
    /// row. Both are whole pages.
    pub(crate) fn map(&mut self, address: usize, len: usize, copies: usize) {
        assert!(address.is_multiple_of(PAGE_BYTES) && len.is_multiple_of(PAGE_BYTES), "memory is mapped in pages");
        let pages = len / PAGE_BYTES;
        for at in 0..pages * copies {
            self.pages.insert(address / PAGE_BYTES + at, self.next + (at % pages) as u64 * PAGE_LINES);
        }
        self.next += pages as u64 * PAGE_LINES;
        self.last = (usize::MAX, 0);
    }
}
