//! Recovery of a database with PCMLogging. The scan of the region has discarded the changes of
//! transactions that had not committed; the undo pass finishes what it has left, if anything:
//! values that did not fit back into their pages, and deferred frees.

use duramen_sync::Arc;
use duramen_sync::clock::Instant;
use duramen_types::{Gsn, LogAddress, TxnId};

use super::host::RecoveryHost;
use super::malformed::Medium;
use super::micros;
use super::prev_chain::{ReadRecords, Resumable};
use super::undo::finish_transactions;
use crate::error::Result;
use crate::metrics::RecoveryReport;
use crate::pcm::{Content, Cover, Loser, Winner};
use crate::record::{Kind, Undo};
use crate::txn_state::log::PastRecord;
use crate::txn_state::table::{TxnEntry, TxnState};

/// The transactions that the scan has left, with what is known about the database.
#[derive(Debug)]
pub(crate) struct LeftByScan {
    pub(crate) location: String,
    pub(crate) losers: Vec<(TxnId, Loser)>,
    pub(crate) winners: Vec<(TxnId, Winner)>,
    pub(crate) next_txn: TxnId,
    pub(crate) groups: u64,
}

/// Finishes the transactions that the scan has left. No other thread uses the database meanwhile.
pub(crate) fn recover_pcm(
    host: &Arc<dyn RecoveryHost>,
    left: &LeftByScan,
    mut report: RecoveryReport,
) -> Result<RecoveryReport> {
    let parts = host.undo_parts();
    parts.contexts.set_next_txn(left.next_txn);
    parts.store.space.resume(left.groups);
    let (started, discarded) = (Instant::now(), report.losers);
    finish_transactions(host, Arc::new(Resumed::of(left)), &mut report)?;
    report.losers = report.losers.max(discarded);
    report.undo_micros = micros(started);
    Ok(report)
}

/// These transactions, with records made for them. The address of a record is its number.
struct Resumed {
    location: String,
    entries: Vec<TxnEntry>,
    records: Vec<(LogAddress, Kind, Vec<u8>)>,
}

impl Resumed {
    fn of(left: &LeftByScan) -> Self {
        let mut resumed = Self { location: left.location.clone(), entries: Vec::new(), records: Vec::new() };
        for (txn, loser) in &left.losers {
            let undo = loser.changes.iter().filter_map(|change| {
                let Cover::Key { tree, key, before: Content::Value { flags, bytes }, .. } = &change.cover else {
                    return None;
                };
                let remove = u16::try_from(change.len).expect("a value is shorter than a page");
                let mut payload = Vec::new();
                Undo::Change { tree: *tree, key, at: 0, remove, add: bytes, flags: *flags }.encode(&mut payload);
                Some((Kind::Update, payload))
            });
            resumed.add(*txn, TxnState::Active, undo);
        }
        for (txn, winner) in &left.winners {
            let frees = winner.frees.iter().map(|free| (Kind::FreeOnCommit, free.clone()));
            resumed.add(*txn, TxnState::Committed, frees);
        }
        resumed
    }

    fn add(&mut self, txn: TxnId, state: TxnState, records: impl Iterator<Item = (Kind, Vec<u8>)>) {
        let mut last = LogAddress::ZERO;
        let first = Gsn::new(self.records.len() as u64 + 1);
        for (kind, payload) in records {
            self.records.push((last, kind, payload));
            last = LogAddress::new(self.records.len() as u64);
        }
        self.entries.push(TxnEntry { txn, state, first, last });
    }
}

impl Resumable for Resumed {
    fn entries(&self) -> Vec<TxnEntry> {
        self.entries.clone()
    }

    fn reader(&self) -> Box<dyn ReadRecords + '_> {
        Box::new(Reader(self))
    }
}

struct Reader<'r>(&'r Resumed);

impl ReadRecords for Reader<'_> {
    fn medium(&self) -> Medium {
        Medium::Heap(self.0.location.clone())
    }

    fn read(&mut self, address: LogAddress) -> Result<PastRecord<'_>> {
        let index = usize::try_from(address.get()).ok().and_then(|number| number.checked_sub(1));
        let record = index.and_then(|index| self.0.records.get(index));
        let (prev, kind, payload) = record.ok_or_else(|| self.medium().malformed(address))?;
        Ok(PastRecord { address, txn: None, prev: *prev, gsn: Gsn::new(address.get()), kind: *kind, payload })
    }
}
