//! TPC-C: a wholesale supplier with warehouses, districts and customers, that takes orders,
//! payments and delivers.
//!
//! Population, transactions and consistency conditions follow revision 5.11 of the specification.
//! Clients have no think time; each is a terminal of one warehouse. The indexes that some
//! transactions need, customers by last name and orders by customer, are tables of their own.

mod audit;
mod context;
mod customer;
mod delivery;
pub(crate) mod inputs;
pub mod key;
pub(crate) mod load;
mod new_order;
mod order_status;
mod payment;
pub(crate) mod random;
pub mod row;
mod scale;
mod session;
mod stock_level;

pub use scale::{DISTRICTS, Scale};

use crate::audit::AuditReport;
use crate::error::Result;
use crate::population;
use crate::store::Store;
use crate::workload::{LoadOutcome, LoadProgress, Session, Workload};

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables<T> {
    /// Warehouses.
    pub warehouse: T,
    /// Ten rows for each warehouse.
    pub district: T,
    /// 3,000 rows for each district.
    pub customer: T,
    /// The index of customers by last and first name.
    pub customer_name: T,
    /// One row for each payment.
    pub history: T,
    /// One row for each order.
    pub order: T,
    /// The index of orders by customer.
    pub order_customer: T,
    /// One row for each order that has not been delivered.
    pub new_order: T,
    /// Five to fifteen rows for each order.
    pub order_line: T,
    /// 100,000 rows.
    pub item: T,
    /// One row for each item in each warehouse.
    pub stock: T,
}

impl<T> Tables<T> {
    /// Opens all of them.
    ///
    /// # Errors
    /// [`crate::Error::MissingTable`] when the population has not begun.
    pub fn open<S: Store<Table = T>>(store: &S) -> Result<Self> {
        Self::with(|name| store.table(name))
    }

    fn with(open: impl Fn(&str) -> Result<T>) -> Result<Self> {
        Ok(Self {
            warehouse: open("tpcc_warehouse")?,
            district: open("tpcc_district")?,
            customer: open("tpcc_customer")?,
            customer_name: open("tpcc_customer_name")?,
            history: open("tpcc_history")?,
            order: open("tpcc_order")?,
            order_customer: open("tpcc_order_customer")?,
            new_order: open("tpcc_new_order")?,
            order_line: open("tpcc_order_line")?,
            item: open("tpcc_item")?,
            stock: open("tpcc_stock")?,
        })
    }
}

/// Which transactions are run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Mix {
    /// The specification's: 45 % new orders, 43 % payments, 4 % each of order status, delivery and
    /// stock level.
    #[default]
    Standard,
    /// Only new orders.
    NewOrder,
    /// Only payments.
    Payment,
}

/// The TPC-C workload.
#[derive(Debug)]
pub struct Tpcc {
    scale: Scale,
    mix: Mix,
}

impl Tpcc {
    /// TPC-C at `scale`.
    pub fn new(scale: Scale, mix: Mix) -> Self {
        Self { scale, mix }
    }
}

impl<S: Store> Workload<S> for Tpcc {
    fn name(&self) -> &'static str {
        match self.mix {
            Mix::Standard => "tpcc",
            Mix::NewOrder => "tpcc:new-order",
            Mix::Payment => "tpcc:payment",
        }
    }

    fn scale(&self) -> String {
        self.scale.to_string()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &session::KINDS
    }

    fn load(&self, store: &S, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        population::load(store, self.scale, observe, |store| load::CompanyPopulation::prepare(store, self.scale))
    }

    fn session(&self, store: &S, client: u32) -> Result<Box<dyn Session>> {
        Ok(Box::new(session::TpccSession::open(store, random::Choosers::new(self.scale), self.mix, client)?))
    }

    /// Checks the specification's consistency conditions 1 to 12 (clause 3.3.2). The indexes must
    /// agree with their tables, every stock must have lost exactly what the order lines say, and no
    /// terminal's history may have holes.
    fn audit(&self, store: &S) -> Result<AuditReport> {
        population::audit(store, self.scale, |report| audit::audit(store, self.scale, report))
    }
}
