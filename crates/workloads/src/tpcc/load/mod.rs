//! Populates a TPC-C database by clause 4.3.3. The items are the first portion, each district is
//! one (the first of a warehouse with the warehouse), and so is the stock of each warehouse.

mod district;
pub(crate) mod rows;

use super::scale::{DISTRICTS, Scale};
use super::{Tables, key};
use crate::error::Result;
use crate::population::{Loader, Population};
use crate::random::population_rng;
use crate::store::Store;
use district::DistrictRows;

/// Portions of each warehouse.
const WAREHOUSE_PORTIONS: u64 = DISTRICTS as u64 + 1;

#[derive(Clone)]
pub(super) struct CompanyPopulation<T> {
    tables: Tables<T>,
    scale: Scale,
    /// When everything is said to have happened: now.
    date: u64,
}

impl<T> CompanyPopulation<T> {
    /// Makes the tables that are not there.
    pub(super) fn prepare<S: Store<Table = T>>(store: &S, scale: Scale) -> Result<Self> {
        let date = duramen_sync::clock::wall_micros();
        Ok(Self { tables: Tables::with(|name| store.make_table(name))?, scale, date })
    }
}

impl<S: Store> Population<S> for CompanyPopulation<S::Table> {
    fn portions(&self) -> u64 {
        1 + self.scale.warehouses * WAREHOUSE_PORTIONS
    }

    fn rows(&self, portion: u64) -> u64 {
        match portion.checked_sub(1).map(|portion| portion % WAREHOUSE_PORTIONS) {
            None | Some(0) => self.scale.items,
            // Customer, name, history, order, its index, three in ten new orders, ten lines on
            // average.
            Some(_) => self.scale.customers * 153 / 10 + 1,
        }
    }

    fn load(&self, portion: u64, loader: &mut Loader<'_, S>) -> Result<()> {
        let Some(rest) = portion.checked_sub(1) else { return self.load_items(loader) };
        let w = (rest / WAREHOUSE_PORTIONS) as u32 + 1;
        match (rest % WAREHOUSE_PORTIONS) as u8 {
            0 => self.load_warehouse(portion, w, loader),
            d => DistrictRows::new(&self.tables, self.scale, self.date, w, d).load(loader),
        }
    }
}

impl<T> CompanyPopulation<T> {
    fn load_items<S: Store<Table = T>>(&self, loader: &mut Loader<'_, S>) -> Result<()> {
        let mut rng = population_rng(SEED, 0);
        for i in 1..=self.scale.items as u32 {
            loader.put(&self.tables.item, &key::item(i), &rows::item(&mut rng))?;
        }
        Ok(())
    }

    /// Returns a warehouse and its stock.
    fn load_warehouse<S: Store<Table = T>>(&self, portion: u64, w: u32, loader: &mut Loader<'_, S>) -> Result<()> {
        let mut rng = population_rng(SEED, portion);
        let rng = &mut rng;
        loader.put(&self.tables.warehouse, &key::warehouse(w), &rows::warehouse(self.scale, rng))?;
        for i in 1..=self.scale.items as u32 {
            loader.put(&self.tables.stock, &key::stock(w, i), &rows::stock(rng))?;
        }
        Ok(())
    }
}

/// What distinguishes the random numbers of this population from others'.
const SEED: u64 = u64::from_le_bytes(*b"tpcc    ");

/// What each customer of the population has paid, once.
const FIRST_PAYMENT: i64 = 1_000;

/// Returns what a district of the population has been paid: $30,000 at the specification's scale.
fn district_ytd(scale: Scale) -> i64 {
    FIRST_PAYMENT * scale.customers.cast_signed()
}

fn warehouse_ytd(scale: Scale) -> i64 {
    district_ytd(scale) * i64::from(DISTRICTS)
}
