//! The full structural check behind [`crate::Db::check`].
//!
//! The catalog's tree and the tree of every table are walked from their roots (`tree.rs`), with the
//! overflow values that leaves refer to (`overflow_chain.rs`); what was reached is then compared
//! with the allocation bitmaps (`space.rs`). Each page is copied under a shared latch that is let
//! go before the next page is latched, so the check holds nobody up for long. It takes no locks:
//! the caller sees to it that nobody writes meanwhile.
//!
//! What is wrong goes into the report and the check goes on; where a page cannot be read or
//! trusted, what lies below it stays unknown. Only a failure of the disk itself ends the check
//! early.

mod overflow_chain;
mod space;
mod tree;

pub(crate) use overflow_chain::Link;

use std::collections::HashMap;
use std::fmt;
use std::io::ErrorKind;

use duramen_io::OpenMode;
use duramen_sync::atomic::AtomicBool;
use duramen_types::{MAX_TABLE_NAME_LEN, PAGE_SIZE, PageId};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::maintenance::Maintenance;
use crate::open::files::DATA;
use crate::pool::PoolError;
use crate::record::Tree;
use crate::storage::catalog::{self, CATALOG, FIRST_TABLE, NEXT_TABLE_KEY};
use crate::storage::store::Store;

use space::Reached;

/// Most problems that a report spells out; of the rest it gives the number.
const MAX_PROBLEMS: usize = 1000;

/// What [`crate::Db::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of tables, the catalog not counted.
    pub tables: u64,
    /// Pages in use that were reached: the nodes of all trees, the catalog's included, the pages of
    /// overflow values, the allocation bitmaps, and pages that are still to be given back.
    pub pages: u64,
    /// Records of all tables. Deleted ones and those of the catalog are not counted.
    pub records: u64,
    /// Deleted records of all tables that still occupy space. They are removed as soon as no
    /// transaction needs them.
    pub ghosts: u64,
    /// Pages that the data file, as long as it is now, has room for and that the allocation bitmaps
    /// do not say are in use.
    pub free_pages: u64,
    /// What is wrong, a sentence each, with the place. Empty for a healthy database. Of more than a
    /// thousand problems the last entry gives the number.
    pub problems: Vec<String>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks the whole database. No transaction may be writing meanwhile.
pub(crate) fn check(engine: &Engine) -> Result<CheckReport> {
    engine.health.check_process()?;
    if engine.health.is_closed() {
        return Err(Error::Closed);
    }
    // Both may change how many pages there are. A failure has put the database out of service; what
    // is there can be examined all the same.
    let _ = engine.finish_in_doubt(&AtomicBool::new(false));
    engine.retry_deferred_frees();
    let data = engine.disk.open(DATA, OpenMode::Existing).map_err(|error| engine.note(error.into()))?;
    let file_pages = data.len().map_err(|error| engine.note(error.into()))? / PAGE_SIZE as u64;
    let mut checker = Checker::new(&engine.store, data.path());
    // Pages that a committed transaction could not give back yet, for want of log space, are no
    // leak.
    match engine.freeing().pages() {
        Ok(pages) => checker.expect_unused(&pages),
        Err(Error::Corrupt { reason, .. }) => {
            checker.problem(PageId::ZERO, format_args!("pages to be freed: {reason}"))
        }
        Err(error) => return Err(engine.note(error)),
    }
    checker.run(file_pages).map_err(|error| engine.note(error))?;
    Ok(checker.into_report())
}

/// A check under way.
struct Checker<'s> {
    store: &'s Store,
    /// Path of the data file.
    file: String,
    report: CheckReport,
    /// Problems beyond [`MAX_PROBLEMS`].
    unlisted: u64,
    reached: Reached,
    /// Whether something could not be followed, so that pages may be in use without having been
    /// reached.
    severed: bool,
}

impl<'s> Checker<'s> {
    fn new(store: &'s Store, file: String) -> Self {
        let reached = Reached::new(store.space.groups());
        Self { store, file, report: CheckReport::default(), unlisted: 0, reached, severed: false }
    }

    /// Pages that are allocated although nothing uses them.
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
            self.report.problems.push(format!("there are {} more problems", self.unlisted));
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
                self.problem(CATALOG.root, format_args!("the catalog holds the impossible table name `{name}`"));
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
                self.problem(CATALOG.root, format_args!("table `{name}` has the id {id}, which was never given out"));
            }
        }
        tables
    }

    /// Takes note of something wrong with a page.
    fn problem(&mut self, page: PageId, what: impl fmt::Display) {
        if self.report.problems.len() == MAX_PROBLEMS {
            self.unlisted += 1;
            return;
        }
        let offset = page.get().saturating_mul(PAGE_SIZE as u64);
        self.report.problems.push(format!("{page} in `{}` at byte {offset}: {what}", self.file));
    }

    /// As [`Self::problem`], for one that keeps the check from following what the page leads to.
    fn dead_end(&mut self, page: PageId, what: impl fmt::Display) {
        self.severed = true;
        self.problem(page, what);
    }

    /// A copy of a page; `None`, and a problem, when it is damaged. `user` says what the page is
    /// part of.
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

/// What is wrong with a page that could not be read, unless the failure is the disk's.
fn damage(error: PoolError) -> Result<String> {
    match error {
        PoolError::Corrupt { defect, .. } => Ok(defect),
        PoolError::Disk(error) if error.kind == ErrorKind::UnexpectedEof => Ok(error.reason),
        other => Err(other.into()),
    }
}
