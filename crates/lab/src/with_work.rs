//! A workload whose transactions have more work, for controlled runs.
//!
//! A transaction of the papers' storage manager takes a hundred microseconds and more, one of
//! Duramen some microseconds. Where a finding depends on the proportion of that work to what the
//! log takes, a controlled run restores it: each transaction keeps its processor for a stated time.
//! A fifth of the time follows the begin and each of the first four operations, whose locks the
//! transaction then has; what is left of it comes before the commit. TPC-B has four operations.

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use duramen::{Db, Table};
use duramen_sync::clock::Ticks;
use duramen_workloads::store::{
    Access, Connection, DuramenConnection, DuramenTransaction, Pending, ScanRange, Store, Transaction,
};
use duramen_workloads::{AuditReport, LoadOutcome, LoadProgress, Request, Result, Session, Workload};

/// The work comes in so many parts.
const PARTS: u32 = 5;

/// How controlled runs with more work differ, for the page.
pub(crate) fn control(work: &str) -> String {
    format!(
        "In the controlled runs, each transaction keeps its processor for another {work}: for a fifth of that after \
         its begin and after each of its first four operations, and for what is left before it commits."
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

/// The work that a transaction has still to do, in parts of equal length.
#[derive(Clone, Copy)]
struct Work {
    clock: Ticks,
    part: u64,
    parts: u32,
}

impl Work {
    fn new(work: Duration) -> Self {
        let (clock, part) = (Ticks::calibrated(), work / PARTS);
        Self { clock, part: clock.of_nanos(u64::try_from(part.as_nanos()).unwrap_or(u64::MAX)), parts: PARTS }
    }

    fn part(&mut self) {
        if self.parts > 0 {
            self.parts -= 1;
            self.pass(self.part);
        }
    }

    fn rest(self) {
        self.pass(self.part * u64::from(self.parts));
    }

    fn pass(&self, ticks: u64) {
        if ticks > 0 {
            self.clock.wait_until(self.clock.now() + ticks);
        }
    }
}

/// A database whose transactions have more work.
#[derive(Clone)]
struct Working {
    db: Db,
    work: Work,
}

impl Working {
    fn new(db: &Db, work: Duration) -> Self {
        Self { db: db.clone(), work: Work::new(work) }
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
        Ok(WorkingConnection { connection: self.db.connect()?, work: self.work })
    }

    fn quiesce(&self) -> Result<()> {
        self.db.quiesce()
    }
}

struct WorkingConnection {
    connection: DuramenConnection,
    work: Work,
}

impl Connection for WorkingConnection {
    type Table = Table;
    type Transaction<'c> = WorkingTransaction;

    fn begin(&mut self, access: Access) -> Result<WorkingTransaction> {
        let (txn, mut work) = (self.connection.begin(access)?, self.work);
        work.part();
        Ok(WorkingTransaction { txn, work })
    }
}

struct WorkingTransaction {
    txn: DuramenTransaction,
    work: Work,
}

impl WorkingTransaction {
    /// Does an operation, and its part of the work.
    fn operate<R>(&mut self, operation: impl FnOnce(&mut DuramenTransaction) -> R) -> R {
        let result = operation(&mut self.txn);
        self.work.part();
        result
    }

    /// Returns the transaction when its work is done.
    fn worked(self) -> DuramenTransaction {
        self.work.rest();
        self.txn
    }
}

impl Transaction for WorkingTransaction {
    type Table = Table;

    fn get<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.operate(|txn| txn.get(table, key, read))
    }

    fn get_for_update<R>(&mut self, table: &Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.operate(|txn| txn.get_for_update(table, key, read))
    }

    fn insert(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        self.operate(|txn| txn.insert(table, key, row))
    }

    fn put(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<()> {
        self.operate(|txn| txn.put(table, key, row))
    }

    fn update(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<bool> {
        self.operate(|txn| txn.update(table, key, row))
    }

    fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.operate(|txn| txn.delete(table, key))
    }

    fn scan(
        &mut self,
        table: &Table,
        range: ScanRange<'_>,
        visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<()> {
        self.operate(|txn| txn.scan(table, range, visit))
    }

    fn modify<R>(&mut self, table: &Table, key: &[u8], change: impl FnOnce(&mut Vec<u8>) -> R) -> Result<Option<R>> {
        self.operate(|txn| txn.modify(table, key, change))
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

#[cfg(test)]
mod tests {
    use duramen::Options;
    use duramen_sync::clock::Instant;
    use duramen_workloads::store::Acknowledge;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_transaction_takes_as_long_as_stated_and_does_what_it_did() {
        const WORK: Duration = Duration::from_millis(20);
        let db = Db::in_memory(Options::small()).unwrap();
        let request = Request { scale: Some(1), rows_per_unit: Some(10), ..Request::default() };
        let workload = WithWork::new(request, "tpcb", &db, WORK).unwrap();
        workload.load(&db, &mut |_| {}).unwrap();
        let mut session = workload.session(&db, 0).unwrap();
        session.draw(&mut StdRng::seed_from_u64(1));
        let start = Instant::now();
        session.execute(Acknowledge::OnReturn).unwrap();
        assert!(start.elapsed() >= WORK, "{:?}", start.elapsed());
        session.acknowledged().unwrap();
        drop(session);
        assert!(workload.audit(&db).unwrap().is_ok());
    }

    #[test]
    fn the_rest_of_the_work_comes_before_the_commit() {
        let mut work = Work::new(Duration::from_millis(20));
        let start = Instant::now();
        (0..2).for_each(|_| work.part());
        assert!(start.elapsed() >= Duration::from_millis(8));
        work.rest();
        assert!(start.elapsed() >= Duration::from_millis(20));
        (0..9).for_each(|_| work.part());
        assert_eq!(work.parts, 0, "operations behind the fourth have no part");
    }
}
