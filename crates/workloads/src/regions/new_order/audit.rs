//! The conditions that hold after any number of whole transactions: for districts, conditions 2, 3,
//! 4 and 6 of clause 3.3.2; for stocks, that they have lost what the order lines say. All arenas
//! must account for their nodes.

use super::table::row;
use super::{DistrictTables, OrderEntry, line_key, missing};
use crate::regions::arena::broken;
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::tpcc::row::{District, Order, OrderLine, Stock};

/// What transactions have ordered since the population.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ordered {
    /// Orders.
    pub orders: u64,
    /// Their order lines.
    pub lines: u64,
    /// The sum of their quantities.
    pub quantity: u64,
}

/// What order lines have taken from a stock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Taken {
    quantity: u32,
    lines: u32,
}

impl OrderEntry {
    /// Checks all tables, and returns what they say has been ordered.
    ///
    /// # Errors
    /// [`crate::regions::RegionError::Broken`], and the memory's.
    pub fn audit<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock) -> Result<Ordered, M::Error> {
        memory.atomic(lock, |memory| self.check(memory))
    }

    fn check<M: RegionAccess>(&self, memory: &mut M) -> Result<Ordered, M::Error> {
        let mut taken = vec![Taken::default(); self.scale.items as usize + 1];
        let mut ordered = Ordered::default();
        for district in &self.districts {
            self.check_district(memory, district, &mut taken, &mut ordered)?;
        }
        for taken in &taken {
            ordered.lines += u64::from(taken.lines);
            ordered.quantity += u64::from(taken.quantity);
        }
        check_keys("items", &self.items.audit(memory)?, 1, self.scale.items)?;
        let stocks = self.stocks.audit(memory)?;
        check_keys("stocks", &stocks, 1, self.scale.items)?;
        for (i, at) in stocks {
            let row: [u8; Stock::LEN] = row(memory, at)?;
            let stock = Stock::decode(&row).ok_or_else(|| missing("stock", i))?;
            let wanted = taken[i as usize];
            let found = Taken { quantity: stock.ytd, lines: stock.order_count };
            if found != wanted || stock.remote_count != 0 || !(10..=100).contains(&stock.quantity) {
                return Err(broken(format!(
                    "order lines have taken {wanted:?} of item {i}, but its stock is {stock:?}"
                )));
            }
        }
        Ok(ordered)
    }

    fn check_district<M: RegionAccess>(
        &self,
        memory: &mut M,
        tables: &DistrictTables,
        taken: &mut [Taken],
        ordered: &mut Ordered,
    ) -> Result<(), M::Error> {
        let row_of_district: [u8; District::LEN] = row(memory, tables.row)?;
        let district = District::decode(&row_of_district).ok_or_else(|| missing("district", tables.row))?;
        let last = u64::from(district.next_o_id).saturating_sub(1);
        check_keys("customers", &tables.customers.audit(memory)?, 1, self.scale.customers)?;
        let orders = tables.orders.audit(memory)?;
        check_keys("orders", &orders, 1, last)?;
        let new_orders = tables.new_orders.audit(memory)?;
        check_keys("new orders", &new_orders, self.scale.delivered() + 1, last)?;
        let newest = orders.iter().skip(self.scale.delivered() as usize);
        if let Some((order, _)) = newest.zip(&new_orders).find(|(order, new)| order != new) {
            return Err(broken(format!("the new order {} does not lead to its order", order.0)));
        }
        let lines = tables.order_lines.audit(memory)?;
        let mut lines = lines.into_iter();
        for (o, at) in orders {
            let row_of_order: [u8; Order::LEN] = row(memory, at)?;
            let order = Order::decode(&row_of_order).ok_or_else(|| missing("order", o))?;
            let in_population = o <= self.scale.customers;
            if !(1..=self.scale.customers).contains(&order.c_id.into()) || !(5..=15).contains(&order.ol_cnt) {
                return Err(broken(format!("order {o} is {order:?}")));
            }
            ordered.orders += u64::from(!in_population);
            for number in 1..=u64::from(order.ol_cnt) {
                let Some((key, at)) = lines.next().filter(|(key, _)| *key == line_key(o, number)) else {
                    return Err(broken(format!("order {o} has {} lines, but not line {number}", order.ol_cnt)));
                };
                let row_of_line: [u8; OrderLine::LEN] = row(memory, at)?;
                let line = OrderLine::decode(&row_of_line).ok_or_else(|| missing("order line", key))?;
                let Some(taken) = taken.get_mut(line.i_id as usize).filter(|_| line.i_id > 0) else {
                    return Err(broken(format!("line {number} of order {o} is of item {}", line.i_id)));
                };
                if !in_population {
                    taken.quantity += u32::from(line.quantity);
                    taken.lines += 1;
                }
            }
        }
        lines.next().map_or(Ok(()), |(key, _)| Err(broken(format!("order line {key:x} is of no order"))))
    }
}

/// Checks that the keys are all numbers from `first` to `last`.
fn check_keys<E: From<crate::regions::RegionError>>(
    what: &str,
    entries: &[(u64, Addr)],
    first: u64,
    last: u64,
) -> Result<(), E> {
    let keys = entries.iter().map(|(key, _)| *key);
    if keys.eq(first..=last) { Ok(()) } else { Err(broken(format!("the {what} are not numbers {first} to {last}"))) }
}
