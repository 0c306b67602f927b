//! Tests of the pool, over simulated disks and over a store whose pages are never dirty.

mod basics;
mod crash;
mod failures;
mod memory_pages;
mod never_dirty;
mod on_fetch;
mod stress;

use std::collections::HashMap;

use duramen_io::{Disk, File, OpenMode, SimDisk};
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, SplitMix64};
use duramen_types::{Gsn, PAGE_SIZE, PageId, TableId};

use super::{Exclusive, FilePages, FoundArea, PageStore, Pool, PoolConfig, PoolError, WalRule};
use crate::page::{self, LINE_SIZE, PageBytes, PageMut, PageType};
use crate::pre_block_hook::PreBlockHook;
use memory_pages::MemoryPages;

/// A log that stores only which GSNs changed which page, and hardens no more than requested.
#[derive(Default)]
struct TestLog {
    next: AtomicU64,
    /// Records below this GSN are durable.
    hardened: AtomicU64,
    fails: AtomicBool,
    /// How often a thread announced a wait for the disk.
    told: AtomicU64,
    history: Mutex<HashMap<PageId, Vec<u64>>>,
}

impl TestLog {
    const FIRST: u64 = 4096;
    const STEP: u64 = 8;

    fn insert(&self, id: PageId) -> Gsn {
        let mut history = self.history.lock();
        let gsn = Self::FIRST + self.next.fetch_add(Self::STEP, Ordering::AcqRel);
        history.entry(id).or_default().push(gsn);
        Gsn::new(gsn)
    }
}

impl WalRule for TestLog {
    fn harden(&self, gsn: Gsn) -> Result<(), PoolError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(PoolError::Log { reason: "the test log fails".into() });
        }
        self.hardened.fetch_max(gsn.get() + 1, Ordering::AcqRel);
        Ok(())
    }

    fn end(&self) -> Gsn {
        Gsn::new(Self::FIRST + self.next.load(Ordering::Acquire))
    }

    fn before_blocking(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }
}

/// Repairs torn pages from the double-write area, as opening does.
fn put_back(data: &dyn File, doublewrite: &dyn File) -> Result<usize, PoolError> {
    FoundArea::read(doublewrite)?.map_or(Ok(0), |area| area.put_back(data, doublewrite))
}

/// The stores that the suite runs over.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// [`FilePages`] on a simulated disk.
    Files,
    /// [`MemoryPages`]: each change is put there while the page is latched.
    Memory,
}

const KINDS: [Kind; 2] = [Kind::Files, Kind::Memory];

/// Returns a fixture over each kind of store in turn.
fn over_each_store(frames: usize) -> impl Iterator<Item = Fixture> {
    KINDS.into_iter().map(move |kind| {
        // A failed test shows the last line.
        println!("over {kind:?}");
        Fixture::over(kind, PoolConfig { frames, ..PoolConfig::default() })
    })
}

/// A pool, its store and its log.
struct Fixture<D = SimDisk> {
    disk: D,
    log: Arc<TestLog>,
    /// The store, if the pages are not on `disk`.
    memory: Option<Arc<MemoryPages>>,
    pool: Arc<Pool>,
}

impl Fixture {
    fn over(kind: Kind, config: PoolConfig) -> Self {
        match kind {
            Kind::Files => Self::with_config(config),
            Kind::Memory => Self::in_memory(SimDisk::new(1), config, Arc::default(), Arc::default()).unwrap(),
        }
    }

    fn new(frames: usize) -> Self {
        Self::with_config(PoolConfig { frames, ..PoolConfig::default() })
    }

    fn with_config(config: PoolConfig) -> Self {
        Self::create_on(SimDisk::new(1), config)
    }
}

impl<D: Disk> Fixture<D> {
    fn create_on(disk: D, config: PoolConfig) -> Self {
        for name in ["data", "doublewrite"] {
            disk.open(name, OpenMode::CreateNew).unwrap();
        }
        disk.sync_directory("").unwrap();
        Self::open(disk, config, Arc::default()).unwrap()
    }

    fn open(disk: D, config: PoolConfig, log: Arc<TestLog>) -> Result<Self, PoolError> {
        let data = disk.open("data", OpenMode::Existing)?;
        let doublewrite = disk.open("doublewrite", OpenMode::Existing)?;
        put_back(&*data, &*doublewrite)?;
        let database = crate::page::DatabaseTag::of(&[3; 16]);
        let store = FilePages::new(data, database, Some(doublewrite), None, Arc::clone(&log) as Arc<dyn WalRule>)?;
        Ok(Self { pool: Self::pool(config, Arc::new(store), &log)?, disk, log, memory: None })
    }

    fn in_memory(disk: D, config: PoolConfig, log: Arc<TestLog>, memory: Arc<MemoryPages>) -> Result<Self, PoolError> {
        let pool = Self::pool(config, Arc::clone(&memory) as Arc<dyn PageStore>, &log)?;
        Ok(Self { disk, log, memory: Some(memory), pool })
    }

    fn pool(config: PoolConfig, store: Arc<dyn PageStore>, log: &Arc<TestLog>) -> Result<Arc<Pool>, PoolError> {
        let log = Arc::clone(log);
        Pool::new(config, store, PreBlockHook::new(move || log.before_blocking()))
    }

