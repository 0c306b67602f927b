//! The second pass: every change that a page lacks is repeated, page by page within a window of the logs.
//!
//! Threads read the logs and repeat what they say by a pipeline (`pipeline.rs`). The pages of a bucket are visited in the
//! order of the data file, some at a time, which are read together: a device gives a fraction of its speed when it is asked
//! for one page after the other.

use std::collections::HashMap;

use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, crew};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, LogId, Lsn, PageId};
use duramen_wal::{Logs, RecordRef, Scanner};

use super::analysis::{DirtyPages, kind_of};
use super::malformed;
use super::on_demand::{Lacking, Unredone};
use super::pipeline::{Pipeline, Portions, Stages};
use super::window::{Bucket, Kept, PageChanges, Run};
use crate::btree::broken;
use crate::core::Core;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::mix::BuildNumberHasher;
use crate::page::{self, PageType};
use crate::pool::{Exclusive, Pool, PoolError};
use crate::record::{PageOp, PageOps};

/// Most pages that a thread reads together.
const BATCH: usize = 64;

/// Steps in which a window is read, if the log has nothing but what is to be repeated.
const STEPS: usize = 8;

/// Buckets for each of several threads: so many that none waits long for another at the end of a window.
const BUCKETS_PER_THREAD: usize = 8;

/// Repeats history, as far as `pages` may lack it, from the given GSNs on. If the database is to be opened early, the last
/// window is left to whoever needs its pages; it is bounded like any other.
pub(super) fn redo(
    core: &Arc<Core>,
    logs: &Logs,
    pages: DirtyPages,
    report: &mut RecoveryReport,
) -> Result<Option<Unredone>> {
    let Some(start) = pages.values().min().copied() else { return Ok(None) };
    if is_on(Bug::SkipRedo) {
        return Ok(None);
    }
    let positions = logs.positions_before(start);
    let bytes = logs.extents().iter().zip(&positions).map(|(extent, from)| extent.1.get() - from.get()).sum();
    let threads = crew::size_for(core.options.recovery_threads, bytes);
    let sources: Vec<Source> =
        (0..).map(LogId::new).zip(&positions).map(|(log, from)| Source::new(logs, log, *from)).collect();
    let window_bytes = core.options.redo_memory_bytes / 2;
    let portions = Portions {
        window_bytes,
        step: (window_bytes / (STEPS * sources.len())).max(1) as u64,
        buckets: if threads == 1 { 1 } else { BUCKETS_PER_THREAD * threads },
        keep_last: core.options.open_early,
    };
    let frames = core.store.pool.frames();
    let redo = Redo {
        core: Arc::clone(core),
        pages: pages.into_iter().map(|(page, from)| (page, Tracked::from(from))).collect(),
        buckets: portions.buckets,
        // All threads together keep at most half of the pool's frames busy, and none reads more than the pool does at a
        // time, so that no page is replaced before its turn comes.
        batch: BATCH.min(frames / (2 * threads)).min(frames / 8).max(1),
        counts: Counts::default(),
    };
    let pipeline = Arc::new(Pipeline::new(redo, sources, portions));
    let shared = Arc::clone(&pipeline);
    let outcomes = crew::run(threads, "duramen-redo", move || shared.work());
    outcomes.into_iter().collect::<Result<()>>()?;
    let unredone = pipeline.take_kept().map(|window| pipeline.stages.leave(Kept::new(window, threads))).transpose()?;
    report.redo_threads = threads as u64;
    report.windows = pipeline.windows();
    pipeline.stages.counts.report(report);
    Ok(unredone)
}

/// One log, from where redo begins.
struct Source {
    scanner: Scanner,
    /// The record that the scanner has given last lies behind the step before.
    is_ahead: bool,
}

/// What is known about a page of the dirty page table.
struct Tracked {
    /// Records below this cannot be missing.
    from: Gsn,
    /// Whether redo has been there.
    visited: AtomicBool,
}

/// What has been done, by all threads.
#[derive(Default)]
struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
    pages: AtomicU64,
    redone: AtomicU64,
    read_nanos: AtomicU64,
    repeat_nanos: AtomicU64,
}

/// The two stages of the pipeline.
struct Redo {
    core: Arc<Core>,
    pages: HashMap<PageId, Tracked, BuildNumberHasher>,
    buckets: usize,
    /// Pages that are read together.
    batch: usize,
    counts: Counts,
}

impl Source {
    fn new(logs: &Logs, log: LogId, from: Lsn) -> Self {
        Self { scanner: logs.scan_one(log, from), is_ahead: false }
    }
}

impl Tracked {
    fn from(from: Gsn) -> Self {
        Self { from, visited: AtomicBool::new(false) }
    }
}

