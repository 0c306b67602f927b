//! Reports on a heap in persistent memory: its header, its space, and its journals or batches.

use std::fmt;

use duramen_pmem::Source;
use duramen_types::{Gsn, PAGE_SIZE, PageId, TxnId};

use super::batches::{self, BatchReport};
use super::{describe, text};
use crate::checkpoint::control::SchemeId;
use crate::error::Result;
use crate::heap::{self, BLOCK_BYTES, Heap, NotAHeap, State, Word};
use crate::options::HeapOptions;
use crate::page::{self, PageType, bitmap};
use crate::scheme::{JournalInUse, JournalState, PageLogInUse, journals_in_use, page_logs_in_use, system_journals};

/// Number of pages of a record that `Display` shows.
const SHOWN: usize = 8;

/// The part of a heap's header that is written once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapHeader {
    /// The database that the heap belongs to.
    pub database: [u8; 16],
    /// The storage scheme that the heap was made for; `None` if this version does not know it.
    pub scheme: Option<&'static str>,
    /// Number of journal blocks.
    pub blocks: u64,
}

/// The pages of a heap, according to its allocation bitmaps. A change that recovery would repeat or
/// take back is not considered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeapSpace {
    /// Number of pages that the heap has space for.
    pub pages: u64,
    /// Number of pages in use, bitmaps included.
    pub in_use: u64,
    /// Number of groups of pages that have a bitmap.
    pub groups: u64,
}

/// A journal that is in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalReport {
    /// The journal's first block.
    pub block: u32,
    /// Whether the journal belongs to changes that no transaction owns (splits and merges). Such a
    /// journal stays active, with its latest change, until the next one.
    pub is_system: bool,
    /// `active`, or `committed` (the transaction has committed, and pages are still to be freed).
    pub state: &'static str,
    /// The number of the lease.
    pub lease: u64,
    /// The records; `None` if none of this lease is there, so that nothing was changed under it.
    pub records: Option<JournalRecords>,
}

/// The records of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalRecords {
    /// The transaction, or zero.
    pub txn: TxnId,
    /// Number of blocks that the records are in.
    pub blocks: u64,
    /// Number of records. Of the compensations of a rollback, only the latest are kept.
    pub count: u64,
    /// Bytes of the records.
    pub bytes: u64,
    /// The kind of the latest record, as in [`super::LogEntry`].
    pub kind: String,
    /// The GSN of the latest record.
    pub gsn: Gsn,
    /// The pages that the latest record changes, each with the number of its cache lines.
    pub pages: Vec<(PageId, u32)>,
}

/// A page log that is valid: a change was interrupted between the barriers of the paper, and
/// recovery will take its pages back to the lines in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageLogReport {
    /// The block with the log: that of a journal for changes that no transaction owns.
    pub block: u32,
    /// The number of the lease.
    pub lease: u64,
    /// The pages, each with the number of its cache lines; `None` if the log fails its checksum,
    /// which no crash causes.
    pub pages: Option<Vec<(PageId, u32)>>,
}

/// A heap in persistent memory. `Display` formats it for human readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeapReport {
    /// The heap's file or device.
    pub location: String,
    /// The header, or the reason why it cannot be used. Without it, space and journals cannot be
    /// found.
    pub header: Result<HeapHeader, String>,
    /// The state: `blank`, `being made`, `in use`, `closed in order`, or `unknown` with a number.
    pub state: String,
    /// The generation, which must be that of the control file.
    pub generation: u64,
    /// How often the heap was opened.
    pub openings: u64,
    /// No transaction number below this is given out again.
    pub next_txn: TxnId,
    /// The pages.
    pub space: HeapSpace,
    /// Number of journals of transactions that are free: one for each free block.
    pub free_journals: u64,
    /// Number of journals for changes that no transaction owns.
    pub system_journals: u64,
    /// The journals in use.
    pub journals: Vec<JournalReport>,
    /// With [`crate::Scheme::NvramGroupCommit`], the batches that can be read, the latest first.
    /// The journal blocks then hold undo information, and there are no journals.
    pub batches: Vec<BatchReport>,
    /// The page logs that are valid.
    pub page_logs: Vec<PageLogReport>,
    /// What is wrong with the heap, in words. Not every damage shows here: pages have no checksums.
    pub problems: Vec<String>,
}

