//! Analysis and redo: one pass over the logs serves both, and repeats every change that a page
//! lacks, page by page within a window of the logs.
//!
//! A page may lack a change in two cases. Either the checkpoint's table says so, or the table does
//! not have the page and the change is later than the checkpoint ([`Lacked`]). Both are known when
//! a record is read, without the records after it.
//!
//! Threads read the logs and repeat the changes in a pipeline (`pipeline.rs`). A thread visits the
//! pages of a bucket in the order of the data file, and reads several of them together: a device
//! gives only a fraction of its speed when it reads one page after the other.

use std::collections::HashSet;

use duramen_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, Mutex, parallel};
use duramen_types::{Gsn, LogId, Lsn, PageId, planted};
use duramen_wal::{Log, RecordRef, Scanner};

use super::analysis::{Analysis, DirtyPages, Part, kind_of};
use super::malformed::malformed;
use super::on_demand::{Lacking, Unredone};
use super::pipeline::{Over, Pipeline, Portions, Stages};
use super::repeat::{Repeated, Visit, repeat_changes, was_unreadable};
use super::window::{Bucket, Kept, PageChanges, Run};
use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::hash::BuildNumberHasher;
use crate::metrics::RecoveryReport;
use crate::options::Options;
use crate::pool::{Pool, PoolError};
use crate::progress::{Gauge, RecoveryPass};
use crate::record::{PageOp, PageOps};

/// Largest number of pages that a thread reads together.
const BATCH: usize = 64;

/// Memory of each window before the last one if the last window is kept, in bytes: the operations
/// should fit the processor's caches.
const USUAL_WINDOW: usize = 32 << 20;

/// About how many windows redo divides the log into if the data file fits the pool. Each page is
/// then read once, however many windows change it, and the first pages are read while the log still
/// is.
const WINDOWS_IN_POOL: u64 = 16;

/// Memory of such a window, in bytes, at least.
const LEAST_WINDOW_IN_POOL: u64 = 4 << 20;

/// Steps in which a window is read, if the log holds nothing but operations to repeat.
const STEPS: usize = 8;

/// Buckets for each of several threads: enough that no thread waits long for another at the end of
/// a window.
const BUCKETS_PER_THREAD: usize = 8;

/// Reads the logs, for analysis too, and repeats the history that pages may lack. With instant
/// recovery, the last window is left for the threads that need its pages; its memory is bounded
/// like that of any other window.
pub(super) fn redo(
    pool: &Arc<Pool>,
    options: &Options,
    logs: &Log,
    control: &Control,
    analysis: &mut Analysis,
    report: &mut RecoveryReport,
) -> Result<Option<Unredone>> {
    let lacked = Lacked::new(std::mem::take(&mut analysis.pages), control);
    let sources = sources(logs, analysis, lacked.first);
    let bytes = sources.iter().map(Redo::left).sum();
    let threads = parallel::size_for(options.recovery_threads, bytes);
    let most = options.redo_memory() / 2;
    let keep = options.recovers_instantly().then_some(most);
    let fits_pool = pool.pages_in_store() <= pool.frames() as u64;
    let window_bytes = window_bytes(most, keep.is_some(), fits_pool, bytes);
    let portions = Portions {
        window_bytes,
        step: (window_bytes / (STEPS * sources.len())).max(1) as u64,
        buckets: if threads == 1 { 1 } else { BUCKETS_PER_THREAD * threads },
        keep,
    };
    let frames = pool.frames();
    let redo = Redo {
        pool: Arc::clone(pool),
        lacked,
        visited: (0..portions.buckets).map(|_| Mutex::default()).collect(),
        // All threads together keep at most half of the pool's frames busy, and no thread reads
        // more pages than the pool reads at a time. So no page is replaced before it is redone.
        batch: BATCH.min(frames / (2 * threads)).min(frames / 8).max(1),
        counts: Counts::default(),
        gauge: Gauge::new(options.recovery_observer.as_ref(), RecoveryPass::Redo, Some(bytes), 2),
    };
    let pipeline = Arc::new(Pipeline::new(redo, sources, portions));
    let shared = Arc::clone(&pipeline);
    let outcomes = parallel::run(threads, "duramen-redo", move || shared.work());
    let mut failed: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
    // A thread that met a page which the log does not fit has poisoned the pool for the others.
    failed.sort_by_key(|error| matches!(error, Error::Poisoned { .. }));
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    let Over { stages, sources, kept, windows } = Pipeline::into_over(pipeline);
    let stages = Arc::new(stages);
    let unredone = kept.map(|window| leave(&stages, Kept::new(window, threads), threads)).transpose()?;
    let stages = Arc::into_inner(stages).expect("the parallel is gone");
    stages.check_skipped()?;
    stages.gauge.finish();
    report.redo_threads = threads as u64;
    report.windows = windows;
    stages.counts.report(report);
    analysis.pages = stages.lacked.pages;
    analysis.follow(logs, sources.into_iter().map(|source| source.part))?;
    Ok(unredone)
}

