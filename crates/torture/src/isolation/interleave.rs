//! Runs programs in a given interleaving, each on a thread of its own, one step at a time.
//!
//! A step that has not ended after a short while counts as waiting for a lock; its transaction
//! loses its turns until the step ends. If a step was merely slow, the result is another
//! interleaving, which is judged as it ran.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use duramen::{Db, Error, Isolation, Table, Txn};
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Condvar, Mutex};

use super::program::{Memory, Op, Program, Seen, SmallKey, State, Store};

/// How long a step may take before it counts as waiting.
const STEP_LIMIT: Duration = Duration::from_millis(2);

/// The same where a test is about one interleaving.
const PATIENT_STEP_LIMIT: Duration = Duration::from_millis(10);

/// How long all transactions may wait before that counts as a hang.
const HANG: Duration = Duration::from_secs(15);

/// How a transaction ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// Committed.
    Committed,
    /// Aborted by its program.
    Aborted,
    /// Aborted because the engine said so.
    Victim,
}

/// What happened when programs ran.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The table before.
    pub before: State,
    /// The table after.
    pub after: State,
    /// What each operation of each transaction showed.
    pub seen: Vec<Vec<Seen>>,
    /// How each transaction ended.
    pub ends: Vec<End>,
    /// The order in which steps were begun.
    pub begun: Vec<usize>,
    /// Steps that waited.
    pub waits: u64,
}

impl fmt::Display for Execution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  before {:?}, after {:?}, steps begun in the order {:?}", self.before, self.after, self.begun)?;
        for (txn, (seen, end)) in self.seen.iter().zip(&self.ends).enumerate() {
            let seen: Vec<_> = seen.iter().map(ToString::to_string).collect();
            writeln!(f, "  T{txn} {end:?}: saw {}", seen.join(", "))?;
        }
        Ok(())
    }
}

/// Returns every interleaving of programs of these lengths.
pub fn interleavings(lengths: &[usize]) -> Vec<Vec<usize>> {
    fn extend(left: &mut [usize], schedule: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|count| *count == 0) {
            all.push(schedule.clone());
        }
        for txn in 0..left.len() {
            if left[txn] > 0 {
                left[txn] -= 1;
                schedule.push(txn);
                extend(left, schedule, all);
                schedule.pop();
                left[txn] += 1;
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut lengths.to_vec(), &mut Vec::new(), &mut all);
    all
}

/// Returns the number of interleavings of programs of these lengths.
pub fn count_interleavings(lengths: &[usize]) -> u64 {
    let mut placed = 0;
    lengths.iter().fold(1, |count, length| {
        (1..=*length as u64).fold(count, |count, taken| {
            placed += 1;
            count * placed / taken
        })
    })
}

enum Command {
    Begin(Isolation),
    Run(Op),
    Stop,
}

enum Reply {
    Seen(Seen),
    Ended(End),
    Failed(Error),
}

struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Mailbox<T> {
    fn new() -> Self {
        Self { queue: Mutex::new(VecDeque::new()), arrived: Condvar::new() }
    }

    fn send(&self, message: T) {
        self.queue.lock().push_back(message);
        self.arrived.notify_one();
    }

    fn receive(&self, wait: Duration) -> Option<T> {
        let deadline = Instant::now() + wait;
        let mut queue = self.queue.lock();
        loop {
            if let Some(message) = queue.pop_front() {
                return Some(message);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.arrived.wait_for(&mut queue, left);
        }
    }
}

struct Worker {
    commands: Arc<Mailbox<Command>>,
    replies: Arc<Mailbox<Reply>>,
    thread: Option<JoinHandle<()>>,
}

/// Runs programs on one table of one database.
pub struct Interleaver {
    db: Db,
    table: Table,
    workers: Vec<Worker>,
    broken: Cell<bool>,
    step_limit: Duration,
}

/// The records of a table as a [`Store`].
struct Records<'a> {
    txn: &'a mut Txn,
    table: &'a Table,
}

fn stored_key(key: SmallKey) -> [u8; 2] {
    [b'k', key]
}

fn stored_value(value: i64) -> [u8; 8] {
    value.to_le_bytes()
}

fn loaded_value(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().expect("the suite stores eight bytes"))
}

fn unless<T>(result: Result<(), Error>, refused: impl Fn(&Error) -> bool, yes: T, no: T) -> Result<T, Error> {
    match result {
        Ok(()) => Ok(yes),
        Err(error) if refused(&error) => Ok(no),
        Err(error) => Err(error),
    }
}