/// Reads the heap of a closed database, damaged or not. Only the source counts among the options.
/// The heap is not changed; it need not be writable.
///
/// ```
/// # use duramen::pmem::{Domain, Source, Survive};
/// # use duramen::{Db, HeapOptions, Options, Scheme, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let home = tempfile::tempdir().unwrap();
/// # let source = Source::File(home.path().join("heap"));
/// # let heap = HeapOptions::new(source, 4 << 20, Domain::VolatileCache);
/// # let heap = HeapOptions { survive: Survive::Process, ..heap };
/// let scheme = Scheme::InPlace(heap.clone());
/// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
/// let db = Db::open(home.path().join("db"), options)?;
/// db.create_table("films")?;
/// db.close()?;
///
/// let report = inspect::heap(&heap)?;
/// assert_eq!(report.state, "closed in order");
/// assert!(report.problems.is_empty() && report.space.in_use > 0);
/// assert_eq!(report.header.unwrap().scheme, Some("in-place"));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Corrupt`] when the source is no heap at all, [`crate::Error::NotADatabase`] when
/// it is missing or shorter than a header, [`crate::Error::AlreadyOpen`] when it is in use, and
/// [`crate::Error::OpenFailed`] when it cannot be read. Any other damage is in the report.
pub fn heap(options: &HeapOptions) -> Result<HeapReport> {
    let (heap, usable) = open(options)?;
    let mut problems = Vec::new();
    let header = usable.map_err(|defect| defect.to_string()).map(|()| HeapHeader {
        database: heap.header.database,
        scheme: SchemeId::of_heap(heap.header.scheme).map(SchemeId::name),
        blocks: heap.header.blocks,
    });
    problems.extend(header.as_ref().err().cloned());
    let has_batches = heap.header.scheme == SchemeId::NvramGroupCommit as u8;
    let (mut space, mut journals, mut page_logs) = (HeapSpace::default(), Vec::new(), Vec::new());
    let (mut batches, mut next_txn) = (Vec::new(), TxnId::new(heap.get(Word::NextTxn)));
    if header.is_ok() {
        let (blocks, pages) = (heap.header.blocks, heap.get(Word::Pages));
        if (heap.layout.blocks, heap.layout.pages) != (blocks, pages) {
            problems.push(format!(
                "the region is too short for {blocks} journal blocks and {pages} pages; it has {} and {}",
                heap.layout.blocks, heap.layout.pages
            ));
        }
        let mut known = heap.get(Word::Groups);
        if has_batches {
            let groups;
            (batches, next_txn, groups) = batches::read(&heap, &mut problems);
            known = known.max(groups);
        } else {
            journals = journals_in_use(&heap);
            page_logs = page_logs_in_use(&heap);
        }
        space = space_of(&heap, known, &mut problems);
    }
    let damaged = page_logs.iter().filter(|log| log.pages.is_none());
    problems
        .extend(damaged.map(|log| format!("the page log {} is marked valid, but its checksum is wrong", log.first)));
    let system_journals = if has_batches { 0 } else { system_journals(&heap) };
    let taken = journals.iter().filter(|journal| !journal.is_system);
    let taken: u64 = taken.map(|journal| journal.contents.as_ref().map_or(1, |contents| contents.blocks)).sum();
    let state = heap.get(Word::State);
    let state = match State::from_word(state) {
        Some(State::Blank) => "blank".to_owned(),
        Some(State::BeingMade) => "being made".to_owned(),
        Some(State::InUse) => "in use".to_owned(),
        Some(State::Clean) => "closed in order".to_owned(),
        None => {
            problems.push(format!("the heap has the unknown state {state}"));
            format!("unknown {state}")
        }
    };
    Ok(HeapReport {
        location: heap.location().to_owned(),
        header,
        state,
        generation: heap.get(Word::Generation),
        openings: heap.get(Word::Openings),
        next_txn,
        space,
        free_journals: heap.layout.blocks.saturating_sub(system_journals).saturating_sub(taken),
        system_journals,
        journals: journals.into_iter().map(JournalReport::from).collect(),
        page_logs: page_logs.into_iter().map(PageLogReport::from).collect(),
        batches,
        problems,
    })
}

/// Opens a heap to look at it.
pub(super) fn open(options: &HeapOptions) -> Result<(Heap, Result<(), NotAHeap>)> {
    Heap::open_to_inspect(options).map_err(|error| match &options.source {
        Source::File(path) => error.in_opening(path),
        _ => error,
    })
}

/// Counts pages in the allocation bitmaps.
fn space_of(heap: &Heap, known: u64, problems: &mut Vec<String>) -> HeapSpace {
    let pages = heap.layout.pages;
    let mut space = HeapSpace { pages, ..HeapSpace::default() };
    let mut bytes = vec![0; PAGE_SIZE];
    for group in 0..pages.div_ceil(bitmap::GROUP_PAGES) {
        let id = bitmap::bitmap_page(group);
        if id.get() >= pages {
            break;
        }
        heap.read(heap.layout.page(id), &mut bytes);
        let defect = heap::defect(id, &bytes).map(|(_, defect)| defect);
        let is_bitmap = defect.is_none() && page::page_type(&bytes) == Some(PageType::Bitmap);
        if is_bitmap {
            let first = group * bitmap::GROUP_PAGES;
            let behind = (pages - first).min(bitmap::GROUP_PAGES);
            let beyond = (behind..bitmap::GROUP_PAGES).filter(|bit| bitmap::get(&bytes, *bit as u32)).count() as u64;
            if beyond > 0 {
                problems.push(format!("{id} says that {beyond} pages behind the end of the heap are in use"));
            }
            space.in_use += bitmap::count(&bytes) - beyond;
            space.groups += 1;
            continue;
        }
        if group < known.max(1) {
            let defect = defect.unwrap_or_else(|| "the page is no bitmap".to_owned());
            problems.push(format!("the allocation bitmap {id} is lost: {defect}"));
        } else {
            // Bitmaps are made in order.
            break;
        }
    }
    let most = pages.div_ceil(bitmap::GROUP_PAGES);
    if known > most {
        problems.push(format!("the header counts {known} groups of pages, and there are at most {most}"));
    }
    space
}

