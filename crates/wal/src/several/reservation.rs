//! Log reservations: disk space reserved in all logs at once.
//!
//! A transaction reserves space before it chooses the log that takes the record, so the space is
//! reserved in each log. Log by log, that would be one atomic operation per log to reserve and two
//! to return the space, on cache lines that all processors write to. So transactions take from a
//! balance: space that is reserved in every log and that no transaction holds. It is divided into
//! *shards*: about one per processor with a single log, else one per log. Where logs are assigned
//! to processors, a thread uses the shard of the processors of its log ([`crate::log_of_cpu`]).
//!
//! - Returned space that no record has used goes to the balance of a shard.
//! - Returned space that has become records has already moved the end of a log. It is returned to
//!   the logs later; until then they count it as reserved.
//!
//! A thread that finds too little in a shard refills it from the logs, and one that finds too much
//! gives the excess back, unless another thread is moving space. One that finds a log full first
//! gives back all space that no transaction holds: so a reservation never fails because space lies
//! in another shard. A lock protects movement between shards and logs, but not the use of a shard.
//!
//! Filling a shard may wait for another thread that fills one, or for a new segment. The thread
//! calls [`crate::Log::before_blocking`] first, so that the commits of others need not wait too.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, cpu, thread};

use crate::error::Result;
use crate::options::WalOptions;
use crate::several::log_placement::log_of_cpu;
use crate::stream::inner::StreamInner;

/// Most bytes that a refill adds beyond the need: what two or three active transactions reserve.
const BALANCE: u64 = 256 << 10;

/// The first refill of a shard adds this much; the next ones double it. A program with few
/// transactions reserves little, and the log's files stay small.
const FIRST: u64 = 16 << 10;

/// One refill of every shard together takes at most this fraction of what a log may have.
const SHARE: u64 = 32;

/// Maximum number of shards of a single log.
const MOST: usize = 64;

/// A log in which disk space can be reserved.
pub(crate) trait Limited {
    /// Reserves as [`crate::Log::reserve`] does, in one log.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// Gives back space as [`crate::Log::unreserve`] does, in one log.
    fn unreserve(&self, bytes: u64);
}

impl Limited for StreamInner {
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.reserve(bytes)
    }

    fn unreserve(&self, bytes: u64) {
        self.segments.unreserve(bytes);
    }
}

#[derive(Debug)]
pub(crate) struct LogReservation {
    shards: Box<[CachePadded<Shard>]>,
    /// Held while space moves between shards and logs.
    refill: Mutex<()>,
    step: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Shard {
    balance: AtomicU64,
    used: AtomicU64,
    /// What the next refill adds. Changes under the lock of refills.
    next: AtomicU64,
}

impl LogReservation {
    /// Creates the shards for `logs` logs with these options.
    pub(crate) fn new(options: &WalOptions, logs: usize) -> Self {
        let share = options.max_bytes / SHARE;
        // Fewer shards, so that refills are not too frequent.
        let worth_it = usize::try_from(2 * share / BALANCE).map_or(MOST, |most| most.clamp(1, MOST));
        let shards = if logs == 1 { thread::available_parallelism().clamp(1, worth_it) } else { logs };
        let step = BALANCE.min(share / shards as u64);
        Self::with_shards(shards, step, FIRST.min(step))
    }

    fn with_shards(count: usize, step: u64, first: u64) -> Self {
        let shard = || CachePadded::new(Shard { next: AtomicU64::new(first), ..Shard::default() });
        Self { shards: (0..count).map(|_| shard()).collect(), refill: Mutex::new(()), step }
    }

    /// Returns the shard of the processor that executes the calling thread.
    pub(crate) fn here(&self) -> &Shard {
        let log = log_of_cpu(cpu::location(), cpu::occupied_nodes(), self.shards.len());
        &self.shards[usize::from(log.get())]
    }

    /// Returns the bytes that the logs count as reserved and that no transaction holds.
    pub(crate) fn unassigned(&self) -> u64 {
        let of = |shard: &Shard| shard.balance.load(Ordering::Relaxed) + shard.used.load(Ordering::Relaxed);
        self.shards.iter().map(|shard| of(shard)).sum()
    }

