//! The log device: what makes the records in the log buffer durable.
//!
//! [`Device`] is the seam between one log ([`crate::stream`]) and its device, which works on the
//! [`Tail`] of that log. With the device `file` the buffer is ordinary memory, and a flush to the
//! segments hardens records. With the device `nvm` the buffer lies in persistent memory and records
//! are hardened without a flush; the segments are written when the buffer fills up (*de-staging*).
//! With both, space in the buffer is used again only when the segments hold what was in it.
//!
//! What the operations promise when they return:
//!
//! - [`Device::fill`]: the caller may release the record. With `file` the record is in the buffer.
//!   With `nvm` it is durable, or, behind volatile caches, durable after a fence of this thread.
//! - [`Device::fence`]: no commit waits for the calling thread's earlier records.
//! - [`Device::look`]: `Space::hardened` is up to date.
//! - [`Device::wait`]: one record and all before it are hardened, or the log has failed. With `file`
//!   the thread waits for a flush, with `nvm` for the threads that inserted the records.
//! - [`Device::harden_released`]: everything released is hardened, if a flush is not needed for that.
//! - [`Device::flush`]: requests that nobody waits for in person have made progress, and so have
//!   insertions that wait for room.
//! - [`Device::write_out`]: the segments hold more, and `Space::durable` says so, if anything could be
//!   written. With `file` that is all that is released, with `nvm` all that is hardened.
//! - [`Device::destage`]: the segments hold everything that was hardened before the call.
//! - [`Device::give_up`]: the segments alone are the log, if they hold everything.
//!
//! One thread at a time calls `write_out`: with `file` the commit queue sees to that, with `nvm` a
//! lock of the device. Small records do not pass through this seam: the log puts them straight into
//! the buffer if the device [takes them unsealed](Device::takes_unsealed).

pub(crate) mod flush;
pub(crate) mod nvm;
pub(crate) mod tail;

use std::time::Duration;

use duramen_pmem::Region;
use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn};

use crate::buffer::positions::Hardening;
use crate::buffer::ring::Ring;
use crate::device::flush::Flusher;
use crate::device::nvm::NvmDevice;
use crate::device::nvm::open::{FoundRing, limits};
use crate::device::nvm::passive::Passive;
use crate::device::tail::Tail;
use crate::error::{Result, WalError};
use crate::format::record::NewRecord;
use crate::options::{GroupCommit, WalOptions};
use crate::segments::files::SegmentFiles;
use crate::segments::pool::{Limits, Segments};

/// Where the end of a log is kept.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one per log")]
pub(crate) enum Device {
    /// In the segments alone: a flush hardens what is in the buffer.
    File(Flusher),
    /// In a ring in persistent memory.
    Nvm(NvmDevice),
}

impl Device {
    /// The device of the log in `files`, which goes on at `end`, and memory for its buffer; in the
    /// ring that has been `found`, if there is one. `passive` is as [`Passive::of_one`] says, or
    /// for several logs [`Passive::of_several`]; this is the `only` log otherwise.
    pub(crate) fn start(
        options: &WalOptions,
        files: &Arc<SegmentFiles>,
        end: Lsn,
        found: Option<FoundRing>,
        passive: Option<Arc<Passive>>,
        only: bool,
    ) -> Result<(Ring, Self)> {
        let block = files.last_block(end)?;
        Ok(match found {
            None => {
                let ring = volatile_ring(options.ring_bytes, &block, end)?;
                (ring, Self::File(Flusher::new(Arc::clone(files), options.sealing)))
            }
            Some(found) => {
                let device = NvmDevice::take(found, files, &block, end, passive, only);
                (device.buffer(), Self::Nvm(device))
            }
        })
    }

    /// The bounds on the log's segments.
    pub(crate) fn limits(&self, options: &WalOptions) -> Limits {
        limits(options, self.nvm().map_or(0, NvmDevice::number))
    }

    /// How `Space` knows what is hardened.
    pub(crate) fn hardening(&self) -> Hardening {
        match self {
            Self::File(_) => Hardening::Flushed,
            Self::Nvm(nvm) => nvm.hardening(),
        }
    }

    /// When the daemon and the committers flush.
    pub(crate) fn group_commit(&self, options: &WalOptions) -> GroupCommit {
        match self {
            Self::File(_) => options.group_commit,
            // Nobody waits for company. Bytes are for de-staging.
            Self::Nvm(_) => GroupCommit { transactions: 1, bytes: options.ring_bytes / 2, time: Duration::ZERO },
        }
    }

    /// Whether a record may be put into the buffer without a checksum, instead of by
    /// [`Device::fill`].
    pub(crate) fn takes_unsealed(&self) -> bool {
        match self {
            Self::File(writer) => writer.seals_at_flush(),
            Self::Nvm(_) => false,
        }
    }

