//! Taking a trace: a store that writes down what transactions do with the rows of its tables.
//!
//! It stands between a workload and the engine, so that every build can take traces. The engine
//! runs the transactions, and thereby decides what they read. Recorded are accesses to rows; where
//! they are is said by the layout. Tables that are indexes are left out, as are the engine's own
//! trees: the paper's tuples are rows.

use std::ops::ControlFlow;

use duramen::{CommitMode, InsertDesign};
use duramen_sync::{Arc, Mutex};
use duramen_workloads::store::{Access as Wanted, Acknowledge, Connection, ScanRange, Transaction};
use duramen_workloads::{Result as Done, Store, Tpcc, Workload, tpcc};
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::layout::Layout;
use super::trace::{Access, Op, Trace, Txn};
use crate::bed::{Bed, System};
use crate::error::Result;

/// The tables of TPC-C with rows. The other two are indexes.
const TABLES: [&str; 9] = [
    "tpcc_warehouse",
    "tpcc_district",
    "tpcc_customer",
    "tpcc_history",
    "tpcc_order",
    "tpcc_new_order",
    "tpcc_order_line",
    "tpcc_item",
    "tpcc_stock",
];

/// Nothing has to survive a crash: only what the transactions do is of interest.
const RECORDER: System = System::new("recording", CommitMode::Async, InsertDesign::Hybrid);

/// What to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recording {
    pub(crate) scale: tpcc::Scale,
    pub(crate) clients: u32,
    pub(crate) transactions: usize,
    /// Bytes of the engine's buffer pool.
    pub(crate) pool: usize,
}

/// Returns what the engine runs of the standard mix of TPC-C, the clients in turn. It is the same
/// each time.
pub(crate) fn record(recording: Recording) -> Result<Trace> {
    let Recording { scale, clients, transactions, pool } = recording;
    let bed = Bed::new(pool)?;
    bed.load(&Tpcc::new(scale, tpcc::Mix::Standard))?;
    let rig = bed.open(&RECORDER, std::time::Duration::ZERO)?;
    let recorder = Recorder::new(rig.db().clone(), &TABLES)?;
    let workload = Tpcc::new(scale, tpcc::Mix::Standard);
    let mut sessions = Vec::new();
    for client in 0..clients {
        sessions.push((workload.session(&recorder, client)?, StdRng::seed_from_u64(u64::from(client))));
    }
    // Opening a session reads, too.
    recorder.begin();
    for number in 0..transactions {
        let (session, rng) = &mut sessions[number % clients as usize];
        session.draw(rng);
        session.execute(Acknowledge::OnReturn)?;
        session.acknowledged()?;
    }
    drop(sessions);
    let trace = recorder.into_trace();
    rig.close()?;
    bed.audit(&workload)?;
    Ok(trace)
}

/// What has been recorded.
#[derive(Debug)]
struct Tape {
    layout: Layout,
    trace: Trace,
}

/// A store whose transactions are recorded.
#[derive(Clone)]
struct Recorder<S> {
    store: S,
    tables: &'static [&'static str],
    tape: Arc<Mutex<Tape>>,
}

/// A table, with its number if its rows are recorded.
#[derive(Clone)]
struct Table<T> {
    table: T,
    number: Option<usize>,
}

impl<S: Store> Recorder<S> {
    /// Returns `store`, which is populated, with the rows of `tables` recorded.
    fn new(store: S, tables: &'static [&'static str]) -> Result<Self> {
        let mut layout = Layout::default();
        for name in tables {
            let table = store.table(name)?;
            let mut connection = store.connect()?;
            let mut txn = connection.begin(Wanted::ReadCommitted)?;
            let mut scanned = Ok(());
            layout.add_table(|add| {
                scanned = txn.scan(&table, ScanRange::ALL, |key, _| {
                    add(key);
                    ControlFlow::Continue(())
                });
            });
            scanned?;
            txn.commit()?;
        }
        let trace = Trace::new(layout.stored());
        Ok(Self { store, tables, tape: Arc::new(Mutex::new(Tape { layout, trace })) })
    }

    /// Forgets what was recorded until now.
    fn begin(&self) {
        let mut tape = self.tape.lock();
        tape.trace = Trace::new(tape.layout.stored());
    }

    fn into_trace(self) -> Trace {
        std::mem::take(&mut self.tape.lock().trace)
    }

    fn named(&self, name: &str, table: S::Table) -> Table<S::Table> {
        Table { table, number: self.tables.iter().position(|recorded| *recorded == name) }
    }
}

