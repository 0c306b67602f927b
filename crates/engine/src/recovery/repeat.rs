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
    let own = page.gsn();
    page::set_gsn(&mut page.page_mut(), own);
}
