//! Keys of TPC-C, byte for byte: numbers big-endian, so that their byte order is their number
//! order.
//!
//! | table | key |
//! |---|---|
//! | `tpcc_warehouse` | w u32 |
//! | `tpcc_district` | w u32, d u8 |
//! | `tpcc_customer` | w u32, d u8, c u16 |
//! | `tpcc_customer_name` (index) | w u32, d u8, last name 16, first name 16, c u16 |
//! | `tpcc_history` | source u32, sequence u64 |
//! | `tpcc_order`, `tpcc_new_order` | w u32, d u8, o u32 |
//! | `tpcc_order_customer` (index) | w u32, d u8, c u16, o u32 |
//! | `tpcc_order_line` | w u32, d u8, o u32, number u8 |
//! | `tpcc_item` | i u32 |
//! | `tpcc_stock` | w u32, i u32 |
//!
//! History rows have no key in the specification. Here the source is a terminal, which counts its
//! rows from 1, or the population of a warehouse ([`loaded_history`]).

/// A name in an index key and in a row: zeros behind it.
pub type Name = [u8; 16];

/// Puts the parts of a key together.
#[inline]
fn join<const N: usize, const P: usize>(parts: [&[u8]; P]) -> [u8; N] {
    let mut key = [0; N];
    let mut at = 0;
    for part in parts {
        key[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    assert_eq!(at, N);
    key
}

/// Returns the key of a warehouse.
pub fn warehouse(w: u32) -> [u8; 4] {
    w.to_be_bytes()
}

/// Returns the key of a district.
#[inline]
pub fn district(w: u32, d: u8) -> [u8; 5] {
    join([&w.to_be_bytes(), &[d]])
}

/// Returns the key of a customer.
#[inline]
pub fn customer(w: u32, d: u8, c: u16) -> [u8; 7] {
    join([&w.to_be_bytes(), &[d], &c.to_be_bytes()])
}

/// Returns the key of a customer in the index of last names; with an empty first name and customer
/// 0 in front of all with this one.
#[inline]
pub fn customer_name(w: u32, d: u8, last: &Name, first: &Name, c: u16) -> [u8; 39] {
    join([&w.to_be_bytes(), &[d], last, first, &c.to_be_bytes()])
}

/// Returns the key of an order, or of its entry among the new orders.
#[inline]
pub fn order(w: u32, d: u8, o: u32) -> [u8; 9] {
    join([&w.to_be_bytes(), &[d], &o.to_be_bytes()])
}

/// Returns the key of an order in the index of customers.
#[inline]
pub fn order_customer(w: u32, d: u8, c: u16, o: u32) -> [u8; 11] {
    join([&w.to_be_bytes(), &[d], &c.to_be_bytes(), &o.to_be_bytes()])
}

/// Returns the key of an order line.
#[inline]
pub fn order_line(w: u32, d: u8, o: u32, number: u8) -> [u8; 10] {
    join([&w.to_be_bytes(), &[d], &o.to_be_bytes(), &[number]])
}

/// Returns the key of an item.
pub fn item(i: u32) -> [u8; 4] {
    i.to_be_bytes()
}

/// Returns the key of an item's stock in a warehouse.
#[inline]
pub fn stock(w: u32, i: u32) -> [u8; 8] {
    join([&w.to_be_bytes(), &i.to_be_bytes()])
}

/// Returns the key of a history row.
#[inline]
pub fn history(source: u32, sequence: u64) -> [u8; 12] {
    join([&source.to_be_bytes(), &sequence.to_be_bytes()])
}

/// Returns the source of the history rows in the population of warehouse `w`; terminals have
/// numbers below.
pub fn loaded_history(w: u32) -> u32 {
    1 << 31 | w
}

/// Returns the last part of a key, as a number.
pub(super) fn last_u16(key: &[u8]) -> Option<u16> {
    key.last_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// Returns the last part of a key, as a number.
pub(super) fn last_u32(key: &[u8]) -> Option<u32> {
    key.last_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

/// Returns the last part of a key, as a number.
pub(super) fn last_u64(key: &[u8]) -> Option<u64> {
    key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// Returns the warehouse and the item in the key of a stock.
pub(super) fn decode_stock(key: &[u8]) -> Option<(u32, u32)> {
    let (w, i) = key.split_first_chunk()?;
    Some((u32::from_be_bytes(*w), u32::from_be_bytes(i.try_into().ok()?)))
}

/// Returns the order and the line number in the key of an order line.
pub(super) fn decode_order_line(key: &[u8]) -> Option<(u32, u8)> {
    let [_, _, _, _, _, a, b, c, d, number] = <[u8; 10]>::try_from(key).ok()?;
    Some((u32::from_be_bytes([a, b, c, d]), number))
}
