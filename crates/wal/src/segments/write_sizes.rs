//! How large the durable writes of the log have been lately.

use duramen_sync::atomic::{AtomicU64, Ordering};

/// Writes of this many bytes are large: filling their space with zeros before would take longer
/// than what the file system adds to their syncs without.
const LARGE: u64 = 64 << 10;
/// One larger write counts as this much, so that it takes a few of them to outweigh small ones.
const MOST: u64 = 4 * LARGE;
/// The mean follows the last writes, about so many.
const WRITES: u64 = 8;

/// The mean size of the last durable writes.
#[derive(Debug, Default)]
pub(crate) struct WriteSizes {
    mean: AtomicU64,
}

impl WriteSizes {
    /// Notes a write. The log has one at a time.
    pub(crate) fn note(&self, bytes: u64) {
        let mean = self.mean.load(Ordering::Relaxed);
        self.mean.store(mean - mean / WRITES + bytes.min(MOST) / WRITES, Ordering::Relaxed);
    }

    /// Returns whether writes are large at present.
    pub(crate) fn are_large(&self) -> bool {
        self.mean.load(Ordering::Relaxed) >= LARGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_writes_decide() {
        let sizes = WriteSizes::default();
        let writes_until = |bytes, large| {
            let until = |_: &usize| {
                sizes.note(bytes);
                sizes.are_large() == large
            };
            (1..100).find(until)
        };
        assert_eq!(writes_until(LARGE - 512, true), None);
        assert_eq!(writes_until(LARGE + 512, true), Some(6));
        assert_eq!(writes_until(4096, false), Some(1));
        assert_eq!((writes_until(4096, true), writes_until(u64::MAX, true)), (None, Some(3)));
        assert_eq!((writes_until(2 * LARGE, false), writes_until(4096, false)), (None, Some(6)));
    }
}
