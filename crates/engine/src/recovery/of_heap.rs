//! Recovery of a database whose pages are in a heap in persistent memory: the scheme repeats the
//! latest change of each journal, and the undo pass finishes the transactions as it does after
//! redo.

use duramen_sync::Arc;
use duramen_sync::clock::Instant;
use duramen_types::{LogAddress, TxnId};

use super::host::RecoveryHost;
use super::malformed::Medium;
use super::micros;
use super::prev_chain::{ReadRecords, Resumable};
use super::undo::finish_transactions;
use crate::error::Result;
use crate::heap::Heap;
use crate::metrics::RecoveryReport;
use crate::scheme::{Found, JournalRecord};
use crate::txn_state::log::PastRecord;
use crate::txn_state::table::{TxnEntry, TxnState};

/// Finishes the transactions that were found in the journals, and finds the end of the pages in
/// use. The changes have been repeated already. No other thread uses the database meanwhile.
pub(crate) fn recover_heap(
    host: &Arc<dyn RecoveryHost>,
    heap: &Arc<Heap>,
    found: Arc<Found>,
    report: RecoveryReport,
) -> Result<RecoveryReport> {
    let known = (found.next_txn, found.groups);
    finish_in_heap(host, heap, known, Arc::new(InJournals { heap: Arc::clone(heap), found }), report)
}

/// Does this with transactions from anywhere in the heap. `next_txn` is the next transaction id,
/// and `groups` the number of groups of pages that certainly have a bitmap.
pub(super) fn finish_in_heap(
    host: &Arc<dyn RecoveryHost>,
    heap: &Heap,
    (next_txn, groups): (TxnId, u64),
    interrupted: Arc<dyn Resumable>,
    mut report: RecoveryReport,
) -> Result<RecoveryReport> {
    let parts = host.undo_parts();
    parts.contexts.set_next_txn(next_txn);
    parts.store.space.discover(&parts.store.pool, groups, heap.layout.pages)?;
    let started = Instant::now();
    finish_transactions(host, interrupted, &mut report)?;
    report.undo_micros = micros(started);
    Ok(report)
}

/// The interrupted transactions of a heap.
struct InJournals {
    heap: Arc<Heap>,
    found: Arc<Found>,
}

impl Resumable for InJournals {
    fn entries(&self) -> Vec<TxnEntry> {
        let entries = self.found.transactions().map(|interrupted| TxnEntry {
            txn: interrupted.txn,
            state: if interrupted.has_committed { TxnState::Committed } else { TxnState::Active },
            first: interrupted.gsn,
            last: interrupted.last,
        });
        entries.collect()
    }

    fn reader(&self) -> Box<dyn ReadRecords + '_> {
        Box::new(Reader { from: self, latest: None })
    }
}

/// Reads the records of journals.
struct Reader<'f> {
    from: &'f InJournals,
    latest: Option<JournalRecord>,
}

impl ReadRecords for Reader<'_> {
    fn read(&mut self, address: LogAddress) -> Result<PastRecord<'_>> {
        let (kind, record) = self.from.found.read(&self.from.heap, address)?;
        let record = self.latest.insert(record);
        let (prev, gsn) = (record.undo_next(), record.gsn());
        Ok(PastRecord { address, txn: None, prev, gsn, kind, payload: record.undo() })
    }

    fn medium(&self) -> Medium {
        Medium::Heap(self.from.heap.location().to_owned())
    }
}
