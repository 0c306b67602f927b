//! Delivery (clause 2.7.4): delivers the oldest new order of each district.

use std::ops::ControlFlow;

use super::context::{Context, damaged};
use super::inputs::Delivery;
use super::key;
use super::row::{Customer, Order, OrderLine};
use super::scale::DISTRICTS;
use crate::error::Result;
use crate::store::{ScanRange, Transaction};

/// Returns how many districts had a new order.
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    context: &mut Context<T::Table>,
    inputs: &Delivery,
    now: u64,
) -> Result<u8> {
    let mut delivered = 0;
    for d in 1..=DISTRICTS {
        delivered += u8::from(deliver(txn, context, d, inputs.carrier, now)?);
    }
    Ok(delivered)
}

/// Delivers the oldest new order of a district; false when there is none.
fn deliver<T: Transaction>(txn: &mut T, context: &mut Context<T::Table>, d: u8, carrier: u8, now: u64) -> Result<bool> {
    let Context { tables, w, .. } = context;
    let w = *w;
    let (start, end) = (key::order(w, d, 0), key::order(w, d, u32::MAX));
    let mut oldest = None;
    txn.scan(&tables.new_order, ScanRange::new(&start, &end).limit(1), |key, _| {
        oldest = key::last_u32(key);
        ControlFlow::Break(())
    })?;
    let Some(o) = oldest else { return Ok(false) };
    let order_key = key::order(w, d, o);
    if !txn.delete(&tables.new_order, &order_key)? {
        return Err(damaged("new order", &order_key));
    }
    let order = txn.modify(&tables.order, &order_key, |row| {
        let order = Order { carrier_id: carrier, ..Order::decode(row)? };
        order.store(row);
        Some(order)
    })?;
    let order = order.flatten().ok_or_else(|| damaged("order", &order_key))?;

    let mut total = 0;
    for number in 1..=order.ol_cnt {
        let line_key = key::order_line(w, d, o, number);
        let amount = txn.modify(&tables.order_line, &line_key, |row| {
            let line = OrderLine { delivery_d: now, ..OrderLine::decode(row)? };
            line.store(row);
            Some(line.amount)
        })?;
        total += amount.flatten().ok_or_else(|| damaged("order line", &line_key))?;
    }
    let customer_key = key::customer(w, d, order.c_id);
    let customer = txn.modify(&tables.customer, &customer_key, |row| {
        let mut customer = Customer::decode(row)?;
        customer.balance += total;
        customer.delivery_count += 1;
        customer.store(row);
        Some(())
    })?;
    customer.flatten().ok_or_else(|| damaged("customer", &customer_key))?;
    Ok(true)
}
