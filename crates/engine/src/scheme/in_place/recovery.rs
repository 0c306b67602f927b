//! Recovery of a heap, as far as the heap alone tells: the module `in_place` says why it is right.

use std::collections::HashMap;

use duramen_types::{Gsn, LogAddress, PageId, TxnId, planted};

use super::journal::{self, FoundJournal, JournalState};
use super::page_log;
use super::record::Record;
use crate::error::{Error, Result};
use crate::heap::{Heap, LINE, Word};
use crate::metrics::RecoveryReport;
use crate::page::Lines;
use crate::record::Kind;

/// What the journals of a heap hold after a crash.
#[derive(Debug)]
pub(crate) struct Found {
    /// The journals of transactions.
    pub(super) interrupted: Vec<FoundJournal>,
    /// The journal of each block.
    by_block: HashMap<u32, usize>,
    pub(crate) next_txn: TxnId,
    pub(crate) groups: u64,
}

/// A transaction that a crash has interrupted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interrupted {
    pub(crate) txn: TxnId,
    /// Whether it had committed, with pages still to be freed.
    pub(crate) has_committed: bool,
    /// The GSN of its latest record.
    pub(crate) gsn: Gsn,
    /// The record to undo first.
    pub(crate) last: LogAddress,
}

impl Found {
    /// Reads the journals, and repeats the changes that may lack a part in the heap.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a record names a page that is not in the heap.
    pub(crate) fn repeat(heap: &Heap, report: &mut RecoveryReport) -> Result<Self> {
        let mut found = take_back(heap, report)?;
        found.sort_by_key(|journal| journal.last.gsn());
        report.records = found.len() as u64;
        for journal in &found {
            repeat(heap, &journal.last, report);
        }
        heap.barrier();
        found.retain(|journal| !journal.txn.is_zero());
        let blocks = |(index, journal): (usize, &FoundJournal)| {
            journal.blocks.iter().map(move |block| (*block, index)).collect::<Vec<_>>()
        };
        let by_block = found.iter().enumerate().flat_map(blocks).collect();
        let (next_txn, groups) = (TxnId::new(heap.get(Word::NextTxn)), heap.get(Word::Groups));
        Ok(Self { interrupted: found, by_block, next_txn, groups })
    }

    /// Returns the interrupted transactions.
    pub(crate) fn transactions(&self) -> impl Iterator<Item = Interrupted> {
        self.interrupted.iter().map(|journal| Interrupted {
            txn: journal.txn,
            has_committed: journal.state == JournalState::Committed,
            gsn: journal.last.gsn(),
            last: journal.top(),
        })
    }

    /// Reads a record of one of these transactions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if none of their records is there.
    pub(crate) fn read(&self, heap: &Heap, address: LogAddress) -> Result<(Kind, Record)> {
        let journal = heap.layout.block_of(address.get()).and_then(|block| self.by_block.get(&block));
        let record = journal.and_then(|journal| journal::read(heap, &self.interrupted[*journal], address));
        record.and_then(|record| record.kind().map(|kind| (kind, record))).ok_or_else(|| {
            let (file, offset) = (heap.location().to_owned(), address.get());
            let reason = "a record of an interrupted transaction is missing in its journal".to_owned();
            Error::Corrupt { file, offset, page: None, reason }
        })
    }
}

/// Takes back the changes that a crash has interrupted between the barriers of the paper: stores
/// the lines of valid page logs to their pages, and erases the undo entries without a change.
/// Returns the journals in use.
fn take_back(heap: &Heap, report: &mut RecoveryReport) -> Result<Vec<FoundJournal>> {
    let logs = page_log::find(heap)?;
    for log in &logs {
        check_pages(heap, &log.record)?;
        for (page, lines, old) in log.record.pages() {
            report.pages += 1;
            report.redone += 1;
            store_lines(heap, page, lines, old);
        }
    }
    if !logs.is_empty() {
        heap.barrier();
    }
    let mut found = Vec::new();
    let mut erased = Vec::new();
    for first in 0..heap.layout.blocks as u32 {
        // Of each journal, the latest entry at most has no change.
        while let Some(journal) = journal::find_one(heap, first) {
            check_pages(heap, &journal.last)?;
            if has_change(heap, &journal.last) {
                found.push(journal);
                break;
            }
            erased.push((journal.last.address, journal.last.erase(heap)));
        }
    }
    logs.iter().for_each(|log| log.invalidate(heap));
    if planted!(EntryLeft) {
        erased.iter().for_each(|(address, seal)| heap.store(*address, &[&seal.to_le_bytes()]));
    }
    if !(logs.is_empty() && erased.is_empty()) {
        heap.barrier();
    }
    Ok(found)
}

/// Returns whether the change of a record was made, or will be repeated from its lines.
fn has_change(heap: &Heap, record: &Record) -> bool {
    let is_made = |(page, lines, _): (PageId, Lines, &[u8])| lines.count() > 0 || heap.page_gsn(page) >= record.gsn();
    record.pages().all(is_made) || planted!(HomeTimeIgnored)
}

/// Checks that the pages of a record are in the heap.
fn check_pages(heap: &Heap, record: &Record) -> Result<()> {
    let Some((page, ..)) = record.pages().find(|(page, ..)| page.get() >= heap.layout.pages) else { return Ok(()) };
    let (file, offset) = (heap.location().to_owned(), record.address);
    let reason = format!("a journal names {page}, which is behind the end of the heap");
    Err(Error::Corrupt { file, offset, page: Some(page), reason })
}

/// Stores the lines of a record to the pages that may lack them.
fn repeat(heap: &Heap, record: &Record, report: &mut RecoveryReport) {
    for (page, lines, contents) in record.pages() {
        report.pages += 1;
        if lines.count() == 0 || heap.page_gsn(page) > record.gsn() && !planted!(HomeTimeIgnored) {
            continue;
        }
        report.redone += 1;
        store_lines(heap, page, lines, contents);
    }
}

/// Stores lines with these contents, one after the other, to a page.
fn store_lines(heap: &Heap, page: PageId, lines: Lines, contents: &[u8]) {
    let mut rest = contents;
    for run in lines.runs() {
        let (bytes, behind) = rest.split_at(run.len() * LINE as usize);
        heap.store_page(page, run.start * LINE as usize, bytes);
        rest = behind;
    }
}
