//! The log alone under many threads. They only insert records and harden them, so they meet often.
//! The power goes off in between.

use std::collections::VecDeque;
use std::time::Duration;

use duramen::InsertDesign;
use duramen_io::{CrashChoice, Disk};
use duramen_sync::atomic::{AtomicBool, Ordering};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex, thread, trace};
use duramen_types::{Gsn, LogAddress, LogId, Lsn, PageId, TxnId};
use duramen_wal::{FIRST_LSN, GroupCommit, Hardened, Log, NewRecord, Sealing, WalError, WalOptions};

use crate::circumstances::Circumstances;
use crate::harness::{Phase, guarded};
use crate::world::World;
use duramen_test_support::Rng;

/// Longest time for one load.
const LIMIT: Duration = Duration::from_secs(120);

const DATABASE: [u8; 16] = *b"simulated log...";

/// A record's transaction is the number of its thread above so many bits, and counts the thread's
/// records below.
const THREAD_SHIFT: u32 = 32;

/// Size and kind of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How records enter the log buffer.
    pub design: InsertDesign,
    /// Threads at once.
    pub threads: usize,
    /// Records of each thread between two crashes.
    pub records: usize,
    /// The largest payload, in bytes.
    pub largest: usize,
    /// One in so many records, on average, is hardened before the thread continues.
    pub harden_one_in: usize,
    /// Crashes in the middle.
    pub crashes: usize,
}

impl Load {
    /// Returns the load of this seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x10ad);
        Self {
            design: *rng.pick(&InsertDesign::ALL),
            threads: rng.within(2..7),
            records: rng.within(10..50),
            largest: *rng.pick(&[16, 200, 4000, 16_000]),
            harden_one_in: *rng.pick(&[1, 2, 5, 30]),
            crashes: rng.within(0..3),
        }
    }
}

/// Runs a load and checks what is in the log, while it is there and after each crash; gives the
/// number of records.
///
/// # Errors
/// What is wrong with the log.
pub fn try_load(load: Load, seed: u64, circumstances: Circumstances) -> Result<u64, String> {
    guarded(LIMIT, move |phase| run(load, seed, circumstances, phase))
}

/// What one thread has done so far.
#[derive(Clone, Copy, Default, Debug)]
struct Progress {
    /// The number that its next record gets.
    next: u64,
    /// So many of its records are known to be hardened.
    hardened: u64,
}

fn options_of(design: InsertDesign, rng: &mut Rng) -> WalOptions {
    let (slots, arrays) = (rng.within(1..4), *rng.pick(&[1, 1, 2]));
    WalOptions {
        insert: design,
        sealing: *rng.pick(&[Sealing::AtFlush, Sealing::AtInsertion]),
        ring_bytes: *rng.pick(&[64 << 10, 256 << 10]),
        array_slots: slots,
        arrays,
        slot_pool: 2 * slots * arrays + *rng.pick(&[0, 12]),
        segment_bytes: 256 << 10,
        max_bytes: 64 << 20,
        spare_segments: rng.within(0..2),
        group_commit: GroupCommit {
            transactions: *rng.pick(&[1, 1, 3]),
            bytes: *rng.pick(&[8 << 10, 1 << 20]),
            time: Duration::from_micros(50),
        },
        ..WalOptions::default()
    }
}

/// These options, with the end of the log where it is in this world.
fn in_world(options: &WalOptions, world: &World) -> WalOptions {
    match world.rings() {
        None => options.clone(),
        Some((device, ring_bytes)) => WalOptions { device, ring_bytes, ..options.clone() },
    }
}

fn disk_of(world: &World) -> Arc<dyn Disk> {
    Arc::new(world.disk.clone())
}

fn run(load: Load, seed: u64, circumstances: Circumstances, phase: &Phase) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let mut options = options_of(load.design, &mut rng);
    let text = |error: WalError| error.to_string();
    let mut world = World::with_rings(circumstances.disk(seed), circumstances.log.of_log(), 1, options.ring_bytes);
    let mut wal = Log::create(&disk_of(&world), &in_world(&options, &world), DATABASE).map_err(text)?;
    let mut progress = vec![Progress::default(); load.threads];
    for life in 0..=load.crashes {
        phase.enter(format!("the log, life {life}"));
        let is_last = life == load.crashes;
        if !is_last {
            let operations = rng.within(1..120) as u64;
            world.crash_after(operations, &mut rng);
        }
        let log = Arc::new(wal);
        progress = run_threads(&log, &world, &progress, load, &mut rng)?;
        if is_last {
            log.close().map_err(text)?;
            let complete: Vec<_> = progress.iter().map(|done| Progress { hardened: done.next, ..*done }).collect();
            progress = compare(&log, &complete)?;
        }
        drop(log);
        world.disk.crash();
        let choice = *rng.pick(&[CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(seed)]);
        world = world.crash_image(&choice);
        if circumstances.changes {
            options = options_of(*rng.pick(&InsertDesign::ALL), &mut rng);
        }
        wal = Log::open(&disk_of(&world), &in_world(&options, &world), DATABASE, None)
            .map_err(|error| format!("does not open after the power went off: {error}"))?;
        progress = compare(&wal, &progress)?;
    }
    Ok(progress.iter().map(|done| done.next).sum())
}

/// Checks the hardened log against what its threads know; gives what they would know had they
/// written just that.
fn compare(wal: &Log, progress: &[Progress]) -> Result<Vec<Progress>, String> {
    let found = read(wal, progress.len())?;
    for (number, (found, done)) in found.iter().zip(progress).enumerate() {
        if *found < done.hardened || *found > done.next {
            return Err(format!("the log has {found} records of thread {number}, but that thread has {done:?}"));
        }
    }
    Ok(found.into_iter().map(|found| Progress { next: found, hardened: found }).collect())
}

