//! A log in persistent memory:
//! `cargo run --release -p duramen-wal --example nvm DIRECTORY [RING FILE]`.

use std::sync::Arc;

use duramen_io::{Disk, RealDisk, RealDiskOptions};
use duramen_pmem::{Domain, Source, Survive};
use duramen_types::{Gsn, LogAddress, LogId, PageId, TxnId};
use duramen_wal::{FIRST_LSN, Log, LogDevice, NewRecord, NvmOptions, WalError, WalOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("which directory?")?;
    let ring = std::env::args().nth(2).unwrap_or_else(|| "/dev/shm/duramen-example-ring".to_owned());
    std::fs::create_dir_all(&directory)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(directory.as_ref(), RealDiskOptions::default())?);
    // `Survive::Process` suffices for memory that is not persistent; by default such a ring is
    // refused.
    let nvm =
        NvmOptions { survive: Survive::Process, ..NvmOptions::new(Source::File(ring.into()), Domain::VolatileCache) };
    let options = WalOptions { device: LogDevice::Nvm(nvm), ..WalOptions::default() };
    let wal = match Log::open(&disk, &options, *b"an example's log", None) {
        Err(WalError::NoLog { .. }) => Log::create(&disk, &options, *b"an example's log")?,
        opened => opened?,
    };
    let (txn, page, prev) = (TxnId::new(1), PageId::ZERO, LogAddress::ZERO);
    let record = NewRecord { kind: 1, flags: 0, txn, page, prev, after: Gsn::ZERO, payload: b"an event" };
    let inserted = wal.insert(LogId::ZERO, record);
    wal.wait_hardened(inserted.gsn, None)?; // without a system call
    let mut scanner = wal.scan(LogId::ZERO, FIRST_LSN);
    while let Some(record) = scanner.next()? {
        println!("{}: {}", record.lsn, String::from_utf8_lossy(record.payload));
    }
    Ok(())
}