    /// Reserves `bytes` in all of `logs`. Calls `before_blocking` first if that may block.
    #[inline]
    pub(crate) fn reserve(
        &self,
        shard: &Shard,
        logs: &[Arc<impl Limited>],
        bytes: u64,
        before_blocking: impl FnOnce(),
    ) -> Result<()> {
        if shard.take(bytes) {
            return Ok(());
        }
        before_blocking();
        self.fill(shard, logs, bytes)
    }

    /// Gives back `bytes` that have become records, or may have.
    #[inline]
    pub(crate) fn unreserve(&self, shard: &Shard, logs: &[Arc<impl Limited>], bytes: u64) {
        // Release: the thread that gives these bytes back to the logs then sees where the logs end.
        let used = shard.used.fetch_add(bytes, Ordering::Release) + bytes;
        if used > self.step
            && let Some(_refill) = self.refill.try_lock()
        {
            tell(logs, &shard.used);
        }
    }

    /// Gives back `bytes` that no record has taken.
    #[inline]
    pub(crate) fn unreserve_unused(&self, shard: &Shard, logs: &[Arc<impl Limited>], bytes: u64) {
        let balance = shard.balance.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if balance > 2 * self.step {
            self.empty(shard, logs);
        }
    }

    #[cold]
    fn fill(&self, shard: &Shard, logs: &[Arc<impl Limited>], bytes: u64) -> Result<()> {
        let _refill = self.refill.lock();
        if shard.take(bytes) {
            return Ok(());
        }
        tell(logs, &shard.used);
        let added = shard.next.load(Ordering::Relaxed);
        if reserve(logs, bytes.saturating_add(added)).is_ok() {
            shard.next.store((2 * added).min(self.step), Ordering::Relaxed);
            shard.balance.fetch_add(added, Ordering::Relaxed);
            return Ok(());
        }
        self.clear(logs);
        reserve(logs, bytes)
    }

    /// Reserves `bytes` in all of `logs`, perhaps beyond their limits, and fills no shard.
    pub(crate) fn reserve_exactly(
        &self,
        logs: &[Arc<impl Limited>],
        bytes: u64,
        lift_limit: impl Fn(bool),
    ) -> Result<()> {
        // A thread that fills a shard at the same time must not exceed the limit.
        let _refill = self.refill.lock();
        self.clear(logs);
        lift_limit(true);
        let reserved = reserve(logs, bytes);
        lift_limit(false);
        reserved
    }

    /// Gives back to the logs all space that no transaction holds.
    #[cold]
    pub(crate) fn give_back(&self, logs: &[Arc<impl Limited>]) {
        let _refill = self.refill.lock();
        self.clear(logs);
    }

    /// Does the work of [`LogReservation::give_back`] for a caller that holds the lock of `refill`.
    fn clear(&self, logs: &[Arc<impl Limited>]) {
        for shard in &self.shards {
            tell(logs, &shard.balance);
            tell(logs, &shard.used);
        }
    }

    #[cold]
    fn empty(&self, shard: &Shard, logs: &[Arc<impl Limited>]) {
        let Some(_refill) = self.refill.try_lock() else { return };
        let balance = shard.balance.load(Ordering::Relaxed);
        if balance > 2 * self.step && shard.take(balance - self.step) {
            logs.iter().for_each(|log| log.unreserve(balance - self.step));
        }
    }
}

impl Shard {
    /// Takes `bytes` from the balance, if it has that many.
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        let rest = |balance: u64| balance.checked_sub(bytes);
        self.balance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }
}

/// Gives back to the logs all of `bytes`, which no transaction holds.
fn tell(logs: &[Arc<impl Limited>], bytes: &AtomicU64) {
    let bytes = bytes.swap(0, Ordering::Acquire);
    if bytes > 0 {
        logs.iter().for_each(|log| log.unreserve(bytes));
    }
}

/// Reserves `bytes` in each of `logs`, or in none of them.
fn reserve<L: Limited>(logs: &[Arc<L>], bytes: u64) -> Result<()> {
    let refused = |(number, log): (usize, &Arc<L>)| Some((number, log.reserve(bytes).err()?));
    let Some((number, error)) = logs.iter().enumerate().find_map(refused) else { return Ok(()) };
    logs[..number].iter().for_each(|log| log.unreserve(bytes));
    Err(error)
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;
