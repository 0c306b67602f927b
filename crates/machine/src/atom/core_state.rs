//! The state of a core: its front end and its store queue.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Cycle;
use super::cpu::{Ask, Mailbox};
use super::description::Machine;
use super::events::NO_SLOT;
use crate::fiber::Fiber;

/// What waits in a store queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// `second` is the value of the next word, if the store is as wide as two.
    Store {
        address: u64,
        value: u64,
        second: Option<u64>,
    },
    Flush {
        line: u32,
        done: bool,
    },
    Fence,
    Begin {
        outer: bool,
    },
    End {
        outer: bool,
    },
    Unlock {
        lock: usize,
    },
}

/// An entry of a store queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    /// When it entered.
    pub(super) at: Cycle,
}

impl Entry {
    pub(super) fn is_store(&self) -> bool {
        matches!(self.kind, Kind::Store { .. })
    }
}

/// What the head of a store queue waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Head {
    /// Nothing.
    Free,
    /// Its line.
    Line,
    /// The acknowledgement of the log entry for this line.
    Log(u32),
    /// Controllers that have not cleared the last update.
    Clears,
    /// An update slot.
    Slot,
    /// The commit.
    End,
    /// Log space of a redo design, or its log lines.
    Redo,
}

/// What a front end waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    /// Nothing: an event lets it go on.
    Nothing,
    /// QueueSpace in the store queue.
    QueueSpace,
    /// The store queue is to be empty.
    Drained,
    /// Loads that are under way.
    Loads,
    /// The line of a lock.
    LockLine,
    /// A lock that another core holds.
    Lock,
    /// Its program has ended.
    Ended,
}

/// A lock: its holder, and the cores that wait for it in order.
#[derive(Debug, Default)]
pub(super) struct LockState {
    pub(super) holder: Option<usize>,
    pub(super) waiters: VecDeque<usize>,
}

/// A core.
pub(super) struct Core {
    pub(super) fiber: Option<Fiber>,
    pub(super) mailbox: Rc<Mailbox>,
    /// The front end's time, in tenths of cycles.
    pub(super) time: u64,
    pub(super) wait: Wait,
    /// What the program asked for, while it is not done.
    pub(super) ask: Option<Ask>,
    /// How far it is, where it takes several steps.
    pub(super) step: usize,
    /// Loads under way.
    pub(super) loads: usize,
    /// Instructions that are not executed yet.
    pub(super) work: u64,
    /// Instructions since the last store to the stack.
    pub(super) since_stack: u64,
    pub(super) next_stack: usize,
    /// Regions that the front end is in.
    pub(super) depth: usize,
    pub(super) queue: VecDeque<Entry>,
    pub(super) drain_at: Option<Cycle>,
    pub(super) head: Head,
    /// Flushes at the head that are under way.
    pub(super) flushing: usize,
    /// Whether the store queue is in a region.
    pub(super) in_region: bool,
    pub(super) slot: u8,
    /// Log bits are set if they carry this number.
    pub(super) epoch: u32,
    /// Controllers that have not cleared the last update.
    pub(super) clears: usize,
    /// Whether this core's slot goes back when they have.
    pub(super) returns_slot: bool,
    /// Data lines that the open update has written.
    pub(super) written: Vec<u32>,
}

impl Core {
    pub(super) fn new(fiber: Fiber, mailbox: Rc<Mailbox>, machine: &Machine) -> Self {
        Self {
            fiber: Some(fiber),
            mailbox,
            time: 0,
            wait: Wait::Nothing,
            ask: None,
            step: 0,
            loads: 0,
            work: 0,
            since_stack: 0,
            next_stack: 0,
            depth: 0,
            queue: VecDeque::with_capacity(machine.core.store_queue),
            drain_at: None,
            head: Head::Free,
            flushing: 0,
            in_region: false,
            slot: NO_SLOT,
            epoch: 1,
            clears: 0,
            returns_slot: false,
            written: Vec::new(),
        }
    }
}

impl Core {
    /// The head of the store queue, in words.
    pub(super) fn head(&self) -> String {
        format!("{:?} of {}, waits for {:?}", self.queue.front().map(|entry| entry.kind), self.queue.len(), self.head)
    }
}
