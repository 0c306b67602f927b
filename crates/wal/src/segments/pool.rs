//! Makes, takes and recycles segments.
//!
//! A segment file begins as a *spare*: created, allocated and synced under a name that no reader
//! uses. To become segment `n`, a spare gets the header of `n`, durably, then the name of `n`,
//! durably; only then is it written. So a file with a segment's name always has that segment's
//! header. If the spare was a segment before, it contains records of lower LSNs, whose checksums
//! are not valid at the new ones.
//!
//! Recycling first makes the new start of the log durable, in the header of the segment that holds
//! it, and then renames the segments below it to spares, or removes them. A crash in between leaves
//! segments below the start, perhaps with gaps; opening the log recycles them again. A segment that
//! may lack blocks before the log's start ([`Segments::discard_past`]) does not become a spare.
//!
//! [`Segments::reserve`] keeps the invariant `end + reserved <= limit`: everything inserted under a
//! reservation has room on the disk. The limit only grows. The sum may count bytes twice, in `end`
//! and still in `reserved`, but never omits them.
//!
//! # Growing
//! A new database should not take up more than it needs, so the file of the last segment, and no
//! other, grows ahead of the log, by as much as the log has grown since it was opened, until whole
//! segments are made ahead. The new part is filled with zeros and synced before the log may reach
//! it, so a write of the log never changes the extents or the size of a file, which its sync would
//! have to wait for. In order:
//!
//! 1. fill the file up, sync it;
//! 2. write the header with the new size, durably;
//! 3. raise the limit.
//!
//! While the log's writes are large ([`WriteSizes`]), step 1 reserves the space without zeros, or
//! each byte of large transactions and of bulk loads would be written twice to a log of new
//! segments. The syncs of writes there wait for the file system, but there are few for their bytes.
//! Steps are short meanwhile, so that little of such space is left for small writes. When writes
//! are small again, the log grows ahead as if just opened: else a whole segment of zeros could
//! follow the large ones.
//!
//! So records lie in the part of the file that the header states, and a shorter file has lost its
//! end. A thread that makes a file grow, or writes its header while the log is in service, has
//! opened it for itself: a failed sync is reported once for each opening, and the thread that
//! writes the log must hear of it, too. Closing cuts off what the next opening does not need.

use std::ops::Range;

use duramen_io::{File, OpenMode, throttled_allocate};
use duramen_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex, MutexGuard};
use duramen_types::{LogId, Lsn, planted};

use crate::error::{Result, WalError};
use crate::format::segment::{BLOCK, Geometry, SegmentHeader, directory, segment_name, spare_name};
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::retention::Retention;
use crate::segments::write_sizes::WriteSizes;

/// The log's files extend at least this many bytes beyond the reserved ones...
const LEAST_AHEAD: u64 = 64 << 10;
/// ...or this part of a segment, if it is less.
const LEAST_PART: u64 = 8;
/// ...but while writes are large at most this many.
const LARGE_AHEAD: u64 = 4 << 20;

/// Bounds on the number of segments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_bytes: u64,
    pub(crate) spare_segments: usize,
    pub(crate) ring_bytes: u64,
    /// Number of the ring in persistent memory that holds the end of the log, or zero.
    pub(crate) ring: u64,
}

/// The segments of an open log.
#[derive(Debug)]
pub(crate) struct Segments {
    home: Arc<OpenFiles>,
    files: Arc<SegmentFiles>,
    limits: Limits,
    pub(crate) retention: Retention,
    /// Held while segments are made or recycled; never while the log is written.
    growth: Mutex<Spares>,
    sizes: WriteSizes,
    /// Where the log ended when it was opened.
    opened_at: Lsn,
    /// Where it ended then, or when its writes were last large.
    growing_from: AtomicU64,
    /// The segment that may lack the space before the log's start ([`Segments::discard_past`]): the
    /// one with the start when the log was opened, or when that was discarded last.
    holed: AtomicU64,
    /// LSN behind the last segment's file.
    limit: AtomicU64,
    /// [`Limits::ring`], or zero once the log has left it.
    ring: AtomicU64,
    start: AtomicU64,
    reserved: AtomicU64,
    /// Making a segment ahead of need has failed, and nothing has been recycled since: no retry.
    ahead_failed: AtomicBool,
    /// While this is not zero, the limit of bytes does not apply.
    limit_lifted: AtomicUsize,
    /// Number of threads that lock `growth` on behalf of a waiting caller. While there are any,
    /// segments ahead of need are made without pauses.
    hurried: AtomicUsize,
    created: AtomicU64,
    recycled: AtomicU64,
}

