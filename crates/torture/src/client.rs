//! Runs scripts against a database and compares every answer with the oracle's.

use std::collections::BTreeMap;

use duramen::{Db, Error, LogDevice, Options, Result, Savepoint, Scheme, Table, TierPlace, Txn};
use duramen_io::SimDisk;
use duramen_sync::{Arc, trace};

use crate::model::Model;
use crate::oracle::Oracle;
use crate::step::{Action, Outcome, Slot, Step};

/// Why a script ended early.
#[derive(Debug)]
pub enum Stop {
    /// The engine returned an error that is not an answer to the step.
    Error {
        /// The step, for people.
        step: String,
        /// The error.
        error: Box<Error>,
        /// What the database holds if the step took effect in spite of the error, for steps that
        /// may.
        in_flight: Option<Box<Model>>,
    },
    /// The engine gave a wrong answer.
    Wrong(String),
}

/// What happens after a step that met an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnError {
    /// The script ends.
    Stop,
    /// The transaction is aborted, the rest of its steps is skipped and the script goes on.
    GiveUpTransaction,
}

/// One client of a database on a simulated disk.
pub struct Client {
    // Fields are dropped in this order: the transactions first, the database last.
    open: BTreeMap<Slot, Session>,
    tables: BTreeMap<String, Table>,
    db: Option<Db>,
    disk: SimDisk,
    options: Options,
    /// The reference that it is compared with.
    pub oracle: Oracle,
    /// The committed contents after each change, oldest first, if they are recorded.
    pub history: Option<Vec<Model>>,
    /// Whether a transaction was given up, so later steps may not find what it would have left.
    gave_up: bool,
}

