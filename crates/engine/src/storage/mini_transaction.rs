//! Changes of pages that are atomic in the log: the pages are latched, changed, described by one
//! record, stamped with its GSN and unlatched.
//!
//! Whatever touches more than one page does so by a [`MiniTransaction`]: splits, merges,
//! allocations. It either is in the log whole or not at all, which makes it a system transaction
//! without any undo. An ordinary update of one leaf is done by
//! [`crate::txn_state::log::TxnLog::update`], which follows the same order.
//!
//! The order of steps keeps the write-ahead rule and the fuzzy checkpoint right:
//! [`Exclusive::prepare`] before the page is touched, so that a checkpoint that begins after the
//! record finds the page in the dirty page table; then the record; then the GSN on the page; then
//! the latch goes.

use duramen_sync::thread;
use duramen_types::{Gsn, PageId};
use duramen_wal::{Inserted, NewRecord};

use crate::page;
use crate::pool::Exclusive;
use crate::record::{Kind, PageOp, put_number};
use crate::scheme::StorageScheme;

/// Latched pages and the operations done on them so far.
pub(crate) struct MiniTransaction<'p> {
    pages: Vec<Exclusive<'p>>,
    /// The highest GSN that one of the pages had before. Operations that make a page anew forget
    /// it.
    after: Gsn,
    payload: Vec<u8>,
    operations: usize,
    /// Bytes of log that were taken for its sake before it.
    charged: u64,
}

impl<'p> MiniTransaction<'p> {
    /// One that changes nothing yet.
    pub(crate) fn new() -> Self {
        Self { pages: Vec::with_capacity(4), after: Gsn::ZERO, payload: Vec::new(), operations: 0, charged: 0 }
    }

    /// Takes a latched page in and returns the number by which the mini-transaction knows it.
    pub(crate) fn include(&mut self, page: Exclusive<'p>) -> usize {
        self.after = self.after.max(page.gsn());
        self.pages.push(page);
        self.pages.len() - 1
    }

    /// A page of the mini-transaction.
    pub(crate) fn page(&self, index: usize) -> &[u8] {
        &self.pages[index]
    }

    /// The number of a page of the mini-transaction.
    pub(crate) fn page_id(&self, index: usize) -> PageId {
        self.pages[index].id()
    }

    /// Changes a page. The caller has made sure that the operation fits.
    pub(crate) fn apply(&mut self, index: usize, op: PageOp<'_>) {
        let page = &mut self.pages[index];
        page.prepare();
        put_number(&mut self.payload, page.id().get());
        op.encode(&mut self.payload);
        op.apply(page).expect("the operation was checked against the page");
        self.operations += 1;
    }

    /// Has it come after a record that its pages do not tell of: it does not survive a crash
    /// without that one.
    pub(crate) fn come_after(&mut self, gsn: Gsn) {
        self.after = self.after.max(gsn);
    }

    /// Notes that something of so many bytes had to be logged before it, for its sake.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.charged += bytes;
    }

    /// Bytes of log that were taken for its sake before it.
    pub(crate) fn charged(&self) -> u64 {
        self.charged
    }

    /// Logs it as a system transaction and lets the pages go; returns the bytes of log that it
    /// took, with those that it is charged.
    pub(crate) fn finish(self, scheme: &dyn StorageScheme) -> u64 {
        let charged = self.charged;
        charged + self.finish_at(scheme).bytes()
    }

    /// As [`Self::finish`]; returns where the record is.
    pub(crate) fn finish_at(self, scheme: &dyn StorageScheme) -> Inserted {
        let prefix = Vec::new();
        self.log(prefix, |page, after, payload| {
            scheme.log(None, NewRecord { page, after, ..Kind::System.record(payload) })
        })
    }

    /// Lets the pages go without logging what was done to them: only for the planted bug that does
    /// so.
    pub(crate) fn forget(mut self) {
        self.operations = 0;
    }

    /// Logs it through `insert`, with `prefix` before the operations in the payload, and lets the
    /// pages go.
    pub(crate) fn log(mut self, mut prefix: Vec<u8>, insert: impl FnOnce(PageId, Gsn, &[u8]) -> Inserted) -> Inserted {
        let operations = std::mem::take(&mut self.payload);
        let payload = if prefix.is_empty() {
            operations
        } else {
            prefix.extend_from_slice(&operations);
            prefix
        };
        let first = self.pages.first().map_or(PageId::ZERO, Exclusive::id);
        let inserted = insert(first, self.after, &payload);
        self.operations = 0;
        for page in &mut self.pages {
            page::set_gsn(page, inserted.gsn);
        }
        inserted
    }
}

impl Drop for MiniTransaction<'_> {
    fn drop(&mut self) {
        if self.operations > 0 {
            // Pages that differ from what the log says must never reach the disk.
            if let Some(page) = self.pages.first() {
                page.poison("a mini-transaction was not logged");
            }
            assert!(thread::panicking(), "a mini-transaction was dropped without being logged");
        }
    }
}
