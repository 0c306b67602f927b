//! CommitRounds commit over several logs whose rings are in persistent memory (Wang and Johnson,
//! *Scalable Logging through Emerging Non-Volatile Memory*, section 4.1).
//!
//! A commit there is an ordinary record. What makes the logs whole up to it after a crash, and
//! tells when it is hardened, is one *round* for all who commit meanwhile, in which nobody looks at
//! all logs but who is at it:
//!
//! 1. A synchronization of all logs is inserted ([`crate::several::log_set`]), with a GSN above
//!    those of all records so far, and fenced. It notes where each log ends, its tail. All records
//!    up to its GSN lie before the tails, in every log.
//! 2. The round waits until each log is released up to its tail, and then until every thread that
//!    is dirty then has fenced ([`crate::device::nvm::passive`]). Who has been seen clean is not
//!    looked at again: what it inserts later lies behind the tails. Idle threads are clean. (In the
//!    paper the same is done for the least GSN that all threads have reached; but recovery needs
//!    whatever is before the tails, also what has a higher GSN than the synchronization.)
//! 3. Everything before the tails is hardened, the synchronization included, and whoever waits for
//!    something up to its GSN is told.
//!
//! Nobody's commit writes to memory that all share, and no thread has to be woken for a round:
//! whoever looks whether a commit is hardened takes it a step further, if nobody is at it and the
//! last look is not too recent. The *daemon* sleeps as long as others do that. It sees to rounds
//! when nobody looks, because all who wait sleep, or are tasks or functions to be called.
//!
//! Behind volatile caches it is always so. Behind durable ones records are durable when they are
//! released, and no thread is ever dirty; a round is then about the synchronization alone, which
//! each commit would have to be else.
//!
//! # Stragglers
//! Threads fence when they commit, when they roll back, and before they wait for something else
//! than the log. One that has still not fenced when a round has lasted for [`DRAIN_AFTER`] is a
//! straggler: then all processors are drained, for all logs at once, and the round is over. As long
//! as it inserts nothing more it does not count.
//!
//! # Locks
//! Who takes a round further has `rounds` locked, and comes with no other lock of the log.
//! Inserting the synchronization may wait for room in its log's ring, which the daemon of that log
//! makes without this lock. `waiters` is a leaf.

use std::time::Duration;

use duramen_pmem::Region;
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::cost::{self, Category};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::thread::{self, JoinHandle, Parker};
use duramen_sync::{Arc, Backoff, CachePadded, Mutex};
use duramen_types::{Gsn, LogId, Lsn, planted};

use crate::device::nvm::passive::{Behind, Passive};
use crate::error::{Result, WalError};
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::{Waiters, Wake};
use crate::group_commit::work_signal::WorkSignal;
use crate::several::complete::DurableGsn;
use crate::several::log_set::LogSet;
use crate::stats::WalStats;
use crate::stream::part::Hardens;
use crate::wake_event::WakeEvent;

/// A round that has lasted so long waits for a straggler. Most transactions commit in less.
const DRAIN_AFTER: Duration = Duration::from_micros(500);

/// From one look at a round to the next, for all threads log_set: each look takes lines from the
/// caches of those who insert.
const BETWEEN_LOOKS: Duration = Duration::from_micros(5);

/// How long a thread waits without sleeping.
const SPIN_LIMIT: Duration = Duration::from_micros(60);

/// How long the daemon sleeps from one look to the next when nobody else looks, and when others do.
const TICK: Duration = Duration::from_micros(100);
const LONG_TICK: Duration = Duration::from_millis(1);

/// Several logs that are hardened log_set.
#[derive(Debug)]
pub(crate) struct CommitRounds {
    logs: Arc<LogSet>,
    passive: Arc<Passive>,
    complete: Arc<DurableGsn>,
    /// Before this time, in nanoseconds, a look at the round is too early.
    next_look: CachePadded<AtomicU64>,
    rounds: CachePadded<Mutex<Rounds>>,
    waiters: CachePadded<Mutex<Waiters<Gsn>>>,
    /// What threads have asked for that have no cell.
    requested: CachePadded<AtomicU64>,
    /// Whether the daemon looks for work by itself.
    signal: WorkSignal,
    /// Wakes the daemon.
    event: WakeEvent,
    /// One of the logs has failed, or they are closed: there is nothing to wait for.
    is_over: AtomicBool,
    daemon: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Rounds {
    present: Option<Round>,
    /// Looks taken.
    looks: u64,
}

/// Everything up to a GSN on its way to being hardened.
#[derive(Debug)]
pub(crate) struct Round {
    gsn: Gsn,
    /// Behind the last record up to the GSN in each log, or further.
    tails: Vec<Lsn>,
    /// Logs that were not released so far when they were looked at last.
    unreleased: Vec<usize>,
    /// Once all are: since when, and the threads that were behind when they were looked at last.
    behind: Option<(Instant, Vec<Behind>)>,
}

impl Round {
    pub(crate) fn new(gsn: Gsn, tails: Vec<Lsn>) -> Self {
        let logs = if planted!(OwnLogHardenedOnly) { 1 } else { tails.len() };
        Self { gsn, tails, unreleased: (0..logs).collect(), behind: None }
    }

