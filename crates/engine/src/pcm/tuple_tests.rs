//! Tuples below the scheme: leaves get them back, space, replacement, and recovery at every
//! operation.

use std::collections::BTreeMap;

use duramen_io::{AlignedBuf, CrashChoice, SimDisk};
use duramen_pmem::{Domain, SimMemory, Survivors};
use duramen_test_support::{Rng, Stride, is_long};
use duramen_types::{PAGE_SIZE, PageId};

use super::tests::{both, change, leaf, leaf_within, map, new_pages, pages_with, records, write};
use super::*;
use crate::options::{Barriers, Granularity};

use crate::pool::{PageStore, PoolError};

fn new_tuples(bytes: u64, domain: Domain, barriers: Barriers) -> (SimDisk, SimMemory, PcmPages) {
    let (disk, memory, pages) = new_pages(bytes, domain, barriers);
    drop(pages);
    let pages = tuples_on(&disk, &memory, barriers);
    (disk, memory, pages)
}

fn tuples_on(disk: &SimDisk, memory: &SimMemory, barriers: Barriers) -> PcmPages {
    pages_with(disk, memory, barriers, Granularity::Tuple)
}

/// Ends the transaction of an entry that has changed these keys of a leaf; returns whether the leaf
/// has to be stored as a page before.
fn end(pages: &PcmPages, entry: u32, bytes: &[u8], covered: &[Covered]) -> bool {
    let mut leaves = BTreeMap::new();
    pages.covers.by_leaf(covered, &mut leaves);
    let mut keys: Vec<ChangedKey> = leaves.into_values().flatten().collect();
    let changed = ChangedLeaf::read(bytes, &mut keys);
    assert!(keys.is_empty());
    let xid = pages.active.current(entry);
    let ended = pages.end_with(xid, vec![changed], false).unwrap();
    if matches!(ended, Ended::After(_)) {
        return true;
    }
    covered.iter().for_each(|covered| pages.covers.forget(xid, covered));
    false
}

#[test]
fn a_leaf_that_was_dropped_gets_its_tuples_back() {
    for (domain, barriers) in both() {
        let (disk, memory, pages) = new_tuples(1 << 20, domain, barriers);
        let mut bytes = leaf(&pages, 9, &[(b"a", b"one"), (b"b", b"two"), (b"c", b"three")]);
        pages.alter_page(PageId::new(9));
        write(&pages, &bytes);
        let before = (pages.metrics(), pages.pcm.barriers());
        assert_eq!((before.0.written, before.0.tuples), (1, 0));
        let (winner, loser) = (pages.active.current(1), pages.active.current(2));
        let covered = change(&pages, winner, &mut bytes, b"a", b"ONE");
        assert!(!end(&pages, 1, &bytes, &covered));
        assert_eq!(pages.pcm.barriers() - before.1, if barriers == Barriers::Fewest { 2 } else { 3 });
        // Nothing of it is written: the tuple has it.
        write(&pages, &bytes);
        let after = pages.metrics();
        assert_eq!((after.written, after.tuples, after.left_to_tuples), (1, 1, 1));
        assert_eq!(records(&pages, 9), map([(b"a", b"ONE"), (b"b", b"two"), (b"c", b"three")]));
        // A transaction under way: the page is written with a cover.
        let covered = change(&pages, loser, &mut bytes, b"b", b"lost");
        write(&pages, &bytes);
        assert_eq!((pages.metrics().written, pages.metrics().tuples), (2, 0));
        assert_eq!(records(&pages, 9), map([(b"a", b"ONE"), (b"b", b"lost"), (b"c", b"three")]));
        let other = pages.active.current(3);
        let later = change(&pages, other, &mut bytes, b"c", b"THREE");
        assert!(!end(&pages, 3, &bytes, &later));
        for survivors in [Survivors::Nothing, Survivors::Everything] {
            let memory = memory.crash_image(survivors, None);
            for granularity in [Granularity::Tuple, Granularity::Page, Granularity::Tuple] {
                let pages = pages_with(&disk, &memory, barriers, granularity);
                assert_eq!(records(&pages, 9), map([(b"a", b"ONE"), (b"b", b"two"), (b"c", b"THREE")]));
            }
        }
        drop(covered);
    }
}

