//! Random histories of list appends by many threads, with crashes in between, for
//! [`super::history`] to judge.

use std::time::Duration;

use duramen::{Db, Error, Isolation, Options, Snapshot, Table, Txn};
use duramen_io::{CrashChoice, Fault};
use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::thread::Parker;
use duramen_sync::{Arc, Mutex, thread, trace};
use duramen_types::PAGE_SIZE;

use super::history::{Element, Event, Level, ListKey, Lists, Record, Status, check};
use crate::circumstances::Circumstances;
use crate::faults::FAULTS;
use crate::harness::{Phase, guarded};
use crate::variant::Variant;
use crate::workloads::{test_options, tier_of};
use crate::world::World;
use duramen_test_support::Rng;

/// The table that histories are about.
const LISTS: &str = "lists";
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
    /// Lives of the database before the last one. By default each ends with a crash; recovery and
    /// more transactions follow.
    pub crashes: usize,
    /// So many per cent of those lives end with the database being closed.
    pub closes: usize,
    /// A fault of the disk, by its place in [`FAULTS`], and whether it stays: it happens in about
    /// half of those lives, before the power goes off.
    pub fault: Option<(usize, bool)>,
    /// What the transactions ask for.
    pub isolation: Isolation,
    /// Most bytes beside the list in each record: beyond some hundreds leaves split, beyond some
    /// thousands records overflow.
    pub padding: usize,
    /// Everything is as small as may be: pool, log buffer, consolidation array, segments;
    /// checkpoints are frequent; and a table comes and goes beside the one with the lists.
    pub tight: bool,
}

impl Shape {
    /// Returns the shape of the history of this seed.
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 6);
        let shape = Self {
            threads: rng.within(2..7),
            transactions: rng.within(20..70),
            keys: rng.within(3..25) as ListKey,
            crashes: rng.within(0..3),
            closes: 0,
            fault: None,
            isolation: if rng.percent(75) { Isolation::Serializable } else { Isolation::ReadCommitted },
            padding: *rng.pick(&[0, 0, 0, 300, 2000, 9000]),
            tight: rng.percent(40),
        };
        // With few keys, leaves are seldom split while threads descend to them.
        let more = if shape.exceeds_pool() || shape.padding > 0 && rng.percent(60) { 80 } else { 0 };
        Self { keys: shape.keys + more, ..shape }
    }

    /// Returns whether the disk may say that it is full.
    fn may_be_full(&self) -> bool {
        self.fault.is_some_and(|(fault, _)| FAULTS[fault].1 == Fault::Enospc)
    }

    /// Returns whether there are to be more pages than the pool has frames.
    fn exceeds_pool(&self) -> bool {
        self.tight && self.padding > 2000
    }
}

fn stored_key(key: ListKey) -> [u8; 2] {
    key.to_be_bytes()
}

/// Returns the padding of a record: between 0 and `padding` bytes.
fn padding_of(list: &[Element], padding: usize) -> usize {
    list.last().map_or(0, |last| (last * 7919) as usize % (padding + 1))
}

const PADDING: u8 = 0xa5;

/// Returns the list's length, the list, and padding.
fn stored_list(list: &[Element], padding: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (list.len() as u64).to_le_bytes().to_vec();
    bytes.extend(list.iter().flat_map(|element| element.to_le_bytes()));
    bytes.resize(bytes.len() + padding_of(list, padding), PADDING);
    bytes
}

fn loaded_list(bytes: &[u8], padding: usize) -> Vec<Element> {
    let mut numbers = bytes.chunks_exact(8).map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")));
    let len = numbers.next().expect("a list begins with its length") as usize;
    let list: Vec<Element> = numbers.take(len).collect();
    let rest = bytes.get(8 + 8 * len..).expect("a list is as long as it says");
    assert_eq!(rest.len(), padding_of(&list, padding), "a record of {} bytes is none that was stored", bytes.len());
    assert!(rest.iter().all(|byte| *byte == PADDING), "a record's padding has changed");
    list
}

