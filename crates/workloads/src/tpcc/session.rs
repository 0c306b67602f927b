//! A terminal: draws transactions and runs them.

use duramen_sync::clock::wall_micros;
use rand::RngExt;
use rand::rngs::StdRng;

use super::context::Context;
use super::inputs::{Delivery, Inputs, NewOrder, OrderStatus, Payment, StockLevel};
use super::random::Choosers;
use super::scale::DISTRICTS;
use super::{Mix, Tables, delivery, key, new_order, order_status, payment, stock_level};
use crate::error::Result;
use crate::store::{Access, Acknowledge, Connection, ScanRange, Store, Transaction};
use crate::workload::{Done, Executed, Session};

/// The kinds of transactions.
pub(super) const KINDS: [&str; 5] = ["new-order", "payment", "order-status", "delivery", "stock-level"];

pub(super) struct TpccSession<S: Store> {
    connection: S::Connection,
    context: Context<S::Table>,
    choosers: Choosers,
    mix: Mix,
    inputs: Inputs,
    terminal: u32,
    /// Number of the terminal's next history row.
    sequence: u64,
}

impl<S: Store> TpccSession<S> {
    pub(super) fn open(store: &S, choosers: Choosers, mix: Mix, terminal: u32) -> Result<Self> {
        let warehouses = choosers.scale.warehouses as u32;
        let tables = Tables::open(store)?;
        let mut connection = store.connect()?;
        let sequence = last_history(&mut connection, &tables, terminal)? + 1;
        let context = Context {
            tables,
            w: terminal % warehouses + 1,
            d: (terminal / warehouses % u32::from(DISTRICTS)) as u8 + 1,
            history_key: [0; 12],
            bytes: Vec::new(),
            numbers: Vec::new(),
        };
        let inputs = Inputs::StockLevel(StockLevel { threshold: 10 });
        Ok(Self { connection, context, choosers, mix, inputs, terminal, sequence })
    }
}

/// Returns the number of the last history row of `terminal`; 0 when there is none.
fn last_history<C: Connection>(connection: &mut C, tables: &Tables<C::Table>, terminal: u32) -> Result<u64> {
    let (first, end) = (key::history(terminal, 0), key::history(terminal + 1, 0));
    let mut last = 0;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    txn.scan(&tables.history, ScanRange::new(&first, &end).backward().limit(1), |key, _| {
        last = key::last_u64(key).unwrap_or(0);
        std::ops::ControlFlow::Break(())
    })?;
    txn.commit()?;
    Ok(last)
}

impl<S: Store> Session for TpccSession<S> {
    fn draw(&mut self, rng: &mut StdRng) {
        let percent = match self.mix {
            Mix::Standard => rng.random_range(0..100),
            Mix::NewOrder => 0,
            Mix::Payment => 45,
        };
        let (choosers, w) = (&self.choosers, self.context.w);
        self.inputs = match percent {
            0..45 => Inputs::NewOrder(NewOrder::draw(choosers, w, rng)),
            45..88 => Inputs::Payment(Payment::draw(choosers, w, rng)),
            88..92 => Inputs::OrderStatus(OrderStatus::draw(choosers, rng)),
            92..96 => Inputs::Delivery(Delivery::draw(rng)),
            _ => Inputs::StockLevel(StockLevel::draw(rng)),
        };
    }

    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed> {
        let (context, connection) = (&mut self.context, &mut self.connection);
        let (done, pending) = match &self.inputs {
            Inputs::NewOrder(inputs) => {
                let mut txn = connection.begin(Access::ReadWrite)?;
                if new_order::run(&mut txn, context, inputs, wall_micros())? {
                    (Done::committed(0), txn.commit_for(acknowledge)?)
                } else {
                    (Done::declined(0), txn.abort_for(acknowledge)?)
                }
            }
            Inputs::Payment(inputs) => {
                context.history_key = key::history(self.terminal, self.sequence);
                let mut txn = connection.begin(Access::ReadWrite)?;
                payment::run(&mut txn, context, inputs, wall_micros())?;
                let pending = txn.commit_for(acknowledge)?;
                self.sequence += 1;
                (Done::committed(1), pending)
            }
            Inputs::OrderStatus(inputs) => {
                let mut txn = connection.begin(Access::ReadOnly)?;
                order_status::run(&mut txn, context, inputs)?;
                (Done::committed(2), txn.commit_for(acknowledge)?)
            }
            Inputs::Delivery(inputs) => {
                let mut txn = connection.begin(Access::ReadWrite)?;
                let delivered = delivery::run(&mut txn, context, inputs, wall_micros())?;
                // A district without new orders is skipped.
                let done = Done { kind: 3, declined: delivered < DISTRICTS };
                (done, txn.commit_for(acknowledge)?)
            }
            Inputs::StockLevel(inputs) => {
                // Clause 2.8.2.3: committed data suffices.
                let mut txn = connection.begin(Access::ReadCommitted)?;
                stock_level::run(&mut txn, context, inputs)?;
                (Done::committed(4), txn.commit_for(acknowledge)?)
            }
        };
        Ok(Executed { done, pending })
    }
}
