//! Shared commit rounds: group commit across several logs.
//!
//! In several logs a commit is an ordinary record. One *round* serves all concurrent committers: it
//! makes the logs complete up to their commits.
//!
//! 1. The round inserts a sync record ([`crate::several::log_set`]), which ends the
//!    [epoch](crate::buffer::epochs) of all logs. The sync record notes the boundary of the epoch,
//!    which is above the GSNs of all records so far, and the end of each log, its *tail*. In every
//!    log, all records up to the boundary lie before the tail.
//! 2. The round waits until each log is hardened up to its tail, which includes the sync record.
//! 3. Everything up to the boundary is hardened. The round wakes all waiters for GSNs up to it.
//!
//! How a round hardens the logs depends on their device: logs in files are [flushed](flushed), rings
//! in persistent memory are [fenced](fenced). One shared round at a time is in progress.
//!
//! Sharing costs a lone committer time: its round may have to wait for the end of another one. So
//! where few threads wait for commits, each of them has a round of its own ([`MOST_ALONE`]), and
//! these rounds overlap. Rounds may end in any order, because each makes all logs complete.
//!
//! Space for some hundred sync records is reserved. If the disk is full for so long that they use
//! it up, the logs fail: commits that others have seen could not become durable.

mod fenced;
mod flushed;

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, CachePadded, Mutex};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::buffer::epochs::EpochEnd;
use crate::buffer::positions::Hardening;
use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::Wake;
use crate::several::commit_rounds::fenced::FencedRounds;
use crate::several::commit_rounds::flushed::FlushedRounds;
use crate::several::durable_gsn::DurableGsn;
use crate::several::log_set::LogSet;
use crate::stats::WalStats;
use crate::stream::inner::FailOnPanic;
use crate::stream::part::Hardens;

/// The number of threads that may have rounds of their own at the same time.
const MOST_ALONE: usize = 4;

/// Several logs that harden commits in shared rounds.
#[derive(Debug)]
pub(crate) struct CommitRounds {
    state: Arc<RoundState>,
    by: HardenBy,
    alone: CachePadded<AloneCount>,
    daemon: Mutex<Option<JoinHandle<()>>>,
}

/// Threads that have rounds of their own.
#[derive(Debug, Default)]
struct AloneCount {
    now: AtomicUsize,
    /// Waits so far, and those that had not been requested before.
    waits: AtomicU64,
    requests: AtomicU64,
}

/// How rounds harden the logs.
#[derive(Debug)]
enum HardenBy {
    Flushes(Box<FlushedRounds>),
    Fences(Box<FencedRounds>),
}

/// The logs, and how far the rounds have hardened them.
#[derive(Debug)]
struct RoundState {
    logs: Arc<LogSet>,
    complete: Arc<DurableGsn>,
    /// A log has failed, or the logs are closed: there is nothing to wait for.
    is_over: AtomicBool,
}

impl RoundState {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn is_resolved(&self, gsn: Gsn) -> bool {
        self.complete.get() >= gsn || self.is_over()
    }

    /// Inserts a sync record, into the log `home` if possible, and hardens all logs up to its
    /// tails. `begun` learns the GSN up to which it makes them complete. The logs need no fences of
    /// other threads.
    fn round(&self, home: LogId, begun: impl FnOnce(Gsn)) -> Result<()> {
        let logs = self.logs.all();
        let (inserted, EpochEnd { boundary, tails, .. }) = self.logs.synchronize(home)?;
        begun(boundary);
        let own = usize::from(inserted.log.get());
        // A log that has failed takes no record: there are no tails then. Its own log may have
        // records of the epoch behind the sync record.
        let own_last = tails.get(own).map_or(inserted.lsn, |tail| Lsn::new(tail.get() - 1));
        let ends = tails.iter().enumerate().map(|(log, tail)| (log, &*logs[log], *tail));
        let behind = ends.filter(|(log, shared, tail)| *log != own && shared.space.hardened() < *tail);
        let others: Vec<_> = behind.map(|(log, shared, tail)| (log, shared, Lsn::new(tail.get() - 1))).collect();
        let others = if planted!(OwnLogHardenedOnly) { &[] } else { &*others };
        let in_log = |log: usize| move |error: WalError| error.in_log(LogId::new(log as u16));
        for (log, shared, last) in others.iter().filter(|(_, shared, _)| shared.space.hardening() == Hardening::Flushed)
        {
            // The daemon of that log flushes while this thread flushes its own.
            shared.request(*last).map_err(in_log(*log))?;
        }
        logs[own].wait(own_last, Ask::AtOnce).map_err(in_log(own))?;
        others.iter().try_for_each(|(log, shared, last)| shared.wait(*last, Ask::Requested).map_err(in_log(*log)))?;
        self.complete.note(boundary);
        Ok(())
    }

    fn fail(&self, error: WalError) {
        self.logs.all()[0].fail(error);
    }

    /// Fails the logs, and calls `end`, when the calling thread, which hardens them for others,
    /// panics.
    fn fail_on_panic<F: Fn()>(&self, end: F) -> FailOnPanic<'_, F> {
        FailOnPanic::then(&self.logs.all()[0], end)
    }
}

