//! The second pass: every change that a page lacks is repeated, page by page within a window of the log.
//!
//! The pages of a window are visited in the order of the data file, a few at a time, which are read together: a device
//! gives a fraction of its speed when it is asked for one page after the other. When there are many, several threads
//! share them, so that reading, changing and writing back overlap.

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::{self, JoinHandle};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, PageId};
use duramen_wal::Logs;

use super::analysis::Analysis;
use super::window::{Collector, PageChanges, Window};
use crate::btree::broken;
use crate::core::Core;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::page::{self, PageType};
use crate::pool::{Exclusive, Pool};
use crate::record::PageOp;

/// Most pages that a thread reads together.
const BATCH: usize = 64;

/// A window with fewer pages for each thread is not worth a thread more.
const PAGES_PER_THREAD: usize = 512;

/// Most threads that help with a window. All together keep at most half of the pool's frames busy.
const MOST_HELPERS: usize = 3;

/// Repeats history.
pub(super) fn redo(core: &Arc<Core>, logs: &Logs, analysis: &Analysis, report: &mut RecoveryReport) -> Result<()> {
    let Some(start) = analysis.redo_start() else { return Ok(()) };
    if is_on(Bug::SkipRedo) {
        return Ok(());
    }
    let mut scanner = logs.scan(&logs.positions_before(start));
    // While one window is repeated, the next one is collected.
    let mut collector = Collector::new(&analysis.pages, core.options.redo_memory_bytes / 2);
    let mut window = collector.next(&mut scanner, report)?;
    while !window.pages.is_empty() {
        report.windows += 1;
        report.pages += window.pages.len() as u64;
        let team = Team::start(core, window);
        let next = collector.next(&mut scanner, report);
        report.redone += team.finish()?;
        window = next?;
    }
    Ok(())
}

/// A window that is being repeated.
struct Team {
    work: Arc<Work>,
    helpers: Vec<JoinHandle<Result<u64>>>,
}

impl Team {
    /// Has helpers begin, if there is enough to do for them.
    fn start(core: &Arc<Core>, window: Window) -> Self {
        let wanted =
            (window.pages.len() / PAGES_PER_THREAD).min(thread::available_parallelism().clamp(2, MOST_HELPERS));
        let work = Arc::new(Work { core: Arc::clone(core), window, next: AtomicUsize::new(0) });
        let help = || {
            let work = Arc::clone(&work);
            // If the system has no thread to give, those that are there do everything.
            thread::spawn("duramen-redo", move || work.run()).ok()
        };
        let helpers = (0..wanted).map_while(|_| help()).collect();
        Self { work, helpers }
    }

    /// Does what is left, and waits for the others; returns how many changes there were to repeat.
    fn finish(self) -> Result<u64> {
        let mut outcome = self.work.run();
        for helper in self.helpers {
            let theirs = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcome = outcome.and_then(|redone| Ok(redone + theirs?));
        }
        outcome
    }
}

/// A window and how much of it has been taken up.
struct Work {
    core: Arc<Core>,
    window: Window,
    /// The first page that no thread has taken up.
    next: AtomicUsize,
}

impl Work {
    /// Takes up some pages at a time until none is left.
    fn run(&self) -> Result<u64> {
        let (pool, pages) = (&self.core.store.pool, &self.window.pages);
        // No more than the pool reads together, so that none of them is replaced before its turn comes.
        let batch = BATCH.min(pool.frames() / 8);
        let mut redone = 0;
        loop {
            let start = self.next.fetch_add(batch, Ordering::Relaxed);
            let Some(rest) = pages.get(start..).filter(|rest| !rest.is_empty()) else { return Ok(redone) };
            let some = &rest[..batch.min(rest.len())];
            let ids: Vec<PageId> = some.iter().map(|changes| changes.page).collect();
            pool.prefetch(&ids);
            for &changes in some {
                match redo_page(pool, &self.window, changes) {
                    Ok(count) => redone += count,
                    Err(error) => {
                        self.next.store(pages.len(), Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        }
    }
}

/// Repeats the changes of one page.
fn redo_page(pool: &Pool, window: &Window, changes: PageChanges) -> Result<u64> {
    let id = changes.page;
    pool.reserve_page(id)?;
    let mut page = pool.exclusive_or_blank(id)?;
    if page.was_unreadable().is_some() {
        reach(Probe::PageRebuilt);
    }
    let mut redone = 0;
    let (mut record, mut lacks) = (Gsn::ZERO, false);
    for (gsn, op) in window.changes(changes) {
        if gsn != record {
            if record.is_zero() && changes.is_new && page.was_unreadable().is_none() {
                examine(&page)?;
                keep(&mut page, gsn);
            }
            record = gsn;
            lacks = page.gsn() < gsn || is_on(Bug::IgnorePageGsn);
            if lacks {
                page.prepare_redo(gsn);
            }
        }
        if !lacks {
            continue;
        }
        // What cannot be read can only be replaced as a whole.
        if let Some(defect) = page.was_unreadable()
            && page.gsn().is_zero()
            && !matches!(op, PageOp::Image(_))
        {
            return Err(defect.clone().into());
        }
        if !op.fits(&page) {
            return Err(broken(id, "a change in the log does not fit the page").into());
        }
        op.apply(&mut page).map_err(|misfit| broken(id, &misfit.to_string()))?;
        page::set_gsn(&mut page, gsn);
        redone += 1;
    }
    Ok(redone)
}

/// A page that redo meets for the first time must hang together.
fn examine(page: &Exclusive<'_>) -> Result<()> {
    if matches!(page::page_type(page), Some(PageType::Leaf | PageType::Inner)) {
        page::check(page).map_err(|defect| broken(page.id(), &defect))?;
    }
    Ok(())
}

/// Has a page written out again, though it may have all changes already. It can be read, but it may never have reached
/// the medium: after a failed sync the system may show what it has not written. Once is enough, on the first visit: a
/// page leaves the pool again only when it has been written.
fn keep(page: &mut Exclusive<'_>, gsn: Gsn) {
    page.prepare_redo(gsn);
    let own = page.gsn();
    page::set_gsn(page, own);
}
