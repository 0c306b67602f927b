//! The point that a database is restored to, and the address of that point in each log.
//!
//! The log has every record between the point and the end of the backup. Before the end of the
//! backup, pages may have changes that are later than the point. So the point must not be before
//! the end of the backup. A time stands for the first commit record with a later stamp, and for all
//! records after that one, in the order of the log. The log does not tell how much time passed
//! after its last commit. So the log must have a commit that is later than the requested time.
//!
//! # Several logs
//! The order is that of GSNs, and the records of one epoch belong together: a record may have a
//! lower GSN than one of the same epoch that came before it. So a restore ends with the last whole
//! epoch before the requested point. An epoch lasts as long as a commit round.
//!
//! The available parts of the logs need not reach the same GSN. They count up to the GSN up to
//! which no log lacks a record; sync records tell that GSN, as at opening. A part of a log was
//! complete before it reached the archive. Logs that a crash left may have more records, which do
//! not count. If a crash left the logs while they were being cut, their control file tells the GSN;
//! sync records no longer tell it reliably.

use duramen_types::{Gsn, Lsn};
use duramen_wal::{Cut, LogPieces, RecordRef, complete_up_to};

use crate::error::{Error, Result};
use crate::record::{Kind, Reader};
use crate::timestamp::Timestamp;

/// How much of the log a restore replays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RestoreTo {
    /// All of the log (default).
    #[default]
    End,
    /// All records before this GSN; with several logs, all records of the commit rounds that ended
    /// before it.
    Gsn(Gsn),
    /// All records before the first commit that is later than this time; with several logs, all
    /// records of the commit rounds that ended before that commit.
    Time(Timestamp),
}

/// A point that a database can be restored to.
#[derive(Debug)]
pub(super) struct Point {
    /// Records before this GSN are restored.
    pub(super) end: Gsn,
    /// The end of each log.
    pub(super) ends: Vec<Lsn>,
    /// Commits between the end of the backup and the point.
    pub(super) commits: u64,
    /// The time of the last commit before the point, if the log has it.
    pub(super) last_commit: Option<Timestamp>,
}

impl Point {
    /// Finds the point in a database's only log.
    pub(super) fn of_one(chain: &LogPieces, backup_end: Gsn, to: RestoreTo) -> Result<Self> {
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

    /// Finds the point in several logs. If the database's own logs are given and a crash left them
    /// while they were being cut, `cut` is the GSN after which they were cut.
    pub(super) fn of_several(chains: &[LogPieces], backup_end: Gsn, to: RestoreTo, cut: Option<Gsn>) -> Result<Self> {
        let cut = cut.filter(|_| chains.iter().all(LogPieces::reaches_end));
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
        let end = match wanted {
            Some(wanted) if wanted < last => Gsn::new(boundary_before(chains, wanted)?.max(in_backup).get() + 1),
            _ => last,
        };
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

    /// Returns why no point after this one can be restored.
    fn is_last_of(&self, chains: &[LogPieces]) -> Error {
        match chains.iter().find_map(|chain| Some((chain.log(), chain.gap()?))) {
            Some((log, segment)) => Error::LogGap { log, segment },
            None => Error::BehindLog { end: self.end, last_commit: self.last_commit },
        }
    }
}

/// Returns the highest GSN below `gsn` behind which the logs can be cut; zero if there is none.
fn boundary_before(chains: &[LogPieces], gsn: Gsn) -> Result<Gsn> {
    let mut found = Gsn::ZERO;
    for chain in chains {
        chain.find_cut(|record| {
            let boundary = record.boundary().filter(|boundary| *boundary < gsn);
            found = found.max(boundary.unwrap_or_default());
            record.gsn >= gsn
        })?;
    }
    Ok(found)
}

/// The commits before the point.
#[derive(Clone, Copy, Debug)]
struct Seen {
    backup_end: Gsn,
    commits: u64,
    /// GSN and time of the last commit that has a time stamp.
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

/// Returns the time of a commit, from a commit record that has one.
fn commit_time(record: &RecordRef<'_>) -> Option<Timestamp> {
    let is_stamped = record.kind == Kind::Commit as u8 && !record.payload.is_empty();
    is_stamped.then(|| Reader::new(record.payload).number().ok().map(Timestamp::from_micros)).flatten()
}