impl CommitRounds {
    /// Creates the rounds of `logs`, which are durable up to `complete`.
    pub(crate) fn new(logs: Arc<LogSet>, complete: Arc<DurableGsn>) -> Self {
        let passive = logs.all()[0].device.passive().map(Arc::clone);
        let state = Arc::new(RoundState { logs, complete, is_over: AtomicBool::new(false) });
        let by = match passive {
            Some(passive) => HardenBy::Fences(Box::new(FencedRounds::new(Arc::clone(&state), passive))),
            None => HardenBy::Flushes(Box::new(FlushedRounds::new(Arc::clone(&state)))),
        };
        Self { state, by, alone: CachePadded::default(), daemon: Mutex::new(None) }
    }

    /// Starts the daemon.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let rounds = Arc::clone(self);
        let daemon = thread::spawn("duramen-log-rounds", move || match &rounds.by {
            HardenBy::Flushes(flushed) => flushed.run(),
            HardenBy::Fences(fenced) => fenced.run(),
        });
        let daemon = daemon.map_err(|error| WalError::System {
            what: "start the thread `duramen-log-rounds`".to_owned(),
            reason: error.to_string(),
        })?;
        *self.daemon.lock() = Some(daemon);
        Ok(())
    }

    /// Ends all waiting, because the logs are about to stop. A second call does nothing.
    pub(crate) fn stop(&self) {
        match &self.by {
            HardenBy::Flushes(flushed) => flushed.stop(),
            HardenBy::Fences(fenced) => fenced.stop(),
        }
        if let Some(daemon) = self.daemon.lock().take() {
            // The thread has reported its own panic.
            let _ = daemon.join();
        }
        if let HardenBy::Fences(fenced) = &self.by {
            fenced.await_present();
        }
    }

    /// Adds the counts that all logs share, and the number of requests, to `sum`.
    pub(crate) fn count(&self, sum: &mut WalStats) {
        match &self.by {
            HardenBy::Flushes(flushed) => flushed.count(sum),
            HardenBy::Fences(fenced) => fenced.count(sum),
        }
        sum.hardening_waits += self.alone.waits.load(Ordering::Relaxed);
        sum.waits_for_logs += self.alone.requests.load(Ordering::Relaxed);
    }

    /// Makes the calling thread's records durable, if the threads do that themselves. The thread is
    /// committing, or is about to wait for something other than the logs.
    #[inline]
    pub(crate) fn fence(&self) {
        if let HardenBy::Fences(fenced) = &self.by {
            fenced.fence();
        }
    }

    /// Requests that everything up to `gsn` be hardened.
    pub(crate) fn request(&self, gsn: Gsn) {
        match &self.by {
            HardenBy::Flushes(flushed) => flushed.request(gsn),
            HardenBy::Fences(fenced) => fenced.request(gsn),
        }
    }

    /// Returns the right to a round of the calling thread's own, if few threads wait for commits.
    fn go_alone(&self, is_requested: bool) -> Option<Alone<'_>> {
        let may_go = match &self.by {
            HardenBy::Flushes(flushed) => flushed.is_quiet(),
            HardenBy::Fences(fenced) => fenced.is_quiet(),
        };
        // Several threads may find this at the same time: then there are a few more.
        if !may_go || self.state.is_over() || self.alone.now.load(Ordering::Relaxed) >= MOST_ALONE {
            return None;
        }
        self.alone.now.fetch_add(1, Ordering::Relaxed);
        self.alone.waits.fetch_add(1, Ordering::Relaxed);
        self.alone.requests.fetch_add(u64::from(!is_requested), Ordering::Relaxed);
        Some(Alone(&self.alone.now))
    }

    /// Blocks until waiting for `gsn` is over, and returns the outcome. A round that this thread
    /// begins puts its sync record into the log `home`.
    pub(crate) fn wait_from(&self, home: LogId, gsn: Gsn, ask: Ask) -> Result<()> {
        let is_requested = matches!(ask, Ask::Requested | Ask::SelfFlushing);
        if let Some(_alone) = self.go_alone(is_requested) {
            let outcome = self.state.round(home, |_| ());
            match &self.by {
                HardenBy::Flushes(flushed) => flushed.wake_resolved(),
                HardenBy::Fences(fenced) => fenced.wake_resolved(),
            }
            // A commit that other transactions have seen must become durable.
            return outcome.inspect_err(|error| {
                if ask != Ask::AtOnce {
                    self.state.fail(error.clone())
                }
            });
        }
        match &self.by {
            HardenBy::Flushes(flushed) => flushed.wait(home, gsn, ask),
            HardenBy::Fences(fenced) => fenced.wait(gsn, is_requested),
        }
        self.outcome(gsn)
    }
}

/// The right of a thread to a round of its own.
struct Alone<'a>(&'a AtomicUsize);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hardens for CommitRounds {
    type Position = Gsn;

    fn is_ready(&self, gsn: Gsn) -> bool {
        self.state.is_resolved(gsn) || matches!(&self.by, HardenBy::Fences(fenced) if fenced.look_for(gsn))
    }

    fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        match &self.by {
            HardenBy::Flushes(flushed) => flushed.queue(gsn, wake),
            HardenBy::Fences(fenced) => fenced.queue(gsn, wake),
        }
    }

    fn wait(&self, gsn: Gsn, ask: Ask) -> Result<()> {
        self.wait_from(LogId::ZERO, gsn, ask)
    }

    fn outcome(&self, gsn: Gsn) -> Result<()> {
        if self.state.complete.get() >= gsn {
            return Ok(());
        }
        let failed = self.state.logs.all().iter().enumerate().find(|(_, log)| log.space.has_failed());
        Err(failed.map_or(WalError::Closed, |(log, shared)| shared.refusal().in_log(LogId::new(log as u16))))
    }
}
