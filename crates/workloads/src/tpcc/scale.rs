//! How big a TPC-C database is.

use std::fmt;

use crate::error::{Error, Result};
use crate::population::Parameters;

/// Districts of each warehouse.
pub const DISTRICTS: u8 = 10;

/// Number of rows of a TPC-C database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Warehouses, at least 1: the scale factor.
    pub warehouses: u64,
    /// Customers of each district, and orders of its population; the specification says 3,000.
    pub customers: u64,
    /// Items, and rows of stock in each warehouse; the specification says 100,000.
    pub items: u64,
}

impl Scale {
    /// Returns the specification's numbers of rows for each warehouse.
    pub const fn standard(warehouses: u64) -> Self {
        Self { warehouses, customers: 3_000, items: 100_000 }
    }

    /// Returns a smaller database, for tests.
    pub const fn small(warehouses: u64, customers: u64) -> Self {
        Self { warehouses, customers, items: customers * 10 }
    }

    /// Returns the orders of a district's population that have been delivered: seven in ten.
    pub const fn delivered(&self) -> u64 {
        self.customers * 7 / 10
    }

    /// Last names that are in use.
    pub(super) fn names(&self) -> u64 {
        self.customers.min(1_000)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { warehouses, customers, items } = self;
        write!(f, "{warehouses} warehouses with {customers} customers in each district, and {items} items")
    }
}

impl Parameters for Scale {
    const WORKLOAD: &'static str = "tpcc";
    const COUNT: usize = 3;

    fn encode(&self) -> Vec<u64> {
        vec![self.warehouses, self.customers, self.items]
    }

    fn decode(numbers: &[u64]) -> Self {
        Self { warehouses: numbers[0], customers: numbers[1], items: numbers[2] }
    }

    fn validate(&self) -> Result<()> {
        let reason = if !(1..=1 << 24).contains(&self.warehouses) {
            "TPC-C needs 1 to 2^24 warehouses"
        } else if !(1..=60_000).contains(&self.customers) {
            "a district of TPC-C needs 1 to 60,000 customers"
        } else if !(1..=1 << 24).contains(&self.items) {
            "TPC-C needs 1 to 2^24 items"
        } else {
            return Ok(());
        };
        Err(Error::InvalidParameter { reason: reason.into() })
    }
}
