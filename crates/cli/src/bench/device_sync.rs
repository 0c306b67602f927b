//! `duramen bench device-sync`: what a durable write costs here, without an engine. A commit of a
//! single client cannot take less.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use comfy_table::{Table, presets};
use duramen::SystemCache;
use duramen_io::{AlignedBuf, Backend, Disk, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::clock::Instant;
use duramen_workloads::Latencies;
use serde::Serialize;

use super::refuse_all_but;
use crate::args::BenchArgs;
use crate::axes::DEVICE_SYNC_BENCH;
use crate::failure::Result;
use crate::format;

/// A directory of its own, which goes when the run is over.
const DIRECTORY: &str = "device-sync.tmp";
const FILE: &str = "file";

/// The file's length. The file is rewritten from the start again and again, like a log that
/// recycles its segments.
const FILE_BYTES: u64 = 64 << 20;

/// The smallest write of a log.
const WRITE_BYTES: usize = 4096;

/// Scripts rely on these names.
#[derive(Serialize)]
struct Line {
    workload: &'static str,
    write_bytes: usize,
    seconds: f64,
    writes: u64,
    writes_per_s: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
    max_us: f64,
}

pub(super) fn bench(args: &BenchArgs, out: &mut dyn Write) -> Result<()> {
    refuse_all_but(&["dir", "seconds", "system-cache", "no-uring", "json"], args)?;
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("duramen-data"));
    let backend = if args.open.no_uring { Backend::Syscalls } else { Backend::Auto };
    let home = dir.join(DIRECTORY);
    let disk = RealDisk::open(
        &home,
        RealDiskOptions { backend, direct: args.open.system_cache != SystemCache::All, cached: &[] },
    )?;
    if disk.exists(FILE)? {
        disk.remove(FILE)?;
    }
    let file = disk.open(FILE, OpenMode::CreateNew)?;
    let measured = (|| {
        file.allocate(FILE_BYTES)?;
        // Writes each block once, so that later writes change only data and nothing else of the
        // file.
        let zeros = AlignedBuf::zeroed(1 << 20);
        for offset in (0..FILE_BYTES).step_by(zeros.len()) {
            file.write_at(&[&zeros], offset)?;
        }
        file.sync()?;
        disk.sync_directory("")?;
        let block = AlignedBuf::zeroed(WRITE_BYTES);
        let mut latencies = Latencies::new();
        let start = Instant::now();
        let mut last = Duration::ZERO;
        for write in 0.. {
            file.write_durable(&[&block], write * WRITE_BYTES as u64 % FILE_BYTES)?;
            let now = start.elapsed();
            latencies.record(now - last);
            last = now;
            if now.as_secs_f64() >= args.seconds {
                break;
            }
        }
        duramen_io::Result::Ok((latencies, last))
    })();
    drop(file);
    std::fs::remove_dir_all(&home)?;
    let (latencies, time) = measured?;
    if args.json {
        let micros = |latency: Duration| (latency.as_secs_f64() * 1e7).round() / 10.0;
        let writes = latencies.count();
        let line = Line {
            workload: DEVICE_SYNC_BENCH,
            write_bytes: WRITE_BYTES,
            seconds: time.as_secs_f64(),
            writes,
            writes_per_s: (writes as f64 / time.as_secs_f64()).round(),
            p50_us: micros(latencies.quantile(0.5)),
            p95_us: micros(latencies.quantile(0.95)),
            p99_us: micros(latencies.quantile(0.99)),
            max_us: micros(latencies.max()),
        };
        serde_json::to_writer(&mut *out, &line).map_err(std::io::Error::from)?;
        return Ok(writeln!(out)?);
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY);
    let quantile = |quantile| format::latency(latencies.quantile(quantile));
    table.add_row(["device", &format!("{}, {}", dir.display(), disk.backend())]);
    table.add_row(["durable writes", &format!("{} of 4 KiB", format::count(latencies.count()))]);
    table.add_row(["writes/s", &format::count((latencies.count() as f64 / time.as_secs_f64()) as u64)]);
    let max = format::latency(latencies.max());
    let all = format!("p50 {}, p95 {}, p99 {}, max {max}", quantile(0.5), quantile(0.95), quantile(0.99));
    table.add_row(["latency", &all]);
    Ok(writeln!(out, "{table}")?)
}
