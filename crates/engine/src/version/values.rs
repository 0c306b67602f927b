//! The values of records from before the changes of one transaction.
//!
//! The transaction appends entries, one after the other, to segments of words. An entry never
//! moves, and once a node refers to it, it never changes, so other threads read it while the
//! transaction appends more. They learn of an entry under the mutex of the node's bucket.

use duramen_sync::OnceLock;
use duramen_sync::word::Word;
use duramen_types::TableId;

use crate::page::SlotFlags;

/// Words of the first segment: enough for one short record.
const FIRST: usize = 24;
/// Words of the largest segment.
const LARGEST: usize = 1 << 20;
/// Segments with more words than this together are not used again: they are not counted as memory.
const REUSED: usize = 3 * FIRST;
/// The word with lengths and flags, and the one with table and bucket.
const HEADER: usize = 2;
/// There was no record before the change.
const ABSENT: u16 = 1;
/// There was one.
const VALUE: u16 = 2;

/// A record as it was before a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before<'a> {
    /// There was none.
    Absent,
    /// There was none, but the leaf has a ghost with this value.
    Ghost(&'a [u8]),
    /// The value in the leaf, which may be a reference to overflow pages.
    Value(&'a [u8], SlotFlags),
}

/// The entries of one transaction.
#[derive(Debug, Default)]
pub(super) struct Values {
    first: [Word; FIRST],
    more: OnceLock<Box<Segment>>,
}

#[derive(Debug)]
struct Segment {
    words: Box<[Word]>,
    next: OnceLock<Box<Segment>>,
}

/// Where an entry begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) segment: u16,
    pub(super) word: u32,
}

impl Place {
    fn new(segment: usize, word: usize) -> Self {
        // Half a TiB in segments of the largest size.
        let segment = u16::try_from(segment).expect("the memory was used up long before");
        Self { segment, word: word as u32 }
    }
}

/// Where the next entry will begin. Kept by the transaction alone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct End {
    segment: usize,
    at: usize,
    words: usize,
}

impl End {
    /// Returns the bytes of all entries.
    pub(super) fn bytes(self) -> usize {
        self.words * size_of::<Word>()
    }
}

/// One value, with its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    /// The entry and whatever follows it.
    words: &'a [Word],
}

impl Values {
    /// Appends an entry. Only the transaction's own thread may call this, or one that has locked
    /// its buffer.
    pub(super) fn append(&self, end: &mut End, table: TableId, key: &[u8], before: Before<'_>, bucket: u32) -> Place {
        let (value, flags, kind) = match before {
            Before::Absent | Before::Ghost(_) => (&[][..], SlotFlags::NONE, ABSENT),
            Before::Value(value, flags) => (value, flags, VALUE),
        };
        let key_len = u16::try_from(key.len()).expect("the limit of a key's length was checked");
        let value_len = u16::try_from(value.len()).expect("a value in a leaf is short");
        let (key_words, value_words) = (key.len().div_ceil(8), value.len().div_ceil(8));
        let len = HEADER + key_words + value_words;
        let words = self.make_room(end, len);
        let lengths = u64::from(key_len) | u64::from(value_len) << 16;
        words[0].set(lengths | u64::from(flags.bits()) << 32 | u64::from(kind) << 48);
        words[1].set(u64::from(table.get()) | u64::from(bucket) << 32);
        put(&words[HEADER..], key);
        put(&words[HEADER + key_words..], value);
        let place = Place::new(end.segment, end.at);
        end.at += len;
        end.words += len;
        place
    }

    /// Moves `end` to a segment with room for `len` words, and returns them.
    fn make_room(&self, end: &mut End, len: usize) -> &[Word] {
        loop {
            let words = self.segment(end.segment).expect("the end is in a segment");
            if words.len() - end.at >= len {
                return &words[end.at..];
            }
            if let Some(word) = words.get(end.at) {
                // No entry begins with zero: the segment ends here.
                word.set(0);
            }
            let least = len.max((2 * words.len()).min(LARGEST));
            let make = || Segment { words: (0..least).map(|_| Word::default()).collect(), next: OnceLock::new() };
            self.link(end.segment).get_or_init(|| Box::new(make()));
            (end.segment, end.at) = (end.segment + 1, 0);
        }
    }

    /// Returns what refers to the segment behind this one.
    fn link(&self, number: usize) -> &OnceLock<Box<Segment>> {
        let mut link = &self.more;
        for _ in 0..number {
            link = &link.get().expect("a segment before the end").next;
        }
        link
    }

    fn segment(&self, number: usize) -> Option<&[Word]> {
        match number.checked_sub(1) {
            None => Some(&self.first),
            Some(before) => self.link(before).get().map(|segment| &segment.words[..]),
        }
    }

    /// Returns an entry.
    #[inline]
    pub(super) fn get(&self, place: Place) -> Entry<'_> {
        let words = self.segment(place.segment.into()).expect("an entry stays");
        Entry { words: &words[place.word as usize..] }
    }

    /// Returns the entries up to `end`, in their order.
    pub(super) fn entries(&self, end: End) -> impl Iterator<Item = Entry<'_>> {
        let (mut segment, mut at) = (0, 0);
        std::iter::from_fn(move || {
            while (segment, at) < (end.segment, end.at) {
                let words = self.segment(segment)?;
                if words.get(at).is_some_and(|word| word.get() != 0) {
                    let entry = Entry { words: &words[at..] };
                    at += entry.words();
                    return Some(entry);
                }
                (segment, at) = (segment + 1, 0);
            }
            None
        })
    }

    /// Gives back memory that a transaction with few changes does not need. No entry is used any
    /// more.
    pub(super) fn shrink(&mut self) {
        let (mut words, mut segment) = (0, self.more.get());
        while let Some(Segment { words: some, next }) = segment.map(|segment| &**segment) {
            words += some.len();
            segment = next.get();
        }
        if words > REUSED {
            self.drop_segments();
        }
    }

    /// Drops all segments but the first, one after the other, not each within the drop of the one
    /// before.
    fn drop_segments(&mut self) {
        let mut segment = self.more.take();
        while let Some(mut dropped) = segment {
            segment = dropped.next.take();
        }
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.drop_segments();
    }
}

