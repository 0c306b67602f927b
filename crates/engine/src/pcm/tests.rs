//! The region below the scheme: pages, covers, replacement and recovery at every operation.

use std::collections::BTreeMap;

use duramen_io::{AlignedBuf, Disk, OpenMode, SimDisk};
use duramen_pmem::{Domain, SimMemory, Source, Survivors};
use duramen_sync::Arc;
use duramen_types::{Gsn, PAGE_SIZE, PageId, TableId};

use super::*;
use crate::options::{Barriers, Granularity, PcmOptions};
use crate::page::{self, DatabaseTag, NodeMut, PageBuf, PageMut, PageType, SlotFlags};
use crate::pool::{FilePages, PageStore};
use crate::record::{Tree, Undo};

pub(super) const DATABASE: [u8; 16] = [3; 16];
pub(super) const TREE: Tree = Tree { root: PageId::new(2), table: TableId::new(16) };

fn options(memory: &SimMemory, barriers: Barriers) -> PcmOptions {
    let options = PcmOptions::new(Source::Simulated(memory.clone()), memory.len(), memory.domain());
    PcmOptions { barriers, ..options }
}

/// Opens the region on a memory, creating it if the memory is blank; without the file.
fn found(memory: &SimMemory, barriers: Barriers) -> (Arc<Pcm>, Found) {
    let pcm = Arc::new(Pcm::open(&options(memory, barriers), DATABASE).unwrap());
    let found = Found::recover(&pcm, barriers).unwrap();
    (pcm, found)
}

fn pages_on(disk: &SimDisk, memory: &SimMemory, barriers: Barriers) -> PcmPages {
    pages_with(disk, memory, barriers, Granularity::Page)
}

pub(super) fn pages_with(disk: &SimDisk, memory: &SimMemory, barriers: Barriers, granularity: Granularity) -> PcmPages {
    let (pcm, found) = found(memory, barriers);
    let data = disk.open("data", OpenMode::Existing).unwrap();
    let file = FilePages::new(data, DatabaseTag::of(&DATABASE), None, None, Arc::new(Clock(Arc::clone(&pcm)))).unwrap();
    PcmPages::new(pcm, file, found, granularity)
}

pub(super) fn new_pages(bytes: u64, domain: Domain, barriers: Barriers) -> (SimDisk, SimMemory, PcmPages) {
    let (disk, memory) = (SimDisk::new(1), SimMemory::new(bytes, domain));
    let data = disk.open("data", OpenMode::CreateNew).unwrap();
    data.allocate(400 * PAGE_SIZE as u64).unwrap();
    data.sync().unwrap();
    disk.sync_directory("").unwrap();
    drop(Pcm::create(&options(&memory, barriers), DATABASE).unwrap());
    let pages = pages_on(&disk, &memory, barriers);
    (disk, memory, pages)
}

/// A leaf with these records.
pub(super) fn leaf(pages: &PcmPages, id: u64, records: &[(&[u8], &[u8])]) -> Vec<u8> {
    leaf_within(pages, id, None, records)
}

/// A leaf with these records, and these fences.
pub(super) fn leaf_within(
    pages: &PcmPages,
    id: u64,
    fences: Option<(&[u8], &[u8])>,
    records: &[(&[u8], &[u8])],
) -> Vec<u8> {
    let (lower, upper) = fences.unzip();
    let mut page = PageBuf::zeroed();
    let mut node = NodeMut::init(page.page_mut(), PageType::Leaf, 0, PageId::new(id), TREE.table, lower, upper);
    for (slot, (key, value)) in records.iter().enumerate() {
        node.insert(slot, key, value, SlotFlags::NONE).unwrap();
    }
    page::set_gsn(&mut page.page_mut(), Gsn::new(pages.pcm.tick()));
    page.to_vec()
}

/// Writes a page as the pool would.
pub(super) fn write(pages: &PcmPages, bytes: &[u8]) {
    let id = page::page_id(bytes);
    let mut batch = crate::pool::Batch::new();
    batch.push_whole(id, bytes);
    let writer = pages.writer().unwrap();
    writer.copied(id, bytes);
    writer.write(&mut batch).unwrap();
}

pub(super) fn records(pages: &PcmPages, id: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    pages.read(PageId::new(id), true, &mut bytes).unwrap();
    let node = page::Node(&bytes[..]);
    let record = |slot| {
        let mut key = Vec::new();
        node.key_into(slot, &mut key);
        (key, node.value(slot).to_vec())
    };
    (0..node.slot_count()).map(record).collect()
}

