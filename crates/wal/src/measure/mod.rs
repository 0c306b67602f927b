//! Measures how fast threads insert, and how fast they could insert at best: a benchmark of the log
//! buffer alone.
//!
//! The disk accepts every write at once and keeps no content. So [`insertions`] measures the
//! acquisition of space, the checksum, the copy, the release, and the daemon's pass over the
//! records. [`copies`] is the yardstick: the same number of bytes copied into the same kind of
//! buffer, from one end to the other and again, with no other work. A variant adds one addition,
//! before each record, to a word that all threads share, since no thread can share a buffer without
//! an atomic operation. Both leave out that the lines of a shared buffer move between cores.
//!
//! On a machine that is busy with other work the rates mean little; processor time for each record
//! is still meaningful.

mod buffer;
mod discard;

use std::hint::black_box;
use std::time::Duration;

use duramen_io::Disk;
use duramen_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use duramen_sync::clock::{Instant, thread_cpu_time};
use duramen_sync::{Arc, CachePadded, thread};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};

use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::header::{LEAST_HEADER_BYTES, Layouts, MOST_HEADER_BYTES};
use crate::format::record::NewRecord;
use crate::insert::InsertDesign;
use crate::options::WalOptions;
use crate::several::log::Log;
use discard::DiscardDisk;

pub use buffer::{BufferLoad, BufferRate, buffer};

/// The load of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that insert, at least 1.
    pub threads: usize,
    /// Size of a record in the log, in bytes: a multiple of 8 from 24 up to what the log admits.
    pub record_bytes: usize,
    /// How long the threads insert.
    pub time: Duration,
}

/// The result of a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    /// Records of all threads.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time from the start of the threads to the end of the last.
    pub elapsed: Duration,
    /// Processor time of all threads together.
    pub cpu_time: Duration,
    /// Records that joined another thread's group.
    pub consolidated: u64,
    /// How often a thread waited for room in the buffer.
    pub ring_full_waits: u64,
}

impl Rate {
    /// Returns the records per second.
    pub fn records_per_second(&self) -> f64 {
        self.records as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the processor time for each record, in nanoseconds.
    pub fn cpu_nanos_per_record(&self) -> f64 {
        self.cpu_time.as_nanos() as f64 / self.records as f64
    }
}

/// Approximate bytes between two reads of the clock; also the largest number of records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 1000;

/// Inserts records by `insert`, as `load` describes.
///
/// # Errors
/// [`WalError::InvalidOption`] for a load that the default options do not allow, and the errors of
/// creating a log.
pub fn insertions(insert: InsertDesign, load: Load) -> Result<Rate> {
    // The disk has room for everything.
    let options = WalOptions { insert, max_bytes: 1 << 44, segment_bytes: 1 << 34, ..WalOptions::default() };
    load.validate(&options)?;
    let disk: Arc<dyn Disk> = Arc::new(DiscardDisk::default());
    let wal = Arc::new(Log::create(&disk, &options, [0; 16])?);
    let payload = vec![7_u8; load.payload()];
    let rate = load.run(|| {
        let (wal, payload) = (Arc::clone(&wal), payload.clone());
        let mut number = 0;
        move || {
            number += 1;
            wal.insert(
                LogId::ZERO,
                NewRecord {
                    kind: 1,
                    flags: 0,
                    txn: TxnId::new(number),
                    page: PageId::ZERO,
                    prev: LogAddress::ZERO,
                    after: Gsn::ZERO,
                    payload: &payload,
                },
            );
        }
    })?;
    let stats = wal.stats();
    Ok(Rate { consolidated: stats.consolidated, ring_full_waits: stats.ring_full_waits, ..rate })
}

/// What threads do besides copying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Copying {
    /// Nothing.
    Alone,
    /// For each record they add to one word that they share, which is the least that `reserved`
    /// could do.
    InTurns,
}

/// Copies as many bytes as the records have into a ring, each thread into its own part.
///
/// # Errors
/// As [`insertions`].
pub fn copies(copying: Copying, load: Load) -> Result<Rate> {
    let options = WalOptions::default();
    load.validate(&options)?;
    let system =
        |error: std::io::Error| WalError::System { what: "allocate memory".to_owned(), reason: error.to_string() };
    let ring = Arc::new(Ring::new(options.ring_bytes).map_err(system)?.touched());
    let next = Arc::new(CachePadded::new(AtomicU64::new(0)));
    let source = vec![7_u8; load.record_bytes];
    let part = options.ring_bytes / load.threads;
    let mut parts = 0;
    let rate = load.run(|| {
        let (ring, next, source) = (Arc::clone(&ring), Arc::clone(&next), source.clone());
        let start = parts * part;
        parts += 1;
        let mut at = 0;
        move || {
            if at + source.len() > part {
                at = 0;
            }
            if copying == Copying::InTurns {
                black_box(next.fetch_add(source.len() as u64, Ordering::AcqRel));
            }
            // SAFETY: the parts of the threads are disjoint, and a record fits in one: see
            // `validate`.
            let space = unsafe { ring.bytes_mut(Lsn::new((start + at) as u64), source.len()) };
            space.copy_from_slice(black_box(&source));
            at += source.len();
        }
    })?;
    let added = next.load(Ordering::Acquire);
    assert_eq!(added, if copying == Copying::InTurns { rate.bytes } else { 0 }, "each record is added once");
    Ok(rate)
}

