//! How fast threads insert, by design: `cargo run --release -p duramen-wal --example insert_rate [seconds] [payload]`.
//!
//! The disk takes everything at once and keeps nothing, so what is measured is the log buffer: acquiring space, the
//! checksum, the copy, the release, and the daemon that passes over it. Beside it stands the bare cost of copying the
//! same bytes through a buffer of the same size. Each figure is the best of three runs.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use duramen_io::{Disk, DiskCounters, DiskError, DiskLock, File, OpenMode, Result};
use duramen_sync::Mutex;
use duramen_types::{Gsn, Lsn, PageId, TxnId};
use duramen_wal::{InsertDesign, NewRecord, Wal, WalOptions};

/// A disk that forgets.
#[derive(Debug, Default)]
struct Nowhere {
    lengths: Arc<Mutex<BTreeMap<String, u64>>>,
}

#[derive(Debug)]
struct NowhereFile {
    name: String,
    lengths: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Disk for Nowhere {
    fn open(&self, name: &str, mode: OpenMode) -> Result<Arc<dyn File>> {
        let mut lengths = self.lengths.lock();
        if mode == OpenMode::CreateNew {
            lengths.insert(name.to_owned(), 0);
        } else if !lengths.contains_key(name) {
            return Err(DiskError {
                operation: "open".to_owned(),
                file: name.to_owned(),
                reason: "not found".to_owned(),
                kind: ErrorKind::NotFound,
            });
        }
        Ok(Arc::new(NowhereFile { name: name.to_owned(), lengths: Arc::clone(&self.lengths) }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.lengths.lock().contains_key(name))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let prefix = format!("{directory}/");
        Ok(self.lengths.lock().keys().filter_map(|name| Some(name.strip_prefix(&prefix)?.to_owned())).collect())
    }

    fn create_directory(&self, _name: &str) -> Result<()> {
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.lengths.lock().remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut lengths = self.lengths.lock();
        let len = lengths.remove(from).unwrap_or_default();
        lengths.insert(to.to_owned(), len);
        Ok(())
    }

    fn sync_directory(&self, _directory: &str) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<DiskLock> {
        Ok(DiskLock::new(()))
    }

    fn counters(&self) -> DiskCounters {
        DiskCounters::default()
    }

    fn backend(&self) -> &'static str {
        "nowhere"
    }

    fn location(&self) -> String {
        "nowhere".to_owned()
    }
}

impl File for NowhereFile {
    fn read_at(&self, buf: &mut [u8], _offset: u64) -> Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().for_each(|(_, buf)| buf.fill(0));
        Ok(())
    }

    fn write_at(&self, _parts: &[&[u8]], _offset: u64) -> Result<()> {
        Ok(())
    }

    fn write_durable(&self, _parts: &[&[u8]], _offset: u64) -> Result<()> {
        Ok(())
    }

    fn write_batch(&self, _writes: &[(u64, &[u8])]) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.lengths.lock().get(&self.name).copied().unwrap_or_default())
    }

    fn allocate(&self, len: u64) -> Result<()> {
        self.set_len(len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.lengths.lock().insert(self.name.clone(), len);
        Ok(())
    }

    fn path(&self) -> String {
        self.name.clone()
    }
}

/// Runs `body` on `threads` threads for `time`; returns how many rounds of `batch` calls a second they did.
fn rate(threads: usize, time: Duration, body: impl Fn(usize) + Sync) -> f64 {
    const BATCH: usize = 1000;
    let start = Instant::now();
    let calls: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut calls = 0;
                    while start.elapsed() < time {
                        (calls..calls + BATCH).for_each(&body);
                        calls += BATCH;
                    }
                    calls
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread panicked")).sum()
    });
    calls as f64 / start.elapsed().as_secs_f64()
}

fn best(runs: impl Fn() -> f64) -> f64 {
    (0..3).map(|_| runs()).fold(0.0, f64::max)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: f64| arguments.next().and_then(|argument| argument.parse().ok()).unwrap_or(default);
    let time = Duration::from_secs_f64(number(1.0));
    let payload = vec![7_u8; number(72.0) as usize];
    let bytes = Wal::record_bytes(payload.len());
    println!("records of {bytes} bytes");
    println!(
        "{:<10} {:>7} {:>14} {:>12} {:>13} {:>11}",
        "design", "threads", "inserts/s", "ns/insert", "consolidated", "full waits"
    );

    let size = WalOptions::default().ring_bytes;
    let line = |name: &str, threads: usize, rate: f64, joined: f64, waits: u64| {
        let nanos = threads as f64 * 1e9 / rate;
        println!("{name:<10} {threads:>7} {rate:>14.0} {nanos:>12.1} {:>12.1}% {waits:>11}", joined * 100.0);
    };
    let copied = best(|| {
        let buffer = Mutex::new(vec![0_u8; size]);
        rate(1, time, |call| {
            let at = call * bytes as usize % (size - bytes as usize);
            buffer.lock()[at..at + payload.len()].copy_from_slice(std::hint::black_box(&payload));
        })
    });
    line("memcpy", 1, copied, 0.0, 0);

    for threads in [1, 2] {
        for insert in InsertDesign::ALL {
            let (mut joined, mut waits) = (0.0, 0);
            let mut fastest = 0.0;
            for _ in 0..3 {
                let options =
                    WalOptions { insert, max_bytes: 1 << 44, segment_bytes: 1 << 34, ..WalOptions::default() };
                let wal = Wal::create(Arc::new(Nowhere::default()), options, [0; 16]).expect("nowhere has room");
                let measured = rate(threads, time, |call| {
                    wal.insert(NewRecord {
                        kind: 1,
                        flags: 0,
                        txn: TxnId::new(call as u64),
                        page: PageId::ZERO,
                        prev: Lsn::ZERO,
                        after: Gsn::ZERO,
                        payload: &payload,
                    });
                });
                if measured > fastest {
                    let stats = wal.stats();
                    fastest = measured;
                    joined = stats.consolidated as f64 / stats.records as f64;
                    waits = stats.ring_full_waits;
                }
            }
            line(&insert.to_string(), threads, fastest, joined, waits);
        }
    }
}
