//! Payment (clause 2.5.2): a customer pays, which district and warehouse sum up.
//!
//! The warehouse row, which every payment to it changes, comes last.

use std::hint::black_box;

use super::context::{Context, damaged};
use super::inputs::Payment;
use super::row::{Customer, District, History, Warehouse};
use super::{customer, key};
use crate::error::Result;
use crate::store::Transaction;

pub(super) fn run<T: Transaction>(
    txn: &mut T,
    context: &mut Context<T::Table>,
    inputs: &Payment,
    now: u64,
) -> Result<()> {
    let &Payment { d, c_w, c_d, amount, .. } = inputs;
    let c = customer::find(txn, context, c_w, c_d, &inputs.customer)?;
    let Context { tables, w, history_key, bytes, .. } = context;
    let w = *w;

    let customer_key = key::customer(c_w, c_d, c);
    let paid = txn.modify(&tables.customer, &customer_key, |row| {
        let mut customer = Customer::decode(row)?;
        customer.balance -= amount;
        customer.ytd_payment += amount;
        customer.payment_count += 1;
        customer.store(row);
        if customer.credit == *b"BC" {
            bytes.clear();
            for number in [i64::from(c), i64::from(c_d), i64::from(c_w), i64::from(d), i64::from(w), amount] {
                push_number(bytes, number.unsigned_abs());
            }
            customer::prepend(row, bytes);
        }
        Some(customer)
    })?;
    black_box(paid.flatten().ok_or_else(|| damaged("customer", &customer_key))?);

    let district_key = key::district(w, d);
    let district = txn.modify(&tables.district, &district_key, |row| {
        let mut district = District::decode(row)?;
        district.ytd += amount;
        district.store(row);
        Some(district)
    })?;
    let district = district.flatten().ok_or_else(|| damaged("district", &district_key))?;

    let warehouse_key = key::warehouse(w);
    let warehouse = txn.modify(&tables.warehouse, &warehouse_key, |row| {
        let mut warehouse = Warehouse::decode(row)?;
        warehouse.ytd += amount;
        warehouse.store(row);
        Some(warehouse)
    })?;
    let warehouse = warehouse.flatten().ok_or_else(|| damaged("warehouse", &warehouse_key))?;

    let history = History { c_id: c, c_d_id: c_d, c_w_id: c_w, d_id: d, w_id: w, date: now, amount };
    bytes.clear();
    bytes.resize(History::LEN, 0);
    history.store(bytes);
    bytes.extend(warehouse.name.iter().copied().take_while(|byte| *byte != 0));
    bytes.extend_from_slice(b"    ");
    bytes.extend(district.name.iter().copied().take_while(|byte| *byte != 0));
    txn.put(&tables.history, history_key, bytes)
}

/// Appends the decimal digits of `number` and a blank.
fn push_number(text: &mut Vec<u8>, number: u64) {
    let mut digits = [b' '; 21];
    let mut at = 20;
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    text.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut text = Vec::new();
        [0, 7, 1_200, u64::MAX].into_iter().for_each(|number| push_number(&mut text, number));
        assert_eq!(text, b"0 7 1200 18446744073709551615 ");
    }

    #[test]
    fn a_customer_s_text_grows_at_its_front() {
        let mut row = vec![1; Customer::LEN];
        row.extend_from_slice(&[b'x'; 498]);
        customer::prepend(&mut row, b"1234 ");
        assert_eq!(row.len(), Customer::LEN + 500);
        assert_eq!(row[Customer::LEN - 1], 1);
        assert_eq!(&row[Customer::LEN..][..6], b"1234 x");
    }
}
