//! A program's handle on its core.
//!
//! A program is a fiber. Each call leaves a request with the core and suspends the fiber; the
//! core's front end resumes it with the answer.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corosensei::Yielder;

use super::{Design, LINE_BYTES, Plan, StoreWidth};

/// What a program asks of its core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    Load(u64),
    /// Address and length.
    Read(u64, usize),
    /// Address, value, and that of the next word, if the store is as wide as two.
    Store(u64, u64, Option<u64>),
    Flush(u32),
    Fence,
    /// Whether it is the outermost.
    Begin(bool),
    End(bool),
    Lock(usize),
    Unlock(usize),
    /// An operation is done; the answer is whether there are more.
    Done,
}

/// Between a program and its core.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    pub(super) ask: Cell<Option<Ask>>,
    pub(super) answer: Cell<u64>,
    pub(super) bytes: RefCell<Vec<u8>>,
    /// Instructions since the last request.
    pub(super) work: Cell<u64>,
}

/// A core, as its program sees it. Addresses are bytes from the start of the run's image.
pub struct Cpu {
    mailbox: Rc<Mailbox>,
    yielder: *const Yielder<(), ()>,
    design: Design,
    stores: StoreWidth,
    number: usize,
    depth: usize,
    /// Lines written in the open region.
    written: Vec<u32>,
}

impl std::fmt::Debug for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cpu").field("number", &self.number).field("depth", &self.depth).finish_non_exhaustive()
    }
}

/// A lock of the run, by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lock(pub usize);

impl Cpu {
    pub(super) fn new(mailbox: Rc<Mailbox>, yielder: *const Yielder<(), ()>, plan: &Plan, number: usize) -> Self {
        let (design, stores) = (plan.design, plan.stores);
        Self { mailbox, yielder, design, stores, number, depth: 0, written: Vec::new() }
    }

    fn ask(&mut self, ask: Ask) -> u64 {
        self.mailbox.ask.set(Some(ask));
        // SAFETY: the yielder belongs to the fiber that this handle was made in, which is running:
        // the handle is not `Send`, and programs get it by reference only.
        unsafe { &*self.yielder }.suspend(());
        self.mailbox.answer.get()
    }

    /// The core's number.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Executes `instructions` that touch no memory of the model.
    pub fn work(&mut self, instructions: u64) {
        self.mailbox.work.set(self.mailbox.work.get() + instructions);
    }

    /// Loads the word at `address`, on which what follows depends.
    pub fn load(&mut self, address: u64) -> u64 {
        assert!(address.is_multiple_of(8), "words are aligned");
        self.ask(Ask::Load(address))
    }

    /// Reads bytes with loads that do not depend on each other.
    pub fn read(&mut self, address: u64, to: &mut [u8]) {
        if to.is_empty() {
            return;
        }
        self.ask(Ask::Read(address, to.len()));
        to.copy_from_slice(&self.mailbox.bytes.borrow());
    }

    /// Stores a word.
    pub fn store(&mut self, address: u64, value: u64) {
        self.store_wide(address, value, None);
    }

    fn store_wide(&mut self, address: u64, value: u64, second: Option<u64>) {
        assert!(address.is_multiple_of(8), "words are aligned");
        assert!(self.depth > 0, "data are stored in atomic regions");
        let line = (address / LINE_BYTES as u64) as u32;
        if self.written.last() != Some(&line) {
            self.written.push(line);
        }
        self.ask(Ask::Store(address, value, second));
        if self.stores == StoreWidth::Half {
            // The other half; either store carries the whole word, so that each half may be read.
            self.ask(Ask::Store(address + 4, value, None));
        }
    }

    /// Stores bytes; both address and length are multiples of 8.
    pub fn write(&mut self, address: u64, from: &[u8]) {
        assert!(from.len().is_multiple_of(8), "words are written whole");
        let word = |at: &[u8]| at.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let mut at = 0;
        while at < from.len() {
            let to = address + at as u64;
            let is_pair = self.stores == StoreWidth::Pair && to.is_multiple_of(16) && at + 16 <= from.len();
            let second = is_pair.then(|| word(&from[at + 8..at + 16]));
            self.store_wide(to, word(&from[at..at + 8]), second);
            at += if is_pair { 16 } else { 8 };
        }
    }

    /// Runs `body` as an atomic region under `lock`: the update begins, the lock is taken, and
    /// after `body` what was written is flushed, the update ends, and the lock is released. A
    /// region within a region is a part of it; a lock of its own is released at its own end.
    pub fn atomic<R>(&mut self, lock: Lock, body: impl FnOnce(&mut Self) -> R) -> R {
        self.atomic_all(&[lock], body)
    }

    /// As [`Cpu::atomic`], with several locks; they must be named in an order that all programs
    /// share.
    pub fn atomic_all<R>(&mut self, locks: &[Lock], body: impl FnOnce(&mut Self) -> R) -> R {
        self.begin(locks);
        let result = body(self);
        self.end(locks);
        result
    }

    /// Begins a region and takes its locks; each is to end with [`Cpu::end`].
    pub fn begin(&mut self, locks: &[Lock]) {
        self.depth += 1;
        self.ask(Ask::Begin(self.depth == 1));
        for lock in locks {
            self.ask(Ask::Lock(lock.0));
        }
    }

    /// Ends the innermost region, and releases its locks.
    pub fn end(&mut self, locks: &[Lock]) {
        let outer = self.depth == 1;
        if outer {
            self.flush_written();
        }
        self.ask(Ask::End(outer));
        for lock in locks.iter().rev() {
            self.ask(Ask::Unlock(lock.0));
        }
        self.depth -= 1;
    }

    /// A region within a region, which it is a part of: nested regions are flattened (IV-B).
    pub fn nested<R>(&mut self, body: impl FnOnce(&mut Self) -> R) -> R {
        self.atomic_all(&[], body)
    }

    /// Flushes each line that the region has written, once; a redo log needs no flush.
    fn flush_written(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        if !self.design.is_redo() {
            written.sort_unstable();
            written.dedup();
            for &line in &written {
                self.ask(Ask::Flush(line));
            }
        }
        written.clear();
        self.written = written;
        self.ask(Ask::Fence);
    }

    /// Reports that an operation is done; returns whether there is another one to do.
    pub fn done(&mut self) -> bool {
        self.ask(Ask::Done) != 0
    }
}