/// Returns the memory of each window but one that is kept, in bytes, of which a window may use
/// `most`. There are `bytes` of log to read.
fn window_bytes(most: usize, keeps_last: bool, fits_pool: bool, bytes: u64) -> usize {
    let enough = match (keeps_last, fits_pool) {
        (true, _) => USUAL_WINDOW,
        (false, true) => usize::try_from(LEAST_WINDOW_IN_POOL.max(bytes / WINDOWS_IN_POOL)).unwrap_or(most),
        (false, false) => most,
    };
    most.min(enough)
}

/// Returns the logs, each from its first record that a page may lack or that the checkpoint does
/// not cover.
fn sources(logs: &Log, analysis: &Analysis, first_lacked: Gsn) -> Vec<Source> {
    let lacked = logs.positions_before(first_lacked);
    let extents = logs.extents();
    let source = |(log, behind): (usize, &Lsn)| {
        let from = lacked[log].min(*behind);
        Source {
            scanner: logs.scan(LogId::new(log as u16), from),
            is_ahead: false,
            end: extents[log].end,
            behind: *behind,
            part: analysis.part(),
        }
    };
    analysis.behind.iter().enumerate().map(source).collect()
}

/// The changes that pages may lack.
#[derive(Debug)]
struct Lacked {
    /// Pages that lack changes according to the checkpoint.
    pages: DirtyPages,
    /// GSN of the checkpoint's begin record.
    checkpoint: Gsn,
    /// No page lacks an earlier change.
    first: Gsn,
}

impl Lacked {
    fn new(pages: DirtyPages, control: &Control) -> Self {
        let first = pages.values().copied().fold(control.redo, Gsn::min);
        Self { pages, checkpoint: control.checkpoint_gsn(), first }
    }

    /// Returns whether a page may lack a change.
    ///
    /// If the checkpoint names the page, its entry decides: the page may have been written since
    /// its first change after the checkpoint. If the checkpoint does not name the page, every
    /// change with a later GSN counts, whatever its log. A damaged page is rebuilt from an image
    /// and all the changes that follow it. With several logs, the checkpoint read their ends one
    /// after the other. So some of these changes may lie before the end of their log as the
    /// checkpoint saw it.
    fn contains(&self, page: PageId, gsn: Gsn) -> bool {
        self.pages.get(&page).map_or(gsn > self.checkpoint, |first| *first <= gsn)
    }
}

/// One log, from where redo begins.
struct Source {
    scanner: Scanner,
    /// Whether the scanner's latest record lies after the previous step.
    is_ahead: bool,
    /// The end of the log.
    end: Lsn,
    /// The address of the first record whose effects the checkpoint's transaction table may lack.
    behind: Lsn,
    /// The analysis of the records from there on.
    part: Part,
}

/// Counters of all threads' work.
#[derive(Default)]
struct Counts {
    records: AtomicU64,
    bytes: AtomicU64,
    pages: AtomicU64,
    redone: AtomicU64,
    read_nanos: AtomicU64,
    repeat_nanos: AtomicU64,
}

/// A set of pages.
type Pages = HashSet<PageId, BuildNumberHasher>;

/// The pages of a bucket that redo has visited.
#[derive(Default)]
struct Visited {
    pages: Pages,
    /// Those that could not be read, and that no change so far replaces as a whole.
    skipped: Pages,
}

/// The two stages of the pipeline.
struct Redo {
    pool: Arc<Pool>,
    lacked: Lacked,
    /// For each bucket.
    visited: Box<[Mutex<Visited>]>,
    /// Number of pages that are read together.
    batch: usize,
    counts: Counts,
    gauge: Gauge,
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
    /// Applies a record to the analysis, and adds its operations on pages that may lack it to
    /// `run`.
    fn take_in(&self, record: &RecordRef<'_>, behind: Lsn, part: &mut Part, run: &mut Run) -> Result<()> {
        let (kind, is_known) = (kind_of(record)?, record.lsn < behind || part.is_known(record));
        if !is_known {
            part.follow(kind, record)?;
        }
        let malformed = |_| malformed(record.address());
        for op in PageOps::of(kind, record.flags, record.page, record.payload).map_err(malformed)? {
            let (page, op) = op.map_err(malformed)?;
            if !is_known {
                part.meet(page);
            }
            if self.lacked.contains(page, record.gsn) && !planted!(SkipRedo) {
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
            self.take_in(&record, source.behind, &mut source.part, run)?;
        };
        self.counts.records.fetch_add(records, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        run.log_bytes += bytes;
        self.gauge.add(bytes);
        Ok(next)
    }

    fn repeat_bucket(&self, window: &[Run], number: usize) -> Result<()> {
        let bucket = Bucket::of(window, number);
        let mut visited = self.visited[number].lock();
        let pool = &self.pool;
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
                redone += visited.redo(pool, changes)?;
                pages += 1;
            }
        }
        self.counts.pages.fetch_add(pages, Ordering::Relaxed);
        self.counts.redone.fetch_add(redone, Ordering::Relaxed);
        Ok(())
    }
}

