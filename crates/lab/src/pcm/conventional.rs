//! The schemes that PCMLogging is compared with: pages and a log, apart from each other.
//!
//! *NoPCM* keeps both on disk. *PCMBasic* (PCMLogging, section 1) divides the PCM into a log pool
//! and a buffer pool, to which dirty pages go that leave DRAM. When the log pool is full, a
//! checkpoint writes the dirty pages in DRAM to the buffer pool, so that only the records of
//! transactions in progress are still needed.
//!
//! Pages are stolen and not forced, as in ARIES: a dirty page may leave DRAM before its transaction
//! commits, once the log says how to undo the changes, and need not leave when it commits.

use std::collections::HashMap;

use super::devices::{Devices, lines};
use super::recency::Recency;
use super::scheme::{Existing, Frames, Scheme, Xid};
use super::trace::{Access, Op, PAGE_BYTES, Page, TUPLE_BYTES, Trace, Tuple};

/// Bytes of a log record besides tuples.
const RECORD_HEADER: u64 = 32;
/// Bytes that describe a page in the PCM: its number, a time, a checksum.
pub(super) const SLOT_HEADER: u64 = 32;
/// Bytes of PCM that a page takes.
const SLOT_BYTES: u64 = PAGE_BYTES + SLOT_HEADER;
/// Lines that are written for a page.
const SLOT_LINES: u64 = lines(PAGE_BYTES) + lines(SLOT_HEADER);

/// Returns the bytes of the log record of `access`: what was there, and what is there now.
fn record_bytes(access: Access) -> u64 {
    let images = match access {
        Access::Read => return 0,
        Access::Update => 2,
        Access::Insert | Access::Delete => 1,
    };
    RECORD_HEADER + images * TUPLE_BYTES
}

/// How the PCM is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Division {
    /// Bytes of the log pool.
    pub(crate) log: u64,
    /// Bytes of the buffer pool.
    pub(crate) pool: u64,
}

/// Pages in PCM that differ from those on disk.
#[derive(Debug)]
struct Pool {
    recency: Recency,
    capacity: usize,
    has_been_full: bool,
}

/// The log: positions are bytes since the beginning.
#[derive(Debug, Default)]
struct Log {
    end: u64,
    durable: u64,
    /// Bytes that are needed, of a log in PCM.
    used: u64,
}

/// What a transaction in progress has done.
#[derive(Debug, Default)]
struct Running {
    changes: Vec<Tuple>,
    log_bytes: u64,
}

/// NoPCM, or PCMBasic.
#[derive(Debug)]
pub(crate) struct Conventional {
    frames: Frames,
    existing: Existing,
    /// Of each page whether DRAM has changes that neither PCM nor disk has.
    dirty: Vec<bool>,
    /// Of each page where the record of its last change ends.
    changed: Vec<u64>,
    log: Log,
    /// The buffer pool and the size of the log pool, of PCMBasic.
    pcm: Option<(Pool, u64)>,
    running: HashMap<Xid, Running>,
}

impl Conventional {
    /// Returns the scheme with so many frames, and the PCM divided like that if there is one.
    pub(crate) fn new(trace: &Trace, frames: usize, pcm: Option<Division>) -> Self {
        let pages = trace.pages();
        let pcm = pcm.map(|division| {
            let capacity = (division.pool / SLOT_BYTES) as usize;
            assert!(capacity > 0, "the buffer pool has room for a page");
            (Pool { recency: Recency::new(pages as usize), capacity, has_been_full: false }, division.log)
        });
        Self {
            frames: Frames::new(frames, pages),
            existing: Existing::new(trace.stored(), pages),
            dirty: vec![false; pages as usize],
            changed: vec![0; pages as usize],
            log: Log::default(),
            pcm,
            running: HashMap::new(),
        }
    }

    /// Brings `page` to DRAM.
    fn fetch(&mut self, page: Page, devices: &mut Devices) {
        if self.frames.hit(page) {
            return;
        }
        if !self.existing.create(page) {
            devices.counts.lookups += 1;
            match &mut self.pcm {
                Some((pool, _)) if pool.recency.contains(page.get()) => {
                    pool.recency.touch(page.get());
                    devices.read_lines(SLOT_LINES);
                }
                _ => {
                    devices.counts.misses += 1;
                    devices.read(page);
                }
            }
        }
        if let Some(victim) = self.frames.admit(page) {
            self.clean(victim, devices);
        }
    }

