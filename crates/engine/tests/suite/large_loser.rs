//! A transaction with very many changes that a crash has interrupted: the number of disk reads with
//! which recovery reads its records.
#![cfg(not(duramen_loom))]

use std::time::Duration;

use duramen::pmem::{Domain, SimMemory, Source, Survivors};
use duramen::{Db, LogDevice, NvmOptions, Options, Partition};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;

/// Number of changes of the loser, and of the transactions that commit between them.
const CHANGES: u32 = 24_000;
const OTHERS: u32 = CHANGES / 8;

fn options(logs: u16, log_partition: Partition) -> Options {
    Options {
        logs,
        log_partition,
        pool_bytes: 16 << 20,
        log_buffer_bytes: 1 << 20,
        log_segment_bytes: 1 << 20,
        log_max_bytes: 1 << 30,
        checkpoint_bytes: Some(256 << 20),
        ..Options::default()
    }
}

/// Leaves a database in which one transaction has changed many rows and others have committed
/// meanwhile.
fn interrupt(disk: &SimDisk, with: Options) {
    let db = Db::open_on(Arc::new(disk.clone()), with).unwrap();
    let table = db.create_table("t").unwrap();
    let mut loser = db.begin();
    for row in 0..CHANGES {
        loser.put(&table, &row.to_be_bytes(), b"never").unwrap();
        if row % 8 == 7 {
            let mut txn = db.begin();
            txn.put(&table, &(CHANGES + row / 8).to_be_bytes(), b"kept").unwrap();
            txn.commit().unwrap();
        }
    }
    let mut last = db.begin();
    last.put(&table, b"last", b"kept").unwrap();
    last.commit().unwrap();
    disk.crash();
    drop((loser, db));
}

/// Opens the database, waits until nothing is left to be undone, and then checks its contents.
/// Returns the number of reads before that check, except for the reads of pages.
fn reads_of_recovery(disk: &SimDisk, with: Options) -> u64 {
    let db = Db::open_on(Arc::new(disk.clone()), with).unwrap();
    assert_eq!(db.metrics().recovery.losers, 1);
    while db.metrics().interrupted > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let metrics = db.metrics();
    let table = db.open_table("t").unwrap();
    let rows: Vec<_> = db.begin().scan(&table, ..).map(|row| row.unwrap()).collect();
    assert_eq!(rows.len() as u32, OTHERS + 1);
    assert!(rows.iter().all(|(_, value)| value == b"kept"));
    db.close().unwrap();
    // Redo reads pages together, so the difference is less than the number of other reads.
    metrics.disk.reads.saturating_sub(metrics.page_reads)
}

fn is_read_in_large_parts(reads: u64, what: &str) {
    assert!(reads < u64::from(CHANGES / 50), "{reads} reads for {CHANGES} records: {what}");
}

/// Each record of a loser was read by an operation of its own, so a million records took minutes.
/// With instant recovery, transactions could not begin before that either, because recovery must
/// find the loser's locks.
#[test]
fn a_large_loser_is_read_in_large_parts() {
    for (logs, partition) in [(1, Partition::Transaction), (3, Partition::RoundRobin), (3, Partition::Page)] {
        let (disk, with) = (SimDisk::new(41), options(logs, partition));
        interrupt(&disk, with.clone());
        for instant_recovery in [false, true] {
            let image = disk.crash_image(&CrashChoice::Everything);
            let reads = reads_of_recovery(&image, Options { instant_recovery, ..with.clone() });
            is_read_in_large_parts(reads, &format!("{logs} logs, {partition:?}, instant: {instant_recovery}"));
        }
    }
}

#[test]
fn so_it_is_if_the_end_of_the_log_is_in_persistent_memory() {
    for domain in [Domain::DurableCache, Domain::VolatileCache] {
        let in_memory = |memory: &SimMemory| {
            let nvm = NvmOptions::new(Source::Simulated(memory.clone()), domain);
            Options { log_device: LogDevice::Nvm(nvm), ..options(1, Partition::Transaction) }
        };
        let (disk, memory) = (SimDisk::new(42), SimMemory::new(4096 + (1 << 20), domain));
        interrupt(&disk, in_memory(&memory));
        memory.crash();
        for instant_recovery in [false, true] {
            let image = disk.crash_image(&CrashChoice::Everything);
            let with = in_memory(&memory.crash_image(Survivors::Everything, None));
            let reads = reads_of_recovery(&image, Options { instant_recovery, ..with });
            is_read_in_large_parts(reads, &format!("{domain:?}, instant: {instant_recovery}"));
        }
    }
}
