//! The conditions of one district: its orders, their lines, its customers.

use std::ops::ControlFlow;

use super::super::row::{Customer, District, Order, OrderLine};
use super::super::scale::{DISTRICTS, Scale};
use super::super::{Tables, key};
use super::Taken;
use super::history::History;
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{ScanRange, Transaction};

/// A district and what is known from elsewhere.
pub(super) struct DistrictAudit<'a, T> {
    pub(super) tables: &'a Tables<T>,
    pub(super) scale: Scale,
    pub(super) w: u32,
    pub(super) d: u8,
    pub(super) history: &'a History,
}

/// What was found, to be summed up.
pub(super) struct Found {
    pub(super) ytd: i64,
    pub(super) orders: u64,
    pub(super) lines: u64,
}

/// An order with what its lines say.
struct OrderSum {
    o: u32,
    order: Order,
    is_new: bool,
    lines: u8,
    undelivered: u8,
    amount: i64,
}

impl<T> DistrictAudit<'_, T> {
    pub(super) fn check(
        &self,
        txn: &mut impl Transaction<Table = T>,
        taken: &mut [Taken],
        report: &mut AuditReport,
    ) -> Result<Found> {
        let &Self { w, d, .. } = self;
        let name = format!("district {d} of warehouse {w}");
        let mut orders = self.read_orders(txn, report)?;
        let new_orders = self.mark_new_orders(txn, &mut orders, report)?;
        let lines = self.add_lines(txn, &mut orders, taken, report)?;
        check_orders(&name, &orders, &new_orders, report);

        let district = txn.get(&self.tables.district, &key::district(w, d), District::decode)?.flatten();
        let Some(district) = district else {
            report.problem(format!("{name} is missing or too short"));
            return Ok(Found { ytd: 0, orders: orders.len() as u64, lines });
        };
        let last = orders.last().map(|order| order.o);
        report.require(last.is_some_and(|last| last + 1 == district.next_o_id), || {
            format!("condition 2: {name} has {last:?} as its last order, but {} as the next", district.next_o_id)
        });
        let newest = new_orders.last().copied();
        report.require(newest.is_none() || newest == last, || {
            format!("condition 2: {name} has {last:?} as its last order, but {newest:?} among the new orders")
        });
        let paid = self.history.of_district(w, d);
        report.require(district.ytd == paid, || {
            format!("condition 9: {name} has a year-to-date sum of {}, but its history sums up to {paid}", district.ytd)
        });
        let deliveries = self.check_customers(txn, &orders, report)?;
        let delivered = (orders.len() - new_orders.len()) as u64;
        report.require(delivered == self.scale.delivered() + deliveries, || {
            format!(
                "condition 11: {name} has {delivered} delivered orders, but was loaded with {} and delivered \
                 {deliveries}",
                self.scale.delivered()
            )
        });
        self.check_order_index(txn, &name, &orders, report)?;
        Ok(Found { ytd: district.ytd, orders: orders.len() as u64, lines })
    }

    fn read_orders(&self, txn: &mut impl Transaction<Table = T>, report: &mut AuditReport) -> Result<Vec<OrderSum>> {
        let &Self { w, d, .. } = self;
        let mut orders = Vec::new();
        self.scan(txn, &self.tables.order, |key, row| match (key::last_u32(key), Order::decode(row)) {
            (Some(o), Some(order)) if key == key::order(w, d, o) => {
                orders.push(OrderSum { o, order, is_new: false, lines: 0, undelivered: 0, amount: 0 });
            }
            _ => report.problem(format!("order {key:02x?} cannot be decoded")),
        })?;
        Ok(orders)
    }

    /// Marks the orders that are new; returns their numbers.
    fn mark_new_orders(
        &self,
        txn: &mut impl Transaction<Table = T>,
        orders: &mut [OrderSum],
        report: &mut AuditReport,
    ) -> Result<Vec<u32>> {
        let mut numbers = Vec::new();
        self.scan(txn, &self.tables.new_order, |key, _| {
            let o = key::last_u32(key).unwrap_or(0);
            numbers.push(o);
            match orders.binary_search_by_key(&o, |order| order.o) {
                Ok(at) => orders[at].is_new = true,
                Err(_) => report.problem(format!("condition 5: new order {key:02x?} has no order")),
            }
        })?;
        Ok(numbers)
    }

    /// Adds up the lines of each order, and what they took from stocks; returns how many there are.
    fn add_lines(
        &self,
        txn: &mut impl Transaction<Table = T>,
        orders: &mut [OrderSum],
        taken: &mut [Taken],
        report: &mut AuditReport,
    ) -> Result<u64> {
        let Scale { warehouses, customers, items } = self.scale;
        let mut count = 0;
        let mut at = 0;
        self.scan(txn, &self.tables.order_line, |key, row| {
            count += 1;
            let (Some((o, number)), Some(line)) = (key::decode_order_line(key), OrderLine::decode(row)) else {
                report.problem(format!("order line {key:02x?} cannot be decoded"));
                return;
            };
            while orders.get(at).is_some_and(|order| order.o < o) {
                at += 1;
            }
            let Some(order) = orders.get_mut(at).filter(|order| order.o == o) else {
                report.problem(format!("condition 4: order line {key:02x?} belongs to no order"));
                return;
            };
            order.lines = order.lines.saturating_add(1);
            report.require(number == order.lines, || format!("condition 6: order line {key:02x?} has a gap below"));
            order.undelivered = order.undelivered.saturating_add(u8::from(line.delivery_d == 0));
            order.amount += line.amount;
            let (supply, item) = (u64::from(line.supply_w_id), u64::from(line.i_id));
            if !(1..=warehouses).contains(&supply) || !(1..=items).contains(&item) {
                report.problem(format!("order line {key:02x?} refers to a stock row that does not exist"));
            } else if u64::from(o) > customers {
                let taken = &mut taken[((supply - 1) * items + item - 1) as usize];
                taken.quantity = taken.quantity.wrapping_add(u32::from(line.quantity));
                taken.lines += 1;
                taken.remote += u32::from(line.supply_w_id != self.w);
            }
        })?;
        Ok(count)
    }

    /// Checks the customers and their names in the index; returns how many deliveries they got.
    fn check_customers(
        &self,
        txn: &mut impl Transaction<Table = T>,
        orders: &[OrderSum],
        report: &mut AuditReport,
    ) -> Result<u64> {
        let &Self { w, d, scale, .. } = self;
        let mut delivered = vec![0; scale.customers as usize + 1];
        for order in orders.iter().filter(|order| order.order.carrier_id != 0) {
            if let Some(sum) = delivered.get_mut(usize::from(order.order.c_id)) {
                *sum += order.amount;
            }
        }
        let (mut count, mut deliveries) = (0, 0);
        let mut names = Vec::new();
        self.scan(txn, &self.tables.customer, |key, row| {
            count += 1;
            let c = key::last_u16(key).unwrap_or(0);
            let Some(customer) = Customer::decode(row).filter(|_| key == key::customer(w, d, c)) else {
                report.problem(format!("customer {key:02x?} is too short or under a wrong key"));
                return;
            };
            names.push(key::customer_name(w, d, &customer.last, &customer.first, c));
            deliveries += u64::from(customer.delivery_count);
            let (paid, payments) = self.history.of_customer(w, d, c);
            let delivered = delivered.get(usize::from(c)).copied().unwrap_or(0);
            let name = || format!("customer {c} of district {d} of warehouse {w}");
            report.require(customer.balance == delivered - paid, || {
                format!(
                    "condition 10: {} has balance {}, but got goods for {delivered} and paid {paid}",
                    name(),
                    customer.balance
                )
            });
            report.require(customer.balance + customer.ytd_payment == delivered, || {
                format!(
                    "condition 12: {} has balance {} and payments {}, but got goods for {delivered}",
                    name(),
                    customer.balance,
                    customer.ytd_payment
                )
            });
            report.require(customer.payment_count == payments, || {
                format!("{} counts {} payments, but its history has {payments}", name(), customer.payment_count)
            });
        })?;
        report.require(count == scale.customers, || {
            format!("there are {count} customers in district {d} of warehouse {w}, not {}", scale.customers)
        });
        names.sort_unstable();
        let mut expected = names.iter();
        let mut right = true;
        self.scan(txn, &self.tables.customer_name, |key, _| right &= expected.next().is_some_and(|name| name == key))?;
        report.require(right && expected.next().is_none(), || {
            format!("the index of names of district {d} of warehouse {w} differs from its customers")
        });
        Ok(deliveries)
    }

    fn check_order_index(
        &self,
        txn: &mut impl Transaction<Table = T>,
        name: &str,
        orders: &[OrderSum],
        report: &mut AuditReport,
    ) -> Result<()> {
        let key = |sum: &OrderSum| key::order_customer(self.w, self.d, sum.order.c_id, sum.o);
        let mut keys: Vec<_> = orders.iter().map(key).collect();
        keys.sort_unstable();
        let mut expected = keys.iter();
        let mut right = true;
        self.scan(txn, &self.tables.order_customer, |key, _| right &= expected.next().is_some_and(|own| own == key))?;
        report.require(right && expected.next().is_none(), || {
            format!("the index of orders by customer of {name} differs from its orders")
        });
        Ok(())
    }

    /// Visits the rows of the district in a table whose keys begin with warehouse and district.
    fn scan(
        &self,
        txn: &mut impl Transaction<Table = T>,
        table: &T,
        mut visit: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let start = key::district(self.w, self.d);
        // A row of a district that does not exist is found in the check of its neighbour.
        let first = if self.d == 1 { &start[..4] } else { &start[..] };
        let next = if self.d == DISTRICTS {
            key::warehouse(self.w + 1).to_vec()
        } else {
            key::district(self.w, self.d + 1).to_vec()
        };
        txn.scan(table, ScanRange::new(first, &next), |key, row| {
            visit(key, row);
            ControlFlow::Continue(())
        })
    }
}

