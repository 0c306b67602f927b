//! The simulated disk and the simulated PCM: how long they take, and what they are asked for.

use super::trace::{PAGE_BYTES, Page};

/// Virtual nanoseconds.
pub(crate) type Nanos = u64;

/// Bytes that the PCM reads or writes at once.
pub(crate) const LINE_BYTES: u64 = 64;
/// Time of reading a line (PCMLogging, section 4).
const LINE_READ: Nanos = 50;
/// Time of writing a line.
const LINE_WRITE: Nanos = 1_000;

/// Seek to the next track of a disk with 7,200 revolutions per minute.
const SHORTEST_SEEK: f64 = 0.8e6;
/// What a seek across the whole disk takes longer. A seek grows with the square root of its length,
/// so that the average of random seeks is 8.5 ms.
const SEEK_SPAN: f64 = 14.4e6;
/// Half a revolution: the average until the first sector comes by.
const ROTATION: f64 = 4.17e6;
/// 100 MB/s, in nanoseconds for each byte.
const TRANSFER: f64 = 10.0;

/// Returns how many lines `bytes` take.
pub(crate) const fn lines(bytes: u64) -> u64 {
    bytes.div_ceil(LINE_BYTES)
}

/// What was done, as numbers that only grow.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Transactions that committed.
    pub(crate) committed: u64,
    /// Transactions that were taken back as victims of a deadlock, and run again.
    pub(crate) restarted: u64,
    /// Accesses to tuples.
    pub(crate) accesses: u64,
    /// Accesses that DRAM could not serve.
    pub(crate) lookups: u64,
    /// Accesses that neither DRAM nor PCM could serve.
    pub(crate) misses: u64,
    /// Pages read from disk for an access.
    pub(crate) reads: u64,
    /// Pages read from disk to be merged with tuples that are written back.
    pub(crate) merges: u64,
    /// Pages written to disk.
    pub(crate) writes: u64,
    /// Writes of the log to disk.
    pub(crate) log_writes: u64,
    /// Lines written to the PCM.
    pub(crate) pcm_lines: u64,
    /// Checkpoints.
    pub(crate) checkpoints: u64,
}

impl Counts {
    /// Returns what was counted since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            committed: self.committed - before.committed,
            restarted: self.restarted - before.restarted,
            accesses: self.accesses - before.accesses,
            lookups: self.lookups - before.lookups,
            misses: self.misses - before.misses,
            reads: self.reads - before.reads,
            merges: self.merges - before.merges,
            writes: self.writes - before.writes,
            log_writes: self.log_writes - before.log_writes,
            pcm_lines: self.pcm_lines - before.pcm_lines,
            checkpoints: self.checkpoints - before.checkpoints,
        }
    }

    /// Returns the transfers of data pages.
    pub(crate) fn data_ios(&self) -> u64 {
        self.reads + self.merges + self.writes
    }
}

/// One disk, which serves requests in their order, and the PCM.
#[derive(Debug)]
pub(crate) struct Devices {
    /// The time of the user of the devices; each use moves it on.
    pub(crate) now: Nanos,
    pub(crate) counts: Counts,
    /// Pages of the disk, besides the log behind them.
    pages: u32,
    /// When the disk has served all requests.
    idle: Nanos,
    /// Where its head is then.
    head: u32,
    /// When the last write of the log begins and ends.
    log: (Nanos, Nanos),
}

impl Devices {
    /// Returns a disk for so many pages.
    pub(crate) fn new(pages: u32) -> Self {
        Self { now: 0, counts: Counts::default(), pages: pages.max(1), idle: 0, head: 0, log: (0, 0) }
    }

    /// Reads a page for an access.
    pub(super) fn read(&mut self, page: Page) {
        self.counts.reads += 1;
        self.transfer(page.get());
    }

    /// Reads a page that tuples are merged with.
    pub(super) fn read_to_merge(&mut self, page: Page) {
        self.counts.merges += 1;
        self.transfer(page.get());
    }