impl Load {
    /// Returns the bytes of a payload that makes a record of the requested size.
    fn payload(&self) -> usize {
        let with = |header: usize| self.record_bytes.saturating_sub(header);
        let layouts = Layouts::of_log(LogId::ZERO, true, Lsn::ZERO, u64::MAX);
        let layout = layouts.choose(TxnId::ZERO, PageId::ZERO, LogAddress::ZERO, with(LEAST_HEADER_BYTES));
        with(layout.bytes())
    }

    fn validate(&self, options: &WalOptions) -> Result<()> {
        let invalid = |option, reason: String| Err(WalError::InvalidOption { option, reason });
        let most = options.max_payload() + MOST_HEADER_BYTES;
        if !(LEAST_HEADER_BYTES..=most).contains(&self.record_bytes) || !self.record_bytes.is_multiple_of(8) {
            return invalid("record_bytes", format!("it must be a multiple of 8 from {LEAST_HEADER_BYTES} to {most}"));
        }
        if self.threads == 0 || self.threads * self.record_bytes > options.ring_bytes {
            let ring = options.ring_bytes;
            return invalid(
                "threads",
                format!(
                    "there must be at least one thread, and one record of each thread must fit into {ring} bytes \
                     together"
                ),
            );
        }
        Ok(())
    }

    /// Runs what `worker` makes on each thread again and again until the time is over.
    fn run<W: FnMut() + Send + 'static>(&self, mut worker: impl FnMut() -> W) -> Result<Rate> {
        let go = Arc::new(AtomicBool::new(false));
        let batch = (BATCH_BYTES / self.record_bytes).clamp(1, BATCH_RECORDS);
        let (time, record_bytes) = (self.time, self.record_bytes as u64);
        let spawned: std::io::Result<Vec<_>> = (0..self.threads)
            .map(|_| {
                let (go, mut work) = (Arc::clone(&go), worker());
                thread::spawn("duramen-measure", move || {
                    while !go.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    let (start, mut records, mut elapsed) = (Instant::now(), 0, Duration::ZERO);
                    let cpu_start = thread_cpu_time();
                    while elapsed < time {
                        (0..batch).for_each(|_| work());
                        records += batch as u64;
                        elapsed = start.elapsed();
                    }
                    (records, thread_cpu_time() - cpu_start)
                })
            })
            .collect();
        let start = Instant::now();
        go.store(true, Ordering::Release);
        let threads = spawned
            .map_err(|error| WalError::System { what: "start a thread".to_owned(), reason: error.to_string() })?;
        let mut rate = Rate {
            records: 0,
            bytes: 0,
            elapsed: Duration::ZERO,
            cpu_time: Duration::ZERO,
            consolidated: 0,
            ring_full_waits: 0,
        };
        for thread in threads {
            let (records, cpu_time) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            rate.records += records;
            rate.cpu_time += cpu_time;
        }
        rate.elapsed = start.elapsed();
        rate.bytes = rate.records * record_bytes;
        Ok(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { threads: 2, record_bytes: 120, time: Duration::from_millis(5) };

    #[test]
    fn everything_can_be_measured() {
        for copying in [Copying::Alone, Copying::InTurns] {
            let copied = copies(copying, LOAD).unwrap();
            assert!(copied.records >= 2000 && copied.bytes == copied.records * 120);
        }
        for design in InsertDesign::ALL {
            let rate = insertions(design, LOAD).unwrap();
            assert!(rate.records >= 2000 && rate.bytes == rate.records * 120, "{design}");
            assert!(rate.cpu_nanos_per_record() > 0.0 && rate.records_per_second() > 0.0, "{design}");
        }
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        let refused = [
            Load { threads: 0, ..LOAD },
            Load { record_bytes: 16, ..LOAD },
            Load { record_bytes: 121, ..LOAD },
            Load { record_bytes: 8 << 20, ..LOAD },
            Load { threads: 100, record_bytes: 1 << 20, ..LOAD },
        ];
        for load in refused {
            assert!(matches!(insertions(InsertDesign::Mutex, load), Err(WalError::InvalidOption { .. })));
            assert!(matches!(copies(Copying::Alone, load), Err(WalError::InvalidOption { .. })));
        }
    }
}
