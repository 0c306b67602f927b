//! [Commit rounds](super) of logs whose rings lie in persistent memory (Wang and Johnson, *Scalable
//! Logging through Emerging Non-Volatile Memory*, section 4.1). Only the thread that advances the
//! round reads the state of all logs:
//!
//! 1. The thread that begins the round fences the sync record.
//! 2. The round waits until each log is released up to its tail. It then waits until every thread
//!    that is dirty at that moment has fenced ([`crate::device::nvm::passive`]). The round does not
//!    check a thread again once it has found the thread clean, because the later records of that
//!    thread lie behind the tails. Idle threads are clean. (The paper uses the least GSN that all
//!    threads have reached. Here recovery needs every record before the tails, including records
//!    with higher GSNs than the sync record.)
//!
//! Behind durable caches, records are durable when they are released, and no thread is ever dirty.
//!
//! A commit only moves the clocks, and a round needs no thread to be woken. A thread that checks
//! whether its commit is hardened also advances the round, unless another thread is advancing it or
//! the last check is too recent. The *daemon* sleeps while committers advance rounds. It advances
//! them itself when no committer does, because all waiters are parked threads, tasks or functions
//! to be called.
//!
//! # Stragglers
//! Threads fence when they commit, when they roll back, and before they wait for anything other
//! than the log. A thread that has not fenced when a round has lasted for [`DRAIN_AFTER`] is a
//! straggler. The round then drains all processors, for all logs at once, and ends. A drained
//! straggler no longer counts as dirty until it inserts again.
//!
//! # Locks
//! The thread that advances a round holds the lock of `rounds`, and acquires it while holding no
//! other lock of the log. Inserting the sync record may wait for space in the ring of its log; the
//! daemon of that log frees space without the lock of `rounds`. Under `waiters` only the notifier's
//! list is taken.

use std::time::Duration;

use duramen_pmem::Region;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::{self, Parker};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::buffer::epochs::EpochEnd;
use crate::buffer::positions::Hardening;
use crate::device::nvm::passive::{Behind, Passive};
use crate::error::Result;
use crate::group_commit::wake::{Waiters, Wake};
use crate::group_commit::work_signal::WorkSignal;
use crate::several::commit_rounds::RoundState;
use crate::stats::WalStats;
use crate::wake_event::WakeEvent;

/// A round that has lasted this long waits for a straggler. Most transactions commit in less time.
const DRAIN_AFTER: Duration = Duration::from_micros(500);

/// Minimum time between two checks of a round, across all threads: each check takes cache lines
/// from the threads that insert.
const BETWEEN_LOOKS: Duration = Duration::from_micros(5);

/// Minimum time between the last check and a round of a thread's own.
const BEFORE_ALONE: Duration = Duration::from_micros(1);

/// How long a thread waits before it parks.
const SPIN_LIMIT: Duration = Duration::from_micros(60);

/// How long the daemon sleeps between two checks, when no committer checks and when committers do.
const TICK: Duration = Duration::from_micros(100);
const LONG_TICK: Duration = Duration::from_millis(1);

/// Rounds that wait for the threads to fence their records.
#[derive(Debug)]
pub(super) struct FencedRounds {
    state: Arc<RoundState>,
    passive: Arc<Passive>,
    /// A check of the round before this time, in nanoseconds, is too early.
    next_look: CachePadded<AtomicU64>,
    rounds: CachePadded<Mutex<Rounds>>,
    waiters: CachePadded<Mutex<Waiters<Gsn>>>,
    /// The highest GSN requested by threads without a cell.
    requested: CachePadded<AtomicU64>,
    /// Whether the daemon will find new work without being woken.
    signal: WorkSignal,
    /// Wakes the daemon.
    event: WakeEvent,
}

#[derive(Debug, Default)]
struct Rounds {
    present: Option<CommitRound>,
    /// The number of checks so far.
    looks: u64,
}

/// A round: it hardens everything up to a GSN.
#[derive(Debug)]
pub(crate) struct CommitRound {
    gsn: Gsn,
    /// For each log, a position at or behind the end of its last record up to the GSN.
    tails: Vec<Lsn>,
    /// Logs that were not released up to their tails at the last check.
    unreleased: Vec<usize>,
    /// Set once all logs are released: the time when that was found, and the threads that were
    /// behind at the last check.
    behind: Option<(Instant, Vec<Behind>)>,
}

impl CommitRound {
    pub(crate) fn new(gsn: Gsn, tails: Vec<Lsn>) -> Self {
        let logs = if planted!(OwnLogHardenedOnly) { 1 } else { tails.len() };
        Self { gsn, tails, unreleased: (0..logs).collect(), behind: None }
    }

