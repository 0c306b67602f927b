//! Analysis: it finds the transactions that the crash interrupted, and the pages that may lack
//! changes on disk.
//!
//! Analysis reads the checkpoint's tables first. It then reads the logs after the checkpoint once,
//! together with redo (`redo.rs`). Each log is read by itself, several logs at a time, and the
//! results are joined ([`Part`]). So nothing here may depend on the order in which records of
//! different logs are read; GSNs tell which record came last.

use std::collections::{HashMap, HashSet};

use duramen_sync::Arc;
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::{Log, RecordRef};

use super::malformed::{malformed, read_in_chain};
use crate::checkpoint::control::Control;
use crate::checkpoint::tables::{CheckpointEnd, decode_pages, decode_txns};
use crate::error::{Error, Result};
use crate::hash::BuildNumberHasher;
use crate::options::Partition;
use crate::page::bitmap;
use crate::record::{FLAG_HAS_DEFERRED_FREES, Kind};
use crate::txn_state::log::TXN_LIMIT;
use crate::txn_state::table::{TxnEntry, TxnState};

/// Pages that lack changes on disk according to a checkpoint, each with the GSN of its first
/// missing change.
pub(super) type DirtyPages = HashMap<PageId, Gsn, BuildNumberHasher>;

/// The state of transactions and pages: first at the checkpoint, then, after the logs have been
/// read, at their end.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Transactions that have not ended.
    pub(super) txns: HashMap<TxnId, TxnEntry, BuildNumberHasher>,
    /// Pages that may lack changes according to the checkpoint.
    pub(super) pages: DirtyPages,
    /// All transactions have lower numbers than this.
    pub(super) next_txn: TxnId,
    /// For each log, an address before which the checkpoint's transaction table lacks no effect of
    /// any record.
    pub(super) behind: Vec<Lsn>,
    /// With several logs, the boundary of the epoch that the checkpoint's begin record has ended:
    /// the table lacks no effect of records up to this GSN.
    begun: Gsn,
    /// Transactions in the checkpoint's table.
    known: Arc<HashSet<TxnId, BuildNumberHasher>>,
    /// Whether one transaction may have records in several logs.
    scattered: bool,
    /// All changed pages have lower numbers than this.
    pages_end: PageId,
}

impl Analysis {
    /// Reads the tables of the checkpoint that the control file names.
    pub(super) fn at_checkpoint(logs: &Log, control: Control) -> Result<Self> {
        let mut analysis = Self {
            txns: HashMap::default(),
            pages: HashMap::default(),
            next_txn: control.next_txn,
            behind: control.behind_checkpoint(),
            begun: Gsn::ZERO,
            known: Arc::default(),
            scattered: control.logs.count > 1 && control.logs.partition == Partition::Page,
            pages_end: PageId::ZERO,
        };
        analysis.read_tables(logs, control.checkpoint)?;
        analysis.known = Arc::new(analysis.txns.keys().copied().collect());
        Ok(analysis)
    }

    /// Returns an empty part, for records of any log after the checkpoint.
    pub(super) fn part(&self) -> Part {
        Part { begun: self.begun, known: Arc::clone(&self.known), scattered: self.scattered, ..Part::default() }
    }