impl Counts {
    fn report(&self, report: &mut RecoveryReport) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        report.records = count(&self.records);
        report.bytes = count(&self.bytes);
        report.pages = count(&self.pages);
        report.redone = count(&self.redone);
        report.redo_read_micros = count(&self.read_nanos) / 1000;
        report.redo_repeat_micros = count(&self.repeat_nanos) / 1000;
    }
}

fn count_time(counter: &AtomicU64, started: Instant) {
    let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(nanos, Ordering::Relaxed);
}

impl Redo {
    /// Adds what a record says of pages that may lack it.
    fn take_in(&self, record: &RecordRef<'_>, run: &mut Run) -> Result<()> {
        let malformed = |_| malformed(record.place());
        for op in PageOps::of(kind_of(record)?, record.flags, record.page, record.payload).map_err(malformed)? {
            let (page, op) = op.map_err(malformed)?;
            if self.pages.get(&page).is_some_and(|tracked| tracked.from <= record.gsn) {
                run.add(page, record.gsn, &op);
            }
        }
        Ok(())
    }

    fn read_up_to(&self, source: &mut Source, limit: Gsn, run: &mut Run) -> Result<Option<Gsn>> {
        let (mut records, mut bytes) = (0, 0);
        let next = loop {
            let record = if source.is_ahead { source.scanner.again() } else { source.scanner.next()? };
            let Some(record) = record else { break None };
            source.is_ahead = record.gsn >= limit;
            if source.is_ahead {
                break Some(record.gsn);
            }
            records += 1;
            bytes += record.end.get() - record.lsn.get();
            self.take_in(&record, run)?;
        };
        self.counts.records.fetch_add(records, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(next)
    }

    fn repeat_bucket(&self, bucket: &Bucket<'_>) -> Result<()> {
        let pool = &self.core.store.pool;
        let (mut pages, mut redone) = (0, 0);
        let mut rest = bucket.pages();
        loop {
            let some: Vec<PageChanges<'_>> = rest.by_ref().take(self.batch).collect();
            if some.is_empty() {
                break;
            }
            let ids: Vec<PageId> = some.iter().map(|changes| changes.page).collect();
            pool.prefetch(&ids);
            for changes in some {
                let is_new = !self.pages[&changes.page].visited.swap(true, Ordering::Relaxed);
                redone += redo_page(pool, changes, is_new)?;
                pages += 1;
            }
        }
        self.counts.pages.fetch_add(pages, Ordering::Relaxed);
        self.counts.redone.fetch_add(redone, Ordering::Relaxed);
        Ok(())
    }
}

impl Redo {
    /// Leaves the pages of a window to whoever needs them, but for those that are in the pool already: those are not going
    /// to be loaded. The data file gets room for all.
    fn leave(&self, kept: Kept) -> Result<Unredone> {
        let pool = &self.core.store.pool;
        let mut left = Vec::new();
        for changes in kept.pages() {
            let page = changes.page;
            pool.reserve_page(page)?;
            let is_new = !self.pages[&page].visited.load(Ordering::Relaxed);
            if pool.is_resident(page) {
                self.counts.redone.fetch_add(redo_page(pool, changes, is_new)?, Ordering::Relaxed);
            } else {
                left.push((page, Lacking { first: changes.first(), is_new }));
            }
        }
        Ok(Unredone::new(kept, left))
    }
}

impl Stages for Redo {
    type Source = Source;
    type Run = Run;

    fn run(&self) -> Run {
        Run::new(self.buckets)
    }

    fn read(&self, source: &mut Source, limit: Gsn, run: &mut Run) -> Result<Option<Gsn>> {
        let started = Instant::now();
        let next = self.read_up_to(source, limit, run);
        count_time(&self.counts.read_nanos, started);
        next
    }

    fn size(run: &Run) -> usize {
        run.size()
    }

    fn repeat(&self, window: &[Run], bucket: usize) -> Result<()> {
        let started = Instant::now();
        let repeated = self.repeat_bucket(&Bucket::of(window, bucket));
        count_time(&self.counts.repeat_nanos, started);
        repeated
    }

    fn clear(run: &mut Run) {
        run.clear();
    }
}

/// Repeats the changes of one page, which redo has not met before if it `is_new`.
fn redo_page(pool: &Pool, changes: PageChanges<'_>, is_new: bool) -> Result<u64, PoolError> {
    pool.reserve_page(changes.page)?;
    repeat_changes(&mut pool.exclusive_or_blank(changes.page)?, changes, is_new)
}

/// Repeats those changes that `page` lacks; returns how many.
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
                keep(page, gsn);
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
            return Err(defect.clone());
        }
        if !op.fits(page) {
            return Err(broken(id, "a change in the log does not fit the page"));
        }
        op.apply(page).map_err(|misfit| broken(id, &misfit.to_string()))?;
        page::set_gsn(page, gsn);
        redone += 1;
    }
    Ok(redone)
}

/// A page that redo meets for the first time must hang together.
fn examine(page: &Exclusive<'_>) -> Result<(), PoolError> {
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
