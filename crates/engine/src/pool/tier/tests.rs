//! One suite over everything that a tier can lie on. What a disk does alone, errors and failed
//! syncs, is tested on a file.

use duramen_io::{AlignedBuf, CrashChoice, Fault};
use duramen_test_support::{Stride, is_long};
use duramen_types::{Gsn, PAGE_SIZE, PageId};

use super::*;
use crate::page::{self, DatabaseTag};
use crate::pool::FoundArea;
use ground::{Ground, MEDIA, NoLog, OnWhat, decay, decay_in_file, try_write, version, write};

mod ground;

#[test]
fn pages_are_read_where_their_newest_version_is() {
    for on in MEDIA {
        let ground = Ground::new(1, on);
        let tier = ground.tier(16);
        for round in 1..20 {
            write(&tier, (1..=40).map(|page| (page, round * 100 + page)));
            for page in 1..=40 {
                assert_eq!(version(&tier, page), round * 100 + page);
            }
        }
        let metrics = tier.metrics();
        assert!(
            metrics.pages <= 16 && metrics.written == 19 * 40 && metrics.hits > 0 && metrics.misses > 0,
            "{metrics:?}"
        );
        assert_eq!(metrics.written - metrics.written_back, metrics.pages, "each page was replaced by leaving");
    }
}

/// A tier that several threads read when it is opened, each a part.
#[test]
fn several_threads_find_what_one_finds() {
    let ground = Ground::new(17, None);
    let tier = ground.tier(300);
    (0..4).for_each(|part| write(&tier, (1..=70).map(|page| (70 * part + page, 1))));
    write(&tier, (1..=20).map(|page| (page, 2)));
    let found = [1, 2, 5].map(|threads| FoundTier::read(tier.slots.clone(), Some(threads)).unwrap().contents);
    assert_eq!(found[0].pages.len(), 300, "the slots of the older versions are free, and not blank");
    assert!(found.iter().all(|contents| contents.pages == found[0].pages && contents.unreadable.is_empty()));
    let tier = ground.tier(300);
    assert!((1..=280).all(|page| version(&tier, page) == if page <= 20 { 2 } else { 1 }));
}

#[test]
fn a_page_that_is_written_often_stays() {
    for on in MEDIA {
        let ground = Ground::new(2, on);
        let tier = ground.tier(16);
        for round in 1..50 {
            write(&tier, [(1, round), (100 + round, round)]);
        }
        let metrics = tier.metrics();
        assert!(tier.slot(PageId::new(1)).is_some());
        assert!(metrics.written_back < 49, "only the others leave: {metrics:?}");
    }
}

/// Pages that are near to each other leave together, with what is between, in one write.
#[test]
fn neighbours_leave_together() {
    for on in MEDIA {
        let ground = Ground::new(16, on);
        ground.run.set(16);
        let tier = ground.tier(32);
        // All of 32..=63 but page 40 are in the data file. Then every fourth page is in the tier.
        write(&tier, (32..64).filter(|page| *page != 40).map(|page| (page, 1)));
        write(&tier, (100..130).map(|page| (page * 3, 1)));
        write(&tier, (32..64).step_by(4).filter(|page| *page != 40).map(|page| (page, 2)));
        assert!((32..64).step_by(4).all(|page| page == 40 || tier.slot(PageId::new(page)).is_some()));
        let (before, data) = (tier.metrics(), ground.open("data"));
        decay_in_file(&ground, 58);
        (70..290).for_each(|page| write(&tier, [(page, 1)]));
        assert!(tier.metrics().written_back > before.written_back);
        for page in 32..64_u64 {
            if page == 40 || page == 58 {
                continue;
            }
            assert_eq!(version(&tier, page), if page % 4 == 0 { 2 } else { 1 }, "{on:?}: page {page}");
            let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
            data.read_at(&mut bytes, page * PAGE_SIZE as u64).unwrap();
            assert_eq!(page::gsn(&bytes).get(), version(&tier, page), "{on:?}: page {page} has left");
        }
        tier.read(PageId::new(58), false, &mut AlignedBuf::zeroed(PAGE_SIZE)).unwrap_err();
    }
}