    /// Reads the tables of the checkpoint: the state at its begin record.
    fn read_tables(&mut self, logs: &Log, begin: Lsn) -> Result<()> {
        let mut scanner = logs.scan(LogId::ZERO, begin);
        let mut first = true;
        while let Some(record) = scanner.next()? {
            let kind = kind_of(&record)?;
            if std::mem::take(&mut first) {
                if record.lsn != begin || kind != Kind::CheckpointBegin {
                    break;
                }
                self.begun = record.boundary().unwrap_or_default();
            }
            let malformed = |_| malformed(record.address());
            match kind {
                Kind::CheckpointTransactions => {
                    let (of, entries) = decode_txns(record.payload).map_err(malformed)?;
                    if of == begin {
                        self.txns.extend(entries.into_iter().map(|entry| (entry.txn, entry)));
                    }
                }
                Kind::CheckpointPages => {
                    let (of, entries) = decode_pages(record.payload).map_err(malformed)?;
                    if of == begin {
                        self.pages.extend(entries);
                    }
                }
                Kind::CheckpointEnd => {
                    let end = CheckpointEnd::decode(record.payload).map_err(malformed)?;
                    if end.begin == begin {
                        self.next_txn = self.next_txn.max(end.next_txn);
                        return Ok(());
                    }
                }
                _ => {}
            }
        }
        Err(Error::Corrupt {
            file: "log".into(),
            offset: begin.get(),
            page: None,
            reason: format!(
                "the log ends before the end of the checkpoint at {begin}, although the checkpoint was hardened"
            ),
        })
    }

    /// Applies the records of the logs after the checkpoint to the checkpoint's tables.
    pub(super) fn follow(&mut self, logs: &Log, parts: impl IntoIterator<Item = Part>) -> Result<()> {
        let all = parts.into_iter().reduce(Part::join).unwrap_or_default();
        self.next_txn = self.next_txn.max(all.next_txn);
        self.pages_end = self.pages.keys().map(|page| behind(*page)).fold(all.pages_end, PageId::max);
        let mut seen = all.txns;
        seen.retain(|txn, _| !all.over.contains(txn));
        self.txns.retain(|txn, _| !all.over.contains(txn));
        for (txn, seen) in seen {
            let known = self.txns.get(&txn).copied();
            // If the checkpoint's entry lacks its first record, the checkpoint was taken while that
            // record was inserted: it is the first record seen here.
            let first = known.map(|entry| entry.first).filter(|first| !first.is_zero()).unwrap_or(seen.first);
            let (state, last) = match (seen.committed, seen.active, known) {
                (Some((_, last)), ..) => (TxnState::Committed, last),
                (None, _, Some(entry)) if entry.state == TxnState::Committed => (entry.state, entry.last),
                (None, Some((gsn, _)), Some(entry)) if gsn < gsn_before(logs, &self.behind, entry.last)? => {
                    (entry.state, entry.last)
                }
                (None, Some((_, last)), _) => (TxnState::Active, last),
                (None, None, _) => unreachable!("a transaction has been seen by its records"),
            };
            self.txns.insert(txn, TxnEntry { txn, state, first, last });
        }
        Ok(())
    }

    /// Returns how many groups of pages are in use according to the logs: a page that has changed
    /// was allocated before.
    pub(super) fn groups(&self) -> u64 {
        self.pages_end.get().checked_sub(1).map_or(0, |last| bitmap::locate(PageId::new(last)).0 + 1)
    }
}

fn behind(page: PageId) -> PageId {
    PageId::new(page.get().saturating_add(1))
}

/// Returns the GSN of a transaction's last record according to a checkpoint, if that record lies
/// before the address from which analysis reads its log. Otherwise returns zero, because analysis
/// has read the record.
///
/// The checkpoint read the ends of the logs one after the other. So a transaction with records in
/// several logs may have one record after that address in one log, and a later record before the
/// address in another log.
fn gsn_before(logs: &Log, from: &[Lsn], last: LogAddress) -> Result<Gsn> {
    let start = from.get(usize::from(last.log().get())).ok_or_else(|| malformed(last))?;
    if from.len() == 1 || last.lsn() >= *start {
        return Ok(Gsn::ZERO);
    }
    Ok(read_in_chain(last, logs.read_back().read(last))?.gsn)
}

