//! The thread that archives a log.
//!
//! A log of one stream is archived as far as it is durable. With several logs that is not enough:
//! after a crash, recovery cuts them behind the GSN up to which none lacks a record
//! ([`crate::several::open`]). The cut also removes records that are hardened in their own log.
//! They must not be in the archive, because other records take their place. So a segment is copied
//! only when the logs are *complete* up to every record that begins in it: a sync record with a
//! high enough GSN is hardened, with all logs up to its tails, and no later cut can come before
//! that GSN. Where transactions commit, that is usual when the segment is full, or soon after.
//! Otherwise the archiver has a commit round for all segments that are due.
//!
//! # Waiting
//! The thread waits for the logs as a committer does, and holds no lock. A thread that waits for
//! the archive holds none of the log's locks. A full log has space for sync records
//! ([`LogSet::synchronize`]). The thread stops first, so it inserts nothing into logs being closed.

use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::{Arc, thread};
use duramen_types::{Gsn, planted};

use crate::error::Result;
use crate::group_commit::requests::Ask;
use crate::segments::archive::{LOOK, RETRY};
use crate::several::commit_rounds::CommitRounds;
use crate::several::durable_gsn::DurableGsn;
use crate::several::log_set::LogSet;
use crate::stream::inner::{FailOnPanic, StreamInner};
use crate::threads::Threads;
use crate::wake_event::WakeEvent;

/// How long the archiver waits for commits to make the logs complete, before a commit round inserts
/// a sync record into the first log, which then has a part that is not archived, even if idle.
const SYNC_RECORD_WAIT: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Archiving {
    logs: Arc<LogSet>,
    /// With several logs: how far they are complete, and the rounds that make them so.
    several: Option<(Arc<DurableGsn>, Arc<CommitRounds>)>,
    threads: Threads,
}

/// The number of a log's next segment, and the GSN up to which all must be complete to copy it.
type Needed = Option<(u64, Gsn)>;

impl Archiving {
    /// Creates the archiving of these logs, if they are archived.
    pub(crate) fn of(logs: &Arc<LogSet>, several: Option<(Arc<DurableGsn>, Arc<CommitRounds>)>) -> Option<Arc<Self>> {
        logs.all()[0].archiver.as_ref()?;
        Some(Arc::new(Self { logs: Arc::clone(logs), several, threads: Threads::default() }))
    }

    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let archiving = Arc::clone(self);
        self.threads.start("duramen-log-archive", move || archiving.run())
    }

    /// Stops the thread and waits for it to end. This takes at most the time to copy one segment
    /// and to harden the logs. A second call does nothing.
    pub(crate) fn stop(&self) {
        self.event().stop();
        self.threads.join();
    }

    /// Waits until everything that can be archived has been archived, or until the archive fails.
    pub(crate) fn await_all(&self) {
        let has_work = |shared: &Arc<StreamInner>| {
            let archiver = shared.archiver.as_ref();
            archiver.is_some_and(|archiver| archiver.is_due(shared.space.durable()) && archiver.failure().is_none())
        };
        while self.logs.all().iter().any(has_work) && !self.has_failed() && !self.event().is_stopped() {
            self.event().wake();
            thread::sleep(LOOK);
        }
        // The thread may not have recycled yet.
        self.logs.all().iter().for_each(|shared| shared.recycle_archived());
    }

    fn event(&self) -> &WakeEvent {
        self.logs.all()[0].archiver.as_ref().expect("the logs are archived").event()
    }

    fn has_failed(&self) -> bool {
        self.logs.all().iter().any(|shared| shared.space.has_failed())
    }

    fn run(&self) {
        let _guard = FailOnPanic::new(&self.logs.all()[0]);
        let mut needed: Vec<Needed> = vec![None; self.logs.all().len()];
        while !self.event().is_stopped() {
            let due = self.due(&mut needed);
            let Some(gsn) = due.iter().map(|(_, gsn)| *gsn).max() else {
                self.event().wait(None);
                continue;
            };
            if !self.archive(&due, gsn) {
                self.event().wait_out(RETRY);
            }
        }
    }

    /// Copies the next segment of each of these logs, once all logs are complete up to `gsn`;
    /// returns whether all copies have succeeded.
    fn archive(&self, due: &[(&StreamInner, Gsn)], gsn: Gsn) -> bool {
        if let Err(error) = self.complete_up_to(gsn) {
            // If the logs themselves have failed, their users get that error.
            let concerned = due.iter().filter(|_| !self.has_failed());
            concerned.for_each(|(shared, _)| shared.cannot_archive(error.clone()));
            return false;
        }
        // Every log is archived, even if the copy of another one fails: a thread that waits for the
        // archive gets the outcome from its own log.
        let archived = due.iter().filter(|(shared, _)| !self.event().is_stopped() && shared.archive_next());
        archived.count() == due.len()
    }

    /// Returns the logs with a segment to copy, and the GSN up to which all must be complete first.
    fn due(&self, needed: &mut [Needed]) -> Vec<(&StreamInner, Gsn)> {
        if self.has_failed() {
            return Vec::new();
        }
        let logs = self.logs.all().iter().enumerate();
        let due = logs.filter_map(|(log, shared)| {
            let archiver = shared.archiver.as_ref()?;
            let (number, end) = archiver.next();
            if !archiver.is_due(shared.space.durable()) {
                return None;
            }
            // Looked up once, because each attempt would otherwise need another sync record.
            let known = needed[log].filter(|(segment, _)| *segment == number);
            let (_, gsn) = *needed[log].insert(known.unwrap_or_else(|| (number, self.logs.bound(log, end))));
            Some((&**shared, gsn))
        });
        due.collect()
    }

    /// Blocks until the logs are complete up to `gsn`, or until the thread has to end.
    fn complete_up_to(&self, gsn: Gsn) -> Result<()> {
        if planted!(ArchivedIncomplete) {
            return Ok(());
        }
        let Some((complete, rounds)) = &self.several else { return Ok(()) };
        let begun = Instant::now();
        while complete.get() < gsn && begun.elapsed() < SYNC_RECORD_WAIT && !self.event().is_stopped() {
            self.event().wait(Some(LOOK));
        }
        if complete.get() >= gsn || self.event().is_stopped() {
            return Ok(());
        }
        // Transactions may wait for the archive, so the archiver does not wait for a group.
        rounds.wait(None, gsn, Ask::AtOnce)
    }
}
