//! Finding a customer by its last name (clause 2.5.2.2, case 2).

use std::ops::ControlFlow;

use super::context::{Context, damaged};
use super::inputs::CustomerBy;
use super::{key, row};
use crate::error::Result;
use crate::store::{ScanRange, Transaction};

/// Returns the number of the customer: of those with its last name the middle one, rounded up, in
/// the order of first names.
#[inline]
pub(super) fn find<T: Transaction>(
    txn: &mut T,
    context: &mut Context<T::Table>,
    w: u32,
    d: u8,
    customer: &CustomerBy,
) -> Result<u16> {
    let last = match customer {
        CustomerBy::Id(c) => return Ok(*c),
        CustomerBy::LastName(last) => last,
    };
    let start = key::customer_name(w, d, last, &[0; 16], 0);
    let end = key::customer_name(w, d, last, &[0xff; 16], u16::MAX);
    let found = &mut context.numbers;
    found.clear();
    txn.scan(&context.tables.customer_name, ScanRange::new(&start, &end), |key, _| {
        found.extend(key::last_u16(key).map(u32::from));
        ControlFlow::Continue(())
    })?;
    match found.get(found.len().saturating_sub(1) / 2) {
        Some(c) => Ok(*c as u16),
        None => Err(damaged("customer name", &start)),
    }
}

/// Puts `entry` in front of a customer's text, which is cut off at its greatest length.
pub(super) fn prepend(row: &mut Vec<u8>, entry: &[u8]) {
    row.splice(row::Customer::LEN..row::Customer::LEN, entry.iter().copied());
    row.truncate(row::Customer::LEN + row::MOST_CUSTOMER_DATA);
}