impl Store for Records<'_> {
    type Error = Error;

    fn get(&mut self, key: SmallKey, for_update: bool) -> Result<Option<i64>, Error> {
        let key = stored_key(key);
        let value = if for_update { self.txn.get_for_update(self.table, &key) } else { self.txn.get(self.table, &key) };
        Ok(value?.map(|bytes| loaded_value(&bytes)))
    }

    fn put(&mut self, key: SmallKey, value: i64) -> Result<(), Error> {
        self.txn.put(self.table, &stored_key(key), &stored_value(value))
    }

    fn insert(&mut self, key: SmallKey, value: i64) -> Result<bool, Error> {
        let result = self.txn.insert(self.table, &stored_key(key), &stored_value(value));
        unless(result, |error| matches!(error, Error::KeyExists), true, false)
    }

    fn update(&mut self, key: SmallKey, value: i64) -> Result<bool, Error> {
        let result = self.txn.update(self.table, &stored_key(key), &stored_value(value));
        unless(result, |error| matches!(error, Error::KeyNotFound), true, false)
    }

    fn delete(&mut self, key: SmallKey) -> Result<bool, Error> {
        self.txn.delete(self.table, &stored_key(key))
    }

    fn delete_range(&mut self, from: SmallKey, to: SmallKey) -> Result<i64, Error> {
        let (from, to) = (stored_key(from), stored_key(to));
        Ok(self.txn.delete_range(self.table, &from[..]..=&to[..])? as i64)
    }

    fn scan(&mut self, from: SmallKey, to: SmallKey, down: bool, limit: usize) -> Result<Vec<(SmallKey, i64)>, Error> {
        let (from, to) = (stored_key(from), stored_key(to));
        let range = &from[..]..=&to[..];
        let scan = if down { self.txn.scan_rev(self.table, range) } else { self.txn.scan(self.table, range) };
        scan.take(limit).map(|record| record.map(|(key, value)| (key[1], loaded_value(&value)))).collect()
    }
}

fn work(db: &Db, table: &Table, commands: &Mailbox<Command>, replies: &Mailbox<Reply>) {
    let mut current: Option<(Txn, Memory)> = None;
    loop {
        let Some(command) = commands.receive(HANG) else { continue };
        let reply = match command {
            Command::Stop => return,
            Command::Begin(isolation) => {
                current = Some((db.begin_with(isolation), Memory::default()));
                continue;
            }
            Command::Run(op) => match (op, current.take()) {
                (_, None) => Reply::Failed(Error::MustAbort),
                (Op::Commit, Some((txn, _))) => match txn.commit() {
                    Ok(()) => Reply::Ended(End::Committed),
                    Err(error) if error.is_retryable() => Reply::Ended(End::Victim),
                    Err(error) => Reply::Failed(error),
                },
                (Op::Abort, Some((txn, _))) => match txn.abort() {
                    Ok(()) => Reply::Ended(End::Aborted),
                    Err(error) => Reply::Failed(error),
                },
                (op, Some((mut txn, mut memory))) => match memory.run(op, &mut Records { txn: &mut txn, table }) {
                    Ok(seen) => {
                        current = Some((txn, memory));
                        Reply::Seen(seen)
                    }
                    Err(error) if error.is_retryable() => match txn.abort() {
                        Ok(()) => Reply::Ended(End::Victim),
                        Err(error) => Reply::Failed(error),
                    },
                    Err(error) => Reply::Failed(error),
                },
            },
        };
        replies.send(reply);
    }
}

impl Drop for Interleaver {
    fn drop(&mut self) {
        for worker in &self.workers {
            worker.commands.send(Command::Stop);
        }
        // Threads that hang in the engine are left behind.
        let wait_for_them = !self.broken.get() && !thread::panicking();
        for thread in self.workers.iter_mut().filter_map(|worker| worker.thread.take()).filter(|_| wait_for_them) {
            let _ = thread.join();
        }
    }
}

/// The progress of one execution.
struct Progress<'a> {
    programs: &'a [Program],
    execution: Execution,
    next: Vec<usize>,
    waiting: Vec<bool>,
    ended: Vec<bool>,
}

