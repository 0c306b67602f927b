//! The consistency conditions of TPC-C: the specification's (clause 3.3.2), and those of the
//! indexes, the stocks and the numbers of rows.

mod district;
mod history;

use super::row::{Item, Stock, Warehouse};
use super::scale::{DISTRICTS, Scale};
use super::{Tables, key};
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Access, Connection, ScanRange, Store, Transaction, for_each};
use district::DistrictAudit;
use history::History;

/// What the order lines that transactions have entered took from a stock.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Taken {
    quantity: u32,
    lines: u32,
    remote: u32,
}

pub(super) fn audit<S: Store>(store: &S, scale: Scale, report: &mut AuditReport) -> Result<()> {
    let tables = Tables::open(store)?;
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    let history = History::read(&mut txn, &tables, scale, report)?;
    let mut taken = vec![Taken::default(); (scale.warehouses * scale.items) as usize];
    let (mut orders, mut lines) = (0, 0);
    for w in 1..=scale.warehouses as u32 {
        let mut districts_ytd = 0;
        for d in 1..=DISTRICTS {
            let district = DistrictAudit { tables: &tables, scale, w, d, history: &history };
            let found = district.check(&mut txn, &mut taken, report)?;
            districts_ytd += found.ytd;
            orders += found.orders;
            lines += found.lines;
        }
        match txn.get(&tables.warehouse, &key::warehouse(w), Warehouse::decode)?.flatten() {
            None => report.problem(format!("warehouse {w} is missing or too short")),
            Some(warehouse) => {
                report.require(warehouse.ytd == districts_ytd, || {
                    format!(
                        "condition 1: warehouse {w} has a year-to-date sum of {}, but its districts have \
                         {districts_ytd}",
                        warehouse.ytd
                    )
                });
                let paid = history.of_warehouse(w);
                report.require(warehouse.ytd == paid, || {
                    format!(
                        "condition 8: warehouse {w} has a year-to-date sum of {}, but its history sums up to {paid}",
                        warehouse.ytd
                    )
                });
            }
        }
    }
    report.fact(format!("orders: {orders}, order lines: {lines}"));
    check_stock(&mut txn, &tables, scale, &taken, report)?;
    check_counts(&mut txn, &tables, scale, report)?;
    txn.commit()
}

/// Checks that every item is there, and every stock, less what the order lines took from it.
fn check_stock<T: Transaction>(
    txn: &mut T,
    tables: &Tables<T::Table>,
    scale: Scale,
    taken: &[Taken],
    report: &mut AuditReport,
) -> Result<()> {
    let mut count = 0;
    for_each(txn, &tables.stock, |key, row| {
        count += 1;
        let place = key::decode_stock(key).and_then(|(w, i)| {
            let there = (1..=scale.warehouses).contains(&u64::from(w)) && (1..=scale.items).contains(&u64::from(i));
            there.then(|| (w, i, (u64::from(w - 1) * scale.items + u64::from(i - 1)) as usize))
        });
        let (Some((w, i, at)), Some(stock)) = (place, Stock::decode(row)) else {
            report.problem(format!("stock row {key:02x?} is too short or belongs to no item of a warehouse"));
            return;
        };
        let taken = taken[at];
        let found = Taken { quantity: stock.ytd, lines: stock.order_count, remote: stock.remote_count };
        report.require(found == taken && (10..=100).contains(&stock.quantity), || {
            format!("the stock of item {i} in warehouse {w} says {stock:?}, but its order lines say {taken:?}")
        });
    })?;
    let stocks = scale.warehouses * scale.items;
    report.require(count == stocks, || format!("there are {count} stock rows, not {stocks}"));
    let mut items = 0;
    for_each(txn, &tables.item, |key, row| {
        items += 1;
        let there = key::last_u32(key).is_some_and(|i| (1..=scale.items).contains(&u64::from(i)) && key.len() == 4);
        report.require(there && Item::decode(row).is_some(), || format!("item {key:02x?} is too short or not an item"));
    })?;
    report.require(items == scale.items, || format!("there are {items} items, not {}", scale.items));
    Ok(())
}

/// Checks that no row lies outside the existing warehouses and districts.
fn check_counts<T: Transaction>(
    txn: &mut T,
    tables: &Tables<T::Table>,
    scale: Scale,
    report: &mut AuditReport,
) -> Result<()> {
    let behind = key::warehouse(scale.warehouses as u32 + 1);
    let names = [
        ("warehouse", &tables.warehouse),
        ("district", &tables.district),
        ("customer", &tables.customer),
        ("customer name", &tables.customer_name),
        ("order", &tables.order),
        ("order of a customer", &tables.order_customer),
        ("new order", &tables.new_order),
        ("order line", &tables.order_line),
    ];
    for (name, table) in names {
        let first = key::warehouse(1);
        let outside = [ScanRange::from(&behind).limit(1), ScanRange::new(&[], &first).limit(1)];
        for range in outside {
            txn.scan(table, range, |_, _| {
                report.problem(format!("there is a {name} that belongs to no warehouse"));
                std::ops::ControlFlow::Break(())
            })?;
        }
    }
    Ok(())
}
