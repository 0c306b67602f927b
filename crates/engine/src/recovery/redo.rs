//! The second pass: every change that a page lacks is repeated, in the order of the log.

use std::collections::HashSet;

use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, Lsn, PageId};

use super::analysis::{Analysis, kind_of, lsn_of};
use super::malformed;
use crate::btree::broken;
use crate::core::Core;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::page::{self, PageType};
use crate::pool::Exclusive;
use crate::record::{PageOp, PageOps};
use crate::scheme::WalScheme;

/// Repeats history.
pub(super) fn redo(core: &Core, scheme: &WalScheme, analysis: &Analysis, report: &mut RecoveryReport) -> Result<()> {
    let Some(start) = analysis.redo_start() else { return Ok(()) };
    if is_on(Bug::SkipRedo) {
        return Ok(());
    }
    let mut scanner = scheme.wal().scan(lsn_of(start));
    prefetch(core, analysis);
    let mut visited = HashSet::new();
    while let Some(record) = scanner.next()? {
        report.records += 1;
        report.bytes += record.end.get() - record.lsn.get();
        let kind = kind_of(&record)?;
        scheme.set_redo_position(record.gsn);
        let ops = PageOps::of(kind, record.flags, record.page, record.payload).map_err(|_| malformed(record.lsn))?;
        redo_record(core, analysis, record.gsn, record.lsn, ops, &mut visited, report)?;
    }
    scheme.set_redo_position(Gsn::ZERO);
    Ok(())
}

/// A page that redo meets for the first time must hang together, and cannot be ahead of the log.
fn examine(page: &Exclusive<'_>, end: Lsn) -> Result<()> {
    if page.was_unreadable().is_some() {
        return Ok(());
    }
    if lsn_of(page.gsn()) >= end {
        return Err(broken(page.id(), "it has changes that the log does not have: the log has lost its end").into());
    }
    if matches!(page::page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        page::check(page).map_err(|defect| broken(page.id(), &defect))?;
    }
    Ok(())
}

/// Reads the pages that redo is going to need, as many as fit the pool, together and in the order of the file.
fn prefetch(core: &Core, analysis: &Analysis) {
    let pool = &core.store.pool;
    let mut pages: Vec<PageId> = analysis.pages.keys().copied().collect();
    pages.sort_unstable();
    pages.truncate(pool.frames() * 3 / 4);
    pool.prefetch(&pages);
}

/// Has a page written out again that has the record's change already. It can be read, but it may never have reached the
/// medium: after a failed sync the system may show what it has not written. Once is enough, on the first visit: a page
/// leaves the pool again only when it has been written.
fn keep(page: &mut Exclusive<'_>, gsn: Gsn) {
    if page.was_unreadable().is_none() {
        page.prepare_redo(gsn);
        let own = page.gsn();
        page::set_gsn(page, own);
    }
}

/// A page of the record that is being repeated, and whether it lacks the record's changes.
struct Target<'p> {
    page: Exclusive<'p>,
    lacks: bool,
}

/// Repeats one record. Its pages stay latched until all of its operations are done, as they were the first time: no page
/// reaches the disk with a part of them.
fn redo_record(
    core: &Core,
    analysis: &Analysis,
    gsn: Gsn,
    lsn: Lsn,
    ops: PageOps<'_>,
    visited: &mut HashSet<PageId>,
    report: &mut RecoveryReport,
) -> Result<()> {
    let end = core.scheme().end();
    let mut targets: Vec<Target<'_>> = Vec::new();
    for op in ops {
        let (id, op) = op.map_err(|_| malformed(lsn))?;
        if analysis.pages.get(&id).is_none_or(|&from| from > gsn) {
            continue;
        }
        let at = match targets.iter().position(|target| target.page.id() == id) {
            Some(at) => at,
            None => {
                core.store.pool.reserve_page(id)?;
                let mut page = core.store.pool.exclusive_or_blank(id)?;
                let lacks = page::gsn(&page) < gsn || is_on(Bug::IgnorePageGsn);
                if visited.insert(id) {
                    examine(&page, end)?;
                    if !lacks {
                        keep(&mut page, gsn);
                    }
                }
                targets.push(Target { page, lacks });
                targets.len() - 1
            }
        };
        let Target { page, lacks } = &mut targets[at];
        if !*lacks {
            continue;
        }
        if page::gsn(page) < gsn {
            // The first operation on this page: what cannot be read can only be replaced as a whole.
            if let Some(defect) = page.was_unreadable()
                && !matches!(op, PageOp::Image(_))
            {
                return Err(defect.clone().into());
            }
            page.prepare_redo(gsn);
        }
        if !op.fits(page) {
            return Err(broken(id, "a change in the log does not fit the page").into());
        }
        op.apply(page).map_err(|misfit| broken(id, &misfit.to_string()))?;
        page::set_gsn(page, gsn);
        report.redone += 1;
    }
    Ok(())
}
