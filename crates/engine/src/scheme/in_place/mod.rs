//! In-place updates of a heap in persistent memory: a change is durable in its page before the
//! page's latch is released (Pelley et al., *Storage Management in the NVRAM Era*, PVLDB 7(2),
//! 2013, section 3.2).
//!
//! There is no redo log, no checkpoint, and nothing to write back: frames of the pool are copies of
//! pages of the heap. Each transaction has a journal ([`journal`]), from which recovery takes its
//! changes back.
//!
//! With the fewest barriers ([`Barriers::Fewest`]):
//!
//! | step | stores | barrier |
//! |---|---|---|
//! | change, under the latches of its pages | the record, with undo and new lines; the head word, if it is the first | 1 |
//! | | the lines to the pages in the heap | 2 |
//! | deferred free of pages | the record | 1 |
//! | commit | the head word: free, or committed with frees to do | 1 |
//! | rollback | each inverse is a change; then the head word: free | 2 each, and 1 |
//!
//! With those of the paper ([`Barriers::Paper`]):
//!
//! | step | stores | barrier |
//! |---|---|---|
//! | change, under the latches of its pages | the undo entry without its seal; the head word, if it is the first | 1 |
//! | | the seal of the entry | 2 |
//! | | the old lines of the pages to a page log ([`page_log`]) | 3 |
//! | | the head word of the page log: valid | 4 |
//! | | the new lines to the pages in the heap | 5 |
//! | | the head word of the page log: free | 6 |
//! | change that no transaction owns | as above without an undo entry, because it is never undone | 4 |
//! | deferred free of pages | the record without its seal; the seal | 2 |
//! | commit | the head word: free, or committed with frees to do | 1 |
//! | rollback | each inverse is a change, whose entry is a compensation; then the head word: free | 6 each, and 1 |
//!
//! The GSN of a change is one more than the highest among its pages and the transaction's earlier
//! records. There is no global order, and no counter that all threads share.
//!
//! # Why recovery is right
//! Recovery need not know which barriers there were, because records and head words tell. It begins
//! with what only the barriers of the paper leave:
//!
//! 1. It stores the lines of valid page logs back to their pages, and issues a barrier. Each page
//!    in the heap is then as it was before a change or after it.
//! 2. It erases the seals of the undo entries without a change: the pages that they name have lower
//!    GSNs in the heap than they have. It invalidates the page logs, and issues a barrier.
//!
//! - Only the latest entry of a journal can lack its change. Its thread still held the latches, so
//!   no later change can have raised the GSN of a page. Of several pages, the page log keeps all at
//!   their old GSNs or none.
//! - The entries must be erased before anything is rolled back. A rollback raises the GSN of a page
//!   beyond that of an entry without a change, and after another crash the entry would count.
//! - Until the barrier of step 2, a crash repeats both steps with the same outcome: nothing but the
//!   lines of page logs has been stored to pages.
//! - The entry before an erased one is intact. That holds for compensations as well, because they
//!   use two slots in turn.
//!
//! The rest is for the fewest barriers; records without lines change nothing there. Recovery takes
//! the latest record of each journal in use, sorts these records by GSN, and stores the lines of
//! each to those of its pages whose GSN in the heap is not higher. Then it rolls back the
//! transactions that had not committed.
//!
//! - Only the latest record of a journal can lack its second barrier, because a thread records the
//!   next change after it.
//! - If a page in the heap has a higher GSN than a record that changed it, then a later holder of
//!   the latch has stored to the page, so the record's change was complete.
//! - Otherwise no later change of this page was complete. A later one that had begun is among the
//!   records, and is repeated after this one.
//! - Repeating has no effect on a complete change, so recovery may crash and start over.
//! - A record becomes durable before any of its lines is stored to a page. A record that is torn
//!   changed nothing.

mod inspection;
mod journal;
mod page_log;
mod record;
mod recovery;

pub(crate) use inspection::{JournalInUse, PageLogInUse, journals_in_use, page_logs_in_use, system_journals};
pub(crate) use journal::JournalState;
pub(crate) use record::Record as JournalRecord;
pub(crate) use recovery::Found;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, Striped};
use duramen_types::{Gsn, LogAddress, TxnId, planted};
use duramen_wal::NewRecord;

