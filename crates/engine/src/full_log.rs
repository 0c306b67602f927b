//! What a transaction does when the log has no space for its reservation.
//!
//! The transaction tries the reservation again until the log grants it. Between two attempts it
//! removes the one obstacle in its way, or waits until another thread has removed it. It finds the
//! obstacle by computing how much space there would be without it:
//!
//! | no space, even if the log kept only what is needed by | what the transaction does |
//! |---|---|
//! | transactions, some of them in doubt since the last crash | it finishes the in-doubt ones |
//! | transactions, some of them committed, with deferred frees | it retries these frees, once |
//! | the transaction alone | it is refused |
//! | transactions, some of which are at work | it waits for them, as long as they make progress |
//! | transactions, all of which wait for log space | all but the oldest give way and are refused |
//! | transactions and dirty pages | it takes a checkpoint |
//! | these and the archive or a backup | it waits for the copy, as long as it makes progress |
//!
//! No transaction waits for more log space than it needs. Every wait is watched ([`Watch`]): if the
//! awaited work makes no progress for [`COPY_STALL_LIMIT`] or [`TRANSACTION_STALL_LIMIT`],
//! the waiter is refused with the reason. So the wait is bounded even if the awaited transaction
//! waits for a lock that the waiter holds; and a transaction that is known to make no progress
//! delays no other transaction. No transaction waits for an archive that has failed.
//!
//! # The queue
//! One thread at a time removes obstacles ([`LogQueue::turn`]); later threads wait for this mutex,
//! without latches. Transactions that have reserved nothing yet come last, and wait for each other
//! first ([`LogQueue::door`]), even if there is space: otherwise the log would continue to grow
//! behind a waiting transaction, which then keeps it. Such new transactions obstruct no other
//! transaction and need not give way.

use std::time::Duration;

use duramen_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Mutex, thread};
use duramen_types::Gsn;
use duramen_wal::Retainer;

use crate::checkpoint::Checkpointer;
use crate::checkpoint::control::ControlFile;
use crate::error::{Error, Result};
use crate::health::Health;
use crate::maintenance::Maintenance;
use crate::recovery::BackgroundRecovery;
use crate::scheme::{LogService, StorageScheme};
use crate::txn_state::deferred_free::DeferredFrees;
use crate::txn_state::log::Missing;
use crate::txn_state::table::{TxnEntry, TxnTable};

/// Interval at which a waiter checks again.
const LOOK: Duration = Duration::from_millis(1);

/// How long the archive or a backup may make no progress.
const COPY_STALL_LIMIT: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

/// How long other transactions may make no progress.
const TRANSACTION_STALL_LIMIT: Duration = Duration::from_millis(500);

/// Limit of checkpoints for one reservation: if other transactions take the freed space every time,
/// there is too little for all.
const MOST_CHECKPOINTS: u32 = 100;

/// The queue of transactions that found the log full.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    /// Held by the new transaction that comes next.
    door: Mutex<()>,
    /// Held by the transaction that removes obstacles.
    turn: Mutex<Watches>,
    /// The missing space of each of them, with what it has reserved.
    waiting: Mutex<Vec<Missing>>,
    /// Number of entries in `waiting`.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Watches {
    copies: Watch,
    others: Watch,
}

/// Watches whether a value changes.
#[derive(Debug, Default)]
struct Watch(Option<Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    value: u64,
    since: Instant,
    last: Instant,
}

impl Watch {
    /// The longest interval between two observations after which they still count as continuous.
    const PAUSE: Duration = Duration::from_secs(1);

    /// Returns for how long `value` has been the same, as far as the observations show.
    fn unchanged(&mut self, value: u64, now: Instant) -> Duration {
        let since = match self.0 {
            Some(seen) if seen.value == value && now.since(seen.last) <= Self::PAUSE => seen.since,
            _ => now,
        };
        self.0 = Some(Seen { value, since, last: now });
        now.since(since)
    }
}

