//! Options of heaps.

use duramen_pmem::{Domain, Guarantee, Placement, Survive, Timing};
use duramen_types::undo_record::{LINE_BYTES, MAX_RECORDS, MAX_SLOTS, RECORD_LINES};

use crate::error::{Error, Result};

/// The size of a new heap's undo log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogShape {
    /// Transactions that can be open at the same time, at most 32; further ones wait.
    pub slots: u32,
    /// Buckets of records. A transaction holds whole buckets, and a slot keeps its first one, so
    /// there should be more than slots.
    pub buckets: u32,
    /// Records in each bucket; each holds up to seven lines.
    pub records: u32,
}

impl Default for LogShape {
    /// 32 slots and 256 buckets as in the paper (section IV-C), of 64 records each: 8 MiB.
    fn default() -> Self {
        Self { slots: MAX_SLOTS as u32, buckets: 256, records: 64 }
    }
}

impl LogShape {
    /// Returns the number of bytes of the records.
    pub fn bytes(self) -> u64 {
        u64::from(self.buckets) * u64::from(self.records) * (RECORD_LINES * LINE_BYTES) as u64
    }

    pub(crate) fn check(self) -> Result<()> {
        let refused = |reason: &str| Err(Error::InvalidOption { option: "log", reason: reason.to_owned() });
        if !(1..=MAX_SLOTS as u32).contains(&self.slots) {
            return refused("a log has 1 to 32 slots");
        }
        if self.buckets < self.slots || self.buckets > 1 << 16 {
            return refused("a log has at least as many buckets as slots, and at most 65,536");
        }
        if self.records == 0 || u64::from(self.buckets) * u64::from(self.records) > u64::from(MAX_RECORDS) {
            return refused("a bucket has at least one record, and all buckets together at most 2^24");
        }
        Ok(())
    }
}

/// Options for opening a heap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeapOptions {
    /// Bytes of the whole heap, the log included. A smaller heap grows when it is opened; a larger
    /// one stays as it is.
    pub bytes: u64,
    /// The log of a new heap. An existing heap keeps its log.
    pub log: LogShape,
    /// The persistence domain that stores are made durable for.
    pub domain: Domain,
    /// What committed transactions must survive. By default a power cut, which needs persistent
    /// memory: a heap in an ordinary file or on tmpfs survives the process only.
    pub survive: Survive,
    /// The platform's guarantee, if the operator has information that the system lacks.
    pub stated: Option<Guarantee>,
    /// The memory node for the heap.
    pub placement: Placement,
    /// The delays of a modelled device.
    pub timing: Timing,
}

impl HeapOptions {
    /// Returns options for a heap of `bytes` bytes whose contents survive a power cut.
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            log: LogShape::default(),
            domain: Domain::default(),
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }
}
