//! Writes dirty pages, and tracks the log record from which each page is dirty.
//!
//! If the store has no [`PageWriter`], pages are never dirty, and nothing here does anything.
//!
//! # A batch
//! The cleaner, checkpoints and threads that need a frame all write through this module, one batch
//! at a time:
//!
//! 1. *Stage*: latch each page shared, copy it, take its changed lines (`changed_lines`), mark it
//!    as copied, and unlatch it. A page that another thread holds exclusively is skipped.
//! 2. *Harden* the log past the largest GSN in the copies (the WAL rule).
//! 3. *Write* the copies to the store, durably ([`PageWriter::write`]).
//! 4. *Finish*: raise the recovery GSNs (see [`RecoveryGsn`]). Pages that did not change since step
//!    1 are clean.
//!
//! A failure up to step 2 leaves everything as it was: the next batch gives the lines back first. A
//! later failure poisons the pool.
//!
//! [`RecoveryGsn`]: super::recovery_gsn::RecoveryGsn

use duramen_sync::Mutex;
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_types::{Gsn, PageId, planted};

use super::Stamp;
use super::batch::{BATCH_PAGES, Batch, Copied};
use super::frames::FrameId;
use super::page_store::PageWriter;
use super::{Pool, PoolError};
use crate::page;

/// A thread wakes the cleaner when the number of dirty pages passes the limit, and whenever there
/// are this many more.
const WAKE_EVERY: usize = 64;

/// The state of write-back.
#[derive(Debug)]
pub(super) struct WriteBack {
    /// Locked while a batch is written.
    batch: Mutex<Staged>,
    /// Number of batches that have been written.
    finished: AtomicU64,
}

/// A batch, and where its pages come from.
#[derive(Debug)]
struct Staged {
    pages: Batch,
    /// The frames whose pages were copied to `pages`, in the same order. Empty when the copies have
    /// been written.
    frames: Vec<FrameId>,
}

/// The outcome of writing a batch of candidates.
#[derive(Debug, Default)]
struct Outcome {
    /// Number of pages written.
    written: usize,
    /// A page that was left out because another thread held it exclusively.
    skipped: Option<FrameId>,
}

impl WriteBack {
    /// Creates the state of a pool that writes nothing yet.
    pub(super) fn new() -> Self {
        let staged = Staged { pages: Batch::new(), frames: Vec::with_capacity(BATCH_PAGES) };
        Self { batch: Mutex::new(staged), finished: AtomicU64::new(0) }
    }
}

impl Pool {
    /// Returns the state of write-back and what writes pages, unless pages are never dirty.
    fn write_back_parts(&self) -> Option<(&WriteBack, &dyn PageWriter)> {
        self.write_back.as_ref().zip(self.store.writer())
    }