    /// Whether every log is released up to its tail, as `released` tells.
    pub(crate) fn is_released(&mut self, released: impl Fn(usize) -> Lsn) -> bool {
        self.unreleased.retain(|log| released(*log) < self.tails[*log]);
        self.unreleased.is_empty()
    }

    /// Whether everything is durable; all logs have been found released.
    pub(crate) fn is_durable(&mut self, passive: &Passive) -> bool {
        let (_, behind) = self.behind.get_or_insert_with(|| (Instant::now(), passive.behind()));
        behind.retain(|behind| passive.is_behind(behind));
        behind.is_empty()
    }

    /// Whether it has been waiting for threads for too long.
    fn has_stalled(&self) -> bool {
        self.behind.as_ref().is_some_and(|(since, _)| since.elapsed() >= DRAIN_AFTER)
    }
}

impl CommitRounds {
    /// Logs that share this, complete up to where that says.
    pub(crate) fn new(logs: Arc<LogSet>, passive: Arc<Passive>, complete: Arc<DurableGsn>) -> Self {
        Self {
            logs,
            passive,
            complete,
            next_look: CachePadded::new(AtomicU64::new(0)),
            rounds: CachePadded::new(Mutex::new(Rounds::default())),
            waiters: CachePadded::new(Mutex::new(Waiters::default())),
            requested: CachePadded::new(AtomicU64::new(0)),
            signal: WorkSignal::default(),
            event: WakeEvent::new(),
            is_over: AtomicBool::new(false),
            daemon: Mutex::new(None),
        }
    }

    /// Starts the daemon.
    pub(crate) fn start(self: &Arc<Self>) -> Result<()> {
        let group = Arc::clone(self);
        let daemon = thread::spawn("duramen-log-group", move || group.run());
        let daemon = daemon.map_err(|error| WalError::System {
            what: "a thread for `duramen-log-group`".to_owned(),
            reason: error.to_string(),
        })?;
        *self.daemon.lock() = Some(daemon);
        Ok(())
    }

    /// Ends all waiting: the logs are about to be stopped. Nothing happens the second time.
    pub(crate) fn stop(&self) {
        self.end();
        self.event.stop();
        if let Some(daemon) = self.daemon.lock().take() {
            // A panic there has been reported on its thread.
            let _ = daemon.join();
        }
        // Who is taking a round further has tasks and functions to pass on to the first log, which
        // is there as yet.
        drop(self.rounds.lock());
    }

    /// Counts that are the same for all logs, and requests.
    pub(crate) fn count(&self, sum: &mut WalStats) {
        (sum.drains, sum.drain_signals, sum.fences) = self.passive.counts();
        sum.waits_for_logs += self.passive.requests();
    }

    // ----- who commits -----

    /// Makes what the calling thread has inserted durable. It commits, or is about to wait for
    /// something else than the logs.
    #[inline]
    pub(crate) fn fence(&self) {
        self.passive.fence(|log| self.region(log));
    }

    /// The calling thread asks for everything up to `gsn` to be hardened.
    pub(crate) fn request(&self, gsn: Gsn) {
        self.fence();
        if !self.passive.request(gsn) {
            self.requested.fetch_max(gsn.get(), Ordering::AcqRel);
        }
        self.see_to_daemon();
    }

    /// The caller has made known that there is something to harden.
    fn see_to_daemon(&self) {
        if self.signal.claim() {
            self.event.wake();
        }
    }

    fn is_resolved(&self, gsn: Gsn) -> bool {
        self.complete.get() >= gsn || self.is_over.load(Ordering::Acquire)
    }

    fn region(&self, log: LogId) -> &Region {
        let region = self.logs.all()[usize::from(log.get())].device.region();
        region.expect("logs that are hardened together have rings")
    }

