//! A workload whose transactions have more work, for controlled runs.
//!
//! A transaction of the papers' storage manager takes a hundred microseconds and more, one of
//! Duramen some microseconds. Where a finding depends on the proportion of that work to what the
//! log takes, a controlled run restores it: each transaction keeps its processor for a stated time,
//! [`BEFORE`] of it before its first operation and the rest, with its locks, before its commit. So
//! long would it have locks if its work were spread evenly over the begin and the four operations
//! of TPC-B.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use duramen::{Db, Table};
use duramen_sync::clock::Ticks;
use duramen_workloads::store::{
    Access, Connection, DuramenConnection, DuramenTransaction, Pending, ScanRange, Store, Transaction,
};
use duramen_workloads::{AuditReport, LoadOutcome, LoadProgress, Request, Result, Session, Workload};

/// Share of the work, one in so many parts, that comes before a transaction's first operation.
const BEFORE: u32 = 5;

/// How controlled runs with more work differ, for the page.
pub(crate) fn control(work: &str) -> String {
    format!(
        "In the controlled runs, each transaction keeps its processor for another {work}, a fifth of that before it \
         begins and the rest, with its locks, before it commits."
    )
}

/// A workload, with this much more work in each of its transactions.
pub(crate) struct WithWork {
    workload: Box<dyn Workload<Working>>,
    work: Duration,
}

impl WithWork {
    /// Returns the workload called `name` over the tables of `db`.
    pub(crate) fn new(request: Request, name: &str, db: &Db, work: Duration) -> Result<Self> {
        Ok(Self { workload: request.workload(name, &Working::new(db, Duration::ZERO))?, work })
    }
}

impl fmt::Debug for WithWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithWork").field("workload", &self.workload).field("work", &self.work).finish()
    }
}

/// Loading and audits have no more work than without.
impl Workload<Db> for WithWork {
    fn name(&self) -> &'static str {
        self.workload.name()
    }

    fn scale(&self) -> String {
        self.workload.scale()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.workload.kinds()
    }

    fn load(&self, db: &Db, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        self.workload.load(&Working::new(db, Duration::ZERO), observe)
    }

    fn session(&self, db: &Db, client: u32) -> Result<Box<dyn Session>> {
        self.workload.session(&Working::new(db, self.work), client)
    }

    fn audit(&self, db: &Db) -> Result<AuditReport> {
        self.workload.audit(&Working::new(db, Duration::ZERO))
    }
}

/// A part of a transaction's work.
#[derive(Clone, Copy)]
struct Part {
    clock: Ticks,
    ticks: u64,
}

impl Part {
    fn new(clock: Ticks, work: Duration) -> Self {
        Self { clock, ticks: clock.of_nanos(u64::try_from(work.as_nanos()).unwrap_or(u64::MAX)) }
    }

    fn work(&self) {
        if self.ticks > 0 {
            self.clock.wait_until(self.clock.now() + self.ticks);
        }
    }
}

/// A database whose transactions have more work.
#[derive(Clone)]
struct Working {
    db: Db,
    before: Part,
    within: Part,
}

impl Working {
    fn new(db: &Db, work: Duration) -> Self {
        let (clock, before) = (Ticks::calibrated(), work / BEFORE);
        Self { db: db.clone(), before: Part::new(clock, before), within: Part::new(clock, work - before) }
    }
}

impl Store for Working {
    type Table = Table;
    type Connection = WorkingConnection;

    fn engine(&self) -> &'static str {
        self.db.engine()
    }

    fn find_table(&self, name: &str) -> Result<Option<Table>> {
        self.db.find_table(name)
    }

    fn make_table(&self, name: &str) -> Result<Table> {
        self.db.make_table(name)
    }

    fn connect(&self) -> Result<WorkingConnection> {
        Ok(WorkingConnection { connection: self.db.connect()?, before: self.before, within: self.within })
    }

    fn quiesce(&self) -> Result<()> {
        self.db.quiesce()
    }
}

struct WorkingConnection {
    connection: DuramenConnection,
    before: Part,
    within: Part,
}

impl Connection for WorkingConnection {
    type Table = Table;
    type Transaction<'c> = WorkingTransaction;

    fn begin(&mut self, access: Access) -> Result<WorkingTransaction> {
        let txn = self.connection.begin(access)?;
        self.before.work();
        Ok(WorkingTransaction { txn, within: self.within })
    }
}

struct WorkingTransaction {
    txn: DuramenTransaction,
    within: Part,
}

impl WorkingTransaction {
    /// Returns the transaction when its work is done.
    fn worked(self) -> DuramenTransaction {
        self.within.work();
        self.txn
    }
}

impl Transaction for WorkingTransaction {
    type Table = Table;

    fn get<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.txn.get(table, key, read)
    }

    fn get_for_update<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.txn.get_for_update(table, key, read)
    }

    fn insert(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        self.txn.insert(table, key, row)
    }

    fn put(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<()> {
        self.txn.put(table, key, row)
    }

    fn update(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        self.txn.update(table, key, row)
    }

    fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.txn.delete(table, key)
    }

    fn scan(
        &mut self,
        table: &Table,
        range: ScanRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.txn.scan(table, range, visit)
    }

    fn modify<R>(&mut self, table: &Table, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        self.txn.modify(table, key, change)
    }

    fn commit(self) -> Result<()> {
        self.worked().commit()
    }

    fn abort(self) -> Result<()> {
        self.worked().abort()
    }

    fn commit_later(self) -> Result<Pending> {
        self.worked().commit_later()
    }

    fn abort_later(self) -> Result<Pending> {
        self.worked().abort_later()
    }
}
