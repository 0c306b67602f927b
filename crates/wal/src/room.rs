//! Disk space set aside in all logs of a database at once.
//!
//! Which log takes a record need not be known when space is set aside for it, so it is set aside in each. To do that, log by
//! log, for every transaction would be an atomic operation for each log, on lines that all processors write to, and as many
//! to give it back. So the logs are asked for more at a time, and most transactions only take from that:
//!
//! - `stock` is set aside in every log and promised to nobody.
//! - What is given back goes to `returned`, and not to the stock: some of it has become records in one of the logs, which
//!   has moved that log's end. The logs count it as set aside until they are told.
//!
//! When the stock is used up, the logs are told what has been returned, and asked for the next stock. Who finds a log full gives
//! back to the logs what is left of the stock, too, and asks for no more than is needed: so space is refused when there is none,
//! and not because some lies in stock.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{CachePadded, Mutex};

use crate::error::Result;
use crate::options::WalOptions;
use crate::wal::Wal;

/// Most bytes that the logs are asked for at a time, beyond what is needed.
const STOCK: u64 = 1 << 20;

/// The stock is at most this part of a segment, and of what a log may have.
const SHARE: u64 = 16;

/// What is set aside in all logs.
#[derive(Debug)]
pub(crate) struct Room {
    /// Both change for every transaction, so they share a line.
    common: CachePadded<Common>,
    /// Held while the logs are told or asked.
    refill: Mutex<()>,
    step: u64,
}

#[derive(Debug, Default)]
struct Common {
    stock: AtomicU64,
    returned: AtomicU64,
}

impl Room {
    /// For logs with these options.
    pub(crate) fn new(options: &WalOptions) -> Self {
        Self {
            common: CachePadded::default(),
            refill: Mutex::new(()),
            step: STOCK.min(options.segment_bytes.min(options.max_bytes) / SHARE),
        }
    }

    /// Bytes that the logs count as set aside and nobody is promised.
    pub(crate) fn unpromised(&self) -> u64 {
        let Common { stock, returned } = &*self.common;
        stock.load(Ordering::Relaxed) + returned.load(Ordering::Relaxed)
    }

    /// Sets `bytes` aside in all of `logs`.
    #[inline]
    pub(crate) fn reserve(&self, logs: &[Wal], bytes: u64) -> Result<()> {
        if self.take(bytes) { Ok(()) } else { self.ask(logs, bytes) }
    }

    /// Takes `bytes` from the stock, if it has as many.
    #[inline]
    fn take(&self, bytes: u64) -> bool {
        let stock = &self.common.stock;
        let mut left = stock.load(Ordering::Relaxed);
        while let Some(rest) = left.checked_sub(bytes) {
            match stock.compare_exchange_weak(left, rest, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(current) => left = current,
            }
        }
        false
    }

    /// Gives `bytes` back. What they were for has been inserted.
    #[inline]
    pub(crate) fn unreserve(&self, bytes: u64) {
        // Release: who tells the logs then sees where they end.
        self.common.returned.fetch_add(bytes, Ordering::Release);
    }

    #[cold]
    fn ask(&self, logs: &[Wal], bytes: u64) -> Result<()> {
        let _refill = self.refill.lock();
        if self.take(bytes) {
            return Ok(());
        }
        self.tell(logs, &self.common.returned);
        if reserve(logs, bytes.saturating_add(self.step)).is_ok() {
            self.common.stock.fetch_add(self.step, Ordering::Relaxed);
            return Ok(());
        }
        self.tell(logs, &self.common.stock);
        // What others have given back since.
        self.tell(logs, &self.common.returned);
        reserve(logs, bytes)
    }

    /// Gives the logs back what they count as set aside and nobody is promised: all of `bytes`.
    fn tell(&self, logs: &[Wal], bytes: &AtomicU64) {
        let bytes = bytes.swap(0, Ordering::Acquire);
        if bytes > 0 {
            logs.iter().for_each(|log| log.unreserve(bytes));
        }
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
            (0..parts).for_each(|_| logs.unreserve(part));
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
        let bytes = logs.record_bytes(payload.len());
        let mut left = capacity;
        while logs.reserve(bytes).is_ok() {
            let inserted = logs.insert(LogId::new(1), record);
            left -= inserted.end.get() - inserted.lsn.get();
            logs.unreserve(bytes);
        }
        assert!(left < bytes, "{left} bytes are left");
        assert!(is_full(logs.reserve(left + 1)), "one log is full, and that counts");
        logs.reserve(left).unwrap();
        logs.close().unwrap();
    }
}
