//! Shared commit rounds: group commit across several logs, in which a commit is an ordinary record.
//! One *round* makes the logs complete up to the commits of all concurrent committers.
//!
//! 1. The round inserts a sync record ([`crate::several::log_set`]), which ends the
//!    [epoch](crate::buffer::epochs) of all logs. It notes the boundary, above the GSNs of all
//!    records so far, and each log's *tail*: its end, behind all records up to the boundary.
//! 2. The round waits until each log is hardened up to its tail, which includes the sync record.
//! 3. Everything up to the boundary is hardened. The round wakes all waiters for GSNs up to it.
//!
//! How a round hardens the logs depends on their device: logs in files are [flushed](flushed),
//! rings in persistent memory are [fenced](fenced). One shared round at a time is in progress.
//!
//! Sharing costs a lone committer time: its round may have to wait for the end of another one. So
//! where few threads wait for commits, each of them has a round of its own ([`MOST_ALONE`]), and
//! these rounds overlap. Rounds may end in any order, because each makes all logs complete.
//!
//! Space for some hundred sync records is reserved. If the disk is full for so long that they use
//! it up, the logs fail: commits that others have seen could not become durable.

mod fenced;
mod flushed;

use std::fmt::Debug;

use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::{Arc, CachePadded};
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
use crate::threads::Threads;

/// The number of threads that may have rounds of their own at the same time.
const MOST_ALONE: usize = 4;

/// Several logs that harden commits in shared rounds.
#[derive(Debug)]
pub(crate) struct CommitRounds {
    state: Arc<RoundState>,
    by: Box<dyn HardenBy>,
    alone: CachePadded<AloneCount>,
    threads: Threads,
}

/// Threads that have rounds of their own.
#[derive(Debug, Default)]
struct AloneCount {
    now: AtomicUsize,
    /// Waits so far, and those that had not been requested before.
    waits: AtomicU64,
    requests: AtomicU64,
}

/// How rounds harden the logs: what the methods of [`CommitRounds`] with the same names do, without
/// rounds of a thread's own. The default methods are those of rounds that flush.
trait HardenBy: Debug + Send + Sync {
    /// Runs the daemon until [`HardenBy::stop`] has been called.
    fn run(&self);

    /// Ends all waiting.
    fn stop(&self);

    /// Waits for another thread that is advancing a round, if the logs may not stop meanwhile.
    fn await_present(&self) {}

    fn count(&self, sum: &mut WalStats);

    fn fence(&self) {}

    fn request(&self, gsn: Gsn);

    /// Returns whether the calling thread may have a round of its own.
    fn is_quiet(&self) -> bool;

    /// Wakes the waiters for what a round of another thread has hardened.
    fn wake_resolved(&self);

    /// Advances the present round, if waiting threads do that; returns whether `gsn` is resolved.
    fn look_for(&self, _gsn: Gsn) -> bool {
        false
    }

    fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake>;

    fn wait(&self, home: LogId, gsn: Gsn, ask: Ask);
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

    /// Inserts a sync record, into `home` if possible, and hardens all logs up to its tails.
    /// `begun` learns up to which GSN that completes them. Needs no fences of other threads.
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

    /// Fails the logs and calls `end` if the thread panics while it hardens them for others.
    fn fail_on_panic<F: Fn()>(&self, end: F) -> FailOnPanic<'_, F> {
        FailOnPanic::then(&self.logs.all()[0], end)
    }
}

impl CommitRounds {
    /// Creates the rounds of `logs`, which are durable up to `complete`.
    pub(crate) fn new(logs: Arc<LogSet>, complete: Arc<DurableGsn>) -> Self {
        let passive = logs.all()[0].device.passive.clone();
        let state = Arc::new(RoundState { logs, complete, is_over: AtomicBool::new(false) });
        let by: Box<dyn HardenBy> = match passive {
            Some(passive) => Box::new(FencedRounds::new(Arc::clone(&state), passive)),
            None => Box::new(FlushedRounds::new(Arc::clone(&state))),
        };
        Self { state, by, alone: CachePadded::default(), threads: Threads::default() }
    }

    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let rounds = Arc::clone(self);
        self.threads.start("duramen-log-rounds", move || rounds.by.run())
    }

    /// Ends all waiting, because the logs are about to stop. A second call does nothing.
    pub(crate) fn stop(&self) {
        self.by.stop();
        self.threads.join();
        self.by.await_present();
    }

    /// Adds the counts that all logs share, and the number of requests, to `sum`.
    pub(crate) fn count(&self, sum: &mut WalStats) {
        self.by.count(sum);
        sum.hardening_waits += self.alone.waits.load(Ordering::Relaxed);
        sum.waits_for_logs += self.alone.requests.load(Ordering::Relaxed);
    }

    /// Makes the calling thread's records durable, if the threads do that themselves. The thread is
    /// committing, or is about to wait for something other than the logs.
    #[inline]
    pub(crate) fn fence(&self) {
        self.by.fence();
    }

    /// Requests that everything up to `gsn` be hardened.
    pub(crate) fn request(&self, gsn: Gsn) {
        self.by.request(gsn);
    }

    /// Returns the right to a round of the calling thread's own, if few threads wait for commits.
    fn go_alone(&self, is_requested: bool) -> Option<Alone<'_>> {
        // Several threads may find this at the same time: then there are a few more.
        if !self.by.is_quiet() || self.state.is_over() || self.alone.now.load(Ordering::Relaxed) >= MOST_ALONE {
            return None;
        }
        self.alone.now.fetch_add(1, Ordering::Relaxed);
        self.alone.waits.fetch_add(1, Ordering::Relaxed);
        self.alone.requests.fetch_add(u64::from(!is_requested), Ordering::Relaxed);
        Some(Alone(&self.alone.now))
    }

    /// Blocks until waiting for `gsn` is over, and returns the outcome. A round that this thread
    /// begins puts its sync record into the log `home`, or into the first one.
    pub(crate) fn wait(&self, home: Option<LogId>, gsn: Gsn, ask: Ask) -> Result<()> {
        let home = home.unwrap_or(LogId::ZERO);
        if let Some(_alone) = self.go_alone(ask.is_requested()) {
            let outcome = self.state.round(home, |_| ());
            self.by.wake_resolved();
            // A commit that other transactions have seen must become durable.
            return outcome.inspect_err(|error| {
                if ask != Ask::AtOnce {
                    self.state.fail(error.clone())
                }
            });
        }
        self.by.wait(home, gsn, ask);
        self.outcome(gsn)
    }

    /// Returns whether waiting for `gsn` is over.
    pub(crate) fn is_resolved(&self, gsn: Gsn) -> bool {
        self.state.is_resolved(gsn) || self.by.look_for(gsn)
    }

    /// Queues a waiter; returns the waiter if there is nothing left to wait for.
    pub(crate) fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        self.by.queue(gsn, wake)
    }

    /// Returns the outcome of waiting for `gsn`, which is over.
    pub(crate) fn outcome(&self, gsn: Gsn) -> Result<()> {
        if self.state.complete.get() >= gsn {
            return Ok(());
        }
        let failed = self.state.logs.all().iter().enumerate().find(|(_, log)| log.space.has_failed());
        Err(failed.map_or(WalError::Closed, |(log, shared)| shared.refusal().in_log(LogId::new(log as u16))))
    }
}

/// The right of a thread to a round of its own.
struct Alone<'a>(&'a AtomicUsize);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
