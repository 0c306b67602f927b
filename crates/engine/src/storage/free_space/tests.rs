//! Tests of missing bitmaps, and of reserved pages.

use duramen_io::{CrashChoice, Disk, OpenMode, SimDisk};
use duramen_sync::Arc;
use duramen_types::PAGE_SIZE;

use super::*;
use crate::api::db::Db;
use crate::error::{Error, Result};
use crate::options::Options;

fn options() -> Options {
    Options {
        pool_bytes: 64 * PAGE_SIZE,
        log_buffer_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open(disk: &SimDisk) -> Result<Db> {
    Db::open_on(Arc::new(disk.clone()), options())
}

/// Creates the second group's bitmap, long before the first group is full.
fn grow(db: &Db) {
    let engine = db.engine();
    engine.store.space.grow(&engine.store.pool, engine.scheme(), 1).unwrap();
}

fn groups(db: &Db) -> u64 {
    db.engine().store.space.groups()
}

fn overwrite(disk: &SimDisk, page: PageId, bytes: &[u8]) {
    let file = disk.open("data", OpenMode::Existing).unwrap();
    let mut buffer = duramen_io::AlignedBuf::zeroed(PAGE_SIZE);
    buffer.copy_from_slice(bytes);
    file.write_at(&[&buffer], page.get() * PAGE_SIZE as u64).unwrap();
    file.sync().unwrap();
}

fn is_lost(result: Result<Db>) -> bool {
    match result {
        Err(Error::Corrupt { page, reason, .. }) => {
            page == Some(bitmap::bitmap_page(1)) && reason.contains("an allocation bitmap is lost")
        }
        _ => false,
    }
}

/// Regression: a blank bitmap was taken for the end of the groups, and every page behind it could
/// have been given out again.
#[test]
fn a_lost_bitmap_is_not_the_end_of_the_groups() {
    for checkpointed in [true, false] {
        let disk = SimDisk::new(1);
        let db = open(&disk).unwrap();
        grow(&db);
        if checkpointed {
            db.close().unwrap();
            disk.open("doublewrite", OpenMode::Existing).unwrap().set_len(0).unwrap();
            overwrite(&disk, bitmap::bitmap_page(1), &[0; PAGE_SIZE]);
            assert!(is_lost(open(&disk)), "blank");
            disk.open("data", OpenMode::Existing)
                .unwrap()
                .set_len(bitmap::bitmap_page(1).get() * PAGE_SIZE as u64)
                .unwrap();
            assert!(is_lost(open(&disk)), "behind the end of the file");
        } else {
            // The log has the bitmap until the next checkpoint.
            db.engine().store.pool.flush_before(duramen_types::Gsn::MAX).unwrap();
            disk.crash();
            drop(db);
            let disk = disk.crash_image(&CrashChoice::Nothing);
            overwrite(&disk, bitmap::bitmap_page(1), &[0; PAGE_SIZE]);
            disk.open("doublewrite", OpenMode::Existing).unwrap().set_len(0).unwrap();
            let db = open(&disk).unwrap();
            assert_eq!(groups(&db), 2, "rebuilt");
            db.close().unwrap();
        }
    }
}

/// The file grows before the bitmap's record is durable, and a crash may happen in between.
#[test]
fn a_file_that_grew_ahead_has_no_more_groups() {
    let disk = SimDisk::new(2);
    let db = open(&disk).unwrap();
    db.engine().store.pool.reserve_page(bitmap::bitmap_page(1)).unwrap();
    disk.open("data", OpenMode::Existing).unwrap().sync().unwrap();
    disk.crash();
    // The record stays in the log buffer.
    grow(&db);
    drop(db);
    let image = disk.crash_image(&CrashChoice::Everything);
    assert!(image.open("data", OpenMode::Existing).unwrap().len().unwrap() > GROUP_PAGES * PAGE_SIZE as u64);
    let db = open(&image).unwrap();
    assert_eq!(groups(&db), 1);
    grow(&db);
    db.close().unwrap();
    assert_eq!(groups(&open(&image).unwrap()), 2, "made again");
}

#[test]
fn groups_are_known_after_a_checkpoint_and_a_crash() {
    let disk = SimDisk::new(3);
    let db = open(&disk).unwrap();
    grow(&db);
    db.checkpoint().unwrap();
    assert_eq!(db.engine().control.lock().control.groups, 2);
    disk.crash();
    drop(db);
    let db = open(&disk.crash_image(&CrashChoice::Nothing)).unwrap();
    assert_eq!(groups(&db), 2);
    assert!(db.engine().store.space.is_taken(&db.engine().store.pool, bitmap::bitmap_page(1)).unwrap());
}

/// Takes a page as a caller does, and logs it.
fn take(db: &Db) -> u64 {
    let (store, scheme) = (&db.engine().store, db.engine().scheme());
    log(db, store.space.take(&store.pool, scheme, Purpose::Work).unwrap())
}

fn log(db: &Db, taken: Taken<'_>) -> u64 {
    let (page, mut mini) = (taken.page, MiniTransaction::new());
    taken.record(&mut mini);
    mini.finish(db.engine().scheme());
    page.get()
}

#[test]
fn reserved_pages_are_taken_by_their_owner_only() {
    let db = open(&SimDisk::new(4)).unwrap();
    let (store, scheme) = (&db.engine().store, db.engine().scheme());
    let reserve = |most| store.space.reserve_run(&store.pool, scheme, most).unwrap();
    let mut run = reserve(4);
    let first = run.next().get();
    assert_eq!(run.len(), 4);
    let other = reserve(2);
    assert_eq!((other.next().get(), other.len()), (first + 4, 2), "behind the other run");
    assert_eq!(take(&db), first + 6, "behind both");
    assert_eq!(log(&db, run.take(&store.pool).unwrap()), first);
    assert_eq!(log(&db, run.take(&store.pool).unwrap()), first + 1);
    drop(other);
    // The first free pages are reserved; two others lie before a page that is in use.
    let between = reserve(9);
    assert_eq!((between.next().get(), between.len()), (first + 4, 2));
    drop(between);
    drop(run);
    assert_eq!([(); 5].map(|()| take(&db)), [2, 3, 4, 5, 7].map(|page| first + page), "no page is lost");
    db.close().unwrap();
}

#[test]
fn a_run_ends_with_its_group() {
    let db = open(&SimDisk::new(5)).unwrap();
    let store = &db.engine().store;
    store.space.set_hint(PageId::new(GROUP_PAGES - 3));
    let run = store.space.reserve_run(&store.pool, db.engine().scheme(), 9).unwrap();
    assert_eq!((run.next().get(), run.len()), (GROUP_PAGES - 3, 3));
    assert_eq!(take(&db), GROUP_PAGES + 1, "behind the next group's bitmap");
    drop(run);
    assert_eq!(take(&db), GROUP_PAGES - 3);
    db.close().unwrap();
}
