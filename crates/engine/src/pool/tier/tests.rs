use duramen_io::{AlignedBuf, CrashChoice, Disk, Fault, File, OpenMode, SimDisk};
use duramen_sync::Arc;
use duramen_types::{PAGE_SIZE, PageId, TableId};

use super::*;
use crate::page::{self, DatabaseTag, Lines, PageMut, PageType};
use crate::pool::Versions;

/// A log that hardens at once, and whose end is far.
#[derive(Debug)]
struct NoLog;

impl WalRule for NoLog {
    fn harden(&self, _: Gsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn end(&self) -> Gsn {
        Gsn::MAX
    }
}

fn open(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    let mode = if disk.exists(name).unwrap() { OpenMode::Existing } else { OpenMode::CreateNew };
    disk.open(name, mode).unwrap()
}

fn tier(disk: &SimDisk, slots: u32) -> TieredPages {
    let is_new = !disk.exists("tier").unwrap();
    let slot_file = open(disk, "tier");
    let slots = if is_new {
        Slots::create(slot_file, slots, Stamp::default()).unwrap()
    } else {
        Slots::open(slot_file).unwrap().unwrap().0
    };
    above_file(disk, FoundTier::read(slots).unwrap())
}

fn above_file(disk: &SimDisk, tier: FoundTier) -> TieredPages {
    let data = open(disk, "data");
    data.allocate(401 * PAGE_SIZE as u64).unwrap();
    let versions = Versions::open(open(disk, "versions"), [3; 16], data.len().unwrap()).unwrap();
    let file = FilePages::new(
        data,
        DatabaseTag::of(&[3; 16]),
        Some(open(disk, "doublewrite")),
        Some(versions),
        Arc::new(NoLog),
    )
    .unwrap();
    disk.sync_directory("").unwrap();
    TieredPages::new(file, tier).unwrap()
}

/// Writes these pages in these versions.
fn write(tier: &TieredPages, pages: impl IntoIterator<Item = (u64, u64)>) {
    try_write(tier, pages).unwrap();
}

fn try_write(tier: &TieredPages, pages: impl IntoIterator<Item = (u64, u64)>) -> Result<(), PoolError> {
    let mut batch = Batch::new();
    for (page, gsn) in pages {
        let (mut bytes, mut lines) = (vec![0; PAGE_SIZE], Lines::NONE);
        let mut contents = PageMut::new(&mut bytes, &mut lines);
        page::init_header(&mut contents, PageType::Leaf, 0, PageId::new(page), TableId::ZERO);
        page::set_gsn(&mut contents, Gsn::new(gsn));
        batch.push(PageId::new(page), &bytes);
    }
    tier.write(&mut batch)
}

fn version(tier: &TieredPages, page: u64) -> u64 {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    tier.read(PageId::new(page), false, &mut bytes).unwrap();
    page::gsn(&bytes).get()
}

#[test]
fn pages_are_read_where_their_newest_version_is() {
    let disk = SimDisk::new(1);
    let tier = tier(&disk, 16);
    for round in 1..20 {
        write(&tier, (1..=40).map(|page| (page, round * 100 + page)));
        for page in 1..=40 {
            assert_eq!(version(&tier, page), round * 100 + page);
        }
    }
    let metrics = tier.metrics();
    assert!(metrics.pages <= 16 && metrics.written == 19 * 40 && metrics.hits > 0 && metrics.misses > 0, "{metrics:?}");
    assert_eq!(metrics.written - metrics.written_back, metrics.pages, "each page was replaced by leaving");
}

#[test]
fn a_page_that_is_written_often_stays() {
    let disk = SimDisk::new(2);
    let tier = tier(&disk, 16);
    for round in 1..50 {
        write(&tier, [(1, round), (100 + round, round)]);
    }
    let metrics = tier.metrics();
    assert!(tier.slot(PageId::new(1)).is_some());
    assert!(metrics.written_back < 49, "only the others leave: {metrics:?}");
}

#[test]
fn a_drained_tier_is_needed_no_more() {
    let disk = SimDisk::new(3);
    let tier = tier(&disk, 32);
    write(&tier, (1..=20).map(|page| (page, page)));
    let mut removed = 0;
    tier.drain(&mut || {
        removed += 1;
        Ok(())
    })
    .unwrap();
    write(&tier, [(3, 333)]);
    let file = FilePages::new(
        disk.open("data", OpenMode::Existing).unwrap(),
        DatabaseTag::of(&[3; 16]),
        Some(disk.open("doublewrite", OpenMode::Existing).unwrap()),
        None,
        Arc::new(NoLog),
    )
    .unwrap();
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    for page in 1..=20 {
        file.read(PageId::new(page), false, &mut bytes).unwrap();
        assert_eq!(page::gsn(&bytes).get(), if page == 3 { 333 } else { page });
    }
    assert_eq!((removed, tier.metrics().pages), (1, 0));
}

/// Regression: a drain that a checkpoint had stamped meanwhile put the stamp back to an earlier
/// generation, so that the database was refused if the removal failed.
#[test]
fn a_drained_tier_keeps_its_stamp() {
    let disk = SimDisk::new(10);
    let tier = tier(&disk, 16);
    write(&tier, [(1, 1)]);
    let stamp = Stamp { database: [3; 16], generation: 7 };
    tier.stamp(stamp).unwrap();
    tier.drain(&mut || Err(crate::Error::Closed)).unwrap_err();
    let (_, header) = Slots::open(disk.open("tier", OpenMode::Existing).unwrap()).unwrap().unwrap();
    assert_eq!((header.stamp, header.is_drained), (stamp, true));
}

/// The power goes off at each operation of the disk in turn: every page then has the version that
/// was last written durably, or the one that was being written.
#[test]
fn a_crash_at_any_operation_loses_no_written_version() {
    let rounds = |tier: &TieredPages, durable: &mut u64| {
        for round in 1..8 {
            write(tier, (1..=12).map(|page| (page * 7 % 40 + 1, round)));
            *durable = round;
            write(tier, [(50 + round, round)]);
        }
    };
    let whole = SimDisk::new(4);
    let begun = {
        let tier = tier(&whole, 16);
        let begun = whole.operations();
        rounds(&tier, &mut 0);
        begun
    };
    let mut points = 0;
    for operation in begun..whole.operations() {
        let disk = SimDisk::new(4);
        let tier_before = tier(&disk, 16);
        disk.crash_at(operation);
        let mut durable = 0;
        let crashed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rounds(&tier_before, &mut durable)));
        assert!(crashed.is_err(), "operation {operation} is never reached");
        for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(operation)] {
            let image = disk.crash_image(&choice);
            let data = image.open("data", OpenMode::Existing).unwrap();
            let doublewrite = image.open("doublewrite", OpenMode::Existing).unwrap();
            if let Some(area) = crate::pool::FoundArea::read(&*doublewrite).unwrap() {
                area.put_back(&*data, &*doublewrite).unwrap();
            }
            let tier = tier(&image, 16);
            for page in (1..=12).map(|page| page * 7 % 40 + 1) {
                if durable > 0 {
                    let found = version(&tier, page);
                    assert!((durable..=durable + 1).contains(&found), "{operation}: page {page} has {found}");
                }
            }
            points += 1;
        }
    }
    println!("{points} images");
    assert!(points > 100);
}

