//! What is known about several logs by GSN: up to where all of them are hardened, and where in each
//! of them a GSN is.

use std::collections::BTreeMap;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Gsn;

use crate::options::WalOptions;

/// Up to which GSN all logs are known to be hardened.
#[derive(Debug)]
pub(crate) struct DurableGsn(AtomicU64);

impl DurableGsn {
    pub(crate) fn new(gsn: Gsn) -> Self {
        Self(AtomicU64::new(gsn.get()))
    }

    /// Takes note of a synchronization at `gsn` that has been hardened, with all logs up to their
    /// tails.
    pub(crate) fn note(&self, gsn: Gsn) {
        if self.get() < gsn {
            self.0.fetch_max(gsn.get(), Ordering::AcqRel);
        }
    }

    pub(crate) fn get(&self) -> Gsn {
        Gsn::new(self.0.load(Ordering::Acquire))
    }
}

/// Positions in a log by GSN: records behind the LSN have a higher GSN than the key, those before
/// do not.
pub(crate) type GsnIndex = BTreeMap<u64, u64>;

/// Bytes from one mark to the next: recycling gives up segments, and recovery starts to read, at a
/// mark.
pub(crate) fn index_step(options: &WalOptions) -> u64 {
    (options.segment_bytes / 16).clamp(4 << 10, 256 << 10)
}

/// The GSN behind this.
pub(crate) fn next(gsn: Gsn) -> Gsn {
    Gsn::new(gsn.get() + 1)
}