    /// Stamps the store, durably. No thread writes a page back meanwhile.
    ///
    /// # Errors
    /// Those of the store; the pool is then poisoned.
    pub(crate) fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        self.stamp_and(stamp, || {})
    }

    /// Saves the versions of the pages that were written back, if the store keeps them.
    ///
    /// # Errors
    /// Those of the store; the pool is then poisoned.
    pub(crate) fn write_versions(&self) -> Result<(), PoolError> {
        self.check_poison()?;
        let written = self.store.writer().map_or(Ok(()), PageWriter::write_versions);
        written.inspect_err(|error| self.poison(&error.to_string()))
    }

    /// Stamps the files like [`Pool::stamp`], and poisons the pool, so that nothing is written
    /// afterwards: the database is closed.
    ///
    /// # Errors
    /// As [`Pool::stamp`].
    pub(crate) fn stamp_last(&self, stamp: Stamp) -> Result<(), PoolError> {
        self.stamp_and(stamp, || self.poison("the database is closed"))
    }

    fn stamp_and(&self, stamp: Stamp, then: impl FnOnce()) -> Result<(), PoolError> {
        self.alone(|| {
            self.store.stamp(stamp).inspect_err(|error| self.poison(&error.to_string()))?;
            then();
            Ok(())
        })
    }

    /// Runs `task` while no thread writes pages back, unless the pool is poisoned.
    pub(super) fn alone<T, E: From<PoolError>>(&self, task: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let _batch = self.write_back.as_ref().map(|write_back| write_back.batch.lock());
        self.check_poison()?;
        task()
    }

    /// Notes that the page in `frame`, which the caller holds exclusively, is about to change. The
    /// change comes from a record that is not yet in the log, or from the record `redone`.
    #[inline]
    pub(super) fn note_change(&self, frame: FrameId, redone: Option<Gsn>) {
        if !self.frames.header(frame).recovery_gsn.is_noted() && self.write_back.is_some() {
            self.note_first_change(frame, redone);
        }
    }

    #[cold]
    fn note_first_change(&self, frame: FrameId, redone: Option<Gsn>) {
        let Some(writer) = self.store.writer() else { return };
        let bound = redone.unwrap_or_else(|| writer.wal_rule().end());
        if self.frames.header(frame).recovery_gsn.note(bound) {
            let dirty = self.dirty.fetch_add(1, Ordering::Relaxed) + 1;
            let above = dirty.saturating_sub(self.dirty_limit());
            if above % WAKE_EVERY == 1 {
                self.wake_cleaner();
            }
        }
    }

    /// Takes a page out of a frame that was claimed for it but never got its contents. The caller
    /// holds the frame exclusively and has held it from the start, so the frame is in no batch.
    pub(super) fn disown(&self, id: PageId, frame: FrameId) {
        if self.frames.header(frame).recovery_gsn.forget() {
            self.dirty.fetch_sub(1, Ordering::Relaxed);
        }
        self.abandon(id, frame);
    }

    /// Returns every page that was dirtied by a record inserted before the call. Its bound is not
    /// above the GSN of any record whose change may be missing in the store. Fuzzy checkpoints use
    /// this. Pages dirtied during the call may be missing.
    pub(crate) fn dirty_pages(&self) -> Vec<(PageId, Gsn)> {
        let mut pages = Vec::new();
        for frame in self.frames.used_ids() {
            let header = self.frames.header(frame);
            let Some(rec_gsn) = header.recovery_gsn.get() else { continue };
            // If the page is cleaned and replaced before this load, the pair names another page,
            // which does no harm.
            let page = header.page.load(Ordering::Relaxed);
            if page != 0 {
                pages.push((PageId::new(page), rec_gsn));
            }
        }
        pages
    }

    /// Writes every page that may lack a change of a record before `gsn`. The pages are durable
    /// when the call returns. The caller must hold no latch. `gsn` should not lie beyond the log's
    /// end; otherwise the call may follow writers for a long time.
    ///
    /// # Errors
    /// Those of the log and the store. An error of the store poisons the pool.
    pub(crate) fn flush_before(&self, gsn: Gsn) -> Result<(), PoolError> {
        self.check_poison()?;
        let Some(parts) = self.write_back_parts() else { return Ok(()) };
        // The list is made only once: pages that are redone meanwhile also become dirty from before
        // `gsn`, and there may be many of them.
        let frames: Vec<FrameId> = self.dirty_before(gsn).map(|(_, frame)| frame).collect();
        self.flush_frames(parts, frames, gsn)
    }

    /// Writes those of these pages that may lack a change of a record before `gsn`, as
    /// [`Pool::flush_before`] does.
    ///
    /// # Errors
    /// As [`Pool::flush_before`].
    pub(crate) fn flush_pages(&self, pages: impl IntoIterator<Item = PageId>, gsn: Gsn) -> Result<(), PoolError> {
        self.check_poison()?;
        let Some(parts) = self.write_back_parts() else { return Ok(()) };
        let is_before = |frame: &FrameId| self.frames.header(*frame).recovery_gsn.get().is_some_and(|rec| rec < gsn);
        // A page without a frame was written before it was evicted.
        let frames = pages.into_iter().filter_map(|page| self.table.get(page)).filter(is_before).collect();
        self.flush_frames(parts, frames, gsn)
    }

    fn flush_frames(
        &self,
        parts: (&WriteBack, &dyn PageWriter),
        mut frames: Vec<FrameId>,
        gsn: Gsn,
    ) -> Result<(), PoolError> {
        while !frames.is_empty() {
            self.sort_by_page(&mut frames);
            let mut skipped = None;
            for some in frames.chunks(BATCH_PAGES) {
                let outcome = self.write_batch(parts, &mut parts.0.batch.lock(), some)?;
                skipped = skipped.or(outcome.skipped);
            }
            if let Some(frame) = skipped {
                self.await_shared(frame);
            }
            frames.retain(|frame| self.frames.header(*frame).recovery_gsn.get().is_some_and(|rec| rec < gsn));
        }
        Ok(())
    }

    /// Writes every page that is dirty at the time of the call. The caller must hold no latch.
    ///
    /// # Errors
    /// As [`Pool::flush_before`].
    #[cfg(test)]
    pub(crate) fn flush_all(&self) -> Result<(), PoolError> {
        // The bound of a page dirtied before the call is not above the log's present end.
        let end = self.store.writer().map_or(Gsn::ZERO, |writer| writer.wal_rule().end());
        self.flush_before(Gsn::new(end.get().saturating_add(1)))
    }

    /// Sorts frames by their pages, because pages that are adjacent on disk can be written
    /// together. Frames may get other pages meanwhile, so the sort reads each key only once: a sort
    /// whose keys change may panic.
    pub(super) fn sort_by_page(&self, frames: &mut [FrameId]) {
        frames.sort_by_cached_key(|frame| self.frames.header(*frame).page.load(Ordering::Relaxed));
    }

    /// Waits until no thread holds the frame's page exclusively.
    fn await_shared(&self, frame: FrameId) {
        let header = self.frames.header(frame);
        let page = header.page.load(Ordering::Relaxed);
        if header.latch.shared(&self.lot, || header.page.load(Ordering::Relaxed) == page) {
            header.latch.release_shared(&self.lot);
        }
    }

    /// Returns the frames whose pages are dirty from before `gsn`, with their recovery GSNs.
    fn dirty_before(&self, gsn: Gsn) -> impl Iterator<Item = (Gsn, FrameId)> {
        self.frames.used_ids().filter_map(move |frame| {
            let rec_gsn = self.frames.header(frame).recovery_gsn.get()?;
            (rec_gsn < gsn).then_some((rec_gsn, frame))
        })
    }

    /// Returns all dirty frames with their recovery GSNs, oldest first.
    pub(super) fn dirty_frames(&self) -> Vec<(Gsn, FrameId)> {
        let mut dirty: Vec<_> = self.dirty_before(Gsn::MAX).collect();
        dirty.sort_unstable();
        dirty
    }

    /// Returns the `count` dirty frames with the oldest recovery GSNs, oldest first.
    pub(super) fn oldest_dirty(&self, count: usize) -> Vec<FrameId> {
        let mut dirty: Vec<_> = self.dirty_before(Gsn::MAX).collect();
        if count < dirty.len() {
            dirty.select_nth_unstable(count);
            dirty.truncate(count);
        }
        dirty.sort_unstable();
        dirty.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Writes at most one batch of the given frames' pages; returns the number of pages written.
    pub(super) fn clean(&self, frames: &[FrameId]) -> Result<usize, PoolError> {
        let Some(parts) = self.write_back_parts() else { return Ok(0) };
        Ok(self.write_batch(parts, &mut parts.0.batch.lock(), frames)?.written)
    }

    /// Writes a batch of the pages that the clock reaches next, or waits for the batch that another
    /// thread is writing. Returns whether a clean page may become available.
    pub(super) fn clean_for_eviction(&self) -> Result<bool, PoolError> {
        let Some((write_back, writer)) = self.write_back_parts() else { return Ok(false) };
        self.wake_cleaner();
        let finished = write_back.finished.load(Ordering::Acquire);
        let mut batch = write_back.batch.lock();
        if write_back.finished.load(Ordering::Acquire) != finished {
            return Ok(true);
        }
        let start = self.advance_hand().get() as usize;
        let count = self.frames();
        let candidates: Vec<FrameId> = (0..count)
            .map(|step| FrameId::new(((start + step) % count) as u32))
            .filter(|frame| self.frames.header(*frame).recovery_gsn.is_dirty())
            .take(2 * BATCH_PAGES)
            .collect();
        Ok(self.write_batch((write_back, writer), &mut batch, &candidates)?.written > 0)
    }

    /// Writes the pages of up to [`BATCH_PAGES`] of the candidates.
    fn write_batch(
        &self,
        (write_back, writer): (&WriteBack, &dyn PageWriter),
        batch: &mut Staged,
        candidates: &[FrameId],
    ) -> Result<Outcome, PoolError> {
        self.check_poison()?;
        let (newest, skipped) = self.stage(writer, batch, candidates);
        // A page that must not be written poisons the pool before its latch is released.
        self.check_poison()?;
        let written = batch.frames.len();
        if written == 0 {
            return Ok(Outcome { written, skipped });
        }
        if !planted!(SkipWalRule) {
            writer.wal_rule().harden(newest)?;
        }
        writer.write(&mut batch.pages).inspect_err(|error| self.poison(&error.to_string()))?;
        for frame in batch.frames.drain(..) {
            let header = self.frames.header(frame);
            // A dirty page stays in its frame, so the header still names the page that was written.
            self.table.note_written(PageId::new(header.page.load(Ordering::Relaxed)));
            if header.recovery_gsn.durable(&header.latch, &self.lot) {
                self.dirty.fetch_sub(1, Ordering::Relaxed);
            }
        }
        self.counters.writes.fetch_add(written as u64, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        write_back.finished.fetch_add(1, Ordering::Release);
        Ok(Outcome { written, skipped })
    }

    /// Empties the batch. If it was not written, its pages are dirty and still in their frames: the
    /// lines of their copies count as changed again.
    fn empty(&self, batch: &mut Staged) {
        for (frame, copy) in batch.frames.drain(..).zip(batch.pages.copies()) {
            let changed = &self.frames.header(frame).changed;
            changed.add(copy.lines);
            if copy.anew {
                changed.note_anew();
            }
        }
        batch.pages.clear();
    }

    /// Copies the candidates' pages into the batch, in the order of their page ids if the
    /// candidates are in that order. Returns the largest page GSN, and a page that was skipped.
    fn stage(&self, writer: &dyn PageWriter, batch: &mut Staged, candidates: &[FrameId]) -> (Gsn, Option<FrameId>) {
        self.empty(batch);
        let mut newest = Gsn::ZERO;
        let mut skipped = None;
        for &frame in candidates {
            if batch.pages.is_full() {
                break;
            }
            let header = self.frames.header(frame);
            if !header.recovery_gsn.is_dirty() {
                continue;
            }
            if !header.latch.try_shared() {
                reach(Probe::WriterSkippedLatched);
                skipped = Some(frame);
                continue;
            }
            if header.recovery_gsn.is_dirty() {
                // SAFETY: the page is latched shared until below.
                let contents = unsafe { self.frames.bytes(frame) };
                let page = PageId::new(header.page.load(Ordering::Relaxed));
                let (lines, anew) = header.changed.take();
                batch.pages.push(Copied { id: page, lines, anew, page: contents });
                writer.copied(page, contents);
                batch.frames.push(frame);
                newest = newest.max(page::gsn(contents));
                header.recovery_gsn.copied();
            }
            header.latch.release_shared(&self.lot);
        }
        (newest, skipped)
    }
}