/// A page leaves the tier in its second version. The power goes off while the slots of both
/// versions are overwritten, so that the second may be gone and the first still there. Returns the
/// lowest version that is found.
fn least_version_after_reuse() -> u64 {
    let run = |disk: &SimDisk, operation: u64| {
        let tier = tier(disk, 16);
        write(&tier, [(1, 1)]);
        write(&tier, [(1, 2)]);
        write(&tier, (100..108).map(|page| (page, 2)));
        disk.crash_at(disk.operations() + operation);
        let write = std::panic::AssertUnwindSafe(|| write(&tier, (200..208).map(|page| (page, 2))));
        std::panic::catch_unwind(write).is_err()
    };
    let mut least = u64::MAX;
    for operation in 0.. {
        let disk = SimDisk::new(6);
        if !run(&disk, operation) {
            return least;
        }
        for seed in 0..40 {
            let image = disk.crash_image(&CrashChoice::Random(seed));
            let open = |name| image.open(name, OpenMode::Existing).unwrap();
            if let Some(area) = crate::pool::FoundArea::read(&*open("doublewrite")).unwrap() {
                area.put_back(&*open("data"), &*open("doublewrite")).unwrap();
            }
            least = least.min(version(&tier(&image, 16), 1));
        }
    }
    unreachable!("some operation is the last one")
}

