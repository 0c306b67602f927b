//! Page images: whole pages in the log, without their unused parts.
//!
//! | bytes | |
//! |---|---|
//! | 1 | form: 0 trimmed, 1 gap |
//! | rest | trimmed: the page from byte 4 on up to its last byte that is not zero |
//! | | gap: the node from byte 4 on without the bytes between its slots and its heap |
//!
//! The checksum, which is valid only on disk, is not part of an image; restored pages have zero
//! there and in the gap.

use std::ops::Range;

use duramen_types::{PAGE_SIZE, PageId};

use super::node::{HEAP_START, Node, SLOT_COUNT};
use super::slot::SLOTS;
use super::{PAGE_ID, PageMut, PageType, TYPE, page_type};

const TRIMMED: u8 = 0;
const GAP: u8 = 1;

/// The bytes are no image of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the bytes are not a page image")]
pub(crate) struct BadImage;

/// Returns the range of the unused bytes between slots and heap, if the page is a node with a
/// consistent header.
fn gap(page: &[u8]) -> Option<Range<usize>> {
    if !matches!(page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        return None;
    }
    let node = Node(page);
    let (start, end) = (node.slots_end(), node.field(HEAP_START));
    let is_consistent = node.field(SLOT_COUNT) <= node.most_slots() && start <= end && end <= PAGE_SIZE;
    is_consistent.then_some(start..end)
}

/// Returns an image of the page, from which [`restore_image`] restores it.
pub(crate) fn image(page: &[u8]) -> Vec<u8> {
    assert_eq!(page.len(), PAGE_SIZE);
    match gap(page) {
        Some(gap) => [&[GAP], &page[TYPE..gap.start], &page[gap.end..]].concat(),
        None => {
            let end = page.iter().rposition(|&byte| byte != 0).map_or(TYPE, |last| last + 1).max(TYPE);
            [&[TRIMMED], &page[TYPE..end]].concat()
        }
    }
}

/// Returns the page that an image is of, by the image's header.
pub(crate) fn image_of(image: &[u8]) -> PageId {
    // Both forms begin alike, and the end of a trimmed image is followed by zeros.
    let bytes = image.get(1 + PAGE_ID - TYPE..).unwrap_or_default();
    let mut id = [0; 8];
    id.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    PageId::new(u64::from_le_bytes(id))
}

/// Fills `page` from an image.
///
/// # Errors
/// [`BadImage`]; `page` is then undefined. This validates only the image's form, not the page in
/// it.
pub(crate) fn restore_image(image: &[u8], page: &mut PageMut<'_>) -> Result<(), BadImage> {
    let (&form, body) = image.split_first().ok_or(BadImage)?;
    if body.len() > PAGE_SIZE - TYPE {
        return Err(BadImage);
    }
    page.zero_from(0);
    match form {
        TRIMMED => page.put(TYPE, body),
        GAP => {
            let header = body.get(..SLOTS - TYPE).ok_or(BadImage)?;
            page.put(TYPE, header);
            let gap = gap(page).ok_or(BadImage)?;
            if body.len() != PAGE_SIZE - TYPE - gap.len() {
                return Err(BadImage);
            }
            let (front, back) = body.split_at(gap.start - TYPE);
            page.put(TYPE, front);
            page.put(gap.end, back);
        }
        _ => return Err(BadImage),
    }
    Ok(())
}
