//! States what must not be recycled yet.
//!
//! A checkpoint determines from which record on the log is needed. The archive, which has not
//! copied everything yet, and a running backup may need more. The log's start moves to the latest
//! requested position that both allow; later requests wait. So the start is always the beginning of
//! a record, and every segment below the start's segment is in the archive.

use std::collections::BTreeMap;

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{Lsn, planted};

/// Positions at which the log may start later, and what prevents this.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    state: Mutex<State>,
    /// Number of copies made by backups.
    backed_up: AtomicU64,
}

/// What keeps log that could otherwise be recycled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retainer {
    /// A running backup.
    Backup,
    /// The archive, which lacks that part of the log.
    Archive {
        /// Whether the latest attempt to copy a segment has failed.
        has_failed: bool,
    },
}

#[derive(Debug, Default)]
struct State {
    /// The requested starts, by segment: the latest position of each.
    wanted: BTreeMap<u64, Lsn>,
    /// Positions from which running backups need the log.
    holds: BTreeMap<u64, Lsn>,
    /// The latest position at which the log may start without recycling what is not archived.
    archived: Option<Lsn>,
    /// Why archiving does not advance.
    trouble: Option<String>,
}

impl State {
    fn admits(&self, lsn: Lsn) -> bool {
        let archived = self.archived.is_none_or(|archived| lsn <= archived) || planted!(RecycledUnarchived);
        archived && self.holds.values().all(|held| lsn <= *held)
    }

    fn retainer(&self) -> Option<Retainer> {
        let latest = *self.wanted.values().next_back()?;
        if self.holds.values().any(|held| *held < latest) {
            Some(Retainer::Backup)
        } else if self.archived.is_some_and(|archived| archived < latest) {
            Some(Retainer::Archive { has_failed: self.trouble.is_some() })
        } else {
            None
        }
    }
}

impl Retention {
    /// Requests that the log start at `lsn`, in `segment`.
    pub(crate) fn want(&self, segment: u64, lsn: Lsn) {
        let mut state = self.state.lock();
        let latest = state.wanted.entry(segment).or_insert(lsn);
        *latest = lsn.max(*latest);
    }

    /// Returns the latest requested position at which the log may start.
    pub(crate) fn admitted(&self) -> Option<Lsn> {
        let state = self.state.lock();
        state.wanted.values().rev().copied().find(|lsn| state.admits(*lsn))
    }

    /// Records that the log starts at `lsn` now.
    pub(crate) fn started_at(&self, lsn: Lsn) {
        self.state.lock().wanted.retain(|_, wanted| *wanted > lsn);
    }

    /// Records that there is an archive, which has all segments below the one of `lsn`.
    pub(crate) fn archived(&self, lsn: Lsn) {
        let mut state = self.state.lock();
        state.archived = state.archived.max(Some(lsn));
    }

    /// Returns whether there is an archive.
    pub(crate) fn has_archive(&self) -> bool {
        self.state.lock().archived.is_some()
    }

    /// Records why the archive cannot be written at present, if it cannot.
    pub(crate) fn archive_failed(&self, reason: Option<String>) {
        self.state.lock().trouble = reason;
    }

    /// Keeps the log from `lsn` on until [`Retention::release`].
    pub(crate) fn hold(&self, lsn: Lsn) -> u64 {
        let mut state = self.state.lock();
        let hold = state.holds.last_key_value().map_or(0, |(last, _)| last + 1);
        state.holds.insert(hold, lsn);
        hold
    }

    pub(crate) fn move_hold(&self, hold: u64, lsn: Lsn) {
        if let Some(held) = self.state.lock().holds.get_mut(&hold) {
            *held = lsn.max(*held);
        }
    }

    pub(crate) fn release(&self, hold: u64) {
        self.state.lock().holds.remove(&hold);
    }

    pub(crate) fn note_backed_up(&self) {
        self.backed_up.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a number that grows while backups advance.
    pub(crate) fn backed_up(&self) -> u64 {
        self.backed_up.load(Ordering::Relaxed)
    }

    /// Returns what keeps the log from being recycled as far as requested.
    pub(crate) fn retainer(&self) -> Option<Retainer> {
        self.state.lock().retainer()
    }

    /// Returns the same as a part of a sentence.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let state = self.state.lock();
        Some(match state.retainer()? {
            Retainer::Backup => "a backup under way needs log that could otherwise be recycled".to_owned(),
            Retainer::Archive { .. } => {
                let trouble = state.trouble.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                format!("log that could otherwise be recycled is not archived yet{trouble}")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lsn(raw: u64) -> Lsn {
        Lsn::new(raw)
    }

    #[test]
    fn without_archive_and_backup_the_latest_position_is_admitted() {
        let retention = Retention::default();
        assert_eq!(retention.admitted(), None);
        retention.want(1, lsn(150));
        retention.want(1, lsn(120));
        retention.want(3, lsn(310));
        assert_eq!(retention.admitted(), Some(lsn(310)));
        retention.started_at(lsn(310));
        assert_eq!(retention.admitted(), None);
        assert_eq!(retention.obstacle(), None);
    }

    #[test]
    fn the_start_follows_the_archive() {
        let retention = Retention::default();
        retention.archived(lsn(100));
        for (segment, position) in [(1, 110), (1, 180), (2, 250), (4, 410)] {
            retention.want(segment, lsn(position));
        }
        assert_eq!(retention.admitted(), None);
        assert!(retention.obstacle().unwrap().contains("archived"));
        retention.archive_failed(Some("no room".to_owned()));
        assert!(retention.obstacle().unwrap().contains("no room"));
        retention.archived(lsn(200));
        assert_eq!(retention.admitted(), Some(lsn(180)));
        retention.started_at(lsn(180));
        assert_eq!(retention.admitted(), None);
        retention.archived(lsn(400));
        assert_eq!(retention.admitted(), Some(lsn(250)));
        retention.archived(lsn(500));
        assert_eq!(retention.admitted(), Some(lsn(410)));
        assert_eq!(retention.obstacle(), None);
    }

    #[test]
    fn the_start_waits_for_every_backup() {
        let retention = Retention::default();
        let (first, second) = (retention.hold(lsn(100)), retention.hold(lsn(150)));
        retention.want(1, lsn(120));
        retention.want(2, lsn(220));
        assert_eq!(retention.admitted(), None);
        assert!(retention.obstacle().unwrap().contains("backup"));
        retention.move_hold(first, lsn(300));
        retention.move_hold(first, lsn(200));
        assert_eq!(retention.admitted(), Some(lsn(120)));
        retention.release(second);
        assert_eq!(retention.admitted(), Some(lsn(220)));
        retention.release(first);
        assert_eq!(retention.obstacle(), None);
    }
}
