//! Disk space set aside in all logs of a database at once.
//!
//! Which log takes a record need not be known when space is set aside for it, so it is set aside in each. To do that, log by
//! log, for every transaction would be an atomic operation for each log, on lines that all processors write to, and two
//! to give it back. So there is a stock, which is set aside in every log and promised to nobody, and transactions take from
//! that. It is shared out to *shelves*. Of one log, about each processor has a shelf; of several, there are as many as logs, and a
//! thread uses the one of the processors whose log is its own where logs are for processors ([`crate::log_of_seat`]).
//!
//! - What is given back and has not been used goes to the stock of a shelf.
//! - What has become records has moved the end of a log; it is given back to the logs, later: they count it as set aside until
//!   they are told.
//!
//! A shelf that has too little is filled from the logs, and what is too much goes back to them, if nobody else is about that.
//! Who finds a log full first gives back to the logs all that nobody is promised: space is refused when there is none, and not
//! because some lies on a shelf. For that, space moves between shelves and logs with a lock held, which is of no concern to
//! those who take from a shelf or give back to it.
//!
//! Filling a shelf may mean to wait for somebody else who does so, or to make a segment. Commits of others must not wait for
//! that too, so who fills one has settled before ([`crate::Log::settle`]).

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, CachePadded, Mutex, cpu, thread};

use crate::error::Result;
use crate::options::WalOptions;
use crate::several::log_placement::log_of_seat;
use crate::stream::inner::Shared;

/// Most bytes that a shelf is filled with at a time, beyond what is needed: what two or three transactions at work set aside.
const STOCK: u64 = 256 << 10;

/// Together, shelves are filled at a time with no more than this part of what a log may have.
const SHARE: u64 = 32;

/// Most shelves of one log.
const MOST: usize = 64;

/// A log that disk space can be set aside in.
pub(crate) trait Limited {
    /// As [`crate::Log::reserve`], of one log.
    fn reserve(&self, bytes: u64) -> Result<()>;

    /// As [`crate::Log::unreserve`], of one log.
    fn unreserve(&self, bytes: u64);
}

impl Limited for Shared {
    fn reserve(&self, bytes: u64) -> Result<()> {
        self.reserve(bytes)
    }

    fn unreserve(&self, bytes: u64) {
        self.segments.unreserve(bytes);
    }
}

/// What is set aside in all logs.
#[derive(Debug)]
pub(crate) struct Room {
    shelves: Box<[CachePadded<Shelf>]>,
    /// Held while the logs are told or asked.
    refill: Mutex<()>,
    step: u64,
}

#[derive(Debug, Default)]
struct Shelf {
    stock: AtomicU64,
    used: AtomicU64,
}

impl Room {
    /// For so many logs with these options.
    pub(crate) fn new(options: &WalOptions, logs: usize) -> Self {
        let share = options.max_bytes / SHARE;
        // Not so many that they are filled again and again.
        let worth_it = usize::try_from(2 * share / STOCK).map_or(MOST, |most| most.clamp(1, MOST));
        let shelves = if logs == 1 { thread::available_parallelism().clamp(1, worth_it) } else { logs };
        Self::with_shelves(shelves, STOCK.min(share / shelves as u64))
    }

    fn with_shelves(count: usize, step: u64) -> Self {
        Self { shelves: (0..count).map(|_| CachePadded::default()).collect(), refill: Mutex::new(()), step }
    }

    fn here(&self) -> &Shelf {
        let log = log_of_seat(cpu::seat(), cpu::occupied_nodes(), self.shelves.len());
        &self.shelves[usize::from(log.get())]
    }

    /// Bytes that the logs count as set aside and nobody is promised.
    pub(crate) fn unpromised(&self) -> u64 {
        let of = |shelf: &Shelf| shelf.stock.load(Ordering::Relaxed) + shelf.used.load(Ordering::Relaxed);
        self.shelves.iter().map(|shelf| of(shelf)).sum()
    }

    /// Sets `bytes` aside in all of `logs`. Calls `settle` first if that may mean to wait.
    #[inline]
    pub(crate) fn reserve(&self, logs: &[Arc<impl Limited>], bytes: u64, settle: impl FnOnce()) -> Result<()> {
        self.reserve_from(self.here(), logs, bytes, settle)
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
    fn reserve_from(&self, shelf: &Shelf, logs: &[Arc<impl Limited>], bytes: u64, settle: impl FnOnce()) -> Result<()> {
        if shelf.take(bytes) {
            return Ok(());
        }
        settle();
        self.fill(shelf, logs, bytes)
    }

    #[inline]
    fn take_back_used(&self, shelf: &Shelf, logs: &[Arc<impl Limited>], bytes: u64) {
        // Release: who tells the logs then sees where they end.
        let used = shelf.used.fetch_add(bytes, Ordering::Release) + bytes;
        if used > self.step
            && let Some(_refill) = self.refill.try_lock()
        {
            tell(logs, &shelf.used);
        }
    }

    #[inline]
    fn take_back(&self, shelf: &Shelf, logs: &[Arc<impl Limited>], bytes: u64) {
        let stock = shelf.stock.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if stock > 2 * self.step {
            self.empty(shelf, logs);
        }
    }

    #[cold]
    fn fill(&self, shelf: &Shelf, logs: &[Arc<impl Limited>], bytes: u64) -> Result<()> {
        let _refill = self.refill.lock();
        if shelf.take(bytes) {
            return Ok(());
        }
        tell(logs, &shelf.used);
        if reserve(logs, bytes.saturating_add(self.step)).is_ok() {
            shelf.stock.fetch_add(self.step, Ordering::Relaxed);
            return Ok(());
        }
        self.clear(logs);
        reserve(logs, bytes)
    }

    /// Sets `bytes` aside in all of `logs` and fills no shelf: a log may be about to exceed its limit for them.
    pub(crate) fn reserve_exactly(
        &self,
        logs: &[Arc<impl Limited>],
        bytes: u64,
        lift_limit: impl Fn(bool),
    ) -> Result<()> {
        // Who fills a shelf meanwhile is not to exceed it.
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

    /// As [`Room::give_back`], for who has `refill` locked.
    fn clear(&self, logs: &[Arc<impl Limited>]) {
        for shelf in &self.shelves {
            tell(logs, &shelf.stock);
            tell(logs, &shelf.used);
        }
    }

    #[cold]
    fn empty(&self, shelf: &Shelf, logs: &[Arc<impl Limited>]) {
        let Some(_refill) = self.refill.try_lock() else { return };
        let stock = shelf.stock.load(Ordering::Relaxed);
        if stock > 2 * self.step && shelf.take(stock - self.step) {
            logs.iter().for_each(|log| log.unreserve(stock - self.step));
        }
    }
}

impl Shelf {
    /// Takes `bytes` from the stock, if it has as many.
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        let mut left = self.stock.load(Ordering::Relaxed);
        while let Some(rest) = left.checked_sub(bytes) {
            match self.stock.compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed) {
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
