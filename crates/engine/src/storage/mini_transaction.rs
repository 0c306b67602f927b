//! Changes of pages that are atomic in the log: the pages are latched, changed, described by one
//! record, stamped with its GSN and unlatched.
//!
//! Every operation that changes more than one page uses a [`MiniTransaction`]: splits, merges,
//! allocations. It is in the log either as a whole or not at all, which makes it a system
//! transaction that needs no undo. [`crate::txn_state::log::TxnLog::update`] does an ordinary
//! update of one leaf; it follows the same order.
//!
//! The order of steps maintains the write-ahead rule and the fuzzy checkpoint.
//! [`Exclusive::prepare`] comes before the first change of the page, so that a checkpoint that
//! begins after the record finds the page in the dirty page table. Then come the record, the GSN on
//! the page, and the release of the latch.

use duramen_sync::thread;
use duramen_types::{Gsn, PageId};
use duramen_wal::NewRecord;

use crate::pool::Exclusive;
use crate::record::{Kind, PageOp, put_number};
use crate::scheme::{Change, Recorded, StorageScheme};

/// Latched pages and the operations done on them so far.
pub(crate) struct MiniTransaction<'p> {
    pages: Vec<Exclusive<'p>>,
    /// The highest GSN that one of the pages had before, because an operation that recreates a page
    /// erases it.
    after: Gsn,
    payload: Vec<u8>,
    operations: usize,
    /// Bytes of log that earlier records took for this mini-transaction.
    charged: u64,
}

impl<'p> MiniTransaction<'p> {
    /// Creates a mini-transaction that changes nothing yet.
    pub(crate) fn new() -> Self {
        Self { pages: Vec::with_capacity(4), after: Gsn::ZERO, payload: Vec::new(), operations: 0, charged: 0 }
    }

    /// Adds a latched page and returns its index in the mini-transaction.
    pub(crate) fn include(&mut self, page: Exclusive<'p>) -> usize {
        self.after = self.after.max(page.gsn());
        self.pages.push(page);
        self.pages.len() - 1
    }

    /// Returns a page of the mini-transaction.
    pub(crate) fn page(&self, index: usize) -> &[u8] {
        &self.pages[index]
    }

    /// Returns the id of a page of the mini-transaction.
    pub(crate) fn page_id(&self, index: usize) -> PageId {
        self.pages[index].id()
    }

    /// Changes a page. The caller has checked that the operation fits.
    pub(crate) fn apply(&mut self, index: usize, op: PageOp<'_>) {
        let page = &mut self.pages[index];
        page.prepare();
        put_number(&mut self.payload, page.id().get());
        op.encode(&mut self.payload);
        op.apply(&mut page.page_mut()).expect("the operation was checked against the page");
        self.operations += 1;
    }

    /// Orders the mini-transaction after a record that left no GSN on its pages: the
    /// mini-transaction does not survive a crash without that record.
    pub(crate) fn come_after(&mut self, gsn: Gsn) {
        self.after = self.after.max(gsn);
    }

    /// Adds `bytes` of log that had to be written before and for this mini-transaction.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.charged += bytes;
    }

    /// Returns the bytes of log that earlier records took for this mini-transaction.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Logs the mini-transaction as a system transaction and releases the pages; returns the bytes
    /// of log that it took, including the charged ones.
    pub(crate) fn finish(self, scheme: &dyn StorageScheme) -> u64 {
        let charged = self.charged;
        charged + self.finish_at(scheme).bytes
    }

    /// Logs the mini-transaction as [`Self::finish`] does; returns where the record is.
    pub(crate) fn finish_at(self, scheme: &dyn StorageScheme) -> Recorded {
        self.record(&[], |page, after, payload, pages| {
            let record = NewRecord { page, after, ..Kind::System.record(payload) };
            scheme.change(None, Change { record, prefix: 0 }, pages)
        })
    }

    /// Releases the pages without logging the operations on them: only for the planted bug that
    /// does so.
    pub(crate) fn forget(mut self) {
        self.operations = 0;
    }

    /// Records the mini-transaction through `change`, with `prefix` before the operations in the
    /// payload, and releases the pages. `change` gets the first page, the GSN to come after, the
    /// payload, and all pages.
    pub(crate) fn record(
        mut self,
        prefix: &[u8],
        change: impl FnOnce(PageId, Gsn, &[u8], &mut [Exclusive<'p>]) -> Recorded,
    ) -> Recorded {
        let operations = std::mem::take(&mut self.payload);
        let payload = if prefix.is_empty() { operations } else { [prefix, &operations[..]].concat() };
        let first = self.pages.first().map_or(PageId::ZERO, Exclusive::id);
        let recorded = change(first, self.after, &payload, &mut self.pages);
        self.operations = 0;
        recorded
    }
}

impl Drop for MiniTransaction<'_> {
    fn drop(&mut self) {
        if self.operations > 0 {
            // Pages that differ from the log must never reach the disk.
            if let Some(page) = self.pages.first() {
                page.poison("a mini-transaction was not logged");
            }
            assert!(thread::panicking(), "a mini-transaction was dropped without being logged");
        }
    }
}