    /// Writes `page` where it is durable, if it is dirty.
    fn clean(&mut self, page: Page, devices: &mut Devices) {
        if !std::mem::replace(&mut self.dirty[page.index()], false) {
            return;
        }
        if self.changed[page.index()] > self.log.durable {
            self.force_log(devices);
        }
        let Some((pool, _)) = &mut self.pcm else {
            self.existing.written(page);
            devices.write(page);
            return;
        };
        let is_there = pool.recency.contains(page.get());
        if !is_there && pool.recency.len() == pool.capacity {
            let victim = pool.recency.oldest().expect("the pool is full");
            pool.recency.remove(victim);
            let victim = Page::new(victim);
            self.existing.written(victim);
            devices.write(victim);
            // The victim's slot is said to be free.
            devices.write_lines(1);
        }
        pool.recency.touch(page.get());
        pool.has_been_full |= pool.recency.len() == pool.capacity;
        devices.write_lines(SLOT_LINES);
    }

    /// Appends a log record of `txn`.
    fn append(&mut self, txn: Xid, bytes: u64, devices: &mut Devices) {
        if self.pcm.as_ref().is_some_and(|(_, room)| self.log.used + bytes > *room) {
            self.checkpoint(devices);
        }
        self.log.end += bytes;
        self.log.used += bytes;
        self.running.entry(txn).or_default().log_bytes += bytes;
    }

    /// Makes the log durable up to its end.
    fn force_log(&mut self, devices: &mut Devices) {
        let Log { end, durable, .. } = self.log;
        if end == durable {
            return;
        }
        match self.pcm {
            // A line that was written in part before is written again.
            Some(_) => devices.write_lines(lines(end) - durable / super::devices::LINE_BYTES),
            None => devices.write_log(),
        }
        self.log.durable = end;
    }

    /// Makes room in the log pool.
    fn checkpoint(&mut self, devices: &mut Devices) {
        devices.counts.checkpoints += 1;
        let dirty: Vec<Page> = self.frames.pages().filter(|page| self.dirty[page.index()]).collect();
        for page in dirty {
            self.clean(page, devices);
        }
        self.log.used = self.running.values().map(|running| running.log_bytes).sum();
    }

    fn change(&mut self, txn: Xid, tuple: Tuple, bytes: u64, devices: &mut Devices) {
        self.append(txn, bytes, devices);
        self.dirty[tuple.page().index()] = true;
        self.changed[tuple.page().index()] = self.log.end;
    }
}

impl Scheme for Conventional {
    fn lock_of(&self, tuple: Tuple) -> u32 {
        tuple.get()
    }

    fn access(&mut self, txn: Xid, op: Op, devices: &mut Devices) {
        self.fetch(op.tuple().page(), devices);
        if op.writes() {
            self.change(txn, op.tuple(), record_bytes(op.access()), devices);
            self.running.entry(txn).or_default().changes.push(op.tuple());
        }
    }

    fn commit(&mut self, txn: Xid, devices: &mut Devices) {
        // One that only read needs no record.
        if self.running.contains_key(&txn) {
            self.append(txn, RECORD_HEADER, devices);
            self.force_log(devices);
            self.running.remove(&txn);
        }
    }

    fn abort(&mut self, txn: Xid, devices: &mut Devices) {
        let Some(running) = self.running.get_mut(&txn) else { return };
        let changes = std::mem::take(&mut running.changes);
        for tuple in changes.into_iter().rev() {
            self.fetch(tuple.page(), devices);
            self.change(txn, tuple, RECORD_HEADER + TUPLE_BYTES, devices);
        }
        self.append(txn, RECORD_HEADER, devices);
        self.running.remove(&txn);
    }

