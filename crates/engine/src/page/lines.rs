//! The cache lines of a page.

use std::fmt;
use std::ops::{BitOr, BitOrAssign, Range};

use duramen_types::PAGE_SIZE;

/// Size of a cache line, the unit in which persistent memory is written, in bytes.
pub(crate) const LINE_SIZE: usize = 64;

const _: () = assert!(PAGE_SIZE / LINE_SIZE == u128::BITS as usize, "a page has a line for each bit");

/// A set of the cache lines of a page. Line `n` has the bytes from `64 * n` on.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Lines(u128);

impl Lines {
    /// No line.
    pub(crate) const NONE: Self = Self(0);
    /// Every line of the page.
    pub(crate) const ALL: Self = Self(u128::MAX);

    /// Adds the lines that have one of the bytes in `range`, which lies in the page.
    #[inline(always)]
    pub(crate) fn mark(&mut self, range: Range<usize>) {
        debug_assert!(range.end <= PAGE_SIZE, "{range:?} leaves the page");
        if range.is_empty() {
            return;
        }
        // Most changes are small and stay in one line.
        if range.start / LINE_SIZE == (range.end - 1) / LINE_SIZE {
            self.mark_line_of(range.start);
        } else {
            self.mark_several(range);
        }
    }

    /// Adds the line that has the byte at `at`, which lies in the page.
    #[inline(always)]
    pub(crate) fn mark_line_of(&mut self, at: usize) {
        debug_assert!(at < PAGE_SIZE, "{at} is not in the page");
        self.0 |= 1 << (at / LINE_SIZE);
    }

    /// Adds the lines that have one of the bytes in `range`, which is not empty.
    fn mark_several(&mut self, range: Range<usize>) {
        let (first, last) = (range.start / LINE_SIZE, (range.end - 1) / LINE_SIZE);
        // The bits up to `last` without those below `first`.
        self.0 |= (2u128 << last).wrapping_sub(1 << first);
    }
}

impl Lines {
    /// Returns the set whose lines have a 1 in `bits`, line 0 in the least significant bit.
    pub(crate) const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Returns the number that [`Self::from_bits`] takes.
    #[inline]
    pub(crate) const fn bits(self) -> u128 {
        self.0
    }

    /// Returns whether the set has the line.
    #[cfg(test)]
    pub(crate) fn contains(self, line: usize) -> bool {
        self.0 >> line & 1 != 0
    }

    /// Returns whether the set has no line.
    #[cfg(test)]
    pub(crate) fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// Returns the number of lines in the set.
    pub(crate) fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the bytes of the lines, as maximal ranges in ascending order.
    pub(crate) fn bytes(self) -> impl Iterator<Item = Range<usize>> {
        self.runs().map(|run| run.start * LINE_SIZE..run.end * LINE_SIZE)
    }

    /// Returns the maximal runs of adjacent lines in the set, in ascending order.
    pub(crate) fn runs(self) -> impl Iterator<Item = Range<usize>> {
        let (mut rest, mut end) = (self.0, 0);
        std::iter::from_fn(move || {
            let skipped = rest.trailing_zeros();
            rest = rest.checked_shr(skipped)?;
            let len = rest.trailing_ones();
            rest = rest.checked_shr(len).unwrap_or(0);
            let start = end + skipped as usize;
            end = start + len as usize;
            Some(start..end)
        })
    }
}

impl BitOr for Lines {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Lines {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}
