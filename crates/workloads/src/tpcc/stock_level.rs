//! Stock-Level (clause 2.8.2): of the items in a district's last 20 orders, how many are low in
//! stock?

use std::hint::black_box;
use std::ops::ControlFlow;

use super::context::{Context, damaged};
use super::inputs::StockLevel;
use super::key;
use super::row::{District, OrderLine, Stock};
use crate::error::Result;
use crate::store::{ScanRange, Transaction};

/// How many orders are read.
const LAST_ORDERS: u32 = 20;

pub(super) fn run<T: Transaction>(txn: &mut T, context: &mut Context<T::Table>, inputs: &StockLevel) -> Result<()> {
    let Context { tables, w, d, numbers: items, .. } = context;
    let (w, d) = (*w, *d);
    let district_key = key::district(w, d);
    let next = txn.get(&tables.district, &district_key, |row| District::decode(row).map(|row| row.next_o_id))?;
    let next = next.flatten().ok_or_else(|| damaged("district", &district_key))?;

    items.clear();
    let (start, end) = (key::order_line(w, d, next.saturating_sub(LAST_ORDERS), 0), key::order_line(w, d, next, 0));
    txn.scan(&tables.order_line, ScanRange::new(&start, &end), |_, row| {
        items.extend(OrderLine::decode(row).map(|line| line.i_id));
        ControlFlow::Continue(())
    })?;
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    for i in items {
        let stock_key = key::stock(w, *i);
        let quantity = txn.get(&tables.stock, &stock_key, |row| Stock::decode(row).map(|row| row.quantity))?;
        let quantity = quantity.flatten().ok_or_else(|| damaged("stock", &stock_key))?;
        low += u32::from(quantity < inputs.threshold);
    }
    black_box(low);
    Ok(())
}
