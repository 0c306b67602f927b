//! How fast threads insert, and how fast they could insert at best.
//!
//! The disk of the log accepts every write at once and keeps no content. So insertions are the
//! acquisition of space, the checksum, the copy, the release, and the daemon's pass over the
//! records. Copies are the yardstick: the same number of bytes copied into the same kind of memory,
//! from one end to the other and again, with no other work. A variant adds one addition, before
//! each record, to a word that all threads share, since no thread can share a buffer without an
//! atomic operation. Both leave out that the lines of a shared buffer move between cores.
//!
//! On a machine that is busy with other work the rates mean little; processor time for each record
//! is still meaningful.

use std::hint::black_box;
use std::time::Duration;

use duramen::InsertDesign;
use duramen::pmem::{PmemError, Region, RegionOptions, Source, Survive};
use duramen_io::{Disk, MemoryDisk};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::clock::{Instant, thread_cpu_time};
use duramen_sync::{Arc, CachePadded};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};
use duramen_wal::{Inserted, Log, NewRecord, WalError, WalOptions};

use crate::bench::together::together;
use crate::failure::{Failure, Result};

/// Approximate bytes between two reads of the clock; also the largest number of records.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 1000;

/// Bytes of a record without payload, at least.
const LEAST_RECORD_BYTES: usize = 24;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    /// Copying.
    Copying,
    /// Copying, with the addition that is the least that `reserved` could do.
    CopyingInTurns,
    /// Insertion.
    Design(InsertDesign),
}

/// The load of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    /// At least 1.
    pub(super) threads: usize,
    /// Size of a record in the log, in bytes: a multiple of 8 from 24.
    pub(super) record_bytes: usize,
    /// How long the threads insert.
    pub(super) time: Duration,
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Records of all threads.
    pub(super) records: u64,
    /// Time from the start of the threads to the end of the last.
    elapsed: Duration,
    /// Processor time of all threads together.
    cpu_time: Duration,
    /// Records that joined another thread's group.
    pub(super) consolidated: u64,
    /// How often a thread waited for room in the buffer.
    pub(super) ring_full_waits: u64,
}

impl Rate {
    pub(super) fn records_per_second(&self) -> f64 {
        self.records as f64 / self.elapsed.as_secs_f64()
    }

    pub(super) fn cpu_nanos_per_record(&self) -> f64 {
        self.cpu_time.as_nanos() as f64 / self.records as f64
    }
}

impl Load {
    /// Measures `subject`.
    pub(super) fn measure(self, subject: Subject) -> Result<Rate> {
        let options = WalOptions::default();
        let (ring, most) = (options.ring_bytes, options.ring_bytes / 4);
        if self.record_bytes > most {
            return Err(Failure::Usage(format!("`--record-bytes` must be at most {most}")));
        }
        if self.threads * self.record_bytes > ring {
            let reason = format!("one record of each of the `--clients` must fit into {ring} bytes together");
            return Err(Failure::Usage(reason));
        }
        match subject {
            Subject::Copying => self.copies(ring, false),
            Subject::CopyingInTurns => self.copies(ring, true),
            Subject::Design(insert) => self.insertions(WalOptions { insert, ..options }),
        }
    }