/// Leaves the pages of a window for the threads that need them. Pages that are in the pool already
/// would not be loaded again, so this redoes them now, with this many threads.
fn leave(redo: &Arc<Redo>, kept: Kept, threads: usize) -> Result<Unredone> {
    let (kept, next) = (Arc::new(kept), AtomicUsize::new(0));
    let shared = (Arc::clone(redo), Arc::clone(&kept));
    let work = move || {
        let (redo, kept) = &shared;
        let mut left = Vec::new();
        loop {
            let bucket = next.fetch_add(1, Ordering::Relaxed);
            if bucket >= kept.buckets() {
                return Ok(left);
            }
            redo.leave_bucket(kept, bucket, &mut left)?;
        }
    };
    let left: Vec<Vec<_>> = parallel::run(threads, "duramen-redo", work).into_iter().collect::<Result<_>>()?;
    Ok(Unredone::new(Arc::into_inner(kept).expect("the parallel is gone"), left.concat()))
}

impl Redo {
    /// Returns the error of the first page that lacks changes because it could not be read.
    fn check_skipped(&self) -> Result<()> {
        let skipped = self.visited.iter().filter_map(|visited| visited.lock().skipped.iter().min().copied());
        let Some(page) = skipped.min() else { return Ok(()) };
        self.pool.shared(page)?;
        Err(was_unreadable(page).into())
    }

    /// Leaves the pages of one bucket. Reserves space in the data file for all of them.
    fn leave_bucket(&self, kept: &Kept, bucket: usize, left: &mut Vec<(PageId, Lacking)>) -> Result<()> {
        let pool = &self.pool;
        let mut visited = self.visited[bucket].lock();
        for changes in kept.pages(bucket) {
            let page = changes.page;
            pool.reserve_page(page)?;
            if pool.is_resident(page) {
                self.counts.redone.fetch_add(visited.redo(pool, changes)?, Ordering::Relaxed);
                continue;
            }
            let visit = visited.visit(page);
            let replaced = || changes.operations().find(|(_, op)| matches!(op, PageOp::Image(_)));
            let first = match visit {
                Visit::First | Visit::Again => Some(changes.first()),
                // What comes before would be repeated without what was skipped.
                Visit::AfterSkipped => replaced().map(|(gsn, _)| gsn),
            };
            if let Some(first) = first {
                left.push((page, Lacking { first, visit }));
                visited.skipped.remove(&page);
            }
        }
        Ok(())
    }
}

impl Stages for Redo {
    type Source = Source;
    type Run = Run;

    fn run(&self, log: usize) -> Run {
        Run::new(log as u32, self.visited.len())
    }

    fn read(&self, source: &mut Source, limit: Gsn, run: &mut Run) -> Result<Option<Gsn>> {
        let started = Instant::now();
        let next = self.read_up_to(source, limit, run);
        count_time(&self.counts.read_nanos, started);
        next
    }

    fn end_step<'a>(&self, sources: impl Iterator<Item = &'a mut Source>) {
        Part::forget_over(sources.map(|source| &mut source.part).collect());
    }

    fn left(source: &Source) -> u64 {
        source.end.get().saturating_sub(source.scanner.position().get())
    }

    fn size(run: &Run) -> usize {
        run.size()
    }

    fn repeat(&self, window: &[Run], bucket: usize) -> Result<()> {
        let started = Instant::now();
        let repeated = self.repeat_bucket(window, bucket);
        count_time(&self.counts.repeat_nanos, started);
        self.gauge.add(window.iter().map(|run| run.log_bytes).sum::<u64>() / self.visited.len() as u64);
        repeated
    }

    fn clear(run: &mut Run) {
        run.clear();
    }
}

impl Visited {
    fn visit(&self, page: PageId) -> Visit {
        match (self.pages.contains(&page), self.skipped.contains(&page)) {
            (false, _) => Visit::First,
            (true, false) => Visit::Again,
            (true, true) => Visit::AfterSkipped,
        }
    }