    fn has_been_full(&self) -> bool {
        self.pcm.as_ref().is_none_or(|(pool, _)| pool.has_been_full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcm::devices::Counts;
    use crate::pcm::trace::Txn;

    /// A database of ten pages on disk.
    fn database() -> Trace {
        let mut trace = Trace::new(10);
        trace.push(Txn { ops: &[op(Access::Read, 19)], locks_reads: true, commits: true });
        trace
    }

    fn op(access: Access, page: u32) -> Op {
        Op::new(access, Page::new(page).tuple(0))
    }

    fn run(scheme: &mut Conventional, devices: &mut Devices, txn: u64, ops: &[(Access, u32)]) {
        for &(access, page) in ops {
            scheme.access(Xid::new(txn), op(access, page), devices);
        }
    }

    #[test]
    fn without_pcm_pages_and_log_go_to_disk() {
        let (mut scheme, mut devices) = (Conventional::new(&database(), 2, None), Devices::new(20));
        // Reads pages 0, 1, 2; page 0 leaves dirty, after its log record.
        run(&mut scheme, &mut devices, 1, &[(Access::Update, 0), (Access::Read, 1), (Access::Read, 2)]);
        let expected = Counts { lookups: 3, misses: 3, reads: 3, writes: 1, log_writes: 1, ..Counts::default() };
        assert_eq!(devices.counts, expected);
        // Page 1 leaves clean; a new page is not read, and page 2 leaves clean.
        run(&mut scheme, &mut devices, 1, &[(Access::Read, 0), (Access::Insert, 12), (Access::Read, 0)]);
        let expected = Counts { lookups: 4, misses: 4, reads: 4, ..expected };
        assert_eq!(devices.counts, expected);
        devices.now += 1 << 40;
        scheme.commit(Xid::new(1), &mut devices);
        scheme.commit(Xid::new(2), &mut devices);
        assert_eq!(devices.counts, Counts { log_writes: 2, ..expected }, "one that only read writes no log");
        assert!(scheme.has_been_full());
    }

    /// A PCM for two pages, and log for so many bytes.
    fn basic(log: u64) -> Conventional {
        Conventional::new(&database(), 1, Some(Division { log, pool: 2 * SLOT_BYTES }))
    }

    #[test]
    fn dirty_pages_go_to_the_pool_and_the_oldest_to_disk() {
        let (mut scheme, mut devices) = (basic(1 << 20), Devices::new(20));
        run(&mut scheme, &mut devices, 1, &[(Access::Update, 0), (Access::Update, 1), (Access::Update, 2)]);
        // Pages 0 and 1 left DRAM, each after its record of 288 bytes: lines 0 to 4, then 4 to 8.
        let log = 5 + 5;
        let expected = Counts { lookups: 3, misses: 3, reads: 3, pcm_lines: log + 2 * 129, ..Counts::default() };
        assert_eq!(devices.counts, expected);
        assert!(scheme.has_been_full());
        // Page 0 is read from PCM; page 2 takes the place of page 1 there.
        run(&mut scheme, &mut devices, 1, &[(Access::Read, 0)]);
        let lines = expected.pcm_lines + 5 + 129 + 1;
        let expected = Counts { lookups: 4, misses: 3, writes: 1, pcm_lines: lines, ..expected };
        assert_eq!(devices.counts, expected);
        run(&mut scheme, &mut devices, 1, &[(Access::Read, 2), (Access::Read, 1)]);
        assert_eq!(devices.counts, Counts { lookups: 6, misses: 4, reads: 4, ..expected });
    }

    #[test]
    fn a_full_log_cleans_the_pages_in_dram() {
        let (mut scheme, mut devices) = (basic(700), Devices::new(20));
        run(&mut scheme, &mut devices, 1, &[(Access::Update, 0), (Access::Update, 0)]);
        scheme.commit(Xid::new(1), &mut devices);
        assert_eq!((devices.counts.checkpoints, scheme.log.used), (0, 2 * 288 + 32));
        run(&mut scheme, &mut devices, 2, &[(Access::Update, 0)]);
        // The checkpoint needs no record of transaction 1 any more.
        assert_eq!((devices.counts.checkpoints, scheme.log.used), (1, 288));
        assert_eq!(devices.counts.pcm_lines, lines(2 * 288 + 32) + 129);
        assert_eq!(devices.counts.writes, 0);
        // Transaction 2 is in progress, so that its record stays.
        run(&mut scheme, &mut devices, 3, &[(Access::Update, 0), (Access::Update, 0)]);
        assert_eq!((devices.counts.checkpoints, scheme.log.used), (2, 3 * 288));
    }

    #[test]
    fn changes_are_taken_back_in_their_pages() {
        let (mut scheme, mut devices) = (basic(1 << 20), Devices::new(20));
        run(&mut scheme, &mut devices, 1, &[(Access::Update, 0), (Access::Update, 1)]);
        assert_eq!(devices.counts.lookups, 2);
        scheme.abort(Xid::new(1), &mut devices);
        // Page 0 comes back from PCM.
        assert_eq!((devices.counts.lookups, devices.counts.misses), (3, 2));
        assert_eq!(scheme.log.end, 2 * 288 + 2 * 160 + 32);
        assert!(scheme.running.is_empty() && scheme.dirty[0]);
    }
}
