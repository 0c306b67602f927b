//! The log on its own, without a database:
//! `cargo run --release -p duramen-wal --example standalone [directory]`.
//!
//! Four threads append events to one log and make each of them durable before they go on, as a
//! queue or a replicated state machine would. Then the program drops the log without closing it, as
//! a crash would, opens it again, and replays every event.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use duramen_io::{Disk, RealDisk, RealDiskOptions};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};
use duramen_wal::{Log, NewRecord, WalOptions};

const THREADS: u64 = 4;
const EVENTS: u64 = 250;
/// The kind of this program's records; the log does not interpret it.
const EVENT: u8 = 1;
/// The identity of the log. A real program draws this at random once and keeps it.
const IDENTITY: [u8; 16] = *b"standalone-demo!";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args()
        .nth(1)
        .map_or_else(|| std::env::temp_dir().join(format!("duramen-standalone-{}", std::process::id())), PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&directory, RealDiskOptions::default())?);
    let _only_opener = disk.lock()?;
    let options = WalOptions { segment_bytes: 4 << 20, ..WalOptions::default() };

    let wal = Log::create(&disk, &options, IDENTITY)?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let wal = &wal;
            scope.spawn(move || {
                let mut previous = LogAddress::ZERO;
                for event in 0..EVENTS {
                    let payload = format!("thread {thread}, event {event}");
                    let inserted = wal.insert(
                        LogId::ZERO,
                        NewRecord {
                            kind: EVENT,
                            flags: 0,
                            txn: TxnId::new(thread + 1),
                            page: PageId::ZERO,
                            prev: previous,
                            after: Gsn::ZERO,
                            payload: payload.as_bytes(),
                        },
                    );
                    // Blocks until the record is durable. `harden` requests the same without
                    // blocking.
                    wal.wait_hardened(inserted.gsn, None).expect("the disk works");
                    previous = inserted.address();
                }
            });
        }
    });
    let (elapsed, stats) = (start.elapsed(), wal.stats());
    println!("{} events, each durable before the next of its thread, in {elapsed:.1?}", stats.records);
    println!(
        "{} flushes, so {:.1} events shared one; {} bytes of records, {} written in whole blocks",
        stats.flushes,
        stats.records as f64 / stats.flushes as f64,
        stats.bytes,
        stats.flushed_bytes
    );
    drop(wal);

    let wal = Log::open(&disk, &options, IDENTITY, None)?;
    let mut events = BTreeMap::new();
    let mut scanner = wal.scan(LogId::ZERO, wal.extents()[0].start);
    let mut last = None;
    while let Some(record) = scanner.next()? {
        *events.entry(record.txn.get()).or_insert(0) += 1;
        last = Some(format!("{} at {}", String::from_utf8_lossy(record.payload), record.lsn));
    }
    println!("after reopening, events by thread: {events:?}; the last is {}", last.unwrap_or_default());
    assert!(events.values().all(|count| *count == EVENTS) && events.len() as u64 == THREADS);
    wal.close()?;
    drop(wal);
    if std::env::args().len() == 1 {
        std::fs::remove_dir_all(&directory)?;
    }
    Ok(())
}
