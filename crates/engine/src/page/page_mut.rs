//! Writing pages: every change of a page's bytes also marks the cache lines that it touches.

use std::ops::{Deref, Range};

use duramen_types::PAGE_SIZE;

use super::lines::{LINE_SIZE, Lines};

/// A page to which the caller has exclusive access, and the set of its changed lines.
///
/// Reads go through the slice that this dereferences to. The methods below are the only way to
/// change the bytes.
#[derive(Debug)]
pub(crate) struct PageMut<'a> {
    /// An array, because the compiler drops most bounds checks where it knows the length.
    bytes: &'a mut [u8; PAGE_SIZE],
    pub(super) lines: &'a mut Lines,
}

impl<'a> PageMut<'a> {
    /// Wraps the bytes of a page. Each change adds to `lines`.
    #[inline]
    pub(crate) fn new(bytes: &'a mut [u8], lines: &'a mut Lines) -> Self {
        Self { bytes: bytes.try_into().expect("a page has PAGE_SIZE bytes"), lines }
    }

    /// Returns the same page for a shorter time.
    #[inline(always)]
    pub(crate) fn reborrow(&mut self) -> PageMut<'_> {
        PageMut { bytes: self.bytes, lines: self.lines }
    }

    /// Overwrites the bytes from `at` on.
    #[inline(always)]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.lines.mark(at..at + bytes.len());
    }

    /// Overwrites a field that is aligned to its size, so that it lies in one line.
    #[inline(always)]
    pub(crate) fn put_field<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        const { assert!(N.is_power_of_two() && N <= LINE_SIZE) };
        debug_assert!(at.is_multiple_of(N), "the field at {at} is not aligned");
        self.bytes[at..at + N].copy_from_slice(&bytes);
        self.lines.mark_line_of(at);
    }

    /// Overwrites the bytes from `at` on with the concatenation of `parts`.
    #[inline]
    pub(crate) fn put_parts<const N: usize>(&mut self, at: usize, parts: [&[u8]; N]) {
        let mut end = at;
        for part in parts {
            self.bytes[end..end + part.len()].copy_from_slice(part);
            end += part.len();
        }
        self.lines.mark(at..end);
    }

    /// Copies the bytes in `range` to `to`. Both places may overlap.
    #[inline]
    pub(crate) fn move_within(&mut self, range: Range<usize>, to: usize) {
        let len = range.len();
        self.bytes.copy_within(range, to);
        self.lines.mark(to..to + len);
    }

    /// Zeroes the bytes from `at` to the end of the page.
    pub(crate) fn zero_from(&mut self, at: usize) {
        self.bytes[at..].fill(0);
        self.lines.mark(at..PAGE_SIZE);
    }
}

impl Deref for PageMut<'_> {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A page outside the buffer pool, in which the contents of a page are built.
#[derive(Clone, Debug)]
pub(crate) struct PageBuf {
    bytes: Vec<u8>,
    lines: Lines,
}

impl PageBuf {
    /// Creates a page of zeros.
    pub(crate) fn zeroed() -> Self {
        Self { bytes: vec![0; PAGE_SIZE], lines: Lines::NONE }
    }

    /// Creates a copy of a page.
    pub(crate) fn copy_of(page: &[u8]) -> Self {
        Self { bytes: page.to_vec(), lines: Lines::NONE }
    }

    /// Returns the page for writing.
    pub(crate) fn page_mut(&mut self) -> PageMut<'_> {
        PageMut::new(&mut self.bytes, &mut self.lines)
    }
}

impl Deref for PageBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
impl PageMut<'_> {
    /// Changes a page; returns what `change` returns. Checks that the change has marked every line
    /// in which the page differs.
    pub(crate) fn tracked<R>(bytes: &mut [u8], change: impl FnOnce(PageMut<'_>) -> R) -> R {
        let (before, mut lines) = (bytes.to_vec(), Lines::NONE);
        let result = change(PageMut::new(bytes, &mut lines));
        let pairs = before.chunks(LINE_SIZE).zip(bytes.chunks(LINE_SIZE));
        for (line, (before, after)) in pairs.enumerate() {
            assert!(before == after || lines.contains(line), "line {line} has changed, but only {lines:?} are marked");
        }
        result
    }
}