    /// Returns whether every log is released up to its tail. `released` returns the released
    /// position of a log.
    pub(crate) fn is_released(&mut self, released: impl Fn(usize) -> Lsn) -> bool {
        self.unreleased.retain(|log| released(*log) < self.tails[*log]);
        self.unreleased.is_empty()
    }

    /// Returns whether everything is durable. All logs have been found released.
    pub(crate) fn is_durable(&mut self, passive: &Passive) -> bool {
        let (_, behind) = self.behind.get_or_insert_with(|| (Instant::now(), passive.behind()));
        behind.retain(|behind| passive.is_behind(behind));
        behind.is_empty()
    }

    /// Returns whether the round has waited too long for threads to fence.
    fn has_stalled(&self) -> bool {
        self.behind.as_ref().is_some_and(|(since, _)| since.elapsed() >= DRAIN_AFTER)
    }
}

impl FencedRounds {
    /// Creates the rounds of logs that share `passive`.
    pub(super) fn new(state: Arc<RoundState>, passive: Arc<Passive>) -> Self {
        Self {
            state,
            passive,
            next_look: CachePadded::new(AtomicU64::new(0)),
            rounds: CachePadded::new(Mutex::new(Rounds::default())),
            waiters: CachePadded::new(Mutex::new(Waiters::default())),
            requested: CachePadded::new(AtomicU64::new(0)),
            signal: WorkSignal::default(),
            event: WakeEvent::new(),
        }
    }

    /// Returns whether the calling thread may have a round of its own: if that needs no fences of
    /// other threads, because records are durable when they are released, and no round has been
    /// checked just now.
    pub(super) fn is_quiet(&self) -> bool {
        let now = Instant::now();
        let is_quiet = self.state.logs.space(0).hardening() == Hardening::Released
            && now.after(BETWEEN_LOOKS - BEFORE_ALONE).nanos() >= self.next_look.load(Ordering::Relaxed);
        if is_quiet {
            self.next_look.store(now.after(BETWEEN_LOOKS).nanos(), Ordering::Relaxed);
        }
        is_quiet
    }

    /// Ends all waiting.
    pub(super) fn stop(&self) {
        self.end();
        self.event.stop();
    }

    /// Waits for the thread that is advancing a round. It may still pass tasks and functions to the
    /// first log, which exists while the rounds are being stopped.
    pub(super) fn await_present(&self) {
        drop(self.rounds.lock());
    }

    pub(super) fn count(&self, sum: &mut WalStats) {
        (sum.drains, sum.drain_signals, sum.fences) = self.passive.counts();
        sum.waits_for_logs = self.passive.requests();
    }

    // ----- the committer's side -----

    /// Makes the calling thread's records durable.
    #[inline]
    pub(super) fn fence(&self) {
        self.passive.fence(|log| self.region(log));
    }

    /// Requests that everything up to `gsn` be hardened, and fences the calling thread's records.
    pub(super) fn request(&self, gsn: Gsn) {
        self.fence();
        if !self.passive.request(gsn) {
            self.requested.fetch_max(gsn.get(), Ordering::AcqRel);
        }
        self.see_to_daemon();
    }

    /// Wakes the daemon if it would miss the work that the caller has just published.
    fn see_to_daemon(&self) {
        if self.signal.claim() {
            self.event.wake();
        }
    }

    fn region(&self, log: LogId) -> &Region {
        let region = self.state.logs.all()[usize::from(log.get())].device.region();
        region.expect("logs that share commit rounds have rings")
    }

    fn regions(&self) -> impl Iterator<Item = &Region> {
        (0..self.state.logs.all().len()).map(|log| self.region(LogId::new(log as u16)))
    }

    // ----- rounds -----

    fn look_if_due(&self, wanted: Gsn) {
        let now = Instant::now();
        if now.nanos() < self.next_look.load(Ordering::Relaxed) {
            return;
        }
        if let Some(mut rounds) = self.rounds.try_lock() {
            let _log = cost::scope(Category::Log);
            self.look(&mut rounds, wanted);
            self.next_look.store(Instant::now().after(BETWEEN_LOOKS).nanos(), Ordering::Relaxed);
        }
    }

    /// Advances the present round, or begins one if `wanted` is not hardened yet.
    fn look(&self, rounds: &mut Rounds, wanted: Gsn) {
        rounds.looks += 1;
        if self.state.logs.all().iter().any(|log| log.space.has_failed()) {
            return self.end();
        }
        if rounds.present.is_none() {
            if self.state.complete.get() >= wanted {
                return;
            }
            match self.begin() {
                Ok(round) => rounds.present = Some(round),
                Err(error) => {
                    self.state.fail(error);
                    return self.end();
                }
            }
        }
        let Some(round) = &mut rounds.present else { return };
        let released = |log: usize| {
            let shared = &self.state.logs.all()[log];
            shared.insertion.collect(&shared.space);
            // A log that has failed holds nothing to harden.
            shared.space.released_in_order().unwrap_or(Lsn::ZERO)
        };
        if round.is_released(released) && (round.is_durable(&self.passive) || round.has_stalled() && self.drain()) {
            self.complete(rounds);
        }
    }

