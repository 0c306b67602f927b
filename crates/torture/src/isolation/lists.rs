//! Random histories of list appends by many threads, with crashes in between, for [`super::history`] to judge.

use std::time::Duration;

use duramen::{Db, Error, Isolation, Options, Table, Txn};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::{Arc, thread};

use super::history::{Element, Event, Level, ListKey, Lists, Record, Status, check};
use crate::harness::{Phase, guarded};
use crate::rng::Rng;
use crate::variant::Variant;
use crate::workloads::test_options;

/// Longest time for one history.
const LIMIT: Duration = Duration::from_secs(120);

/// The size and kind of a history.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Threads at once.
    pub threads: usize,
    /// Transactions of each thread between two crashes.
    pub transactions: usize,
    /// Keys that may have lists.
    pub keys: ListKey,
    /// Crashes in the middle of the history; each is followed by recovery and more transactions.
    pub crashes: usize,
    /// What the transactions ask for.
    pub isolation: Isolation,
}

impl Shape {
    /// The shape of the history of this seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 6);
        Self {
            threads: rng.within(2..7),
            transactions: rng.within(20..70),
            keys: rng.within(3..25) as ListKey,
            crashes: rng.within(0..3),
            isolation: if rng.percent(75) { Isolation::Serializable } else { Isolation::ReadCommitted },
        }
    }
}

fn stored_key(key: ListKey) -> [u8; 2] {
    key.to_be_bytes()
}

fn stored_list(list: &[Element]) -> Vec<u8> {
    list.iter().flat_map(|element| element.to_le_bytes()).collect()
}

fn loaded_list(bytes: &[u8]) -> Vec<Element> {
    assert!(bytes.len().is_multiple_of(8), "a list of {} bytes is none that was stored", bytes.len());
    bytes.chunks_exact(8).map(|chunk| Element::from_le_bytes(chunk.try_into().expect("eight bytes"))).collect()
}

/// What the threads of a history share.
struct Shared {
    db: Db,
    table: Table,
    clock: AtomicU64,
    elements: AtomicU64,
    shape: Shape,
}

/// Runs one history and judges it; gives the number of its transactions.
///
/// # Errors
/// What is wrong with it, or with the database after a crash.
pub fn try_history(shape: Shape, seed: u64) -> Result<u64, String> {
    guarded(LIMIT, move |phase| {
        phase.enter(format!("[torture isolation --only lists --seed {seed}] {shape:?}"));
        run(shape, seed, phase)
    })
}

fn run(shape: Shape, seed: u64, phase: &Phase) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let options = Variant::of(seed).apply(Options {
        // Deadlocks must be found, not waited out.
        lock_wait_limit: None,
        group_commit_transactions: rng.within(1..4),
        ..test_options()
    });
    let text = |error: Error| error.to_string();
    let mut disk = SimDisk::new(seed);
    let mut db = Db::open_on(Arc::new(disk.clone()), options.clone()).map_err(text)?;
    db.create_table("lists").map_err(text)?;
    let mut records: Vec<Record> = Vec::new();
    let (mut clock, mut elements) = (1, 1);
    for round in 0..=shape.crashes {
        let table = db.open_table("lists").map_err(text)?;
        let is_last = round == shape.crashes;
        if !is_last {
            disk.crash_at(disk.operations() + rng.within(1..300) as u64);
        }
        let shared = Arc::new(Shared {
            db: db.clone(),
            table,
            clock: AtomicU64::new(clock),
            elements: AtomicU64::new(elements),
            shape,
        });
        records.extend(run_threads(&shared, &mut rng)?);
        clock = shared.clock.load(Ordering::SeqCst);
        elements = shared.elements.load(Ordering::SeqCst);
        drop(shared);
        if !is_last {
            drop(db);
            disk.crash();
            let choice = *rng.pick(&[CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(seed)]);
            phase
                .enter(format!("[torture isolation --only lists --seed {seed}] {shape:?}, crash {round} ({choice:?})"));
            disk = disk.crash_image(&choice);
            db = Db::open_on(Arc::new(disk.clone()), options.clone())
                .map_err(|error| format!("does not open: {error}"))?;
            let found = read_all(&db).map_err(text)?;
            let event = Event::Scan(0, ListKey::MAX, found);
            records.push(Record { begun: clock + 1, events: vec![event], status: Status::Committed(clock + 2) });
            clock += 3;
        }
    }
    let last = read_all(&db).map_err(text)?;
    let report = db.check().map_err(text)?;
    if !report.is_ok() {
        return Err(format!("structural check: {}", report.problems.join("; ")));
    }
    let level = match shape.isolation {
        Isolation::Serializable => Level::StrictlySerializable,
        Isolation::ReadCommitted => Level::ReadCommitted,
    };
    check(&records, &last, level).map_err(|violation| violation.to_string())?;
    Ok(records.len() as u64)
}

fn read_all(db: &Db) -> Result<Lists, Error> {
    let table = db.open_table("lists")?;
    let mut txn = db.begin_with(Isolation::Serializable);
    let lists = scan(&mut txn, &table, 0, ListKey::MAX, false)?;
    txn.commit()?;
    Ok(lists)
}

fn scan(txn: &mut Txn, table: &Table, from: ListKey, to: ListKey, down: bool) -> Result<Lists, Error> {
    let (from, to) = (stored_key(from), stored_key(to));
    let range = &from[..]..=&to[..];
    let records = if down { txn.scan_rev(table, range) } else { txn.scan(table, range) };
    records
        .map(|record| {
            let (key, value) = record?;
            let key = ListKey::from_be_bytes(key.as_slice().try_into().expect("the suite stores two bytes"));
            Ok((key, loaded_list(&value)))
        })
        .collect()
}