    /// Writes a page.
    pub(super) fn write(&mut self, page: Page) {
        self.counts.writes += 1;
        self.transfer(page.get());
    }

    /// Makes the log on disk durable. A write that has not begun yet takes this request along.
    pub(super) fn write_log(&mut self) {
        if self.log.0 <= self.now {
            self.counts.log_writes += 1;
            let begin = self.idle.max(self.now);
            let now = self.now;
            self.transfer(self.pages);
            self.log = (begin, self.now);
            self.now = now;
        }
        self.now = self.now.max(self.log.1);
    }

    fn transfer(&mut self, to: u32) {
        let begin = self.idle.max(self.now);
        self.idle = begin + service(self.head.abs_diff(to), self.pages);
        self.head = to;
        self.now = self.idle;
    }

    /// Reads so many lines of the PCM.
    pub(super) fn read_lines(&mut self, lines: u64) {
        self.now += lines * LINE_READ;
    }

    /// Writes so many lines of the PCM.
    pub(super) fn write_lines(&mut self, lines: u64) {
        self.counts.pcm_lines += lines;
        self.now += lines * LINE_WRITE;
    }
}

/// Returns how long the disk takes for a page that is `distance` pages of `pages` away.
fn service(distance: u32, pages: u32) -> Nanos {
    let seek = match distance {
        0 => 0.0,
        distance => SHORTEST_SEEK + SEEK_SPAN * (f64::from(distance) / f64::from(pages)).sqrt(),
    };
    (seek + ROTATION + PAGE_BYTES as f64 * TRANSFER) as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_grows_with_the_root_of_its_length() {
        assert_eq!(service(0, 100), 4_170_000 + 81_920);
        assert_eq!(service(25, 100), 800_000 + 7_200_000 + 4_170_000 + 81_920);
        assert_eq!(service(100, 100), 15_200_000 + 4_170_000 + 81_920);
        let pairs = (0..200_u32).flat_map(|from| (0..200_u32).map(move |to| from.abs_diff(to)));
        let all: Vec<f64> = pairs.map(|distance| service(distance, 200) as f64).collect();
        let seek = all.iter().sum::<f64>() / all.len() as f64 - 4.17e6 - 81_920.0;
        assert!((8.3e6..8.6e6).contains(&seek), "random seeks take 8.5 ms on average, and here {seek} ns");
    }

    #[test]
    fn requests_are_served_in_turn_and_counted() {
        let mut devices = Devices::new(100);
        devices.read(Page::new(0));
        let first = devices.now;
        assert_eq!(first, service(0, 100));
        // Another client asks at the start, and waits for the first.
        devices.now = 0;
        devices.write(Page::new(25));
        assert_eq!(devices.now, first + service(25, 100));
        devices.read_lines(3);
        devices.write_lines(2);
        assert_eq!(devices.now, first + service(25, 100) + 150 + 2_000);
        devices.read_to_merge(Page::new(25));
        let Counts { reads, writes, merges, pcm_lines, .. } = devices.counts;
        assert_eq!((reads, writes, merges, pcm_lines, devices.counts.data_ios()), (1, 1, 1, 2, 3));
    }

    #[test]
    fn commits_that_wait_share_a_write_of_the_log() {
        let mut devices = Devices::new(100);
        devices.read(Page::new(0));
        let busy = devices.now;
        // Both ask while the disk is busy: one write serves both.
        for now in [10, 20] {
            devices.now = now;
            devices.write_log();
            assert_eq!(devices.now, busy + service(100, 100));
        }
        assert_eq!(devices.counts.log_writes, 1);
        // This one asks when that write has begun.
        devices.now = busy + 1;
        devices.write_log();
        assert_eq!((devices.counts.log_writes, devices.now), (2, busy + service(100, 100) + service(0, 100)));
    }
}
