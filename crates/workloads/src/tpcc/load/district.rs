//! A district with its customers, their histories and orders.

use rand::RngExt;
use rand::rngs::StdRng;

use super::{FIRST_PAYMENT, SEED, district_ytd};
use crate::error::Result;
use crate::population::Loader;
use crate::random::{fill_alphanumeric, population_rng};
use crate::store::Store;
use crate::tpcc::random::{address, digits, last_name, loaded_names, text};
use crate::tpcc::row::{Customer, District, History, MOST_CUSTOMER_DATA, Order, OrderLine};
use crate::tpcc::scale::Scale;
use crate::tpcc::{Tables, key};

pub(super) struct DistrictRows<'t, T> {
    tables: &'t Tables<T>,
    scale: Scale,
    date: u64,
    w: u32,
    d: u8,
}

impl<'t, T> DistrictRows<'t, T> {
    pub(super) fn new(tables: &'t Tables<T>, scale: Scale, date: u64, w: u32, d: u8) -> Self {
        Self { tables, scale, date, w, d }
    }

    pub(super) fn load<S: Store<Table = T>>(&self, loader: &mut Loader<'_, S>) -> Result<()> {
        let mut rng = population_rng(SEED, u64::from(self.w) << 32 | u64::from(self.d));
        let rng = &mut rng;
        let district = District {
            ytd: district_ytd(self.scale),
            next_o_id: self.scale.customers as u32 + 1,
            tax: rng.random_range(0..=2_000),
            name: text(rng, 6),
            address: address(rng),
        };
        loader.put(&self.tables.district, &key::district(self.w, self.d), &district.row(&[]))?;
        for c in 1..=self.scale.customers as u16 {
            self.load_customer(c, rng, loader)?;
        }
        let mut customers: Vec<u16> = (1..=self.scale.customers as u16).collect();
        for last in (1..customers.len()).rev() {
            customers.swap(last, rng.random_range(0..=last));
        }
        for (o, c) in (1..).zip(customers) {
            self.load_order(o, c, rng, loader)?;
        }
        Ok(())
    }

    fn load_customer<S: Store<Table = T>>(&self, c: u16, rng: &mut StdRng, loader: &mut Loader<'_, S>) -> Result<()> {
        let &Self { tables, w, d, .. } = self;
        // Each name is taken once, then names are drawn.
        let ordinal = u64::from(c) - 1;
        let name = if ordinal < self.scale.names() { ordinal } else { loaded_names(self.scale).draw(rng) };
        let customer = Customer {
            balance: -FIRST_PAYMENT,
            ytd_payment: FIRST_PAYMENT,
            payment_count: 1,
            delivery_count: 0,
            since: self.date,
            credit_limit: 5_000_000,
            discount: rng.random_range(0..=5_000),
            credit: if rng.random_range(0..10) == 0 { *b"BC" } else { *b"GC" },
            first: text(rng, 8),
            middle: *b"OE",
            last: last_name(name),
            address: address(rng),
            phone: digits(rng),
        };
        let mut data = [0; MOST_CUSTOMER_DATA];
        let data = &mut data[..rng.random_range(300..=MOST_CUSTOMER_DATA)];
        fill_alphanumeric(rng, data);
        loader.put(&tables.customer, &key::customer(w, d, c), &customer.row(data))?;
        loader.put(&tables.customer_name, &key::customer_name(w, d, &customer.last, &customer.first, c), &[])?;
        let history =
            History { c_id: c, c_d_id: d, c_w_id: w, d_id: d, w_id: w, date: self.date, amount: FIRST_PAYMENT };
        let mut data = [0; 24];
        let data = &mut data[..rng.random_range(12..=24)];
        fill_alphanumeric(rng, data);
        let key = key::history(key::loaded_history(w), u64::from(d) << 16 | u64::from(c));
        loader.put(&tables.history, &key, &history.row(data))
    }

    fn load_order<S: Store<Table = T>>(
        &self,
        o: u32,
        c: u16,
        rng: &mut StdRng,
        loader: &mut Loader<'_, S>,
    ) -> Result<()> {
        let &Self { tables, w, d, date, .. } = self;
        let delivered = u64::from(o) <= self.scale.delivered();
        let order = Order {
            c_id: c,
            entry_d: date,
            carrier_id: if delivered { rng.random_range(1..=10) } else { 0 },
            ol_cnt: rng.random_range(5..=15),
            all_local: 1,
        };
        loader.put(&tables.order, &key::order(w, d, o), &order.row(&[]))?;
        loader.put(&tables.order_customer, &key::order_customer(w, d, c, o), &[])?;
        if !delivered {
            loader.put(&tables.new_order, &key::order(w, d, o), &[])?;
        }
        for number in 1..=order.ol_cnt {
            let line = OrderLine {
                i_id: rng.random_range(1..=self.scale.items as u32),
                supply_w_id: w,
                delivery_d: if delivered { date } else { 0 },
                quantity: 5,
                amount: if delivered { 0 } else { rng.random_range(1..=999_999) },
                dist_info: text(rng, 24),
            };
            loader.put(&tables.order_line, &key::order_line(w, d, o, number), &line.row(&[]))?;
        }
        Ok(())
    }
}
