//! What is done when the log has no room for what a transaction is to set aside.
//!
//! The reservation is tried again and again, until it succeeds. In between, the one thing is done, or waited for, that stands in its
//! way. It is found by asking how much room there would be without it:
//!
//! | no room, even if nothing were kept but what is needed by | what is done |
//! |---|---|
//! | transactions, and some of them the last crash has interrupted | these are brought to their end |
//! | transactions, and some have committed and put their clean-up off | it is tried again, once |
//! | the caller's transaction alone | it is refused |
//! | transactions, some of which are at work | they are waited for, as long as they get on |
//! | transactions, all of which wait for room | all but the oldest give way and are refused |
//! | transactions and pages that are dirty | a checkpoint |
//! | these and the archive or a backup | what is copied is waited for, as long as the copy gets on |
//!
//! Nobody waits for more than the room he needs. Whatever is waited for is watched ([`Watch`]): if it stands still for
//! [`PATIENCE_WITH_COPIES`] or [`PATIENCE_WITH_TRANSACTIONS`], who waits is refused and told why. So a transaction that is waited
//! for, and itself waits for a lock of the waiter, ends that in a bounded time; and a transaction that is known to stand still makes
//! nobody else wait. An archive that has failed is not waited for.
//!
//! # The line
//! One thread at a time sees to room ([`FullLog::turn`]), and those who have come later wait for that, without latches. Transactions
//! that have set nothing aside yet come last, and wait for each other before ([`FullLog::door`]), also if there is room: or the log
//! would go on growing behind a transaction that waits, which keeps it then. They are in nobody's way, and need not give way.

use std::time::Duration;

use duramen_sync::atomic::{AtomicUsize, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Mutex, thread};
use duramen_types::Gsn;
use duramen_wal::Retainer;

use crate::engine::Core;
use crate::error::{Error, Result};
use crate::scheme::StorageScheme;
use crate::txn::log::Missing;
use crate::txn::table::TxnEntry;

/// How often somebody who waits looks.
const LOOK: Duration = Duration::from_millis(1);

/// How long the archive, or a backup, may stand still.
const PATIENCE_WITH_COPIES: Duration = Duration::from_secs(10);

/// How long other transactions may stand still.
const PATIENCE_WITH_TRANSACTIONS: Duration = Duration::from_millis(500);

/// Checkpoints that are taken for one reservation: if others take the room every time, there is too little for all.
const MOST_CHECKPOINTS: u32 = 100;

/// Those who find the log full.
#[derive(Debug, Default)]
pub(crate) struct FullLog {
    /// Held by the one of the new transactions that comes next.
    door: Mutex<()>,
    /// Held by the one who sees to room.
    turn: Mutex<Watches>,
    /// All of them, and what they have set aside.
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

    /// For how long `value` has been the same, as far as somebody has looked.
    fn unchanged(&mut self, value: u64, now: Instant) -> Duration {
        let since = match self.0 {
            Some(seen) if seen.value == value && now.since(seen.last) <= Self::PAUSE => seen.since,
            _ => now,
        };
        self.0 = Some(Seen { value, since, last: now });
        now.since(since)
    }
}

/// What stands in the way of a reservation, at a moment.
#[derive(Clone, Copy, Debug)]
struct View {
    /// There would be room if nothing were kept but what transactions need.
    behind_transactions: bool,
    /// There would be room if there were no other transaction.
    fits_alone: bool,
    /// Another transaction is at work that keeps the log, or has set some of it aside.
    is_room_to_come: bool,
    /// The caller's transaction is in the way of others, and not the oldest.
    gives_way: bool,
    /// There would be room if the log were recycled up to where the latest checkpoint says.
    behind_checkpoint: bool,
    has_interrupted: bool,
    has_deferred: bool,
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
    FinishInterrupted,
    RetryDeferred,
    Checkpoint,
    /// As a checkpoint, for the sake of the disk.
    Recycle,
    AwaitCheckpoint,
    /// Somebody else will give room back.
    AwaitOthers,
    /// All others wait for room, too, and have to be refused to make some.
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
                () if self.has_interrupted => Remedy::FinishInterrupted,
                () if self.has_deferred && !tried.deferred => Remedy::RetryDeferred,
                // It has set room aside, too, and nobody knows how much.
                () if self.in_checkpoint => Remedy::AwaitCheckpoint,
                () if !self.fits_alone => Remedy::Refuse(Culprit::Itself),
                () if self.is_room_to_come => Remedy::AwaitOthers,
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
            // Most likely room has come meanwhile. If not, it may be the disk that is full: recycled segments need no room there.
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
        self.deferred |= remedy == Remedy::RetryDeferred;
        self.checkpoints += u32::from(matches!(remedy, Remedy::Checkpoint | Remedy::Recycle));
        match remedy {
            Remedy::TryAgain | Remedy::Recycle => self.unexplained += 1,
            _ => self.unexplained = 0,
        }
    }
}

/// The transactions as who finds the log full sees them.
#[derive(Debug)]
struct Transactions {
    /// The one that keeps the log, and what it has set aside.
    oldest: Option<(TxnEntry, u64)>,
    /// What all have set aside.
    set_aside: u64,
    /// What those of them have set aside who do not wait for room.
    at_work: u64,
}

