//! What a leaf says about a key, and how it is put into a leaf.

use crate::page::{Node, NodeMut, PageMut, PageType, SlotFlags, entry_size, page_type};

/// What a leaf says about a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// There is no record with this key, and no ghost.
    Absent,
    /// The record has this value; a ghost has none.
    Value { flags: SlotFlags, bytes: Vec<u8> },
}

impl Content {
    /// Returns what a leaf says about a key that lies within its fences.
    pub(super) fn of(leaf: &[u8], key: &[u8]) -> Self {
        let node = Node(leaf);
        match node.lower_bound(key) {
            (_, false) => Self::Absent,
            (slot, true) if node.is_ghost(slot) => Self::Value { flags: SlotFlags::GHOST, bytes: Vec::new() },
            (slot, true) => Self::Value { flags: node.flags(slot), bytes: node.value(slot).to_vec() },
        }
    }

    /// Returns the most bytes that a leaf needs for this besides those that it uses for the key
    /// now: `present` is the length of the value that it has, if it has the key.
    pub(super) fn growth(&self, key: &[u8], present: Option<usize>) -> usize {
        match (self, present) {
            (Self::Absent, _) => 0,
            (Self::Value { bytes, .. }, present) => {
                let present = present.map_or(0, |len| entry_size(key.len(), len));
                entry_size(key.len(), bytes.len()).saturating_sub(present)
            }
        }
    }

    /// Makes a leaf say this about a key. Leaves a page that is no leaf as it is.
    ///
    /// # Errors
    /// There is no space; the length of the present value, if there is one.
    pub(super) fn put(&self, page: &mut PageMut<'_>, key: &[u8]) -> Result<(), Option<usize>> {
        if page_type(page) != Some(PageType::Leaf) {
            return Ok(());
        }
        let (slot, is_there) = Node(&page[..]).lower_bound(key);
        let mut node = NodeMut::new(page.reborrow());
        match self {
            Self::Absent if is_there => node.remove(slot),
            Self::Absent => {}
            Self::Value { flags, bytes } if is_there => {
                if node.set_value(slot, bytes).is_err() {
                    return Err(Some(node.view().value_len(slot)));
                }
                node.set_flags(slot, *flags);
            }
            Self::Value { flags, bytes } => return node.insert(slot, key, bytes, *flags).map_err(|_| None),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_counts_longer_lengths() {
        let value = |len| Content::Value { flags: SlotFlags::NONE, bytes: vec![0; len] };
        for (present, new, growth) in
            [(Some(10), 12, 2), (Some(12), 10, 0), (Some(255), 256, 3), (Some(256), 255, 0), (None, 10, 17)]
        {
            assert_eq!(value(new).growth(b"k", present), growth, "{present:?} to {new}");
        }
        assert_eq!(Content::Absent.growth(b"k", Some(10)), 0);
    }
}