/// Numbers in the names of the spares.
type Spares = Vec<u64>;

/// A step of growth.
#[derive(Clone, Copy)]
struct Step<'a> {
    /// LSN up to which the files should reach.
    target: u64,
    /// Whether the log's writes are large: no zeros are written.
    large_writes: bool,
    /// Returns whether a thread needs the step. Otherwise there are pauses.
    hurry: &'a dyn Fn() -> bool,
}

impl Step<'_> {
    /// Makes a file `bytes` long, durably.
    fn fill(&self, file: &dyn File, bytes: u64) -> Result<()> {
        if self.large_writes {
            file.reserve(bytes)?;
        } else {
            throttled_allocate(file, bytes, self.hurry)?;
        }
        if !planted!(GrowthUnsynced) {
            file.sync()?;
        }
        Ok(())
    }
}

/// Returns the segment that holds `start`, and the blocks of its file before it, if there are any.
fn past(geometry: Geometry, start: Lsn) -> Option<(u64, Range<u64>)> {
    let past = BLOCK..geometry.offset(start.get()) / BLOCK * BLOCK;
    (!past.is_empty()).then(|| (geometry.segment_of(start.get()), past))
}

impl Segments {
    /// Takes over `files`, and the log's start and end; makes new files in `home`. Has no spares.
    pub(crate) fn new(
        home: Arc<OpenFiles>,
        files: Arc<SegmentFiles>,
        (start, end): (Lsn, Lsn),
        limits: Limits,
    ) -> Self {
        let limit = AtomicU64::new(files.limit().max(files.geometry.base(0)));
        // If the log starts at the very end of its last segment, the hole is in that one.
        let at_end = || files.geometry.segment_of(start.get()).wrapping_sub(1);
        let holed = past(files.geometry, start).map_or_else(at_end, |(number, _)| number);
        Self {
            home,
            files,
            limits,
            retention: Retention::default(),
            growth: Mutex::default(),
            sizes: WriteSizes::default(),
            opened_at: end,
            growing_from: AtomicU64::new(end.get()),
            holed: AtomicU64::new(holed),
            limit,
            ring: AtomicU64::new(limits.ring),
            start: AtomicU64::new(start.get()),
            reserved: AtomicU64::new(0),
            ahead_failed: AtomicBool::new(false),
            limit_lifted: AtomicUsize::new(0),
            hurried: AtomicUsize::new(0),
            created: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
        }
    }

    fn log(&self) -> LogId {
        self.files.identity.log
    }

    pub(crate) fn start(&self) -> Lsn {
        Lsn::new(self.start.load(Ordering::Acquire))
    }

