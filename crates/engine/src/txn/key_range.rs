//! Ranges of keys.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: `..`, or any other kind of range over byte strings, such as `b"a"..b"b"`,
/// `start..=end` or `..key` for `Vec<u8>`, `&[u8]`, `[u8; N]` and other types; or a pair of bounds.
pub trait KeyRange {
    /// Returns where the range begins and ends. A type of the program can be a range, too:
    ///
    /// ```
    /// # use std::ops::Bound;
    /// # fn main() -> duramen::Result<()> {
    /// # let db = duramen::Db::in_memory(duramen::Options::small())?;
    /// # let orders = db.table("orders")?;
    /// use duramen::KeyRange;
    ///
    /// /// The orders of a day: their keys begin with it.
    /// struct Day(u16);
    ///
    /// impl KeyRange for Day {
    ///     fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    ///         (self.0.to_be_bytes()..(self.0 + 1).to_be_bytes()).into_bounds()
    ///     }
    /// }
    ///
    /// # db.run(|txn| {
    /// #     txn.put(&orders, &[0, 3, 17], b"bolts")?;
    /// #     txn.put(&orders, &[0, 3, 18], b"nuts")?;
    /// #     txn.put(&orders, &[0, 4, 19], b"nails")
    /// # })?;
    /// assert_eq!(db.begin().scan(&orders, Day(3)).count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let own = |bound: Bound<K>| bound.map(|key| key.as_ref().to_vec());
        (own(self.0), own(self.1))
    }
}

macro_rules! ranges {
    ($($range:ident: |$value:ident| $bounds:expr;)*) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range<K> {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let $value = self;
                $bounds.into_bounds()
            }
        })*
    };
}

ranges! {
    Range: |range| (Bound::Included(range.start), Bound::Excluded(range.end));
    RangeFrom: |range| (Bound::Included(range.start), Bound::Unbounded);
    RangeTo: |range| (Bound::Unbounded, Bound::Excluded(range.end));
    RangeToInclusive: |range| (Bound::Unbounded, Bound::Included(range.end));
    RangeInclusive: |range| {
        let (start, end) = range.into_inner();
        (Bound::Included(start), Bound::Included(end))
    };
}

/// Returns the range of the keys that begin with `prefix`.
pub(super) fn of_prefix(prefix: &[u8]) -> impl KeyRange + use<> {
    // The first key behind them: the last byte that can be raised is, and those after it go.
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX);
    let behind = last.map(|at| {
        let mut behind = prefix[..=at].to_vec();
        behind[at] += 1;
        behind
    });
    (Bound::Included(prefix.to_vec()), behind.map_or(Bound::Unbounded, Bound::Excluded))
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_has_exactly_its_keys() {
        let bytes = [0, 1, 0xfe, 0xff];
        let mut keys: Vec<Vec<u8>> = vec![Vec::new()];
        for len in 0..3 {
            let longer: Vec<_> = keys.iter().filter(|key| key.len() == len).cloned().collect();
            keys.extend(longer.iter().flat_map(|key| bytes.map(|byte| [&key[..], &[byte]].concat())));
        }
        for prefix in &keys {
            let (lower, upper) = of_prefix(prefix).into_bounds();
            for key in &keys {
                let is_within = std::ops::RangeBounds::contains(&(lower.clone(), upper.clone()), key);
                assert_eq!(is_within, key.starts_with(prefix), "{key:?} of {prefix:?}");
            }
        }
    }
}
