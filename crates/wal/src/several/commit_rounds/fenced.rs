//! [Commit rounds](super) of logs whose rings lie in persistent memory (Wang and Johnson, *Scalable
//! Logging through Emerging Non-Volatile Memory*, section 4.1). Only the thread that advances the
//! round reads the state of all logs:
//!
//! 1. The thread that begins the round fences the sync record.
//! 2. The round waits until each log is released up to its tail, and then until every thread that
//!    is dirty at that moment has fenced ([`crate::device::nvm::passive`]). It does not check a
//!    thread again that it has found clean: later records of that thread lie behind the tails. Idle
//!    threads are clean. (The paper uses the least GSN that all threads have reached. Here recovery
//!    needs every record before the tails, even those with higher GSNs than the sync record.)
//!
//! Behind durable caches, records are durable when they are released, and no thread is ever dirty.
//!
//! A commit only moves the clocks, and a round wakes no thread. A thread that checks whether its
//! commit is hardened also advances the round, unless another thread does or the last check is too
//! recent. The *daemon* sleeps while committers advance rounds, and advances them itself when all
//! waiters are parked threads, tasks or functions to be called.
//!
//! # Stragglers
//! Threads fence when they commit or roll back, and before they wait for anything but the log. Once
//! a round has waited [`DRAIN_AFTER`] for a straggler to fence, it drains all processors, for all
//! logs at once, and ends. A drained straggler does not count as dirty until it inserts again.
//!
//! # Locks
//! The thread that advances a round holds the lock of `rounds`, acquired while it holds no other
//! lock of the log. Inserting the sync record may wait for space in the ring of its log, which the
//! daemon of that log frees without that lock. Under `waiters` only the notifier's list is taken.

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
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::{Waiters, Wake};
use crate::group_commit::work_signal::WorkSignal;
use crate::several::commit_rounds::{HardenBy, RoundState};
use crate::stats::WalStats;
use crate::wake_event::WakeEvent;

/// A round that has lasted this long waits for a straggler. Most transactions commit in less time.
const DRAIN_AFTER: Duration = Duration::from_micros(500);

/// Minimum time between checks of a round by any thread: each takes cache lines from inserters.
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
    /// Once all logs are found released: the time of that, and the threads that are still behind.
    behind: Option<(Instant, Vec<Behind>)>,
}

impl CommitRound {
    pub(crate) fn new(gsn: Gsn, tails: Vec<Lsn>) -> Self {
        let logs = if planted!(OwnLogHardenedOnly) { 1 } else { tails.len() };
        Self { gsn, tails, unreleased: (0..logs).collect(), behind: None }
    }

    /// Returns whether every log is `released` up to its tail.
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

    /// Advances the present round, or begins one if `wanted` is not hardened yet.
    fn look(&self, rounds: &mut Rounds, wanted: Gsn) {
        rounds.looks += 1;
        if self.state.logs.all().iter().any(|log| log.space.has_failed()) {
            return self.end();
        }
        let mut round = match rounds.present.take() {
            Some(round) => round,
            None if self.state.complete.get() >= wanted => return,
            None => match self.begin() {
                Ok(round) => round,
                Err(error) => {
                    self.state.fail(error);
                    return self.end();
                }
            },
        };
        let released = |log: usize| {
            let shared = &self.state.logs.all()[log];
            shared.insertion.collect(&shared.space);
            // A log that has failed holds nothing to harden.
            shared.space.released_in_order().unwrap_or(Lsn::ZERO)
        };
        let is_hardened =
            round.is_released(released) && (round.is_durable(&self.passive) || round.has_stalled() && self.drain());
        if !is_hardened {
            rounds.present = Some(round);
            return;
        }
        // Everything before the tails is hardened.
        for (log, tail) in self.state.logs.all().iter().zip(&round.tails) {
            log.space.set_hardened(*tail);
        }
        self.state.complete.note(round.gsn);
        self.tell(|waited_for| waited_for <= round.gsn);
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
        let logs = (0..self.state.logs.all().len()).map(|log| LogId::new(log as u16));
        self.passive.drain(logs.map(|log| self.region(log)), || ()).is_some()
    }

    fn end(&self) {
        self.state.is_over.store(true, Ordering::Release);
        self.tell(|_| true);
    }

    /// Wakes the waiters whose GSN `is_over` accepts, because it is hardened or never will be.
    fn tell(&self, is_over: impl Fn(Gsn) -> bool) {
        let notifier = &self.state.logs.all()[0].notifier;
        let resolved = notifier.take_resolved(&mut self.waiters.lock(), is_over);
        notifier.wake(resolved);
    }

    /// Returns the GSN up to which the daemon has to harden, if anything is left to harden.
    fn wanted(&self, rounds: &Rounds) -> Option<Gsn> {
        let queued = self.waiters.lock().last();
        let begun = rounds.present.as_ref().map(|round| round.gsn);
        let requested = self.passive.requested().max(Gsn::new(self.requested.load(Ordering::Acquire)));
        let wanted = queued.max(begun).max(Some(requested));
        wanted.filter(|wanted| *wanted > self.state.complete.get() && !self.state.is_over())
    }
}

impl HardenBy for FencedRounds {
    fn run(&self) {
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

    fn stop(&self) {
        self.end();
        self.event.stop();
    }

    /// The thread may still pass tasks and functions to the first log, which exists while the
    /// rounds are being stopped.
    fn await_present(&self) {
        drop(self.rounds.lock());
    }

    fn count(&self, sum: &mut WalStats) {
        (sum.drains, sum.drain_signals, sum.fences) = self.passive.counts();
        sum.waits_for_logs = self.passive.requests();
    }

    fn fence(&self) {
        self.passive.fence(|log| self.region(log));
    }

    fn request(&self, gsn: Gsn) {
        self.fence();
        if !self.passive.request(gsn) {
            self.requested.fetch_max(gsn.get(), Ordering::AcqRel);
        }
        self.see_to_daemon();
    }

    /// That is so if a round needs no fences of other threads, because records are durable when
    /// they are released, and no round has been checked just now.
    fn is_quiet(&self) -> bool {
        let now = Instant::now();
        let is_quiet = self.state.logs.space(0).hardening() == Hardening::Released
            && now.after(BETWEEN_LOOKS - BEFORE_ALONE).nanos() >= self.next_look.load(Ordering::Relaxed);
        if is_quiet {
            self.next_look.store(now.after(BETWEEN_LOOKS).nanos(), Ordering::Relaxed);
        }
        is_quiet
    }

    fn wake_resolved(&self) {
        let complete = self.state.complete.get();
        self.tell(|waited_for| waited_for <= complete);
    }

    fn look_for(&self, gsn: Gsn) -> bool {
        if Instant::now().nanos() >= self.next_look.load(Ordering::Relaxed)
            && let Some(mut rounds) = self.rounds.try_lock()
        {
            let _log = cost::scope(Category::Log);
            self.look(&mut rounds, gsn);
            self.next_look.store(Instant::now().after(BETWEEN_LOOKS).nanos(), Ordering::Relaxed);
        }
        self.state.is_resolved(gsn)
    }

    fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        let mut waiters = self.waiters.lock();
        if !planted!(QueuedUnseen) && self.state.is_resolved(gsn) {
            return Some(wake);
        }
        waiters.push(gsn, wake);
        drop(waiters);
        self.see_to_daemon();
        None
    }

    fn wait(&self, _home: LogId, gsn: Gsn, ask: Ask) {
        if ask.is_requested() {
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