/// The obstacles to a reservation at one moment.
#[derive(Clone, Copy, Debug)]
struct View {
    /// There would be space if the log kept only what transactions need.
    behind_transactions: bool,
    /// There would be space if there were no other transaction.
    fits_alone: bool,
    /// Another transaction, one that keeps the log or has reserved some of it, is at work.
    is_space_to_come: bool,
    /// The caller's transaction obstructs others, and is not the oldest.
    gives_way: bool,
    /// There would be space if the log were recycled up to the point that the latest checkpoint
    /// allows.
    behind_checkpoint: bool,
    has_in_doubt: bool,
    has_deferred_frees: bool,
    /// A checkpoint is being taken.
    in_checkpoint: bool,
    retainer: Option<Retainer>,
}

/// What has been tried for a reservation so far.
#[derive(Clone, Copy, Default, Debug)]
struct Tried {
    deferred: bool,
    checkpoints: u32,
    /// The latest checkpoint did not advance the oldest log that is needed.
    in_vain: bool,
    /// Number of consecutive attempts that found no obstacle, or only the disk.
    unexplained: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remedy {
    /// No obstacle is left.
    TryAgain,
    FinishInDoubt,
    RetryDeferredFrees,
    Checkpoint,
    /// Takes a checkpoint, like `Checkpoint`, but to free disk space.
    Recycle,
    AwaitCheckpoint,
    /// Another transaction will give space back.
    AwaitOthers,
    /// All other transactions wait for space, too; they must be refused to free some.
    LetGiveWay,
    AwaitCopies,
    Refuse(Culprit),
}

/// The obstacle that a refusal names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Culprit {
    /// The caller's transaction.
    Itself,
    /// The oldest transaction, or all together.
    Transactions,
    Pages,
    /// The reason that the log itself gave.
    Log,
}

impl View {
    fn remedy(&self, tried: Tried) -> Remedy {
        if !self.behind_transactions {
            return match () {
                () if self.has_in_doubt => Remedy::FinishInDoubt,
                () if self.has_deferred_frees && !tried.deferred => Remedy::RetryDeferredFrees,
                // The checkpoint has a reservation, too, of unknown size.
                () if self.in_checkpoint => Remedy::AwaitCheckpoint,
                () if !self.fits_alone => Remedy::Refuse(Culprit::Itself),
                () if self.is_space_to_come => Remedy::AwaitOthers,
                () if self.gives_way => Remedy::Refuse(Culprit::Transactions),
                () => Remedy::LetGiveWay,
            };
        }
        let may_checkpoint = tried.checkpoints < MOST_CHECKPOINTS;
        if !self.behind_checkpoint {
            return match () {
                () if tried.in_vain => Remedy::Refuse(Culprit::Pages),
                () if may_checkpoint => Remedy::Checkpoint,
                () => Remedy::Refuse(Culprit::Log),
            };
        }
        match self.retainer {
            Some(Retainer::Archive { has_failed: true }) => Remedy::Refuse(Culprit::Log),
            Some(_) => Remedy::AwaitCopies,
            // The checkpoint recycles the log at its end.
            None if self.in_checkpoint => Remedy::AwaitCheckpoint,
            // Most likely another thread has freed space since. If not, the disk may be full:
            // recycled segments need no new disk space.
            None => match tried.unexplained {
                0 => Remedy::TryAgain,
                1 if may_checkpoint => Remedy::Recycle,
                _ => Remedy::Refuse(Culprit::Log),
            },
        }
    }
}

impl Tried {
    fn note(&mut self, remedy: Remedy) {
        self.deferred |= remedy == Remedy::RetryDeferredFrees;
        self.checkpoints += u32::from(matches!(remedy, Remedy::Checkpoint | Remedy::Recycle));
        match remedy {
            Remedy::TryAgain | Remedy::Recycle => self.unexplained += 1,
            _ => self.unexplained = 0,
        }
    }
}

/// The transactions, as seen by one that found the log full.
#[derive(Debug)]
struct Transactions {
    /// The transaction that keeps the log, and the bytes that it has reserved.
    oldest: Option<(TxnEntry, u64)>,
    /// Bytes that all transactions have reserved.
    set_aside: u64,
    /// Bytes reserved by those transactions that do not wait for space.
    at_work: u64,
}