/// What the tuples of a leaf may add to its base never exceeds the space of the base.
#[test]
fn a_leaf_without_space_for_its_tuples_becomes_a_page() {
    let (_, _, pages) = new_tuples(1 << 20, Domain::VolatileCache, Barriers::Fewest);
    let value = [1; 1900];
    let keys = [b"a", b"b", b"c", b"d"];
    let all: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &value[..])).collect();
    let mut bytes = leaf(&pages, 9, &all);
    pages.alter_page(PageId::new(9));
    write(&pages, &bytes);
    // Another transaction, which may be lost, makes room for a longer value.
    let shorter = change(&pages, pages.active.current(1), &mut bytes, b"a", b"");
    let longer = change(&pages, pages.active.current(2), &mut bytes, b"b", &[2; 1950]);
    assert!(!end(&pages, 2, &bytes, &longer), "it fits beside the old value");
    let longer = change(&pages, pages.active.current(2), &mut bytes, b"c", &[2; 2400]);
    assert!(end(&pages, 2, &bytes, &longer), "with the old value of `a` it would not fit");
    write(&pages, &bytes);
    assert!(!end(&pages, 2, &bytes, &longer), "the page has it");
    assert_eq!(pages.metrics().tuples, 0);
    assert!(!end(&pages, 1, &bytes, &shorter), "the page has it");
}

/// Regression: a leaf in the data file got the GSN of a tuple, and so of a change of another
/// transaction that was not in it; when that one ended, its tuple did not count.
#[test]
fn a_leaf_made_of_tuples_lacks_changes_under_way() {
    for (domain, barriers) in both() {
        let (disk, memory, pages) = new_tuples(1 << 20, domain, barriers);
        let mut bytes = leaf(&pages, 9, &[(b"a", b"one"), (b"b", b"two")]);
        pages.alter_page(PageId::new(9));
        write(&pages, &bytes);
        let (first, second) = (pages.active.current(1), pages.active.current(2));
        let under_way = change(&pages, first, &mut bytes, b"a", b"ONE");
        let covered = change(&pages, second, &mut bytes, b"b", b"TWO");
        assert!(!end(&pages, 2, &bytes, &covered));
        pages.drain().unwrap();
        if end(&pages, 1, &bytes, &under_way) {
            pages.alter_page(PageId::new(9));
            write(&pages, &bytes);
            assert!(!end(&pages, 1, &bytes, &under_way));
        }
        write(&pages, &bytes);
        let expected = map([(b"a", b"ONE"), (b"b", b"TWO")]);
        assert_eq!(records(&pages, 9), expected);
        let memory = memory.crash_image(Survivors::Nothing, None);
        assert_eq!(records(&tuples_on(&disk, &memory, barriers), 9), expected);
    }
}

