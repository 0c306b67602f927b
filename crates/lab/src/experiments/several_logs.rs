//! Insertions into several logs without a device, which are synchronized now and then: the
//! microbenchmark of Aether, section 7.5, with the product's logs. Native and simulated threads run
//! the same.

use std::time::Duration;

use duramen::InsertDesign;
use duramen_io::{Disk, SimDisk};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, CachePadded, cpu, thread};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};
use duramen_wal::{GroupCommit, Log, NewRecord, WalOptions};

use crate::error::{Error, Result};
use crate::figure::Series;

/// Bytes of a record, as in the paper's microbenchmark, and of its header in one of several logs.
const RECORD_BYTES: usize = 120;
const HEADER_BYTES: usize = 32;
/// Time for all threads to start.
const START_UP: Duration = Duration::from_millis(1);
/// Time between two sync records, which serve all commits meanwhile: a round lasts at least as
/// long as a write to a fast device.
pub(super) const ROUND: Duration = Duration::from_micros(50);
/// What the pages say of synchronizations.
pub(super) const ABOUT_ROUNDS: &str = "A commit looks whether it is hardened, as a thread does that does not wait; \
    every 50 us a sync record ends the epoch of all logs and notes where they end, for all commits meanwhile. The \
    baseline inserts the same records without synchronizations.";
/// Approximate number of records between two readings of the clock.
const BATCH: u64 = 64;

/// What is inserted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// Threads that insert.
    pub(super) threads: usize,
    /// Logs.
    pub(super) logs: u16,
    /// Whether a thread chooses its log by its memory node, or else by its number.
    pub(super) by_node: bool,
    /// One of so many records of a thread is a commit.
    pub(super) every: u64,
    /// Whether commits synchronize the logs, with a sync record each [`ROUND`].
    pub(super) synchronizes: bool,
    /// Buffer of each log, large enough that nothing is flushed.
    pub(super) ring_bytes: usize,
    /// Where the threads run.
    pub(super) world: World,
    /// For how long.
    pub(super) time: Duration,
}

/// Where threads run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum World {
    /// On the machine, where memory is taken from the system when it is first used.
    Native,
    /// On a simulated machine, where memory is there.
    Simulated,
}

/// Records per commit: the fewest that an update has, TATP, and TPC-C (section 7.5.2).
pub(super) const EVERY: [u64; 3] = [2, 4, 75];

impl Load {
    /// Records per second of all threads.
    pub(super) fn rate(self) -> Result<f64> {
        let options = WalOptions {
            logs: self.logs,
            insert: InsertDesign::Hybrid,
            ring_bytes: self.ring_bytes,
            segment_bytes: 4 << 20,
            spare_segments: 0,
            group_commit: GroupCommit { transactions: 1, bytes: self.ring_bytes / 2, time: Duration::from_secs(10) },
            ..WalOptions::default()
        };
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let logs = Arc::new(Log::create(&disk, &options, [1; 16])?);
        if self.world == World::Native {
            (0..self.logs).try_for_each(|log| self.touch_ring(&logs, LogId::new(log)))?;
        }
        let start = Instant::now().after(START_UP);
        let next_round = Arc::new(CachePadded::new(AtomicU64::new(start.nanos())));
        let threads: std::io::Result<Vec<_>> = (0..self.threads)
            .map(|number| {
                let (logs, next_round) = (Arc::clone(&logs), Arc::clone(&next_round));
                thread::spawn("inserter", move || self.work(&logs, number, start, &next_round))
            })
            .collect();
        let system = |error: std::io::Error| Error::ResultFile {
            operation: "start threads for",
            path: "an experiment".to_owned(),
            reason: error.to_string(),
        };
        let (mut records, mut elapsed) = (0, Duration::ZERO);
        for thread in threads.map_err(system)? {
            let (own, end) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            records += own;
            elapsed = elapsed.max(end.since(start));
        }
        Ok(records as f64 / elapsed.as_secs_f64())
    }

    /// Fills the ring once, so that the measurement does not wait for its memory, and empties it.
    fn touch_ring(self, logs: &Log, log: LogId) -> Result<()> {
        let payload = vec![7; 1 << 20];
        let record = |payload| NewRecord {
            kind: 1,
            flags: 0,
            txn: TxnId::new(1),
            page: PageId::ZERO,
            prev: LogAddress::ZERO,
            after: Gsn::ZERO,
            payload,
        };
        for _ in 0..self.ring_bytes / payload.len() {
            logs.insert(log, record(&payload));
        }
        let last = logs.insert(log, record(&[]));
        Ok(logs.wait_hardened(last.gsn, Some(last.address()))?)
    }

    /// Inserts until the time is over, and a sync record when one is due; returns how many records,
    /// and when it was done.
    fn work(self, logs: &Log, number: usize, start: Instant, next_round: &AtomicU64) -> (u64, Instant) {
        let payload = [7; RECORD_BYTES - HEADER_BYTES];
        thread::sleep(start.since(Instant::now()));
        let own = if self.by_node { cpu::node() } else { number };
        let log = LogId::new((own % usize::from(self.logs)) as u16);
        let (mut records, mut after, end) = (0, Gsn::ZERO, start.after(self.time));
        loop {
            for _ in 0..BATCH.div_ceil(self.every) {
                for left in (0..self.every).rev() {
                    let record = NewRecord {
                        kind: 1,
                        flags: 0,
                        txn: TxnId::new(1 + number as u64),
                        page: PageId::new(1 + records % 8),
                        prev: LogAddress::ZERO,
                        after,
                        payload: &payload,
                    };
                    let inserted = logs.insert(log, record);
                    if left == 0 && self.synchronizes {
                        // As a thread does that does not wait for its commits.
                        std::hint::black_box(logs.is_hardened(inserted.gsn));
                    }
                    debug_assert_eq!(inserted.bytes(), RECORD_BYTES as u64, "as the paper's");
                    after = inserted.gsn;
                    records += 1;
                }
            }
            let now = Instant::now();
            if now >= end {
                return (records, now);
            }
            let due = next_round.load(Ordering::Relaxed);
            let next = now.after(ROUND).nanos();
            if self.synchronizes
                && now.nanos() >= due
                && next_round.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                logs.synchronize().expect("a simulated disk has space");
            }
        }
    }
}

/// Returns the share of the throughput that synchronizing costs with most threads.
pub(super) fn cost(without: &Series, with: &Series) -> f64 {
    1.0 - with.last() / without.last()
}

/// Returns what a figure calls it.
pub(super) fn name(every: u64, synchronizes: bool) -> String {
    match synchronizes {
        true => format!("a synchronization every {every} insertions"),
        false => format!("none ({every})"),
    }
}