use super::{Change, Hardening, Home, LogService, Recorded, StorageScheme};
use crate::error::Result;
use crate::heap::{Heap, LINE, State, Word};
use crate::metrics::HeapMetrics;
use crate::options::Barriers;
use crate::page;
use crate::pool::Exclusive;
use crate::record::{FLAG_HAS_DEFERRED_FREES, Kind, undo_next};
use journal::Journals;
use page_log::PageLog;
use record::Fields;

/// How many transaction ids become available with one barrier.
const TXN_STEP: u64 = 65_536;

/// In-place updates.
#[derive(Debug)]
pub(crate) struct InPlace {
    heap: Arc<Heap>,
    journals: Journals,
    barriers: Barriers,
    /// Homes of the transactions that recovery resumes.
    resumed: Vec<(TxnId, Home)>,
    /// Held by the thread that makes transaction ids available.
    ids: Mutex<u64>,
    changes: Striped<AtomicU64, 32>,
}

impl InPlace {
    /// Creates the scheme over an open heap and what was found in it.
    pub(crate) fn new(heap: Arc<Heap>, found: &Found, barriers: Barriers) -> Result<Self> {
        let journals = Journals::new(&heap, &found.interrupted, barriers)?;
        let resumed = found.interrupted.iter().map(|journal| (journal.txn, Home(journal.first))).collect();
        let ids = Mutex::new(heap.get(Word::NextTxn));
        Ok(Self { heap, journals, barriers, resumed, ids, changes: Striped::default() })
    }

    /// Stores the changed lines of the pages to the heap under a page log of their old lines, so
    /// that a crash leaves all of them or none.
    fn persist_page(&self, fields: Fields<'_>, pages: &[Exclusive<'_>]) {
        let log = PageLog::of_old_lines(&self.journals, &self.heap, fields, pages);
        if !planted!(PageLogUnfenced) {
            self.heap.barrier();
        }
        log.mark_valid();
        self.heap.barrier();
        if !planted!(HomeBeforeJournal) {
            self.update_heap(pages);
        }
        log.mark_invalid();
        self.heap.barrier();
    }

    /// Stores the changed lines of the pages to the heap, durably.
    fn update_heap(&self, pages: &[Exclusive<'_>]) {
        for page in pages {
            for run in page.lines().runs() {
                let bytes = run.start * LINE as usize..run.end * LINE as usize;
                self.heap.store_page(page.id(), bytes.start, &page[bytes]);
            }
        }
        if !planted!(HomeUnfenced) {
            self.heap.barrier();
        }
    }
}

impl StorageScheme for InPlace {
    fn home(&self, _txn: TxnId) -> Home {
        self.journals.begin(&self.heap)
    }

    fn home_of(&self, txn: TxnId, _last: LogAddress) -> Home {
        let resumed = self.resumed.iter().find(|(resumed, _)| *resumed == txn);
        resumed.expect("recovery resumes only transactions whose journals it has found").1
    }

