//! The sync records found while reading a log, and which of them logs with certain ends meet.

use std::collections::VecDeque;

use duramen_types::{Gsn, Lsn};

use crate::error::Result;
use crate::format::record::RecordRef;
use crate::segments::scan::Scanner;

/// Sync records of each log kept in memory while the ends of the other logs are unknown. After a
/// crash, the incomplete ones are among the last.
const KEPT: usize = 1024;

#[derive(Clone, Debug)]
struct SyncRecord {
    boundary: Gsn,
    tails: Box<[u8]>,
}

impl SyncRecord {
    fn of(record: &RecordRef<'_>) -> Option<Self> {
        Some(Self { boundary: record.boundary()?, tails: record.tails.into() })
    }

    /// Returns the first of the logs with these ends that does not reach its tail.
    fn short_of(&self, ends: &[Lsn]) -> Option<usize> {
        let (fields, _) = self.tails.as_chunks::<8>();
        if fields.len() != ends.len() {
            return Some(0);
        }
        fields.iter().zip(ends).position(|(tail, end)| u64::from_le_bytes(*tail) > end.get())
    }
}

/// The sync records in one log.
#[derive(Debug)]
pub(crate) struct SyncRecords {
    latest: VecDeque<SyncRecord>,
    /// Whether some of them have not been kept.
    has_more: bool,
    /// The GSN that a control file states, and the sync records that it may mean: always kept.
    stated: (Gsn, Vec<SyncRecord>),
}

impl SyncRecords {
    /// Starts with none; the one with the GSN `stated` will be kept.
    pub(crate) fn keeping(stated: Gsn) -> Self {
        Self { latest: VecDeque::new(), has_more: false, stated: (stated, Vec::new()) }
    }

    /// Keeps a record if it is a sync record. Records come in the order of the log.
    pub(crate) fn note(&mut self, record: &RecordRef<'_>) {
        let Some(new) = SyncRecord::of(record) else { return };
        if [record.gsn, new.boundary].contains(&self.stated.0) {
            self.stated.1.push(new.clone());
        }
        if self.latest.len() == KEPT {
            self.latest.pop_front();
            self.has_more = true;
        }
        self.latest.push_back(new);
    }

    /// Returns the highest boundary of a sync record whose tails are all within logs with these
    /// ends. The log may have to be read again.
    pub(crate) fn last_met(&self, ends: &[Lsn], again: impl FnOnce() -> Scanner) -> Result<Option<Gsn>> {
        // Threads fill in sync records in another order than that of the log.
        let met = self.latest.iter().filter(|kept| kept.short_of(ends).is_none());
        let highest = met.map(|met| met.boundary).max();
        if highest.is_some() || !self.has_more {
            return Ok(highest);
        }
        let (mut scanner, mut highest) = (again(), None);
        while let Some(record) = scanner.next()? {
            let found = SyncRecord::of(&record).filter(|found| found.short_of(ends).is_none());
            highest = highest.max(found.map(|found| found.boundary));
        }
        Ok(highest)
    }

    /// Returns whether logs with these ends reach the tails of a sync record that is always kept,
    /// if there is one, or else which log is too short.
    pub(crate) fn stated_is_met(&self, ends: &[Lsn]) -> Option<std::result::Result<(), usize>> {
        self.stated.1.iter().map(|kept| kept.short_of(ends).map_or(Ok(()), Err)).min()
    }
}
