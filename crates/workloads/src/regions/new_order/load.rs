//! The population of the warehouse (clause 4.3.3): as that of `tpcc`, without histories and
//! indexes. Each row is written in a region of its own.

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::table::Table;
use super::{DistrictTables, OrderEntry, W, line_key};
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::tpcc::load::rows;

/// When the population was made: the earliest time, as 0 stands for none.
const DATE: u64 = 1;

impl OrderEntry {
    /// Makes the population in a memory of zeros.
    ///
    /// # Errors
    /// The memory's.
    pub fn load<M: AtomicMemory>(&self, memory: &mut M, lock: M::Lock, seed: u64) -> Result<(), M::Error> {
        let random = &mut StdRng::seed_from_u64(seed);
        write_row(memory, lock, self.warehouse, rows::warehouse(self.scale, random))?;
        for table in [&self.items, &self.stocks] {
            table.make(memory, lock)?;
        }
        for i in 1..=self.scale.items {
            insert(memory, lock, &self.items, i, &rows::item(random))?;
            insert(memory, lock, &self.stocks, i, &rows::stock(random))?;
        }
        for district in &self.districts {
            self.load_district(memory, lock, district, random)?;
        }
        Ok(())
    }

    fn load_district<M: AtomicMemory>(
        &self,
        memory: &mut M,
        lock: M::Lock,
        district: &DistrictTables,
        random: &mut StdRng,
    ) -> Result<(), M::Error> {
        write_row(memory, lock, district.row, rows::district(self.scale, random))?;
        for table in [&district.customers, &district.orders, &district.order_lines] {
            table.make(memory, lock)?;
        }
        district.new_orders.make(memory, lock)?;
        for c in 1..=self.scale.customers as u16 {
            let (customer, data) = rows::customer(self.scale, DATE, c, random);
            insert(memory, lock, &district.customers, c.into(), &customer.row(&data))?;
        }
        for (o, c) in (1..).zip(rows::ordering_customers(self.scale, random)) {
            let delivered = o <= self.scale.delivered();
            let order = rows::order(DATE, c, delivered, random);
            let at = insert(memory, lock, &district.orders, o, &order.row(&[]))?;
            if !delivered {
                memory.atomic(lock, |memory| district.new_orders.insert(memory, o, at))?;
            }
            for number in 1..=u64::from(order.ol_cnt) {
                let line = rows::order_line(self.scale, DATE, W, delivered, random);
                insert(memory, lock, &district.order_lines, line_key(o, number), &line.row(&[]))?;
            }
        }
        Ok(())
    }
}

fn insert<M: AtomicMemory>(
    memory: &mut M,
    lock: M::Lock,
    table: &Table,
    key: u64,
    row: &[u8],
) -> Result<Addr, M::Error> {
    memory.atomic(lock, |memory| table.insert(memory, key, row))
}

/// Writes a row that is in no table.
fn write_row<M: AtomicMemory>(memory: &mut M, lock: M::Lock, at: Addr, mut row: Vec<u8>) -> Result<(), M::Error> {
    row.resize(row.len().next_multiple_of(8), 0);
    memory.atomic(lock, |memory| memory.write(at, &row))
}