/// Conditions 3 to 7.
fn check_orders(name: &str, orders: &[OrderSum], new_orders: &[u32], report: &mut AuditReport) {
    if let (Some(first), Some(last)) = (new_orders.first(), new_orders.last()) {
        let span = u64::from(last - first) + 1;
        report.require(span == new_orders.len() as u64, || {
            format!("condition 3: {name} has {} new orders between {first} and {last}", new_orders.len())
        });
    }
    let (mut expected, mut found) = (0, 0);
    for OrderSum { o, order, is_new, lines, undelivered, .. } in orders {
        expected += u64::from(order.ol_cnt);
        found += u64::from(*lines);
        report.require(*is_new == (order.carrier_id == 0), || {
            format!("condition 5: order {o} of {name} has carrier {}, new: {is_new}", order.carrier_id)
        });
        report.require(lines == &order.ol_cnt, || {
            format!("condition 6: order {o} of {name} has {lines} lines, not {}", order.ol_cnt)
        });
        let allowed = if order.carrier_id == 0 { *lines } else { 0 };
        report.require(*undelivered == allowed, || {
            format!("condition 7: order {o} of {name} has {undelivered} lines without delivery, not {allowed}")
        });
    }
    report.require(expected == found, || {
        format!("condition 4: the orders of {name} have {found} lines, but should have {expected}")
    });
}