    fn change(&self, home: Option<Home>, change: Change<'_>, pages: &mut [Exclusive<'_>]) -> Recorded {
        let record = change.record;
        let undo = &record.payload[..change.prefix];
        let mut journal = home.map(|home| self.journals.of(&self.heap, home));
        let is_paper = self.barriers == Barriers::Paper;
        let latest = journal.as_ref().map_or(Gsn::ZERO, journal::Leased::gsn);
        let before = pages.iter().map(Exclusive::gsn).fold(latest.max(record.after), Gsn::max);
        let gsn = Gsn::new(before.get() + 1);
        for page in &mut *pages {
            page::set_gsn(&mut page.page_mut(), gsn);
        }
        if planted!(HomeBeforeJournal) {
            self.update_heap(pages);
        }
        let (kind, flags, txn) = (record.kind, record.flags, record.txn);
        let fields = Fields { gsn, txn, undo_next: LogAddress::ZERO, kind, flags, undo };
        let mut recorded = Recorded { gsn, address: LogAddress::ZERO, bytes: 0 };
        let mut system = None;
        match &mut journal {
            // There is nothing to undo, and the page log alone makes the change atomic.
            None if is_paper => {}
            None => system = Some(self.journals.system(&self.heap, fields, pages)),
            Some(journal) if kind == Kind::Compensation as u8 => {
                let undo_next = undo_next(undo).expect("it was just encoded");
                journal.compensate(Fields { undo_next, ..fields }, pages);
                recorded.address = undo_next;
            }
            Some(journal) => (recorded.address, recorded.bytes) = journal.append(fields, pages),
        }
        if journal.is_some() || system.is_some() {
            self.heap.barrier();
        }
        if !pages.is_empty() {
            if is_paper {
                self.persist_page(fields, pages);
            } else if !planted!(HomeBeforeJournal) {
                self.update_heap(pages);
            }
        }
        drop(system);
        self.changes.own().1.fetch_add(1, Ordering::Relaxed);
        recorded
    }

    fn note(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let mut journal = self.journals.of(&self.heap, home);
        let gsn = Gsn::new(record.after.max(journal.gsn()).get() + 1);
        let (kind, flags, txn) = (record.kind, record.flags, record.txn);
        let fields = Fields { gsn, txn, undo_next: LogAddress::ZERO, kind, flags, undo: record.payload };
        let (address, bytes) = journal.append(fields, &[]);
        self.heap.barrier();
        Recorded { gsn, address, bytes }
    }

    fn end_txn(&self, home: Home, record: NewRecord<'_>) -> Recorded {
        let has_frees = record.kind == Kind::Commit as u8 && record.flags & FLAG_HAS_DEFERRED_FREES != 0;
        let state = if has_frees { JournalState::Committed } else { JournalState::Free };
        self.journals.set_state(&self.heap, home, state);
        if !planted!(FreedUnfenced) {
            self.heap.barrier();
        }
        let bytes = if has_frees { self.journals.take_rest(&self.heap, home) } else { 0 };
        if !has_frees {
            self.journals.release(home);
        }
        Recorded { gsn: Gsn::new(record.after.get() + 1), address: record.prev, bytes }
    }

    fn harden(&self, _gsn: Gsn, _own: Option<LogAddress>) -> Result<()> {
        Ok(())
    }

    fn request_hardening(&self, _gsn: Gsn) -> Option<Hardening> {
        None
    }

    fn before_blocking(&self) {}

    /// A commit is durable when its head word is, before any lock is released.
    fn is_hardened(&self, _gsn: Gsn) -> bool {
        true
    }

    fn hardened_commits(&self) -> Option<Gsn> {
        None
    }

    fn latest(&self) -> Gsn {
        Gsn::ZERO
    }

    fn space_for_operation(&self, _payload: u64) -> u64 {
        Journals::operation_bytes()
    }

    /// Compensations do not lengthen a journal.
    fn space_for_undo(&self, _payload: usize, _inverse: usize) -> u64 {
        0
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        self.journals.reserve(&self.heap, bytes)
    }

    /// The end of a transaction is one word.
    fn reserve_end(&self) -> Result<u64> {
        Ok(0)
    }

    /// A journal gives back at its end what its records have taken.
    fn unreserve(&self, _bytes: u64) {}

    fn unreserve_unused(&self, bytes: u64) {
        self.journals.unreserve(bytes);
    }

    /// Changes that no transaction owns have journals of their own.
    fn reserve_system(&self, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn note_txn_limit(&self, limit: TxnId) {
        let mut available = self.ids.lock();
        if limit.get() > *available {
            *available = limit.get().next_multiple_of(TXN_STEP);
            self.heap.set(Word::NextTxn, *available);
        }
    }

    fn note_groups(&self, groups: u64) {
        self.heap.set(Word::Groups, groups);
    }

    fn log(&self) -> Option<&dyn LogService> {
        None
    }

    fn heap(&self) -> Option<HeapMetrics> {
        let (journal_bytes, journal_bytes_free) = self.journals.bytes();
        Some(HeapMetrics {
            changes: self.changes.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            barriers: self.heap.barriers(),
            pages: self.heap.layout.pages,
            journal_bytes,
            journal_bytes_free,
            ..HeapMetrics::default()
        })
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn close(&self) -> Result<()> {
        self.heap.set(Word::State, State::Clean as u64);
        Ok(())
    }
}
