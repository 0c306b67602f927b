//! The structural check: it reports nothing for a healthy database, and finds damage that checksums
//! do not show.

use std::sync::Arc;

use duramen::{CheckReport, Db, Error, Options};
use duramen_io::{AlignedBuf, Disk, OpenMode, SimDisk};
use duramen_types::{PAGE_SIZE, crc32c_append};

use crate::common::small;

const LEAF: u8 = 2;
const INNER: u8 = 3;
const OVERFLOW: u8 = 4;

fn open(disk: &SimDisk) -> Db {
    Db::open_on(Arc::new(disk.clone()), small()).unwrap()
}

fn check(disk: &SimDisk) -> CheckReport {
    let db = open(disk);
    let report = db.check().unwrap();
    drop(db);
    report
}

/// Makes a closed database with a tree of several levels, overflow values, and freed pages. The
/// double-write area holds nothing with which opening could repair a page.
fn database() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    let table = db.create_table("records").unwrap();
    let mut txn = db.begin();
    for number in 0..4_000u32 {
        txn.insert(&table, &number.to_be_bytes(), &[number as u8; 40]).unwrap();
    }
    for number in 0..10u32 {
        txn.insert(&table, &[b"large ", &number.to_be_bytes()[..]].concat(), &vec![number as u8; 20_000]).unwrap();
    }
    txn.commit().unwrap();
    let gone = db.create_table("gone").unwrap();
    let mut txn = db.begin();
    txn.put(&gone, b"key", &[1; 50_000]).unwrap();
    for number in 0..1_000u32 {
        txn.put(&gone, &number.to_be_bytes(), b"value").unwrap();
    }
    txn.commit().unwrap();
    db.drop_table("gone").unwrap();
    db.create_table("empty").unwrap();
    db.close().unwrap();
    disk.open("doublewrite", OpenMode::Existing).unwrap().set_len(0).unwrap();
    disk
}

fn pages(disk: &SimDisk) -> u64 {
    disk.open("data", OpenMode::Existing).unwrap().len().unwrap() / PAGE_SIZE as u64
}

fn read_page(disk: &SimDisk, page: u64) -> AlignedBuf {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    disk.open("data", OpenMode::Existing).unwrap().read_at(&mut bytes, page * PAGE_SIZE as u64).unwrap();
    bytes
}

