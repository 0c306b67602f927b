//! A district with its customers, their histories and orders.

use rand::RngExt;
use rand::rngs::StdRng;

use super::{FIRST_PAYMENT, SEED, rows};
use crate::error::Result;
use crate::population::Loader;
use crate::random::{fill_alphanumeric, population_rng};
use crate::store::Store;
use crate::tpcc::row::History;
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
        loader.put(&self.tables.district, &key::district(self.w, self.d), &rows::district(self.scale, rng))?;
        for c in 1..=self.scale.customers as u16 {
            self.load_customer(c, rng, loader)?;
        }
        for (o, c) in (1..).zip(rows::ordering_customers(self.scale, rng)) {
            self.load_order(o, c, rng, loader)?;
        }
        Ok(())
    }

    fn load_customer<S: Store<Table = T>>(&self, c: u16, rng: &mut StdRng, loader: &mut Loader<'_, S>) -> Result<()> {
        let &Self { tables, w, d, .. } = self;
        let (customer, data) = rows::customer(self.scale, self.date, c, rng);
        loader.put(&tables.customer, &key::customer(w, d, c), &customer.row(&data))?;
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
        let order = rows::order(date, c, delivered, rng);
        loader.put(&tables.order, &key::order(w, d, o), &order.row(&[]))?;
        loader.put(&tables.order_customer, &key::order_customer(w, d, c, o), &[])?;
        if !delivered {
            loader.put(&tables.new_order, &key::order(w, d, o), &[])?;
        }
        for number in 1..=order.ol_cnt {
            let line = rows::order_line(self.scale, date, w, delivered, rng);
            loader.put(&tables.order_line, &key::order_line(w, d, o, number), &line.row(&[]))?;
        }
        Ok(())
    }
}
