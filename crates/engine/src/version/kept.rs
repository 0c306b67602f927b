//! The values from before a transaction's changes as the transaction keeps them: one after the
//! other in a buffer, where only the opening of a snapshot looks for them.

use duramen_types::TableId;

use super::node::Before;
use crate::page::SlotFlags;

/// Table, length of the key, flags, whether there was a record, length of the value.
const HEADER: usize = 4 + 2 + 2 + 1 + 4;
/// There was no record before the change.
const ABSENT: u8 = 1;

/// One value, with its record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) table: TableId,
    pub(super) key: &'a [u8],
    pub(super) before: Before<'a>,
}

/// The values from before the changes of one transaction, in their order.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: Vec<u8>,
}

impl Kept {
    /// A buffer that has become larger is not used again.
    const REUSED: usize = 4 << 10;

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the bytes of memory in use.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an entry.
    pub(super) fn add(&mut self, entry: Entry<'_>) {
        let Entry { table, key, before } = entry;
        let (value, flags, absent) = match before {
            Before::Absent => (&[][..], SlotFlags::NONE, ABSENT),
            Before::Value(value, flags) => (value, flags, 0),
        };
        let key_len = u16::try_from(key.len()).expect("the limit of a key's length was checked");
        let value_len = u32::try_from(value.len()).expect("a value in a leaf is short");
        self.bytes.reserve(HEADER + key.len() + value.len());
        self.bytes.extend_from_slice(&table.get().to_le_bytes());
        self.bytes.extend_from_slice(&key_len.to_le_bytes());
        self.bytes.extend_from_slice(&flags.bits().to_le_bytes());
        self.bytes.push(absent);
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Returns the entries, in their order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            let (header, behind) = rest.split_first_chunk::<HEADER>()?;
            let [t0, t1, t2, t3, k0, k1, f0, f1, absent, v0, v1, v2, v3] = *header;
            let flags = SlotFlags::from_bits(u16::from_le_bytes([f0, f1]));
            let (key, behind) = behind.split_at(usize::from(u16::from_le_bytes([k0, k1])));
            let (value, behind) = behind.split_at(u32::from_le_bytes([v0, v1, v2, v3]) as usize);
            rest = behind;
            let before = if absent == ABSENT { Before::Absent } else { Before::Value(value, flags) };
            Some(Entry { table: TableId::new(u32::from_le_bytes([t0, t1, t2, t3])), key, before })
        })
    }

    /// Makes the buffer empty for another transaction.
    pub(super) fn clear(&mut self) {
        if self.bytes.capacity() > Self::REUSED {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were_added() {
        let mut kept = Kept::default();
        assert!(kept.is_empty() && kept.entries().next().is_none());
        for round in 0..2 {
            let key = vec![7; 300];
            let before = Before::Value(b"value", SlotFlags::OVERFLOW);
            kept.add(Entry { table: TableId::new(70_000), key: b"", before: Before::Absent });
            kept.add(Entry { table: TableId::new(16), key: &key, before });
            let entries: Vec<Entry<'_>> = kept.entries().collect();
            assert_eq!(entries.len(), 2, "round {round}");
            assert!(matches!(entries[0].before, Before::Absent) && entries[0].table == TableId::new(70_000));
            assert!(matches!(entries[1].before, Before::Value(b"value", SlotFlags::OVERFLOW)));
            assert!(entries[1].key == key);
            kept.clear();
            assert!(kept.is_empty());
        }
    }
}