/// Returns the beginning of a text that may be long.
fn shortened(text: String) -> String {
    const LONGEST: usize = 100;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

fn unheard() -> Error {
    Error::Io { reason: "the power is off".to_owned() }
}

struct Session {
    txn: Txn,
    savepoints: Vec<Savepoint>,
}

impl Client {
    /// Opens the database on `disk`, which holds `contents`.
    ///
    /// # Errors
    /// The engine's.
    pub fn open(disk: &SimDisk, options: &Options, contents: Model) -> Result<Self> {
        let db = Db::open_on(Arc::new(disk.clone()), options.clone())?;
        Ok(Self::with(db, disk, options, contents))
    }

    /// Returns a client of a database that is open already.
    pub fn with(db: Db, disk: &SimDisk, options: &Options, contents: Model) -> Self {
        Self {
            open: BTreeMap::new(),
            tables: BTreeMap::new(),
            db: Some(db),
            disk: disk.clone(),
            options: options.clone(),
            oracle: Oracle::new(contents),
            history: None,
            gave_up: false,
        }
    }

    /// Returns the database, unless a failed reopening left none.
    pub fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// Runs `steps`; `on_error` decides what happens after a step that meets an error.
    ///
    /// # Errors
    /// The first wrong answer, or the first error that ends the script.
    pub fn run(&mut self, steps: &[Step], mut on_error: impl FnMut(&Error) -> OnError) -> Result<(), Stop> {
        for step in steps {
            let in_flight = self.oracle.after(step).map(Box::new);
            let mut expected = self.oracle.clone();
            let outcome = expected.apply(step);
            if outcome == Outcome::Skipped || self.lost_its_record(step, &outcome) {
                continue;
            }
            trace::note(|| shortened(format!("does: {step}")));
            let answer = self.execute(step);
            trace::note(|| match &answer {
                Ok(found) => shortened(format!("gets: {found}")),
                Err(error) => shortened(format!("gets: {error}")),
            });
            // A ring in persistent memory does not report that the power is off, so this answer
            // does not count.
            let answer = answer.and_then(|found| if self.is_unheard() { Err(unheard()) } else { Ok(found) });
            match answer {
                Ok(found) if found == outcome => {
                    self.oracle = expected;
                    if let Some(history) = &mut self.history
                        && history.last() != Some(&self.oracle.committed)
                    {
                        history.push(self.oracle.committed.clone());
                    }
                }
                Ok(found) => return Err(Stop::Wrong(format!("{step}: expected {outcome}, got {found}"))),
                // Without a database the script cannot continue.
                Err(error) => match self.db.as_ref().map_or(OnError::Stop, |_| on_error(&error)) {
                    OnError::Stop => {
                        return Err(Stop::Error { step: step.to_string(), error: Box::new(error), in_flight });
                    }
                    OnError::GiveUpTransaction => self.give_up(step),
                },
            }
        }
        Ok(())
    }

    fn is_unheard(&self) -> bool {
        let has_memory = self.options.page_tier.as_ref().is_some_and(|tier| matches!(tier.place, TierPlace::Memory(_)));
        let has_ring = matches!(self.options.log_device, LogDevice::Nvm(_));
        let is_silent = has_ring || has_memory || self.options.scheme != Scheme::Wal;
        is_silent && self.disk.crashed_in().is_some()
    }

    /// Returns whether a step of several interleaved transactions was to change a record of a
    /// transaction that has been given up. The step would not find the record and would lock its
    /// gap, and the only thread would wait for itself.
    fn lost_its_record(&self, step: &Step, outcome: &Outcome) -> bool {
        let missing = matches!(outcome, Outcome::Existed(false) | Outcome::KeyNotFound);
        self.gave_up && missing && matches!(step, Step::Act(..)) && self.open.len() > 1
    }

    fn give_up(&mut self, step: &Step) {
        self.gave_up = true;
        if let Step::Begin(slot)
        | Step::Act(slot, ..)
        | Step::Savepoint(slot)
        | Step::RollbackTo(slot, _)
        | Step::Commit(slot)
        | Step::Abort(slot) = step
        {
            self.oracle.forget(*slot);
            // Dropping an unfinished transaction aborts it.
            self.open.remove(slot);
        }
    }

    /// Aborts every open transaction; the errors are given back, since a dead disk may cause some.
    pub fn abort_all(&mut self) -> Vec<Error> {
        let open = std::mem::take(&mut self.open);
        open.keys().for_each(|slot| self.oracle.forget(*slot));
        open.into_values().filter_map(|session| session.txn.abort().err()).collect()
    }

    /// Closes the database.
    ///
    /// # Errors
    /// The engine's.
    pub fn close(mut self) -> Result<()> {
        self.abort_all();
        self.db.take().map_or(Ok(()), Db::close)
    }

    fn live(&self) -> Result<&Db> {
        self.db.as_ref().ok_or(Error::Closed)
    }

    fn table(&mut self, name: &str) -> Result<Table> {
        if let Some(table) = self.tables.get(name) {
            return Ok(table.clone());
        }
        let table = self.live()?.open_table(name)?;
        self.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    fn execute(&mut self, step: &Step) -> Result<Outcome> {
        match self.try_execute(step) {
            Ok(outcome) => Ok(outcome),
            Err(Error::KeyExists) => Ok(Outcome::KeyExists),
            Err(Error::KeyNotFound) => Ok(Outcome::KeyNotFound),
            Err(Error::TableExists { .. }) => Ok(Outcome::TableExists),
            Err(Error::TableNotEmpty { .. }) => Ok(Outcome::TableNotEmpty),
            Err(Error::NoSuchTable { .. }) => Ok(Outcome::NoSuchTable),
            Err(error) => Err(error),
        }
    }

    fn try_execute(&mut self, step: &Step) -> Result<Outcome> {
        match step {
            Step::Begin(slot) => {
                let session = Session { txn: self.live()?.begin(), savepoints: Vec::new() };
                self.open.insert(*slot, session);
            }
            Step::Act(slot, table, action) => {
                let table = self.table(table)?;
                return act(&mut self.session(*slot).txn, &table, action);
            }
            Step::Savepoint(slot) => {
                let session = self.session(*slot);
                let savepoint = session.txn.savepoint();
                session.savepoints.push(savepoint);
            }
            Step::RollbackTo(slot, number) => {
                let session = self.session(*slot);
                session.txn.rollback_to(&session.savepoints[*number])?;
                session.savepoints.truncate(number + 1);
            }
            Step::Commit(slot) => self.take_session(*slot).txn.commit_async().wait()?,
            Step::Abort(slot) => self.take_session(*slot).txn.abort()?,
            Step::CreateTable(name) => {
                let table = self.live()?.create_table(name)?;
                self.tables.insert(name.clone(), table);
            }
            Step::DropTable(name) => {
                self.tables.remove(name);
                self.live()?.drop_table(name)?;
            }
            Step::BulkLoad(name, records) => {
                let mut load = self.live()?.bulk_load(name)?;
                records.iter().try_for_each(|(key, value)| load.add(key, value))?;
                self.tables.remove(name);
                self.tables.insert(name.clone(), load.finish()?);
            }
            Step::Checkpoint => self.live()?.checkpoint()?,
            Step::Reopen => {
                assert!(self.open.is_empty(), "a script reopens when no transaction is open");
                self.tables.clear();
                self.db.take().map_or(Ok(()), Db::close)?;
                self.db = Some(Db::open_on(Arc::new(self.disk.clone()), self.options.clone())?);
            }
            Step::Restart => {
                self.open.clear();
                self.tables.clear();
                self.db = None;
                self.db = Some(Db::open_on(Arc::new(self.disk.clone()), self.options.clone())?);
            }
        }
        Ok(Outcome::Done)
    }

    fn session(&mut self, slot: Slot) -> &mut Session {
        self.open.get_mut(&slot).expect("the oracle knows the same open transactions")
    }

    fn take_session(&mut self, slot: Slot) -> Session {
        self.open.remove(&slot).expect("the oracle knows the same open transactions")
    }
}

fn act(txn: &mut Txn, table: &Table, action: &Action) -> Result<Outcome> {
    let value = |found: Option<Vec<u8>>| Outcome::Value(found.map(Into::into));
    Ok(match action {
        Action::Get(key) => value(txn.get(table, key)?),
        Action::GetForUpdate(key) => value(txn.get_for_update(table, key)?),
        Action::Insert(key, value) => txn.insert(table, key, value).map(|()| Outcome::Done)?,
        Action::Put(key, value) => txn.put(table, key, value).map(|()| Outcome::Done)?,
        Action::Update(key, value) => txn.update(table, key, value).map(|()| Outcome::Done)?,
        Action::Delete(key) => Outcome::Existed(txn.delete(table, key)?),
        Action::DeleteRange(range) => Outcome::Count(txn.delete_range(table, range.as_bounds())?),
        Action::Scan { range, reverse, limit } => {
            let bounds = range.as_bounds();
            let scan = if *reverse { txn.scan_rev(table, bounds) } else { txn.scan(table, bounds) };
            let records = scan.take(*limit).map(|record| record.map(|(key, value)| (key, value.into())));
            Outcome::Records(records.collect::<Result<_>>()?)
        }
    })
}
