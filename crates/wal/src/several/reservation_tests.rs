#[cfg(not(duramen_loom))]
mod real {
    use duramen_io::{Disk, SimDisk};
    use duramen_sync::Arc;
    use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};

    use crate::{Log, NewRecord, WalError, WalOptions};

    /// Three logs of at most eight segments each, and their capacity.
    fn logs() -> (Log, u64) {
        let (segment_bytes, ring_bytes) = (64 << 10, 64 << 10);
        let options = WalOptions { segment_bytes, ring_bytes, max_bytes: 8 * segment_bytes, ..WalOptions::default() };
        let options = WalOptions { spare_segments: 0, ..options };
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1));
        let logs = Log::create(&disk, &WalOptions { logs: 3, ..options.clone() }, [7; 16]).unwrap();
        // All segments without their headers, minus the start of the log.
        let capacity = 8 * (segment_bytes - 4096) - (logs.extents()[0].end.get() - 4096);
        (logs, capacity)
    }

    fn is_full(outcome: crate::Result<()>) -> bool {
        matches!(outcome, Err(WalError::Full { .. }))
    }

    #[test]
    fn all_space_there_is_can_be_set_aside_in_small_parts_and_at_once() {
        let (logs, capacity) = logs();
        for part in [1000, capacity, 77, capacity / 2] {
            let mut parts = 0;
            while logs.reserve(part).is_ok() {
                parts += 1;
            }
            assert_eq!(parts, capacity / part, "parts of {part}, of {capacity}");
            assert_eq!(logs.stats().reserved_bytes, parts * part);
            for number in 0..parts {
                match number % 2 {
                    0 => logs.unreserve(part),
                    _ => logs.unreserve_unused(part),
                }
            }
            assert_eq!(logs.stats().reserved_bytes, 0);
        }
        logs.close().unwrap();
    }

    #[test]
    fn space_that_records_have_taken_is_not_promised_again() {
        let (logs, capacity) = logs();
        let payload = [1; 8000];
        let record = NewRecord {
            kind: 1,
            flags: 0,
            txn: TxnId::new(1),
            page: PageId::new(2),
            prev: LogAddress::ZERO,
            after: Gsn::ZERO,
            payload: &payload,
        };
        let reservation = 3 * logs.record_bytes(payload.len());
        let mut left = capacity;
        while logs.reserve(reservation).is_ok() {
            let inserted = logs.insert(LogId::new(1), record);
            let used = inserted.end.get() - inserted.lsn.get();
            left -= used;
            logs.unreserve(used);
            logs.unreserve_unused(reservation - used);
        }
        assert!(left < reservation, "{left} bytes are left");
        assert!(is_full(logs.reserve(left + 1)), "one log is full, and that counts");
        logs.reserve(left).unwrap();
        logs.close().unwrap();
    }
}

/// Models: two threads and the counters of one log.
#[cfg(duramen_loom)]
mod models {
    use duramen_sync::atomic::{AtomicU64, Ordering};
    use duramen_sync::{Arc, thread};

    use super::super::{Limited, LogReservation};
    use crate::error::{Result, WalError};
    use crate::test_support::model;

    /// The counters of [`crate::segments::pool::Segments`], with a constant limit.
    struct Counters {
        end: AtomicU64,
        reserved: AtomicU64,
        limit: u64,
    }

    impl Counters {
        fn insert(&self, bytes: u64) {
            let end = self.end.fetch_add(bytes, Ordering::Release) + bytes;
            assert!(end <= self.limit, "a record behind the limit");
        }
    }

    impl Limited for Counters {
        fn reserve(&self, bytes: u64) -> Result<()> {
            let reserved = self.reserved.fetch_add(bytes, Ordering::AcqRel) + bytes;
            if self.end.load(Ordering::Acquire) + reserved <= self.limit {
                return Ok(());
            }
            self.unreserve(bytes);
            Err(WalError::Full { wanted: bytes, cause: "the model's limit".to_owned() })
        }

        fn unreserve(&self, bytes: u64) {
            assert!(self.reserved.fetch_sub(bytes, Ordering::AcqRel) >= bytes);
        }
    }

    /// Each of two threads reserves 2 bytes, inserts a record of 1 byte and returns both bytes.
    /// There is space for all reserved bytes and for 1 byte that is counted twice, so no
    /// reservation fails. Nothing exceeds the limit. At the end, exactly the space that no record
    /// has taken can be reserved.
    fn nobody_is_refused_what_there_is(shards: [usize; 2], step: u64) {
        model(3, move || {
            let log = Counters { end: AtomicU64::new(0), reserved: AtomicU64::new(0), limit: 5 };
            let shared = Arc::new((LogReservation::with_shards(2, step, step), [Arc::new(log)]));
            let work = move |(reservation, logs): &(LogReservation, [Arc<Counters>; 1]), number: usize| {
                let shard = &reservation.shards[shards[number]];
                reservation.reserve(shard, logs, 2, || ()).expect("there is room for both");
                logs[0].insert(1);
                reservation.unreserve(shard, logs, 1);
                reservation.unreserve_unused(shard, logs, 1);
            };
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn("other", move || work(&shared, 1)).unwrap()
            };
            work(&shared, 0);
            other.join().unwrap();
            let (reservation, logs) = &*shared;
            assert_eq!(reservation.unassigned(), logs[0].reserved.load(Ordering::Relaxed));
            assert!(reservation.reserve(&reservation.shards[0], logs, 4, || ()).is_err());
            reservation.reserve(&reservation.shards[0], logs, 3, || ()).expect("two bytes of five are records");
        });
    }

    /// One thread turns one of two bytes into a record; the other thread reserves both bytes, if it
    /// can.
    fn what_records_have_taken_is_not_promised(shards: [usize; 2]) {
        model(3, move || {
            let log = Counters { end: AtomicU64::new(0), reserved: AtomicU64::new(0), limit: 2 };
            let shared = Arc::new((LogReservation::with_shards(2, 0, 0), [Arc::new(log)]));
            let other = {
                let shared = Arc::clone(&shared);
                let take = move |(reservation, logs): &(LogReservation, [Arc<Counters>; 1])| {
                    if reservation.reserve(&reservation.shards[shards[1]], logs, 2, || ()).is_ok() {
                        logs[0].insert(2);
                    }
                };
                thread::spawn("other", move || take(&shared)).unwrap()
            };
            let (reservation, logs) = &*shared;
            let shard = &reservation.shards[shards[0]];
            if reservation.reserve(shard, logs, 1, || ()).is_ok() {
                logs[0].insert(1);
                reservation.unreserve(shard, logs, 1);
            }
            other.join().unwrap();
        });
    }

    #[test]
    fn what_records_have_taken_is_not_promised_from_one_shard() {
        what_records_have_taken_is_not_promised([0, 0]);
    }

    #[test]
    fn what_records_have_taken_is_not_promised_from_two_shards() {
        what_records_have_taken_is_not_promised([0, 1]);
    }

    #[test]
    fn threads_of_one_shard_are_refused_nothing_there_is() {
        nobody_is_refused_what_there_is([0, 0], 1);
    }

    #[test]
    fn threads_of_two_shards_are_refused_nothing_there_is() {
        nobody_is_refused_what_there_is([0, 1], 1);
    }

    /// Shards that are never filled with more than is needed.
    #[test]
    fn threads_with_empty_shards_are_refused_nothing_there_is() {
        nobody_is_refused_what_there_is([0, 1], 0);
    }
}
