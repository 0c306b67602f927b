//! Diagnosis of a full log: what prevents its recycling, and how much space recycling would free.

use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn};

use crate::segments::retention::Retainer;
use crate::several::log::Log;
use crate::stream::inner::StreamInner;

impl Log {
    /// Returns whether every log could reserve `bytes` within its limit if it kept nothing below
    /// `gsn` and if `returned` reserved bytes were returned.
    pub fn has_room_from(&self, gsn: Gsn, bytes: u64, returned: u64) -> bool {
        let returned = returned.saturating_add(self.unassigned());
        let has_room = |(shared, from): (&Arc<StreamInner>, Lsn)| {
            shared.segments.has_room_from(from, shared.space.end(), bytes, returned)
        };
        self.all().iter().zip(self.positions_before(gsn)).all(has_room)
    }

    /// Returns the number of bytes behind `gsn` in the log that has most of them.
    pub fn bytes_from(&self, gsn: Gsn) -> u64 {
        let from = self.positions_before(gsn);
        let bytes = self.all().iter().zip(&from).map(|(shared, from)| shared.space.end().get() - from.get());
        bytes.max().unwrap_or_default()
    }

    /// Returns the bytes that callers hold reserved.
    pub fn set_aside(&self) -> u64 {
        // One of the logs has reserved space for sync records in addition.
        let least = self.all().iter().map(|shared| shared.segments.reserved()).min().unwrap_or_default();
        least.saturating_sub(self.unassigned())
    }

    /// Returns what keeps a log without space for `bytes` from being recycled as far as requested.
    pub fn retainer(&self, bytes: u64) -> Option<Retainer> {
        let unassigned = self.unassigned();
        let is_full = |shared: &StreamInner| {
            let segments = &shared.segments;
            !segments.has_room_from(segments.start(), shared.space.end(), bytes, unassigned)
        };
        self.all().iter().filter(|shared| is_full(shared)).find_map(|shared| shared.segments.retention.retainer())
    }

    /// Returns a number that grows as long as the archive and backups make progress.
    pub fn retainers_progress(&self) -> u64 {
        let of = |shared: &StreamInner| {
            let archived = shared.archiver.as_ref().map_or(0, |archiver| archiver.parts());
            archived + shared.segments.retention.backed_up()
        };
        self.all().iter().map(|shared| of(shared)).sum()
    }

    /// Makes the archiver check for work, after de-staging: it archives records in a ring in
    /// persistent memory only once they are in the segments.
    pub fn call_archive(&self) {
        for shared in self.all().iter().filter(|shared| shared.archiver.is_some()) {
            // The users of a log that has failed get the error elsewhere.
            let _ = shared.destage();
            shared.call_archiver();
        }
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use duramen_io::{Disk, SimDisk};

    use super::*;
    use crate::address::FIRST_LSN;
    use crate::options::WalOptions;

    /// The reported space agrees with the outcome of a reservation.
    #[test]
    fn there_is_as_much_room_as_is_said() {
        const SEGMENT: u64 = 64 << 10;
        for count in [1, 3] {
            let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
            let options = WalOptions {
                ring_bytes: 64 << 10,
                segment_bytes: SEGMENT,
                max_bytes: 8 * SEGMENT,
                spare_segments: 0,
                ..WalOptions::default()
            };
            let logs = Log::create(&disk, &WalOptions { logs: count, ..options.clone() }, [7; 16]).unwrap();
            let start = Gsn::new(FIRST_LSN.get());
            let (mut low, mut high) = (0, 16 * SEGMENT);
            while high - low > 1 {
                let bytes = (low + high) / 2;
                let is_said = logs.has_room_from(start, bytes, 0);
                let reserved = logs.reserve(bytes);
                assert_eq!(is_said, reserved.is_ok(), "{bytes} bytes in {count} logs");
                if reserved.is_ok() {
                    assert_eq!(logs.set_aside(), bytes);
                    assert!(logs.has_room_from(start, bytes, bytes));
                    logs.unreserve_unused(bytes);
                    logs.give_back();
                    low = bytes;
                } else {
                    high = bytes;
                }
            }
            assert!(low > 7 * (SEGMENT - 4096) - 4096, "{low}");
            assert_eq!(logs.retainer(high), None);
        }
    }
}
