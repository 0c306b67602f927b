//! A job queue: one thread adds jobs, and eight workers share them. Each worker takes the first job
//! that no other worker has, records its result and removes the job, in one transaction. A crash
//! loses no job and does none twice.
//!
//! ```text
//! cargo run --release -p duramen --example job_queue DIRECTORY [JOBS]
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use duramen::{Db, Options, Table};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WORKERS: usize = 8;
const JOBS: u64 = 20_000;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args_os().skip(1);
    let directory = PathBuf::from(args.next().ok_or("usage: job_queue DIRECTORY [JOBS]")?);
    let jobs = args.next().map_or(Ok(JOBS), |jobs| jobs.to_string_lossy().parse())?;
    let db = Db::open(directory, Options::default())?;
    let (queue, results) = (db.table("jobs")?, db.table("results")?);
    // An earlier run may have added some of the jobs, and done some of these.
    let first = db.run(|txn| Ok(txn.last(&queue)?.max(txn.last(&results)?)))?;
    let first = first.map_or(0, |(key, _)| number(&key) + 1);

    let is_complete = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| -> Result<(), Failure> {
        let (db, queue, results, is_complete) = (&db, &queue, &results, &is_complete);
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(move || work(db, queue, results, is_complete))).collect();
        for job in first..first + jobs {
            db.run(|txn| txn.put(queue, &job.to_be_bytes(), &job.to_le_bytes()))?;
        }
        is_complete.store(true, Ordering::Release);
        for worker in workers {
            worker.join().expect("no thread panics")?;
        }
        Ok(())
    })?;
    let seconds = began.elapsed().as_secs_f64();

    let mut txn = db.begin();
    let mut cursor = txn.cursor(&results, ..);
    let mut done = 0;
    while let Some((key, result)) = cursor.next()? {
        if number(key) != done || result != square(done).to_le_bytes() {
            return Err(format!("job {done} is missing, or its result is wrong").into());
        }
        done += 1;
    }
    txn.commit()?;
    if done != first + jobs {
        return Err(format!("{done} jobs were done, of {}", first + jobs).into());
    }
    println!("{jobs} jobs added and done, {:.0} a second; {done} results", jobs as f64 / seconds);
    db.close()?;
    Ok(())
}

/// Does jobs until there will be no more.
fn work(db: &Db, queue: &Table, results: &Table, is_complete: &AtomicBool) -> duramen::Result<()> {
    loop {
        // Before the look: no job is added later.
        let is_last_look = is_complete.load(Ordering::Acquire);
        let did_one = db.run(|txn| {
            // The job is locked until the commit, and the other workers pass over it.
            let Some(job) = txn.scan_skip_locked(queue, ..).next().transpose()? else { return Ok(false) };
            txn.put(results, &job.0, &square(number(&job.0)).to_le_bytes())?;
            txn.delete(queue, &job.0)?;
            Ok(true)
        })?;
        match did_one {
            true => {}
            false if is_last_look => return Ok(()),
            false => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}

/// The work of a job.
fn square(job: u64) -> u64 {
    job.wrapping_mul(job)
}

fn number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("a key has eight bytes"))
}