pub(super) fn map<const N: usize>(records: [(&[u8], &[u8]); N]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    records.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Transaction `xid` changes the value of a record of a leaf that is in DRAM.
pub(super) fn change(pages: &PcmPages, xid: Xid, bytes: &mut [u8], key: &[u8], value: &[u8]) -> Vec<Covered> {
    let mut lines = page::Lines::NONE;
    let old = {
        let mut node = NodeMut::new(PageMut::new(bytes, &mut lines));
        let (slot, is_there) = node.view().lower_bound(key);
        assert!(is_there);
        let old = node.view().value(slot).to_vec();
        node.set_value(slot, value).unwrap();
        old
    };
    page::set_gsn(&mut PageMut::new(bytes, &mut lines), Gsn::new(pages.pcm.tick()));
    let remove = u16::try_from(value.len()).unwrap();
    let undo = Undo::Change { tree: TREE, key, at: 0, remove, add: &old, flags: SlotFlags::NONE };
    let mut covered = Vec::new();
    pages.covers.note(xid, Some(bytes), undo, &mut covered);
    covered
}

pub(super) fn both() -> impl Iterator<Item = (Domain, Barriers)> {
    let domains = [Domain::DurableCache, Domain::VolatileCache];
    domains.into_iter().flat_map(|domain| [Barriers::Fewest, Barriers::Paper].map(|barriers| (domain, barriers)))
}

/// A page with changes of two transactions is stored; one of them commits.
#[test]
fn what_is_listed_is_discarded() {
    for (domain, barriers) in both() {
        let (disk, memory, pages) = new_pages(1 << 20, domain, barriers);
        let mut bytes = leaf(&pages, 9, &[(b"a", b"one"), (b"b", b"two")]);
        write(&pages, &bytes);
        let (winner, loser) = (pages.active.current(1), pages.active.current(2));
        change(&pages, winner, &mut bytes, b"a", b"changed");
        change(&pages, loser, &mut bytes, b"b", b"");
        change(&pages, loser, &mut bytes, b"b", b"again");
        write(&pages, &bytes);
        pages.end(1);
        assert_eq!(records(&pages, 9), map([(b"a", b"changed"), (b"b", b"again")]));
        let memory = memory.crash_image(Survivors::Nothing, None);
        for _ in 0..2 {
            let pages = pages_on(&disk, &memory, barriers);
            assert_eq!(records(&pages, 9), map([(b"a", b"changed"), (b"b", b"two")]), "{domain}, {barriers}");
        }
    }
}

/// The pages of a structure change count together or not at all, at each operation.
#[test]
fn structure_changes_are_whole() {
    for (domain, barriers) in both() {
        let mut at = 0;
        loop {
            let (disk, memory, pages) = new_pages(1 << 20, domain, barriers);
            let before = [8, 9].map(|id| leaf(&pages, id, &[(b"a", b"before")]));
            before.iter().for_each(|bytes| write(&pages, bytes));
            let after = [8, 9].map(|id| {
                let mut bytes = leaf(&pages, id, &[(b"a", b"after")]);
                page::seal(&mut bytes, DatabaseTag::of(&DATABASE));
                bytes
            });
            memory.crash_at(memory.operations() + at);
            let covers = CoversOfPage::default();
            let images: Vec<Image<'_>> =
                after.iter().map(|bytes| Image { page: page::page_id(bytes), bytes, covers: &covers }).collect();
            pages.write_together(&images).unwrap();
            let is_done = !memory.is_off();
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(at), Survivors::Random(!at)]
            {
                let memory = memory.crash_image(survivors, None);
                let pages = pages_on(&disk, &memory, barriers);
                let found = records(&pages, 8);
                assert_eq!(found, records(&pages, 9), "{domain}, {barriers}, {at}, {survivors:?}");
                assert!(!is_done || found == map([(b"a", b"after")]));
            }
            if is_done {
                break;
            }
            at += 1;
        }
        assert!(at > 4, "{at}");
    }
}

