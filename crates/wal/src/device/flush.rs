//! Writing the released part of the log buffer to the segments.
//!
//! A flush writes whole blocks, from the block in which the durable part ends to the released end.
//! Full blocks go directly from the ring. The rest of the last block is usually being filled in, so
//! its released part goes through a scratch block, padded with zeros, and the next flush writes the
//! block again. If that write is torn, both versions agree in the sectors before the durable end.
//!
//! If insertion does not seal records ([`Sealing`]), the flush first writes their checksums into
//! the ring. A flush covers whole records, and each record is new in exactly one flush. So each
//! record is sealed once, and the part of a block that is written again is already sealed. No other
//! thread accesses those bytes: the inserting thread has finished, and readers read the segments.
//!
//! With a buffer in persistent memory, which is written out when full, a flush only de-stages.
//!
//! The durable position moves only when everything below it is on the device. It moves only to the
//! end of the released part at the start of the flush, which is the end of a record.

use duramen_io::{AlignedBuf, File};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, Mutex, MutexGuard};
use duramen_types::{Gsn, Lsn, planted};

use crate::buffer::positions::Space;
use crate::buffer::ring::Ring;
use crate::device::Tail;
use crate::error::Result;
use crate::format::header::Layout;
use crate::format::record::{NewRecord, encode, filled, seal};
use crate::format::segment::BLOCK;
use crate::options::Sealing;
use crate::segments::files::SegmentFiles;
use crate::segments::pool::Segments;

/// The most bytes of one durable write. Larger amounts go in parts of this size, and then a sync.
const WRITE_BYTES: u64 = 1 << 20;

/// Writes the log buffer to the segments.
#[derive(Debug)]
pub(crate) struct Flusher {
    files: Arc<SegmentFiles>,
    sealing: Sealing,
    flushes: AtomicU64,
    bytes: AtomicU64,
    /// The scratch block. The thread that flushes has it locked.
    scratch: Mutex<AlignedBuf>,
}

impl Flusher {
    pub(crate) fn new(files: Arc<SegmentFiles>, sealing: Sealing) -> Self {
        let scratch = Mutex::new(AlignedBuf::zeroed(BLOCK as usize));
        Self { files, sealing, flushes: AtomicU64::new(0), bytes: AtomicU64::new(0), scratch }
    }

    /// Returns whether records are sealed when they are flushed, and not before.
    pub(crate) fn seals_at_flush(&self) -> bool {
        self.sealing == Sealing::AtFlush
    }

    /// Seals a record that has just been filled in, if a flush will not do it.
    #[inline]
    pub(crate) fn inserted(&self, record: &mut [u8], lsn: Lsn) {
        if self.sealing == Sealing::AtInsertion {
            self.seal(record, lsn, None);
        }
    }

    #[cold]
    fn seal(&self, records: &mut [u8], from: Lsn, durable: Option<Lsn>) {
        seal(records, &self.files.identity, from, durable);
    }

