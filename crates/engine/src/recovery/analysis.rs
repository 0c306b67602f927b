//! The first pass: what the crash interrupted.

use std::collections::HashMap;

use duramen_types::{Gsn, LogId, PageId, TxnId};
use duramen_wal::{Logs, RecordRef};

use super::malformed;
use crate::active::{TxnEntry, TxnState};
use crate::bitmap;
use crate::checkpoint::{CheckpointEnd, decode_pages, decode_txns};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::mix::BuildNumberHasher;
use crate::record::{FLAG_HAS_GARBAGE, Kind, PageOps};
use crate::txn_log::TXN_LIMIT;

/// The state of transactions and pages at the end of the log.
#[derive(Debug)]
pub(super) struct Analysis {
    /// Transactions that are not over.
    pub(super) txns: HashMap<TxnId, TxnEntry, BuildNumberHasher>,
    /// Pages that may lack changes on disk, and from which GSN on.
    pub(super) pages: HashMap<PageId, Gsn, BuildNumberHasher>,
    /// No transaction in the log has this number or a higher one.
    pub(super) next_txn: TxnId,
}

impl Analysis {
    /// Reads the log from the checkpoint that the control file names.
    pub(super) fn of_logs(logs: &Logs, control: Control) -> Result<Self> {
        let mut analysis = Self::at_checkpoint(logs, control)?;
        let mut scanner = logs.scan(&control.behind_checkpoint());
        while let Some(record) = scanner.next()? {
            analysis.follow(&record)?;
        }
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

    /// Takes note of one record.
    fn follow(&mut self, record: &RecordRef<'_>) -> Result<()> {
        let kind = kind_of(record)?;
        if record.txn >= TXN_LIMIT {
            return Err(malformed(record.place()));
        }
        if !record.txn.is_zero() {
            self.next_txn = self.next_txn.max(TxnId::new(record.txn.get() + 1));
        }
        match kind {
            // A committed transaction repeats its promises; they count once its commit record has been repeated, too.
            Kind::FreeOnCommit if self.is_committed(record.txn) => {}
            Kind::Update | Kind::Compensation | Kind::FreeOnCommit => self.advance(record, TxnState::Active),
            Kind::Commit if record.flags & FLAG_HAS_GARBAGE != 0 => self.advance(record, TxnState::Committed),
            Kind::Commit | Kind::End => {
                self.txns.remove(&record.txn);
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

    fn is_committed(&self, txn: TxnId) -> bool {
        self.txns.get(&txn).is_some_and(|entry| entry.state == TxnState::Committed)
    }

    fn advance(&mut self, record: &RecordRef<'_>, state: TxnState) {
        // A checkpoint that has an entry without its first record was taken while that was inserted: it is this one.
        let known = self.txns.get(&record.txn).map(|entry| entry.first).filter(|first| !first.is_zero());
        let first = known.unwrap_or(record.gsn);
        self.txns.insert(record.txn, TxnEntry { txn: record.txn, state, first, last: record.place() });
    }

    /// How many groups of pages the log shows to be in use: a page that has changed was allocated before.
    pub(super) fn groups(&self) -> u64 {
        self.pages.keys().map(|&page| bitmap::locate(page).0 + 1).max().unwrap_or(0)
    }

    /// Where redo begins, if there is anything to redo.
    pub(super) fn redo_start(&self) -> Option<Gsn> {
        self.pages.values().min().copied()
    }
}

/// The kind of a record; a number that means nothing is damage (or the work of another version).
pub(super) fn kind_of(record: &RecordRef<'_>) -> Result<Kind> {
    Kind::from_u8(record.kind).ok_or_else(|| malformed(record.place()))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use duramen_io::SimDisk;
    use duramen_sync::Arc;
    use duramen_types::Place;
    use duramen_wal::{NewRecord, WalOptions};

    #[test]
    fn the_first_record_is_known_from_the_checkpoint_or_from_the_log() {
        let options = WalOptions { ring_bytes: 1 << 16, segment_bytes: 1 << 16, ..WalOptions::default() };
        let disk: Arc<dyn duramen_io::Disk> = Arc::new(SimDisk::new(1));
        let logs = Logs::create(&disk, &options, 1, [1; 16]).unwrap();
        let [unknown, known, new] = [5, 6, 7].map(TxnId::new);
        for txn in [unknown, known, new, unknown, known, new] {
            let garbage = Kind::FreeOnCommit.record(&[]);
            logs.insert(LogId::ZERO, NewRecord { txn, ..garbage });
        }
        logs.wait_hardened(Gsn::new(logs.latest().get() - 1), None).unwrap();
        let (earlier, last) = (Gsn::new(100), Place::new(5000));
        let entry = |txn, first| (txn, TxnEntry { txn, state: TxnState::Active, first, last });
        let txns = HashMap::from_iter([entry(unknown, Gsn::ZERO), entry(known, earlier)]);
        let mut analysis = Analysis { txns, pages: HashMap::default(), next_txn: TxnId::new(1) };
        let mut scanner = logs.scan(&[logs.extents()[0].0]);
        let mut found = Vec::new();
        while let Some(record) = scanner.next().unwrap() {
            analysis.follow(&record).unwrap();
            found.push((record.gsn, record.place()));
        }
        let entries = [unknown, known, new].map(|txn| (analysis.txns[&txn].first, analysis.txns[&txn].last));
        assert_eq!(entries, [(found[0].0, found[3].1), (earlier, found[4].1), (found[2].0, found[5].1)]);
    }
}