impl FullLog {
    /// Whether somebody waits for room.
    pub(crate) fn has_line(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits for room who has set some aside.
    fn has_old(&self) -> bool {
        self.waiting.lock().iter().any(|missing| !missing.is_new())
    }

    /// Enters somebody, until what is returned is dropped.
    fn wait(&self, missing: Missing) -> Waiting<'_> {
        self.waiting.lock().push(missing);
        self.count.fetch_add(1, Ordering::Relaxed);
        Waiting { all: self, missing }
    }
}

struct Waiting<'a> {
    all: &'a FullLog,
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
    /// Whether the transaction has set nothing aside yet.
    fn is_new(&self) -> bool {
        self.reserved == 0 && self.first.is_zero()
    }
}

impl Core {
    /// Sets log space aside that the log has refused, as soon as there is room for it. Called without latches.
    ///
    /// # Errors
    /// [`Error::Full`] when there will be none, and why; those of a checkpoint.
    #[cold]
    pub(crate) fn set_aside_in_full_log(&self, missing: Missing) -> Result<()> {
        // What others' commits wait for must not be this thread's own record.
        self.scheme().settle();
        let _waiting = self.full_log.wait(missing);
        let _door = missing.is_new().then(|| self.full_log.door.lock());
        let mut watches = self.full_log.turn.lock();
        let (mut tried, mut is_certain) = (Tried::default(), false);
        loop {
            self.health.check()?;
            if missing.is_new() && self.full_log.has_old() {
                drop(watches);
                thread::sleep(LOOK);
                watches = self.full_log.turn.lock();
                continue;
            }
            let refusal = match self.scheme().reserve(missing.bytes) {
                Err(Error::Full { reason }) => reason,
                other => return other,
            };
            let (view, transactions) = self.look_at_log(missing);
            let remedy = view.remedy(tried);
            if let Some(refused) = self.refuse(remedy, refusal, missing, &transactions, &mut watches) {
                // What has been looked at, one thing after the other, may never have been so at one moment.
                if is_certain {
                    return Err(refused);
                }
                is_certain = true;
                continue;
            }
            is_certain = false;
            tried.note(remedy);
            match remedy {
                Remedy::FinishInterrupted => self.finish_interrupted()?,
                Remedy::RetryDeferred => self.retry_deferred(),
                Remedy::Checkpoint | Remedy::Recycle => {
                    let before = self.oldest_needed();
                    self.checkpoint_for_room()?;
                    // One for the sake of the disk may find the log kept by a transaction, which will end.
                    tried.in_vain = remedy == Remedy::Checkpoint && self.oldest_needed() <= before;
                }
                Remedy::LetGiveWay => {
                    drop(watches);
                    thread::sleep(LOOK);
                    watches = self.full_log.turn.lock();
                }
                _ => thread::sleep(LOOK),
            }
        }
    }

    /// The latest checkpoint has given up everything before.
    fn oldest_needed(&self) -> Gsn {
        self.control.lock().control.oldest
    }

    fn look_at_log(&self, missing: Missing) -> (View, Transactions) {
        let (scheme, bytes) = (self.scheme(), missing.bytes);
        let for_checkpoints = self.room_for_checkpoints();
        let set_aside = scheme.set_aside().saturating_sub(for_checkpoints.unwrap_or_default());
        let oldest = self.active.oldest();
        let waiting = self.full_log.waiting.lock().clone();
        let at_work = set_aside.saturating_sub(waiting.iter().map(|missing| missing.reserved).sum());
        let waits = |entry: &TxnEntry| waiting.iter().any(|missing| missing.txn == entry.txn);
        let is_oldest = oldest.is_none_or(|(entry, _)| entry.txn == missing.txn);
        let end = || scheme.end();
        let own_first = if missing.first.is_zero() { end() } else { missing.first };
        let view = View {
            behind_transactions: scheme.has_room_from(oldest.map_or_else(end, |(entry, _)| entry.first), bytes, 0),
            fits_alone: scheme.has_room_from(own_first, bytes, set_aside.saturating_sub(missing.reserved)),
            is_room_to_come: at_work > 0 || oldest.is_some_and(|(entry, _)| !waits(&entry)),
            gives_way: !missing.is_new() && !is_oldest,
            behind_checkpoint: scheme.has_room_from(self.oldest_needed(), bytes, 0),
            has_interrupted: self.background.transactions() > 0,
            has_deferred: !self.deferred.lock().is_empty(),
            in_checkpoint: for_checkpoints.is_none(),
            retainer: scheme.retainer(bytes),
        };
        (view, Transactions { oldest, set_aside, at_work })
    }

    /// What the caller is told if he is refused: there will be no room, or what he waits for has stood still for too long.
    fn refuse(
        &self,
        remedy: Remedy,
        refusal: String,
        missing: Missing,
        transactions: &Transactions,
        watches: &mut Watches,
    ) -> Option<Error> {
        let limit = self.options.log_max_bytes;
        let Transactions { oldest, set_aside, at_work } = *transactions;
        let still_for = |watch: &mut Watch, state| watch.unchanged(state, Instant::now());
        let reason = match remedy {
            Remedy::AwaitCopies => {
                self.scheme().call_archive();
                let still = still_for(&mut watches.copies, self.scheme().retainers_progress());
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
                of_transactions(limit, set_aside, oldest.filter(|(entry, _)| entry.txn != missing.txn), self.scheme())
            }
            Remedy::Refuse(Culprit::Transactions) => of_transactions(limit, set_aside, oldest, self.scheme()),
            Remedy::Refuse(Culprit::Itself) if !missing.first.is_zero() => {
                let Missing { txn, first, reserved, .. } = missing;
                let kept = self.scheme().bytes_from(first);
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
