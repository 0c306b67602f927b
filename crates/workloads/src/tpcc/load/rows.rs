//! The rows of the population, whatever store takes them. Each draws its random parts in the order
//! of its fields.

use rand::RngExt;
use rand::rngs::StdRng;

use super::{FIRST_PAYMENT, district_ytd, warehouse_ytd};
use crate::random::fill_alphanumeric;
use crate::tpcc::random::{address, brand, digits, last_name, loaded_names, text};
use crate::tpcc::row::{Customer, District, Item, MOST_CUSTOMER_DATA, Order, OrderLine, Stock, Warehouse};
use crate::tpcc::scale::Scale;

pub(crate) fn item(rng: &mut StdRng) -> Vec<u8> {
    let item = Item { im_id: rng.random_range(1..=10_000), price: rng.random_range(100..=10_000), name: text(rng, 14) };
    item.row(&brand(rng))
}

pub(crate) fn warehouse(scale: Scale, rng: &mut StdRng) -> Vec<u8> {
    let warehouse = Warehouse {
        ytd: warehouse_ytd(scale),
        tax: rng.random_range(0..=2_000),
        name: text(rng, 6),
        address: address(rng),
    };
    warehouse.row(&[])
}

pub(crate) fn stock(rng: &mut StdRng) -> Vec<u8> {
    let stock = Stock { quantity: rng.random_range(10..=100), ytd: 0, order_count: 0, remote_count: 0 };
    let mut rest = vec![0; 240];
    fill_alphanumeric(rng, &mut rest);
    rest.extend_from_slice(&brand(rng));
    stock.row(&rest)
}

pub(crate) fn district(scale: Scale, rng: &mut StdRng) -> Vec<u8> {
    let district = District {
        ytd: district_ytd(scale),
        next_o_id: scale.customers as u32 + 1,
        tax: rng.random_range(0..=2_000),
        name: text(rng, 6),
        address: address(rng),
    };
    district.row(&[])
}

/// Returns customer `c`, and its text.
pub(crate) fn customer(scale: Scale, date: u64, c: u16, rng: &mut StdRng) -> (Customer, Vec<u8>) {
    // Each name is taken once, then names are drawn.
    let ordinal = u64::from(c) - 1;
    let name = if ordinal < scale.names() { ordinal } else { loaded_names(scale).draw(rng) };
    let customer = Customer {
        balance: -FIRST_PAYMENT,
        ytd_payment: FIRST_PAYMENT,
        payment_count: 1,
        delivery_count: 0,
        since: date,
        credit_limit: 5_000_000,
        discount: rng.random_range(0..=5_000),
        credit: if rng.random_range(0..10) == 0 { *b"BC" } else { *b"GC" },
        first: text(rng, 8),
        middle: *b"OE",
        last: last_name(name),
        address: address(rng),
        phone: digits(rng),
    };
    let mut data = vec![0; rng.random_range(300..=MOST_CUSTOMER_DATA)];
    fill_alphanumeric(rng, &mut data);
    (customer, data)
}

/// Returns the customers of a district in the order of their orders.
pub(crate) fn ordering_customers(scale: Scale, rng: &mut StdRng) -> Vec<u16> {
    let mut customers: Vec<u16> = (1..=scale.customers as u16).collect();
    for last in (1..customers.len()).rev() {
        customers.swap(last, rng.random_range(0..=last));
    }
    customers
}

/// Returns the order of customer `c`.
pub(crate) fn order(date: u64, c: u16, delivered: bool, rng: &mut StdRng) -> Order {
    Order {
        c_id: c,
        entry_d: date,
        carrier_id: if delivered { rng.random_range(1..=10) } else { 0 },
        ol_cnt: rng.random_range(5..=15),
        all_local: 1,
    }
}

/// Returns a line of an order from warehouse `w`.
pub(crate) fn order_line(scale: Scale, date: u64, w: u32, delivered: bool, rng: &mut StdRng) -> OrderLine {
    OrderLine {
        i_id: rng.random_range(1..=scale.items as u32),
        supply_w_id: w,
        delivery_d: if delivered { date } else { 0 },
        quantity: 5,
        amount: if delivered { 0 } else { rng.random_range(1..=999_999) },
        dist_info: text(rng, 24),
    }
}
