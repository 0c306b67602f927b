//! What a transaction does when the log has no space for what it is to reserve.
//!
//! It tries the reservation again until that succeeds. Between two attempts it removes the one
//! obstacle in its way, or waits until another thread has. It finds the obstacle by asking how much
//! space there would be without it:
//!
//! | no space, even if the log kept nothing but what is needed by | what the transaction does |
//! |---|---|
//! | transactions, some of them in doubt since the last crash | it brings those to their end |
//! | transactions, some of them committed, with deferred frees | it tries these again, once |
//! | the transaction alone | it is refused |
//! | transactions, some of which are at work | it waits for them, as long as they get on |
//! | transactions, all of which wait for log space | all but the oldest give way and are refused |
//! | transactions and dirty pages | it takes a checkpoint |
//! | these and the archive or a backup | it waits for the copy, as long as that gets on |
//!
//! No transaction waits for more log space than it needs. Whatever it waits for is watched
//! ([`Watch`]): if that stands still for [`PATIENCE_WITH_COPIES`] or
//! [`PATIENCE_WITH_TRANSACTIONS`], the waiter is refused and told why. So if the transaction that
//! it waits for itself waits for one of its locks, that ends in a bounded time; and a transaction
//! that is known to stand still makes no other one wait. Nothing waits for an archive that has
//! failed.
//!
//! # The line
//! One thread at a time removes obstacles ([`LogQueue::turn`]); later ones wait for their turn,
//! without latches. Transactions that have reserved nothing yet come last, and wait for each other
//! first ([`LogQueue::door`]), even if there is space: otherwise the log would go on growing behind
//! a waiting transaction, which then keeps it. They are in no other's way, and need not give way.

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
use crate::scheme::StorageScheme;
use crate::txn_state::deferred_free::DeferredFrees;
use crate::txn_state::log::Missing;
use crate::txn_state::table::{TxnEntry, TxnTable};

/// How often a waiter looks.
const LOOK: Duration = Duration::from_millis(1);

/// How long the archive, or a backup, may stand still.
const PATIENCE_WITH_COPIES: Duration = Duration::from_secs(10);

/// How long other transactions may stand still.
const PATIENCE_WITH_TRANSACTIONS: Duration = Duration::from_millis(500);

/// Checkpoints that are taken for one reservation: if others take the space every time, there is
/// too little for all.
const MOST_CHECKPOINTS: u32 = 100;

/// The transactions that find the log full.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    /// Held by the new transaction that comes next.
    door: Mutex<()>,
    /// Held by the one that removes obstacles.
    turn: Mutex<Watches>,
    /// All of them, and what they have reserved.
    waiting: Mutex<Vec<Missing>>,
    /// How many there are.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Watches {
    copies: Watch,
    others: Watch,
}

/// Watches whether something gets on.
#[derive(Debug, Default)]
struct Watch(Option<Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    value: u64,
    since: Instant,
    last: Instant,
}

impl Watch {
    /// After so long nobody knows what happened between two looks.
    const PAUSE: Duration = Duration::from_secs(1);

    /// For how long `value` has been the same, as far as the looks tell.
    fn unchanged(&mut self, value: u64, now: Instant) -> Duration {
        let since = match self.0 {
            Some(seen) if seen.value == value && now.since(seen.last) <= Self::PAUSE => seen.since,
            _ => now,
        };
        self.0 = Some(Seen { value, since, last: now });
        now.since(since)
    }
}

/// What stands in the way of a reservation at a moment.
#[derive(Clone, Copy, Debug)]
struct View {
    /// There would be space if the log kept nothing but what transactions need.
    behind_transactions: bool,
    /// There would be space if there were no other transaction.
    fits_alone: bool,
    /// Another transaction is at work that keeps the log, or has reserved some of it.
    is_space_to_come: bool,
    /// The caller's transaction is in the way of others, and not the oldest.
    gives_way: bool,
    /// There would be space if the log were recycled up to where the latest checkpoint says.
    behind_checkpoint: bool,
    has_in_doubt: bool,
    has_deferred_frees: bool,
    /// A checkpoint is being taken.
    in_checkpoint: bool,
    retainer: Option<Retainer>,
}

/// What has been done for a reservation so far.
#[derive(Clone, Copy, Default, Debug)]
struct Tried {
    deferred: bool,
    checkpoints: u32,
    /// The latest checkpoint has given up nothing.
    in_vain: bool,
    /// Times in a row that nothing was found that stands in the way, or the disk.
    unexplained: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Remedy {
    /// Nothing stands in the way any more.
    TryAgain,
    FinishInDoubt,
    RetryDeferredFrees,
    Checkpoint,
    /// As a checkpoint, for the sake of the disk.
    Recycle,
    AwaitCheckpoint,
    /// Another transaction will give space back.
    AwaitOthers,
    /// All others wait for space, too, and have to be refused to free some.
    LetGiveWay,
    AwaitCopies,
    Refuse(Culprit),
}

/// What a refusal names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Culprit {
    /// The caller's transaction.
    Itself,
    /// The oldest one, or all together.
    Transactions,
    Pages,
    /// What the log itself has said.
    Log,
}