    fn regions(&self) -> impl Iterator<Item = &Region> {
        (0..self.logs.all().len()).map(|log| self.region(LogId::new(log as u16)))
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

    /// Takes the present round further, or begins one if `wanted` is to be hardened.
    fn look(&self, rounds: &mut Rounds, wanted: Gsn) {
        rounds.looks += 1;
        if self.logs.all().iter().any(|log| log.space.has_failed()) {
            return self.end();
        }
        if rounds.present.is_none() {
            if self.complete.get() >= wanted {
                return;
            }
            match self.begin() {
                Ok(round) => rounds.present = Some(round),
                Err(error) => {
                    self.logs.all()[0].fail(error);
                    return self.end();
                }
            }
        }
        let Some(round) = &mut rounds.present else { return };
        let released = |log: usize| {
            let shared = &self.logs.all()[log];
            shared.insertion.collect(&shared.space);
            // Nothing is in a log that has failed.
            shared.space.released_in_order().unwrap_or(Lsn::ZERO)
        };
        if round.is_released(released) && (round.is_durable(&self.passive) || round.has_stalled() && self.drain()) {
            self.complete(rounds);
        }
    }

    fn begin(&self) -> Result<Round> {
        let mut tails = Vec::with_capacity(self.logs.all().len());
        let last = Gsn::new(self.logs.latest().get() - 1);
        let inserted = self.logs.synchronize(last, &mut tails)?;
        self.fence();
        // A log that has failed takes no record.
        tails.resize(self.logs.all().len(), Lsn::MAX);
        tails[usize::from(inserted.log.get())] = inserted.end;
        Ok(Round::new(inserted.gsn, tails))
    }

    /// Makes everything durable that is released; returns whether the system can do that.
    fn drain(&self) -> bool {
        reach(Probe::StragglersDrained);
        self.passive.drain(self.regions(), || ()).is_some()
    }

    /// Ends the present round: what it is about is hardened.
    fn complete(&self, rounds: &mut Rounds) {
        let Some(Round { gsn, tails, .. }) = rounds.present.take() else { return };
        for (log, tail) in self.logs.all().iter().zip(&tails) {
            log.space.set_hardened(*tail);
        }
        self.complete.note(gsn);
        self.tell(|waited_for| waited_for <= gsn);
    }

    /// Ends all waiting.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.tell(|_| true);
    }

    /// Tells those who wait for what `is_over` says is hardened, or never will be.
    fn tell(&self, is_over: impl Fn(Gsn) -> bool) {
        let (threads, foreign) = self.waiters.lock().take(is_over);
        threads.iter().for_each(|parker| parker.unpark());
        if !foreign.is_empty() {
            self.logs.all()[0].queue.notify(foreign);
        }
    }

    // ----- the daemon -----

    fn run(&self) {
        let _guard = EndOnPanic(self);
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

    /// Up to where it has to be seen to that everything is hardened, if it is not.
    fn wanted(&self, rounds: &Rounds) -> Option<Gsn> {
        let queued = self.waiters.lock().last();
        let begun = rounds.present.as_ref().map(|round| round.gsn);
        let requested = self.passive.requested().max(Gsn::new(self.requested.load(Ordering::Acquire)));
        let wanted = queued.max(begun).max(Some(requested));
        wanted.filter(|wanted| *wanted > self.complete.get() && !self.is_over.load(Ordering::Acquire))
    }
}

impl Hardens for CommitRounds {
    type Position = Gsn;

    /// Takes the round further if not.
    fn is_ready(&self, gsn: Gsn) -> bool {
        self.is_resolved(gsn) || {
            self.look_if_due(gsn);
            self.is_resolved(gsn)
        }
    }

    fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        let mut waiters = self.waiters.lock();
        if !planted!(QueuedUnseen) && self.is_resolved(gsn) {
            return Some(wake);
        }
        waiters.push(gsn, wake);
        drop(waiters);
        self.see_to_daemon();
        None
    }

    fn wait(&self, gsn: Gsn, _: Ask) -> Result<()> {
        // It may have inserted something since.
        self.fence();
        let mut backoff = Backoff::new();
        let mut began = None;
        while !self.is_ready(gsn) {
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
        self.outcome(gsn)
    }

    fn outcome(&self, gsn: Gsn) -> Result<()> {
        if self.complete.get() >= gsn {
            return Ok(());
        }
        let failed = self.logs.all().iter().enumerate().find(|(_, log)| log.space.has_failed());
        Err(failed.map_or(WalError::Closed, |(log, shared)| shared.refusal().in_log(LogId::new(log as u16))))
    }
}

/// Ends all waiting when the daemon panics.
struct EndOnPanic<'a>(&'a CommitRounds);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.logs.all()[0].fail(WalError::System {
                what: "to go on".to_owned(),
                reason: "the thread that hardens the logs panicked".to_owned(),
            });
            self.0.end();
        }
    }
}

#[cfg(test)]
#[path = "commit_rounds_tests.rs"]
mod tests;
