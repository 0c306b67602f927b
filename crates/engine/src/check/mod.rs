//! The full structural check behind [`crate::Db::check`].
//!
//! The check walks the catalog's tree and the tree of every table from their roots (`tree.rs`),
//! with the overflow values that leaves refer to (`overflow_chain.rs`). It then compares the
//! reached pages with the allocation bitmaps (`space.rs`). It copies each page under a shared latch
//! and releases that latch before it latches the next page, so it does not delay other threads for
//! long. It takes no locks: the caller must make sure that no transaction writes meanwhile.
//!
//! `shape.rs` measures the tree of a table.
//!
//! The check adds each problem to the report and goes on. If a page cannot be read or trusted, the
//! pages below it stay unknown. Only a failure of the disk itself ends the check early.

mod overflow_chain;
mod shape;
mod space;
mod tree;

pub(crate) use overflow_chain::Link;
pub use shape::{LevelReport, TableReport};

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;

use duramen_sync::atomic::AtomicBool;
use duramen_types::{MAX_TABLE_NAME_LEN, PAGE_SIZE, PageId};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::maintenance::Maintenance;
use crate::pool::PoolError;
use crate::record::Tree;
use crate::storage::catalog::{self, CATALOG, FIRST_TABLE, NEXT_TABLE_KEY};
use crate::storage::store::Store;

use space::Reached;

/// Largest number of problems that a report describes; it only counts the rest.
const MAX_PROBLEMS: usize = 1000;

/// The result of [`crate::Db::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of tables, the catalog not counted.
    pub tables: u64,
    /// Pages in use that were reached: the nodes of all trees, the catalog's included, the pages of
    /// overflow values, the allocation bitmaps, and pages that are still to be freed.
    pub pages: u64,
    /// Records of all tables. Deleted ones and those of the catalog are not counted.
    pub records: u64,
    /// Deleted records of all tables that still occupy space. They are removed by later
    /// deletions and checkpoints when no transaction and no snapshot needs them any more, or when
    /// their space is needed.
    pub ghosts: u64,
    /// Pages within the present length of the data file that the allocation bitmaps do not mark as
    /// used.
    pub free_pages: u64,
    /// The problems, a sentence each, with the page or file concerned. Empty for a healthy
    /// database. If there are more than a thousand problems, the last entry gives the number of the
    /// others.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Returns whether the check found no problem.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # use std::sync::Arc;
    /// # use duramen::{Db, Options};
    /// # let disk = duramen_io::SimDisk::new(1);
    /// # let db = Db::open_on(Arc::new(disk.clone()), Options::small())?;
    /// let films = db.create_table("films")?;
    /// db.run(|txn| txn.put(&films, b"Alien", b"in space"))?;
    /// assert!(db.check()?.is_ok());
    /// db.close()?;
    ///
    /// // The medium changes a bit of the record.
    /// let data = disk.durable_bytes("data").unwrap();
    /// let at = data.windows(8).position(|bytes| bytes == b"in space").unwrap();
    /// disk.flip_bit("data", at as u64, 0);
    /// let db = Db::open_on(Arc::new(disk), Options::small())?;
    /// assert!(!db.check()?.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks the whole database. No transaction may write meanwhile.
pub(crate) fn check(engine: &Engine) -> Result<CheckReport> {
    engine.health.check_process()?;
    if engine.health.is_closed() {
        return Err(Error::Closed);
    }
    // Both calls may change the number of pages. A failure has put the database out of service, but
    // its present state can still be examined.
    let _ = engine.finish_in_doubt(&AtomicBool::new(false));
    engine.sweep();
    let _held = engine.deferred_frees.hold();
    let _not_swept = engine.sweeping.lock();
    let pool = &engine.store.pool;
    let mut checker = Checker::new(&engine.store, pool.location());
    // Pages that a committed transaction could not free yet, for lack of log space, are no leak.
    match engine.freeing().pages() {
        Ok(pages) => checker.expect_unused(&pages),
        Err(Error::Corrupt { reason, .. }) => {
            checker.problem(PageId::ZERO, format_args!("pages to be freed: {reason}"))
        }
        Err(error) => return Err(engine.note(error)),
    }
    checker.run(pool.pages_in_store()).map_err(|error| engine.note(error))?;
    Ok(checker.into_report())
}

