//! The tasks, written once for all engines. Every commit is durable.

use std::fs;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use duramen_peers::engines::{Durability, Peer, Visit};
use duramen_sync::SplitMix64;
use duramen_workloads::store::{Access, Connection, ScanRange, Transaction};
use serde::{Deserialize, Serialize};

use crate::args::{EverydayOneArgs, Task};
use crate::measure::Outcome;
use crate::syscalls::{self, Counts};

/// One figure of one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) unit: String,
    /// Without one, the engine has no means for the task.
    pub(crate) value: Option<f64>,
}

/// Bytes of a key and a row.
const KEY: usize = 8;
const ROW: usize = 100;
/// Rows that are loaded, and updated, with one commit.
const LOADED: u64 = 1_000;
const UPDATED: u64 = 100;
const BLOB: usize = 1 << 20;
const BLOBS: u64 = 300;
/// Large values with one commit.
const STORED: u64 = 10;
/// All rows are read this often at least, and for this long.
const SCANS: u32 = 10;
const SCANNING: Duration = Duration::from_secs(5);

/// Runs all tasks with one engine, in `args.home`.
pub(crate) fn measure(args: &EverydayOneArgs) -> Outcome<Vec<Figure>> {
    struct Run<'a>(&'a EverydayOneArgs);
    impl Visit for Run<'_> {
        type Output = Outcome<Vec<Figure>>;
        fn visit<P: Peer>(self) -> Outcome<Vec<Figure>> {
            run::<P>(self.0)
        }
    }
    args.engine.visit(Run(args))
}

fn run<P: Peer>(args: &EverydayOneArgs) -> Outcome<Vec<Figure>> {
    if !syscalls::works() {
        return Err("the calls that write are not counted: this program was linked in an unforeseen way".into());
    }
    let (home, rows, cache) = (&args.home, args.rows, args.cache_mb as usize * (1 << 20));
    let wanted = |task| args.tasks.is_empty() || args.tasks.contains(&task);
    let mut figures = Vec::new();
    let mut add = |name: &str, unit: &str, value: Option<f64>| {
        figures.push(Figure { name: name.to_owned(), unit: unit.to_owned(), value });
    };
    if wanted(Task::Create) {
        create::<P>(&directory(home, "create")?, &mut add)?;
    }
    if wanted(Task::Bulk) {
        bulk::<P>(&directory(home, "bulk")?, rows, cache, &mut add)?;
    }
    let home = directory(home, "rows")?;
    load::<P>(&home, rows, cache, &mut add)?;
    let begin = Instant::now();
    let store = P::open_for_readers(&home, cache)?;
    add("open after a close", "ms", Some(millis(begin.elapsed())));
    let table = store.table("rows")?;
    if wanted(Task::Read) {
        read(&store, &table, rows, &mut add)?;
    }
    if wanted(Task::Update) {
        update(&store, &table, rows, 2, "batches of 100 updates", || Ok(()), &mut add)?;
    }
    if wanted(Task::Delete) {
        delete(&store, &table, rows, &mut add)?;
    }
    if wanted(Task::Blobs) {
        blobs(&store, &mut add)?;
    }
    drop(table);
    store.close()?;
    if wanted(Task::Larger) {
        larger_than_memory::<P>(&home, rows, &mut add)?;
    }
    Ok(figures)
}

fn larger_than_memory<P: Peer>(home: &Path, rows: u64, add: Add<'_>) -> Outcome<()> {
    let store = P::open_for_readers(home, (rows as usize * ROW / 3).max(2 << 20))?;
    let table = store.table("rows")?;
    let name = "batches with memory for a third";
    update(&store, &table, rows / 2, 3, name, || Ok(()), add)?;
    let name = &format!("{name}, no system's cache");
    // Other rows: those of before may all be in memory.
    update(&store, &table, rows / 2, 4, name, || leave_system_cache(home), add)?;
    drop(table);
    store.close()?;
    Ok(())
}

type Add<'a> = &'a mut dyn FnMut(&str, &str, Option<f64>);

fn directory(home: &Path, name: &str) -> Outcome<std::path::PathBuf> {
    let directory = home.join(name);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn create<P: Peer>(home: &Path, add: Add<'_>) -> Outcome<()> {
    let (memory, begin) = (resident()?, Instant::now());
    let store = P::open(home, Durability::Durable)?;
    let table = store.make_table("rows")?;
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadWrite)?;
    txn.put(&table, &key(1), &row(1))?;
    txn.commit()?;
    add("new database, table, commit", "ms", Some(millis(begin.elapsed())));
    add("memory of a new database", "MiB", Some((resident()?.saturating_sub(memory)) as f64 / 1024.0));
    add("files of a new database", "KiB", Some(used(home)? as f64 / 1024.0));
    drop((connection, table));
    Ok(store.close()?)
}