impl Entry<'_> {
    fn lengths(&self) -> (usize, usize) {
        let word = self.words[0].get();
        ((word & 0xFFFF) as usize, (word >> 16 & 0xFFFF) as usize)
    }

    /// Returns the number of words.
    pub(super) fn words(&self) -> usize {
        let (key, value) = self.lengths();
        HEADER + key.div_ceil(8) + value.div_ceil(8)
    }

    fn key(&self) -> &[Word] {
        let (key, _) = self.lengths();
        &self.words[HEADER..HEADER + key.div_ceil(8)]
    }

    pub(super) fn table(&self) -> TableId {
        TableId::new(self.words[1].get() as u32)
    }

    /// Returns the bucket of the entry's node.
    pub(super) fn bucket(&self) -> u32 {
        (self.words[1].get() >> 32) as u32
    }

    /// Returns the flags of the value; none if there was no record.
    #[inline]
    pub(super) fn flags(&self) -> Option<SlotFlags> {
        let word = self.words[0].get();
        ((word >> 48) as u16 == VALUE).then(|| SlotFlags::from_bits((word >> 32) as u16))
    }

    #[inline]
    pub(super) fn is_of(&self, table: TableId, key: &[u8]) -> bool {
        self.table() == table && self.lengths().0 == key.len() && equals(self.key(), key)
    }

    /// Appends the key to `out`.
    pub(super) fn copy_key(&self, out: &mut Vec<u8>) {
        copy(self.key(), self.lengths().0, out);
    }

    /// Appends the value to `out`.
    pub(super) fn copy_value(&self, out: &mut Vec<u8>) {
        let (key, value) = self.lengths();
        copy(&self.words[HEADER + key.div_ceil(8)..], value, out);
    }
}

/// Returns the word of the last bytes, which are `count`, fewer than eight.
///
/// A copy of so many bytes to the stack, to be loaded as a word, would stall the processor: it
/// cannot forward several short stores to one load.
fn last_word(bytes: &[u8], count: usize) -> u64 {
    match bytes.last_chunk() {
        Some(last) => u64::from_le_bytes(*last) >> (64 - 8 * count),
        None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    }
}

fn put(words: &[Word], bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    for (word, bytes) in words.iter().zip(whole) {
        word.set(u64::from_le_bytes(*bytes));
    }
    if !rest.is_empty() {
        words[whole.len()].set(last_word(bytes, rest.len()));
    }
}

/// Compares words that bytes of this length were put into.
fn equals(words: &[Word], bytes: &[u8]) -> bool {
    let (whole, rest) = bytes.as_chunks();
    words.iter().zip(whole).all(|(word, bytes)| word.get() == u64::from_le_bytes(*bytes))
        && (rest.is_empty() || words[whole.len()].get() == last_word(bytes, rest.len()))
}

fn copy(words: &[Word], len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len;
    out.reserve(len + 8);
    for word in &words[..len.div_ceil(8)] {
        out.extend_from_slice(&word.get().to_le_bytes());
    }
    out.truncate(end);
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_added() {
        let mut values = Values::default();
        for round in 0..3 {
            let mut end = End::default();
            assert!(end.bytes() == 0 && values.entries(end).next().is_none());
            // Short and long ones, so that segments have unused words at their ends, also one word.
            let lengths = [(0, 0), (300, 5), (8, 100 * round), (7, 8), (1, 5000), (16, 16), (3, 0), (9, 1000)];
            let records: Vec<_> = (0..40_u8)
                .map(|number| {
                    let (key, value) = lengths[usize::from(number) % lengths.len()];
                    let bytes = |len: usize| (0..len).map(|at| number ^ at as u8).collect::<Vec<_>>();
                    (TableId::new(70_000 + u32::from(number)), bytes(key), bytes(value))
                })
                .collect();
            let places: Vec<Place> = records
                .iter()
                .map(|(table, key, value)| {
                    let before =
                        if value.is_empty() { Before::Absent } else { Before::Value(value, SlotFlags::OVERFLOW) };
                    values.append(&mut end, *table, key, before, value.len() as u32)
                })
                .collect();
            assert_eq!(values.entries(end).count(), records.len(), "round {round}");
            for ((place, entry), (table, key, value)) in places.into_iter().zip(values.entries(end)).zip(&records) {
                let mut out = b"front".to_vec();
                entry.copy_key(&mut out);
                entry.copy_value(&mut out);
                assert_eq!(out, [b"front", &key[..], value].concat());
                assert_eq!(entry.flags(), (!value.is_empty()).then_some(SlotFlags::OVERFLOW));
                let entry = values.get(place);
                assert_eq!((entry.table(), entry.bucket()), (*table, value.len() as u32));
                assert!(entry.is_of(*table, key) && !entry.is_of(TableId::new(16), key));
                let longer = [&key[..], &[0]].concat();
                assert!(!entry.is_of(*table, &longer) && !longer.is_empty());
                assert!(key.is_empty() || !entry.is_of(*table, &key[1..]));
            }
            let words: usize = values.entries(end).map(|entry| entry.words()).sum();
            assert_eq!(end.bytes(), 8 * words);
            if round > 0 {
                values.shrink();
                assert!(values.more.get().is_none());
            }
        }
    }
}