#[test]
fn an_old_version_does_not_come_back() {
    assert_eq!(least_version_after_reuse(), 2);
}

/// Flips a bit of the slot that holds the page.
fn decay(disk: &SimDisk, tier: &TieredPages, page: u64) {
    let slot = tier.slot(PageId::new(page)).unwrap();
    disk.flip_bit("tier", tier.slots.offset(slot) + 4000, 3);
}

/// A slot decays while the tier is in use: its page stays there, unreadable, and all others are
/// written and read as ever.
#[test]
fn a_damaged_slot_stops_nobody_but_its_readers() {
    let disk = SimDisk::new(7);
    let tier = tier(&disk, 16);
    write(&tier, (1..=8).map(|page| (page, 1)));
    decay(&disk, &tier, 3);
    for round in 2..30 {
        write(&tier, (100..108).map(|page| (page + round % 3 * 8, round)));
    }
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    let read = tier.read(PageId::new(3), false, &mut bytes);
    assert!(matches!(&read, Err(PoolError::Corrupt { file, .. }) if file.contains("tier")), "{read:?}");
    assert_eq!(version(&tier, 1), 1);
    let drained = tier.drain(&mut || panic!("the page is nowhere else"));
    assert!(matches!(drained, Err(crate::Error::Corrupt { .. })), "{drained:?}");
    assert_eq!(tier.metrics().pages, 1, "all others have left");
    write(&tier, [(3, 40)]);
    tier.drain(&mut || Ok(())).unwrap();
    assert_eq!(version(&tier, 3), 40);
}

/// Regression: a slot that could not be read failed the opening.
#[test]
fn a_slot_that_cannot_be_read_at_opening_is_left_alone() {
    let disk = SimDisk::new(11);
    let slot = {
        let tier = tier(&disk, 16);
        write(&tier, (1..=4).map(|page| (page, 1)));
        tier.write_versions().unwrap();
        u64::from(tier.slot(PageId::new(3)).unwrap())
    };
    {
        let slots = Slots::open(open(&disk, "tier")).unwrap().unwrap().0;
        // Behind the sync: the read of all slots, and then that of this one.
        let begun = disk.operations();
        [1, 2 + slot].into_iter().for_each(|at| disk.fail_at(begun + at, Fault::Eio, false));
        let tier = above_file(&disk, FoundTier::read(slots).unwrap());
        tier.read(PageId::new(3), false, &mut AlignedBuf::zeroed(PAGE_SIZE)).unwrap_err();
        for round in 2..30 {
            write(&tier, (100..108).map(|page| (page + round % 3 * 8, round)));
        }
    }
    let tier = tier(&disk, 16);
    assert!((1..=4).all(|page| version(&tier, page) == 1), "it still holds its page");
    disk.fail_at(disk.operations(), Fault::Eio, true);
    FoundTier::read(tier.slots.clone()).unwrap_err();
}