/// How a life of the database ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The power goes off at a disk operation.
    Crash,
    /// The disk fails, and the power goes off when all threads have noticed or are done.
    Fault,
    /// It is closed.
    Close,
}

impl Shape {
    /// How the next life ends, if it is not the last one.
    fn end(&self, rng: &mut Rng) -> End {
        if self.closes > 0 && rng.percent(self.closes) {
            End::Close
        } else if self.fault.is_some() && rng.percent(50) {
            End::Fault
        } else {
            End::Crash
        }
    }
}

/// What the threads of a history share.
struct Shared {
    db: Db,
    world: World,
    table: Table,
    clock: AtomicU64,
    elements: AtomicU64,
    shape: Shape,
    /// The disk or the log may say that it is full.
    may_be_full: bool,
}

/// Runs one history and judges it; gives the number of its transactions.
///
/// # Errors
/// What is wrong with it, or with the database after a crash.
pub fn try_history(shape: Shape, seed: u64, circumstances: Circumstances) -> Result<u64, String> {
    guarded(LIMIT, move |phase| {
        phase.enter(format!("[{}] {shape:?}", repeat(seed, circumstances)));
        run(shape, seed, circumstances, phase)
    })
}

/// Returns the command that repeats a history of the usual shape.
fn repeat(seed: u64, circumstances: Circumstances) -> String {
    format!("torture isolation --only lists{} --seed {seed}", circumstances.log.argument())
}

/// Returns what the database is usually opened with.
fn usual_options(shape: Shape, seed: u64, rng: &mut Rng) -> Options {
    let options = Options {
        // Deadlocks must be found, not waited out.
        lock_wait_limit: None,
        lock_escalation: *rng.pick(&[1, 3, 1024]),
        group_commit_transactions: rng.within(1..4),
        page_tier: tier_of(seed),
        snapshots: true,
        ..test_options()
    };
    let slots = rng.within(1..4);
    let tight = Options {
        pool_bytes: Options::MIN_POOL_PAGES * PAGE_SIZE,
        log_buffer_bytes: 64 << 10,
        log_array_slots: slots,
        log_slot_pool: 2 * slots,
        log_segment_bytes: 64 << 10,
        checkpoint_bytes: Some(32 << 10),
        redo_memory_bytes: Some(4 << 10),
        ..options.clone()
    };
    Variant::of(seed).apply(if shape.tight { tight } else { options })
}

