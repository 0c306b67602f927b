//! The GSN up to which several logs are all hardened, and the position of a GSN in each log.

use std::collections::BTreeMap;

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_types::Gsn;

use crate::options::WalOptions;

/// The GSN up to which all logs are known to be hardened.
#[derive(Debug)]
pub(crate) struct DurableGsn(AtomicU64);

impl DurableGsn {
    pub(crate) fn new(gsn: Gsn) -> Self {
        Self(AtomicU64::new(gsn.get()))
    }

    /// Notes that the sync record at `gsn` has been hardened, with all logs up to its tails.
    pub(crate) fn note(&self, gsn: Gsn) {
        if self.get() < gsn {
            self.0.fetch_max(gsn.get(), Ordering::AcqRel);
        }
    }

    pub(crate) fn get(&self) -> Gsn {
        Gsn::new(self.0.load(Ordering::Acquire))
    }
}

/// Maps GSNs to LSNs of a log: records behind the LSN have higher GSNs, records before it do not.
pub(crate) type GsnIndex = BTreeMap<u64, u64>;

/// Returns the number of bytes between two entries of the GSN index. Recycling discards segments up
/// to an entry, and recovery starts to read at one.
pub(crate) fn index_step(options: &WalOptions) -> u64 {
    (options.segment_bytes / 16).clamp(4 << 10, 256 << 10)
}

pub(crate) fn next(gsn: Gsn) -> Gsn {
    Gsn::new(gsn.get() + 1)
}
