//! Time series: two threads store measurements of many sensors as they come in, one thread reads
//! the latest stretch of single sensors, and one removes what is too old.
//!
//! ```text
//! cargo run --release -p duramen --example time_series DIRECTORY [SECONDS]
//! ```
//!
//! A key is the sensor's number and the time, so that the measurements of a sensor lie together.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use duramen::{Db, Options, Table};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SENSORS: u64 = 100;
const WRITERS: u64 = 2;
/// Measurements of a sensor that are kept.
const KEPT: u64 = 1_000;
/// Measurements of each sensor in one transaction.
const STORED: u64 = 10;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args_os().skip(1);
    let directory = PathBuf::from(args.next().ok_or("usage: time_series DIRECTORY [SECONDS]")?);
    let seconds: u64 = args.next().map_or(Ok(3), |seconds| seconds.to_string_lossy().parse())?;
    let db = Db::open(directory, Options { snapshots: true, ..Options::default() })?;
    let series = db.table("series")?;

    // The time up to which each writer has stored its sensors, in this run and those before.
    let mut begin = Vec::new();
    for writer in 0..WRITERS {
        let last = db.run(|txn| txn.scan_rev(&series, key(writer, 0)..key(writer + 1, 0)).next().transpose())?;
        begin.push(last.map_or(Ok(0), |(key, _)| time_of(&key).map(|time| time + 1))?);
    }
    let now: Vec<AtomicU64> = begin.iter().map(|time| AtomicU64::new(*time)).collect();
    let is_closing = AtomicBool::new(false);
    let began = Instant::now();
    let read = std::thread::scope(|scope| -> Result<u64, Failure> {
        let (db, series, now, is_closing) = (&db, &series, &now, &is_closing);
        let mut threads: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || store(db, series, writer, now, is_closing))).collect();
        threads.push(scope.spawn(move || remove_old(db, series, now, is_closing)));
        let read = read_for(db, series, Duration::from_secs(seconds));
        is_closing.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("no thread panics")?;
        }
        read
    })?;
    let seconds = began.elapsed().as_secs_f64();
    let times = now.iter().zip(begin).map(|(now, begin)| now.load(Ordering::Relaxed) - begin);
    let stored = times.sum::<u64>() * SENSORS / WRITERS;
    println!(
        "{:.0} measurements stored a second, {:.0} stretches read a second",
        stored as f64 / seconds,
        read as f64 / seconds
    );
    db.close()?;
    Ok(())
}

/// Stores measurements of the writer's sensors.
fn store(db: &Db, series: &Table, writer: u64, now: &[AtomicU64], is_closing: &AtomicBool) -> duramen::Result<()> {
    let mut time = now[writer as usize].load(Ordering::Relaxed);
    while !is_closing.load(Ordering::Relaxed) {
        db.run(|txn| {
            for sensor in (writer..SENSORS).step_by(WRITERS as usize) {
                for time in time..time + STORED {
                    txn.put(series, &key(sensor, time), &measured(sensor, time).to_le_bytes())?;
                }
            }
            Ok(())
        })?;
        time += STORED;
        now[writer as usize].store(time, Ordering::Relaxed);
    }
    Ok(())
}

/// Removes what is too old, a sensor at a time.
fn remove_old(db: &Db, series: &Table, now: &[AtomicU64], is_closing: &AtomicBool) -> duramen::Result<()> {
    while !is_closing.load(Ordering::Relaxed) {
        for sensor in 0..SENSORS {
            let now = now[(sensor % WRITERS) as usize].load(Ordering::Relaxed);
            let old = key(sensor, 0)..key(sensor, now.saturating_sub(KEPT));
            db.run(|txn| txn.delete_range(series, old.clone()))?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Reads what there is of one sensor after another; returns how often.
fn read_for(db: &Db, series: &Table, time: Duration) -> Result<u64, Failure> {
    let (began, mut read) = (Instant::now(), 0);
    while began.elapsed() < time {
        let sensor = read % SENSORS;
        let snapshot = db.snapshot()?;
        let mut cursor = snapshot.cursor(series, key(sensor, 0)..key(sensor + 1, 0));
        let mut expected = None;
        while let Some((found, value)) = cursor.next()? {
            let time = time_of(found)?;
            // A snapshot shows every measurement between the oldest and the newest that are kept.
            if expected.is_some_and(|expected| expected != time) || value != measured(sensor, time).to_le_bytes() {
                return Err(format!("the series of sensor {sensor} is wrong at {time}").into());
            }
            expected = Some(time + 1);
        }
        read += 1;
    }
    Ok(read)
}

fn key(sensor: u64, time: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&sensor.to_be_bytes());
    key[8..].copy_from_slice(&time.to_be_bytes());
    key
}

fn time_of(key: &[u8]) -> Result<u64, Failure> {
    let time = key.last_chunk().ok_or("a key has sixteen bytes")?;
    Ok(u64::from_be_bytes(*time))
}

fn measured(sensor: u64, time: u64) -> f64 {
    (sensor as f64 + time as f64 / 100.0).sin()
}
