//! What writing a record costs in each way:
//! `cargo run --release -p duramen-pmem --example costs [file] [bytes]`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use duramen_pmem::{PmemError, Region, RegionOptions, Source, Survive, Timing};

const LEN: u64 = 16 << 20;

fn main() -> Result<(), PmemError> {
    let mut arguments = std::env::args().skip(1);
    let source = arguments.next().map_or(Source::Anonymous, |path| Source::File(PathBuf::from(path)));
    let bytes = arguments.next().and_then(|bytes| bytes.parse().ok()).unwrap_or(120_usize).next_multiple_of(8);
    let options = RegionOptions { survive: Survive::Nothing, ..RegionOptions::new(LEN) };
    let region = Region::open(&source, &options)?;
    println!("{}: {}, flushed with {}", region.location(), region.guarantee(), region.flush_instruction());
    let record = vec![0xA5; bytes];
    report("store", &region, bytes, |at| region.store(at, &[&record]));
    report("store, fence", &region, bytes, |at| {
        region.store(at, &[&record]);
        region.fence();
    });
    report("store, flush", &region, bytes, |at| {
        region.store(at, &[&record]);
        region.flush(at, bytes);
    });
    report("store, flush, fence", &region, bytes, |at| {
        region.store(at, &[&record]);
        region.persist(at, bytes);
    });
    report("stream", &region, bytes, |at| region.stream(at, &[&record]));
    report("stream, fence", &region, bytes, |at| {
        region.stream(at, &[&record]);
        region.fence();
    });
    drop(region);
    let slow = Timing { write: Duration::from_nanos(1200), ..Timing::NONE };
    let region = Region::open(&source, &RegionOptions { timing: slow, ..options })?;
    report("stream with a delay of 1.2 us", &region, bytes, |at| region.stream(at, &[&record]));
    Ok(())
}

fn report(what: &str, region: &Region, bytes: usize, write: impl Fn(u64)) {
    const RECORDS: u64 = 400_000;
    let places = region.len() / bytes as u64;
    let begin = Instant::now();
    (0..RECORDS).for_each(|record| write(record % places * bytes as u64));
    region.fence();
    println!("{:7.1} ns  {what} ({bytes} bytes)", begin.elapsed().as_nanos() as f64 / RECORDS as f64);
}
