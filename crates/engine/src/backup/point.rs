//! The point that a database is restored to, and where that is in its logs.
//!
//! Nothing lies between the point and the end of the backup that is not in the log; before the end
//! of the backup, pages may have changes from behind the point. So the point is not before the end
//! of the backup. A time stands for the first commit record with a later stamp, and all that
//! follows it, in the order of the log. Behind the last commit nothing tells how late it was when
//! the log ended, so the log has to have a later commit.
//!
//! # Several logs
//! The order is that of GSNs. What there is of the logs need not reach the same one: they count up
//! to the GSN up to which none lacks anything, which synchronizations tell, as at opening. What the
//! archive has was complete before it got there. Logs that were left by a crash may have more,
//! which does not count. If they were left while they were being cut, their control file tells
//! where; synchronizations no longer do for certain.

use duramen_types::{Gsn, Lsn};
use duramen_wal::{Cut, LogChain, RecordRef, complete_up_to};

use crate::error::{Error, Result};
use crate::record::{Kind, Reader};
use crate::timestamp::Timestamp;

/// How much of the log is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RestoreTo {
    /// All there is (default).
    #[default]
    End,
    /// All records before this GSN.
    Gsn(Gsn),
    /// Everything before the first commit that is later than this.
    Time(Timestamp),
}

/// A point that can be restored to.
#[derive(Debug)]
pub(super) struct Point {
    /// What is restored is before this GSN.
    pub(super) end: Gsn,
    /// Where each log is to end.
    pub(super) ends: Vec<Lsn>,
    /// Commits between the end of the backup and the point.
    pub(super) commits: u64,
    /// When the last commit before the point was, if the log says so.
    pub(super) last_commit: Option<Timestamp>,
}

impl Point {
    /// In a database's only log.
    pub(super) fn of_one(chain: &LogChain, backup_end: Gsn, to: RestoreTo) -> Result<Self> {
        let mut seen = Seen::new(backup_end);
        let cut = chain.find_cut(|record| {
            let time = commit_time(record);
            let is_behind = match to {
                RestoreTo::End => false,
                RestoreTo::Gsn(gsn) => record.gsn >= gsn,
                RestoreTo::Time(to) => time.is_some_and(|time| time > to),
            };
            if !is_behind {
                seen.note(record);
            }
            is_behind
        })?;
        let Cut { at, is_record, gap } = cut;
        let is_before = match to {
            RestoreTo::Gsn(gsn) => gsn < backup_end,
            _ => at.get() < backup_end.get(),
        };
        if is_before {
            return Err(Error::BeforeBackup { end: backup_end });
        }
        let is_reached = match to {
            RestoreTo::End => gap.is_none(),
            RestoreTo::Gsn(gsn) => is_record || gsn.get() <= at.get(),
            RestoreTo::Time(_) => is_record,
        };
        let point = seen.before(Gsn::new(at.get()), vec![at]);
        if is_reached { Ok(point) } else { Err(point.is_last_of(std::slice::from_ref(chain))) }
    }

    /// In several logs. If those of the database itself are given, and were being cut when they
    /// were left, `cut` tells behind which GSN.
    pub(super) fn of_several(chains: &[LogChain], backup_end: Gsn, to: RestoreTo, cut: Option<Gsn>) -> Result<Self> {
        let cut = cut.filter(|_| chains.iter().all(LogChain::reaches_end));
        let in_backup = Gsn::new(backup_end.get() - 1);
        let mut later = None;
        let complete = complete_up_to(chains, in_backup.max(cut.unwrap_or_default()), |record| {
            if let RestoreTo::Time(to) = to
                && commit_time(record).is_some_and(|time| time > to)
            {
                later = Some(later.map_or(record.gsn, |gsn: Gsn| gsn.min(record.gsn)));
            }
        })?;
        let last = Gsn::new(complete.get() + 1);
        let wanted = match to {
            RestoreTo::End => Some(last),
            RestoreTo::Gsn(gsn) => Some(gsn),
            RestoreTo::Time(_) => later.filter(|gsn| *gsn < last),
        };
        if wanted.is_some_and(|gsn| gsn < backup_end) {
            return Err(Error::BeforeBackup { end: backup_end });
        }
        let is_reached = match to {
            RestoreTo::End => chains.iter().all(|chain| chain.gap().is_none()),
            _ => wanted.is_some_and(|gsn| gsn <= last),
        };
        let end = wanted.unwrap_or(last).min(last);
        let (mut seen, mut ends) = (Seen::new(backup_end), Vec::new());
        for chain in chains {
            let cut = chain.find_cut(|record| {
                let is_behind = record.gsn >= end;
                if !is_behind {
                    seen.note(record);
                }
                is_behind
            });
            ends.push(cut?.at);
        }
        let point = seen.before(end, ends);
        if is_reached { Ok(point) } else { Err(point.is_last_of(chains)) }
    }

    /// Why nothing behind this point can be restored.
    fn is_last_of(&self, chains: &[LogChain]) -> Error {
        match chains.iter().find_map(|chain| Some((chain.log(), chain.gap()?))) {
            Some((log, segment)) => Error::LogGap { log, segment },
            None => Error::BehindLog { end: self.end, last_commit: self.last_commit },
        }
    }
}

/// The commits before the point.
#[derive(Clone, Copy, Debug)]
struct Seen {
    backup_end: Gsn,
    commits: u64,
    /// GSN and time of the last one that has a stamp.
    last: Option<(Gsn, Timestamp)>,
}

impl Seen {
    fn new(backup_end: Gsn) -> Self {
        Self { backup_end, commits: 0, last: None }
    }

    fn note(&mut self, record: &RecordRef<'_>) {
        if record.kind == Kind::Commit as u8 {
            self.commits += u64::from(record.gsn >= self.backup_end);
            self.last = self.last.max(commit_time(record).map(|time| (record.gsn, time)));
        }
    }

    fn before(self, end: Gsn, ends: Vec<Lsn>) -> Point {
        Point { end, ends, commits: self.commits, last_commit: self.last.map(|(_, time)| time) }
    }
}

/// When the commit was, of a commit record that says so.
fn commit_time(record: &RecordRef<'_>) -> Option<Timestamp> {
    let is_stamped = record.kind == Kind::Commit as u8 && !record.payload.is_empty();
    is_stamped.then(|| Reader::new(record.payload).number().ok().map(Timestamp::from_micros)).flatten()
}
