//! The log device, which makes the records in the log buffer durable.
//!
//! [`Device`] is the interface between one log ([`crate::stream`]) and its device, which works on
//! the [`Tail`] of that log. With the device `file` the buffer is ordinary memory, and a flush to
//! the segments hardens records. With the device `nvm` the buffer lies in persistent memory and
//! records are hardened without a flush; the segments are written when the buffer fills up
//! (*de-staging*). With both devices, space in the buffer is reused only when the segments hold its
//! contents.
//!
//! The guarantees of each operation when it returns:
//!
//! - [`Device::fill`]: the caller may release the record. With `file` the record is in the buffer.
//!   With `nvm` it is durable; behind volatile caches it becomes durable with the next fence of
//!   this thread.
//! - [`Device::fence`]: no commit waits for earlier records of the calling thread.
//! - [`Device::look`]: `Space::hardened` is up to date.
//! - [`Device::wait`]: if it returns true, one record and all before it are hardened, or the log
//!   has failed. With `nvm` the thread has waited for the threads that inserted the records. With
//!   `file` it returns false: the thread has to wait for a flush.
//! - [`Device::harden_released`]: everything released is hardened, if that needs no flush.
//! - [`Device::prepare_flush`]: requests without a waiting thread have made progress, as far as
//!   that needs no write to the segments.
//! - [`Device::writable`]: everything below the position can be written to the segments. With
//!   `file` this is everything released, with `nvm` everything hardened.
//! - [`Device::give_up`]: the segments alone form the log, if they hold everything.
//!
//! One thread at a time writes to the segments: it holds the lock of the [`Flusher`]. With `file`
//! the commit queue ensures that no thread waits for this lock. Where a flush seals records
//! ([`Device::takes_unsealed`]), insertions bypass this interface: the log writes records directly
//! into the buffer.

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
use crate::format::header::Layout;
use crate::format::record::NewRecord;
use crate::insert::AnyInsertion;
use crate::options::{GroupCommit, WalOptions};
use crate::segments::files::SegmentFiles;

/// The end of one log in memory, as its device accesses it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail<'a> {
    pub(crate) ring: &'a Ring,
    pub(crate) space: &'a Space,
    pub(crate) insertion: &'a AnyInsertion,
}

impl Tail<'_> {
    /// Updates `Space::released`, if the insertion design leaves that to readers.
    pub(crate) fn collect(&self) {
        self.insertion.collect(self.space);
    }
}

/// Why a flush takes place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To serve requests, and insertions that wait for space.
    Requests,
    /// To let readers find in the segments what is hardened.
    Readers,
}

/// What a flush for [`Purpose::Requests`] has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prepared {
    /// Whether the segments have to be written.
    pub(crate) is_due: bool,
    /// Whether the preparation has already made progress.
    pub(crate) progress: bool,
}

/// The device of one log. The default methods are those of a device that hardens records by flushes
/// alone.
pub(crate) trait Device: Debug + Send + Sync {
    /// Returns the flusher, which writes the buffer to the segments.
    fn writer(&self) -> &Flusher;

    /// Returns how `Space` learns what is hardened.
    fn hardening(&self) -> Hardening {
        Hardening::Flushed
    }

    /// Returns the limits that decide when the daemon and the committers flush: those `chosen` by
    /// the user, if committers wait for flushes.
    fn group_commit(&self, chosen: GroupCommit, _ring_bytes: usize) -> GroupCommit {
        chosen
    }

    /// Returns whether a record may be written into the buffer without a checksum, instead of by
    /// [`Device::fill`].
    fn takes_unsealed(&self) -> bool {
        false
    }

    /// Fills `record` in at `lsn`. The log is durable up to `durable`.
    ///
    /// # Safety
    /// The space of the record has been allocated to the caller alone and has not been released,
    /// and there is room for it.
    unsafe fn fill(&self, tail: Tail<'_>, lsn: Lsn, layout: Layout, record: &NewRecord<'_>, gsn: Gsn, durable: Lsn);

    /// Makes the calling thread's records durable, if the threads do that themselves. The thread is
    /// committing, or is about to wait for anything other than the log.
    fn fence(&self) {}

    /// Updates `Space::hardened`, where readers have to do that.
    fn look(&self, _tail: Tail<'_>) {}

    /// Blocks until waiting for `lsn` is over and returns true, if that needs no flush.
    fn wait(&self, _tail: Tail<'_>, _lsn: Lsn) -> bool {
        false
    }

    /// Hardens the released part of one log among several with shared commit rounds, without the
    /// other logs. Otherwise such a log learns what is hardened only when a thread commits.
    fn harden_released(&self, _tail: Tail<'_>) {}

    /// Does the daemon's work up to the write to the segments, for the daemon or for a thread that
    /// flushes in its place; returns whether the write is due.
    fn prepare_flush(&self, _tail: Tail<'_>) -> Prepared {
        Prepared { is_due: true, progress: false }
    }

    /// Returns the position up to which the segments may be written.
    fn writable(&self, tail: Tail<'_>) -> Lsn {
        tail.space.released()
    }

    /// Notes that the segments hold everything below `to`, before the space is reused.
    fn note_written(&self, _to: Lsn) {}

    /// Releases the ring, if there is one and the segments hold everything; returns whether the
    /// segments need not name it any more. The log has been stopped.
    fn give_up(&self, _tail: Tail<'_>) -> bool {
        false
    }

    /// Assigns the device to this generation; see [`WalOptions::generation`].
    fn set_generation(&self, _generation: u64) {}

    /// Returns whether the buffer keeps the log until it is recycled, and the segments are not
    /// written meanwhile.
    fn stays(&self) -> bool {
        false
    }

    /// Records that a log that stays in its buffer begins at `lsn`.
    fn forget_below(&self, _lsn: Lsn) {}

    /// Returns a warning if hardened records might not survive a power cut.
    fn shortfall(&self) -> Option<String> {
        None
    }

    /// Returns what each thread has made durable, if the threads fence their own records.
    fn passive(&self) -> Option<&Arc<Passive>> {
        None
    }

    /// Returns the persistent memory of the buffer.
    fn region(&self) -> Option<&Region> {
        None
    }
}

/// Creates the device of the log in `files`, which continues at `end`, and the memory for its
/// buffer: the ring that has been `found`, if there is one. `passive` is the result of
/// [`Passive::of`]. `only` says whether this is a database's only log or one of several.
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
