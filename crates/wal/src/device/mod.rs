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
//! - [`Device::wait`]: one record and all before it are hardened, or the log has failed. With
//!   `file` the thread waits for a flush, with `nvm` for the threads that inserted the records.
//! - [`Device::harden_released`]: everything released is hardened, if a flush is not needed for
//!   that.
//! - [`Device::flush`]: requests that nobody waits for in person have made progress, and so have
//!   insertions that wait for room.
//! - [`Device::write_out`]: the segments hold more, and `Space::durable` says so, if anything could
//!   be written. With `file` that is all that is released, with `nvm` all that is hardened.
//! - [`Device::destage`]: the segments hold everything that was hardened before the call.
//! - [`Device::give_up`]: the segments alone are the log, if they hold everything.
//!
//! One thread at a time calls `write_out`: with `file` the commit queue sees to that, with `nvm` a
//! lock of the device. Where a flush seals records ([`Device::takes_unsealed`]), insertions do not
//! pass through this seam: the log puts records straight into the buffer.

mod file;
pub(crate) mod flush;
pub(crate) mod nvm;

use std::fmt::Debug;

use duramen_pmem::Region;
use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn};

use crate::buffer::positions::{Hardening, Space};
use crate::buffer::ring::Ring;
use crate::device::file::FileDevice;
use crate::device::flush::Flusher;
use crate::device::nvm::NvmDevice;
use crate::device::nvm::open::FoundRing;
use crate::device::nvm::passive::Passive;
use crate::error::Result;
use crate::format::record::NewRecord;
use crate::insert::AnyInsertion;
use crate::options::{GroupCommit, WalOptions};
use crate::segments::files::SegmentFiles;
use crate::segments::pool::Segments;

/// The end of one log in memory, as its device sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) space: &'a Space,
    pub(crate) insertion: &'a AnyInsertion,
}

impl Tail<'_> {
    /// Brings `Space::released` up to date, if the insertion design leaves that to its readers.
    pub(crate) fn collect(&self) {
        self.insertion.collect(self.space);
    }
}

/// The device of one log. The defaults are those of a device that hardens records by flushes alone.
pub(crate) trait Device: Debug + Send + Sync {
    /// Writes the buffer to the segments.
    fn writer(&self) -> &Flusher;

    /// How `Space` knows what is hardened.
    fn hardening(&self) -> Hardening {
        Hardening::Flushed
    }

    /// When the daemon and the committers flush.
    fn group_commit(&self, options: &WalOptions) -> GroupCommit {
        options.group_commit
    }

    /// Whether a record may be put into the buffer without a checksum, instead of by
    /// [`Device::fill`].
    fn takes_unsealed(&self) -> bool {
        false
    }

    /// Fills `record` in at `lsn`. The log is `durable` so far.
    ///
    /// # Safety
    /// The space of the record has been handed out to the caller alone and has not been released,
    /// and there is room for it.
    unsafe fn fill(&self, tail: Tail<'_>, lsn: Lsn, record: &NewRecord<'_>, gsn: Gsn, durable: Lsn);

    /// Makes what the calling thread has inserted durable, if that is left to it: it commits, or is
    /// about to wait for something else than the log.
    fn fence(&self) {}

    /// Brings `Space::hardened` up to date, where that is left to its readers.
    fn look(&self, _tail: Tail<'_>) {}

    /// Blocks until waiting for `lsn` is over. `for_flush` waits until a flush has brought that
    /// about.
    fn wait(&self, tail: Tail<'_>, lsn: Lsn, for_flush: &dyn Fn());

    /// Hardens what is released of one of several logs that are hardened together, without the
    /// others, of which it learns only when somebody commits.
    fn harden_released(&self, _tail: Tail<'_>) {}

    /// Does the daemon's work, for it or for a thread that flushes in its place; returns whether
    /// there was any. `write_out` calls [`Device::write_out`] and deals with its outcome.
    fn flush(&self, tail: Tail<'_>, write_out: &dyn Fn() -> bool) -> bool;

    /// Writes to the segments what can be written; returns whether there was anything. After an
    /// error that passes nothing has been written, and the caller can try again.
    fn write_out(&self, tail: Tail<'_>, segments: &Segments) -> Result<bool>;

    /// Writes everything that is hardened by now to the segments, unless the log fails; returns up
    /// to where they should hold the log then. `write_out` is as for [`Device::flush`].
    fn destage(&self, tail: Tail<'_>, write_out: &dyn Fn() -> bool) -> Lsn;

    /// Gives the ring up, if there is one and the segments hold everything; returns whether they
    /// need not name it any more. The log has been stopped.
    fn give_up(&self, _tail: Tail<'_>) -> bool {
        false
    }

    /// The device belongs to this generation from now on; see [`WalOptions::generation`].
    fn set_generation(&self, _generation: u64) {}

    /// A warning, if hardened records survive less than a power cut.
    fn shortfall(&self) -> Option<String> {
        None
    }

    /// What threads know to be durable, if that is left to them.
    fn passive(&self) -> Option<&Arc<Passive>> {
        None
    }

    /// The persistent memory of the buffer.
    fn region(&self) -> Option<&Region> {
        None
    }
}

/// The device of the log in `files`, which goes on at `end`, and memory for its buffer: the ring
/// that has been `found`, if there is one. `passive` is what [`Passive::of`] says; this is a
/// database's `only` log, or one of several.
pub(crate) fn start(
    options: &WalOptions,
    files: &Arc<SegmentFiles>,
    end: Lsn,
    found: Option<FoundRing>,
    passive: Option<Arc<Passive>>,
    only: bool,
) -> Result<(Ring, Box<dyn Device>)> {
    let block = files.last_block(end)?;
    Ok(match found {
        None => (
            file::buffer(options.ring_bytes, &block, end)?,
            Box::new(FileDevice(Flusher::new(Arc::clone(files), options.sealing))),
        ),
        Some(found) => {
            let (ring, device) = NvmDevice::take(found, files, &block, end, passive, only);
            (ring, Box::new(device))
        }
    })
}
