//! [Commit rounds](super) of logs in files. They are to several logs what a flush is to one: the
//! [commit queue](crate::group_commit::queue) decides which thread begins a round, and when, and
//! wakes the waiters. That thread is the daemon, or a committer that has to wait anyway.
//!
//! The thread inserts the sync record and has all logs that are not hardened up to their tails
//! flushed at once: it flushes the log with the sync record, and the daemons of the others flush
//! theirs. A committer puts the sync record into its own log, so a lone committer costs one write.
//!
//! # Locks
//! The thread holds no lock during a round. Inserting the sync record may wait for room in the
//! buffer of its log, which the daemon of that log makes without a round.

use duramen_sync::Arc;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::{Gsn, LogId};

use crate::group_commit::policy::Due;
use crate::group_commit::progress::Progress;
use crate::group_commit::queue::CommitQueue;
use crate::group_commit::requests::Ask;
use crate::group_commit::wake::Wake;
use crate::several::commit_rounds::{HardenBy, RoundState};
use crate::several::durable_gsn::next;
use crate::stats::WalStats;
use crate::wake_event::WakeEvent;

/// Rounds that flush the logs.
#[derive(Debug)]
pub(super) struct FlushedRounds {
    state: Arc<RoundState>,
    /// The round in progress, or the last one, hardens everything below this GSN.
    in_round: AtomicU64,
    queue: CommitQueue<Gsn>,
    event: Arc<WakeEvent>,
}

impl Progress for FlushedRounds {
    type At = Gsn;

    fn hardened(&self) -> Gsn {
        next(self.state.complete.get())
    }

    fn in_flush(&self) -> Gsn {
        Gsn::new(self.in_round.load(Ordering::Acquire))
    }

    fn has_failed(&self) -> bool {
        self.state.is_over()
    }

    /// Each log flushes by itself when it has many bytes, or when insertions wait for room.
    fn unflushed(&self) -> u64 {
        0
    }

    fn is_short_of_room(&self) -> bool {
        false
    }
}

impl FlushedRounds {
    pub(super) fn new(state: Arc<RoundState>) -> Self {
        let first = &state.logs.all()[0];
        let event = Arc::new(WakeEvent::new());
        let queue = CommitQueue::new(first.options.group_commit, Arc::clone(&event), Arc::clone(&first.notifier));
        Self { state, in_round: AtomicU64::new(0), queue, event }
    }

    /// Hardens everything inserted so far. The caller has the right to flush (see [`CommitQueue`]).
    fn harden_all(&self, home: LogId) {
        let _guard = self.state.fail_on_panic(|| self.end());
        let begun = |gsn: Gsn| self.in_round.store(next(gsn).get(), Ordering::Release);
        if let Err(error) = self.state.round(home, begun) {
            self.state.fail(error);
            self.end();
        }
    }

    fn end(&self) {
        self.state.is_over.store(true, Ordering::Release);
        self.wake_resolved();
    }
}

impl HardenBy for FlushedRounds {
    fn run(&self) {
        let _guard = self.state.fail_on_panic(|| self.end());
        while !self.event.is_stopped() {
            match self.queue.due(self) {
                Due::Now => {
                    self.harden_all(LogId::ZERO);
                    self.queue.end_flush(self);
                }
                Due::In(time) => self.event.wait(Some(time)),
                Due::Never => self.event.wait(None),
            }
        }
    }

    fn stop(&self) {
        self.end();
        self.event.stop();
    }

    fn count(&self, sum: &mut WalStats) {
        let counts = self.queue.counts();
        sum.hardening_waits = counts.waits;
        sum.waits_for_logs = counts.requests;
    }

    fn request(&self, gsn: Gsn) {
        self.queue.request(self, gsn);
    }

    fn is_quiet(&self) -> bool {
        self.queue.is_quiet()
    }

    fn wake_resolved(&self) {
        self.queue.wake_resolved(self);
    }

    fn queue(&self, gsn: Gsn, wake: Wake) -> Option<Wake> {
        self.queue.queue(self, gsn, wake)
    }

    fn wait(&self, home: LogId, gsn: Gsn, ask: Ask) {
        let mut waiter = self.queue.waiter(gsn, ask);
        while self.queue.must_flush(self, &mut waiter) {
            self.harden_all(home);
        }
    }
}

#[cfg(all(test, duramen_loom))]
#[path = "flushed_tests.rs"]
mod models;
