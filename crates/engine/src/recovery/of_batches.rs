//! Recovery of a database whose changes go to a heap in batches: the scheme brings the latest batch
//! home, and the undo pass finishes the transactions that it carries.

use duramen_sync::Arc;
use duramen_types::{Gsn, LogAddress};

use super::host::RecoveryHost;
use super::malformed::Medium;
use super::of_heap::finish_in_heap;
use super::prev_chain::{ReadRecords, Resumable};
use crate::error::Result;
use crate::heap::Heap;
use crate::metrics::RecoveryReport;
use crate::scheme::{Batches, PastEntry};
use crate::txn_state::log::PastRecord;
use crate::txn_state::table::{TxnEntry, TxnState};

/// Finishes the transactions that the latest batch carries, and finds the end of the pages in use.
/// The batch is home already. No other thread uses the database meanwhile.
pub(crate) fn recover_batches(
    host: &Arc<dyn RecoveryHost>,
    heap: &Arc<Heap>,
    found: Batches,
    report: RecoveryReport,
) -> Result<RecoveryReport> {
    let known = (found.next_txn(), found.groups());
    finish_in_heap(host, heap, known, Arc::new(Carried { heap: Arc::clone(heap), found }), report)
}

/// The carried transactions of a heap.
struct Carried {
    heap: Arc<Heap>,
    found: Batches,
}

impl Resumable for Carried {
    fn entries(&self) -> Vec<TxnEntry> {
        let first = Gsn::new(self.found.batch());
        let entry = |(txn, has_committed, last)| TxnEntry {
            txn,
            state: if has_committed { TxnState::Committed } else { TxnState::Active },
            first,
            last,
        };
        self.found.interrupted().map(entry).collect()
    }

    fn reader(&self) -> Box<dyn ReadRecords + '_> {
        Box::new(Reader(self))
    }
}

/// Reads the undo information of carried transactions.
struct Reader<'f>(&'f Carried);

impl ReadRecords for Reader<'_> {
    fn medium(&self) -> Medium {
        Medium::Heap(self.0.heap.location().to_owned())
    }

    fn read(&mut self, address: LogAddress) -> Result<PastRecord<'_>> {
        let entry = self.0.found.read(&self.0.heap, address)?;
        let PastEntry { prev, gsn, kind, payload } = entry;
        Ok(PastRecord { address, txn: None, prev, gsn, kind, payload })
    }
}
