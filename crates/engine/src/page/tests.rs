//! Tests of the page layout: header, hostile bytes, fill and size.

use std::cmp::Ordering;

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;

mod lines;
mod model;
mod wide;

use wide::widened;

pub(super) const TABLE: TableId = TableId::new(7);

pub(super) type Page = [u8; PAGE_SIZE];

/// A page with the alignment that it has in the buffer pool.
#[repr(align(4096))]
pub(super) struct Aligned(pub(super) Page);

impl Aligned {
    pub(super) fn optimistic(&self) -> Node<OptimisticPage<'_>> {
        // SAFETY: the page is borrowed for as long as the result, and no thread writes it.
        Node(unsafe { OptimisticPage::new(self.0.as_ptr()) })
    }
}

pub(super) fn leaf(lower: Option<&[u8]>, upper: Option<&[u8]>) -> Page {
    let mut page = [0; PAGE_SIZE];
    PageMut::tracked(&mut page, |page| {
        NodeMut::init(page, PageType::Leaf, 0, PageId::new(10), TABLE, lower, upper);
    });
    page
}

/// Changes a node, and checks the lines that the change marks.
pub(super) fn edit<R>(page: &mut Page, change: impl FnOnce(NodeMut<'_>) -> R) -> R {
    PageMut::tracked(page, |page| change(NodeMut::new(page)))
}

fn insert(page: &mut Page, key: &[u8], value: &[u8]) -> Result<(), super::node_mut::NoSpace> {
    let (slot, found) = Node(&page[..]).lower_bound(key);
    assert!(!found);
    edit(page, |mut node| node.insert(slot, key, value, SlotFlags::NONE))
}

#[test]
fn header_fields_are_kept_apart() {
    let mut page = [0xAA; PAGE_SIZE];
    PageMut::tracked(&mut page, |mut page| {
        init_header(&mut page, PageType::Inner, 3, PageId::new(u64::MAX - 1), TableId::new(u32::MAX - 1));
    });
    PageMut::tracked(&mut page, |mut page| set_gsn(&mut page, Gsn::new(1 << 60)));
    assert_eq!(page_type(&page), Some(PageType::Inner));
    assert_eq!(level(&page), 3);
    assert_eq!(gsn(&page), Gsn::new(1 << 60));
    assert_eq!(page_id(&page), PageId::new(u64::MAX - 1));
    assert_eq!(table_id(&page), TableId::new(u32::MAX - 1));
    PageMut::tracked(&mut page, |mut page| set_page_id(&mut page, PageId::new(5)));
    assert_eq!(page_id(&page), PageId::new(5));
    assert!(page[PAGE_HEADER_SIZE..].iter().all(|&byte| byte == 0));
}

#[test]
fn verify_tells_the_defects_apart() {
    let mut page = [0; PAGE_SIZE];
    let id = PageId::new(10);
    assert_eq!(verify(&page, id), Err(PageDefect::Blank));
    page = leaf(None, None);
    let (own, other) = (DatabaseTag::of(&[3; 16]), DatabaseTag::of(&[4; 16]));
    assert_eq!(verify_database(&page, own), Ok(()), "it has no tag");
    seal(&mut page, own);
    assert_eq!(verify(&page, id), Ok(()));
    assert_eq!(verify_database(&page, own), Ok(()));
    assert_eq!(verify_database(&page, other), Err(PageDefect::OtherDatabase));
    assert_eq!(verify(&page, PageId::new(11)), Err(PageDefect::WrongPage { found: id }));
    for damaged in [0, 4, 17, 4000, PAGE_SIZE - 1] {
        page[damaged] ^= 0x10;
        assert!(matches!(verify(&page, id), Err(PageDefect::BadChecksum { .. })), "byte {damaged}");
        page[damaged] ^= 0x10;
    }
    page[TYPE] = 9;
    seal(&mut page, own);
    assert_eq!(verify(&page, id), Err(PageDefect::BadType { found: 9 }));
}

#[test]
fn empty_key_and_empty_value_are_entries() {
    let mut page = leaf(None, None);
    insert(&mut page, b"x", b"1").unwrap();
    insert(&mut page, b"", b"").unwrap();
    check(&page).unwrap();
    assert_eq!(Node(&page[..]).lower_bound(b""), (0, true));
    edit(&mut page, |mut node| node.set_value(0, b"grown")).unwrap();
    edit(&mut page, |mut node| node.set_value(0, b"")).unwrap();
    edit(&mut page, |mut node| node.remove(1));
    check(&page).unwrap();
    edit(&mut page, |mut node| node.compact());
    check(&page).unwrap();
    assert_eq!(Node(&page[..]).slot_count(), 1);
}

#[test]
fn zero_padded_heads_do_not_confuse_keys() {
    let mut page = leaf(None, None);
    let keys: [&[u8]; 8] = [b"", b"\0", b"\0\0", b"\0\0\0\0", b"\0\0\0\0\0", b"a", b"a\0", b"a\0\0\0\0"];
    for key in keys.iter().rev() {
        insert(&mut page, key, key).unwrap();
    }
    check(&page).unwrap();
    for (slot, key) in keys.iter().enumerate() {
        assert_eq!(Node(&page[..]).lower_bound(key), (slot, true), "{key:?}");
    }
    assert_eq!(Node(&page[..]).lower_bound(b"\0\0\0"), (3, false));
}

#[test]
fn keys_outside_the_prefix_find_the_ends() {
    let mut page = leaf(Some(b"user/1"), Some(b"user/9"));
    insert(&mut page, b"user/2", b"").unwrap();
    insert(&mut page, b"user/3", b"").unwrap();
    let node = Node(&page[..]);
    for (key, slot) in [("", 0), ("a", 0), ("use", 0), ("user/", 0), ("user0", 2), ("v", 2), ("user/25", 1)] {
        assert_eq!(node.lower_bound(key.as_bytes()), (slot, false), "{key}");
    }
    for (key, within) in [("user/1", false), ("user/10", true), ("user/9", true), ("user/90", false), ("", false)] {
        assert_eq!(node.contains(key.as_bytes()), within, "{key}");
    }
    assert_eq!(node.compare_key(0, b"user/2"), Ordering::Equal);
    assert_eq!(node.compare_key(0, b"user"), Ordering::Greater);
    assert_eq!(node.compare_key(0, b"v"), Ordering::Less);
}

/// Inserts in the given order as a tree would, with one level only, and returns the leaves.
fn load(keys: impl Iterator<Item = Vec<u8>>, value: &[u8]) -> Vec<Page> {
    let mut leaves = vec![leaf(None, None)];
    for key in keys {
        let at = leaves.iter().position(|page| Node(&page[..]).contains(&key)).unwrap();
        if insert(&mut leaves[at], &key, value).is_ok() {
            continue;
        }
        let hint = Node(&leaves[at][..]).lower_bound(&key).0;
        let (slot, separator) = split_point_for(Node(&leaves[at][..]), hint, key.len() + value.len());
        let mut right = [0; PAGE_SIZE];
        PageMut::tracked(&mut right, |mut right| {
            build_right(Node(&leaves[at][..]), slot, &separator, &mut right, PageId::new(11));
        });
        edit(&mut leaves[at], |mut node| node.truncate_left(slot, &separator));
        insert(if key <= separator { &mut leaves[at] } else { &mut right }, &key, value).unwrap();
        leaves.insert(at + 1, right);
    }
    leaves
}

fn fill(leaves: &[Page]) -> f64 {
    let used: usize = leaves.iter().map(|page| Node(&page[..]).used_space()).sum();
    used as f64 / (leaves.len() * (PAGE_SIZE - 64)) as f64
}

#[test]
fn ascending_and_descending_inserts_fill_the_leaves() {
    let text = |i: u64| format!("key{i:012}").into_bytes();
    let binary = |i: u64| i.to_be_bytes().to_vec();
    for (key, name) in [(text as fn(u64) -> Vec<u8>, "text"), (binary, "binary")] {
        for value_len in [0, 8, 20, 40, 60, 100, 300] {
            let value = vec![1; value_len];
            let ascending = load((0..4000).map(key), &value);
            let descending = load((0..4000).rev().map(key), &value);
            for leaves in [&ascending, &descending] {
                leaves.iter().for_each(|page| check(page).unwrap());
                assert_eq!(leaves.iter().map(|page| Node(&page[..]).slot_count()).sum::<usize>(), 4000);
            }
            // The leaf that is still being filled does not count. The leaf at the low end truncates
            // no prefix while it fills, and no later insertion uses the space that the truncation
            // frees.
            let (ascending, descending) = (fill(&ascending[..ascending.len() - 1]), fill(&descending[1..]));
            println!("{name} keys, values of {value_len}: {ascending:.3} ascending, {descending:.3} descending");
            assert!(ascending > if value_len < 20 { 0.88 } else { 0.9 });
            // What is cut off is the most of an entry without a value.
            assert!(descending > if value_len == 0 { 0.49 } else { 0.59 });
        }
    }
}

#[test]
fn random_inserts_fill_the_leaves_by_two_thirds() {
    let mut rng = StdRng::seed_from_u64(1);
    let leaves = load((0..4000).map(|_| rng.random::<[u8; 16]>().to_vec()), &[1; 50]);
    let full = fill(&leaves);
    assert!(full > 0.6, "{full}");
}

#[test]
fn prefix_truncation_saves_space() {
    let count_until_full = |mut page: Page| {
        let prefix = "warehouse/0000000017/district/0000000004/order/";
        (0..).find(|i| insert(&mut page, format!("{prefix}{i:06}").as_bytes(), &[1; 8]).is_err()).unwrap()
    };
    let with = count_until_full(leaf(
        Some(b"warehouse/0000000017/district/0000000004/order/"),
        Some(b"warehouse/0000000017/district/0000000004/order/9"),
    ));
    let without = count_until_full(leaf(None, None));
    assert!(with > 2 * without, "{with} entries with prefix truncation, {without} without");
}

#[test]
fn separators_are_short() {
    for (last, first, separator) in [
        ("apple", "banana", "b"),
        ("apple", "b", "aq"),
        ("az", "b", "az"),
        ("azz", "b", "a{"),
        ("a", "c", "a"),
        ("abc", "c", "b"),
        ("abc", "abcd", "abc"),
        ("abc1", "abc7x", "abc7"),
    ] {
        let mut page = leaf(None, None);
        insert(&mut page, last.as_bytes(), b"").unwrap();
        insert(&mut page, first.as_bytes(), b"").unwrap();
        let (slot, found) = split_point(Node(&page[..]), 1);
        assert_eq!(slot, 1);
        assert!(last.as_bytes() <= &found[..] && &found[..] < first.as_bytes(), "{last} {first} {found:?}");
        assert!(found.len() <= separator.len(), "{last} {first} {found:?}");
    }
}

#[test]
fn largest_entries_split_and_fit() {
    // Fences and keys of the maximal length in every combination of insertion places.
    for hint_at in 0..5u8 {
        let lower = [vec![b'a'; 1023], vec![0]].concat();
        let upper = vec![b'z'; 1024];
        let mut page = leaf(Some(&lower), Some(&upper));
        let key = |i: u8| [vec![b'b' + 2 * i; 1023], vec![i]].concat();
        let mut present = Vec::new();
        for i in (0..6).filter(|&i| i != hint_at) {
            if insert(&mut page, &key(i), &[i; 512]).is_ok() {
                present.push(i);
            }
        }
        assert!(present.len() >= 3);
        let hint = Node(&page[..]).lower_bound(&key(hint_at)).0;
        let (slot, separator) = split_point(Node(&page[..]), hint);
        let mut right = [0; PAGE_SIZE];
        PageMut::tracked(&mut right, |mut right| {
            build_right(Node(&page[..]), slot, &separator, &mut right, PageId::new(11));
        });
        edit(&mut page, |mut node| node.truncate_left(slot, &separator));
        let target = if key(hint_at) <= separator { &mut page } else { &mut right };
        insert(target, &key(hint_at), &[9; 512]).unwrap();
        check(&page).unwrap();
        check(&right).unwrap();
    }
}

#[test]
fn images_of_other_pages_are_trimmed() {
    let mut page = [0; PAGE_SIZE];
    PageMut::tracked(&mut page, |mut page| {
        init_header(&mut page, PageType::Bitmap, 0, PageId::new(1), TableId::ZERO);
    });
    page[500] = 1;
    let restore_image =
        |image: &[u8], page: &mut Page| PageMut::tracked(page, |mut page| restore_image(image, &mut page));
    let trimmed = image(&page);
    assert_eq!(trimmed.len(), 501 - 4 + 1);
    let mut restored = [0xFF; PAGE_SIZE];
    restore_image(&trimmed, &mut restored).unwrap();
    assert!(restored == page);
    assert_eq!(image_of(&trimmed), PageId::new(1));
    page[500] = 0;
    assert_eq!(image_of(&image(&page)), PageId::new(1), "all but the lowest byte of the number is trimmed");
    restore_image(&image(&[0; PAGE_SIZE]), &mut restored).unwrap();
    assert!(restored == [0; PAGE_SIZE]);
    for bad in [&[][..], &[2], &[1], &[1, 2, 3], &[0; PAGE_SIZE]] {
        assert_eq!(restore_image(bad, &mut restored), Err(super::image::BadImage));
    }
}

/// Calls every function that accepts untrusted bytes.
fn read_everything(node: &Node<impl PageBytes>, key: &[u8]) {
    let mut out = Vec::new();
    let (slot, _) = node.lower_bound(key);
    node.child_for(key);
    node.contains(key);
    node.lower_fence_into(&mut out);
    node.upper_fence_into(&mut out);
    let _ = (node.free_space(), node.used_space(), node.level(), node.is_leaf());
    for slot in [0, slot, node.slot_count() / 2, node.slot_count(), node.slot_count() + 1, 5000] {
        node.key_into(slot, &mut out);
        node.value_into(slot, &mut out);
        let _ = (node.child(slot), node.is_ghost(slot), node.value_len(slot), node.key_len(slot));
        node.compare_key(slot, key);
    }
}

/// Returns random bytes, from pure noise to a valid node with a few bytes changed.
fn hostile_page(rng: &mut StdRng) -> Box<Aligned> {
    let mut page = Box::new(Aligned([0; PAGE_SIZE]));
    match rng.random_range(0..3) {
        0 => rng.fill_bytes(&mut page.0),
        kind => {
            page.0 = leaf(Some(b"key1"), Some(b"key7"));
            for i in 0..rng.random_range(0..100) {
                let _ = insert(&mut page.0, format!("key2{i:05}").as_bytes(), &[7; 10]);
            }
            if rng.random_bool(0.3) {
                page.0 = widened(&page.0);
            }
            for _ in 0..rng.random_range(1..5) {
                let end = if kind == 1 { 200 } else { PAGE_SIZE };
                page.0[rng.random_range(0..end)] = rng.random();
            }
        }
    }
    if rng.random_bool(0.1) {
        page.0[node::NODE_FLAGS] ^= node::NARROW as u8;
    }
    if rng.random() {
        page.0[TYPE] = rng.random_range(2..4);
        page.0[LEVEL] = page.0[TYPE] - 2;
    }
    page
}

#[test]
fn hostile_bytes_never_panic() {
    let mut rng = StdRng::seed_from_u64(2);
    let mut accepted = 0;
    for _ in 0..20_000 {
        let page = hostile_page(&mut rng);
        let key: Vec<u8> = match rng.random() {
            true => format!("key2{:05}", rng.random_range(0..120)).into_bytes(),
            false => (0..rng.random_range(0..40)).map(|_| rng.random()).collect(),
        };
        read_everything(&Node(&page.0[..]), &key);
        read_everything(&page.optimistic(), &key);
        let node = Node(&page.0[..]);
        assert_eq!(node.lower_bound(&key), page.optimistic().lower_bound(&key));
        if check(&page.0).is_ok() {
            accepted += 1;
            let mut changed = page.0;
            edit(&mut changed, |mut node| node.compact());
            if Node(&changed[..]).slot_count() > 0 {
                edit(&mut changed, |mut node| node.remove(0));
            }
            check(&changed).unwrap();
            check(&widened(&changed)).unwrap();
        }
        let mut bytes = image(&page.0);
        let mut restored = PageBuf::zeroed();
        restore_image(&bytes, &mut restored.page_mut()).unwrap();
        let at = rng.random_range(0..bytes.len().min(100));
        bytes[at] = rng.random();
        bytes.truncate(rng.random_range(0..=bytes.len()));
        let _ = restore_image(&bytes, &mut restored.page_mut());
        let _ = restore_image(&page.0[..rng.random_range(0..PAGE_SIZE)], &mut restored.page_mut());
    }
    assert!(accepted > 100, "{accepted}");
}

proptest! {
    #[test]
    fn both_kinds_of_bytes_agree(
        seed: u64,
        off in 0..PAGE_SIZE + 20,
        len in prop_oneof![0usize..100, 0..PAGE_SIZE + 20],
        key_len in 0usize..100,
        change in proptest::option::of(0usize..100),
    ) {
        let mut page = Box::new(Aligned([0; PAGE_SIZE]));
        StdRng::seed_from_u64(seed).fill_bytes(&mut page.0);
        let slice = &page.0[..];
        let optimistic = page.optimistic().0;
        prop_assert_eq!(slice.u8_at(off), optimistic.u8_at(off));
        prop_assert_eq!(slice.u16_at(off), optimistic.u16_at(off));
        prop_assert_eq!(slice.u32_at(off), optimistic.u32_at(off));
        prop_assert_eq!(slice.u64_at(off), optimistic.u64_at(off));
        let mut key = slice.iter().skip(off).take(key_len).copied().collect::<Vec<_>>();
        if let Some(byte) = change.and_then(|at| key.get_mut(at)) {
            *byte = byte.wrapping_add(1);
        }
        prop_assert_eq!(slice.compare(off, len, &key), optimistic.compare(off, len, &key));
        let (mut a, mut b) = (vec![1], vec![1]);
        slice.copy_into(off, len, &mut a);
        optimistic.copy_into(off, len, &mut b);
        prop_assert_eq!(a, b);
    }
}

/// Measures the nanoseconds per lookup in a leaf of about 100 entries. Run with `--release --
/// --ignored --nocapture`.
#[test]
#[ignore = "a benchmark"]
fn benchmark_lower_bound() {
    let mut rng = StdRng::seed_from_u64(3);
    for (name, make) in [
        (
            "random 8-byte keys",
            (|_, rng: &mut StdRng| rng.random::<[u8; 8]>().to_vec()) as fn(u64, &mut StdRng) -> Vec<u8>,
        ),
        ("consecutive 8-byte keys", |i, _| (1_000_000 + i * 3).to_be_bytes().to_vec()),
        ("text keys", |i, _| format!("customer/{:04}/{:06}", i / 20, i * 77).into_bytes()),
    ] {
        let mut page = Box::new(Aligned(leaf(None, None)));
        let mut keys: Vec<_> = (1..101).map(|i| make(i, &mut rng)).collect();
        keys.iter().for_each(|key| insert(&mut page.0, key, &[1; 40]).unwrap());
        for i in (1..keys.len()).rev() {
            keys.swap(i, rng.random_range(0..=i));
        }
        let lookups: Vec<&[u8]> = (0..4096).map(|_| &keys[rng.random_range(0..keys.len())][..]).collect();
        // The best of many rounds: other programs usually share the machine.
        let time = |lookup: &dyn Fn(&[u8]) -> (usize, bool)| {
            let round = |_| {
                let start = duramen_sync::clock::Instant::now();
                for key in &lookups {
                    assert!(std::hint::black_box(lookup(key)).1);
                }
                start.elapsed().as_nanos() as f64 / lookups.len() as f64
            };
            (0..1000).map(round).fold(f64::INFINITY, f64::min)
        };
        let stable = time(&|key| Node(&page.0[..]).lower_bound(key));
        let optimistic = time(&|key| page.optimistic().lower_bound(key));
        println!("{name}: {stable:.1} ns latched, {optimistic:.1} ns optimistic");
    }
}