fn run(shape: Shape, seed: u64, circumstances: Circumstances, phase: &Phase) -> Result<u64, String> {
    let mut rng = Rng::new(seed);
    let usual = usual_options(shape, seed, &mut rng);
    let text = |error: Error| error.to_string();
    let mut world = World::new(circumstances.disk(seed), circumstances.log, &usual);
    // Where the options change, so does the device, when a ring holds nothing that the files do
    // not.
    let mut uses_rings = world.rings().is_some();
    let open = |world: &World, uses_rings: bool, rng: &mut Rng| {
        let mut options = circumstances.options(&usual, rng);
        if circumstances.changes && rng.percent(25) {
            // A log that fills up.
            let small = Options { log_segment_bytes: 64 << 10, log_max_bytes: 1 << 20, ..options };
            options = Options { checkpoint_bytes: small.checkpoint_bytes.map(|bytes| bytes.min(128 << 10)), ..small };
        }
        if circumstances.changes {
            trace::note(|| format!("opens with {options:?}"));
        }
        let options = if uses_rings || world.has_heap() { world.options(&options) } else { options };
        Db::open_on(Arc::new(world.disk.clone()), options).map_err(|error| format!("does not open: {error}"))
    };
    let mut db = open(&world, uses_rings, &mut rng)?;
    db.create_table(LISTS).map_err(text)?;
    let mut records: Vec<Record> = Vec::new();
    let (mut clock, mut elements) = (1, 1);
    if shape.exceeds_pool() {
        records.push(load(&db, shape, &mut clock, &mut elements).map_err(text)?);
    }
    for round in 0..=shape.crashes {
        let table = db.open_table(LISTS).map_err(text)?;
        let end = if round == shape.crashes { None } else { Some(shape.end(&mut rng)) };
        if matches!(end, Some(End::Crash | End::Fault)) {
            // About where the last transactions would be.
            let operations = 10 + shape.threads * shape.transactions;
            let operations = rng.within(1..operations) as u64;
            match shape.fault {
                Some((fault, persistent)) if end == Some(End::Fault) => {
                    world.disk.fail_at(world.disk.operations() + operations, FAULTS[fault].1, persistent);
                }
                _ => world.crash_after(operations, &mut rng),
            }
        }
        let shared = Arc::new(Shared {
            db: db.clone(),
            world: world.clone(),
            table,
            clock: AtomicU64::new(clock),
            elements: AtomicU64::new(elements),
            shape,
            may_be_full: circumstances.changes || shape.may_be_full(),
        });
        records.extend(run_threads(&shared, &mut rng)?);
        clock = shared.clock.load(Ordering::SeqCst);
        elements = shared.elements.load(Ordering::SeqCst);
        drop(shared);
        let Some(end) = end else { break };
        let after = match end {
            End::Close => {
                db.close().map_err(|error| format!("does not close: {error}"))?;
                "was closed".to_owned()
            }
            End::Crash | End::Fault => {
                drop(db);
                world.disk.crash();
                let choice = *rng.pick(&[CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(seed)]);
                world = world.crash_image(&choice);
                format!("power cut after {end:?}, {choice:?}")
            }
        };
        phase.enter(format!("[{}] {shape:?}, life {round} ({after})", repeat(seed, circumstances)));
        trace::note(|| format!("opens again: {after}"));
        if circumstances.changes && world.rings().is_some() && (!uses_rings || end == End::Close) {
            uses_rings = rng.percent(50);
        }
        db = open(&world, uses_rings, &mut rng)?;
        let found = read_all(&db, shape).map_err(text)?;
        trace::note(|| "is open again".to_owned());
        let event = Event::Scan(0, ListKey::MAX, found);
        records.push(Record { begun: clock + 1, events: vec![event], status: Status::Committed(clock + 2) });
        clock += 3;
    }
    let last = read_all(&db, shape).map_err(text)?;
    let report = db.check().map_err(text)?;
    if !report.is_ok() {
        return Err(format!("structural check: {}", report.problems.join("; ")));
    }
    let level = match shape.isolation {
        Isolation::Serializable => Level::StrictlySerializable,
        Isolation::ReadCommitted => Level::ReadCommitted,
    };
    check(&records, &last, level).map_err(|violation| violation.to_string())?;
    leaves_nothing(db)?;
    Ok(records.len() as u64)
}

/// Drops the table after all transactions. That requires every lock in it and every latch of its
/// pages to be free; waiting for a forgotten one counts as a hang.
fn leaves_nothing(db: Db) -> Result<(), String> {
    trace::note(|| "drops the lists and closes".to_owned());
    let writing = db.metrics().writing;
    if writing != 0 {
        return Err(format!("{writing} transactions count as writing when all are over"));
    }
    db.drop_table(LISTS).map_err(|error| format!("the lists cannot be dropped: {error}"))?;
    let report = db.check().map_err(|error| format!("cannot be checked without the lists: {error}"))?;
    if !report.is_ok() {
        return Err(format!("structural check without the lists: {}", report.problems.join("; ")));
    }
    db.close().map_err(|error| format!("does not close in the end: {error}"))
}

/// Gives each key a list, in one transaction.
fn load(db: &Db, shape: Shape, clock: &mut u64, elements: &mut Element) -> Result<Record, Error> {
    let table = db.open_table(LISTS)?;
    let mut txn = db.begin();
    let mut events = Vec::new();
    for key in 0..shape.keys {
        events.push(Event::Append(key, *elements));
        txn.put(&table, &stored_key(key), &stored_list(&[*elements], shape.padding))?;
        *elements += 1;
    }
    txn.commit()?;
    *clock += 2;
    Ok(Record { begun: *clock - 2, events, status: Status::Committed(*clock - 1) })
}