    /// Returns the number of flushes and of bytes written.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.flushes.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    /// Locks the right to write to the segments; returns the scratch block for [`Flusher::write`].
    pub(crate) fn lock(&self) -> MutexGuard<'_, AlignedBuf> {
        self.scratch.lock()
    }

    /// Begins a flush of everything below `to`, which is released: seals what has to be sealed.
    /// Returns the bounds of what [`Flusher::write`] has to write, if there is anything.
    pub(crate) fn begin(&self, tail: Tail<'_>, to: Lsn) -> Option<(Lsn, Lsn)> {
        let Tail { ring, space, .. } = tail;
        let from = space.durable();
        // Checked after `to` has been read: a failed log releases space that was never filled in.
        if from == to || space.has_failed() {
            return None;
        }
        space.set_in_flush(to);
        if self.seals_at_flush() {
            // SAFETY: everything below `to` is released, so no thread fills it in any more; no
            // thread reuses it before it is durable; and only a flush reads the ring.
            let fresh = unsafe { ring.bytes_mut(from, (to.get() - from.get()) as usize) };
            self.seal(fresh, from, Some(from));
        }
        Some((from, to))
    }

    /// Writes `[from, to)`, which is stable, to the segments, durably. After a transient error
    /// nothing has been written, and the caller can retry.
    pub(crate) fn write(
        &self,
        ring: &Ring,
        segments: &Segments,
        from: Lsn,
        to: Lsn,
        scratch: &mut AlignedBuf,
    ) -> Result<()> {
        let (from, to) = (from.get(), to.get());
        let (start, full, end) = (from / BLOCK * BLOCK, to / BLOCK * BLOCK, to.next_multiple_of(BLOCK));
        // Does nothing for records that were inserted under a log reservation.
        segments.ensure(end, to - from)?;
        // All files are opened before anything is written, so that a failure to open does no harm.
        let pieces = self.files.pieces(start, end).map(|piece| Ok((piece, self.files.file_at(piece.0)?)));
        let pieces = pieces.collect::<Result<Vec<_>>>()?;
        // SAFETY: everything below `to` is released, so no thread fills it in any more, and none
        // reuses it before it is durable. The part of the first block below `from` is kept, too.
        let stable = unsafe { ring.bytes(Lsn::new(start), (to - start) as usize) };
        let (blocks, rest) = stable.split_at((full - start) as usize);
        scratch[..rest.len()].copy_from_slice(rest);
        scratch[rest.len()..].fill(0);
        for ((piece_start, piece_end), file) in pieces {
            let offset = self.files.geometry.offset(piece_start);
            let whole = &blocks[(piece_start - start) as usize..(piece_end.min(full) - start) as usize];
            let has_last = piece_end > full;
            let parts = &[whole, &scratch[..]][usize::from(whole.is_empty())..1 + usize::from(has_last)];
            if planted!(SkipLogSync) {
                file.write_at(parts, offset)?;
            } else if whole.len() as u64 <= WRITE_BYTES {
                file.write_durable(parts, offset)?;
            } else {
                // Until the file is whole, another thread may sync it, and what is being written
                // must not be lost in a failure that only that thread sees.
                let number = self.files.geometry.segment_of(piece_start);
                let _still = (!self.files.is_whole(number)).then(|| segments.keep_still());
                write_in_parts(&*file, parts, offset)?;
            }
        }
        self.flushes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(end - start, Ordering::Relaxed);
        segments.note_write(end - start, to);
        Ok(())
    }

    /// Ends a flush: publishes that everything below `to` is durable in the segments.
    pub(crate) fn publish(&self, space: &Space, from: Lsn, to: Lsn) {
        space.set_durable(to);
        let first = self.files.geometry.segment_of(to.get());
        if first != self.files.geometry.segment_of(from.get()) {
            self.files.write_from(first);
        }
    }
}

/// Fills `record` in at `lsn` without a checksum; returns its bytes. It states that the log is
/// durable up to `durable`, unless a flush will state that.
///
/// # Safety
/// As for [`crate::device::Device::fill`].
#[inline(always)]
#[allow(clippy::mut_from_ref, reason = "the contract makes the range exclusive")]
pub(crate) unsafe fn fill_unsealed<'r, const MAX_PAYLOAD: usize>(
    ring: &'r Ring,
    lsn: Lsn,
    layout: Layout,
    record: &NewRecord<'_>,
    gsn: Gsn,
    durable: Option<Lsn>,
) -> &'r mut [u8] {
    // SAFETY: the space is the caller's. The flusher accesses nothing behind the released end.
    // There is room, so the bytes that lay here before are on the device.
    let space = unsafe { ring.bytes_mut(lsn, layout.record_bytes(record.payload.len())) };
    encode::<MAX_PAYLOAD>(space, layout, record, lsn, gsn, durable);
    filled(record, space);
    space
}

/// Writes more than [`WRITE_BYTES`], durably.
#[cold]
fn write_in_parts(file: &dyn File, parts: &[&[u8]], offset: u64) -> duramen_io::Result<()> {
    let mut at = offset;
    let mut writes = Vec::new();
    for chunk in parts.iter().flat_map(|part| part.chunks(WRITE_BYTES as usize)) {
        writes.push((at, chunk));
        at += chunk.len() as u64;
    }
    file.write_batch(&writes)?;
    file.sync()
}