/// The state of a running check.
struct Checker<'s> {
    store: &'s Store,
    /// Path of the data file or heap.
    file: String,
    report: CheckReport,
    /// Problems beyond [`MAX_PROBLEMS`].
    unlisted: u64,
    reached: Reached,
    /// Whether the check could not follow a reference, so that pages may be in use without having
    /// been reached.
    severed: bool,
}

impl<'s> Checker<'s> {
    fn new(store: &'s Store, file: String) -> Self {
        let reached = Reached::new(store.space.groups());
        Self { store, file, report: CheckReport::default(), unlisted: 0, reached, severed: false }
    }

    /// Marks pages as reached that are allocated although no structure uses them.
    fn expect_unused(&mut self, pages: &[PageId]) {
        for &page in pages {
            self.reached.mark(page);
            self.report.pages += 1;
        }
    }

    fn run(&mut self, file_pages: u64) -> Result<()> {
        let mut records = Vec::new();
        self.check_tree("the catalog", CATALOG, |key, value| records.push((key.to_vec(), value.to_vec())))?;
        // The catalog's own records are not the user's.
        (self.report.records, self.report.ghosts) = (0, 0);
        for (name, tree) in self.check_catalog(&records) {
            self.report.tables += 1;
            self.check_tree(&format!("table `{name}`"), tree, |_, _| {})?;
        }
        self.check_space(file_pages)
    }

    fn into_report(mut self) -> CheckReport {
        if self.unlisted > 0 {
            self.report.problems.push(format!("{} more problems", self.unlisted));
        }
        self.report
    }

    /// Checks the catalog's records; returns the tables.
    fn check_catalog(&mut self, records: &[(Vec<u8>, Vec<u8>)]) -> Vec<(String, Tree)> {
        let mut tables = Vec::new();
        let mut next = None;
        for (key, value) in records {
            if key == NEXT_TABLE_KEY {
                match catalog::decode_next(value) {
                    Ok(id) => next = Some(id),
                    Err(_) => self.problem(CATALOG.root, "the record of the next table id is malformed"),
                }
                continue;
            }
            let name = String::from_utf8_lossy(key).into_owned();
            if name.as_bytes() != key || key.len() > MAX_TABLE_NAME_LEN {
                self.problem(CATALOG.root, format_args!("the catalog contains the invalid table name `{name}`"));
            }
            match catalog::decode(value) {
                Ok(tree) => tables.push((name, tree)),
                Err(_) => self.dead_end(CATALOG.root, format_args!("the record of table `{name}` is malformed")),
            }
        }
        let mut names = HashMap::new();
        for (name, tree) in &tables {
            let id = tree.table.get();
            if let Some(other) = names.insert(id, name) {
                self.problem(CATALOG.root, format_args!("tables `{other}` and `{name}` have the same id {id}"));
            }
            if id < FIRST_TABLE || next.is_none_or(|next| id >= next) {
                self.problem(CATALOG.root, format_args!("table `{name}` has the id {id}, which was never assigned"));
            }
        }
        tables
    }

    /// Adds a problem of a page to the report.
    fn problem(&mut self, page: PageId, what: impl fmt::Display) {
        if self.report.problems.len() == MAX_PROBLEMS {
            self.unlisted += 1;
            return;
        }
        let offset = page.get().saturating_mul(PAGE_SIZE as u64);
        self.report.problems.push(format!("{page} in `{}` at byte {offset}: {what}", self.file));
    }

    /// Reports as [`Self::problem`] does, for a problem that keeps the check from following the
    /// page's references.
    fn dead_end(&mut self, page: PageId, what: impl fmt::Display) {
        self.severed = true;
        self.problem(page, what);
    }

    /// Returns a copy of a page; returns `None` and reports a problem when the page is damaged.
    /// `user` names the structure that the page is part of.
    fn read(&mut self, id: PageId, user: &str) -> Result<Option<Vec<u8>>> {
        match self.store.pool.shared(id) {
            Ok(page) => Ok(Some(page.to_vec())),
            Err(error) => {
                let reason = damage(error)?;
                self.dead_end(id, format_args!("{user}: {reason}"));
                Ok(None)
            }
        }
    }
}

/// Returns the description of a page that could not be read, or the error if the disk failed.
fn damage(error: PoolError) -> Result<String> {
    match error {
        PoolError::Corrupt { defect, .. } => Ok(defect),
        PoolError::Disk(error) if error.kind == ErrorKind::UnexpectedEof => Ok(error.reason),
        other => Err(other.into()),
    }
}