    /// Makes the pool of a process that opens the store next, without any page in a frame.
    fn reopen(self, frames: usize) -> Self {
        let Self { disk, log, memory, pool } = self;
        drop(pool);
        let config = PoolConfig { frames, ..PoolConfig::default() };
        match memory {
            None => Self::open(disk, config, log).unwrap(),
            Some(memory) => Self::in_memory(disk, config, log, memory).unwrap(),
        }
    }

    /// Puts a changed page into the store, if the pool will not write it back.
    fn keep(&self, page: &Exclusive<'_>) {
        if let Some(memory) = &self.memory {
            memory.put(page);
        }
    }

    /// Makes the pages `1..=count`, with counters at 0.
    fn create_pages(&self, count: u64) {
        for raw in 1..=count {
            self.create(PageId::new(raw)).unwrap();
        }
    }

    /// Writes pages to the store a first and a second time. Their counters are 1.
    fn create_and_write_twice(&self, count: u64) {
        self.create_pages(count);
        self.pool.flush_all().unwrap();
        (1..=count).for_each(|raw| self.increment(PageId::new(raw)).unwrap());
        self.pool.flush_all().unwrap();
    }

    fn create(&self, id: PageId) -> Result<(), PoolError> {
        self.format(id, 0).map(drop)
    }

    /// Formats a page anew, with this counter; returns the record.
    fn format(&self, id: PageId, counter: u64) -> Result<Gsn, PoolError> {
        let mut guard = self.pool.create(id)?;
        guard.prepare();
        let gsn = self.log.insert(id);
        let mut page = guard.page_mut();
        page::init_header(&mut page, PageType::Leaf, 0, id, TableId::new(1));
        set_counter(&mut page, counter, gsn);
        self.keep(&guard);
        Ok(gsn)
    }

    /// Adds one to the page's counter.
    fn increment(&self, id: PageId) -> Result<(), PoolError> {
        self.increment_guard(&mut self.pool.exclusive(id)?);
        Ok(())
    }

    fn increment_guard(&self, guard: &mut Exclusive<'_>) {
        let counter = counter(&**guard, guard.id()).expect("pages under a latch are consistent");
        guard.prepare();
        let gsn = self.log.insert(guard.id());
        count(&mut guard.page_mut(), counter, gsn);
        self.keep(guard);
    }

    /// Reads the page's counter.
    fn counter(&self, id: PageId) -> Result<u64, PoolError> {
        let guard = self.pool.shared(id)?;
        Ok(counter(&*guard, id).expect("pages under a latch are consistent"))
    }
}

const COUNTER: usize = page::PAGE_HEADER_SIZE;
/// Offset of the counter that the page had when it was last written as a whole.
const WHOLE: usize = COUNTER + 8;

/// Returns the word that the change to `counter` writes at `offset` of page `id`.
fn pattern(id: PageId, counter: u64, offset: usize) -> u64 {
    counter ^ id.get() << 40 ^ (offset as u64) << 24
}

/// Returns whether the change to `counter` writes this line, if it does not write the whole page:
/// besides the line with the counter, some eight lines.
fn writes_line(counter: u64, line: usize) -> bool {
    line == COUNTER / LINE_SIZE || SplitMix64::new(counter << 8 | line as u64).below(16) == 0
}

/// Writes every word of a page for this counter.
fn set_counter(page: &mut PageMut<'_>, counter: u64, gsn: Gsn) {
    write_lines(page, counter, counter, |_| true);
    page::set_gsn(page, gsn);
}

/// Adds one to the counter of a page, and writes some of the lines.
fn count(page: &mut PageMut<'_>, counter: u64, gsn: Gsn) {
    let whole = page.u64_at(WHOLE) ^ pattern(page::page_id(page), 0, WHOLE);
    write_lines(page, counter + 1, whole, |line| writes_line(counter + 1, line));
    page::set_gsn(page, gsn);
}

fn write_lines(page: &mut PageMut<'_>, counter: u64, whole: u64, is_written: impl Fn(usize) -> bool) {
    let id = page::page_id(page);
    for offset in (COUNTER..PAGE_SIZE).step_by(8).filter(|offset| is_written(offset / LINE_SIZE)) {
        let counter = if offset == WHOLE { whole } else { counter };
        page.put(offset, &pattern(id, counter, offset).to_le_bytes());
    }
}

/// Returns the counter of page `id`, or what is wrong with the page.
fn counter<B: PageBytes + ?Sized>(bytes: &B, id: PageId) -> Result<u64, String> {
    let counter = bytes.u64_at(COUNTER) ^ pattern(id, 0, COUNTER);
    let whole = bytes.u64_at(WHOLE) ^ pattern(id, 0, WHOLE);
    if whole > counter || counter > 1 << 20 {
        return Err(format!("{id} with counter {counter:#x}, which was written with counter {whole:#x}"));
    }
    let mut last = [whole; PAGE_SIZE / LINE_SIZE];
    for (line, last) in last.iter_mut().enumerate() {
        *last = (whole + 1..=counter).rev().find(|change| writes_line(*change, line)).unwrap_or(whole);
    }
    for offset in (WHOLE + 8..PAGE_SIZE).step_by(8) {
        let found = bytes.u64_at(offset);
        if found != pattern(id, last[offset / LINE_SIZE], offset) {
            return Err(format!("{id} with counter {counter}: word at {offset} is {found:#x}"));
        }
    }
    Ok(counter)
}
