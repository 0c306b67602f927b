//! Records that a scan has read from a leaf, one behind the other in one buffer.

use crate::btree::Neighbour;
use crate::error::Result;
use crate::page::{Node, PageBytes, SlotFlags};
use crate::storage::overflow::Reference;

/// The result of one read of the tree. It is used again for the next read.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes of the large values that the records refer to.
    large: u64,
    /// The key whose gap bounds the range, if the read reached it.
    pub(super) boundary: Option<Neighbour>,
    /// The range has no more records behind these.
    pub(super) last: bool,
}

/// Where a record lies in the buffer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Span,
    value: Span,
    flags: SlotFlags,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    end: usize,
}

/// A record as its leaf has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'b> {
    pub(super) key: &'b [u8],
    pub(super) value: &'b [u8],
    pub(super) flags: SlotFlags,
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
        self.large = 0;
        self.boundary = None;
        self.last = false;
    }

    /// Returns the number of records.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the large values of the records are enough to be read at a time.
    #[inline]
    pub(super) fn is_heavy(&self) -> bool {
        /// Bytes.
        const MOST: u64 = 1 << 20;
        self.large >= MOST
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns record number `at`.
    #[inline]
    pub(super) fn record(&self, at: usize) -> Record<'_> {
        let Entry { key, value, flags } = self.entries[at];
        Record { key: self.of(key), value: self.of(value), flags }
    }

    pub(super) fn first(&self) -> Option<Record<'_>> {
        (!self.is_empty()).then(|| self.record(0))
    }

    pub(super) fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|entry| self.of(entry.key))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| self.of(entry.key))
    }

    /// Copies a record from its leaf; returns its key.
    #[inline]
    pub(super) fn push(&mut self, node: &Node<impl PageBytes>, slot: usize, with_value: bool) -> &[u8] {
        let start = self.bytes.len();
        node.append_key(slot, &mut self.bytes);
        let middle = self.bytes.len();
        if with_value {
            node.append_value(slot, &mut self.bytes);
        }
        let (value, flags) = (Span { start: middle, end: self.bytes.len() }, node.flags(slot));
        if with_value && flags.contains(SlotFlags::OVERFLOW) && !flags.contains(SlotFlags::GHOST) {
            // What is read without a latch may be anything, until the leaf is found unchanged.
            self.large += Reference::decode(self.of(value)).map_or(0, |reference| u64::from(reference.len));
        }
        self.entries.push(Entry { key: Span { start, end: middle }, value, flags });
        &self.bytes[start..middle]
    }

    /// Takes the last record out again; returns its key.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let Entry { key, .. } = self.entries.pop()?;
        let taken = self.of(key).to_vec();
        self.bytes.truncate(key.start);
        Some(taken)
    }

    /// Makes the first record count as none.
    pub(super) fn pass_over_first(&mut self) {
        if let Some(first) = self.entries.first_mut() {
            first.flags = SlotFlags::GHOST;
        }
    }

    /// Takes the deleted records out.
    pub(super) fn drop_ghosts(&mut self) {
        self.entries.retain(|entry| !entry.flags.contains(SlotFlags::GHOST));
    }

    /// Replaces the references to large values by these values, which `fetch` returns.
    pub(super) fn fetch_large(&mut self, fetch: impl Fn(&[u8]) -> Result<Vec<u8>>) -> Result<()> {
        for entry in self.entries.iter_mut().filter(|entry| entry.flags.contains(SlotFlags::OVERFLOW)) {
            let value = fetch(&self.bytes[entry.value.start..entry.value.end])?;
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&value);
            entry.value = Span { start, end: self.bytes.len() };
        }
        Ok(())
    }

    #[inline]
    fn of(&self, span: Span) -> &[u8] {
        &self.bytes[span.start..span.end]
    }
}
