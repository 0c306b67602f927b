//! The operations of YCSB.

use std::hint::black_box;
use std::ops::ControlFlow;

use duramen_sync::Arc;
use rand::RngExt;
use rand::rngs::StdRng;

use super::Mix;
use super::records::Records;
use super::row::{self, FIELD_LEN, FIELDS, Field, ROW_LEN};
use super::scale::Scale;
use crate::error::{Error, Result};
use crate::random::{Zipf, scramble};
use crate::store::{Access, Acknowledge, Connection, Pending, ScanRange, Store, Transaction};
use crate::workload::{Done, Executed, Session};

/// The kinds of operations.
pub(super) const KINDS: [&str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];

/// The most records of a scan.
const LONGEST_SCAN: usize = 100;

/// Inputs of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inputs {
    Read { number: u64 },
    Update { number: u64, field: usize, seed: u64 },
    Insert { number: u64, seed: u64 },
    Scan { number: u64, len: usize },
    ReadModifyWrite { number: u64, field: usize, seed: u64 },
}

/// One client.
pub(super) struct YcsbSession<S: Store> {
    connection: S::Connection,
    table: S::Table,
    scale: Scale,
    mix: Mix,
    /// Ranks of the population's records or, if the mix reads recent ones, of all.
    zipf: Zipf,
    records: Arc<Records>,
    inputs: Inputs,
}

impl<S: Store> YcsbSession<S> {
    pub(super) fn open(
        store: &S,
        table: S::Table,
        scale: Scale,
        mix: Mix,
        skew: f64,
        records: Arc<Records>,
    ) -> Result<Self> {
        let (connection, zipf) = (store.connect()?, Zipf::new(scale.records, skew));
        Ok(Self { connection, table, scale, mix, zipf, records, inputs: Inputs::Read { number: 0 } })
    }

    /// Draws a record, popular ones more often; popularity is independent of the position in the
    /// table.
    fn popular(&self, rng: &mut StdRng) -> u64 {
        scramble(self.zipf.draw(rng)) % self.scale.records
    }

    /// Returns a record, recent ones more often.
    fn recent(&mut self, rng: &mut StdRng) -> u64 {
        let end = self.records.end();
        if end != self.zipf.count() {
            self.zipf.set_count(end);
        }
        end - 1 - self.zipf.draw(rng)
    }

    /// Inserts a record, with another number if a record of an earlier run has this one.
    fn insert(&mut self, mut number: u64, seed: u64, acknowledge: Acknowledge) -> Result<Pending> {
        loop {
            let row = row::row(number, seed);
            let mut txn = self.connection.begin(Access::ReadWrite)?;
            if txn.insert(&self.table, &row::key(number), &row)? {
                return txn.commit_for(acknowledge);
            }
            txn.abort()?;
            number = self.records.take();
        }
    }
}

impl<S: Store> Session for YcsbSession<S> {
    fn draw(&mut self, rng: &mut StdRng) {
        let percent = rng.random_range(0..100);
        self.inputs = match (self.mix, percent) {
            (Mix::D, 95..) | (Mix::E, 95..) => Inputs::Insert { number: self.records.take(), seed: rng.random() },
            (Mix::D, _) => Inputs::Read { number: self.recent(rng) },
            (Mix::E, _) => Inputs::Scan { number: self.popular(rng), len: rng.random_range(1..=LONGEST_SCAN) },
            (Mix::A, 50..) | (Mix::B, 95..) => {
                Inputs::Update { number: self.popular(rng), field: rng.random_range(0..FIELDS), seed: rng.random() }
            }
            (Mix::F, 50..) => {
                let (number, field) = (self.popular(rng), rng.random_range(0..FIELDS));
                Inputs::ReadModifyWrite { number, field, seed: rng.random() }
            }
            (Mix::A | Mix::B | Mix::C | Mix::F, _) => Inputs::Read { number: self.popular(rng) },
        };
    }

    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed> {
        let (done, pending) = match self.inputs {
            Inputs::Read { number } => {
                let mut txn = self.connection.begin(Access::ReadOnly)?;
                let row = txn.get(&self.table, &row::key(number), copy)?;
                let done = match row {
                    // A record whose insert is in flight may be missing.
                    None if number >= self.scale.records => Done::declined(0),
                    None => return Err(missing(number)),
                    Some(row) => {
                        black_box(row.ok_or_else(|| missing(number))?);
                        Done::committed(0)
                    }
                };
                (done, txn.commit_for(acknowledge)?)
            }
            Inputs::Update { number, field, seed } => {
                let mut txn = self.connection.begin(Access::ReadWrite)?;
                let own = row::field(number, seed);
                let done = txn.modify(&self.table, &row::key(number), |row| set(row, field, &own))?;
                done.flatten().ok_or_else(|| missing(number))?;
                (Done::committed(1), txn.commit_for(acknowledge)?)
            }
            Inputs::Insert { number, seed } => {
                let pending = self.insert(number, seed, acknowledge)?;
                self.records.note_insert();
                (Done::committed(2), pending)
            }
            Inputs::Scan { number, len } => {
                let start = row::key(number);
                let mut txn = self.connection.begin(Access::ReadOnly)?;
                txn.scan(&self.table, ScanRange::from(&start).limit(len), |_, row| {
                    black_box(copy(row));
                    ControlFlow::Continue(())
                })?;
                (Done::committed(3), txn.commit_for(acknowledge)?)
            }
            Inputs::ReadModifyWrite { number, field, seed } => {
                let mut txn = self.connection.begin(Access::ReadWrite)?;
                let own = row::field(number, seed);
                let done = txn.modify(&self.table, &row::key(number), |row| {
                    black_box(copy(row)?);
                    set(row, field, &own)
                })?;
                done.flatten().ok_or_else(|| missing(number))?;
                (Done::committed(4), txn.commit_for(acknowledge)?)
            }
        };
        Ok(Executed { done, pending })
    }
}

/// Returns the whole record: the client wants all its fields.
#[inline]
fn copy(row: &[u8]) -> Option<[u8; ROW_LEN]> {
    row.try_into().ok()
}

#[inline]
fn set(row: &mut [u8], field: usize, own: &Field) -> Option<()> {
    row.get_mut(field * FIELD_LEN..(field + 1) * FIELD_LEN)?.copy_from_slice(own);
    Some(())
}

#[cold]
fn missing(number: u64) -> Error {
    Error::Damaged { reason: format!("record {number} of YCSB is missing or has the wrong length") }
}