fn load<P: Peer>(home: &Path, rows: u64, cache: usize, add: Add<'_>) -> Outcome<()> {
    let store = P::open_with(home, Durability::Durable, cache)?;
    let table = store.make_table("rows")?;
    let mut connection = store.connect()?;
    let (before, own) = (Counts::now(), store.own_counts());
    let begin = Instant::now();
    for first in (0..rows).step_by(LOADED as usize) {
        let mut txn = connection.begin(Access::ReadWrite)?;
        for n in first..(first + LOADED).min(rows) {
            txn.put(&table, &key(n), &row(n))?;
        }
        txn.commit()?;
    }
    let took = begin.elapsed();
    store.quiesce()?;
    let written = match store.own_counts().zip(own) {
        Some((after, before)) => after.written - before.written,
        None => Counts::now().since(before).written,
    };
    let data = (rows * (KEY + ROW) as u64) as f64;
    add("loading in order, 1,000 rows a commit", "k rows/s", Some(rows as f64 / took.as_secs_f64() / 1e3));
    // Pages that are written through a map are not counted.
    add("bytes written by each byte loaded", "", (written > 0).then_some(written as f64 / data));
    drop((connection, table));
    store.close()?;
    add("files by each byte of data", "", Some(used(home)? as f64 / data));
    Ok(())
}

fn bulk<P: Peer>(home: &Path, rows: u64, cache: usize, add: Add<'_>) -> Outcome<()> {
    let store = P::open_with(home, Durability::Durable, cache)?;
    let own = store.own_counts();
    let begin = Instant::now();
    let loaded = store.load_sorted("rows", (0..rows).map(|n| (key(n).to_vec(), row(n).to_vec())))?;
    let rate = rows as f64 / begin.elapsed().as_secs_f64() / 1e3;
    store.quiesce()?;
    let data = (rows * (KEY + ROW) as u64) as f64;
    let written = store.own_counts().zip(own).map(|(after, before)| (after.written - before.written) as f64 / data);
    add("bulk loading", "k rows/s", loaded.map(|()| rate));
    add("bytes written by each byte bulk loaded", "", loaded.and(written));
    store.close()?;
    fs::remove_dir_all(home)?;
    Ok(())
}

fn read<P: Peer>(store: &P, table: &P::Table, rows: u64, add: Add<'_>) -> Outcome<()> {
    let count = |from: u64, to: u64| -> Outcome<u64> {
        let (mut rows, mut bytes) = (0, 0);
        store.read_range(table, &key(from), &key(to), |row| {
            rows += 1;
            bytes += row.len();
        })?;
        if bytes != rows as usize * ROW {
            return Err("a row has another length than it was given".into());
        }
        Ok(rows)
    };
    // The best of some seconds: programs beside this one slow a processor down for that long.
    let mut best = [f64::MAX; 2];
    let (since, mut scans) = (Instant::now(), 0);
    while scans < SCANS || since.elapsed() < SCANNING {
        scans += 1;
        let begin = Instant::now();
        let all = count(0, rows)?;
        best[0] = best[0].min(begin.elapsed().as_secs_f64());
        let begin = Instant::now();
        let halves = std::thread::scope(|scope| -> Outcome<u64> {
            let other = scope.spawn(|| count(rows / 2, rows));
            let one = count(0, rows / 2)?;
            Ok(one + other.join().map_err(|_| "a thread panicked")??)
        })?;
        best[1] = best[1].min(begin.elapsed().as_secs_f64());
        if (all, halves) != (rows, rows) {
            return Err(format!("{all} and {halves} of {rows} rows were read").into());
        }
    }
    add("reading all rows", "M rows/s", Some(rows as f64 / best[0] / 1e6));
    add("reading all rows, two threads", "M rows/s", Some(rows as f64 / best[1] / 1e6));

    let mut random = SplitMix64::new(1);
    for (length, times) in [(100, 10_000_u64), (10_000, 200)] {
        let length = length.min(rows / 2);
        let begin = Instant::now();
        for _ in 0..times {
            let from = random.below(rows - length);
            if count(from, from + length)? != length {
                return Err("a range lacks rows".into());
            }
        }
        add(&format!("a range of {length} rows"), "us", Some(micros(begin.elapsed()) / times as f64));
    }
    let mut connection = store.connect()?;
    let mut scanned = 0;
    let begin = Instant::now();
    let mut txn = connection.begin(Access::ReadOnly)?;
    txn.scan(table, ScanRange::ALL, |_, _| {
        scanned += 1;
        ControlFlow::Continue(())
    })?;
    txn.commit()?;
    add("a serializable scan of all rows", "M rows/s", Some(scanned as f64 / begin.elapsed().as_secs_f64() / 1e6));
    let times = 100_000;
    let begin = Instant::now();
    for _ in 0..times {
        let mut txn = connection.begin(Access::ReadOnly)?;
        let found = txn.get(table, &key(random.below(rows)), <[u8]>::len)?;
        if found != Some(ROW) {
            return Err("a row is missing".into());
        }
        txn.commit()?;
    }
    add("a row by its key", "us", Some(micros(begin.elapsed()) / times as f64));
    Ok(())
}

