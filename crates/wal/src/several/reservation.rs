//! Disk space set aside in all logs of a database at once.
//!
//! Which log takes a record need not be known when space is set aside for it, so it is set aside in
//! each. To do that, log by log, for every transaction would be an atomic operation for each log,
//! on lines that all processors write to, and two to give it back. So there is a balance, which is
//! set aside in every log and promised to nobody, and transactions take from that. It is shared out
//! to *shards*. Of one log, about each processor has a shard; of several, there are as many as
//! logs, and a thread uses the one of the processors whose log is its own where logs are for
//! processors ([`crate::log_of_cpu`]).
//!
//! - What is given back and has not been used goes to the balance of a shard.
//! - What has become records has moved the end of a log; it is given back to the logs, later: they
//!   count it as set aside until they are told.
//!
//! A shard that has too little is filled from the logs, and what is too much goes back to them, if
//! nobody else is about that. Who finds a log full first gives back to the logs all that nobody is
//! promised: space is refused when there is none, and not because some lies on a shard. For that,
//! space moves between shards and logs with a lock held, which is of no concern to those who take
//! from a shard or give back to it.
//!
//! Filling a shard may mean to wait for somebody else who does so, or to make a segment. Commits of
//! others must not wait for that too, so who fills one has resolved before
//! ([`crate::Log::before_blocking`]).

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, cpu, thread};

use crate::error::Result;
use crate::options::WalOptions;
use crate::several::log_placement::log_of_cpu;
use crate::stream::inner::StreamInner;

/// Most bytes that a shard is filled with at a time, beyond what is needed: what two or three
/// transactions at work set aside.
const BALANCE: u64 = 256 << 10;

/// LogSet, shards are filled at a time with no more than this part of what a log may have.
const SHARE: u64 = 32;

/// Most shards of one log.
const MOST: usize = 64;

/// A log that disk space can be set aside in.
pub(crate) trait Limited {
    /// As [`crate::Log::reserve`], of one log.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// As [`crate::Log::unreserve`], of one log.
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

/// What is set aside in all logs.
#[derive(Debug)]
pub(crate) struct LogReservation {
    shards: Box<[CachePadded<Shard>]>,
    /// Held while the logs are told or asked.
    refill: Mutex<()>,
    step: u64,
}

#[derive(Debug, Default)]
struct Shard {
    balance: AtomicU64,
    used: AtomicU64,
}

impl LogReservation {
    /// For so many logs with these options.
    pub(crate) fn new(options: &WalOptions, logs: usize) -> Self {
        let share = options.max_bytes / SHARE;
        // Not so many that they are filled again and again.
        let worth_it = usize::try_from(2 * share / BALANCE).map_or(MOST, |most| most.clamp(1, MOST));
        let shards = if logs == 1 { thread::available_parallelism().clamp(1, worth_it) } else { logs };
        Self::with_shards(shards, BALANCE.min(share / shards as u64))
    }

    fn with_shards(count: usize, step: u64) -> Self {
        Self { shards: (0..count).map(|_| CachePadded::default()).collect(), refill: Mutex::new(()), step }
    }

    fn here(&self) -> &Shard {
        let log = log_of_cpu(cpu::location(), cpu::occupied_nodes(), self.shards.len());
        &self.shards[usize::from(log.get())]
    }

    /// Bytes that the logs count as set aside and nobody is promised.
    pub(crate) fn unpromised(&self) -> u64 {
        let of = |shard: &Shard| shard.balance.load(Ordering::Relaxed) + shard.used.load(Ordering::Relaxed);
        self.shards.iter().map(|shard| of(shard)).sum()
    }

    /// Sets `bytes` aside in all of `logs`. Calls `before_blocking` first if that may mean to wait.
    #[inline]
    pub(crate) fn reserve(&self, logs: &[Arc<impl Limited>], bytes: u64, before_blocking: impl FnOnce()) -> Result<()> {
        self.reserve_from(self.here(), logs, bytes, before_blocking)
    }

    /// Gives back `bytes` that have become records, or may have.
    #[inline]
    pub(crate) fn unreserve(&self, logs: &[Arc<impl Limited>], bytes: u64) {
        self.take_back_used(self.here(), logs, bytes);
    }

    /// Gives back `bytes` that no record has taken.
    #[inline]
    pub(crate) fn unreserve_unused(&self, logs: &[Arc<impl Limited>], bytes: u64) {
        self.take_back(self.here(), logs, bytes);
    }

    #[inline]
    fn reserve_from(
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

    #[inline]
    fn take_back_used(&self, shard: &Shard, logs: &[Arc<impl Limited>], bytes: u64) {
        // Release: who tells the logs then sees where they end.
        let used = shard.used.fetch_add(bytes, Ordering::Release) + bytes;
        if used > self.step
            && let Some(_refill) = self.refill.try_lock()
        {
            tell(logs, &shard.used);
        }
    }

    #[inline]
    fn take_back(&self, shard: &Shard, logs: &[Arc<impl Limited>], bytes: u64) {
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
        if reserve(logs, bytes.saturating_add(self.step)).is_ok() {
            shard.balance.fetch_add(self.step, Ordering::Relaxed);
            return Ok(());
        }
        self.clear(logs);
        reserve(logs, bytes)
    }

    /// Sets `bytes` aside in all of `logs` and fills no shard: a log may be about to exceed its
    /// limit for them.
    pub(crate) fn reserve_exactly(
        &self,
        logs: &[Arc<impl Limited>],
        bytes: u64,
        lift_limit: impl Fn(bool),
    ) -> Result<()> {
        // Who fills a shard meanwhile is not to exceed it.
        let _refill = self.refill.lock();
        self.clear(logs);
        lift_limit(true);
        let reserved = reserve(logs, bytes);
        lift_limit(false);
        reserved
    }

    /// Gives the logs all back that nobody is promised.
    #[cold]
    pub(crate) fn give_back(&self, logs: &[Arc<impl Limited>]) {
        let _refill = self.refill.lock();
        self.clear(logs);
    }

    /// As [`LogReservation::give_back`], for who has `refill` locked.
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
    /// Takes `bytes` from the balance, if it has as many.
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        let mut left = self.balance.load(Ordering::Relaxed);
        while let Some(rest) = left.checked_sub(bytes) {
            match self.balance.compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => left = current,
            }
        }
        false
    }
}

/// Gives the logs back what they count as set aside and nobody is promised: all of `bytes`.
fn tell(logs: &[Arc<impl Limited>], bytes: &AtomicU64) {
    let bytes = bytes.swap(0, Ordering::Acquire);
    if bytes > 0 {
        logs.iter().for_each(|log| log.unreserve(bytes));
    }
}

/// Sets `bytes` aside in each of `logs`, or in none.
fn reserve<L: Limited>(logs: &[Arc<L>], bytes: u64) -> Result<()> {
    let refused = |(number, log): (usize, &Arc<L>)| Some((number, log.reserve(bytes).err()?));
    match logs.iter().enumerate().find_map(refused) {
        None => Ok(()),
        Some((number, error)) => {
            logs[..number].iter().for_each(|log| log.unreserve(bytes));
            Err(error)
        }
    }
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;
