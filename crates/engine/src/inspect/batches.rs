//! Reports on the batch log of a heap.

use std::fmt;

use duramen_types::TxnId;

use crate::heap::Heap;
use crate::scheme::{FoundBatch, batches_of};

/// Number of carried transactions that `Display` shows.
const SHOWN: usize = 8;

/// A transaction that was under way at the end of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CarriedReport {
    /// Its number.
    pub txn: TxnId,
    /// `active`, or `committed` (the transaction has committed, and pages are still to be freed).
    pub state: &'static str,
    /// Bytes of its undo information.
    pub bytes: u64,
}

/// A batch whose record is whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BatchReport {
    /// The number of the batch.
    pub number: u64,
    /// Whether the record holds the lines of its pages as they were before, with the barriers of
    /// the paper.
    pub has_old_lines: bool,
    /// Whether the batch is committed. If not, recovery takes its lines back.
    pub is_committed: bool,
    /// Bytes of the record.
    pub bytes: u64,
    /// Number of pages in it.
    pub pages: u64,
    /// Number of cache lines of these pages.
    pub lines: u64,
    /// Transactions under way at its end.
    pub carried: Vec<CarriedReport>,
}

impl From<&FoundBatch> for BatchReport {
    fn from(batch: &FoundBatch) -> Self {
        let carried = batch.carried.iter().map(|&(txn, has_committed, bytes)| CarriedReport {
            txn: TxnId::new(txn),
            state: if has_committed { "committed" } else { "active" },
            bytes,
        });
        Self {
            number: batch.number,
            has_old_lines: batch.has_old_lines,
            is_committed: batch.is_committed,
            bytes: batch.bytes,
            pages: batch.pages,
            lines: batch.lines,
            carried: carried.collect(),
        }
    }
}

/// Reads the batches of a heap, the latest first, the first transaction number that it does not
/// know of, and the groups of pages that it knows to have a bitmap.
pub(super) fn read(heap: &Heap, problems: &mut Vec<String>) -> (Vec<BatchReport>, TxnId, u64) {
    let found = batches_of(heap);
    if !found.iter().any(|batch| batch.is_committed) {
        problems.push("neither half of the batch log has a whole record of a committed batch".to_owned());
    }
    let committed = found.iter().find(|batch| batch.is_committed);
    let (next_txn, groups) = committed.map_or((0, 0), |batch| (batch.next_txn, batch.groups));
    (found.iter().map(BatchReport::from).collect(), TxnId::new(next_txn), groups)
}

impl fmt::Display for BatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, bytes, pages, lines, carried, .. } = self;
        let kind = match (self.has_old_lines, self.is_committed) {
            (false, _) => "new lines",
            (true, true) => "old lines, committed",
            (true, false) => "old lines, not committed",
        };
        write!(f, "batch {number}: {bytes} bytes, {lines} lines of {pages} pages, {kind}, {} carried", carried.len())?;
        for CarriedReport { txn, state, bytes } in carried.iter().take(SHOWN) {
            write!(f, ", {txn} ({state}, {bytes} bytes of undo information)")?;
        }
        if carried.len() > SHOWN {
            write!(f, ", and {} more", carried.len() - SHOWN)?;
        }
        Ok(())
    }
}