/// The newest version of a page is in a slot that has decayed, and an older one in the data file,
/// between pages that leave.
///
/// Regression: the older one was written again, and counted from then on.
#[test]
fn an_older_version_between_pages_that_leave_does_not_count() {
    for on in MEDIA {
        let ground = Ground::new(17, on);
        ground.run.set(16);
        {
            let tier = ground.tier(32);
            write(&tier, (32..48).map(|page| (page, 1)));
            (100..140).for_each(|page| write(&tier, [(page, 1)]));
            assert_eq!(tier.slot(PageId::new(40)), None);
            tier.write_versions().unwrap();
        }
        // What this process writes is behind the log's end at its beginning.
        *ground.log_end.borrow_mut() = Gsn::new(2);
        let tier = ground.tier(32);
        write(&tier, [(36, 5), (40, 5), (44, 5)]);
        decay(&tier, &ground, 40);
        (140..190).for_each(|page| write(&tier, [(page, 5)]));
        assert_eq!((tier.slot(PageId::new(36)), tier.slot(PageId::new(44))), (None, None));
        tier.write_versions().unwrap();
        drop(tier);
        *ground.log_end.borrow_mut() = Gsn::MAX;
        let tier = ground.tier(32);
        assert_eq!((version(&tier, 36), version(&tier, 44)), (5, 5));
        tier.read(PageId::new(40), false, &mut AlignedBuf::zeroed(PAGE_SIZE)).unwrap_err();
    }
}

#[test]
fn a_drained_tier_is_needed_no_more() {
    for on in MEDIA {
        let ground = Ground::new(3, on);
        let tier = ground.tier(32);
        write(&tier, (1..=20).map(|page| (page, page)));
        let mut removed = 0;
        tier.drain(&mut || {
            removed += 1;
            Ok(())
        })
        .unwrap();
        write(&tier, [(3, 333)]);
        let area = FoundArea::read(&*ground.open("doublewrite")).unwrap().unwrap();
        assert_eq!((area.len(), area.lines()), (1, 128), "the whole page");
        let file = FilePages::new(
            ground.open("data"),
            DatabaseTag::of(&[3; 16]),
            Some(ground.open("doublewrite")),
            None,
            NoLog::rule(),
        )
        .unwrap();
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        for page in 1..=20 {
            file.read(PageId::new(page), false, &mut bytes).unwrap();
            assert_eq!(page::gsn(&bytes).get(), if page == 3 { 333 } else { page });
        }
        assert_eq!((removed, tier.metrics().pages), (1, 0));
    }
}

/// Regression: a drain that a checkpoint had stamped meanwhile put the stamp back to an earlier
/// generation, so that the database was refused if the removal failed.
#[test]
fn a_drained_tier_keeps_its_stamp() {
    for on in MEDIA {
        let ground = Ground::new(10, on);
        let tier = ground.tier(16);
        write(&tier, [(1, 1)]);
        let stamp = Stamp { database: [3; 16], generation: 7 };
        tier.stamp(stamp).unwrap();
        tier.drain(&mut || Err(crate::Error::Closed)).unwrap_err();
        drop(tier);
        let (_, header) = Slots::open(ground.medium()).unwrap().unwrap();
        assert_eq!((header.stamp, header.is_drained), (stamp, true));
    }
}

/// The power goes off at each operation of a sample, in the long suite of all: every page then has
/// the version that was last written durably, or the one that was being written.
#[test]
fn a_crash_at_any_operation_loses_no_written_version() {
    let rounds = |ground: &Ground, tier: &TieredPages, durable: &mut u64| {
        for round in 1..8 {
            write(tier, (1..=12).map(|page| (page * 7 % 40 + 1, round)));
            if ground.is_off() {
                return;
            }
            *durable = round;
            write(tier, [(50 + round, round)]);
        }
    };
    for (on, run) in MEDIA.into_iter().flat_map(|on| [(on, 1), (on, 16)]) {
        let new = || {
            let ground = Ground::new(4, on);
            ground.run.set(run);
            ground
        };
        let whole = new();
        let begun = {
            let tier = whole.tier(16);
            let begun = whole.operations();
            rounds(&whole, &tier, &mut 0);
            begun
        };
        let mut points = 0;
        for operation in Stride::sampled("power cuts of a page tier", 1, 4).until(whole.operations() - begun) {
            let operation = begun + operation;
            let ground = new();
            let tier_before = ground.tier(16);
            ground.crash_at(operation);
            let mut durable = 0;
            if !ground.is_cut_off(|| rounds(&ground, &tier_before, &mut durable)) {
                // Of two devices, one has fewer operations than the other.
                assert!(on.is_some(), "operation {operation} is never reached");
                continue;
            }
            for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(operation)] {
                let tier = ground.crash_image(&choice).tier(16);
                for page in (1..=12).map(|page| page * 7 % 40 + 1).filter(|_| durable > 0) {
                    let found = version(&tier, page);
                    let may_be = durable..=durable + 1;
                    assert!(may_be.contains(&found), "{on:?}, run {run}, {operation}: page {page} has {found}");
                }
                points += 1;
            }
        }
        println!("{on:?}, run {run}: {points} images");
        assert!(points > if is_long() { 100 } else { 20 });
    }
}

