//! Insertions into the log buffer with nothing behind it: no flush, no device.
//!
//! This is the microbenchmark of the Aether paper (section 6.3). Released space is reclaimed by a
//! thread whose record crosses into another eighth of the buffer, and by one that watches for a
//! full buffer.

use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::{Arc, Mutex, cost, cpu, thread};
use duramen_types::{BLOCK_SIZE, Lsn};

use crate::address::FIRST_LSN;
use crate::buffer::positions::{Hardening, Space};
use crate::buffer::ring::Ring;
use crate::error::{Result, WalError};
use crate::format::header::LEAST_HEADER_BYTES;
use crate::insert::{AnyInsertion, InsertDesign, Shape};
use crate::wake_event::WakeEvent;

/// What is inserted, by how many threads, into which buffers.
#[derive(Clone, Copy, Debug)]
pub struct BufferLoad {
    /// Threads that insert.
    pub threads: usize,
    /// Size of a record in bytes, a multiple of 8 from 24.
    pub record_bytes: usize,
    /// After `.0` such records each thread inserts one of `.1` bytes.
    pub outlier: Option<(u64, usize)>,
    /// Whether the bytes go to memory in each thread's own cache, not to the acquired buffer space.
    pub thread_local: bool,
    /// Number of buffers: one for all threads, or several, of which each memory node has its own.
    pub logs: usize,
    /// Number of consolidation arrays, distributed over the memory nodes.
    pub arrays: usize,
    /// Slots of the consolidation array.
    pub array_slots: usize,
    /// Slots of the pool, or twice as many as all arrays have if that number is larger.
    pub slot_pool: usize,
    /// Whether a thread that has filled in its record early waits until its space is due, as in the
    /// paper, instead of leaving an early-release entry as this log does. Without meaning in
    /// designs that always release in order.
    pub waits_for_turn: bool,
    /// Bytes of the buffer, a power of two: at least four times what all threads insert at a time.
    pub ring_bytes: usize,
    /// How long the threads insert.
    pub time: Duration,
}

/// What was inserted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BufferRate {
    /// Records of all threads.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Time until the last thread had finished.
    pub elapsed: Duration,
    /// Records that joined another thread's group.
    pub consolidated: u64,
}

impl BufferRate {
    /// Returns the bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

struct Buffer {
    insertion: AnyInsertion,
    space: Space,
    ring: Ring,
    /// Held by the thread that reclaims space.
    recycling: Mutex<()>,
}

impl Buffer {
    fn insert(&self, source: &[u8], mut own: Option<&mut Vec<u8>>) {
        let bytes = source.len() as u64;
        let fill = |own: Option<&mut Vec<u8>>, lsn| {
            let space = match own {
                Some(own) => own.as_mut_slice(),
                // SAFETY: the design has handed `[lsn, lsn + bytes)` to this thread only, and
                // `durable` only moves to positions that have been released.
                None => unsafe { self.ring.bytes_mut(lsn, source.len()) },
            };
            space.copy_from_slice(source);
            cost::write(space.as_ptr(), space.len());
        };
        let tried = self.insertion.try_insert(&self.space, bytes, |lsn| fill(own.as_deref_mut(), lsn));
        let lsn = tried.unwrap_or_else(|| self.insertion.insert(&self.space, bytes, true, |lsn| fill(own, lsn)));
        let part = self.ring.size() as u64 / 8;
        if lsn.get() / part != (lsn.get() + bytes) / part {
            self.recycle();
        }
    }

