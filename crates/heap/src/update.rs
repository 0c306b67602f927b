//! An update: the part of a transaction that locks lines, logs them, stores to them, and ends.
//!
//! # Order
//! 1. *Lock.* A line is locked before it is written (`line_locks.rs`).
//! 2. *Log.* The old lines are streamed to undo records, and a fence makes the records durable. A
//!    batch of up to seven lines is one record; a batch of any size has one fence.
//! 3. *Store.* Only then are the lines stored to, in place.
//! 4. *Space.* At the commit, the bitmaps and kinds of slabs that the update's allocations and
//!    frees change are locked, logged and stored to in the same way, as one batch.
//! 5. *Check.* What the transaction has read is unchanged.
//! 6. *Homes.* All lines that the update has stored to are flushed; a fence makes them durable.
//! 7. *End.* The number of the slot's last finished update is raised: one aligned word. A fence
//!    makes it durable. This is the commit.
//! 8. *Release.* The locks are released; freed space can be given out.
//!
//! A rollback stores the old lines, newest first, instead of steps 4 and 5, and then takes steps 6
//! to 8. So a commit has one fence for each batch, and two.
//!
//! The lines of objects that the transaction itself has allocated are locked and not logged: if it
//! is undone, they are free space, whose contents mean nothing. That is why space freed by a
//! transaction is given out only after its commit.
//!
//! # Why recovery restores the last commits
//! Consider a power cut, and the update *u* of one slot.
//! - *u has ended (its number is durable).* Its stores were durable before, by step 6. Its records
//!   are not valid under the raised number. Nothing undoes it.
//! - *u has not ended.* Each line that it may have changed and that is not free space was logged,
//!   durably, before the first store to it, by steps 2 and 3, and with the contents from before
//!   *u*, since it is logged once, before its first store. All records of earlier batches were
//!   durable before, so the records up to that one are an unbroken row, and recovery accepts them.
//!   It restores each of these lines. Beyond these, recovery may accept records of a batch that was
//!   not fenced; their lines were not stored to, and it restores what they hold.
//! - *Others have not written the lines of u meanwhile.* Step 8 follows the fence of step 7. So
//!   restoring *u* takes back no other update, and no update that has seen *u* has ended before it.
//!
//! With *durable caches* the order is the same. Stores reach the domain when other processors can
//! see them; a fence is enough, and no line is flushed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Backoff, SplitMix64, Striped};
use duramen_types::planted;
use duramen_types::undo_record::LINE_BYTES;

use crate::error::{Error, Result};
use crate::layout::{BITMAP_WORDS, Kind, LINE, Layout, SLAB_HEAD};
use crate::line_locks::{LineLocks, Seen};
use crate::medium::{Barrier, Medium};
use crate::slabs::{Object, Slabs};
use crate::undo_log::{Buckets, OldLine, UpdateLog};

/// What all transactions of a heap share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) medium: Medium,
    pub(crate) layout: Layout,
    pub(crate) locks: LineLocks,
    pub(crate) slabs: Slabs,
    pub(crate) buckets: Buckets,
    pub(crate) counts: Striped<[AtomicU64; 4], 16>,
}

/// What is counted.
#[derive(Clone, Copy)]
pub(crate) enum Count {
    Commits,
    Rollbacks,
    Conflicts,
    Lines,
}

impl Parts {
    pub(crate) fn count(&self, what: Count, by: u64) {
        self.counts.own().1[what as usize].fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn counted(&self, what: Count) -> u64 {
        self.counts.iter().map(|counts| counts[what as usize].load(Ordering::Relaxed)).sum()
    }
}

/// Hashes line and word numbers.
#[derive(Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = SplitMix64::mix(self.0 ^ number);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The state of a slot: its log, and what its transaction has done so far.
#[derive(Debug)]
pub(crate) struct Update {
    log: UpdateLog,
    /// The locks' time up to which the transaction sees the heap.
    time: u64,
    is_doomed: bool,
    /// Locked words, with the versions that they had.
    held: Vec<(usize, u64)>,
    /// Words of the lines that were read, with their versions.
    reads: Vec<(usize, u64)>,
    /// Lines that may be stored to: logged, or of new objects.
    writable: NumberMap<u64, ()>,
    undo: Vec<OldLine>,
    pub(crate) allocated: Vec<Object>,
    /// By their beginnings.
    pub(crate) freed: NumberMap<u64, Object>,
    batch: Vec<OldLine>,
}

impl Update {
    pub(crate) fn new(slot: u32, number: u64) -> Self {
        Self {
            log: UpdateLog::new(slot, number),
            time: 0,
            is_doomed: false,
            held: Vec::new(),
            reads: Vec::new(),
            writable: NumberMap::default(),
            undo: Vec::new(),
            allocated: Vec::new(),
            freed: NumberMap::default(),
            batch: Vec::new(),
        }
    }