    fn insertions(self, options: WalOptions) -> Result<Rate> {
        let fail = |error: WalError| Failure::Run(error.to_string());
        // The disk has room for everything.
        let options = WalOptions { max_bytes: 1 << 44, segment_bytes: 1 << 34, ..options };
        let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::without_content());
        let log = Arc::new(Log::create(&disk, &options, [0; 16]).map_err(fail)?);
        let mut payload = vec![7; (self.record_bytes - LEAST_RECORD_BYTES).min(options.max_payload())];
        // With the header that such a record has, it is that much too long.
        let excess = insert(&log, 0, &payload).bytes() as usize - self.record_bytes;
        payload.truncate(payload.len() - excess);
        assert_eq!(insert(&log, 0, &payload).bytes() as usize, self.record_bytes, "the payload has the right size");
        // The log buffer takes memory as it is used, which is not to be measured.
        for _ in 0..options.ring_bytes / self.record_bytes {
            insert(&log, 0, &payload);
        }
        let before = log.stats();
        let rate = self.run(|_| {
            let (log, payload, mut number) = (Arc::clone(&log), payload.clone(), 0);
            move |records| {
                for _ in 0..records {
                    number += 1;
                    insert(&log, number, &payload);
                }
            }
        })?;
        let stats = log.stats();
        let consolidated = stats.consolidated - before.consolidated;
        Ok(Rate { consolidated, ring_full_waits: stats.ring_full_waits - before.ring_full_waits, ..rate })
    }

    /// Copies into `ring` bytes of memory, each thread into its own part.
    fn copies(self, ring: usize, in_turns: bool) -> Result<Rate> {
        let options = RegionOptions { survive: Survive::Nothing, ..RegionOptions::new(ring as u64) };
        let fail = |error: PmemError| Failure::Run(error.to_string());
        let region = Arc::new(Region::open(&Source::Anonymous, &options).map_err(fail)?);
        let next = Arc::new(CachePadded::new(AtomicU64::new(0)));
        let part = ring / self.threads;
        let rate = self.run(|thread| {
            let (region, next, mut at) = (Arc::clone(&region), Arc::clone(&next), 0);
            let source = vec![7_u8; self.record_bytes];
            move |records| {
                // SAFETY: the parts of the threads are disjoint.
                let space = unsafe { region.bytes_mut((thread * part) as u64, part) };
                for _ in 0..records {
                    if at + source.len() > part {
                        at = 0;
                    }
                    if in_turns {
                        black_box(next.fetch_add(source.len() as u64, Ordering::AcqRel));
                    }
                    space[at..at + source.len()].copy_from_slice(black_box(&source));
                    at += source.len();
                }
            }
        })?;
        let added = if in_turns { rate.records * self.record_bytes as u64 } else { 0 };
        assert_eq!(next.load(Ordering::Acquire), added, "each record is added once");
        Ok(rate)
    }

    /// Runs what `worker` makes for each thread, which takes a number of records at a time, until
    /// the time is over.
    fn run<W: FnMut(usize) + Send + 'static>(self, mut worker: impl FnMut(usize) -> W) -> Result<Rate> {
        let batch = (BATCH_BYTES / self.record_bytes).clamp(1, BATCH_RECORDS);
        let (threads, elapsed) = together(self.threads, |thread| {
            let mut work = worker(thread);
            move || {
                let (start, cpu_start, mut records) = (Instant::now(), thread_cpu_time(), 0);
                loop {
                    work(batch);
                    records += batch as u64;
                    if start.elapsed() >= self.time {
                        return (records, thread_cpu_time() - cpu_start);
                    }
                }
            }
        })?;
        let (records, cpu_times): (Vec<u64>, Vec<Duration>) = threads.into_iter().unzip();
        let (records, cpu_time) = (records.iter().sum(), cpu_times.iter().sum());
        Ok(Rate { records, elapsed, cpu_time, consolidated: 0, ring_full_waits: 0 })
    }
}

fn insert(log: &Log, number: u64, payload: &[u8]) -> Inserted {
    let (txn, page, prev) = (TxnId::new(number), PageId::ZERO, LogAddress::ZERO);
    log.insert(LogId::ZERO, NewRecord { kind: 1, flags: 0, txn, page, prev, after: Gsn::ZERO, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { threads: 2, record_bytes: 120, time: Duration::from_millis(5) };

    #[test]
    fn everything_can_be_measured() {
        let designs = InsertDesign::ALL.map(Subject::Design);
        for subject in [Subject::Copying, Subject::CopyingInTurns].into_iter().chain(designs) {
            for record_bytes in [24, 120, 4 << 20] {
                let rate = Load { record_bytes, ..LOAD }.measure(subject).unwrap();
                let batch = (BATCH_BYTES / record_bytes).clamp(1, BATCH_RECORDS) as u64;
                assert!(rate.records >= 2 * batch && rate.records_per_second() > 0.0, "{subject:?}");
                assert!(rate.cpu_nanos_per_record() > 0.0, "{subject:?}");
            }
        }
    }

    #[test]
    fn loads_that_make_no_sense_are_refused() {
        for load in [Load { record_bytes: 8 << 20, ..LOAD }, Load { threads: 100, record_bytes: 1 << 20, ..LOAD }] {
            for subject in [Subject::Copying, Subject::Design(InsertDesign::Mutex)] {
                assert!(matches!(load.measure(subject), Err(Failure::Usage(_))));
            }
        }
    }
}
