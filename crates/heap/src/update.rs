//! An update: the part of a transaction that locks lines, logs them, stores to them, and ends.
//!
//! # Order
//! 1. *Lock.* A line is locked before it is written (`line_locks.rs`).
//! 2. *Log.* The old lines are streamed to undo records. A fence makes the records durable, before
//!    the next store to a line. A batch of up to seven lines is one record; a batch of any size has
//!    one fence.
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
use std::ops::Range;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Backoff, SplitMix64, Striped};
use duramen_types::planted;
use duramen_types::undo_record::LINE_BYTES;

use crate::error::{Error, Result};
use crate::layout::{BITMAP_WORDS, Kind, LINE, Layout, SLAB_HEAD};
use crate::line_locks::{LINES_OF_GROUP, LINES_OF_WORD, LineLocks, Seen};
use crate::line_set::LineSet;
use crate::medium::{Barrier, Medium};
use crate::slabs::{Object, Slabs};
use crate::undo_log::{Buckets, OldLines, UpdateLog};

/// Bytes of lines whose locks lie together.
const GROUP_BYTES: u64 = LINES_OF_GROUP * LINE;

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
    is_alone: bool,
    /// An attempt has found too few buckets, of which others may have had some.
    needs_all_buckets: bool,
    /// Locked words, with the versions that they had.
    held: Vec<(usize, u64)>,
    /// Words of the lines that were read, with their versions.
    reads: Vec<(usize, u64)>,
    /// Lines that may be stored to: logged, or of new objects.
    writable: LineSet,
    /// The logged lines, and behind them the batch: lines that are to be logged together.
    undo: OldLines,
    /// Number of logged lines.
    logged: usize,
    pub(crate) allocated: Vec<Object>,
    /// By their beginnings.
    pub(crate) freed: NumberMap<u64, Object>,
}

impl Update {
    pub(crate) fn new(slot: u32, number: u64) -> Self {
        Self {
            log: UpdateLog::new(slot, number),
            time: 0,
            is_doomed: false,
            is_alone: false,
            needs_all_buckets: false,
            held: Vec::new(),
            reads: Vec::new(),
            writable: LineSet::default(),
            undo: OldLines::default(),
            logged: 0,
            allocated: Vec::new(),
            freed: NumberMap::default(),
        }
    }

    /// Begins a transaction; `is_alone` says that there is no other meanwhile.
    pub(crate) fn begin(&mut self, parts: &Parts, is_alone: bool) {
        self.time = parts.locks.now();
        self.is_doomed = false;
        self.is_alone = is_alone;
        self.needs_all_buckets = false;
    }