    pub(crate) fn begin(&mut self, parts: &Parts) {
        self.time = parts.locks.now();
        self.is_doomed = false;
    }

    /// Returns whether another transaction is in the way of this one.
    pub(crate) fn is_doomed(&self) -> bool {
        self.is_doomed
    }

    fn doom(&mut self) -> Error {
        self.is_doomed = true;
        Error::Conflict
    }

    // ----- reading -----

    /// Copies the bytes from `at` on.
    pub(crate) fn read(&mut self, parts: &Parts, at: u64, to: &mut [u8]) -> Result<()> {
        for (line, part) in lines_of(at, to.len()) {
            let from = at + part.start as u64;
            let word = parts.locks.word_of(line);
            loop {
                let version = self.see(parts, word)?;
                parts.medium.read(from, &mut to[part.clone()]);
                let Some(version) = version else { break };
                if parts.locks.is_unchanged(word, version) {
                    if self.reads.last() != Some(&(word, version)) {
                        self.reads.push((word, version));
                    }
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the version of an unlocked word, not above the transaction's time; `None` if the
    /// word is locked by this transaction. Waits a little for another one.
    fn see(&mut self, parts: &Parts, word: usize) -> Result<Option<u64>> {
        if self.is_doomed {
            return Err(Error::Conflict);
        }
        let mut backoff = Backoff::new();
        loop {
            match parts.locks.see(word, self.log.slot) {
                Seen::Own => return Ok(None),
                Seen::Version(version) if version <= self.time => return Ok(Some(version)),
                Seen::Version(_) if !self.extend(parts) => return Err(self.doom()),
                Seen::Version(_) => {}
                Seen::Busy if backoff.is_long() => return Err(self.doom()),
                Seen::Busy => backoff.snooze(),
            }
        }
    }

    /// Moves the transaction's time forward, if all that it has read is unchanged.
    fn extend(&mut self, parts: &Parts) -> bool {
        let now = parts.locks.now();
        let is_valid = self.is_valid(parts);
        if is_valid {
            self.time = now;
        }
        is_valid
    }

    fn is_valid(&self, parts: &Parts) -> bool {
        // By their words, once a word is found that has changed.
        let mut held: Option<NumberMap<usize, u64>> = None;
        self.reads.iter().all(|(word, version)| {
            parts.locks.is_unchanged(*word, *version)
                || held.get_or_insert_with(|| self.held.iter().copied().collect()).get(word) == Some(version)
        })
    }

    /// Returns whether the line at `at`, or a line that the transaction has read, may have changed
    /// since the transaction's time. If so, the transaction can only be rolled back.
    pub(crate) fn is_outdated(&mut self, parts: &Parts, at: u64) -> bool {
        let word = parts.locks.word_of(at / LINE);
        let is_changed = match parts.locks.see(word, self.log.slot) {
            Seen::Own => false,
            Seen::Version(version) => version > self.time,
            Seen::Busy => true,
        };
        let is_outdated = is_changed || !self.is_valid(parts);
        self.is_doomed |= is_outdated;
        is_outdated
    }

    // ----- writing -----

    /// Locks a line.
    fn lock(&mut self, parts: &Parts, line: u64) -> Result<()> {
        if planted!(LinesNotOwned) {
            return Ok(());
        }
        let word = parts.locks.word_of(line);
        while let Some(version) = self.see(parts, word)? {
            if parts.locks.lock(word, version, self.log.slot) {
                self.held.push((word, version));
                break;
            }
        }
        Ok(())
    }

    /// Locks a line that is not in the batch, and puts it into the batch unless it is writable.
    fn take_into_batch(&mut self, parts: &Parts, line: u64) -> Result<()> {
        self.lock(parts, line)?;
        if !self.writable.contains_key(&line) {
            let mut old = [0; LINE_BYTES];
            parts.medium.read(line * LINE, &mut old);
            self.batch.push((line, old));
        }
        Ok(())
    }

    /// Logs the lines of the batch, which may then be stored to.
    fn log_batch(&mut self, parts: &Parts) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        let logged = self.log.append((&parts.medium, &parts.layout, &parts.buckets), &batch);
        if logged.is_ok() {
            parts.count(Count::Lines, batch.len() as u64);
            self.writable.extend(batch.iter().map(|(line, _)| (*line, ())));
            self.undo.extend_from_slice(&batch);
        }
        self.batch = batch;
        self.batch.clear();
        logged
    }

    /// Logs the lines of these ranges in one batch.
    pub(crate) fn log(&mut self, parts: &Parts, ranges: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        self.batch.clear();
        let lines = ranges.flat_map(|(at, len)| lines_of(at, len as usize)).map(|(line, _)| line);
        for line in lines.collect::<BTreeSet<_>>() {
            self.take_into_batch(parts, line)?;
        }
        self.log_batch(parts)
    }

    /// Stores bytes from `at` on. Lines that would not change are not logged.
    pub(crate) fn write(&mut self, parts: &Parts, at: u64, bytes: &[u8]) -> Result<()> {
        self.batch.clear();
        for (line, part) in lines_of(at, bytes.len()) {
            self.take_into_batch(parts, line)?;
            let from = (at + part.start as u64) as usize % LINE_BYTES;
            let is_same =
                |(other, old): &OldLine| *other == line && old[from..from + part.len()] == bytes[part.clone()];
            if self.batch.last().is_some_and(is_same) {
                self.batch.pop();
            }
        }
        if planted!(HomeBeforeUndo) {
            parts.medium.store(at, bytes);
            lines_of(at, bytes.len()).for_each(|(line, _)| parts.medium.flush(line * LINE, LINE_BYTES));
        }
        self.log_batch(parts)?;
        for (line, part) in lines_of(at, bytes.len()) {
            if self.writable.contains_key(&line) {
                parts.medium.store(at + part.start as u64, &bytes[part]);
            }
        }
        Ok(())
    }

    /// Allocates an object whose bytes are zero.
    pub(crate) fn allocate(&mut self, parts: &Parts, len: u64) -> Result<Object> {
        if self.is_doomed {
            return Err(Error::Conflict);
        }
        let object = parts.slabs.take(len, self.log.slot).ok_or(Error::OutOfSpace { bytes: len })?;
        self.allocated.push(object);
        // Within a large object, the first lines of its slabs are not free space: a rollback must
        // restore them.
        let heads =
            (1..u64::from(object.slabs)).map(|behind| (parts.layout.slab(object.slab + behind), SLAB_HEAD * LINE));
        self.log(parts, heads)?;
        for (line, _) in lines_of(object.start, object.len as usize) {
            self.lock(parts, line)?;
            self.writable.insert(line, ());
            parts.medium.store(line * LINE, &[0; LINE_BYTES]);
        }
        Ok(object)
    }

    /// Frees an object, with effect from the commit on.
    pub(crate) fn free(&mut self, parts: &Parts, object: Object) -> Result<()> {
        // Its first line gets a new version, so that transactions that still see the object notice.
        self.lock(parts, object.start / LINE)?;
        self.freed.insert(object.start, object);
        if planted!(FreedSpaceReused) {
            parts.slabs.end(&object);
            parts.slabs.give_back([object].iter());
        }
        Ok(())
    }

    /// Changes kinds and bitmaps for what was allocated and freed.
    fn change_space(&mut self, parts: &Parts) -> Result<()> {
        let layout = &parts.layout;
        let mut words = BTreeMap::new();
        for object in self.allocated.clone() {
            let at = layout.slab(object.slab);
            let wanted = layout.seal(at, parts.slabs.kind(object.slab).encode());
            // Read as part of the transaction: another one that sets the kind may be rolled back.
            let mut found = [0; 8];
            self.read(parts, at, &mut found)?;
            if u64::from_le_bytes(found) != wanted {
                words.insert(at, wanted);
            }
        }
        for object in self.freed.values() {
            for behind in 1..u64::from(object.slabs) {
                let at = layout.slab(object.slab + behind);
                words.insert(at, layout.seal(at, Kind::Free.encode()));
                words.extend((0..BITMAP_WORDS).map(|word| (at + LINE + word * 8, 0)));
            }
        }
        let allocated = self.allocated.iter().map(|object| (object, true));
        let freed = self.freed.values().map(|object| (object, false));
        let bit = |(object, is_live): (&Object, bool)| (bitmap_word(layout, object), 1 << (object.index % 64), is_live);
        let bits: Vec<(u64, u64, bool)> = allocated.chain(freed).map(bit).collect();
        self.batch.clear();
        let lines = words.keys().chain(bits.iter().map(|(at, ..)| at)).map(|at| at / LINE);
        for line in lines.collect::<BTreeSet<_>>() {
            self.take_into_batch(parts, line)?;
        }
        for (at, bit, is_live) in bits {
            let word = words.entry(at).or_insert_with(|| parts.medium.read_word(at));
            *word = if is_live { *word | bit } else { *word & !bit };
        }
        if planted!(BitmapNotLogged) {
            self.writable.extend(self.batch.drain(..).map(|(line, _)| (line, ())));
        }
        self.log_batch(parts)?;
        words.into_iter().for_each(|(at, word)| parts.medium.store_word(at, word));
        Ok(())
    }

    // ----- ends -----

    /// Ends the update with its changes. After an error it must be rolled back.
    pub(crate) fn commit(&mut self, parts: &Parts) -> Result<()> {
        if !self.allocated.is_empty() || !self.freed.is_empty() {
            self.change_space(parts)?;
        }
        let is_changed = !self.writable.is_empty();
        let time = if self.held.is_empty() { self.time } else { parts.locks.tick() };
        if time > self.time + 1 && !self.is_valid(parts) {
            return Err(self.doom());
        }
        if is_changed {
            if planted!(EndBeforeHomes) {
                self.log.end(&parts.medium, &parts.layout, &parts.buckets);
                self.flush_homes(parts);
            } else {
                self.flush_homes(parts);
                self.log.end(&parts.medium, &parts.layout, &parts.buckets);
            }
        }
        self.freed.values().for_each(|object| parts.slabs.end(object));
        parts.slabs.give_back(self.freed.values());
        parts.count(Count::Commits, 1);
        self.clear(parts, time);
        Ok(())
    }

    /// Ends the update without its changes.
    pub(crate) fn roll_back(&mut self, parts: &Parts) {
        for (line, old) in self.undo.iter().rev() {
            parts.medium.store(line * LINE, old);
        }
        if self.log.is_used() {
            self.flush_homes(parts);
            self.log.end(&parts.medium, &parts.layout, &parts.buckets);
        } else {
            self.log.forget(&parts.buckets);
        }
        self.allocated.iter().for_each(|object| parts.slabs.end(object));
        parts.slabs.give_back(self.allocated.iter());
        parts.count(if self.is_doomed { Count::Conflicts } else { Count::Rollbacks }, 1);
        let time = if self.held.is_empty() { self.time } else { parts.locks.tick() };
        self.clear(parts, time);
    }

    fn flush_homes(&self, parts: &Parts) {
        self.writable.keys().for_each(|line| parts.medium.flush(line * LINE, LINE_BYTES));
        if !planted!(HomesUnfenced) {
            parts.medium.barrier(Barrier::Home);
        }
    }

    fn clear(&mut self, parts: &Parts, time: u64) {
        self.held.drain(..).for_each(|(word, _)| parts.locks.release(word, time));
        self.reads.clear();
        self.writable.clear();
        self.undo.clear();
        self.allocated.clear();
        self.freed.clear();
        self.batch.clear();
    }
}

/// Returns where the word of the bitmap with an object's bit is.
fn bitmap_word(layout: &Layout, object: &Object) -> u64 {
    layout.slab(object.slab) + LINE + object.index / 64 * 8
}

/// Returns the lines that the `len` bytes from `at` touch, each with the range of the bytes in it.
fn lines_of(at: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let lines = if len == 0 { 0..0 } else { at / LINE..(at + len as u64 - 1) / LINE + 1 };
    lines.map(move |line| {
        let start = (line * LINE).max(at) - at;
        let end = ((line + 1) * LINE).min(at + len as u64) - at;
        (line, start as usize..end as usize)
    })
}
