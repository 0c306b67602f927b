//! New-Order (clause 2.4.2): enters an order.
//!
//! Rows that many transactions want come last: first the customer, the items and the stocks, then
//! the district, whose next order number is taken and released with the commit soon after.

use std::hint::black_box;

use super::context::{Context, damaged};
use super::inputs::{Line, MOST_LINES, NewOrder};
use super::key;
use super::row::{Customer, District, Item, Order, OrderLine, Stock, Warehouse, is_original};
use crate::error::Result;
use crate::layout::Field;
use crate::store::Transaction;

/// What the items and stocks say about a line.
#[derive(Clone, Copy)]
struct Priced {
    amount: i64,
    dist_info: [u8; 24],
}

/// Enters the order; false when one of its items does not exist: then the order must be rolled
/// back.
pub(super) fn run<T: Transaction>(
    txn: &mut T,
    context: &mut Context<T::Table>,
    inputs: &NewOrder,
    now: u64,
) -> Result<bool> {
    let Context { tables, w, .. } = context;
    let (w, d, c, lines) = (*w, inputs.d, inputs.c, inputs.lines());

    let customer_key = key::customer(w, d, c);
    let customer = txn.get(&tables.customer, &customer_key, Customer::decode)?.flatten();
    let customer = customer.ok_or_else(|| damaged("customer", &customer_key))?;

    let mut priced = [const { None }; MOST_LINES];
    let mut total = 0;
    let mut all_there = true;
    for (line, priced) in lines.iter().zip(&mut priced) {
        let item_key = key::item(line.i);
        let item = txn.get(&tables.item, &item_key, |row| {
            Item::decode(row).map(|item| (item.price, is_original(&row[Item::LEN..])))
        })?;
        let Some(item) = item else {
            all_there = false;
            continue;
        };
        let (price, original) = item.ok_or_else(|| damaged("item", &item_key))?;
        let (dist_info, brand) = take_from_stock(txn, tables, line, w, d)?;
        let amount = i64::from(price) * i64::from(line.quantity);
        total += amount;
        black_box(original && brand);
        *priced = Some(Priced { amount, dist_info });
    }

    let district_key = key::district(w, d);
    let district = txn.modify(&tables.district, &district_key, |row| {
        let before = District::decode(row)?;
        District { next_o_id: before.next_o_id + 1, ..before }.store(row);
        Some(before)
    })?;
    let district = district.flatten().ok_or_else(|| damaged("district", &district_key))?;
    let o = district.next_o_id;
    let all_local = u8::from(lines.iter().all(|line| line.supply_w == w));
    let order = Order { c_id: c, entry_d: now, carrier_id: 0, ol_cnt: lines.len() as u8, all_local };
    let order_key = key::order(w, d, o);
    let mut row = [0; Order::LEN];
    order.store(&mut row);
    txn.put(&tables.order, &order_key, &row)?;
    txn.put(&tables.new_order, &order_key, &[])?;
    txn.put(&tables.order_customer, &key::order_customer(w, d, c, o), &[])?;
    for ((number, line), priced) in (1..).zip(lines).zip(&priced) {
        let Some(Priced { amount, dist_info }) = *priced else { continue };
        let Line { supply_w, i, quantity } = *line;
        let line = OrderLine { i_id: i, supply_w_id: supply_w, delivery_d: 0, quantity, amount, dist_info };
        let mut row = [0; OrderLine::LEN];
        line.store(&mut row);
        txn.put(&tables.order_line, &key::order_line(w, d, o, number), &row)?;
    }

    let warehouse_key = key::warehouse(w);
    let tax = txn.get(&tables.warehouse, &warehouse_key, |row| Warehouse::decode(row).map(|row| row.tax))?;
    let tax = i64::from(tax.flatten().ok_or_else(|| damaged("warehouse", &warehouse_key))?);
    let rates = (10_000 - i64::from(customer.discount)) * (10_000 + tax + i64::from(district.tax));
    black_box((total * rates / 100_000_000, customer.last, customer.credit));
    Ok(all_there)
}

/// Takes the line's quantity from the stock; returns the stock's information about the district,
/// and whether it is of an original brand.
#[inline]
fn take_from_stock<T: Transaction>(
    txn: &mut T,
    tables: &super::Tables<T::Table>,
    line: &Line,
    w: u32,
    d: u8,
) -> Result<([u8; 24], bool)> {
    let key = key::stock(line.supply_w, line.i);
    let taken = txn.modify(&tables.stock, &key, |row| {
        let mut stock = Stock::decode(row)?;
        stock.take(line.quantity, line.supply_w != w);
        stock.store(row);
        Some((Stock::dist_info(row, d)?, is_original(Stock::data(row))))
    })?;
    taken.flatten().ok_or_else(|| damaged("stock", &key))
}

const _: () = assert!(<Order as Field>::LEN == 13 && OrderLine::LEN == 49);
