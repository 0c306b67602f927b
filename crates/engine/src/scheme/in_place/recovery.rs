//! Recovery of a heap, as far as the heap alone tells: the module `in_place` says why it is right.

use std::collections::HashMap;

use duramen_types::{Gsn, LogAddress, TxnId, planted};

use super::journal::{self, FoundJournal, JournalState};
use super::record::Record;
use crate::error::{Error, Result};
use crate::heap::{Heap, LINE, Word};
use crate::metrics::RecoveryReport;
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
        let mut found = journal::find(heap);
        found.sort_by_key(|journal| journal.last.gsn());
        report.records = found.len() as u64;
        for journal in &found {
            repeat(heap, &journal.last, report)?;
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

/// Stores the lines of a record to the pages that may lack them.
fn repeat(heap: &Heap, record: &Record, report: &mut RecoveryReport) -> Result<()> {
    for (page, lines, contents) in record.pages() {
        if page.get() >= heap.layout.pages {
            let (file, offset) = (heap.location().to_owned(), record.address);
            let reason = format!("a journal names {page}, which is behind the end of the heap");
            return Err(Error::Corrupt { file, offset, page: Some(page), reason });
        }
        report.pages += 1;
        if heap.page_gsn(page) > record.gsn() && !planted!(HomeTimeIgnored) {
            continue;
        }
        report.redone += 1;
        let mut rest = contents;
        for run in lines.runs() {
            let (bytes, behind) = rest.split_at(run.len() * LINE as usize);
            heap.store_page(page, run.start * LINE as usize, bytes);
            rest = behind;
        }
    }
    Ok(())
}
