//! Repeats the changes that the log has for one page.

use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, PageId, planted};

use super::window::PageChanges;
use crate::page::{self, PageType};
use crate::pool::{Exclusive, PoolError, broken};
use crate::record::PageOp;

/// What redo knows of a page before it repeats changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Visit {
    /// Redo has not visited the page.
    First,
    /// The page has all earlier changes.
    Again,
    /// The page could not be read, and earlier changes were skipped.
    AfterSkipped,
}

/// What came of repeating changes.
#[derive(Debug)]
pub(super) enum Repeated {
    /// The page has all of the changes; so many it had lacked.
    Redone(u64),
    /// All changes were skipped, for the page cannot be read, now or at an earlier visit, and none
    /// of them replaces it as a whole. A later one may: a page that is formatted anew goes to its
    /// place without a copy.
    Skipped,
}

/// Repeats the changes that `page` lacks. Those of a page that cannot be read begin with one that
/// replaces it as a whole.
pub(super) fn repeat_changes(
    page: &mut Exclusive<'_>,
    changes: PageChanges<'_>,
    visit: Visit,
) -> Result<Repeated, PoolError> {
    let id = page.id();
    let mut redone = 0;
    let mut is_skipping = visit == Visit::AfterSkipped || page.was_unreadable().is_some();
    let (mut record, mut lacks) = (Gsn::ZERO, false);
    for (gsn, op) in changes.operations() {
        if is_skipping {
            if !matches!(op, PageOp::Image(_)) {
                continue;
            }
            is_skipping = false;
            reach(Probe::PageRebuilt);
        }
        if gsn != record {
            if record.is_zero() && visit != Visit::Again && page.was_unreadable().is_none() {
                examine(page)?;
                if !page.is_durable_as_read() {
                    write_again(page, gsn);
                }
            }
            record = gsn;
            lacks = page.gsn() < gsn || planted!(IgnorePageGsn);
            if lacks {
                page.prepare_redo(gsn);
            }
        }
        if !lacks {
            continue;
        }
        let fits = match op {
            PageOp::Image(image) => page::image_of(image) == id,
            _ => op.fits(page),
        };
        if !fits {
            return Err(broken(id, "a change in the log does not fit the page"));
        }
        op.apply(&mut page.page_mut()).map_err(|misfit| broken(id, &misfit.to_string()))?;
        page::set_gsn(&mut page.page_mut(), gsn);
        redone += 1;
    }
    Ok(if is_skipping { Repeated::Skipped } else { Repeated::Redone(redone) })
}

/// Returns the error of a page that can be read again after changes of it were skipped.
pub(super) fn was_unreadable(page: PageId) -> PoolError {
    broken(page, "it could not be read before, and changes of it were skipped")
}

/// Checks that a page that redo visits for the first time is consistent.
fn examine(page: &Exclusive<'_>) -> Result<(), PoolError> {
    if matches!(page::page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        page::check(page).map_err(|defect| broken(page.id(), &defect))?;
    }
    Ok(())
}