    fn begin(&self) -> Result<CommitRound> {
        let (_, EpochEnd { boundary, mut tails, .. }) = self.state.logs.synchronize(LogId::ZERO)?;
        self.fence();
        // A log that has failed takes no record.
        tails.resize(self.state.logs.all().len(), Lsn::MAX);
        Ok(CommitRound::new(boundary, tails))
    }

    /// Makes all released records durable; returns whether the system supports that.
    fn drain(&self) -> bool {
        reach(Probe::StragglersDrained);
        self.passive.drain(self.regions(), || ()).is_some()
    }

    /// Ends the present round: everything before its tails is hardened.
    fn complete(&self, rounds: &mut Rounds) {
        let Some(CommitRound { gsn, tails, .. }) = rounds.present.take() else { return };
        for (log, tail) in self.state.logs.all().iter().zip(&tails) {
            log.space.set_hardened(*tail);
        }
        self.state.complete.note(gsn);
        self.tell(|waited_for| waited_for <= gsn);
    }

    /// Wakes the waiters for what a round of another thread has hardened.
    pub(super) fn wake_resolved(&self) {
        let complete = self.state.complete.get();
        self.tell(|waited_for| waited_for <= complete);
    }

    /// Ends all waiting.
    fn end(&self) {
        self.state.is_over.store(true, Ordering::Release);
        self.tell(|_| true);
    }

    /// Wakes the waiters whose GSN `is_over` accepts, because it is hardened or never will be.
    fn tell(&self, is_over: impl Fn(Gsn) -> bool) {
        let notifier = &self.state.logs.all()[0].notifier;
        let mut waiters = self.waiters.lock();
        let (threads, foreign) = waiters.take(is_over);
        let has_news = !foreign.is_empty();
        // Under the lock: the closing thread takes it before it stops the notifier.
        if has_news {
            notifier.add(foreign);
        }
        drop(waiters);
        threads.iter().for_each(|parker| parker.unpark());
        if has_news {
            notifier.wake();
        }
    }

    // ----- the daemon -----

    pub(super) fn run(&self) {
        let _guard = self.state.fail_on_panic(|| self.end());
        let mut seen = 0;
        let mut tick = TICK;
        while !self.event.is_stopped() {
            if !self.signal.is_attended() {
                self.event.wait(None);
                continue;
            }
            self.event.wait(Some(tick));
            let mut rounds = self.rounds.lock();
            tick = if rounds.looks > seen { LONG_TICK } else { TICK };
            if let Some(wanted) = self.signal.look(|| self.wanted(&rounds))
                && tick == TICK
            {
                self.look(&mut rounds, wanted);
            }
            seen = rounds.looks;
        }
    }

    /// Returns the GSN up to which the daemon has to harden, if anything is left to harden.
    fn wanted(&self, rounds: &Rounds) -> Option<Gsn> {
        let queued = self.waiters.lock().last();
        let begun = rounds.present.as_ref().map(|round| round.gsn);
        let requested = self.passive.requested().max(Gsn::new(self.requested.load(Ordering::Acquire)));
        let wanted = queued.max(begun).max(Some(requested));
        wanted.filter(|wanted| *wanted > self.state.complete.get() && !self.state.is_over())
    }

    // ----- the waiter's side -----

    /// Advances the round, and returns whether waiting for `gsn` is over.
    pub(super) fn look_for(&self, gsn: Gsn) -> bool {
        self.look_if_due(gsn);
        self.state.is_resolved(gsn)
    }

    pub(super) fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        let mut waiters = self.waiters.lock();
        if !planted!(QueuedUnseen) && self.state.is_resolved(gsn) {
            return Some(wake);
        }
        waiters.push(gsn, wake);
        drop(waiters);
        self.see_to_daemon();
        None
    }

    /// Blocks until waiting for `gsn` is over.
    pub(super) fn wait(&self, gsn: Gsn, is_requested: bool) {
        if is_requested {
            // The thread may have inserted records since its request.
            self.fence();
        } else {
            self.request(gsn);
        }
        let mut backoff = Backoff::new();
        let mut began = None;
        while !self.state.is_resolved(gsn) && !self.look_for(gsn) {
            if backoff.is_spinning() {
                backoff.snooze();
            } else if began.get_or_insert_with(Instant::now).elapsed() < SPIN_LIMIT {
                thread::yield_now();
            } else {
                let parker = Arc::new(Parker::new());
                if self.queue(gsn, Wake::Thread(Arc::clone(&parker))).is_none() {
                    parker.park();
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "fenced_tests.rs"]
mod tests;