impl Interleaver {
    /// Threads for up to `transactions` at once on `table`.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn new(db: &Db, table: &Table, transactions: usize) -> std::io::Result<Self> {
        let workers = (0..transactions).map(|number| {
            let (commands, replies) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
            let (db, table, inbox, outbox) = (db.clone(), table.clone(), Arc::clone(&commands), Arc::clone(&replies));
            let body = move || work(&db, &table, &inbox, &outbox);
            let thread = Some(thread::spawn(&format!("torture-T{number}"), body)?);
            Ok(Worker { commands, replies, thread })
        });
        Ok(Self {
            db: db.clone(),
            table: table.clone(),
            workers: workers.collect::<std::io::Result<_>>()?,
            broken: Cell::new(false),
            step_limit: STEP_LIMIT,
        })
    }

    /// Waits longer before a step counts as waiting: for a test of one interleaving, which a busy
    /// machine must not change.
    #[must_use]
    pub fn patient(self) -> Self {
        let mut patient = self;
        patient.step_limit = PATIENT_STEP_LIMIT;
        patient
    }

    /// Gives the table these contents.
    fn reset(&self, state: &State) -> Result<(), Error> {
        let mut txn = self.db.begin_with(Isolation::Serializable);
        let mut records = Records { txn: &mut txn, table: &self.table };
        for (key, _) in records.scan(0, SmallKey::MAX, false, usize::MAX)? {
            if !state.contains_key(&key) {
                records.delete(key)?;
            }
        }
        for (key, value) in state {
            records.put(*key, *value)?;
        }
        txn.commit()
    }

    fn contents(&self) -> Result<State, Error> {
        let mut txn = self.db.begin_with(Isolation::Serializable);
        let records = Records { txn: &mut txn, table: &self.table }.scan(0, SmallKey::MAX, false, usize::MAX)?;
        txn.commit()?;
        Ok(records.into_iter().collect())
    }

    /// Runs `programs` from the contents `before` in the order of `schedule`, as far as locks
    /// allow.
    ///
    /// # Errors
    /// An error that is no refusal of a lock, or a hang. Nothing more can be run then.
    pub fn run(
        &self,
        programs: &[Program],
        before: &State,
        schedule: &[usize],
        isolation: Isolation,
    ) -> Result<Execution, String> {
        assert!(!self.broken.replace(true), "an earlier execution failed");
        let execution = self.try_run(programs, before, schedule, isolation)?;
        self.broken.set(false);
        Ok(execution)
    }

    /// Returns whether an execution has failed.
    pub fn is_broken(&self) -> bool {
        self.broken.get()
    }

    fn try_run(
        &self,
        programs: &[Program],
        before: &State,
        schedule: &[usize],
        isolation: Isolation,
    ) -> Result<Execution, String> {
        self.reset(before).map_err(|error| format!("cannot prepare the table: {error}"))?;
        let count = programs.len();
        let mut progress = Progress {
            programs,
            execution: Execution {
                before: before.clone(),
                after: State::new(),
                seen: vec![Vec::new(); count],
                ends: vec![End::Victim; count],
                begun: Vec::new(),
                waits: 0,
            },
            next: vec![0; count],
            waiting: vec![false; count],
            ended: vec![false; count],
        };
        self.workers[..count].iter().for_each(|worker| worker.commands.send(Command::Begin(isolation)));
        for txn in schedule {
            self.collect_all(&mut progress, Duration::ZERO)?;
            self.turn(&mut progress, *txn)?;
        }
        let mut stuck_since = Instant::now();
        while !progress.ended.iter().all(|ended| *ended) {
            let runnable = (0..count).find(|txn| !progress.ended[*txn] && !progress.waiting[*txn]);
            match runnable {
                Some(txn) => {
                    self.turn(&mut progress, txn)?;
                    stuck_since = Instant::now();
                }
                None => self.collect_all(&mut progress, self.step_limit)?,
            }
            if stuck_since.elapsed() > HANG {
                return Err(format!("all transactions wait: {}", progress.execution));
            }
        }
        progress.execution.after = self.contents().map_err(|error| format!("cannot read the table: {error}"))?;
        Ok(progress.execution)
    }

    /// Begins the next step of `txn` unless it waits or has ended, and waits a little for its end.
    fn turn(&self, progress: &mut Progress<'_>, txn: usize) -> Result<(), String> {
        if progress.ended[txn] || progress.waiting[txn] {
            return Ok(());
        }
        let op = progress.programs[txn][progress.next[txn]];
        progress.next[txn] += 1;
        progress.execution.begun.push(txn);
        self.workers[txn].commands.send(Command::Run(op));
        progress.waiting[txn] = true;
        self.collect(progress, txn, self.step_limit)?;
        progress.execution.waits += u64::from(progress.waiting[txn]);
        if progress.ended[txn] {
            // Its locks are free now: the transactions that waited for them continue before the
            // next step.
            self.collect_all(progress, self.step_limit)?;
        }
        Ok(())
    }

    fn collect_all(&self, progress: &mut Progress<'_>, wait: Duration) -> Result<(), String> {
        (0..progress.waiting.len()).try_for_each(|txn| self.collect(progress, txn, wait))
    }

    /// Takes the reply of `txn`, if it waits for one and one comes in time.
    fn collect(&self, progress: &mut Progress<'_>, txn: usize, wait: Duration) -> Result<(), String> {
        if !progress.waiting[txn] {
            return Ok(());
        }
        let Some(reply) = self.workers[txn].replies.receive(wait) else { return Ok(()) };
        progress.waiting[txn] = false;
        match reply {
            Reply::Seen(seen) => progress.execution.seen[txn].push(seen),
            Reply::Ended(end) => {
                progress.execution.seen[txn].push(Seen::Nothing);
                progress.execution.ends[txn] = end;
                progress.ended[txn] = true;
            }
            Reply::Failed(error) => return Err(format!("T{txn} failed: {error}\n{}", progress.execution)),
        }
        Ok(())
    }
}
