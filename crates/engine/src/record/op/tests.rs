//! Tests of page operations.

use duramen_types::PAGE_SIZE;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::page::PageBuf;

/// Applies the operation, and checks the lines that it marks.
fn apply(op: PageOp<'_>, page: &mut [u8]) -> Result<(), Misfit> {
    PageMut::tracked(page, |mut page| op.apply(&mut page))
}

#[test]
fn difference_is_minimal_and_right() {
    for (old, new, expected) in [
        (&b"balance=10"[..], &b"balance=25"[..], (8, 2, &b"25"[..])),
        (b"same", b"same", (4, 0, b"")),
        (b"abc", b"abcabc", (3, 0, b"abc")),
        (b"aaaa", b"aa", (2, 2, b"")),
        (b"", b"x", (0, 0, b"x")),
    ] {
        assert_eq!(difference(old, new), expected);
    }
}

#[test]
fn operations_round_trip_and_reject_garbage() {
    let ops = [
        PageOp::Image(b"image"),
        PageOp::Insert { slot: 3, key: b"k", value: b"v", flags: SlotFlags::GHOST },
        PageOp::Change { slot: 1, at: 2, remove: 3, add: b"new", flags: SlotFlags::NONE },
        PageOp::Remove { slot: 9 },
        PageOp::Truncate { slot: 4, separator: b"sep" },
        PageOp::SplitChild { slot: 5, separator: b"s", right: PageId::new(1 << 40) },
        PageOp::MergeChild { slot: 6 },
        PageOp::Take { bit: 70_000 },
        PageOp::GiveBack { bit: 1 },
        PageOp::Retire,
        PageOp::GiveBackRun { bit: 9, count: 300 },
        PageOp::SetFlags { runs: &[3, 2, 1, 9, 1, 0] },
    ];
    let mut out = Vec::new();
    for op in &ops {
        op.encode(&mut out);
    }
    let mut reader = Reader::new(&out);
    for op in &ops {
        assert_eq!(PageOp::decode(&mut reader).as_ref(), Ok(op));
    }
    assert!(reader.is_empty());
    for cut in 0..out.len() {
        let mut reader = Reader::new(&out[..cut]);
        while PageOp::decode(&mut reader).is_ok() {}
    }
}

#[test]
fn misfits_are_errors() {
    let mut page = node(PageType::Leaf, None, None);
    let mut apply = |op| apply(op, &mut page);
    assert_eq!(apply(PageOp::Remove { slot: 0 }), Err(Misfit));
    assert_eq!(apply(PageOp::MergeChild { slot: 0 }), Err(Misfit));
    let beyond = PageOp::Insert { slot: 1, key: b"k", value: b"", flags: SlotFlags::NONE };
    assert_eq!(apply(beyond), Err(Misfit));
    let insert = PageOp::Insert { slot: 0, key: b"k", value: b"value", flags: SlotFlags::NONE };
    assert_eq!(apply(insert), Ok(()));
    assert_eq!(apply(PageOp::SetFlags { runs: &[0, 1, 1] }), Ok(()));
    assert_eq!(apply(PageOp::SetFlags { runs: &[0, 2, 1] }), Err(Misfit));
    assert_eq!(apply(PageOp::SetFlags { runs: &[0, 1] }), Err(Misfit));
    assert_eq!(apply(PageOp::GiveBackRun { bit: 0, count: u32::MAX }), Err(Misfit));
    let too_far = PageOp::Change { slot: 0, at: 4, remove: 2, add: b"", flags: SlotFlags::NONE };
    assert_eq!(apply(too_far), Err(Misfit));
}

fn node(ty: PageType, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = PageBuf::zeroed();
    let level = u8::from(ty == PageType::Inner);
    let mut node = NodeMut::init(bytes.page_mut(), ty, level, PageId::new(9), TableId::new(1), lower, upper);
    if ty == PageType::Inner {
        node.set_rightmost(PageId::new(1000));
    }
    bytes.to_vec()
}