    /// Fills `record` in at `lsn`. When this returns, the caller may release it. The log is
    /// `durable` so far.
    ///
    /// # Safety
    /// The space of the record has been handed out to the caller alone and has not been released,
    /// and there is room for it.
    pub(crate) unsafe fn fill(&self, tail: Tail<'_>, lsn: Lsn, record: &NewRecord<'_>, gsn: Gsn, durable: Lsn) {
        match self {
            // SAFETY: the caller's word.
            Self::File(writer) => unsafe { writer.fill(tail, lsn, record, gsn, durable) },
            // SAFETY: as above.
            Self::Nvm(nvm) => unsafe { nvm.fill(tail, lsn, record, gsn) },
        }
    }

    /// Makes what the calling thread has inserted durable, if that is left to it: it commits, or is
    /// about to wait for something else than the log.
    #[inline]
    pub(crate) fn fence(&self) {
        match self {
            Self::File(_) => {}
            Self::Nvm(nvm) => nvm.fence(),
        }
    }

    /// Brings `Space::hardened` up to date, where that is left to those who want to know.
    #[inline]
    pub(crate) fn look(&self, tail: Tail<'_>) {
        match self {
            Self::File(_) => {}
            Self::Nvm(nvm) => nvm.look(tail),
        }
    }

    /// Blocks until waiting for `lsn` is over: all before it is hardened, or the log has failed.
    /// `for_flush` waits until a flush has brought that about.
    pub(crate) fn wait(&self, tail: Tail<'_>, lsn: Lsn, for_flush: impl FnOnce()) {
        match self {
            Self::File(_) => for_flush(),
            Self::Nvm(nvm) => nvm.wait(tail, lsn),
        }
    }

    /// Hardens what is released of one of several logs that are hardened together, without the
    /// others, of which it learns only when somebody commits.
    pub(crate) fn harden_released(&self, tail: Tail<'_>) {
        match self {
            Self::File(_) => {}
            Self::Nvm(nvm) => nvm.harden_released(tail),
        }
    }

    /// Does what the daemon, or whoever flushes in its place, has to do for those who wait to be
    /// told, and for those who wait for room; returns whether that was anything. `write_out` is
    /// [`Device::write_out`], and deals with its outcome.
    pub(crate) fn flush(&self, tail: Tail<'_>, write_out: impl Fn() -> bool) -> bool {
        match self {
            Self::File(_) => write_out(),
            Self::Nvm(nvm) => nvm.flush(tail, write_out),
        }
    }

    /// Writes what can be written to the segments; returns whether that was anything. One thread at
    /// a time. After an error that passes, nothing has been written, and it can be tried again.
    pub(crate) fn write_out(&self, tail: Tail<'_>, segments: &Segments) -> Result<bool> {
        match self {
            Self::File(writer) => writer.flush(tail, segments, tail.space.released(), || {}),
            Self::Nvm(nvm) => nvm.write_out(tail, segments),
        }
    }

    /// Writes everything that is hardened by now to the segments, unless the log fails; returns up
    /// to where they should hold the log then. `write_out` is as for [`Device::flush`].
    pub(crate) fn destage(&self, tail: Tail<'_>, write_out: impl Fn() -> bool) -> Lsn {
        match self {
            Self::File(_) => tail.space.durable(),
            Self::Nvm(nvm) => nvm.destage(tail, write_out),
        }
    }

    /// Gives a ring up, if all that is hardened has been de-staged; returns whether the segments
    /// need not name it any more. The log has been stopped.
    pub(crate) fn give_up(&self, tail: Tail<'_>) -> bool {
        self.nvm().is_some_and(|nvm| nvm.give_up(tail))
    }

    /// The ring belongs to this generation from now on; see [`WalOptions::generation`].
    pub(crate) fn set_generation(&self, generation: u64) {
        if let Some(nvm) = self.nvm() {
            nvm.set_generation(generation);
        }
    }

    /// A warning, if hardened records survive less than a power cut.
    pub(crate) fn shortfall(&self) -> Option<String> {
        self.nvm().and_then(NvmDevice::shortfall)
    }

    /// What threads know to be durable, if that is left to them.
    pub(crate) fn passive(&self) -> Option<&Arc<Passive>> {
        self.nvm().and_then(NvmDevice::passive)
    }

    /// The persistent memory of the buffer.
    pub(crate) fn region(&self) -> Option<&Region> {
        self.nvm().map(NvmDevice::region)
    }

    /// Times that segments were written to, and bytes.
    pub(crate) fn flushes(&self) -> (u64, u64) {
        match self {
            Self::File(writer) => writer.counts(),
            Self::Nvm(nvm) => nvm.flushes(),
        }
    }

    fn nvm(&self) -> Option<&NvmDevice> {
        match self {
            Self::File(_) => None,
            Self::Nvm(nvm) => Some(nvm),
        }
    }
}

/// A buffer in ordinary memory for a log that ends at `end`, with the beginning of its last block.
fn volatile_ring(bytes: usize, block: &[u8], end: Lsn) -> Result<Ring> {
    let ring = Ring::new(bytes).map_err(|error| WalError::System {
        what: format!("{bytes} bytes of memory for the log buffer"),
        reason: format!("{error}; ask for a smaller one"),
    })?;
    let start = Lsn::new(end.get() - block.len() as u64);
    // SAFETY: nobody else has the ring yet.
    unsafe { ring.bytes_mut(start, block.len()) }.copy_from_slice(block);
    Ok(ring)
}
