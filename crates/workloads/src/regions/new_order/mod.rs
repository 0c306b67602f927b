//! TPC-C's new-order transaction in memory with atomic regions: one warehouse, its tables in
//! B+-trees, and each transaction as one region (Joshi et al., ATOM, HPCA 2017, section VI-F).
//!
//! | part of the memory | content |
//! |---|---|
//! | warehouse | its row, in whole lines |
//! | items | a table: key is the item |
//! | stocks | a table: key is the item |
//! | ten districts | for each its row in whole lines, then the tables of its customers, orders and order lines, and the tree of its new orders, which leads to the orders' rows |
//!
//! | lock | protects |
//! |---|---|
//! | 0 to 9 | the district: its row and its trees of orders, new orders and order lines, with their arenas |
//! | 10 to 1,033 | the stock rows of those items that fall to this stripe |
//!
//! Everything else is only read. A transaction names all of its locks in advance, in ascending
//! order, so that transactions do not deadlock. The district comes first: it is the lock that most
//! transactions wait for, and they hold none meanwhile.
//!
//! Regions cannot be rolled back. So a transaction looks up all of its items before its first
//! store, and ends there if one does not exist (clause 2.4.1.4: one in a hundred).
//!
//! | module | what it does |
//! |---|---|
//! | `table` | rows in an arena, and the tree that finds them |
//! | `load` | the population |
//! | `audit` | the conditions that hold after whole transactions |

mod audit;
mod load;
mod table;

use std::hint::black_box;

use rand::SeedableRng;
use rand::rngs::StdRng;

pub use self::audit::Ordered;
use self::table::{Table, row};
use crate::regions::arena::{LINE, broken};
use crate::regions::bplus::BPlusTree;
use crate::regions::memory::{Addr, AtomicMemory, RegionAccess};
use crate::tpcc::inputs::{Line, MOST_LINES, NewOrder};
use crate::tpcc::random::Choosers;
use crate::tpcc::row::{Customer, District, Item, MOST_CUSTOMER_DATA, Order, OrderLine, Stock, Warehouse, is_original};
use crate::tpcc::{DISTRICTS, Scale};

/// The only warehouse.
const W: u32 = 1;
/// The most bytes of an item's or a stock's text.
const MOST_BRAND: usize = 50;
const STOCK_BYTES: usize = Stock::LEN + 24 * DISTRICTS as usize + MOST_BRAND;
const STRIPES: u64 = 1024;
/// Instructions of a transaction besides its accesses: for the whole, and for each order line.
const WORK: u64 = 200;
const LINE_WORK: u64 = 100;

// What a transaction changes in these rows are whole words.
const _: () = assert!(Stock::LEN == 16);
const NEXT_ORDER: std::ops::Range<usize> = 8..16;

/// The tables of a warehouse.
#[derive(Clone, Debug)]
pub struct OrderEntry {
    scale: Scale,
    warehouse: Addr,
    items: Table,
    stocks: Table,
    districts: Vec<DistrictTables>,
    end: Addr,
}

#[derive(Clone, Debug)]
struct DistrictTables {
    row: Addr,
    customers: Table,
    orders: Table,
    new_orders: BPlusTree,
    order_lines: Table,
}

/// A new order that is to be entered.
#[derive(Clone, Debug)]
pub struct OrderRequest(NewOrder);

/// A terminal: draws new orders.
#[derive(Debug)]
pub struct Terminal {
    choosers: Choosers,
    random: StdRng,
}

impl Terminal {
    /// Returns a terminal.
    pub fn new(scale: Scale, seed: u64) -> Self {
        Self { choosers: Choosers::new(scale), random: StdRng::seed_from_u64(seed) }
    }

    /// Draws an order.
    pub fn draw(&mut self) -> OrderRequest {
        OrderRequest(NewOrder::draw(&self.choosers, W, &mut self.random))
    }
}

impl OrderRequest {
    /// Returns the number of order lines.
    pub fn lines(&self) -> u64 {
        self.0.lines().len() as u64
    }
}

impl OrderEntry {
    /// Number of locks.
    pub const LOCKS: usize = DISTRICTS as usize + STRIPES as usize;

    /// Returns the tables at `base`, which is a multiple of 64, of one warehouse; each district has
    /// room for so many orders besides the population's.
    pub fn new(scale: Scale, room: u64, base: Addr) -> Self {
        assert!(scale.warehouses == 1, "there is one warehouse");
        let mut end = base;
        let mut place = |bytes: u64| {
            let at = end;
            end += bytes.next_multiple_of(LINE);
            at
        };
        let warehouse = place(Warehouse::LEN as u64);
        let mut table = |entries, row_bytes: usize| Table::place(entries, row_bytes as u64, &mut place);
        let items = table(scale.items, Item::LEN + MOST_BRAND);
        let stocks = table(scale.items, STOCK_BYTES);
        let orders = scale.customers + room;
        let districts = (0..DISTRICTS).map(|_| DistrictTables {
            row: place(District::LEN as u64),
            customers: Table::place(scale.customers, (Customer::LEN + MOST_CUSTOMER_DATA) as u64, &mut place),
            orders: Table::place(orders, Order::LEN as u64, &mut place),
            new_orders: table::place_tree(orders, &mut place),
            order_lines: Table::place(orders * MOST_LINES as u64, OrderLine::LEN as u64, &mut place),
        });
        let districts = districts.collect();
        Self { scale, warehouse, items, stocks, districts, end }
    }