/// Leaves with random changes by transactions of which some never end, in a region that is too
/// small for all of their tuples, with a power cut at a random operation, and another one after
/// that: what was acknowledged is there.
#[test]
fn random_transactions_survive_power_cuts() {
    const LEAVES: u64 = 120;
    let key = |id: u64, number: u64| format!("{id:04} {number}").into_bytes();
    let mut work = (0, 0, 0);
    for seed in Stride::sampled("power cuts with tuples", 1, 4).until(60) {
        let mut rng = Rng::new(seed);
        let (domain, barriers) = both().nth(seed as usize % 4).unwrap();
        let (mut disk, mut memory, mut pages) = new_tuples(1 << 20, domain, barriers);
        let mut model: BTreeMap<(u64, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for id in 0..LEAVES {
            let keys: Vec<Vec<u8>> = (0..5).map(|number| key(id, number)).collect();
            let fences = [format!("{id:04}"), format!("{id:04}~")];
            let all: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &b"first"[..])).collect();
            let bytes = leaf_within(&pages, 100 + id, Some((fences[0].as_bytes(), fences[1].as_bytes())), &all);
            pages.alter_page(PageId::new(100 + id));
            write(&pages, &bytes);
            model.extend(keys.into_iter().map(|key| ((id, key), b"first".to_vec())));
        }
        for round in 0..3 {
            let in_doubt = run_until_power_cut(&pages, &memory, &mut rng, LEAVES, &mut model, &key);
            let metrics = pages.metrics();
            work = (work.0 + metrics.tuples_written, work.1 + metrics.left_to_tuples, work.2 + metrics.written_back);
            let survivors = *rng.pick(&[Survivors::Nothing, Survivors::Everything, Survivors::Random(seed)]);
            (disk, memory) = (disk.crash_image(&CrashChoice::Nothing), memory.crash_image(survivors, None));
            pages = tuples_on(&disk, &memory, barriers);
            for id in 0..LEAVES {
                for (key, value) in records(&pages, 100 + id) {
                    let at = (id, key);
                    if in_doubt.as_ref().is_some_and(|(place, other)| *place == at && *other == value) {
                        model.insert(at, value);
                    } else {
                        assert_eq!(model[&at], value, "seed {seed}, round {round}, {at:?}");
                    }
                }
            }
        }
    }
    let least = if is_long() { 1000 } else { 200 };
    assert!(work.0 > least && work.1 > least && work.2 > least, "{work:?}");
}

/// Regression: a slot that was without tuples when its leaf had left was freed together with the
/// slot of the leaf; with that one's zeros lost in a power cut, the leaf counted without its
/// tuples.
#[test]
fn a_leaf_that_leaves_takes_its_tuples_along() {
    for barriers in [Barriers::Fewest, Barriers::Paper] {
        let (disk, memory, pages) = new_tuples(1 << 20, Domain::VolatileCache, barriers);
        let mut bytes = leaf(&pages, 9, &[(b"a", b"one"), (b"b", b"two")]);
        pages.alter_page(PageId::new(9));
        write(&pages, &bytes);
        let covered = change(&pages, pages.active.current(1), &mut bytes, b"a", b"ONE");
        assert!(!end(&pages, 1, &bytes, &covered));
        let (disk, memory) =
            (disk.crash_image(&CrashChoice::Everything), memory.crash_image(Survivors::Everything, None));
        drop(pages);
        for at in 0..40 {
            let (disk, memory) =
                (disk.crash_image(&CrashChoice::Everything), memory.crash_image(Survivors::Everything, None));
            let pages = tuples_on(&disk, &memory, barriers);
            memory.crash_at(memory.operations() + at);
            let _ = pages.drain();
            for number in 0..if is_long() { 20 } else { 6 } {
                let image = memory.crash_image(Survivors::Random(number), None);
                let pages = tuples_on(&disk, &image, barriers);
                assert_eq!(records(&pages, 9), map([(b"a", b"ONE"), (b"b", b"two")]), "{barriers}, {at}, {number}");
            }
        }
    }
}

/// Regression: a leaf that had decayed in the data file kept all other pages from leaving.
#[test]
fn a_damaged_leaf_does_not_keep_others_from_leaving() {
    let (disk, _, pages) = new_tuples(1 << 20, Domain::VolatileCache, Barriers::Fewest);
    let mut bytes = leaf(&pages, 9, &[(b"a", b"one"), (b"b", b"two")]);
    pages.alter_page(PageId::new(9));
    write(&pages, &bytes);
    pages.drain().unwrap();
    let covered = change(&pages, pages.active.current(1), &mut bytes, b"a", b"ONE");
    assert!(!end(&pages, 1, &bytes, &covered));
    let other = leaf(&pages, 10, &[(b"c", b"three")]);
    pages.alter_page(PageId::new(10));
    write(&pages, &other);
    let damage = || disk.flip_bit("data", 9 * PAGE_SIZE as u64 + 100, 3);
    damage();
    let one_more = pages.metrics().slots_free as usize - pages.kept() + 1;
    pages.make_room(&mut pages.storing.lock(), one_more).unwrap();
    let metrics = pages.metrics();
    assert_eq!((metrics.pages, metrics.tuples, metrics.written_back), (0, 1, 2));
    let mut read = AlignedBuf::zeroed(PAGE_SIZE);
    assert!(matches!(pages.read(PageId::new(9), true, &mut read), Err(PoolError::Corrupt { .. })));
    damage();
    assert_eq!(records(&pages, 9), map([(b"a", b"ONE"), (b"b", b"two")]));
}

