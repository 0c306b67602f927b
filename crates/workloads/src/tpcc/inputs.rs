//! The inputs of transactions (clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1).

use rand::RngExt;
use rand::rngs::StdRng;

use super::key::Name;
use super::random::{Choosers, last_name};
use super::scale::DISTRICTS;

/// The most lines of an order.
pub(crate) const MOST_LINES: usize = 15;

/// Inputs of one transaction; the order is that of [`super::session::KINDS`].
#[derive(Clone, Debug)]
pub(super) enum Inputs {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus(OrderStatus),
    Delivery(Delivery),
    StockLevel(StockLevel),
}

#[derive(Clone, Debug)]
pub(crate) struct NewOrder {
    pub(crate) d: u8,
    pub(crate) c: u16,
    lines: [Line; MOST_LINES],
    count: u8,
}

/// What is ordered.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Line {
    pub(crate) supply_w: u32,
    /// An item, or a number that none has.
    pub(crate) i: u32,
    pub(crate) quantity: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Payment {
    pub(super) d: u8,
    pub(super) c_w: u32,
    pub(super) c_d: u8,
    pub(super) customer: CustomerBy,
    pub(super) amount: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct OrderStatus {
    pub(super) d: u8,
    pub(super) customer: CustomerBy,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Delivery {
    pub(super) carrier: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StockLevel {
    pub(super) threshold: i32,
}

/// How a transaction names its customer.
#[derive(Clone, Copy, Debug)]
pub(super) enum CustomerBy {
    Id(u16),
    LastName(Name),
}

impl NewOrder {
    pub(crate) fn draw(choosers: &Choosers, w: u32, rng: &mut StdRng) -> Self {
        let mut lines = [Line::default(); MOST_LINES];
        let count = rng.random_range(5..=MOST_LINES);
        let used = &mut lines[..count];
        for line in used.iter_mut() {
            let remote = choosers.scale.warehouses > 1 && rng.random_range(0..100) == 0;
            line.supply_w = if remote { other_warehouse(choosers, w, rng) } else { w };
            line.i = choosers.item.draw(rng) as u32 + 1;
            line.quantity = rng.random_range(1..=10);
        }
        // Lines are drawn one like the other, so any order of them is as likely; in this one,
        // stocks are locked in the order of their keys and orders do not deadlock over them.
        used.sort_unstable();
        if rng.random_range(0..100) == 0 {
            used[count - 1].i = choosers.scale.items as u32 + 1;
        }
        Self { d: district(rng), c: customer(choosers, rng), lines, count: count as u8 }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..usize::from(self.count)]
    }
}

impl Payment {
    pub(super) fn draw(choosers: &Choosers, w: u32, rng: &mut StdRng) -> Self {
        let d = district(rng);
        let remote = choosers.scale.warehouses > 1 && rng.random_range(0..100) < 15;
        let (c_w, c_d) = if remote { (other_warehouse(choosers, w, rng), district(rng)) } else { (w, d) };
        let (customer, amount) = (CustomerBy::draw(choosers, rng), rng.random_range(100..=500_000));
        Self { d, c_w, c_d, customer, amount }
    }
}

impl OrderStatus {
    pub(super) fn draw(choosers: &Choosers, rng: &mut StdRng) -> Self {
        Self { d: district(rng), customer: CustomerBy::draw(choosers, rng) }
    }
}

impl Delivery {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        Self { carrier: rng.random_range(1..=10) }
    }
}

impl StockLevel {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        Self { threshold: rng.random_range(10..=20) }
    }
}

impl CustomerBy {
    /// By last name in three of five cases.
    fn draw(choosers: &Choosers, rng: &mut StdRng) -> Self {
        if rng.random_range(0..100) < 60 {
            Self::LastName(last_name(choosers.name.draw(rng)))
        } else {
            Self::Id(customer(choosers, rng))
        }
    }
}

fn district(rng: &mut StdRng) -> u8 {
    rng.random_range(1..=DISTRICTS)
}

fn customer(choosers: &Choosers, rng: &mut StdRng) -> u16 {
    choosers.customer.draw(rng) as u16 + 1
}

fn other_warehouse(choosers: &Choosers, w: u32, rng: &mut StdRng) -> u32 {
    let other = rng.random_range(1..choosers.scale.warehouses as u32);
    other + u32::from(other >= w)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::Scale;
    use rand::SeedableRng;

    const DRAWS: u32 = 20_000;

    fn share(count: u32) -> f64 {
        f64::from(count) / f64::from(DRAWS)
    }

    #[test]
    fn new_orders_follow_the_specification() {
        let choosers = Choosers::new(Scale::standard(5));
        let mut rng = StdRng::seed_from_u64(9);
        let (mut lines, mut remote, mut unused) = (0u32, 0u32, 0u32);
        for _ in 0..DRAWS {
            let order = NewOrder::draw(&choosers, 3, &mut rng);
            assert!((1..=10).contains(&order.d) && (1..=3_000).contains(&order.c));
            assert!((5..=15).contains(&order.lines().len()));
            for (at, line) in order.lines().iter().enumerate() {
                assert!((1..=5).contains(&line.supply_w) && (1..=10).contains(&line.quantity));
                lines += 1;
                remote += u32::from(line.supply_w != 3);
                if line.i == 100_001 {
                    assert_eq!(at, order.lines().len() - 1, "only the last");
                    unused += 1;
                } else {
                    assert!((1..=100_000).contains(&line.i));
                }
            }
        }
        assert!((share(lines) - 10.0).abs() < 0.1);
        assert!((share(remote) / share(lines) - 0.01).abs() < 0.002);
        assert!((share(unused) - 0.01).abs() < 0.004);
    }

    #[test]
    fn payments_follow_the_specification() {
        let choosers = Choosers::new(Scale::standard(5));
        let mut rng = StdRng::seed_from_u64(9);
        let (mut remote, mut by_name) = (0u32, 0u32);
        for _ in 0..DRAWS {
            let payment = Payment::draw(&choosers, 1, &mut rng);
            assert!((100..=500_000).contains(&payment.amount));
            assert!((1..=5).contains(&payment.c_w));
            if payment.c_w == 1 {
                assert_eq!(payment.c_d, payment.d);
            } else {
                remote += 1;
            }
            by_name += u32::from(matches!(payment.customer, CustomerBy::LastName(_)));
        }
        assert!((share(remote) - 0.15).abs() < 0.01);
        assert!((share(by_name) - 0.60).abs() < 0.015);
        let alone = Choosers::new(Scale::standard(1));
        assert!((0..1_000).all(|_| Payment::draw(&alone, 1, &mut rng).c_w == 1));
    }
}