fn update<P: Peer>(
    store: &P,
    table: &P::Table,
    rows: u64,
    seed: u64,
    name: &str,
    before_batch: impl Fn() -> Outcome<()>,
    add: Add<'_>,
) -> Outcome<()> {
    const BATCHES: u64 = 1_000;
    let mut connection = store.connect()?;
    let mut random = SplitMix64::new(seed);
    let (mut took, mut worst) = (Duration::ZERO, Duration::ZERO);
    for batch in 0..BATCHES {
        before_batch()?;
        let begin = Instant::now();
        let mut txn = connection.begin(Access::ReadWrite)?;
        for _ in 0..UPDATED {
            txn.put(table, &key(random.below(rows)), &row(batch))?;
        }
        txn.commit()?;
        let elapsed = begin.elapsed();
        (took, worst) = (took + elapsed, worst.max(elapsed));
    }
    let rate = (BATCHES * UPDATED) as f64 / took.as_secs_f64() / 1e3;
    add(name, "k rows/s", Some(rate));
    add(&format!("{name}: the worst batch"), "ms", Some(millis(worst)));
    Ok(())
}

fn delete<P: Peer>(store: &P, table: &P::Table, rows: u64, add: Add<'_>) -> Outcome<()> {
    let length = 100_000.min(rows / 4);
    let from = rows / 2;
    let begin = Instant::now();
    store.delete_range(table, &key(from), &key(from + length))?;
    let took = begin.elapsed();
    let mut left = 0;
    store.read_range(table, &key(0), &key(rows), |_| left += 1)?;
    if left != rows - length {
        return Err(format!("{left} rows are left of {rows} less {length}").into());
    }
    add(&format!("deleting a range of {length} rows"), "ms", Some(millis(took)));
    Ok(())
}

fn blobs<P: Peer>(store: &P, add: Add<'_>) -> Outcome<()> {
    let table = store.make_table("blobs")?;
    let mut connection = store.connect()?;
    let rate = |begin: Instant| Some(BLOBS as f64 * BLOB as f64 / begin.elapsed().as_secs_f64() / f64::from(1 << 20));
    for (round, name) in ["storing 300 values of 1 MiB", "overwriting them"].into_iter().enumerate() {
        let begin = Instant::now();
        for first in (0..BLOBS).step_by(STORED as usize) {
            let mut txn = connection.begin(Access::ReadWrite)?;
            for n in first..first + STORED {
                txn.put(&table, &key(n), &vec![(n + round as u64) as u8; BLOB])?;
            }
            txn.commit()?;
        }
        add(name, "MiB/s", rate(begin));
    }
    let begin = Instant::now();
    for n in 0..BLOBS {
        let mut txn = connection.begin(Access::ReadOnly)?;
        // Every byte is read, as a program would.
        let mut sum = 0;
        let add = |part: &[u8]| sum += part.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        if !txn.get_in_parts(&table, &key(n), add)? || sum != u64::from((n + 1) as u8) * BLOB as u64 {
            return Err("a large value is not what was stored".into());
        }
        txn.commit()?;
    }
    add("reading them", "MiB/s", rate(begin));
    let begin = Instant::now();
    let mut txn = connection.begin(Access::ReadWrite)?;
    for n in 0..BLOBS {
        txn.delete(&table, &key(n))?;
    }
    txn.commit()?;
    add("deleting them at once", "ms", Some(millis(begin.elapsed())));
    Ok(())
}

fn key(n: u64) -> [u8; KEY] {
    n.to_be_bytes()
}

/// A row that does not compress well.
fn row(n: u64) -> [u8; ROW] {
    let mut random = SplitMix64::new(n);
    let mut row = [0; ROW];
    for part in row.chunks_mut(8) {
        part.copy_from_slice(&random.bits().to_le_bytes()[..part.len()]);
    }
    row
}

/// Resident memory of this process, in KiB.
fn resident() -> Outcome<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    Ok(kib.ok_or("the system does not tell the resident memory")?.parse()?)
}

/// Removes the files in `directory` from the system's cache of files, but for what is not written
/// yet and what a program has mapped. Closing a file may also release locks of the engine, which no
/// other process wants.
fn leave_system_cache(directory: &Path) -> Outcome<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            leave_system_cache(&path)?;
        } else if let Ok(file) = fs::File::open(&path) {
            // An engine may remove a file at any time, so one that cannot be opened is no error.
            // SAFETY: the descriptor is open, and no memory is passed.
            unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        }
    }
    Ok(())
}

/// Bytes that the files in `directory` occupy on the disk.
fn used(directory: &Path) -> Outcome<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { used(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