/// As many damaged leaves as leave at once, all of them colder than one that is whole.
#[test]
fn a_batch_of_damaged_leaves_does_not_keep_others_from_leaving() {
    let (disk, _, pages) = new_tuples(1 << 20, Domain::VolatileCache, Barriers::Fewest);
    let batch = pages.pcm.slots() as u64 / 8;
    for id in 9..9 + batch {
        let mut bytes = leaf(&pages, id, &[(b"a", b"one")]);
        pages.alter_page(PageId::new(id));
        write(&pages, &bytes);
        pages.drain().unwrap();
        let covered = change(&pages, pages.active.current(1), &mut bytes, b"a", b"ONE");
        assert!(!end(&pages, 1, &bytes, &covered));
    }
    let whole = leaf(&pages, 500, &[(b"c", b"three")]);
    pages.alter_page(PageId::new(500));
    write(&pages, &whole);
    let damage = || (9..9 + batch).for_each(|id| disk.flip_bit("data", id * PAGE_SIZE as u64 + 100, 3));
    damage();
    let free = || pages.metrics().slots_free as usize - pages.kept();
    let one_more = free() + 1;
    pages.make_room(&mut pages.storing.lock(), one_more).unwrap();
    assert_eq!(pages.metrics().pages, 0);
    // Nothing else can leave. That is an error, and nothing is lost by it.
    let one_more = free() + 1;
    let stuck = pages.make_room(&mut pages.storing.lock(), one_more);
    assert!(matches!(stuck, Err(PoolError::Corrupt { .. })), "{stuck:?}");
    damage();
    (9..9 + batch).for_each(|id| assert_eq!(records(&pages, id), map([(b"a", b"ONE")])));
    pages.make_room(&mut pages.storing.lock(), one_more).unwrap();
}

/// A record of a leaf with a value.
type Put = ((u64, Vec<u8>), Vec<u8>);

/// Runs transactions until the power goes off, and notes in `model` what they have acknowledged;
/// returns what the last one has put.
fn run_until_power_cut(
    pages: &PcmPages,
    memory: &SimMemory,
    rng: &mut Rng,
    leaves: u64,
    model: &mut BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    key: &impl Fn(u64, u64) -> Vec<u8>,
) -> Option<Put> {
    let mut frames: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let read = |id: u64| {
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        pages.read(PageId::new(100 + id), true, &mut bytes).unwrap();
        bytes.to_vec()
    };
    // One that stays under way, with a change in a leaf that is evicted later.
    let lost = rng.below(leaves);
    let bytes = frames.entry(lost).or_insert_with(|| read(lost));
    change(pages, pages.active.current(900), bytes, &key(lost, 4), b"lost");
    if rng.below(2) == 0 {
        write(pages, bytes);
    }
    memory.crash_at(memory.operations() + rng.below(6000));
    let mut in_doubt = None;
    while !memory.is_off() {
        let (id, number) = (rng.below(leaves), rng.below(4));
        let bytes = frames.entry(id).or_insert_with(|| read(id));
        let entry = 1 + rng.below(800) as u32;
        let value = vec![rng.below(256) as u8; rng.below(900) as usize];
        let covered = change(pages, pages.active.current(entry), bytes, &key(id, number), &value);
        in_doubt = Some(((id, key(id, number)), value.clone()));
        if rng.below(8) == 0 {
            write(pages, bytes);
        }
        if end(pages, entry, bytes, &covered) {
            pages.alter_page(PageId::new(100 + id));
            write(pages, bytes);
            assert!(!end(pages, entry, bytes, &covered));
        }
        if !memory.is_off() {
            let (at, value) = in_doubt.take().unwrap();
            model.insert(at, value);
        }
        if rng.below(3) == 0 {
            write(pages, bytes);
            frames.remove(&id);
        }
    }
    in_doubt
}