/// A header that is being written when the power goes off is the earlier one or the later one.
#[test]
fn a_torn_header_leaves_the_earlier_one() {
    let stamp = |generation| Stamp { database: [3; 16], generation };
    for on in MEDIA {
        let mut seen = std::collections::BTreeSet::new();
        for operation in 0..12 {
            let ground = Ground::new(15, on);
            let tier = ground.tier(16);
            tier.slots.stamp(stamp(1)).unwrap();
            ground.crash_at(ground.operations() + operation);
            ground.is_cut_off(|| tier.slots.stamp(stamp(2)).unwrap());
            for seed in 0..40 {
                let image = ground.crash_image(&CrashChoice::Random(seed));
                let (_, header) = Slots::open(image.medium()).unwrap().unwrap();
                seen.insert(header.stamp.generation);
            }
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1, 2], "{on:?}");
    }
}

/// A page leaves the tier in its second version. The power goes off while the slots of both
/// versions are overwritten, so that the second may be gone and the first still there. Returns the
/// lowest version that is found.
fn least_version_after_reuse(on: OnWhat) -> u64 {
    let mut least = u64::MAX;
    for operation in 0.. {
        let ground = Ground::new(6, on);
        let tier = ground.tier(16);
        write(&tier, [(1, 1)]);
        write(&tier, [(1, 2)]);
        write(&tier, (100..108).map(|page| (page, 2)));
        ground.crash_at(ground.operations() + operation);
        if !ground.is_cut_off(|| write(&tier, (200..208).map(|page| (page, 2)))) {
            if operation > 60 || on.is_none() {
                return least;
            }
            continue;
        }
        for seed in 0..40 {
            least = least.min(version(&ground.crash_image(&CrashChoice::Random(seed)).tier(16), 1));
        }
    }
    unreachable!("some operation is the last one")
}

#[test]
fn an_old_version_does_not_come_back() {
    for on in MEDIA {
        assert_eq!(least_version_after_reuse(on), 2, "{on:?}");
    }
}

/// A slot decays while the tier is in use: its page stays there, unreadable, and all others are
/// written and read as ever.
#[test]
fn a_damaged_slot_stops_nobody_but_its_readers() {
    for on in MEDIA {
        let ground = Ground::new(7, on);
        let tier = ground.tier(16);
        write(&tier, (1..=8).map(|page| (page, 1)));
        decay(&tier, &ground, 3);
        for round in 2..30 {
            write(&tier, (100..108).map(|page| (page + round % 3 * 8, round)));
        }
        let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
        let read = tier.read(PageId::new(3), false, &mut bytes);
        assert!(matches!(&read, Err(PoolError::Corrupt { file, .. }) if *file == tier.slots.path()), "{read:?}");
        assert_eq!(version(&tier, 1), 1);
        let drained = tier.drain(&mut || panic!("the page is nowhere else"));
        assert!(matches!(drained, Err(crate::Error::Corrupt { .. })), "{drained:?}");
        assert_eq!(tier.metrics().pages, 1, "all others have left");
        write(&tier, [(3, 40)]);
        tier.drain(&mut || Ok(())).unwrap();
        assert_eq!(version(&tier, 3), 40);
    }
}

/// Regression: a slot that could not be read failed the opening.
#[test]
fn a_slot_that_cannot_be_read_at_opening_is_left_alone() {
    let ground = Ground::new(11, None);
    let slot = {
        let tier = ground.tier(16);
        write(&tier, (1..=4).map(|page| (page, 1)));
        tier.write_versions().unwrap();
        u64::from(tier.slot(PageId::new(3)).unwrap())
    };
    {
        let slots = Slots::open(ground.medium()).unwrap().unwrap().0;
        // Behind the sync: the read of all slots, and then that of this one.
        let begun = ground.disk.operations();
        [1, 2 + slot].into_iter().for_each(|at| ground.disk.fail_at(begun + at, Fault::Eio, false));
        let tier = ground.above_file(FoundTier::read(slots, Some(2)).unwrap());
        tier.read(PageId::new(3), false, &mut AlignedBuf::zeroed(PAGE_SIZE)).unwrap_err();
        for round in 2..30 {
            write(&tier, (100..108).map(|page| (page + round % 3 * 8, round)));
        }
        let drained = tier.drain(&mut || panic!("the page is nowhere else"));
        assert!(matches!(drained, Err(crate::Error::Corrupt { .. })), "{drained:?}");
    }
    let tier = ground.tier(16);
    assert!((1..=4).all(|page| version(&tier, page) == 1), "it still holds its page");
    ground.disk.fail_at(ground.disk.operations(), Fault::Eio, true);
    FoundTier::read(tier.slots.clone(), None).unwrap_err();
}