impl From<JournalInUse> for JournalReport {
    fn from(journal: JournalInUse) -> Self {
        Self {
            block: journal.first,
            is_system: journal.is_system,
            state: if journal.state == JournalState::Committed { "committed" } else { "active" },
            lease: journal.lease,
            records: journal.contents.map(|contents| JournalRecords {
                txn: contents.txn,
                blocks: contents.blocks,
                count: contents.records,
                bytes: contents.bytes,
                kind: describe::kind(contents.kind),
                gsn: contents.gsn,
                pages: contents.pages,
            }),
        }
    }
}

impl From<PageLogInUse> for PageLogReport {
    fn from(log: PageLogInUse) -> Self {
        Self { block: log.first, lease: log.lease, pages: log.pages }
    }
}

impl HeapReport {
    /// Returns the number of journals of transactions in a state.
    fn count(&self, state: &str) -> usize {
        self.journals.iter().filter(|journal| !journal.is_system && journal.state == state).count()
    }
}

impl fmt::Display for HeapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "heap: {}", self.location)?;
        match &self.header {
            Ok(header) => {
                writeln!(f, "database: {}", text::hex(&header.database))?;
                writeln!(f, "scheme: {}", header.scheme.unwrap_or("unknown"))?;
            }
            Err(reason) => writeln!(f, "header: unusable: {reason}")?,
        }
        writeln!(f, "state: {}", self.state)?;
        writeln!(f, "generation: {}", self.generation)?;
        writeln!(f, "openings: {}", self.openings)?;
        write!(f, "next transaction: {}", self.next_txn.get())?;
        for problem in &self.problems {
            write!(f, "\ndamaged: {problem}")?;
        }
        let Ok(header) = &self.header else { return Ok(()) };
        let HeapSpace { pages, in_use, groups } = self.space;
        write!(
            f,
            "\npages: {pages}, {in_use} in use, {} free, in {groups} groups with a bitmap",
            pages.saturating_sub(in_use)
        )?;
        let mebibytes = header.blocks as f64 * BLOCK_BYTES as f64 / f64::from(1 << 20);
        write!(f, "\njournals: {} blocks, {mebibytes:.1} MiB", header.blocks)?;
        if header.scheme == Some(SchemeId::NvramGroupCommit.name()) {
            write!(f, " for undo information")?;
            return self.batches.iter().try_for_each(|batch| write!(f, "\n{batch}"));
        }
        let system = self.journals.iter().filter(|journal| journal.is_system).count();
        let logs = self.page_logs.len();
        write!(
            f,
            "\nof transactions: {} free, {} active, {} committed with pages still to be freed",
            self.free_journals,
            self.count("active"),
            self.count("committed")
        )?;
        write!(
            f,
            "\nof changes that no transaction owns: {} unused, {system} with their latest change, {logs} valid page \
             logs",
            self.system_journals.saturating_sub((system + logs) as u64)
        )?;
        for journal in &self.journals {
            write!(f, "\n{journal}")?;
        }
        for log in &self.page_logs {
            write!(f, "\n{log}")?;
        }
        Ok(())
    }
}

/// The parts of a lease: the opening, and its number in this opening.
fn parts_of(lease: u64) -> (u64, u64) {
    (lease >> 40, lease & ((1 << 40) - 1))
}

/// Writes the pages that a record names, or the first of them.
fn write_pages(f: &mut fmt::Formatter<'_>, pages: &[(PageId, u32)]) -> fmt::Result {
    for (page, lines) in pages.iter().take(SHOWN) {
        write!(f, ", {page} ({lines} line{})", if *lines == 1 { "" } else { "s" })?;
    }
    if pages.len() > SHOWN {
        write!(f, ", and {} more pages", pages.len() - SHOWN)?;
    }
    Ok(())
}

impl fmt::Display for PageLogReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (opening, number) = parts_of(self.lease);
        write!(f, "page log {}: valid, lease {opening}.{number}", self.block)?;
        match &self.pages {
            Some(pages) => write_pages(f, pages),
            None => f.write_str(", fails its checksum"),
        }
    }
}

impl fmt::Display for JournalReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block, state, lease, .. } = self;
        let (opening, number) = parts_of(*lease);
        write!(f, "journal {block}: {state}, lease {opening}.{number}, ")?;
        let Some(records) = &self.records else {
            return f.write_str("no record of this lease: nothing was changed under it");
        };
        let JournalRecords { txn, blocks, count, bytes, kind, gsn, pages } = records;
        if self.is_system {
            f.write_str("no transaction, ")?;
        } else {
            write!(f, "{txn}, ")?;
        }
        let (s, bs) = (if *count == 1 { "" } else { "s" }, if *blocks == 1 { "" } else { "s" });
        write!(f, "{count} record{s} of {bytes} bytes in {blocks} block{bs}, latest: {kind} at {gsn}")?;
        write_pages(f, pages)
    }
}
