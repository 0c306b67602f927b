//! Disk space set aside in all logs of a database at once.
//!
//! Which log takes a record need not be known when space is set aside for it, so it is set aside in each. To do that, log by
//! log, for every transaction would be an atomic operation for each log, on lines that all processors write to, and as many
//! to give it back. So there is a stock, which is set aside in every log and promised to nobody, and transactions take from
//! that. It is shared out to *shelves*, as many as there are logs; a thread uses the one of the processors whose log is its own
//! where logs are for processors ([`crate::log_of_seat`]).
//!
//! - What is given back and has not been used goes to the stock of a shelf.
//! - What has become records has moved the end of a log; it is given back to the logs, later: they count it as set aside until
//!   they are told.
//!
//! A shelf that has too little is filled from the logs, and what is too much goes back to them. Who finds a log full first gives
//! back to the logs all that nobody is promised: space is refused when there is none, and not because some lies on a shelf.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{CachePadded, Mutex, cpu};

use crate::error::Result;
use crate::options::WalOptions;
use crate::seat::log_of_seat;
use crate::wal::Wal;

/// Most bytes that a shelf is filled with at a time, beyond what is needed: what some transactions at work set aside.
const STOCK: u64 = 1 << 20;

/// All shelves together are filled with no more than this part of what a log may have.
const SHARE: u64 = 32;

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
        Self {
            shelves: (0..logs).map(|_| CachePadded::default()).collect(),
            refill: Mutex::new(()),
            step: STOCK.min(options.max_bytes / SHARE / logs as u64),
        }
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

    /// Sets `bytes` aside in all of `logs`.
    #[inline]
    pub(crate) fn reserve(&self, logs: &[Wal], bytes: u64) -> Result<()> {
        let shelf = self.here();
        if shelf.take(bytes) { Ok(()) } else { self.fill(logs, shelf, bytes) }
    }

    /// Gives back `bytes` that have become records, or may have.
    #[inline]
    pub(crate) fn unreserve(&self, logs: &[Wal], bytes: u64) {
        let shelf = self.here();
        // Release: who tells the logs then sees where they end.
        let used = shelf.used.fetch_add(bytes, Ordering::Release) + bytes;
        if used > self.step {
            tell(logs, &shelf.used);
        }
    }

    /// Gives back `bytes` that no record has taken.
    #[inline]
    pub(crate) fn unreserve_unused(&self, logs: &[Wal], bytes: u64) {
        let shelf = self.here();
        let stock = shelf.stock.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if stock > 2 * self.step {
            self.empty(logs, shelf);
        }
    }

    #[cold]
    fn fill(&self, logs: &[Wal], shelf: &Shelf, bytes: u64) -> Result<()> {
        let _refill = self.refill.lock();
        if shelf.take(bytes) {
            return Ok(());
        }
        tell(logs, &shelf.used);
        if reserve(logs, bytes.saturating_add(self.step)).is_ok() {
            shelf.stock.fetch_add(self.step, Ordering::Relaxed);
            return Ok(());
        }
        for shelf in &self.shelves {
            tell(logs, &shelf.stock);
            tell(logs, &shelf.used);
        }
        reserve(logs, bytes)
    }

    #[cold]
    fn empty(&self, logs: &[Wal], shelf: &Shelf) {
        let _refill = self.refill.lock();
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
fn tell(logs: &[Wal], bytes: &AtomicU64) {
    let bytes = bytes.swap(0, Ordering::Acquire);
    if bytes > 0 {
        logs.iter().for_each(|log| log.unreserve(bytes));
    }
}

/// Sets `bytes` aside in each of `logs`, or in none.
fn reserve(logs: &[Wal], bytes: u64) -> Result<()> {
    let refused = |(number, log): (usize, &Wal)| Some((number, log.reserve(bytes).err()?));
    match logs.iter().enumerate().find_map(refused) {
        None => Ok(()),
        Some((number, error)) => {
            logs[..number].iter().for_each(|log| log.unreserve(bytes));
            Err(error)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use duramen_io::{Disk, SimDisk};
    use duramen_sync::Arc;
    use duramen_types::{Gsn, LogId, PageId, Place, TxnId};

    use crate::{Logs, NewRecord, WalError, WalOptions};

    /// Three logs of at most eight segments each, and what they can hold.
    fn logs() -> (Logs, u64) {
        let (segment_bytes, ring_bytes) = (64 << 10, 64 << 10);
        let options = WalOptions { segment_bytes, ring_bytes, max_bytes: 8 * segment_bytes, ..WalOptions::default() };
        let options = WalOptions { spare_segments: 0, ..options };
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let logs = Logs::create(&disk, &options, 3, [7; 16]).unwrap();
        // All but the headers of the segments, less where the log starts.
        let capacity = 8 * (segment_bytes - 4096) - (logs.extents()[0].1.get() - 4096);
        (logs, capacity)
    }

    fn is_full(outcome: crate::Result<()>) -> bool {
        matches!(outcome, Err(WalError::Full { .. }))
    }

    #[test]
    fn all_space_there_is_can_be_set_aside_in_small_parts_and_at_once() {
        let (logs, capacity) = logs();
        for part in [1000, capacity, 77, capacity / 2] {
            let mut parts = 0;
            while logs.reserve(part).is_ok() {
                parts += 1;
            }
            assert_eq!(parts, capacity / part, "parts of {part}, of {capacity}");
            assert_eq!(logs.stats().reserved_bytes, parts * part);
            for number in 0..parts {
                match number % 2 {
                    0 => logs.unreserve(part),
                    _ => logs.unreserve_unused(part),
                }
            }
            assert_eq!(logs.stats().reserved_bytes, 0);
        }
        logs.close().unwrap();
    }

    #[test]
    fn space_that_records_have_taken_is_not_promised_again() {
        let (logs, capacity) = logs();
        let payload = [1; 8000];
        let record = NewRecord {
            kind: 1,
            flags: 0,
            txn: TxnId::new(1),
            page: PageId::new(2),
            prev: Place::ZERO,
            after: Gsn::ZERO,
            payload: &payload,
        };
        let room = 3 * logs.record_bytes(payload.len());
        let mut left = capacity;
        while logs.reserve(room).is_ok() {
            let inserted = logs.insert(LogId::new(1), record);
            let used = inserted.end.get() - inserted.lsn.get();
            left -= used;
            logs.unreserve(used);
            logs.unreserve_unused(room - used);
        }
        assert!(left < room, "{left} bytes are left");
        assert!(is_full(logs.reserve(left + 1)), "one log is full, and that counts");
        logs.reserve(left).unwrap();
        logs.close().unwrap();
    }
}