/// Changes a page and gives it the checksum of its new contents.
fn tamper(disk: &SimDisk, page: u64, change: impl FnOnce(&mut [u8])) {
    let mut bytes = read_page(disk, page);
    change(&mut bytes);
    let checksum = crc32c_append(page, &bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    let file = disk.open("data", OpenMode::Existing).unwrap();
    file.write_at(&[&bytes], page * PAGE_SIZE as u64).unwrap();
    file.sync().unwrap();
}

/// Returns the first page of a type that satisfies `wanted`, after page 2 (the catalog's).
fn find(disk: &SimDisk, page_type: u8, wanted: impl Fn(&[u8]) -> bool) -> u64 {
    let found = (3..pages(disk)).find(|&page| {
        let bytes = read_page(disk, page);
        bytes[4] == page_type && wanted(&bytes)
    });
    found.expect("the database has such a page")
}

fn u16_at(page: &[u8], at: usize) -> usize {
    u16::from_le_bytes([page[at], page[at + 1]]).into()
}

/// Size of a slot.
const SLOT: usize = 4;

/// Returns the offset of the child pointer of a slot of an inner node.
fn child_at(page: &[u8], slot: usize) -> usize {
    let cell = u16_at(page, 64 + slot * SLOT + 2) & 0x1FFF;
    // The lengths of suffix and value have a byte each.
    cell + 2 + usize::from(page[cell])
}

fn several_slots(page: &[u8]) -> bool {
    u16_at(page, 32) > 4
}

/// Returns the report on the database that `plant` has damaged; one of its problems contains
/// `expected`.
#[track_caller]
fn expect_problem(plant: impl FnOnce(&SimDisk), expected: &str) -> CheckReport {
    let disk = database();
    plant(&disk);
    let report = check(&disk);
    assert!(!report.is_ok());
    assert!(report.problems.iter().any(|problem| problem.contains(expected)), "{report:#?}");
    assert!(report.problems.iter().all(|problem| problem.contains("data` at byte")), "{report:#?}");
    report
}

#[test]
fn a_healthy_database_has_no_problems() {
    let disk = database();
    let report = check(&disk);
    assert!(report.is_ok(), "{report:#?}");
    assert_eq!((report.tables, report.records, report.ghosts), (2, 4_010, 0));
    let taken = report.pages + 1; // page 0 is reserved
    assert_eq!(taken + report.free_pages, pages(&disk));
    assert!(report.pages > 40, "{report:?}");
}

#[test]
fn ghosts_are_counted_and_their_values_left_alone() {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    let table = db.create_table("t").unwrap();
    let mut txn = db.begin();
    txn.insert(&table, b"c", &[7; 30_000]).unwrap();
    txn.insert(&table, b"d", b"small").unwrap();
    txn.commit().unwrap();
    // The reader locks the absence of "b", and with it the gap before the next key.
    let mut reader = db.begin();
    assert_eq!(reader.get(&table, b"b").unwrap(), None);
    let mut txn = db.begin();
    assert!(txn.delete(&table, b"c").unwrap());
    txn.commit().unwrap();
    let report = db.check().unwrap();
    assert!(report.is_ok(), "{report:#?}");
    assert_eq!((report.records, report.ghosts), (1, 1));
    reader.commit().unwrap();
    db.close().unwrap();
    let report = check(&disk);
    assert!(report.is_ok(), "{report:#?}");
}

#[test]
fn a_crash_leaves_nothing_to_complain_about() {
    let disk = SimDisk::new(3);
    let db = open(&disk);
    let table = db.create_table("t").unwrap();
    for round in 0..20u8 {
        let mut txn = db.begin();
        for number in 0..100u32 {
            txn.put(&table, &(number * 7 % 90).to_be_bytes(), &vec![round; usize::from(round) * 300]).unwrap();
        }
        if round % 3 == 0 {
            txn.abort().unwrap()
        } else {
            txn.commit().unwrap()
        }
        if round % 5 == 4 {
            let crashed = disk.crash_image(&duramen_io::CrashChoice::Random(round.into()));
            let report = check(&crashed);
            assert!(report.is_ok(), "{report:#?}");
            assert_eq!(report.records, 90);
        }
    }
}

#[test]
fn a_flipped_bit_is_found_and_the_rest_is_checked() {
    let report = expect_problem(
        |disk| {
            let leaf = find(disk, LEAF, several_slots);
            disk.open("data", OpenMode::Existing).unwrap().sync().unwrap();
            disk.flip_bit("data", leaf * PAGE_SIZE as u64 + 5_000, 3);
        },
        "checksum",
    );
    assert_eq!(report.tables, 2);
    assert!(report.records > 3_500, "{report:#?}");
}

/// Scans all records, upwards, downwards, and in a snapshot; returns how each scan ends. None goes
/// on after twice as many records as there are.
fn scans(disk: &SimDisk) -> [Result<(), Error>; 3] {
    const MANY: usize = 8_020;
    let db = Db::open_on(Arc::new(disk.clone()), Options { snapshots: true, ..small() }).unwrap();
    let table = db.open_table("records").unwrap();
    let end = |rows: &mut dyn Iterator<Item = duramen::Result<(Vec<u8>, Vec<u8>)>>| {
        let mut seen = 0;
        for row in rows {
            seen += 1;
            assert!(seen <= MANY, "the scan does not end");
            row?;
        }
        Ok(())
    };
    let snapshot = db.snapshot().unwrap();
    [
        end(&mut db.begin().scan(&table, ..)),
        end(&mut db.begin().scan_rev(&table, ..)),
        end(&mut snapshot.scan(&table, ..)),
    ]
}

/// A scan that goes on behind the last key that it has read would read these leaves again and
/// again.
#[test]
fn scans_of_keys_that_are_not_in_order_end() {
    for (page_type, is_first_last) in [(LEAF, true), (LEAF, false), (INNER, true), (INNER, false)] {
        let disk = database();
        assert!(scans(&disk).iter().all(Result::is_ok));
        tamper(&disk, find(&disk, page_type, several_slots), |page| {
            let end = 64 + u16_at(page, 32) * SLOT;
            let slots = &mut page[64..end];
            if is_first_last { slots.rotate_left(SLOT) } else { slots.rotate_right(SLOT) }
        });
        let ends = scans(&disk);
        if page_type == LEAF {
            let error = ends[usize::from(!is_first_last)].as_ref().unwrap_err();
            assert!(error.to_string().contains("its keys are not in order"), "{error}");
        } else {
            assert!(ends.iter().all(|end| matches!(end, Err(Error::Corrupt { .. }))), "{ends:?}");
        }
    }
}

#[test]
fn exchanged_children_are_found_by_their_fences() {
    expect_problem(
        |disk| {
            tamper(disk, find(disk, INNER, several_slots), |page| {
                let (first, second) = (child_at(page, 1), child_at(page, 2));
                for byte in 0..8 {
                    page.swap(first + byte, second + byte);
                }
            });
        },
        "fence is not the separator in the parent",
    );
}

#[test]
fn a_child_with_two_parents_is_found() {
    let report = expect_problem(
        |disk| {
            tamper(disk, find(disk, INNER, several_slots), |page| {
                let (first, second) = (child_at(page, 1), child_at(page, 2));
                page.copy_within(first..first + 8, second);
            });
        },
        "used twice",
    );
    assert!(report.problems.iter().any(|problem| problem.contains("nothing uses")), "{report:#?}");
}

#[test]
fn children_that_cannot_be_are_found() {
    for child in [0xffff_ffff_ffffu64, 64 * 1024 * 1024, 1] {
        expect_problem(
            |disk| {
                tamper(disk, find(disk, INNER, several_slots), |page| {
                    let at = child_at(page, 1);
                    page[at..at + 8].copy_from_slice(&child.to_le_bytes());
                });
            },
            "table `records`",
        );
    }
}

#[test]
fn a_node_of_another_table_or_level_is_found() {
    expect_problem(|disk| tamper(disk, find(disk, LEAF, several_slots), |page| page[24] ^= 1), "the page belongs to");
    expect_problem(
        |disk| {
            let child = find(disk, LEAF, several_slots);
            tamper(disk, child, |page| (page[4], page[5]) = (INNER, 1));
        },
        "table `records`",
    );
}

#[test]
fn a_leaked_page_and_one_given_away_too_early_are_found() {
    let bit = |page: &mut [u8], bit: usize| page[64 + bit / 8] ^= 1 << (bit % 8);
    let report = expect_problem(|disk| tamper(disk, 1, |page| bit(page, pages(disk) as usize - 1)), "nothing uses it");
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    let report = expect_problem(
        |disk| {
            let leaf = find(disk, LEAF, several_slots);
            tamper(disk, 1, |page| bit(page, leaf as usize));
        },
        "the bitmap in page 1 says that it is free",
    );
    assert_eq!(report.problems.len(), 1, "{report:#?}");
    expect_problem(|disk| tamper(disk, 1, |page| bit(page, 0)), "the bitmap says that page 0 is free");
    expect_problem(|disk| tamper(disk, 1, |page| page[40] = 1), "reserved bytes");
}

#[test]
fn damaged_overflow_values_are_found() {
    let first = |page: &[u8]| page[48..52] == [0; 4] && page[32..40] != [0; 8];
    let plant = |change: fn(&mut [u8])| move |disk: &SimDisk| tamper(disk, find(disk, OVERFLOW, first), change);
    expect_problem(plant(|page| page[4_000] ^= 1), "length or checksum");
    expect_problem(plant(|page| page[52] ^= 1), "bytes of its value, not");
    expect_problem(plant(|page| page[40] ^= 1), "belongs to chain");
    expect_problem(plant(|page| page[48] ^= 1), "of its chain");
    expect_problem(plant(|page| page[32..40].fill(0)), "ends after 1 pages");
    expect_problem(plant(|page| page[32] = 2), "used twice");
}

#[test]
fn a_damaged_catalog_is_a_problem_and_no_error() {
    let report = expect_problem(|disk| tamper(disk, 2, |page| page[34] = 0xff), "the catalog");
    assert_eq!(report.tables, 0);
    assert!(report.problems.iter().any(|problem| problem.contains("may belong to pages that could not be reached")));
}

#[test]
fn a_closed_database_is_not_checked() {
    let disk = database();
    let db = open(&disk);
    let other = db.clone();
    db.close().unwrap();
    assert!(matches!(other.check(), Err(duramen::Error::Closed)));
}