impl View {
    fn remedy(&self, tried: Tried) -> Remedy {
        if !self.behind_transactions {
            return match () {
                () if self.has_in_doubt => Remedy::FinishInDoubt,
                () if self.has_deferred_frees && !tried.deferred => Remedy::RetryDeferredFrees,
                // It has a reservation, too, of unknown size.
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
            // It recycles at its end.
            None if self.in_checkpoint => Remedy::AwaitCheckpoint,
            // Most likely space has been freed meanwhile. If not, the disk may be full: recycled
            // segments need no space there.
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

/// The transactions, as one that finds the log full sees them.
#[derive(Debug)]
struct Transactions {
    /// The one that keeps the log, and what it has reserved.
    oldest: Option<(TxnEntry, u64)>,
    /// What all have reserved.
    set_aside: u64,
    /// What those of them have reserved that do not wait for space.
    at_work: u64,
}

impl LogQueue {
    /// Whether a transaction waits for space.
    pub(crate) fn has_line(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether a transaction waits for space that has reserved some.
    fn has_old(&self) -> bool {
        self.waiting.lock().iter().any(|missing| !missing.is_new())
    }

    /// Enters a transaction, until what is returned is dropped.
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
    /// Whether the transaction has reserved nothing yet.
    fn is_new(&self) -> bool {
        self.reserved == 0 && self.first.is_zero()
    }
}

/// A log that has refused a reservation, and the parts that may free space in it.
pub(crate) struct FullLog<'e> {
    pub(crate) queue: &'e LogQueue,
    pub(crate) scheme: &'e dyn StorageScheme,
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
    /// Reserves what the log has refused, as soon as there is space for it. Called without latches.
    ///
    /// # Errors
    /// [`Error::Full`] when there will be none, and why; those of a checkpoint.
    pub(crate) fn reserve(&self, missing: Missing) -> Result<()> {
        // What others' commits wait for must not be this thread's own record.
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
                // What has been looked at, one thing after the other, may never have been so at one
                // moment.
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
                Remedy::RetryDeferredFrees => self.maintenance.retry_deferred_frees(),
                Remedy::Checkpoint | Remedy::Recycle => {
                    let before = self.oldest_needed();
                    self.maintenance.checkpoint_to_free_log()?;
                    // One for the sake of the disk may find the log kept by a transaction, which
                    // will end.
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

    /// The latest checkpoint needs nothing before this.
    fn oldest_needed(&self) -> Gsn {
        self.control.lock().control.oldest
    }

    fn look_at_log(&self, missing: Missing) -> (View, Transactions) {
        let (scheme, bytes) = (self.scheme, missing.bytes);
        let for_checkpoints = self.checkpointer.reserved();
        let set_aside = scheme.set_aside().saturating_sub(for_checkpoints.unwrap_or_default());
        let oldest = self.txns.oldest();
        let waiting = self.queue.waiting.lock().clone();
        let at_work = set_aside.saturating_sub(waiting.iter().map(|missing| missing.reserved).sum());
        let waits = |entry: &TxnEntry| waiting.iter().any(|missing| missing.txn == entry.txn);
        let is_oldest = oldest.is_none_or(|(entry, _)| entry.txn == missing.txn);
        let end = || scheme.end();
        let own_first = if missing.first.is_zero() { end() } else { missing.first };
        let view = View {
            behind_transactions: scheme.has_room_from(oldest.map_or_else(end, |(entry, _)| entry.first), bytes, 0),
            fits_alone: scheme.has_room_from(own_first, bytes, set_aside.saturating_sub(missing.reserved)),
            is_space_to_come: at_work > 0 || oldest.is_some_and(|(entry, _)| !waits(&entry)),
            gives_way: !missing.is_new() && !is_oldest,
            behind_checkpoint: scheme.has_room_from(self.oldest_needed(), bytes, 0),
            has_in_doubt: self.background.transactions() > 0,
            has_deferred_frees: !self.deferred.is_empty(),
            in_checkpoint: for_checkpoints.is_none(),
            retainer: scheme.retainer(bytes),
        };
        (view, Transactions { oldest, set_aside, at_work })
    }

    /// What the transaction is told if it is refused: there will be no space, or what it waits for
    /// has stood still too long.
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
                self.scheme.call_archive();
                let still = still_for(&mut watches.copies, self.scheme.retainers_progress());
                if still < PATIENCE_WITH_COPIES {
                    return None;
                }
                format!("{refusal}; nothing has been copied for {} s", still.as_secs())
            }
            Remedy::AwaitOthers | Remedy::LetGiveWay => {
                let state = at_work ^ oldest.map_or(0, |(entry, _)| entry.last.get());
                if still_for(&mut watches.others, state) < PATIENCE_WITH_TRANSACTIONS {
                    return None;
                }
                of_transactions(limit, set_aside, oldest.filter(|(entry, _)| entry.txn != missing.txn), self.scheme)
            }
            Remedy::Refuse(Culprit::Transactions) => of_transactions(limit, set_aside, oldest, self.scheme),
            Remedy::Refuse(Culprit::Itself) if !missing.first.is_zero() => {
                let Missing { txn, first, reserved, .. } = missing;
                let kept = self.scheme.bytes_from(first);
                format!(
                    "the log may use {limit} bytes, and {txn} itself, which began at {first}, keeps {kept} of them from being \
                     recycled and has set {reserved} aside for its rollback"
                )
            }
            Remedy::Refuse(Culprit::Pages) => {
                let oldest = self.oldest_needed();
                format!("{refusal}, and pages that cannot be brought up to date need it from {oldest} on")
            }
            Remedy::Refuse(_) => refusal,
            _ => return None,
        };
        Some(Error::Full { reason })
    }
}

/// Says which transaction keeps the log, and what all have set aside.
fn of_transactions(limit: u64, set_aside: u64, oldest: Option<(TxnEntry, u64)>, scheme: &dyn StorageScheme) -> String {
    let keeps = oldest.map(|(TxnEntry { txn, first, .. }, _)| {
        let kept = scheme.bytes_from(first);
        format!("{txn}, which began at {first}, keeps {kept} of them from being recycled, and ")
    });
    format!(
        "the log may use {limit} bytes, and {}all transactions under way have set {set_aside} aside for their rollbacks",
        keeps.unwrap_or_default()
    )
}

#[cfg(all(test, not(duramen_loom)))]
mod tests;