impl LogQueue {
    /// Returns whether a transaction waits for space.
    pub(crate) fn has_line(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns whether a transaction that has already reserved space waits for more.
    fn has_old(&self) -> bool {
        self.waiting.lock().iter().any(|missing| !missing.is_new())
    }

    /// Enters a transaction into the queue until the returned guard is dropped.
    fn wait(&self, missing: Missing) -> Waiting<'_> {
        self.waiting.lock().push(missing);
        self.count.fetch_add(1, Ordering::Relaxed);
        Waiting { all: self, missing }
    }
}

struct Waiting<'a> {
    all: &'a LogQueue,
    missing: Missing,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.all.waiting.lock();
        let at = waiting.iter().position(|missing| *missing == self.missing).expect("it has been entered");
        waiting.swap_remove(at);
        self.all.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Missing {
    /// Returns whether the transaction has reserved nothing yet.
    fn is_new(&self) -> bool {
        self.reserved == 0 && self.first.is_zero()
    }
}

/// A log that has refused a reservation, and the parts that may free space in it.
pub(crate) struct FullLog<'e> {
    pub(crate) queue: &'e LogQueue,
    pub(crate) scheme: &'e dyn StorageScheme,
    pub(crate) log: &'e dyn LogService,
    pub(crate) health: &'e Health,
    pub(crate) control: &'e Mutex<ControlFile>,
    pub(crate) txns: &'e TxnTable,
    pub(crate) deferred: &'e DeferredFrees,
    pub(crate) background: &'e BackgroundRecovery,
    pub(crate) checkpointer: &'e Checkpointer,
    /// Bytes that the log may use.
    pub(crate) limit: u64,
    pub(crate) maintenance: &'e dyn Maintenance,
}

