//! What waits at a memory controller, and what its banks are busy with.

use std::collections::VecDeque;

use super::events::Request;
use super::{Bytes, Cycle};

/// What a write is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A data line in its place.
    Data { line: u32 },
    /// A log entry on its way to the log manager.
    Entry { core: u8, slot: u8, line: u32 },
    /// The old value of an entry, in the log.
    LogLine { slot: u8, update: u32, record: u32, at: u32 },
    /// The header of a record.
    Header { slot: u8, update: u32, record: u32, at: u32 },
    /// A line of a redo log, or a commit record; `number` is the update's.
    RedoLog { core: u8, at: u32, number: u32, commits: bool },
    /// A data line of a redo design that is retired.
    RedoPlace { line: u32, number: u32 },
}

/// A write on its way to memory.
#[derive(Clone, Debug)]
pub(super) struct Write {
    pub(super) purpose: Purpose,
    pub(super) bytes: Bytes,
    /// Cores whose flushes end when it is durable.
    pub(super) flushed_by: Vec<u8>,
    /// Order of arrival.
    pub(super) arrived: u64,
}

impl Write {
    pub(super) fn new(purpose: Purpose, bytes: Bytes) -> Self {
        Self { purpose, bytes, flushed_by: Vec::new(), arrived: 0 }
    }

    /// The data line that it writes.
    pub(super) fn data_line(&self) -> Option<u32> {
        match self.purpose {
            Purpose::Data { line } | Purpose::RedoPlace { line, .. } => Some(line),
            _ => None,
        }
    }
}

/// An access that a bank is busy with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Read(Request),
    /// A log line of a redo design, for the retirement of update `number`.
    LogRead {
        number: u32,
    },
    Write(u32),
}

/// A read that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    Data(Request),
    Log { at: u32, number: u32 },
}

/// A channel and its banks.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) free_at: Cycle,
    pub(super) scheduled: Option<Cycle>,
    pub(super) banks: Vec<Option<Access>>,
}

/// A memory controller.
#[derive(Debug)]
pub(super) struct Controller {
    pub(super) reads: VecDeque<Read>,
    pub(super) held_reads: VecDeque<Read>,
    pub(super) data: VecDeque<u32>,
    pub(super) held_data: VecDeque<u32>,
    pub(super) logs: VecDeque<u32>,
    pub(super) held_logs: VecDeque<u32>,
    pub(super) channels: Vec<Channel>,
    pub(super) arrivals: u64,
}

impl Controller {
    pub(super) fn new(channels: usize, banks: usize) -> Self {
        let channel = || Channel { free_at: 0, scheduled: None, banks: vec![None; banks] };
        Self {
            reads: VecDeque::new(),
            held_reads: VecDeque::new(),
            data: VecDeque::new(),
            held_data: VecDeque::new(),
            logs: VecDeque::new(),
            held_logs: VecDeque::new(),
            channels: (0..channels).map(|_| channel()).collect(),
            arrivals: 0,
        }
    }
}
