//! Order-Status (clause 2.6.2): a customer's last order.

use std::hint::black_box;
use std::ops::ControlFlow;

use super::context::{Context, damaged};
use super::inputs::OrderStatus;
use super::row::{Customer, Order, OrderLine};
use super::{customer, key};
use crate::error::Result;
use crate::store::{ScanRange, Transaction};

pub(super) fn run<T: Transaction>(txn: &mut T, context: &mut Context<T::Table>, inputs: &OrderStatus) -> Result<()> {
    let (w, d) = (context.w, inputs.d);
    let c = customer::find(txn, context, w, d, &inputs.customer)?;
    let tables = &context.tables;
    let customer_key = key::customer(w, d, c);
    let customer = txn.get(&tables.customer, &customer_key, Customer::decode)?.flatten();
    let customer = customer.ok_or_else(|| damaged("customer", &customer_key))?;
    black_box((customer.balance, customer.first, customer.middle, customer.last));

    let (start, end) = (key::order_customer(w, d, c, 0), key::order_customer(w, d, c, u32::MAX));
    let mut last = None;
    txn.scan(&tables.order_customer, ScanRange::new(&start, &end).backward().limit(1), |key, _| {
        last = key::last_u32(key);
        ControlFlow::Break(())
    })?;
    let o = last.ok_or_else(|| damaged("last order of the customer", &customer_key))?;
    let order_key = key::order(w, d, o);
    let order = txn.get(&tables.order, &order_key, Order::decode)?.flatten();
    let order = order.ok_or_else(|| damaged("order", &order_key))?;
    black_box(order);

    let (start, end) = (key::order_line(w, d, o, 0), key::order_line(w, d, o, u8::MAX));
    let mut lines = 0;
    let range = ScanRange::new(&start, &end).limit(usize::from(order.ol_cnt));
    txn.scan(&tables.order_line, range, |_, row| {
        lines += u8::from(black_box(OrderLine::decode(row)).is_some());
        ControlFlow::Continue(())
    })?;
    if lines == order.ol_cnt { Ok(()) } else { Err(damaged("order with all its lines", &order_key)) }
}