fn bitmap_page() -> Vec<u8> {
    let mut bytes = PageBuf::zeroed();
    page::init_header(&mut bytes.page_mut(), PageType::Bitmap, 0, PageId::new(9), TableId::ZERO);
    bytes.to_vec()
}

/// The bytes that a random operation refers to.
struct Parts {
    key: Vec<u8>,
    value: Vec<u8>,
    separator: Vec<u8>,
    image: Vec<u8>,
}

fn random_bytes(rng: &mut StdRng, most: usize) -> Vec<u8> {
    (0..rng.random_range(0..most)).map(|_| rng.random()).collect()
}

/// Returns an operation that mostly fits the page.
fn random_op<'a>(rng: &mut StdRng, page: &[u8], parts: &'a mut Parts) -> PageOp<'a> {
    let is_leaf = match page::page_type(page) {
        _ if rng.random_bool(0.005) => return PageOp::Image(&parts.image),
        _ if rng.random_bool(0.002) => return PageOp::Retire,
        Some(PageType::Leaf) => true,
        Some(PageType::Inner) => false,
        Some(PageType::Bitmap) => {
            let bit = rng.random_range(0..bitmap::GROUP_PAGES as u32);
            return if bitmap::get(page, bit) { PageOp::GiveBack { bit } } else { PageOp::Take { bit } };
        }
        _ => return PageOp::Image(&parts.image),
    };
    let node = Node(page);
    let new_slot = node.lower_bound(&parts.key).0 as u16;
    let at = rng.random_range(0..node.slot_count().max(1));
    if node.slot_count() > 1 && rng.random_bool(0.005) {
        node.key_into(at, &mut parts.separator);
        let kept = at + usize::from(is_leaf);
        return PageOp::Truncate { slot: kept as u16, separator: &parts.separator };
    }
    let (key, value, slot) = (&parts.key[..], &parts.value[..], at as u16);
    match (is_leaf, rng.random_range(0..10)) {
        (true, 0..5) => {
            let flags = SlotFlags::from_bits(rng.random_range(0..2));
            PageOp::Insert { slot: new_slot, key, value, flags }
        }
        (true, 5..9) => {
            let len = if node.slot_count() > 0 { node.value_len(at) } else { 0 };
            let at = rng.random_range(0..=len);
            let remove = rng.random_range(0..=len - at);
            let same_length = rng.random_bool(0.5) && remove <= value.len();
            let add = if same_length { &value[..remove] } else { value };
            PageOp::Change { slot, at: at as u16, remove: remove as u16, add, flags: SlotFlags::NONE }
        }
        (true, _) => PageOp::Remove { slot },
        (false, 0..7) => PageOp::SplitChild { slot: new_slot, separator: key, right: PageId::new(rng.random()) },
        (false, _) => PageOp::MergeChild { slot },
    }
}

#[test]
fn every_operation_marks_the_lines_that_it_changes() {
    let mut rng = StdRng::seed_from_u64(5);
    let blanks = [
        node(PageType::Leaf, None, None),
        node(PageType::Leaf, Some(b"key/1"), Some(b"key/7")),
        node(PageType::Inner, None, None),
        node(PageType::Inner, Some(b"key/1"), Some(b"key/7")),
        bitmap_page(),
    ];
    let mut page = vec![0; PAGE_SIZE];
    let mut applied = [0; RETIRE as usize + 1];
    for _ in 0..30_000 {
        let most = if rng.random_bool(0.3) { 600 } else { 30 };
        let mut parts = Parts {
            key: [b"key/", &random_bytes(&mut rng, 20)[..]].concat(),
            value: random_bytes(&mut rng, most),
            separator: Vec::new(),
            image: page::image(&blanks[rng.random_range(0..blanks.len())]),
        };
        let op = random_op(&mut rng, &page, &mut parts);
        if op.fits(&page) && apply(op, &mut page).is_ok() {
            let mut encoded = Vec::new();
            op.encode(&mut encoded);
            applied[usize::from(encoded[0])] += 1;
        }
    }
    assert!(applied[1..].iter().all(|&times| times > 20), "{applied:?}");
}
