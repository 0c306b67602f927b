//! A stretch of the log, sorted by page.
//!
//! Redo does not repeat records in the order of the log but the changes of one page after the other, for as many records
//! at a time as fit a given amount of memory (a window). So each page is read once per window, whatever the size of the
//! pool, and it is known beforehand which pages those are. Recovery in parallel by page rests on the same (Scalable
//! logging through NVM, section 3.2).
//!
//! # Why the order of the log matters only within a page
//! - A page operation names one page, and neither reads nor changes another ([`PageOp::apply`] has nothing else at hand).
//!   Splits, merges and allocations are several operations, each on its own page.
//! - Whether a page has a record's changes is told by that page's GSN. Pages of one record reach the disk independently
//!   of each other in normal operation too, and redo copes with any mixture.
//! - The operations of one record on one page stay together and in order, under one latch: no page reaches the disk with
//!   a part of them.

use std::collections::HashMap;

use duramen_types::{Gsn, PageId};
use duramen_wal::{MergedScanner, RecordRef};

use super::analysis::kind_of;
use super::malformed;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::mix::BuildNumberHasher;
use crate::record::{PageOp, PageOps, Reader};

/// No further change of the page in this window.
const NONE: u32 = u32::MAX;

/// One operation: where it is in [`Window::bytes`], and the next one on the same page.
#[derive(Clone, Copy, Debug)]
struct Link {
    gsn: Gsn,
    at: u32,
    next: u32,
}

/// The changes of one page in a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChanges {
    /// The page.
    pub(super) page: PageId,
    /// Whether no window before had changes of the page.
    pub(super) is_new: bool,
    first: u32,
    last: u32,
}

/// The page operations of consecutive log records.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The operations, encoded, in the order of the log.
    bytes: Vec<u8>,
    links: Vec<Link>,
    /// Which pages they change, in the order of the data file.
    pub(super) pages: Vec<PageChanges>,
}

impl Window {
    /// Memory used, in bytes.
    fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.links) + size_of_val(&*self.pages)
    }

    /// The operations on a page in the order of the log, each with the GSN of its record.
    pub(super) fn changes(&self, of: PageChanges) -> impl Iterator<Item = (Gsn, PageOp<'_>)> {
        let mut at = of.first;
        std::iter::from_fn(move || {
            let link = self.links.get(at as usize)?;
            at = link.next;
            let op = PageOp::decode(&mut Reader::new(&self.bytes[link.at as usize..]));
            Some((link.gsn, op.expect("operations in a window were encoded for it")))
        })
    }
}

/// What is known about a page of the dirty page table.
#[derive(Clone, Copy, Debug)]
struct Tracked {
    /// Records below this cannot be missing.
    from: Gsn,
    /// Number of the latest window with changes of it, 0 for none.
    window: u32,
    /// Its place in that window's pages.
    place: u32,
}

/// Makes windows.
#[derive(Debug)]
pub(super) struct Collector {
    pages: HashMap<PageId, Tracked, BuildNumberHasher>,
    /// Number of the latest window.
    window: u32,
    /// A window ends with the record that makes it use more bytes of memory.
    memory: usize,
}

impl Collector {
    /// For the changes of `pages` from the given GSNs on, in windows of about `memory` bytes.
    pub(super) fn new(pages: &HashMap<PageId, Gsn, BuildNumberHasher>, memory: usize) -> Self {
        let tracked = |(&page, &from)| (page, Tracked { from, window: 0, place: 0 });
        Self { pages: pages.iter().map(tracked).collect(), window: 0, memory }
    }

    /// The next window; without pages at the end of the log.
    pub(super) fn next(&mut self, scanner: &mut MergedScanner, report: &mut RecoveryReport) -> Result<Window> {
        self.window += 1;
        let mut window = Window::default();
        while window.size() < self.memory {
            let Some(record) = scanner.next()? else { break };
            report.records += 1;
            report.bytes += record.end.get() - record.lsn.get();
            self.add(&record, &mut window)?;
        }
        window.pages.sort_unstable_by_key(|changes| changes.page);
        Ok(window)
    }

    fn add(&mut self, record: &RecordRef<'_>, window: &mut Window) -> Result<()> {
        let malformed = |_| malformed(record.place());
        for op in PageOps::of(kind_of(record)?, record.flags, record.page, record.payload).map_err(malformed)? {
            let (page, op) = op.map_err(malformed)?;
            let Some(tracked) = self.pages.get_mut(&page).filter(|tracked| tracked.from <= record.gsn) else {
                continue;
            };
            let number = index(window.links.len());
            window.links.push(Link { gsn: record.gsn, at: index(window.bytes.len()), next: NONE });
            op.encode(&mut window.bytes);
            if tracked.window == self.window {
                let changes = &mut window.pages[tracked.place as usize];
                window.links[changes.last as usize].next = number;
                changes.last = number;
            } else {
                let is_new = tracked.window == 0;
                *tracked = Tracked { window: self.window, place: index(window.pages.len()), ..*tracked };
                window.pages.push(PageChanges { page, is_new, first: number, last: number });
            }
        }
        Ok(())
    }
}

/// Windows are bounded by `Options::redo_memory_bytes`, but for one record that goes beyond it.
fn index(at: usize) -> u32 {
    u32::try_from(at).ok().filter(|&at| at != NONE).expect("a window has less than 4 GiB")
}