/// Many covers go to slots of their own, and a page without all of them does not count.
#[test]
fn many_covers_are_whole() {
    for (domain, barriers) in both() {
        let (disk, memory, pages) = new_pages(1 << 20, domain, barriers);
        let keys: Vec<[u8; 2]> = (0..7_u16).map(u16::to_be_bytes).collect();
        let values: Vec<Vec<u8>> = (0..7).map(|number| vec![number; 1000]).collect();
        let all: Vec<(&[u8], &[u8])> = keys.iter().zip(&values).map(|(key, value)| (&key[..], &value[..])).collect();
        let mut bytes = leaf(&pages, 9, &all);
        write(&pages, &bytes);
        let before = records(&pages, 9);
        // More covers than fit beside the page.
        let loser = pages.active.current(5);
        keys.iter().for_each(|key| drop(change(&pages, loser, &mut bytes, key, &[7; 1000])));
        let first = memory.operations();
        write(&pages, &bytes);
        let operations = memory.operations() - first;
        assert!(pages.covers.of_page(&bytes).bytes.len() > layout::COVERS_BESIDE);
        drop(pages);
        let memory = memory.crash_image(Survivors::Nothing, None);
        assert_eq!(records(&pages_on(&disk, &memory, barriers), 9), before);
        for at in 0..operations {
            let (disk, memory, pages) = new_pages(1 << 20, domain, barriers);
            let mut bytes = leaf(&pages, 9, &all);
            write(&pages, &bytes);
            keys.iter().for_each(|key| drop(change(&pages, loser_of(&pages), &mut bytes, key, &[7; 1000])));
            memory.crash_at(memory.operations() + at);
            write(&pages, &bytes);
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(at)] {
                let memory = memory.crash_image(survivors, None);
                let pages = pages_on(&disk, &memory, barriers);
                assert_eq!(records(&pages, 9), before, "{domain}, {barriers}, {at}, {survivors:?}");
            }
        }
    }
}

fn loser_of(pages: &PcmPages) -> Xid {
    pages.active.current(5)
}

/// Pages leave for the data file and are written again; whatever crashes, the latest version that
/// was durable is found.
#[test]
fn earlier_versions_never_come_back() {
    for (domain, barriers) in both() {
        for seed in 0..12_u64 {
            let (disk, memory, pages) = new_pages(1 << 20, domain, barriers);
            let mut latest: BTreeMap<u64, u64> = BTreeMap::new();
            // Many versions of few pages, and few of many others, more than there are slots.
            for round in 0..500_u64 {
                let id = if round % 3 == 0 { 2 + round % 7 } else { 10 + (round * 7 + seed) % 300 };
                write(&pages, &leaf(&pages, id, &[(b"a", &round.to_be_bytes())]));
                latest.insert(id, round);
                if round == 300 + 16 * seed {
                    break;
                }
            }
            let metrics = pages.metrics();
            assert!(metrics.written_back > 0 || seed == 0, "{metrics:?}");
            for survivors in [Survivors::Nothing, Survivors::Everything, Survivors::Random(seed)] {
                let memory = memory.crash_image(survivors, None);
                let disk = disk.crash_image(&duramen_io::CrashChoice::Random(seed));
                let pages = pages_on(&disk, &memory, barriers);
                for (id, round) in &latest {
                    assert_eq!(records(&pages, *id), map([(b"a", &round.to_be_bytes())]), "{id}, {survivors:?}");
                }
            }
        }
    }
}

/// Numbers are never used again, also after a crash.
#[test]
fn the_clock_goes_on_after_a_crash() {
    let (_, memory, pages) = new_pages(1 << 20, Domain::VolatileCache, Barriers::Fewest);
    let before = pages.pcm.tick();
    let listed: Vec<u64> = (0..ENTRIES).map(|entry| pages.active.current(entry).0).collect();
    let memory = memory.crash_image(Survivors::Nothing, None);
    let (pcm, found) = found(&memory, Barriers::Fewest);
    assert!(pcm.tick() > before);
    assert!((0..ENTRIES).all(|entry| found.active.current(entry).0 > listed[entry as usize]));
}

/// Returns whether the latest version of a page is found after it has left for the data file, and
/// the power went off at any operation of the disk meanwhile.
fn is_found_after_leaving() -> bool {
    (0..8).all(|at| {
        let (disk, memory, pages) = new_pages(1 << 20, Domain::DurableCache, Barriers::Fewest);
        for round in 0..2_u8 {
            write(&pages, &leaf(&pages, 9, &[(b"a", &[round])]));
        }
        disk.crash_at(disk.operations() + at);
        // It fails if the power goes off before its end.
        let _ = pages.drain();
        let memory = memory.crash_image(Survivors::Nothing, None);
        let disk = disk.crash_image(&duramen_io::CrashChoice::Nothing);
        let pages = pages_on(&disk, &memory, Barriers::Fewest);
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        let is_read = pages.read(PageId::new(9), false, &mut bytes).is_ok();
        is_read && page::Node(&bytes[..]).value(0) == [1]
    })
}

#[test]
fn a_page_that_leaves_is_found() {
    assert!(is_found_after_leaving());
}

#[cfg(duramen_planted)]
#[test]
fn planted_bugs_of_leaving_pages_are_noticed() {
    use duramen_types::planted::{Bug, plant};
    for bug in Bug::LEAVING.iter().chain(Bug::SLOTS) {
        let _planted = plant(*bug);
        assert!(!is_found_after_leaving(), "{bug:?}");
    }
}
