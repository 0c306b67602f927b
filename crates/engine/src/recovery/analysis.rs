//! The first pass: what the crash interrupted.
//!
//! Each log is read by itself, several at a time, and then what they say is put together ([`Part`]). So nothing here may
//! depend on in which order records of different logs are met; GSNs say what came last.

use std::collections::{HashMap, HashSet};

use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::{Arc, crew};
use duramen_types::{Gsn, LogId, Lsn, PageId, Place, TxnId};
use duramen_wal::{Logs, RecordRef};

use super::{malformed, read_in_chain};
use crate::active::{TxnEntry, TxnState};
use crate::bitmap;
use crate::checkpoint::{CheckpointEnd, decode_pages, decode_txns};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::metrics::RecoveryReport;
use crate::mix::BuildNumberHasher;
use crate::options::Partition;
use crate::record::{FLAG_HAS_GARBAGE, Kind, PageOps};
use crate::txn_log::TXN_LIMIT;

/// Pages that may lack changes on disk, and from which GSN on.
pub(super) type DirtyPages = HashMap<PageId, Gsn, BuildNumberHasher>;

/// The state of transactions and pages at the end of the logs.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Transactions that are not over.
    pub(super) txns: HashMap<TxnId, TxnEntry, BuildNumberHasher>,
    /// Pages that may lack changes.
    pub(super) pages: DirtyPages,
    /// No transaction in the logs has this number or a higher one.
    pub(super) next_txn: TxnId,
}

impl Analysis {
    /// Reads the logs from the checkpoint that the control file names.
    pub(super) fn of_logs(
        logs: &Arc<Logs>,
        control: Control,
        threads: Option<usize>,
        report: &mut RecoveryReport,
    ) -> Result<Self> {
        let mut analysis = Self::at_checkpoint(logs, control)?;
        let from = control.behind_checkpoint();
        // Those of which something is known before the logs are read.
        let known = Arc::new(analysis.txns.keys().copied().collect());
        let scattered = control.logs.count > 1 && control.logs.partition == Partition::Page;
        let part = Part { known, scattered, ..Part::default() };
        let parts = read_all(logs, &from, &part, threads, report)?;
        analysis.follow(logs, &from, parts)?;
        Ok(analysis)
    }

    /// The tables of the checkpoint: the state from which the records behind its begin record lead on.
    fn at_checkpoint(logs: &Logs, control: Control) -> Result<Self> {
        let begin = control.checkpoint;
        let mut analysis = Self { txns: HashMap::default(), pages: HashMap::default(), next_txn: control.next_txn };
        let mut scanner = logs.scan_one(LogId::ZERO, begin);
        let mut first = true;
        while let Some(record) = scanner.next()? {
            let kind = kind_of(&record)?;
            if std::mem::take(&mut first) && (record.lsn != begin || kind != Kind::CheckpointBegin) {
                break;
            }
            let malformed = |_| malformed(record.place());
            match kind {
                Kind::CheckpointTransactions => {
                    let (of, entries) = decode_txns(record.payload).map_err(malformed)?;
                    if of == begin {
                        analysis.txns.extend(entries.into_iter().map(|entry| (entry.txn, entry)));
                    }
                }
                Kind::CheckpointPages => {
                    let (of, entries) = decode_pages(record.payload).map_err(malformed)?;
                    if of == begin {
                        analysis.pages.extend(entries);
                    }
                }
                Kind::CheckpointEnd => {
                    let end = CheckpointEnd::decode(record.payload).map_err(malformed)?;
                    if end.begin == begin {
                        analysis.next_txn = analysis.next_txn.max(end.next_txn);
                        return Ok(analysis);
                    }
                }
                _ => {}
            }
        }
        Err(Error::Corrupt {
            file: "log".into(),
            offset: begin.get(),
            page: None,
            reason: format!("the log ends before the checkpoint at {begin} is complete, though it was hardened"),
        })
    }

    /// Goes on from the tables of the checkpoint with what the logs have behind it, from these positions on.
    fn follow(&mut self, logs: &Logs, from: &[Lsn], parts: Vec<Part>) -> Result<()> {
        let mut all = parts.into_iter().reduce(Part::join).unwrap_or_default();
        self.next_txn = self.next_txn.max(all.next_txn);
        // What the checkpoint says of a page counts: it may have been written since its first change behind the checkpoint.
        all.pages.extend(self.pages.drain());
        self.pages = all.pages;
        let mut seen = all.txns;
        seen.retain(|txn, _| !all.over.contains(txn));
        self.txns.retain(|txn, _| !all.over.contains(txn));
        for (txn, seen) in seen {
            let known = self.txns.get(&txn).copied();
            // A checkpoint that has an entry without its first record was taken while that was inserted: it is this one.
            let first = known.map(|entry| entry.first).filter(|first| !first.is_zero()).unwrap_or(seen.first);
            let (state, last) = match (seen.committed, seen.active, known) {
                (Some((_, last)), ..) => (TxnState::Committed, last),
                (None, _, Some(entry)) if entry.state == TxnState::Committed => (entry.state, entry.last),
                (None, Some((gsn, _)), Some(entry)) if gsn < gsn_before(logs, from, entry.last)? => {
                    (entry.state, entry.last)
                }
                (None, Some((_, last)), _) => (TxnState::Active, last),
                (None, None, _) => unreachable!("a transaction has been seen by its records"),
            };
            self.txns.insert(txn, TxnEntry { txn, state, first, last });
        }
        Ok(())
    }