/// The contents of some logs' records that the checkpoint's tables lack.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// See [`Analysis::begun`].
    begun: Gsn,
    /// Transactions in the checkpoint's table.
    known: Arc<HashSet<TxnId, BuildNumberHasher>>,
    /// Whether one transaction may have records in several logs.
    scattered: bool,
    /// Transactions that have not ended according to these logs.
    txns: HashMap<TxnId, Seen, BuildNumberHasher>,
    /// Transactions that have ended, and that another log or the checkpoint may know. No record of
    /// such a transaction follows the record that ends it.
    over: HashSet<TxnId, BuildNumberHasher>,
    /// All changed pages have lower numbers than this.
    pages_end: PageId,
    /// All transactions have lower numbers than this.
    next_txn: TxnId,
}

/// The records of one transaction.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The first record.
    first: Gsn,
    /// The last record that shows the transaction as active. A committed transaction logs its
    /// remaining deferred frees again; those count once its commit record has been logged again
    /// too.
    active: Option<(Gsn, LogAddress)>,
    /// The last commit record with deferred frees.
    committed: Option<(Gsn, LogAddress)>,
}

impl Seen {
    fn join(self, other: Self) -> Self {
        Self {
            first: self.first.min(other.first),
            active: self.active.max(other.active),
            committed: self.committed.max(other.committed),
        }
    }
}

impl Part {
    /// Returns whether the checkpoint's tables lack no effect of this record, which lies behind the
    /// address from which analysis reads its log.
    pub(super) fn is_known(&self, record: &RecordRef<'_>) -> bool {
        record.gsn <= self.begun
    }

    /// Applies one record, except for its pages.
    pub(super) fn follow(&mut self, kind: Kind, record: &RecordRef<'_>) -> Result<()> {
        if record.txn >= TXN_LIMIT {
            return Err(malformed(record.address()));
        }
        if !record.txn.is_zero() {
            self.next_txn = self.next_txn.max(TxnId::new(record.txn.get() + 1));
        }
        let this = Some((record.gsn, record.address()));
        let seen = Seen { first: record.gsn, active: None, committed: None };
        match kind {
            Kind::Update | Kind::Compensation | Kind::FreeOnCommit => {
                self.advance(record, Seen { active: this, ..seen })
            }
            Kind::Commit if record.flags & FLAG_HAS_DEFERRED_FREES != 0 => {
                self.advance(record, Seen { committed: this, ..seen })
            }
            Kind::Commit | Kind::End => {
                self.txns.remove(&record.txn);
                if self.scattered || self.known.contains(&record.txn) {
                    self.over.insert(record.txn);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Records that a page changes.
    pub(super) fn meet(&mut self, page: PageId) {
        self.pages_end = self.pages_end.max(behind(page));
    }

    fn advance(&mut self, record: &RecordRef<'_>, seen: Seen) {
        self.txns.entry(record.txn).and_modify(|known| *known = known.join(seen)).or_insert(seen);
    }

    /// Forgets transactions that have ended. Must be called when all logs have been read up to the
    /// same GSN: then every record of these transactions has been read, whatever its log. So memory
    /// is bounded by the number of concurrent transactions, not by the number of transactions in
    /// the logs.
    pub(super) fn forget_over(mut parts: Vec<&mut Self>) {
        let over: Vec<TxnId> = parts.iter().flat_map(|part| part.over.iter().copied()).collect();
        for part in &mut parts {
            for txn in &over {
                part.txns.remove(txn);
            }
            let known = &part.known;
            part.over.retain(|txn| known.contains(txn));
        }
    }

    /// Joins two parts.
    fn join(mut self, other: Self) -> Self {
        self.pages_end = self.pages_end.max(other.pages_end);
        for (txn, seen) in other.txns {
            self.txns.entry(txn).and_modify(|known| *known = known.join(seen)).or_insert(seen);
        }
        self.over.extend(other.over);
        self.next_txn = self.next_txn.max(other.next_txn);
        self
    }
}

/// Returns the kind of a record. An unknown number means damage (or a record of another version).
pub(super) fn kind_of(record: &RecordRef<'_>) -> Result<Kind> {
    Kind::from_u8(record.kind).ok_or_else(|| malformed(record.address()))
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