    /// Reclaims released space.
    fn recycle(&self) {
        let _recycling = self.recycling.lock();
        self.insertion.collect(&self.space);
        self.space.set_durable(self.space.released());
    }
}

/// Inserts records by `design`, as `load` describes.
///
/// # Errors
/// [`WalError::InvalidOption`] for an impossible load, [`WalError::System`] when there is no memory
/// or no thread.
pub fn buffer(design: InsertDesign, load: &BufferLoad) -> Result<BufferRate> {
    load.validate()?;
    let system = |error: std::io::Error| WalError::system("allocate memory", error);
    let capacity = load.ring_bytes as u64;
    let shape = Shape {
        places: load.array_slots,
        arrays: load.arrays,
        pool: load.slot_pool.max(2 * load.array_slots * load.arrays),
        capacity,
        smallest: LEAST_HEADER_BYTES as u64,
    };
    let full = Arc::new(WakeEvent::new());
    let buffer = |node| {
        let ring = Ring::new(load.ring_bytes).map_err(system)?;
        if load.logs > 1 {
            // SAFETY: no thread has the ring yet.
            let bytes = unsafe { ring.bytes_mut(Lsn::ZERO, ring.size()) };
            cost::bind(bytes.as_ptr(), bytes.len(), node);
        }
        let ring = ring.touched();
        let space = Space::new(capacity, BLOCK_SIZE as u64, capacity, FIRST_LSN, Arc::clone(&full), Hardening::Flushed);
        Ok(Buffer {
            insertion: AnyInsertion::new(design, shape),
            space: if load.waits_for_turn { space.without_early_entries() } else { space },
            ring,
            recycling: Mutex::new(()),
        })
    };
    let buffers: Arc<[Buffer]> = (0..load.logs).map(buffer).collect::<Result<_>>()?;
    // The thread that releases the space for which all others wait may not be one that reclaims it.
    let recycler = {
        let (buffers, full) = (Arc::clone(&buffers), Arc::clone(&full));
        thread::spawn("recycler", move || {
            while !full.is_stopped() {
                full.wait(Some(FULL_CHECK_INTERVAL));
                buffers.iter().for_each(Buffer::recycle);
            }
        })
        .map_err(system)?
    };
    let start = Instant::now().after(START_UP);
    let threads: std::io::Result<Vec<_>> = (0..load.threads)
        .map(|_| {
            let (buffers, load) = (Arc::clone(&buffers), *load);
            thread::spawn("inserter", move || work(&buffers[cpu::node() % load.logs], &load, start))
        })
        .collect();
    let mut rate = BufferRate { records: 0, bytes: 0, elapsed: Duration::ZERO, consolidated: 0 };
    for thread in threads.map_err(system)? {
        let (records, bytes, end) = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        rate.records += records;
        rate.bytes += bytes;
        rate.elapsed = rate.elapsed.max(end.since(start));
    }
    full.stop();
    recycler.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    rate.consolidated = buffers.iter().map(|buffer| buffer.insertion.consolidated()).sum();
    let handed_out: u64 = buffers.iter().map(|buffer| buffer.space.end().get() - FIRST_LSN.get()).sum();
    assert_eq!(handed_out, rate.bytes, "every byte handed out is accounted for");
    Ok(rate)
}

/// The longest time between two reclamations by the thread that does not insert.
const FULL_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Time for all threads to start.
const START_UP: Duration = Duration::from_millis(1);
/// Records between two reads of the clock.
const BATCH: u64 = 16;

/// Inserts until the time is over; returns records, bytes, and the end.
fn work(buffer: &Buffer, load: &BufferLoad, start: Instant) -> (u64, u64, Instant) {
    let (small, large) = (vec![7; load.record_bytes], vec![7; load.outlier.map_or(0, |(_, bytes)| bytes)]);
    let mut own = load.thread_local.then(|| vec![0; load.record_bytes]);
    thread::sleep(start.since(Instant::now()));
    let (mut records, mut bytes, end) = (0, 0, start.after(load.time));
    // At least once, so that every thread has inserted something even if it starts late.
    loop {
        for _ in 0..BATCH {
            records += 1;
            let record = match load.outlier {
                Some((every, _)) if records % (every + 1) == 0 => &large,
                _ => &small,
            };
            bytes += record.len() as u64;
            buffer.insert(record, own.as_mut());
        }
        let now = Instant::now();
        if now >= end {
            return (records, bytes, now);
        }
    }
}

impl BufferLoad {
    fn validate(&self) -> Result<()> {
        let invalid = |option, reason: &str| Err(WalError::invalid(option, reason));
        let outlier = self.outlier.map_or(self.record_bytes, |(_, bytes)| bytes);
        let most = self.record_bytes.max(outlier);
        if [self.record_bytes, outlier].iter().any(|&bytes| bytes < LEAST_HEADER_BYTES || !bytes.is_multiple_of(8)) {
            return invalid("record_bytes", "it must be a multiple of 8, and at least 24");
        }
        if self.thread_local && self.outlier.is_some() {
            return invalid("outlier", "thread-local memory takes records of one size only");
        }
        if self.logs == 0 || self.arrays == 0 {
            return invalid("logs", "there must be at least one log, and at least one array");
        }
        if !(1..=64).contains(&self.array_slots) {
            return invalid("array_slots", "it must be from 1 to 64");
        }
        if !self.ring_bytes.is_power_of_two() || self.threads == 0 || self.ring_bytes < 4 * self.threads * most {
            return invalid(
                "ring_bytes",
                "it must be a power of two, and at least four times the bytes that all threads insert at a time",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_inserts_every_byte() {
        let load = BufferLoad {
            threads: 3,
            record_bytes: 120,
            outlier: Some((10, 4800)),
            thread_local: false,
            logs: 1,
            arrays: 1,
            array_slots: 4,
            slot_pool: 64,
            waits_for_turn: false,
            ring_bytes: 1 << 20,
            time: Duration::from_millis(5),
        };
        for design in InsertDesign::ALL {
            let rate = buffer(design, &load).unwrap();
            assert!(rate.records >= 3 * BATCH && rate.bytes > rate.records * 120, "{design}");
            assert!(
                buffer(design, &BufferLoad { logs: 2, arrays: 2, ..load }).unwrap().records >= 3 * BATCH,
                "{design}"
            );
            assert!(
                buffer(design, &BufferLoad { waits_for_turn: true, ..load }).unwrap().records >= 3 * BATCH,
                "{design}"
            );
            let rate = buffer(design, &BufferLoad { thread_local: true, outlier: None, ..load }).unwrap();
            assert_eq!(rate.bytes, rate.records * 120, "{design}");
        }
        for refused in [
            BufferLoad { record_bytes: 50, ..load },
            BufferLoad { ring_bytes: 1 << 13, ..load },
            BufferLoad { threads: 0, ..load },
            BufferLoad { array_slots: 0, ..load },
        ] {
            assert!(matches!(buffer(InsertDesign::Mutex, &refused), Err(WalError::InvalidOption { .. })));
        }
    }
}
