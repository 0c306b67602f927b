//! The third pass: transactions that the crash interrupted are brought to their end.

use duramen_sync::probe::{Probe, reach};
use duramen_types::Lsn;
use duramen_types::planted::{Bug, is_on};
use duramen_wal::{Record, Wal};

use super::analysis::Analysis;
use super::malformed;
use crate::active::{TxnEntry, TxnState};
use crate::change::Change;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::metrics::RecoveryReport;
use crate::record::{Garbage, Kind, Reader, Undo, undo_next};
use crate::txn::rollback::take_back;
use crate::txn_log::TxnLog;

/// Undoes the losers and cleans up behind the winners that had no time to.
pub(super) fn finish_transactions(
    core: &Core,
    wal: &Wal,
    analysis: &Analysis,
    report: &mut RecoveryReport,
) -> Result<()> {
    let mut entries: Vec<TxnEntry> = analysis.txns.values().copied().collect();
    // Any order is right, since locks kept the transactions apart; this one is the same each time.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.last));
    // All of them are in the transaction table before the first checkpoint can be taken.
    let mut logs: Vec<TxnLog> = Vec::new();
    for entry in &entries {
        let mut log = TxnLog::default();
        log.resume(&core.active, *entry);
        logs.push(log);
    }
    for (entry, mut log) in entries.iter().zip(logs) {
        // Room that the transaction had set aside is there; when it is not, the log grows.
        let _ = log.reserve_for_recovery(core.scheme());
        match entry.state {
            TxnState::Active if is_on(Bug::SkipUndo) => log.finish(core.scheme(), &core.active),
            TxnState::Active => {
                undo(core, wal, &mut log, entry.last)?;
                log.end(core.scheme());
                log.finish(core.scheme(), &core.active);
                reach(Probe::UndoneInRecovery);
                report.losers += 1;
            }
            TxnState::Committed if is_on(Bug::ForgetDeferredFrees) => {
                log.end(core.scheme());
                log.finish(core.scheme(), &core.active);
            }
            TxnState::Committed => match core.finish_garbage(log, promised(wal, entry.last)?) {
                // The database can be used without these pages; the clean-up is tried again later.
                Ok(()) | Err(Error::Full { .. } | Error::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            },
            TxnState::Over => unreachable!("analysis keeps no transaction that is over"),
        }
    }
    Ok(())
}

/// Rolls one transaction back along its chain of records.
fn undo(core: &Core, wal: &Wal, log: &mut TxnLog, last: Lsn) -> Result<()> {
    let mut next = last;
    while !next.is_zero() {
        let record = wal.read(next)?;
        next = before(&record)?;
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
            _ => return Err(malformed(record.lsn)),
        }
    }
    Ok(())
}

/// Where the chain of a transaction goes on from `record`. It leads back, or it would never end.
fn before(record: &Record) -> Result<Lsn> {
    let before = match Kind::from_u8(record.kind) {
        Some(Kind::Compensation) => undo_next(&record.payload).map_err(|_| malformed(record.lsn))?,
        _ => record.prev,
    };
    if before < record.lsn { Ok(before) } else { Err(malformed(record.lsn)) }
}

fn undo_of(record: &Record) -> Result<Undo<'_>> {
    Undo::decode(&mut Reader::new(&record.payload)).map_err(|_| malformed(record.lsn))
}

/// The pages that a committed transaction promised to give back, from its commit record backwards.
fn promised(wal: &Wal, commit: Lsn) -> Result<Vec<Garbage>> {
    let mut garbage = Vec::new();
    let mut next = commit;
    while !next.is_zero() {
        let record = wal.read(next)?;
        next = before(&record)?;
        match Kind::from_u8(record.kind) {
            Some(Kind::FreeOnCommit) => {
                garbage.push(Garbage::decode(&record.payload).map_err(|_| malformed(record.lsn))?);
            }
            Some(Kind::Compensation | Kind::Update | Kind::Commit) => {}
            _ => return Err(malformed(record.lsn)),
        }
    }
    Ok(garbage)
}
