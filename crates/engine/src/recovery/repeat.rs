//! Repeats the changes that the log has for one page.

use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, planted};

use super::window::PageChanges;
use crate::page::{self, PageType};
use crate::pool::{Exclusive, PoolError, broken};
use crate::record::PageOp;

/// Repeats the changes that `page` lacks; returns their number.
pub(super) fn repeat_changes(
    page: &mut Exclusive<'_>,
    changes: PageChanges<'_>,
    is_new: bool,
) -> Result<u64, PoolError> {
    let id = page.id();
    if page.was_unreadable().is_some() {
        reach(Probe::PageRebuilt);
    }
    let mut redone = 0;
    let (mut record, mut lacks) = (Gsn::ZERO, false);
    for (gsn, op) in changes.operations() {
        if gsn != record {
            if record.is_zero() && is_new && page.was_unreadable().is_none() {
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
        // A page that cannot be read can only be replaced as a whole.
        if let Some(defect) = page.was_unreadable()
            && page.gsn().is_zero()
            && !matches!(op, PageOp::Image(_))
        {
            return Err(defect.clone());
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
    Ok(redone)
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

    use crate::pool::FoundArea;
    use crate::{Db, Options};

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
        db.engine().store.pool.flush_before(duramen_types::Gsn::MAX).unwrap();
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
}
