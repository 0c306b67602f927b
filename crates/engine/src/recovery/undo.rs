//! The third pass: transactions that the crash interrupted are brought to their end.

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, crew};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{Gsn, Place};
use duramen_wal::{Logs, Record};

use super::analysis::Analysis;
use super::progress::{Gauge, RecoveryPass};
use super::{malformed, read_in_chain};
use crate::active::{TxnEntry, TxnState};
use crate::change::Change;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::metrics::RecoveryReport;
use crate::record::{Garbage, Kind, Reader, Undo, undo_next};
use crate::txn::rollback::take_back;
use crate::txn_log::TxnLog;

/// Undoes the losers and cleans up behind the winners that had no time to. Any order is right, and so is none, since locks
/// kept the transactions apart: threads take one after the other.
pub(super) fn finish_transactions(
    core: &Arc<Core>,
    logs: &Arc<Logs>,
    analysis: &Analysis,
    report: &mut RecoveryReport,
) -> Result<()> {
    let mut entries: Vec<TxnEntry> = analysis.txns.values().copied().collect();
    // What one thread does is the same each time.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.last));
    // All of them are in the transaction table before the first checkpoint can be taken.
    let mut resumed: Vec<(TxnEntry, TxnLog)> = Vec::new();
    for entry in &entries {
        let mut log = TxnLog::default();
        log.resume(&core.active, *entry);
        resumed.push((*entry, log));
    }
    resumed.reverse();
    let bytes = report.bytes;
    let threads = crew::size_for(core.options.recovery_threads, bytes).min(entries.len());
    let observer = core.options.recovery_observer.as_ref();
    let gauge = Arc::new(Gauge::new(observer, RecoveryPass::Undo, Some(entries.len() as u64), 1));
    let finished = Arc::clone(&gauge);
    let (core, logs, rest) = (Arc::clone(core), Arc::clone(logs), Mutex::new(resumed));
    let work = move || {
        let mut losers = 0;
        loop {
            let next = rest.lock().pop();
            let Some((entry, log)) = next else { return Ok(losers) };
            match finish_one(&core, &logs, entry, log) {
                Ok(was_loser) => {
                    losers += u64::from(was_loser);
                    finished.add(1);
                }
                Err(error) => {
                    rest.lock().clear();
                    return Err(error);
                }
            }
        }
    };
    for losers in crew::run(threads, "duramen-undo", work) {
        report.losers += losers?;
    }
    if !entries.is_empty() {
        gauge.finish();
    }
    Ok(())
}

/// Brings one transaction to its end; returns whether it was rolled back.
fn finish_one(core: &Core, logs: &Logs, entry: TxnEntry, mut log: TxnLog) -> Result<bool> {
    // Room that the transaction had set aside is there; when it is not, the log grows.
    let _ = log.reserve_for_recovery(core.scheme());
    match entry.state {
        TxnState::Active if is_on(Bug::SkipUndo) => log.finish(core.scheme(), &core.active),
        TxnState::Active => {
            undo(core, logs, &mut log, entry.last)?;
            log.end(core.scheme());
            log.finish(core.scheme(), &core.active);
            reach(Probe::UndoneInRecovery);
            return Ok(true);
        }
        TxnState::Committed if is_on(Bug::ForgetDeferredFrees) => {
            log.end(core.scheme());
            log.finish(core.scheme(), &core.active);
        }
        TxnState::Committed => match core.finish_garbage(log, promised(logs, entry.last)?) {
            // The database can be used without these pages; the clean-up is tried again later.
            Ok(()) | Err(Error::Full { .. } | Error::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        },
        TxnState::Over => unreachable!("analysis keeps no transaction that is over"),
    }
    Ok(false)
}

/// Rolls one transaction back along its chain of records.
fn undo(core: &Core, logs: &Logs, log: &mut TxnLog, last: Place) -> Result<()> {
    let mut chain = Chain::new(last);
    while let Some(record) = chain.next(logs)? {
        let next = chain.next;
        match Kind::from_u8(record.kind) {
            Some(Kind::Compensation) => {}
            Some(Kind::Update) => {
                let undo = undo_of(&record)?;
                let mut logged = 0;
                let change = take_back(&core.store, undo, &mut logged)?;
                log.charge(logged);
                log.compensate(core.scheme(), next, change);
            }
            Some(Kind::FreeOnCommit) => log.compensate(core.scheme(), next, Change::new()),
            _ => return Err(malformed(record.place())),
        }
    }
    Ok(())
}

/// The records of a transaction, backwards. They may be in several logs.
struct Chain {
    next: Place,
    /// GSN of the record before. It falls, or the chain would never end.
    gsn: Gsn,
}

impl Chain {
    fn new(last: Place) -> Self {
        Self { next: last, gsn: Gsn::MAX }
    }

    fn next(&mut self, logs: &Logs) -> Result<Option<Record>> {
        if self.next.is_zero() {
            return Ok(None);
        }
        let record = read_in_chain(logs, self.next)?;
        if record.gsn >= self.gsn {
            return Err(malformed(record.place()));
        }
        self.gsn = record.gsn;
        self.next = match Kind::from_u8(record.kind) {
            Some(Kind::Compensation) => undo_next(&record.payload).map_err(|_| malformed(record.place()))?,
            _ => record.prev,
        };
        Ok(Some(record))
    }
}

fn undo_of(record: &Record) -> Result<Undo<'_>> {
    Undo::decode(&mut Reader::new(&record.payload)).map_err(|_| malformed(record.place()))
}

/// The pages that a committed transaction promised to give back, from its commit record backwards.
fn promised(logs: &Logs, commit: Place) -> Result<Vec<Garbage>> {
    let mut garbage = Vec::new();
    let mut chain = Chain::new(commit);
    while let Some(record) = chain.next(logs)? {
        match Kind::from_u8(record.kind) {
            Some(Kind::FreeOnCommit) => {
                garbage.push(Garbage::decode(&record.payload).map_err(|_| malformed(record.place()))?);
            }
            Some(Kind::Compensation | Kind::Update | Kind::Commit) => {}
            _ => return Err(malformed(record.place())),
        }
    }
    Ok(garbage)
}