/// Regression: a page that could not be read when it was to leave made the write fail that needed
/// its slot.
#[test]
fn a_page_that_cannot_be_read_stays_in_the_tier() {
    let ground = Ground::new(12, None);
    let tier = ground.tier(16);
    write(&tier, (1..=8).map(|page| (page, 1)));
    write(&tier, (9..=16).map(|page| (page, 1)));
    // The batch of reads, and then the page that was used least recently, by itself.
    let begun = ground.disk.operations();
    [0, 1].into_iter().for_each(|at| ground.disk.fail_at(begun + at, Fault::Eio, false));
    write(&tier, [(100, 1)]);
    assert!(tier.slot(PageId::new(1)).is_some() && tier.slot(PageId::new(2)).is_none());
    assert!((1..=16).chain([100]).all(|page| version(&tier, page) == 1));
}

/// A slot decays between two openings, and an older version of its page is in the data file.
#[test]
fn an_older_version_is_not_taken_for_a_damaged_one() {
    for on in MEDIA {
        let ground = Ground::new(8, on);
        {
            let tier = ground.tier(16);
            write(&tier, [(1, 1)]);
            (100..140).for_each(|page| write(&tier, [(page, 1)]));
            write(&tier, [(1, 2)]);
            tier.write_versions().unwrap();
            decay(&tier, &ground, 1);
        }
        let tier = ground.tier(16);
        let read = tier.read(PageId::new(1), false, &mut AlignedBuf::zeroed(PAGE_SIZE));
        assert!(
            matches!(&read, Err(PoolError::Corrupt { defect, .. }) if defect.contains("older version")),
            "{read:?}"
        );
    }
}

/// A sync fails, so that a slot keeps its former contents on the medium while the next process
/// reads the later ones. The page of the former contents then leaves the tier, and the power goes
/// off.
#[test]
fn former_contents_of_a_slot_do_not_count() {
    let ground = Ground::new(9, None);
    {
        let tier = ground.tier(16);
        write(&tier, [(1, 1)]);
        write(&tier, [(1, 2)]);
        tier.write_versions().unwrap();
        // Fifteen slots are free, and the one with the old version is the last of them.
        write(&tier, (100..108).map(|page| (page, 1)));
        ground.disk.fail_at(ground.disk.operations(), Fault::FailedSync, true);
        try_write(&tier, (200..207).map(|page| (page, 1))).unwrap_err();
        ground.disk.clear_faults();
    }
    let tier_after = ground.tier(16);
    assert!(tier_after.slot(PageId::new(206)).is_some(), "the next process reads what was written");
    (300..302).for_each(|page| write(&tier_after, [(page, 1)]));
    assert_eq!(tier_after.slot(PageId::new(1)), None);
    for seed in 0..40 {
        assert_eq!(version(&ground.crash_image(&CrashChoice::Random(seed)).tier(16), 1), 2);
    }
}

/// A sync fails; the next process writes the same version again, into another slot; the one after
/// it finds both, uses the free slots for other pages, and the power goes off.
///
/// Regression: of a version in two slots, that counted which a failed sync had lost, and the other
/// slot was used again.
#[test]
fn a_version_that_was_written_twice_is_not_lost() {
    let ground = Ground::new(13, None);
    {
        let tier = ground.tier(16);
        ground.disk.fail_at(ground.disk.operations() + 1, Fault::FailedSync, false);
        try_write(&tier, [(1, 5)]).unwrap_err();
        ground.disk.clear_faults();
    }
    write(&ground.tier(16), [(1, 5)]);
    let tier_after = ground.tier(16);
    (100..115).for_each(|page| write(&tier_after, [(page, 1)]));
    let tier_at_last = ground.crash_image(&CrashChoice::Nothing).tier(16);
    assert_eq!(version(&tier_at_last, 1), 5);
}

#[cfg(duramen_planted)]
#[test]
fn planted_bugs_of_slots_are_noticed() {
    use duramen_types::planted::{Bug, plant};
    for bug in Bug::SLOTS {
        let _planted = plant(*bug);
        for on in MEDIA {
            assert_eq!(least_version_after_reuse(on), 1, "{bug:?} on {on:?}");
        }
    }
}