/// Reads the hardened log and checks each record; gives the number of each thread's records.
fn read(wal: &Log, threads: usize) -> Result<Vec<u64>, String> {
    let mut counts = vec![0; threads];
    let mut scanner = wal.scan(LogId::ZERO, wal.extents()[0].start);
    let mut position = FIRST_LSN;
    while let Some(record) = scanner.next().map_err(|error| format!("the hardened records cannot be read: {error}"))? {
        if (record.lsn, record.gsn) != (position, Gsn::new(position.get())) {
            return Err(format!("the record at {position} says that it is at {}, {}", record.lsn, record.gsn));
        }
        position = record.end;
        let txn = record.txn.get();
        let (thread, number) = ((txn >> THREAD_SHIFT) as usize, txn & ((1 << THREAD_SHIFT) - 1));
        let Some(count) = counts.get_mut(thread) else { return Err(format!("record {txn:#x} belongs to no thread")) };
        if number != *count {
            return Err(format!("record {number} of thread {thread} is in the place of its record {count}"));
        }
        *count += 1;
        if record.payload != payload(txn, record.payload.len()) {
            return Err(format!("record {number} of thread {thread} has a different payload from the inserted one"));
        }
    }
    Ok(counts)
}

fn payload(txn: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(txn);
    (0..len.div_ceil(8)).flat_map(|_| rng.bits().to_le_bytes()).take(len).collect()
}

fn run_threads(
    wal: &Arc<Log>,
    world: &World,
    progress: &[Progress],
    load: Load,
    rng: &mut Rng,
) -> Result<Vec<Progress>, String> {
    let over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (wal, over, threads) = (Arc::clone(wal), Arc::clone(&over), load.threads);
        thread::spawn("torture-reader", move || follow(&wal, &over, threads)).map_err(|error| error.to_string())?
    };
    let start = |(number, done): (usize, &Progress)| {
        let (wal, world, mut rng, done) = (Arc::clone(wal), world.clone(), rng.split(), *done);
        thread::spawn(&format!("torture-{number}"), move || insert(&wal, &world, number, done, load, &mut rng))
            .map_err(|error| error.to_string())
    };
    // All threads are started before the first is waited for.
    let threads: Vec<_> = progress.iter().enumerate().map(start).collect::<Result<_, _>>()?;
    let mut after = Vec::new();
    for thread in threads {
        after.push(thread.join().map_err(|_| "an inserting thread panicked".to_owned())??);
    }
    over.store(true, Ordering::SeqCst);
    reader.join().map_err(|_| "the reading thread panicked".to_owned())??;
    Ok(after)
}

/// Reads what is hardened now and then, like a program that follows the log.
fn follow(wal: &Log, over: &AtomicBool, threads: usize) -> Result<(), String> {
    let mut last = Lsn::ZERO;
    while !over.load(Ordering::SeqCst) {
        let durable = wal.extents()[0].durable;
        if durable > last {
            match read(wal, threads) {
                // The disk is dead.
                Err(error) if error.contains("simulated crash") => return Ok(()),
                result => result?,
            };
            last = durable;
        }
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// One thread: record after record, until the last or until the log has failed.
fn insert(
    wal: &Log,
    world: &World,
    thread: usize,
    mut done: Progress,
    load: Load,
    rng: &mut Rng,
) -> Result<Progress, String> {
    let mut asked: VecDeque<(u64, Hardened)> = VecDeque::new();
    for _ in 0..load.records {
        let txn = (thread as u64) << THREAD_SHIFT | done.next;
        let payload = payload(txn, rng.within(0..load.largest + 1));
        let bytes = wal.record_bytes(payload.len());
        if wal.reserve(bytes).is_err() {
            break;
        }
        let inserted = wal.insert(
            LogId::ZERO,
            NewRecord {
                kind: 1,
                flags: 0,
                txn: TxnId::new(txn),
                page: PageId::ZERO,
                prev: LogAddress::ZERO,
                after: Gsn::ZERO,
                payload: &payload,
            },
        );
        wal.unreserve(bytes);
        done.next += 1;
        trace::note(|| format!("has inserted its record {} at {}..{}", done.next - 1, inserted.lsn, inserted.end));
        if rng.within(0..load.harden_one_in) > 0 {
            continue;
        }
        let outcome = match rng.within(0..8) {
            0..4 => wal.wait_hardened(inserted.gsn, None),
            4 => wal.harden_at_once(inserted.gsn, None),
            5 => wal.harden(inserted.gsn).wait(),
            6 => told(wal.harden(inserted.gsn)),
            _ => {
                asked.push_back((done.next, wal.harden(inserted.gsn)));
                if rng.percent(50)
                    && let Some((count, hardened)) = asked.pop_front()
                    && hardened.wait().is_ok()
                    && !world.is_unheard()
                {
                    done.hardened = done.hardened.max(count);
                }
                continue;
            }
        };
        trace::note(|| format!("is told of its record {}: {outcome:?}", done.next - 1));
        if outcome.is_err() || world.is_unheard() {
            break;
        }
        let durable = wal.extents()[0].durable;
        if durable < inserted.end {
            return Err(format!("{inserted:?} counts as hardened, but {durable} is the durable position"));
        }
        done.hardened = done.next;
    }
    Ok(done)
}

/// Waits by having a function called.
fn told(hardened: Hardened) -> Result<(), WalError> {
    let outcome = Arc::new((Mutex::new(None), Parker::new()));
    let told = Arc::clone(&outcome);
    hardened.on_ready(move |result| {
        *told.0.lock() = Some(result);
        told.1.unpark();
    });
    outcome.1.park();
    let result = outcome.0.lock().take();
    result.expect("the outcome is there before the wake-up")
}