    /// How many groups of pages the log shows to be in use: a page that has changed was allocated before.
    pub(super) fn groups(&self) -> u64 {
        self.pages.keys().map(|&page| bitmap::locate(page).0 + 1).max().unwrap_or(0)
    }
}

/// GSN of a transaction's last record as a checkpoint knows it, if that lies before the place from which analysis reads the
/// log that has it; else zero, for then analysis has come to it.
///
/// Where it reads from was looked at in one log after the other. So a transaction with records in several logs may have one
/// behind that place in a log, and a later one before it in another.
fn gsn_before(logs: &Logs, from: &[Lsn], last: Place) -> Result<Gsn> {
    let start = from.get(usize::from(last.log().get())).ok_or_else(|| malformed(last))?;
    if from.len() == 1 || last.lsn() >= *start { Ok(Gsn::ZERO) } else { Ok(read_in_chain(logs, last)?.gsn) }
}

/// What the records of some logs say.
#[derive(Clone, Debug, Default)]
struct Part {
    /// Transactions that the checkpoint knows.
    known: Arc<HashSet<TxnId, BuildNumberHasher>>,
    /// Whether one transaction may have records in several logs.
    scattered: bool,
    /// Transactions that are not over, as far as these logs tell.
    txns: HashMap<TxnId, Seen, BuildNumberHasher>,
    /// Those that are, of which another log or the checkpoint may know. Nothing follows the record that says so.
    over: HashSet<TxnId, BuildNumberHasher>,
    /// The first change of each page.
    pages: DirtyPages,
    /// All numbers of transactions are below.
    next_txn: TxnId,
}

/// What records say of one transaction.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The first record.
    first: Gsn,
    /// The last one by which it is active. One that has committed promises again what it still has to give back; that
    /// counts once its commit record has been repeated, too.
    active: Option<(Gsn, Place)>,
    /// The last commit record that promises something.
    committed: Option<(Gsn, Place)>,
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
    /// Takes note of one record.
    fn follow(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let kind = kind_of(record)?;
        if record.txn >= TXN_LIMIT {
            return Err(malformed(record.place()));
        }
        if !record.txn.is_zero() {
            self.next_txn = self.next_txn.max(TxnId::new(record.txn.get() + 1));
        }
        let this = Some((record.gsn, record.place()));
        let seen = Seen { first: record.gsn, active: None, committed: None };
        match kind {
            Kind::Update | Kind::Compensation | Kind::FreeOnCommit => {
                self.advance(record, Seen { active: this, ..seen })
            }
            Kind::Commit if record.flags & FLAG_HAS_GARBAGE != 0 => {
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
        let ops =
            PageOps::of(kind, record.flags, record.page, record.payload).map_err(|_| malformed(record.place()))?;
        for op in ops {
            let (page, _) = op.map_err(|_| malformed(record.place()))?;
            self.pages.entry(page).or_insert(record.gsn);
        }
        Ok(())
    }

    fn advance(&mut self, record: &RecordRef<'_>, seen: Seen) {
        self.txns.entry(record.txn).and_modify(|known| *known = known.join(seen)).or_insert(seen);
    }

    /// What both say together.
    fn join(mut self, mut other: Self) -> Self {
        if self.pages.len() < other.pages.len() {
            std::mem::swap(&mut self, &mut other);
        }
        for (page, gsn) in other.pages {
            self.pages.entry(page).and_modify(|first| *first = gsn.min(*first)).or_insert(gsn);
        }
        for (txn, seen) in other.txns {
            self.txns.entry(txn).and_modify(|known| *known = known.join(seen)).or_insert(seen);
        }
        self.over.extend(other.over);
        self.next_txn = self.next_txn.max(other.next_txn);
        self
    }
}

/// Reads the logs from these positions on, each by one thread.
fn read_all(
    logs: &Arc<Logs>,
    from: &[Lsn],
    part: &Part,
    threads: Option<usize>,
    report: &mut RecoveryReport,
) -> Result<Vec<Part>> {
    let bytes = logs.extents().iter().zip(from).map(|(extent, from)| extent.1.get().saturating_sub(from.get())).sum();
    let threads = crew::size_for(threads, bytes).min(from.len());
    report.analysis_bytes = bytes;
    let (next, from) = (AtomicUsize::new(0), from.to_vec());
    let (logs, empty) = (Arc::clone(logs), part.clone());
    let read = move || {
        let mut parts = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&from) = from.get(number) else { return Ok(parts) };
            let mut part = empty.clone();
            let mut scanner = logs.scan_one(LogId::new(number as u16), from);
            while let Some(record) = scanner.next()? {
                part.follow(&record)?;
            }
            parts.push(part);
        }
    };
    let parts = crew::run(threads, "duramen-analysis", read).into_iter().collect::<Result<Vec<_>>>()?;
    Ok(parts.into_iter().flatten().collect())
}

/// The kind of a record; a number that means nothing is damage (or the work of another version).
pub(super) fn kind_of(record: &RecordRef<'_>) -> Result<Kind> {
    Kind::from_u8(record.kind).ok_or_else(|| malformed(record.place()))
}

#[cfg(all(test, not(loom)))]
mod tests;