impl FullLog<'_> {
    /// Reserves the space that the log has refused, as soon as it is available. Called without
    /// latches.
    ///
    /// # Errors
    /// [`Error::Full`] with the reason if there will be no space; errors of a checkpoint.
    pub(crate) fn reserve(&self, missing: Missing) -> Result<()> {
        // The commits of other transactions must not wait for this thread's own record.
        self.scheme.before_blocking();
        let _waiting = self.queue.wait(missing);
        let _door = missing.is_new().then(|| self.queue.door.lock());
        let mut watches = self.queue.turn.lock();
        let (mut tried, mut is_certain) = (Tried::default(), false);
        loop {
            self.health.check()?;
            if missing.is_new() && self.queue.has_old() {
                drop(watches);
                thread::sleep(LOOK);
                watches = self.queue.turn.lock();
                continue;
            }
            let refusal = match self.scheme.reserve(missing.bytes) {
                Err(Error::Full { reason }) => reason,
                other => return other,
            };
            let (view, transactions) = self.look_at_log(missing);
            let remedy = view.remedy(tried);
            if let Some(refused) = self.refuse(remedy, refusal, missing, &transactions, &mut watches) {
                // The values were read one after the other; together they may never have held at
                // one moment.
                if is_certain {
                    return Err(refused);
                }
                is_certain = true;
                continue;
            }
            is_certain = false;
            tried.note(remedy);
            match remedy {
                Remedy::FinishInDoubt => self.maintenance.finish_in_doubt(&AtomicBool::new(false))?,
                Remedy::RetryDeferredFrees => self.maintenance.free_log_of_deferred_frees(),
                Remedy::Checkpoint | Remedy::Recycle => {
                    let before = self.oldest_needed();
                    self.maintenance.checkpoint_to_free_log()?;
                    // A checkpoint taken to free disk space may find that a transaction keeps the
                    // log; that transaction will end.
                    tried.in_vain = remedy == Remedy::Checkpoint && self.oldest_needed() <= before;
                }
                Remedy::LetGiveWay => {
                    drop(watches);
                    thread::sleep(LOOK);
                    watches = self.queue.turn.lock();
                }
                _ => thread::sleep(LOOK),
            }
        }
    }

    /// Returns the GSN below which the latest checkpoint needs no log.
    fn oldest_needed(&self) -> Gsn {
        self.control.lock().control.oldest
    }

    fn look_at_log(&self, missing: Missing) -> (View, Transactions) {
        let (log, bytes) = (self.log, missing.bytes);
        let for_checkpoints = self.checkpointer.reserved();
        let set_aside = log.set_aside().saturating_sub(for_checkpoints.unwrap_or_default());
        let oldest = self.txns.oldest();
        let waiting = self.queue.waiting.lock().clone();
        let at_work = set_aside.saturating_sub(waiting.iter().map(|missing| missing.reserved).sum());
        let waits = |entry: &TxnEntry| waiting.iter().any(|missing| missing.txn == entry.txn);
        let is_oldest = oldest.is_none_or(|(entry, _)| entry.txn == missing.txn);
        let end = || log.end();
        let own_first = if missing.first.is_zero() { end() } else { missing.first };
        let view = View {
            behind_transactions: log.has_room_from(oldest.map_or_else(end, |(entry, _)| entry.first), bytes, 0),
            fits_alone: log.has_room_from(own_first, bytes, set_aside.saturating_sub(missing.reserved)),
            is_space_to_come: at_work > 0 || oldest.is_some_and(|(entry, _)| !waits(&entry)),
            gives_way: !missing.is_new() && !is_oldest,
            behind_checkpoint: log.has_room_from(self.oldest_needed(), bytes, 0),
            has_in_doubt: self.background.transactions() > 0,
            has_deferred_frees: !self.deferred.is_empty(),
            in_checkpoint: for_checkpoints.is_none(),
            retainer: log.retainer(bytes),
        };
        (view, Transactions { oldest, set_aside, at_work })
    }

    /// Returns the error of a transaction that must be refused: there will be no space, or the
    /// awaited work has made no progress for too long.
    fn refuse(
        &self,
        remedy: Remedy,
        refusal: String,
        missing: Missing,
        transactions: &Transactions,
        watches: &mut Watches,
    ) -> Option<Error> {
        let limit = self.limit;
        let Transactions { oldest, set_aside, at_work } = *transactions;
        let still_for = |watch: &mut Watch, state| watch.unchanged(state, Instant::now());
        let reason = match remedy {
            Remedy::AwaitCopies => {
                self.log.call_archive();
                let still = still_for(&mut watches.copies, self.log.retainers_progress());
                if still < COPY_STALL_LIMIT {
                    return None;
                }
                format!("{refusal}; nothing has been copied for {} s", still.as_secs())
            }
            Remedy::AwaitOthers | Remedy::LetGiveWay => {
                let state = at_work ^ oldest.map_or(0, |(entry, _)| entry.last.get());
                if still_for(&mut watches.others, state) < TRANSACTION_STALL_LIMIT {
                    return None;
                }
                of_transactions(limit, set_aside, oldest.filter(|(entry, _)| entry.txn != missing.txn), self.log)
            }
            Remedy::Refuse(Culprit::Transactions) => of_transactions(limit, set_aside, oldest, self.log),
            Remedy::Refuse(Culprit::Itself) if !missing.first.is_zero() => {
                let Missing { txn, first, reserved, .. } = missing;
                let kept = self.log.bytes_from(first);
                format!(
                    "the log may use {limit} bytes; {txn} itself, which began at {first}, keeps {kept} of them from \
                     being recycled and reserves {reserved} for its rollback"
                )
            }
            Remedy::Refuse(Culprit::Pages) => {
                let oldest = self.oldest_needed();
                format!(
                    "{refusal}; pages that cannot be written with their latest changes need the log from {oldest} on"
                )
            }
            Remedy::Refuse(_) => refusal,
            _ => return None,
        };
        Some(Error::Full { reason })
    }
}

/// Describes which transaction keeps the log, and how much log space all have reserved.
fn of_transactions(limit: u64, set_aside: u64, oldest: Option<(TxnEntry, u64)>, log: &dyn LogService) -> String {
    let keeps = oldest.map(|(TxnEntry { txn, first, .. }, _)| {
        let kept = log.bytes_from(first);
        format!("{txn}, which began at {first}, keeps {kept} of them from being recycled, and ")
    });
    format!(
        "the log may use {limit} bytes; {}the open transactions reserve {set_aside} for their rollbacks",
        keeps.unwrap_or_default()
    )
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