impl<S: Store> Store for Recorder<S> {
    type Table = Table<S::Table>;
    type Connection = RecordedConnection<S::Connection>;

    fn engine(&self) -> &'static str {
        self.store.engine()
    }

    fn find_table(&self, name: &str) -> Done<Option<Self::Table>> {
        Ok(self.store.find_table(name)?.map(|table| self.named(name, table)))
    }

    fn make_table(&self, name: &str) -> Done<Self::Table> {
        Ok(self.named(name, self.store.make_table(name)?))
    }

    fn connect(&self) -> Done<Self::Connection> {
        Ok(RecordedConnection { connection: self.store.connect()?, tape: self.tape.clone() })
    }

    fn quiesce(&self) -> Done<()> {
        self.store.quiesce()
    }
}

/// A client of a store that is recorded.
struct RecordedConnection<C> {
    connection: C,
    tape: Arc<Mutex<Tape>>,
}

impl<C: Connection> Connection for RecordedConnection<C> {
    type Table = Table<C::Table>;
    type Transaction<'c> = RecordedTransaction<C::Transaction<'c>>;

    fn begin(&mut self, access: Wanted) -> Done<Self::Transaction<'_>> {
        Ok(RecordedTransaction {
            txn: self.connection.begin(access)?,
            tape: self.tape.clone(),
            ops: Vec::new(),
            locks_reads: access != Wanted::ReadCommitted,
        })
    }
}

/// A transaction that is recorded when it ends. One that fails leaves nothing in the trace.
struct RecordedTransaction<T> {
    txn: T,
    tape: Arc<Mutex<Tape>>,
    ops: Vec<Op>,
    locks_reads: bool,
}

impl<T> RecordedTransaction<T> {
    /// Records an access to a row that has a place.
    fn found<U>(&mut self, access: Access, table: &Table<U>, key: &[u8]) {
        let Some(number) = table.number else { return };
        if let Some(tuple) = self.tape.lock().layout.find(number, key) {
            self.ops.push(Op::new(access, tuple));
        }
    }

    /// Records that a row was added, or replaced where there was one.
    fn added<U>(&mut self, table: &Table<U>, key: &[u8]) {
        let Some(number) = table.number else { return };
        let (tuple, is_new) = self.tape.lock().layout.find_or_add(number, key);
        self.ops.push(Op::new(if is_new { Access::Insert } else { Access::Update }, tuple));
    }

    fn ended(tape: &Mutex<Tape>, (ops, locks_reads): (&[Op], bool), commits: bool) {
        tape.lock().trace.push(Txn { ops, locks_reads, commits });
    }
}

impl<T: Transaction> Transaction for RecordedTransaction<T> {
    type Table = Table<T::Table>;

    fn get<R>(&mut self, table: &Self::Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        self.found(Access::Read, table, key);
        self.txn.get(&table.table, key, read)
    }