    /// Returns where the tables end.
    pub fn end(&self) -> Addr {
        self.end
    }

    /// Returns the locks of an order, ascending.
    pub fn locks(&self, order: &OrderRequest) -> Vec<usize> {
        let district = usize::from(order.0.d) - 1;
        let stripes = order.0.lines().iter().map(|line| usize::from(DISTRICTS) + stripe(line.i));
        let mut locks: Vec<usize> = std::iter::once(district).chain(stripes).collect();
        locks.sort_unstable();
        locks.dedup();
        locks
    }

    /// Enters an order, as one region under all of its locks. Returns false if one of its items
    /// does not exist: then nothing changes.
    ///
    /// # Errors
    /// [`crate::regions::RegionError::Broken`], and the memory's.
    pub fn enter<M: AtomicMemory>(
        &self,
        memory: &mut M,
        lock: M::Lock,
        order: &OrderRequest,
        now: u64,
    ) -> Result<bool, M::Error> {
        memory.atomic(lock, |memory| self.run(memory, &order.0, now))
    }

    fn run<M: RegionAccess>(&self, memory: &mut M, inputs: &NewOrder, now: u64) -> Result<bool, M::Error> {
        memory.work(WORK);
        let lines = inputs.lines();
        let district = &self.districts[usize::from(inputs.d) - 1];
        let warehouse: [u8; Warehouse::LEN] = row(memory, self.warehouse)?;
        let at = district.customers.find(memory, u64::from(inputs.c))?;
        let customer: [u8; Customer::LEN] = row(memory, at.ok_or_else(|| missing("customer", inputs.c.into()))?)?;

        let mut items = [(0, false); MOST_LINES];
        for (line, item) in lines.iter().zip(&mut items) {
            memory.work(LINE_WORK / 2);
            let Some(at) = self.items.find(memory, u64::from(line.i))? else { return Ok(false) };
            let row: [u8; Item::LEN + MOST_BRAND] = row(memory, at)?;
            let price = Item::decode(&row).ok_or_else(|| missing("item", line.i.into()))?.price;
            *item = (price, is_original(&row[Item::LEN..]));
        }

        let o = take_number(memory, district)?;
        let order = Order { c_id: inputs.c, entry_d: now, carrier_id: 0, ol_cnt: lines.len() as u8, all_local: 1 };
        let at = district.orders.insert(memory, o, &order.row(&[]))?;
        district.new_orders.insert(memory, o, at)?;
        let mut total = 0;
        for ((number, line), (price, original)) in (1..).zip(lines).zip(items) {
            memory.work(LINE_WORK / 2);
            let (dist_info, brand) = self.take_from_stock(memory, line, inputs.d)?;
            let amount = i64::from(price) * i64::from(line.quantity);
            total += amount;
            black_box(original && brand);
            let Line { supply_w: supply_w_id, i: i_id, quantity } = *line;
            let line = OrderLine { i_id, supply_w_id, delivery_d: 0, quantity, amount, dist_info };
            district.order_lines.insert(memory, line_key(o, number), &line.row(&[]))?;
        }
        black_box((total, warehouse, customer));
        Ok(true)
    }

    /// Takes the line's quantity from the stock; returns the stock's information about the
    /// district, and whether it is of an original brand.
    fn take_from_stock<M: RegionAccess>(
        &self,
        memory: &mut M,
        line: &Line,
        d: u8,
    ) -> Result<([u8; 24], bool), M::Error> {
        let missing = || missing("stock", line.i.into());
        let at = self.stocks.find(memory, u64::from(line.i))?.ok_or_else(missing)?;
        let mut row: [u8; STOCK_BYTES] = row(memory, at)?;
        let mut stock = Stock::decode(&row).ok_or_else(missing)?;
        stock.take(line.quantity, line.supply_w != W);
        stock.store(&mut row);
        memory.write(at, &row[..Stock::LEN])?;
        let dist_info = Stock::dist_info(&row, d).ok_or_else(missing)?;
        Ok((dist_info, is_original(Stock::data(&row))))
    }
}

/// Takes the next order number of a district.
fn take_number<M: RegionAccess>(memory: &mut M, tables: &DistrictTables) -> Result<u64, M::Error> {
    let mut row: [u8; District::LEN] = row(memory, tables.row)?;
    let district = District::decode(&row).ok_or_else(|| missing("district", tables.row))?;
    District { next_o_id: district.next_o_id + 1, ..district }.store(&mut row);
    memory.write(tables.row + NEXT_ORDER.start as u64, &row[NEXT_ORDER])?;
    Ok(u64::from(district.next_o_id))
}

/// Returns the key of an order line.
fn line_key(o: u64, number: u64) -> u64 {
    o << 8 | number
}

/// Returns the stripe of an item's stock. Hashed, because the low bits of the items that the
/// specification has drawn are far from even.
fn stripe(i: u32) -> usize {
    (u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STRIPES.ilog2())) as usize
}

fn missing<E: From<crate::regions::RegionError>>(what: &str, key: u64) -> E {
    broken(format!("{what} {key} is missing"))
}

#[cfg(test)]
mod tests;