fn run_threads(shared: &Arc<Shared>, rng: &mut Rng) -> Result<Vec<Record>, String> {
    let threads = (0..shared.shape.threads).map(|number| {
        let (shared, mut rng) = (Arc::clone(shared), rng.split());
        thread::spawn(&format!("torture-{number}"), move || client(&shared, &mut rng))
            .map_err(|error| error.to_string())
    });
    // All threads are started before the first is waited for.
    let threads: Vec<_> = threads.collect::<Result<_, _>>()?;
    let mut records = Vec::new();
    for thread in threads {
        let outcome =
            thread.join().map_err(|payload| format!("a client panicked: {}", crate::harness::described(&*payload)))?;
        records.extend(outcome?);
    }
    Ok(records)
}

/// One thread: transaction after transaction, until the last or until the disk is dead.
fn client(shared: &Shared, rng: &mut Rng) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for _ in 0..shared.shape.transactions {
        let begun = shared.clock.fetch_add(1, Ordering::SeqCst);
        let mut events = Vec::new();
        let mut undone = Vec::new();
        let mut txn = shared.db.begin_with(shared.shape.isolation);
        let outcome = transaction(shared, &mut txn, rng, &mut events, &mut undone);
        let mut finished = false;
        let status = match outcome {
            // The same but under pipelining, where this asks the daemon.
            Ok(true) => match txn.commit_async().wait() {
                Ok(()) => Status::Committed(shared.clock.fetch_add(1, Ordering::SeqCst)),
                Err(error) if error.is_retryable() => Status::Aborted,
                Err(Error::Io { .. } | Error::Poisoned { .. }) => {
                    finished = true;
                    Status::Unknown
                }
                Err(error) => return Err(format!("commit: {error}")),
            },
            Ok(false) => match txn.abort() {
                Ok(()) => Status::Aborted,
                Err(Error::Io { .. } | Error::Poisoned { .. }) => {
                    finished = true;
                    Status::Aborted
                }
                Err(error) => return Err(format!("abort: {error}")),
            },
            Err(error) if error.is_retryable() => Status::Aborted,
            Err(Error::Io { .. } | Error::Poisoned { .. }) => {
                finished = true;
                Status::Aborted
            }
            Err(error) => return Err(error.to_string()),
        };
        records.push(Record { begun, events, status });
        if !undone.is_empty() {
            // What was rolled back to a savepoint must be as invisible as what was aborted.
            records.push(Record { begun, events: undone, status: Status::Aborted });
        }
        if finished {
            break;
        }
    }
    Ok(records)
}

/// The operations of one transaction; whether it wants to commit.
fn transaction(
    shared: &Shared,
    txn: &mut Txn,
    rng: &mut Rng,
    events: &mut Vec<Event>,
    undone: &mut Vec<Event>,
) -> Result<bool, Error> {
    for _ in 0..rng.within(1..6) {
        let key = rng.within(0..usize::from(shared.shape.keys)) as ListKey;
        match rng.within(0..20) {
            0..9 => {
                let locked = shared.shape.isolation == Isolation::ReadCommitted || rng.percent(70);
                if !append(shared, txn, key, locked, events)? {
                    return Ok(false);
                }
            }
            9..14 => events.push(Event::Read(key, read(txn, &shared.table, key, false)?)),
            14..19 => {
                let to = key + rng.within(0..8) as ListKey;
                let (from, to) = if rng.percent(15) { (0, ListKey::MAX) } else { (key, to) };
                events.push(Event::Scan(from, to, scan(txn, &shared.table, from, to, rng.percent(40))?));
            }
            _ => {
                let savepoint = txn.savepoint();
                let mut tried = Vec::new();
                let result = append(shared, txn, key, true, &mut tried);
                // The read stays a read; the append is one of a transaction that never was.
                let (appends, reads): (Vec<_>, _) =
                    tried.into_iter().partition(|event| matches!(event, Event::Append(..)));
                undone.extend(appends);
                events.extend::<Vec<_>>(reads);
                if !result? {
                    return Ok(false);
                }
                txn.rollback_to(&savepoint)?;
            }
        }
    }
    Ok(!rng.percent(8))
}

fn read(txn: &mut Txn, table: &Table, key: ListKey, for_update: bool) -> Result<Vec<Element>, Error> {
    let key = stored_key(key);
    let value = if for_update { txn.get_for_update(table, &key)? } else { txn.get(table, &key)? };
    Ok(value.map(|bytes| loaded_list(&bytes)).unwrap_or_default())
}

/// Appends an element; `false` if somebody else made the record first, which weak isolation allows.
fn append(shared: &Shared, txn: &mut Txn, key: ListKey, locked: bool, events: &mut Vec<Event>) -> Result<bool, Error> {
    let mut list = read(txn, &shared.table, key, locked)?;
    let is_new = list.is_empty();
    events.push(Event::Read(key, list.clone()));
    let element = shared.elements.fetch_add(1, Ordering::SeqCst);
    list.push(element);
    let value = stored_list(&list);
    // Recorded before it is tried: an element that an error hides must not turn up either.
    events.push(Event::Append(key, element));
    let result = match is_new {
        true => txn.insert(&shared.table, &stored_key(key), &value),
        false => txn.update(&shared.table, &stored_key(key), &value),
    };
    match result {
        Ok(()) => Ok(true),
        Err(Error::KeyExists) if shared.shape.isolation == Isolation::ReadCommitted => Ok(false),
        Err(error) => Err(error),
    }
}