    /// Returns whether the last attempt of a transaction must be repeated without others beside it,
    /// because they may have had buckets of the log that it needs.
    pub(crate) fn needs_all_buckets(&self) -> bool {
        self.needs_all_buckets
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
        let mut done = 0;
        while done < to.len() {
            let from = at + done as u64;
            let len = (to.len() - done).min((GROUP_BYTES - from % GROUP_BYTES) as usize);
            self.read_group(parts, from, &mut to[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    /// Copies bytes of lines of one group; at least one byte.
    fn read_group(&mut self, parts: &Parts, at: u64, to: &mut [u8]) -> Result<()> {
        let words = parts.locks.words_of_group(lines_of(at, to.len()));
        let mut versions = [None; (LINES_OF_GROUP / LINES_OF_WORD) as usize];
        loop {
            for (word, version) in words.clone().zip(&mut versions) {
                *version = self.see(parts, word)?;
            }
            parts.medium.read(at, to);
            let is_unchanged = |(word, version): (usize, &Option<u64>)| {
                version.is_none_or(|version| parts.locks.is_unchanged(word, version))
            };
            if words.clone().zip(&versions).all(is_unchanged) {
                break;
            }
        }
        for (word, version) in words.zip(&versions) {
            let seen = version.map(|version| (word, version));
            if let Some(seen) = seen.filter(|seen| self.reads.last() != Some(seen)) {
                self.reads.push(seen);
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

    /// Locks lines.
    fn lock(&mut self, parts: &Parts, lines: Range<u64>) -> Result<()> {
        if planted!(LinesNotOwned) {
            return Ok(());
        }
        for word in parts.locks.words_of(lines) {
            while let Some(version) = self.see(parts, word)? {
                if parts.locks.lock(word, version, self.log.slot) {
                    self.held.push((word, version));
                    break;
                }
            }
        }
        Ok(())
    }

    /// Locks lines that are not in the batch, and puts those into it that are not writable.
    fn take_into_batch(&mut self, parts: &Parts, lines: Range<u64>) -> Result<()> {
        self.lock(parts, lines.clone())?;
        if self.writable.covers(&lines) {
            return Ok(());
        }
        if self.writable.is_disjoint(&lines) {
            self.copy_into_batch(parts, lines);
            return Ok(());
        }
        let mut rest = lines.start;
        for line in lines.clone() {
            if self.writable.contains(line) {
                self.copy_into_batch(parts, rest..line);
                rest = line + 1;
            }
        }
        self.copy_into_batch(parts, rest..lines.end);
        Ok(())
    }

    fn copy_into_batch(&mut self, parts: &Parts, run: Range<u64>) {
        if !run.is_empty() {
            parts.medium.read(run.start * LINE, self.undo.push(run));
        }
    }

    /// Logs the lines of the batch, which may be stored to behind the log's next fence.
    fn log_batch(&mut self, parts: &Parts) -> Result<()> {
        let lines = self.undo.lines_from(self.logged);
        if lines.is_empty() {
            return Ok(());
        }
        let appended = self.log.append((&parts.medium, &parts.layout, &parts.buckets), &self.undo, self.logged);
        if appended.is_err() && !self.is_alone {
            self.needs_all_buckets = true;
            return Err(self.doom());
        }
        appended?;
        parts.count(Count::Lines, lines.len() as u64);
        insert_all(&mut self.writable, lines);
        self.logged = self.undo.len();
        Ok(())
    }

    /// Begins a batch. What is left of one that failed is dropped.
    fn begin_batch(&mut self) {
        self.undo.truncate(self.logged);
    }

    /// Checks, with lines of an object locked, that the object still is live: another transaction
    /// may have freed it before the lines were locked. From now on nobody else gets these lines.
    fn confirm(&mut self, parts: &Parts, object: &Object) -> Result<()> {
        if parts.slabs.object_at(object.start) == Some(*object) { Ok(()) } else { Err(self.doom()) }
    }

    /// Logs the lines of these ranges, which lie in `objects`, in one batch.
    pub(crate) fn log(
        &mut self,
        parts: &Parts,
        ranges: impl Iterator<Item = (u64, u64)>,
        objects: &[Object],
    ) -> Result<()> {
        self.begin_batch();
        let mut runs: Vec<Range<u64>> = ranges.map(|(at, len)| lines_of(at, len as usize)).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut done = 0;
        for run in runs {
            let rest = run.start.max(done)..run.end;
            if !rest.is_empty() {
                done = rest.end;
                self.take_into_batch(parts, rest)?;
            }
        }
        objects.iter().try_for_each(|object| self.confirm(parts, object))?;
        self.log_batch(parts)
    }

    /// Stores bytes from `at` on, which lie in `object`, if in any. Lines that would not change are
    /// not logged.
    pub(crate) fn write(&mut self, parts: &Parts, at: u64, bytes: &[u8], object: Option<&Object>) -> Result<()> {
        self.begin_batch();
        self.take_into_batch(parts, lines_of(at, bytes.len()))?;
        object.map_or(Ok(()), |object| self.confirm(parts, object))?;
        let taken = self.undo.len();
        self.undo.retain_from(self.logged, |line, old| match part_of(line, at, bytes.len()) {
            part if part.len() == LINE_BYTES => bytes[part].first_chunk().is_none_or(|new| new != old),
            part => old[(at + part.start as u64) as usize % LINE_BYTES..][..part.len()] != bytes[part],
        });
        let changes_all = self.undo.len() == taken;
        if planted!(HomeBeforeUndo) {
            parts.medium.store(at, bytes);
            parts.medium.flush(at, bytes.len());
        }
        self.log_batch(parts)?;
        self.log.fence(&parts.medium);
        if changes_all {
            parts.medium.store(at, bytes);
            return Ok(());
        }
        for line in lines_of(at, bytes.len()).filter(|line| self.writable.contains(*line)) {
            let part = part_of(line, at, bytes.len());
            parts.medium.store(at + part.start as u64, &bytes[part]);
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
        if let Err(error) = self.log(parts, heads, &[]) {
            // The closure may go on without the object.
            self.allocated.pop();
            parts.slabs.give_back([object].iter());
            return Err(error);
        }
        let lines = lines_of(object.start, object.len as usize);
        self.lock(parts, lines.clone())?;
        parts.slabs.begin(&object);
        self.writable.insert(lines.clone());
        self.log.fence(&parts.medium);
        lines.for_each(|line| parts.medium.store(line * LINE, &[0; LINE_BYTES]));
        Ok(object)
    }

    /// Frees an object, with effect from the commit on.
    pub(crate) fn free(&mut self, parts: &Parts, object: Object) -> Result<()> {
        // Its first line gets a new version, so that transactions that still see the object notice.
        self.lock(parts, lines_of(object.start, 1))?;
        self.confirm(parts, &object)?;
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
        self.begin_batch();
        let lines = words.keys().chain(bits.iter().map(|(at, ..)| at)).map(|at| at / LINE);
        for line in lines.collect::<BTreeSet<_>>() {
            self.take_into_batch(parts, line..line + 1)?;
        }
        for (at, bit, is_live) in bits {
            let word = words.entry(at).or_insert_with(|| parts.medium.read_word(at));
            *word = if is_live { *word | bit } else { *word & !bit };
        }
        if planted!(BitmapNotLogged) {
            insert_all(&mut self.writable, self.undo.lines_from(self.logged));
            self.begin_batch();
        }
        self.log_batch(parts)?;
        self.log.fence(&parts.medium);
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
        self.begin_batch();
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
        for run in self.writable.runs() {
            parts.medium.flush(run.start * LINE, (run.end - run.start) as usize * LINE_BYTES);
        }
        if !planted!(HomesUnfenced) {
            parts.medium.barrier(Barrier::Home);
        }
    }

    fn clear(&mut self, parts: &Parts, time: u64) {
        self.held.drain(..).for_each(|(word, _)| parts.locks.release(word, time));
        self.reads.clear();
        self.writable.clear();
        self.undo.truncate(0);
        self.logged = 0;
        self.allocated.clear();
        self.freed.clear();
    }
}

/// Returns where the word of the bitmap with an object's bit is.
fn bitmap_word(layout: &Layout, object: &Object) -> u64 {
    layout.slab(object.slab) + LINE + object.index / 64 * 8
}

/// Adds lines to a set, neighbours together.
fn insert_all(set: &mut LineSet, lines: &[u64]) {
    for run in lines.chunk_by(|line, next| line + 1 == *next) {
        set.insert(run[0]..run[0] + run.len() as u64);
    }
}

/// Returns the lines that the `len` bytes from `at` touch.
fn lines_of(at: u64, len: usize) -> Range<u64> {
    if len == 0 { 0..0 } else { at / LINE..(at + len as u64 - 1) / LINE + 1 }
}

/// Returns which of the `len` bytes from `at` lie in a line that they touch.
fn part_of(line: u64, at: u64, len: usize) -> Range<usize> {
    let start = (line * LINE).max(at) - at;
    let end = ((line + 1) * LINE).min(at + len as u64) - at;
    start as usize..end as usize
}