    pub(crate) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Returns the number of segment files created and reused.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.created.load(Ordering::Relaxed), self.recycled.load(Ordering::Relaxed))
    }

    /// Reserves `bytes`; `end` returns where the log ends. Calls `before_wait` first if a segment
    /// must be made.
    pub(crate) fn reserve(&self, bytes: u64, end: impl Fn() -> Lsn, before_wait: impl FnOnce()) -> Result<()> {
        // Acquire, and `end` only afterwards: a thread that gave bytes back inserted before, and
        // this thread sees the end of its insertion.
        if bytes > u64::MAX / 4 {
            return Err(WalError::Full { wanted: bytes, cause: "a log cannot have that size".to_owned() });
        }
        let reserved = self.reserved.fetch_add(bytes, Ordering::AcqRel) + bytes;
        let needed = end().get().saturating_add(reserved);
        if needed <= self.limit.load(Ordering::Acquire) {
            return Ok(());
        }
        before_wait();
        self.ensure(needed, bytes).inspect_err(|_| self.unreserve(bytes))
    }

    /// Returns whether the limit of bytes would let a log that ends at `end` reserve `bytes` if the
    /// log began at `start` and `returned` of the reserved bytes were given back.
    pub(crate) fn has_room_from(&self, start: Lsn, end: Lsn, bytes: u64, returned: u64) -> bool {
        let Some((first, last)) = self.files.span() else { return true };
        let geometry = self.files.geometry;
        let needed = end.get().saturating_add(self.reserved().saturating_sub(returned)).saturating_add(bytes);
        let missing = needed.saturating_sub(self.files.reach()).div_ceil(geometry.data_bytes());
        let kept = last + 1 - geometry.segment_of(start.get()).clamp(first, last);
        kept.saturating_add(missing).saturating_mul(geometry.segment_bytes) <= self.limits.max_bytes
    }

    pub(crate) fn unreserve(&self, bytes: u64) {
        let before = self.reserved.fetch_sub(bytes, Ordering::AcqRel);
        assert!(before >= bytes, "only what was reserved can be given back");
    }

    /// Makes space until it reaches `end`; `wanted` appears in the message if that fails.
    pub(crate) fn ensure(&self, end: u64, wanted: u64) -> Result<()> {
        if end <= self.limit.load(Ordering::Acquire) {
            return Ok(());
        }
        let full = |cause: String| {
            reach(Probe::LogFull);
            WalError::Full { wanted, cause }
        };
        let mut spares = self.lock_growth();
        let missing = end.saturating_sub(self.files.reach()).div_ceil(self.files.geometry.data_bytes());
        if missing > 0 && !self.may_add(missing) {
            let obstacle = self.retention.obstacle().map(|obstacle| format!(", and {obstacle}")).unwrap_or_default();
            return Err(full(format!("that would exceed its limit of {} bytes{obstacle}", self.limits.max_bytes)));
        }
        while self.limit.load(Ordering::Relaxed) < end {
            self.extend(&mut spares, end).map_err(|error| match error {
                WalError::Disk(disk) if disk.is_full() => full(disk.to_string()),
                other => other,
            })?;
        }
        Ok(())
    }

    /// Makes space until it reaches `end`, even if the segments exceed the limit of their bytes.
    pub(crate) fn ensure_beyond_limit(&self, end: u64) -> Result<()> {
        if end <= self.limit.load(Ordering::Acquire) {
            return Ok(());
        }
        self.lift_limit(true);
        let made = self.ensure(end, 0);
        self.lift_limit(false);
        made
    }

    /// Lets the segments exceed the limit of their bytes, or ends this permission.
    pub(crate) fn lift_limit(&self, lifted: bool) {
        if lifted {
            self.limit_lifted.fetch_add(1, Ordering::Relaxed);
        } else {
            self.limit_lifted.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Notes a durable write of `bytes`, after which the log ends at `end`.
    pub(crate) fn note_write(&self, bytes: u64, end: u64) {
        self.sizes.note(bytes);
        if self.sizes.are_large() {
            self.growing_from.store(end, Ordering::Relaxed);
        }
    }

    fn may_add(&self, segments: u64) -> bool {
        let bytes = (self.files.count() + segments).saturating_mul(self.files.geometry.segment_bytes);
        bytes <= self.limits.max_bytes || self.limit_lifted.load(Ordering::Relaxed) > 0
    }

    /// Returns how much space there should be beyond `needed`, the end of the log with the reserved
    /// bytes.
    fn ahead(&self, needed: u64, large_writes: bool) -> u64 {
        let Geometry { segment_bytes, .. } = self.files.geometry;
        let (least, most) = (LEAST_AHEAD.min(segment_bytes / LEAST_PART), self.files.geometry.data_bytes());
        let (from, most) = if large_writes {
            (self.opened_at.get(), most.min(LARGE_AHEAD))
        } else {
            (self.growing_from.load(Ordering::Relaxed), most)
        };
        needed.saturating_sub(self.reserved()).saturating_sub(from).max(least).min(most)
    }

    fn step<'a>(&self, needed: u64, hurry: &'a dyn Fn() -> bool) -> Step<'a> {
        let large_writes = self.sizes.are_large();
        Step { target: needed + 2 * self.ahead(needed, large_writes), large_writes, hurry }
    }

    /// Returns whether a log that ends at `end` should grow in the background.
    pub(crate) fn wants_more(&self, end: Lsn) -> bool {
        let needed = end.get().saturating_add(self.reserved());
        self.limits.spare_segments > 0
            && needed + self.ahead(needed, self.sizes.are_large()) > self.limit.load(Ordering::Relaxed)
            && !self.ahead_failed.load(Ordering::Relaxed)
    }

    /// Makes space ahead of need, at most one segment; `end` returns where the log ends. Makes no
    /// pauses once half of the space ahead is used up. The reservation that needs the space deals
    /// with a failure.
    pub(crate) fn add_ahead(&self, end: impl Fn() -> Lsn) {
        let mut spares = self.growth.lock();
        if !self.wants_more(end()) {
            return;
        }
        let needed = || end().get().saturating_add(self.reserved());
        let hurry = || {
            let needed = needed();
            let ahead = self.ahead(needed, self.sizes.are_large());
            let is_pressed = needed + ahead / 2 > self.limit.load(Ordering::Relaxed);
            is_pressed || self.hurried.load(Ordering::Relaxed) > 0
        };
        let may_grow = self.limit.load(Ordering::Relaxed) < self.files.reach() || self.may_add(1);
        if !(may_grow && self.extend_to(&mut spares, self.step(needed(), &hurry)).is_ok()) {
            self.ahead_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Makes everything without pauses from now on: the log is about to be closed.
    pub(crate) fn hurry(&self) {
        self.hurried.fetch_add(1, Ordering::Relaxed);
    }

    /// Locks growth on behalf of a waiting caller.
    fn lock_growth(&self) -> MutexGuard<'_, Spares> {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        let spares = self.growth.lock();
        self.hurried.fetch_sub(1, Ordering::Relaxed);
        spares
    }

    /// Keeps the files from growing and from being recycled.
    pub(crate) fn keep_still(&self) -> impl Sized {
        self.lock_growth()
    }

    /// Makes space because `needed` is not within the limit: generously if the disk has room.
    fn extend(&self, spares: &mut Spares, needed: u64) -> Result<()> {
        let step = self.step(needed, &|| true);
        match self.extend_to(spares, step) {
            Err(WalError::Disk(disk)) if disk.is_full() => self.extend_to(spares, Step { target: needed, ..step }),
            extended => extended,
        }
    }

    /// Extends the last segment's file towards the target or, if it is whole, adds a segment.
    fn extend_to(&self, spares: &mut Spares, step: Step<'_>) -> Result<()> {
        let (geometry, limit) = (self.files.geometry, self.limit.load(Ordering::Relaxed));
        let number = geometry.segment_of(limit);
        let target = step.target.clamp(limit + 1, geometry.base(number + 1)).next_multiple_of(BLOCK);
        let step = Step { target, ..step };
        if self.files.has(number) {
            self.grow_last(number, step)?
        } else {
            self.add(spares, number, step)?
        }
        self.limit.store(self.files.limit(), Ordering::Release);
        Ok(())
    }

    /// Makes the last segment's file reach the target.
    fn grow_last(&self, number: u64, step: Step<'_>) -> Result<()> {
        let file = self.open_segment(number)?;
        let bytes = self.files.geometry.bytes_up_to(number, step.target);
        // A step that failed may have made the file longer, and its header may state that.
        let before = file.len()?;
        step.fill(&*file, bytes).inspect_err(|_| {
            // What there is of the new part would only take up space.
            let _ = file.set_len(before);
        })?;
        self.write_header(&*file, number, bytes)?;
        self.files.set_last_bytes(bytes);
        reach(Probe::SegmentGrown);
        Ok(())
    }

    /// Adds the next segment, `number`, whose file reaches the target at least.
    fn add(&self, spares: &mut Spares, number: u64, step: Step<'_>) -> Result<()> {
        let geometry = self.files.geometry;
        // A spare with the name that this segment will later get as a spare comes first: an
        // interrupted creation may have left it, and two spares must never get the same name.
        let namesake = spares.iter().position(|&spare| spare == number);
        let (spare, bytes) = match namesake.or(spares.len().checked_sub(1)) {
            Some(at) => {
                reach(Probe::SegmentRecycled);
                self.recycled.fetch_add(1, Ordering::Relaxed);
                (spares.swap_remove(at), geometry.segment_bytes)
            }
            None => {
                let bytes = geometry.bytes_up_to(number, step.target);
                self.make_spare(number, bytes, step)?;
                self.created.fetch_add(1, Ordering::Relaxed);
                (number, bytes)
            }
        };
        let file = self.promote(spare, number, bytes).inspect_err(|_| {
            // It may be used later, if it is whole and still has its name.
            let is_whole = bytes == geometry.segment_bytes;
            if is_whole && self.home.disk().exists(&spare_name(self.log(), spare)).unwrap_or(false) {
                // Another one comes first: this one may be damaged.
                spares.insert(0, spare);
            }
        })?;
        self.files.insert(number, &self.home, file, bytes);
        Ok(())
    }

    /// Makes a durable spare file of `bytes`.
    fn make_spare(&self, number: u64, bytes: u64, step: Step<'_>) -> Result<()> {
        let (name, disk) = (spare_name(self.log(), number), self.home.disk());
        if disk.exists(&name)? {
            disk.remove(&name)?;
        }
        let file = self.home.open(&name, OpenMode::CreateNew)?;
        step.fill(&*file, bytes).inspect_err(|_| {
            // It would only take up space. If this fails too, opening the log removes it.
            let _ = disk.remove(&name);
        })
    }

    /// Turns a spare of `bytes` into segment `number`.
    fn promote(&self, spare: u64, number: u64, bytes: u64) -> Result<Arc<dyn File>> {
        let (from, to) = (spare_name(self.log(), spare), segment_name(self.log(), number));
        self.write_header(&*self.home.open(&from, OpenMode::Existing)?, number, bytes)?;
        self.home.disk().rename(&from, &to)?;
        if !planted!(SkipDirectorySync) {
            self.home.disk().sync_directory(&directory(self.log()))?;
        }
        // If this fails, another spare gets the name next time: this one has no content yet.
        self.open_segment(number)
    }

    fn open_segment(&self, number: u64) -> Result<Arc<dyn File>> {
        Ok(self.home.open(&segment_name(self.log(), number), OpenMode::Existing)?)
    }

    /// Returns whether a ring holds the end of the log, unless it has been left.
    pub(crate) fn has_ring(&self) -> bool {
        self.ring.load(Ordering::Relaxed) != 0
    }

    /// Records durably, in the last segment's header, that the log has left its ring.
    pub(crate) fn leave_ring(&self) -> Result<()> {
        let _growth = self.growth.lock();
        self.ring.store(0, Ordering::Relaxed);
        let last = self.files.span().map_or(0, |(_, last)| last);
        self.remove_unfinished(last)?;
        self.renew_header(last)
    }

    /// Removes the file behind the `last` segment, which a failed creation may have left.
    fn remove_unfinished(&self, last: u64) -> Result<()> {
        let (disk, name) = (self.home.disk(), segment_name(self.log(), last + 1));
        if disk.exists(&name)? {
            disk.remove(&name)?;
            disk.sync_directory(&directory(self.log()))?;
        }
        Ok(())
    }

    /// Writes the header of segment `number` again, durably.
    pub(crate) fn renew_header(&self, number: u64) -> Result<()> {
        self.write_header(&*self.open_segment(number)?, number, self.files.bytes_of(number))
    }

    fn write_header(&self, file: &dyn File, number: u64, file_bytes: u64) -> Result<()> {
        let (ring_bytes, ring) = (self.limits.ring_bytes, self.ring.load(Ordering::Relaxed));
        let SegmentFiles { identity, geometry, .. } = &*self.files;
        let header = SegmentHeader::of_copy(identity, number, self.start(), geometry.segment_bytes);
        SegmentHeader { ring_bytes, ring, file_bytes, ..header }.write_durable(file)
    }

    /// Keeps the log from its present start on.
    pub(crate) fn hold(&self) -> u64 {
        let _growth = self.lock_growth();
        self.retention.hold(self.start())
    }

    /// Makes `start` the log's start, durably, and recycles the segments wholly below it, or as
    /// many of them as archive and backups allow; the rest is recycled later.
    pub(crate) fn recycle_below(&self, start: Lsn) -> Result<()> {
        self.retention.want(self.files.geometry.segment_of(start.get()), start);
        self.recycle_admitted()
    }

    /// Recycles what was requested and is now allowed.
    pub(crate) fn recycle_admitted(&self) -> Result<()> {
        let mut spares = self.lock_growth();
        let Some(start) = self.retention.admitted().filter(|start| *start > self.start()) else { return Ok(()) };
        let previous = self.start.swap(start.get(), Ordering::AcqRel);
        self.renew_header(self.start_segment()).inspect_err(|_| self.start.store(previous, Ordering::Release))?;
        self.retention.started_at(start);
        self.recycle(&mut spares)?;
        self.ahead_failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the number of the segment that holds the log's start, even if that is its very end.
    fn start_segment(&self) -> u64 {
        let holder = self.files.geometry.segment_of(self.start().get());
        self.files.span().map_or(holder, |(_, last)| holder.min(last))
    }

    /// Gives the space before the log's start in the start's segment back to the file system, as
    /// far as this can be done, unless there is an archive, which needs whole segments.
    pub(crate) fn discard_past(&self) {
        let _growth = self.lock_growth();
        let Some((number, past)) = past(self.files.geometry, self.start()) else { return };
        if self.retention.has_archive() || !self.files.has(number) {
            return;
        }
        self.holed.store(number, Ordering::Relaxed);
        if let Ok(file) = self.open_segment(number) {
            // After a failure the space stays taken.
            let _ = file.discard(past);
        }
    }

    /// Turns the segments below the start into spares, or removes them.
    fn recycle(&self, spares: &mut Spares) -> Result<()> {
        let (first, keep) = (self.files.span().map_or(0, |(first, _)| first), self.start_segment());
        if first >= keep {
            return Ok(());
        }
        let disk = self.home.disk();
        let mut new = Vec::new();
        let outcome = (first..keep).try_for_each(|number| {
            self.files.remove(number);
            let name = segment_name(self.log(), number);
            let has_hole = number == self.holed.load(Ordering::Relaxed);
            if has_hole || spares.len() + new.len() >= self.limits.spare_segments {
                return disk.remove(&name);
            }
            disk.rename(&name, &spare_name(self.log(), number))?;
            new.push(number);
            Ok(())
        });
        disk.sync_directory(&directory(self.log()))?;
        // Not earlier: another segment's header must not appear under this segment's name.
        spares.append(&mut new);
        Ok(outcome?)
    }

    /// Takes over the files that an earlier run has left, whose names are durable: spares that can
    /// be used, others, and segments below the start.
    pub(crate) fn take_over(&self, spares: &[u64], stale: &[u64]) -> Result<()> {
        let (mut kept, disk) = (self.growth.lock(), self.home.disk());
        // The start can be read, but the process that wrote it may have seen the write fail.
        self.renew_header(self.start_segment())?;
        for &number in stale {
            disk.remove(&segment_name(self.log(), number))?;
        }
        for &number in spares {
            let name = spare_name(self.log(), number);
            let file = disk.open(&name, OpenMode::Existing)?;
            // A segment that is in use gets this name when it becomes a spare.
            let usable = file.len()? == self.files.geometry.segment_bytes && !self.files.has(number);
            if usable && kept.len() < self.limits.spare_segments {
                // Its length may not be durable yet.
                file.sync()?;
                kept.push(number);
            } else {
                disk.remove(&name)?;
            }
        }
        if stale.len() + spares.len() > kept.len() {
            disk.sync_directory(&directory(self.log()))?;
        }
        Ok(())
    }

    /// Leaves of the files of a log that ends at `end`, in no ring, and that no thread writes any
    /// more, what the next opening needs. The last segment goes first: none leaves a gap.
    pub(crate) fn shrink(&self, end: Lsn) -> Result<()> {
        let mut growth = self.growth.lock();
        let (disk, geometry) = (self.home.disk(), self.files.geometry);
        let Some((first, last)) = self.files.span() else { return Ok(()) };
        let directory = directory(self.log());
        let spares = std::mem::take(&mut *growth);
        for &spare in &spares {
            disk.remove(&spare_name(self.log(), spare))?;
        }
        if !spares.is_empty() {
            disk.sync_directory(&directory)?;
        }
        self.remove_unfinished(last)?;
        // The next opening may need the space that is reserved now, and the disk may be full.
        let reserved = self.reserved();
        let keep = geometry.segment_of(end.get() + reserved).clamp(first, last);
        if keep < last {
            // At no time does a reader find a shorter one than is there.
            self.files.set_last_bytes(geometry.segment_bytes);
        }
        for number in (keep + 1..=last).rev() {
            // The one before becomes the last one, which must not name a ring.
            self.write_header(&*self.open_segment(number - 1)?, number - 1, geometry.segment_bytes)?;
            self.files.remove(number);
            disk.remove(&segment_name(self.log(), number))?;
            disk.sync_directory(&directory)?;
        }
        let file = self.open_segment(keep)?;
        let needed = geometry.bytes_up_to(keep, end.get() + reserved.max(2 * LEAST_AHEAD));
        if needed < self.files.bytes_of(keep) {
            self.write_header(&*file, keep, needed)?;
            file.set_len(needed)?;
            file.sync()?;
            self.files.set_last_bytes(needed);
        }
        self.limit.store(self.files.limit(), Ordering::Release);
        Ok(())
    }
}
