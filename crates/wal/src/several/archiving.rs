//! Archiving several logs with one thread.
//!
//! After a crash, recovery cuts the logs behind the GSN up to which none of them lacks a record
//! ([`crate::several::open`]). The cut also removes records that are hardened in their own log.
//! Such records must not be in the archive, because other records will take their place. So a
//! segment is copied only when the logs are *complete* up to every record that begins in it: a sync
//! record with a high enough GSN is hardened, with all logs up to its tails, and no later cut can
//! come before that GSN. Where transactions commit, such a sync record usually exists when the
//! segment is full, or soon after. Otherwise the archiver has a commit round for all segments that
//! are due.
//!
//! # Waiting
//! The thread waits for the logs to be hardened as a committer does, and holds no lock. A thread
//! that waits for the archive to make progress holds none of the log's locks. A full log has space
//! for sync records ([`LogSet::synchronize`]). The thread stops before the logs do, so that it
//! inserts nothing into logs that are being closed.

use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, planted};

use std::time::Duration;

use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::segments::archive::{LOOK, RETRY};
use crate::several::commit_rounds::CommitRounds;
use crate::several::durable_gsn::DurableGsn;
use crate::several::log_set::LogSet;
use crate::stream::inner::{FailOnPanic, StreamInner};
use crate::stream::part::Hardens;
use crate::wake_event::WakeEvent;
use duramen_sync::clock::Instant;

/// How long the archiver waits for commits to make the logs complete. After that it inserts a sync
/// record into the first log (by a commit round). That log then has a part that is not archived,
/// even if it is otherwise idle.
const SYNC_RECORD_WAIT: Duration = Duration::from_millis(10);

/// The archiving of several logs.
#[derive(Debug)]
pub(crate) struct Archiving {
    worker: Arc<Worker>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Worker {
    logs: Arc<LogSet>,
    complete: Arc<DurableGsn>,
    rounds: Arc<CommitRounds>,
}

/// For a log: the number of its next segment, and the GSN up to which the logs have to be complete
/// before it is copied.
type Needed = Option<(u64, Gsn)>;

impl Archiving {
    /// Creates the archiving of these logs, if they are archived.
    pub(crate) fn of(logs: &Arc<LogSet>, complete: &Arc<DurableGsn>, rounds: &Arc<CommitRounds>) -> Option<Self> {
        logs.all()[0].archiver.as_ref()?;
        let (logs, complete, rounds) = (Arc::clone(logs), Arc::clone(complete), Arc::clone(rounds));
        let worker = Worker { logs, complete, rounds };
        Some(Self { worker: Arc::new(worker), thread: Mutex::new(None) })
    }

    /// Starts the thread.
    pub(crate) fn start(&self) -> Result<()> {
        let worker = Arc::clone(&self.worker);
        let thread = thread::spawn("duramen-log-archive", move || worker.run());
        let thread = thread.map_err(|error| WalError::System {
            what: "start the thread `duramen-log-archive`".to_owned(),
            reason: error.to_string(),
        })?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread and waits for it to end. This takes at most the time to copy one segment
    /// and to harden the logs. A second call does nothing.
    pub(crate) fn stop(&self) {
        self.worker.event().stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // The thread has reported its own panic. The first log has failed, and its users get
            // the error.
            let _ = thread.join();
        }
    }

    /// Waits until everything that can be archived has been archived, or until the archive fails.
    pub(crate) fn await_all(&self) {
        let (worker, event) = (&*self.worker, self.worker.event());
        let is_at_work = |shared: &Arc<StreamInner>| shared.archiver_at_work().is_some();
        while worker.logs.all().iter().any(is_at_work) && !worker.has_failed() && !event.is_stopped() {
            event.wake();
            thread::sleep(LOOK);
        }
        // The thread may not have recycled yet.
        worker.logs.all().iter().for_each(|shared| shared.recycle_archived());
    }
}

impl Worker {
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

    /// Returns the logs that have a segment to copy, each with the GSN up to which all logs have to
    /// be complete before that.
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
            // Looked up once. Otherwise every attempt to copy the segment would need another sync
            // record.
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
        let begun = Instant::now();
        while self.complete.get() < gsn && begun.elapsed() < SYNC_RECORD_WAIT && !self.event().is_stopped() {
            self.event().wait(Some(LOOK));
        }
        if self.complete.get() >= gsn || self.event().is_stopped() {
            return Ok(());
        }
        // Transactions may be waiting for the archive, so the archiver does not wait for a group of
        // commits.
        self.rounds.wait(gsn, Ask::AtOnce)
    }
}