fn read_all(db: &Db, shape: Shape) -> Result<Lists, Error> {
    let read = || {
        let table = db.open_table(LISTS)?;
        let mut txn = db.begin_with(Isolation::Serializable);
        let lists = scan(&mut txn, &table, 0, ListKey::MAX, false, shape.padding)?;
        txn.commit().map(|()| lists)
    };
    loop {
        match read() {
            // Under instant recovery the database is open while losers still hold their locks.
            Err(error) if error.is_retryable() => thread::yield_now(),
            outcome => return outcome,
        }
    }
}

fn scan(txn: &mut Txn, table: &Table, from: ListKey, to: ListKey, down: bool, padding: usize) -> Result<Lists, Error> {
    let (from, to) = (stored_key(from), stored_key(to));
    let range = &from[..]..=&to[..];
    let records = if down { txn.scan_rev(table, range) } else { txn.scan(table, range) };
    records
        .map(|record| {
            let (key, value) = record?;
            let key = ListKey::from_be_bytes(key.as_slice().try_into().expect("the suite stores two bytes"));
            Ok((key, loaded_list(&value, padding)))
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
    let mut kept = None;
    for _ in 0..shared.shape.transactions {
        if rng.percent(12) {
            match look(shared, rng, &mut kept) {
                Ok(record) => records.extend(record),
                Err(Error::Io { .. } | Error::Poisoned { .. }) => break,
                Err(Error::SnapshotTooOld { .. }) => kept = None,
                // The opening of a table waited for a change of the catalog.
                Err(error) if error.is_retryable() => kept = None,
                Err(error) => return Err(format!("a snapshot: {error}")),
            }
        }
        if rng.percent(if shared.shape.tight { 12 } else { 4 }) {
            match besides(shared, rng) {
                Err(Error::Io { .. } | Error::Poisoned { .. }) => break,
                Err(Error::Full { .. }) if shared.may_be_full => {}
                Err(Error::NoSuchTable { .. } | Error::TableExists { .. }) | Ok(()) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(format!("the other table: {error}")),
            }
        }
        let begun = shared.clock.fetch_add(1, Ordering::SeqCst);
        let mut events = Vec::new();
        let mut undone = Vec::new();
        let mut txn = shared.db.begin_with(shared.shape.isolation);
        let id = txn.id();
        trace::note(|| format!("{id} begins"));
        let outcome = transaction(shared, &mut txn, rng, &mut events, &mut undone);
        let mut finished = false;
        let status = match outcome {
            Ok(true) => match commit(txn, rng) {
                Ok(()) => Status::Committed(shared.clock.fetch_add(1, Ordering::SeqCst)),
                Err(error) if error.is_retryable() => Status::Aborted,
                Err(Error::Io { .. } | Error::Poisoned { .. }) => {
                    finished = true;
                    Status::Unknown
                }
                Err(Error::Full { .. }) if shared.may_be_full => {
                    finished = true;
                    Status::Unknown
                }
                Err(error) => return Err(format!("commit: {error}")),
            },
            Ok(false) => match txn.abort() {
                Ok(()) => {
                    // The caller may act on what the transaction has read.
                    let read = read_before_writing(&events);
                    if !shared.world.is_unheard() {
                        let status = Status::Committed(shared.clock.fetch_add(1, Ordering::SeqCst));
                        records.push(Record { begun, events: read, status });
                    }
                    Status::Aborted
                }
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
            Err(Error::Full { .. }) if shared.may_be_full => Status::Aborted,
            Err(error) => return Err(error.to_string()),
        };
        let status = if shared.world.is_unheard() && matches!(status, Status::Committed(_)) {
            finished = true;
            Status::Unknown
        } else {
            status
        };
        trace::note(|| format!("{id} is over: {status:?}"));
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

/// A snapshot that is kept, and what it has shown.
struct Kept {
    snapshot: Snapshot,
    lists: Lists,
    /// The records of the table that has nothing to do with the lists.
    others: Others,
}

type Others = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns what a snapshot shows of the table that has nothing to do with the lists.
fn others(snapshot: &Snapshot) -> Result<Others, Error> {
    match snapshot.open_table(OTHER) {
        Ok(table) => snapshot.scan(&table, ..).collect(),
        Err(Error::NoSuchTable { .. }) => Ok(Others::new()),
        Err(error) => Err(error),
    }
}

/// Reads all lists in a snapshot, which counts as a transaction that only reads. A snapshot that is
/// kept must show the same again.
fn look(shared: &Shared, rng: &mut Rng, kept: &mut Option<Kept>) -> Result<Option<Record>, Error> {
    let all = |snapshot: &Snapshot| -> Result<Lists, Error> {
        let mut lists = Lists::new();
        let mut cursor = snapshot.cursor(&shared.table, ..);
        while let Some((key, value)) = cursor.next()? {
            let key = ListKey::from_be_bytes(key.try_into().expect("the suite stores two bytes"));
            lists.insert(key, loaded_list(value, shared.shape.padding));
        }
        Ok(lists)
    };
    if let Some(Kept { snapshot, lists, others: before }) = kept {
        let again = all(snapshot)?;
        assert_eq!(&again, lists, "the snapshot at {} shows something else than before", snapshot.gsn());
        let again = others(snapshot)?;
        assert!(again == *before, "the snapshot at {} shows other records than before", snapshot.gsn());
        let key = rng.within(0..usize::from(shared.shape.keys)) as ListKey;
        let value = snapshot.get(&shared.table, &stored_key(key))?;
        let list = value.map(|bytes| loaded_list(&bytes, shared.shape.padding));
        assert_eq!(list.as_ref(), lists.get(&key), "the snapshot at {} by key and by cursor", snapshot.gsn());
        if rng.percent(50) {
            *kept = None;
        }
        return Ok(None);
    }
    let begun = shared.clock.fetch_add(1, Ordering::SeqCst);
    let snapshot = shared.db.snapshot()?;
    let lists = all(&snapshot)?;
    trace::note(|| format!("a snapshot at {} shows {} lists", snapshot.gsn(), lists.len()));
    if shared.world.is_unheard() {
        return Ok(None);
    }
    let status = Status::Committed(shared.clock.fetch_add(1, Ordering::SeqCst));
    let events = vec![Event::Scan(0, ListKey::MAX, lists.clone())];
    if rng.percent(50) {
        let others = others(&snapshot)?;
        *kept = Some(Kept { snapshot, lists, others });
    }
    Ok(Some(Record { begun, events, status }))
}

/// Returns the reads of a transaction that do not depend on its own appends.
fn read_before_writing(events: &[Event]) -> Vec<Event> {
    events.iter().take_while(|event| !matches!(event, Event::Append(..))).cloned().collect()
}

/// Commits, and waits for the acknowledgement in one of the possible ways. They differ under
/// pipelining.
fn commit(txn: Txn, rng: &mut Rng) -> Result<(), Error> {
    trace::note(|| format!("{} commits", txn.id()));
    let commit = txn.commit_async();
    if rng.percent(70) {
        return commit.wait();
    }
    let outcome = Arc::new((Mutex::new(None), Parker::new()));
    let told = Arc::clone(&outcome);
    commit.on_done(move |result| {
        *told.0.lock() = Some(result);
        told.1.unpark();
    });
    outcome.1.park();
    let result = outcome.0.lock().take();
    result.expect("the outcome is there before the wake-up")
}

/// A table that has nothing to do with the lists.
const OTHER: &str = "other";

/// Makes, fills or removes a table that has nothing to do with the lists, or takes a checkpoint.
fn besides(shared: &Shared, rng: &mut Rng) -> Result<(), Error> {
    match rng.within(0..8) {
        0 => {
            trace::note(|| "drops the other table".to_owned());
            shared.db.drop_table(OTHER)
        }
        1 => {
            trace::note(|| "creates the other table".to_owned());
            shared.db.create_table(OTHER).map(drop)
        }
        2 => {
            trace::note(|| "takes a checkpoint".to_owned());
            shared.db.checkpoint()
        }
        3 => {
            let (tables, metrics) = (shared.db.list()?, shared.db.metrics());
            assert!(tables.contains(&LISTS.to_owned()), "{tables:?}");
            assert!(metrics.dirty_pages <= metrics.pool_pages, "{metrics:?}");
            Ok(())
        }
        _ => {
            trace::note(|| "fills the other table".to_owned());
            let table = shared.db.open_table(OTHER)?;
            for _ in 0..rng.within(1..4) {
                let mut txn = shared.db.begin();
                for _ in 0..rng.within(1..12) {
                    let key = rng.within(0..60) as ListKey;
                    if rng.percent(10) {
                        txn.delete_range(&table, &stored_key(key)[..]..)?;
                    } else if rng.percent(45) {
                        txn.delete(&table, &stored_key(key))?;
                    } else {
                        txn.put(&table, &stored_key(key), &vec![PADDING; rng.within(1..2000)])?;
                    }
                }
                txn.commit()?;
            }
            Ok(())
        }
    }
}

/// Returns the operations of one transaction; whether it wants to commit.
fn transaction(
    shared: &Shared,
    txn: &mut Txn,
    rng: &mut Rng,
    events: &mut Vec<Event>,
    undone: &mut Vec<Event>,
) -> Result<bool, Error> {
    let padding = shared.shape.padding;
    // Other rules govern the acknowledgement of a transaction that only reads.
    let choices = if rng.percent(25) { 9..19 } else { 0..20 };
    for _ in 0..rng.within(1..6) {
        let key = rng.within(0..usize::from(shared.shape.keys)) as ListKey;
        match rng.within(choices.clone()) {
            0..9 => {
                let locked = shared.shape.isolation == Isolation::ReadCommitted || rng.percent(70);
                if !append(shared, txn, key, locked, events)? {
                    return Ok(false);
                }
            }
            9..14 => events.push(Event::Read(key, read(txn, shared, key, false)?)),
            14..19 => {
                let to = key + rng.within(0..8) as ListKey;
                let (from, to) = if rng.percent(15) { (0, ListKey::MAX) } else { (key, to) };
                trace::note(|| format!("{} scans keys {from} to {to}", txn.id()));
                events.push(Event::Scan(from, to, scan(txn, &shared.table, from, to, rng.percent(40), padding)?));
            }
            _ => {
                let savepoint = txn.savepoint();
                let mut tried = Vec::new();
                let result = append(shared, txn, key, true, &mut tried);
                // The read remains; the append belongs to a transaction without effect.
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

fn read(txn: &mut Txn, shared: &Shared, key: ListKey, for_update: bool) -> Result<Vec<Element>, Error> {
    let (table, stored) = (&shared.table, stored_key(key));
    let value = if for_update { txn.get_for_update(table, &stored)? } else { txn.get(table, &stored)? };
    let list = value.map(|bytes| loaded_list(&bytes, shared.shape.padding)).unwrap_or_default();
    trace::note(|| format!("{} reads key {key}: {} elements up to {:?}", txn.id(), list.len(), list.last()));
    Ok(list)
}

/// Appends an element; `false` if another transaction made the record first, which weak isolation
/// allows.
fn append(shared: &Shared, txn: &mut Txn, key: ListKey, locked: bool, events: &mut Vec<Event>) -> Result<bool, Error> {
    let mut list = read(txn, shared, key, locked)?;
    let is_new = list.is_empty();
    events.push(Event::Read(key, list.clone()));
    let element = shared.elements.fetch_add(1, Ordering::SeqCst);
    list.push(element);
    let value = stored_list(&list, shared.shape.padding);
    trace::note(|| format!("{} appends {element} to key {key}", txn.id()));
    // Recorded before the attempt: an element must not appear after an error either.
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