    fn get_for_update<R>(&mut self, table: &Self::Table, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Done<Option<R>> {
        self.found(Access::Read, table, key);
        self.txn.get_for_update(&table.table, key, read)
    }

    fn insert(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Done<bool> {
        let is_new = self.txn.insert(&table.table, key, row)?;
        if is_new {
            self.added(table, key)
        } else {
            self.found(Access::Read, table, key)
        }
        Ok(is_new)
    }

    fn put(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Done<()> {
        self.added(table, key);
        self.txn.put(&table.table, key, row)
    }

    fn update(&mut self, table: &Self::Table, key: &[u8], row: &[u8]) -> Done<bool> {
        self.found(Access::Update, table, key);
        self.txn.update(&table.table, key, row)
    }

    fn delete(&mut self, table: &Self::Table, key: &[u8]) -> Done<bool> {
        self.found(Access::Delete, table, key);
        self.txn.delete(&table.table, key)
    }

    fn scan(
        &mut self,
        table: &Self::Table,
        range: ScanRange<'_>,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Done<()> {
        let (Self { txn, tape, ops, .. }, number) = (self, table.number);
        txn.scan(&table.table, range, |key, row| {
            if let Some(tuple) = number.and_then(|number| tape.lock().layout.find(number, key)) {
                ops.push(Op::new(Access::Read, tuple));
            }
            visit(key, row)
        })
    }

    /// One access: the row is read and changed.
    fn modify<R>(
        &mut self,
        table: &Self::Table,
        key: &[u8],
        change: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Done<Option<R>> {
        self.found(Access::Update, table, key);
        self.txn.modify(&table.table, key, change)
    }

    fn commit(self) -> Done<()> {
        let Self { txn, tape, ops, locks_reads } = self;
        txn.commit()?;
        Self::ended(&tape, (&ops, locks_reads), true);
        Ok(())
    }

    fn abort(self) -> Done<()> {
        let Self { txn, tape, ops, locks_reads } = self;
        txn.abort()?;
        Self::ended(&tape, (&ops, locks_reads), false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use duramen::Db;

    use super::*;

    #[test]
    fn transactions_are_recorded_with_their_places_and_ends() {
        let bed = Bed::new(8 << 20).unwrap();
        let rig = bed.open(&RECORDER, std::time::Duration::ZERO).unwrap();
        let db: Db = rig.db().clone();
        let (rows, index) = (Store::make_table(&db, "rows").unwrap(), Store::make_table(&db, "index").unwrap());
        let mut loader = db.begin();
        for row in 0..100_u8 {
            loader.put(&rows, &[row * 2], b"row").unwrap();
        }
        loader.put(&index, b"i", b"").unwrap();
        loader.commit().unwrap();

        let recorder = Recorder::new(db, &["rows"]).unwrap();
        let rows = recorder.table("rows").unwrap();
        let index = recorder.table("index").unwrap();
        let mut connection = recorder.connect().unwrap();
        let mut txn = connection.begin(Wanted::ReadWrite).unwrap();
        assert_eq!(txn.get(&rows, &[4], <[u8]>::to_vec).unwrap().unwrap(), b"row");
        assert!(txn.get(&rows, &[5], |_| ()).unwrap().is_none(), "no row, and no access");
        assert!(txn.get(&index, b"i", |_| ()).unwrap().is_some());
        txn.modify(&rows, &[130], |row| row.push(b'!')).unwrap().unwrap();
        txn.put(&rows, &[5], b"new").unwrap();
        txn.put(&rows, &[6], b"changed").unwrap();
        assert!(txn.delete(&rows, &[8]).unwrap());
        txn.scan(&rows, ScanRange::new(&[10], &[14]), |_, _| ControlFlow::Continue(())).unwrap();
        txn.commit().unwrap();
        let mut txn = connection.begin(Wanted::ReadCommitted).unwrap();
        assert!(!txn.insert(&rows, &[0], b"there").unwrap());
        txn.abort().unwrap();
        drop(connection.begin(Wanted::ReadWrite).unwrap());

        let trace = recorder.into_trace();
        assert_eq!((trace.stored(), trace.pages(), trace.len()), (2, 2, 2));
        let first = trace.txn(0).unwrap();
        let ops: Vec<String> = first.ops.iter().map(|op| format!("{op:?}")).collect();
        assert_eq!(ops, ["Read 2", "Update 65", "Insert 100", "Update 3", "Delete 4", "Read 5", "Read 6"]);
        assert!(first.locks_reads && first.commits);
        let second = trace.txn(1).unwrap();
        assert_eq!(format!("{:?}", second.ops), "[Read 0]");
        assert!(!second.locks_reads && !second.commits);
    }
}