/// Regression: a page that could not be read when it was to leave made the write fail that needed
/// its slot.
#[test]
fn a_page_that_cannot_be_read_stays_in_the_tier() {
    let disk = SimDisk::new(12);
    let tier = tier(&disk, 16);
    write(&tier, (1..=8).map(|page| (page, 1)));
    write(&tier, (9..=16).map(|page| (page, 1)));
    // The batch of reads, and then the page that was used least recently, by itself.
    let begun = disk.operations();
    [0, 1].into_iter().for_each(|at| disk.fail_at(begun + at, Fault::Eio, false));
    write(&tier, [(100, 1)]);
    assert!(tier.slot(PageId::new(1)).is_some() && tier.slot(PageId::new(2)).is_none());
    assert!((1..=16).chain([100]).all(|page| version(&tier, page) == 1));
}

/// A slot decays between two openings, and an older version of its page is in the data file.
#[test]
fn an_older_version_is_not_taken_for_a_damaged_one() {
    let disk = SimDisk::new(8);
    {
        let tier = tier(&disk, 16);
        write(&tier, [(1, 1)]);
        (100..140).for_each(|page| write(&tier, [(page, 1)]));
        write(&tier, [(1, 2)]);
        tier.write_versions().unwrap();
        decay(&disk, &tier, 1);
    }
    let tier = tier(&disk, 16);
    let read = tier.read(PageId::new(1), false, &mut AlignedBuf::zeroed(PAGE_SIZE));
    assert!(matches!(&read, Err(PoolError::Corrupt { defect, .. }) if defect.contains("older version")), "{read:?}");
}

/// A sync fails, so that a slot keeps its former contents on the medium while the next process
/// reads the later ones. The page of the former contents then leaves the tier, and the power goes
/// off.
#[test]
fn former_contents_of_a_slot_do_not_count() {
    let disk = SimDisk::new(9);
    {
        let tier = tier(&disk, 16);
        write(&tier, [(1, 1)]);
        write(&tier, [(1, 2)]);
        tier.write_versions().unwrap();
        // Fifteen slots are free, and the one with the old version is the last of them.
        write(&tier, (100..108).map(|page| (page, 1)));
        disk.fail_at(disk.operations(), Fault::FailedSync, true);
        try_write(&tier, (200..207).map(|page| (page, 1))).unwrap_err();
        disk.clear_faults();
    }
    let tier_after = tier(&disk, 16);
    assert!(tier_after.slot(PageId::new(206)).is_some(), "the next process reads what was written");
    (300..302).for_each(|page| write(&tier_after, [(page, 1)]));
    assert_eq!(tier_after.slot(PageId::new(1)), None);
    for seed in 0..40 {
        assert_eq!(version(&tier(&disk.crash_image(&CrashChoice::Random(seed)), 16), 1), 2);
    }
}

/// A sync fails; the next process writes the same version again, into another slot; the one after
/// it finds both, uses the free slots for other pages, and the power goes off.
///
/// Regression: of a version in two slots, that counted which a failed sync had lost, and the other
/// slot was used again.
#[test]
fn a_version_that_was_written_twice_is_not_lost() {
    let disk = SimDisk::new(13);
    {
        let tier = tier(&disk, 16);
        disk.fail_at(disk.operations() + 1, Fault::FailedSync, false);
        try_write(&tier, [(1, 5)]).unwrap_err();
        disk.clear_faults();
    }
    write(&tier(&disk, 16), [(1, 5)]);
    let tier_after = tier(&disk, 16);
    (100..115).for_each(|page| write(&tier_after, [(page, 1)]));
    let tier_at_last = tier(&disk.crash_image(&CrashChoice::Nothing), 16);
    assert_eq!(version(&tier_at_last, 1), 5);
}

#[cfg(duramen_planted)]
#[test]
fn planted_bugs_of_slots_are_noticed() {
    use duramen_types::planted::{Bug, plant};
    for bug in Bug::SLOTS {
        let _planted = plant(*bug);
        assert_eq!(least_version_after_reuse(), 1, "{bug:?}");
    }
}