    /// Repeats the changes of one page; returns the number of those that it lacked.
    fn redo(&mut self, pool: &Pool, changes: PageChanges<'_>) -> Result<u64, PoolError> {
        let id = changes.page;
        let visit = self.visit(id);
        self.pages.insert(id);
        pool.reserve_page(id)?;
        let mut page = pool.exclusive_or_blank(id)?;
        // It may have a part of a record, as the GSN of the whole: it must not be written.
        let repeated =
            repeat_changes(&mut page, changes, visit).inspect_err(|error| page.poison(&error.to_string()))?;
        match repeated {
            Repeated::Redone(redone) => {
                self.skipped.remove(&id);
                Ok(redone)
            }
            Repeated::Skipped => {
                self.skipped.insert(id);
                Ok(0)
            }
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use duramen_io::SimDisk;
    use duramen_types::PAGE_SIZE;

    use super::*;
    use crate::Db;
    use crate::page::{self, PageType};

    #[test]
    fn windows_are_small_where_pages_are_read_once_or_the_last_is_kept() {
        let mib = |most: usize, keeps_last, fits_pool, bytes: u64| {
            window_bytes(most << 20, keeps_last, fits_pool, bytes << 20) >> 20
        };
        assert_eq!([1, 64, 80, 10_000].map(|bytes| mib(32, false, true, bytes)), [4, 4, 5, 32]);
        assert_eq!([1, 10_000].map(|bytes| mib(32, false, false, bytes)), [32, 32]);
        assert_eq!([true, false].map(|fits| mib(512, true, fits, 80)), [32, 32]);
        assert_eq!([mib(1, false, true, 80), mib(1, true, true, 80)], [1, 1]);
    }

    /// A page that can be read again lacks what was skipped, until it is replaced.
    #[test]
    fn a_page_that_can_be_read_again_still_waits_for_its_image() {
        let disk = SimDisk::new(1);
        let open = || Db::open_on(Arc::new(disk.clone()), Options::small()).unwrap();
        let db = open();
        let table = db.create_table("t").unwrap();
        db.run(|txn| txn.put(&table, b"key", b"value")).unwrap();
        drop(table);
        db.close().unwrap();
        let db = open();
        let pool = &db.engine().store.pool;
        let pages = disk.durable_bytes("data").unwrap();
        let mut pages = pages.chunks_exact(PAGE_SIZE).enumerate();
        let is_leaf = |page: &&[u8]| page::page_type(page) == Some(PageType::Leaf);
        let (number, bytes) = pages.rfind(|(number, page)| is_leaf(page) && !pool.is_resident(id(*number))).unwrap();
        let (leaf, before) = (id(number), page::gsn(bytes));
        let mut visited = Visited::default();
        let mut redo = |change: u64, op: PageOp<'_>| {
            let mut run = Run::new(0, 1);
            run.add(leaf, Gsn::new(before.get() + change), &op);
            let redone = visited.redo(pool, Bucket::of(&[run], 0).pages().next().unwrap()).unwrap();
            (redone, visited.skipped.len())
        };
        let flip = || disk.flip_bit("data", (number * PAGE_SIZE + 8000) as u64, 1);
        flip();
        assert_eq!(redo(1, PageOp::Retire), (0, 1));
        flip();
        assert_eq!(redo(2, PageOp::Retire), (0, 1));
        assert_eq!(page::gsn(&pool.shared(leaf).unwrap()), before, "it is as it was");
        assert_eq!(redo(3, PageOp::Image(&page::image(bytes))), (1, 0));
        assert_eq!(page::gsn(&pool.shared(leaf).unwrap()).get(), before.get() + 3);
    }

    fn id(number: usize) -> PageId {
        PageId::new(number as u64)
    }

    #[test]
    fn what_a_page_may_lack_is_told_by_its_gsn_whatever_the_log() {
        let [dirty, later] = [PageId::new(7), PageId::new(8)];
        let pages = DirtyPages::from_iter([(dirty, Gsn::new(40)), (later, Gsn::new(130))]);
        let lacked = Lacked { pages, checkpoint: Gsn::new(100), first: Gsn::new(40) };
        let told = |page, gsn| lacked.contains(page, Gsn::new(gsn));
        assert_eq!([39, 40, 90, 110].map(|gsn| told(dirty, gsn)), [false, true, true, true]);
        // The page was written since the checkpoint began, and changed again.
        assert_eq!([90, 110, 130].map(|gsn| told(later, gsn)), [false, false, true]);
        assert_eq!([90, 100, 101, 130].map(|gsn| told(PageId::new(9), gsn)), [false, false, true, true]);
    }
}