/// Makes the pool write a page again even if it has all changes already. The page can be read, but
/// it may never have reached the medium: after a failed sync the system may return data that it has
/// not written. One call, at the first visit, is enough: a page leaves the pool again only when it
/// has been written.
fn write_again(page: &mut Exclusive<'_>, gsn: Gsn) {
    page.prepare_redo(gsn);
    page.change_all_lines();
    let own = page.gsn();
    page::set_gsn(&mut page.page_mut(), own);
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use duramen_io::{CrashChoice, Disk, OpenMode, SimDisk};
    use duramen_sync::Arc;
    use duramen_types::{Gsn, PAGE_SIZE};

    use crate::page::{self, PageType};
    use crate::pool::FoundArea;
    use crate::{Db, Error, Options, Table};

    fn open(disk: &SimDisk) -> crate::Result<Db> {
        Db::open_on(Arc::new(disk.clone()), Options::small())
    }

    /// A page that is read may not be on the medium, so the double-write area takes all of it the
    /// first time that it is written again.
    #[test]
    fn the_first_write_after_a_crash_takes_whole_pages() {
        let disk = SimDisk::new(1);
        let db = open(&disk).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(|txn| (0..20_u8).try_for_each(|key| txn.put(&table, &[key], &[0; 100]))).unwrap();
        db.checkpoint().unwrap();
        db.run(|txn| txn.put(&table, &[7], &[1; 100])).unwrap();
        db.engine().store.pool.flush_before(Gsn::MAX).unwrap();
        let area = |disk: &SimDisk| {
            let file = disk.open("doublewrite", OpenMode::Existing).unwrap();
            FoundArea::read(&*file).unwrap().map_or((0, 0), |area| (area.len() as u32, area.lines()))
        };
        let (pages, lines) = area(&disk);
        assert!(pages > 0 && lines < 16 * pages, "{lines} lines of {pages} pages");
        disk.crash();
        drop((table, db));
        let disk = disk.crash_image(&CrashChoice::Everything);
        // The areas that an opening writes after the one that it has found.
        let mut whole = 0;
        for operation in 0.. {
            let disk = disk.image();
            disk.crash_at(disk.operations() + operation);
            let opened = open(&disk).and_then(Db::close);
            let image = disk.crash_image(&CrashChoice::Everything);
            let now = area(&image);
            if now != (0, 0) && now != (pages, lines) {
                assert_eq!(now.1, 128 * now.0, "operation {operation}");
                whole += 1;
            }
            if opened.is_ok() {
                break;
            }
        }
        assert!(whole > 0);
    }

    /// Returns the pages of this type in the data file.
    fn pages(disk: &SimDisk, wanted: PageType) -> Vec<usize> {
        let bytes = disk.durable_bytes("data").unwrap();
        let pages = bytes.chunks_exact(PAGE_SIZE).enumerate();
        pages.filter(|(_, bytes)| page::page_type(bytes) == Some(wanted)).map(|(number, _)| number).collect()
    }

    fn options(instant_recovery: bool, threads: usize) -> Options {
        let redo_memory_bytes = Some(1 << 20);
        Options { instant_recovery, recovery_threads: Some(threads), redo_memory_bytes, ..Options::small() }
    }

    /// Logs more than two windows hold.
    fn fill_windows(db: &Db) {
        let table = db.create_table("fill").unwrap();
        (0..60_u8).for_each(|key| db.run(|txn| txn.put(&table, &[key % 2], &vec![key; 60_000])).unwrap());
    }

    /// Returns a database with a leaf that has changed since the checkpoint, and the leaf's table.
    fn with_a_changed_leaf(disk: &SimDisk) -> (Db, Table) {
        let db = open(disk).unwrap();
        let table = db.create_table("t").unwrap();
        db.run(|txn| (0..20_u8).try_for_each(|key| txn.put(&table, &[key], &[0; 100]))).unwrap();
        db.checkpoint().unwrap();
        db.run(|txn| txn.put(&table, &[7], &[1; 100])).unwrap();
        (db, table)
    }

    const VARIANTS: [(bool, usize); 4] = [(false, 1), (false, 2), (true, 1), (true, 2)];

    /// A leaf that changed became a page of a large value, whose write was torn. It has no copy,
    /// and redo meets the changes of the leaf first, in an earlier window.
    #[test]
    fn what_a_torn_page_was_before_it_was_formatted_anew_is_skipped() {
        let disk = SimDisk::new(1);
        let db = open(&disk).unwrap();
        let rows = db.create_table("rows").unwrap();
        db.run(|txn| (0..2000_u32).try_for_each(|key| txn.put(&rows, &key.to_be_bytes(), &[0; 100]))).unwrap();
        db.checkpoint().unwrap();
        let leaves = pages(&disk, PageType::Leaf);
        db.run(|txn| (0..2000_u32).step_by(7).try_for_each(|key| txn.put(&rows, &key.to_be_bytes(), &[1; 100])))
            .unwrap();
        fill_windows(&db);
        drop(rows);
        db.drop_table("rows").unwrap();
        let values = db.create_table("values").unwrap();
        db.run(|txn| (0..10_u8).try_for_each(|key| txn.put(&values, &[key], &vec![key; 30_000]))).unwrap();
        db.engine().store.pool.flush_before(Gsn::MAX).unwrap();
        let mut torn = pages(&disk, PageType::Overflow);
        torn.retain(|page| leaves.contains(page));
        assert!(torn.len() > 10, "{} of {} leaves", torn.len(), leaves.len());
        disk.crash();
        drop((values, db));
        for (instant, threads) in VARIANTS {
            let disk = disk.crash_image(&CrashChoice::Everything);
            torn.iter().for_each(|page| disk.flip_bit("data", (page * PAGE_SIZE + 777) as u64, 1));
            let db = Db::open_on(Arc::new(disk.clone()), options(instant, threads)).unwrap();
            assert!(db.metrics().recovery.windows > 2);
            let values = db.open_table("values").unwrap();
            for key in 0..10 {
                assert!(db.begin().get(&values, &[key]).unwrap().unwrap() == [key; 30_000]);
            }
            db.check().unwrap();
            db.close().unwrap();
        }
    }

    /// A page with changes in an early window and in the last one is not left for later without the
    /// early ones, which would be lost if it could be read again.
    #[test]
    fn changes_that_were_skipped_are_not_forgotten() {
        let disk = SimDisk::new(1);
        let (db, table) = with_a_changed_leaf(&disk);
        let leaf = *pages(&disk, PageType::Leaf).last().unwrap();
        fill_windows(&db);
        db.run(|txn| txn.put(&table, &[8], &[2; 100])).unwrap();
        disk.crash();
        drop((table, db));
        for (instant, threads) in VARIANTS {
            let disk = disk.crash_image(&CrashChoice::Nothing);
            let flip = || disk.flip_bit("data", (leaf * PAGE_SIZE + 8000) as u64, 1);
            flip();
            let opened = Db::open_on(Arc::new(disk.clone()), options(instant, threads));
            assert!(matches!(opened, Err(Error::Corrupt { .. })), "{instant}, {threads} threads: {opened:?}");
            flip();
            let db = Db::open_on(Arc::new(disk.clone()), options(instant, threads)).unwrap();
            let table = db.open_table("t").unwrap();
            let read = [7, 8].map(|key| db.begin().get(&table, &[key]).unwrap().unwrap()[0]);
            assert_eq!(read, [1, 2], "{instant}, {threads} threads");
            db.close().unwrap();
        }
    }

    /// The error comes when all changes have been read, or with instant recovery to the thread that
    /// needs the page.
    #[test]
    fn a_torn_page_that_is_not_replaced_is_reported() {
        let disk = SimDisk::new(1);
        drop(with_a_changed_leaf(&disk));
        disk.crash();
        for (instant, threads) in VARIANTS {
            let disk = disk.crash_image(&CrashChoice::Everything);
            for page in pages(&disk, PageType::Leaf) {
                disk.flip_bit("data", (page * PAGE_SIZE + 8000) as u64, 1);
            }
            let read = Db::open_on(Arc::new(disk.clone()), options(instant, threads))
                .and_then(|db| db.begin().get(&db.open_table("t")?, &[7]));
            assert!(matches!(read, Err(Error::Corrupt { .. })), "{instant}, {threads} threads: {read:?}");
        }
    }
}
