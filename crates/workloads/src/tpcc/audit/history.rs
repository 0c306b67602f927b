//! What the history says, summed up.

use super::super::row;
use super::super::scale::{DISTRICTS, Scale};
use super::super::{Tables, key};
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Transaction, for_each};

/// Sums of the history, in cents.
pub(super) struct History {
    /// Paid in each district.
    districts: Vec<i64>,
    /// Paid by each customer, and how often.
    customers: Vec<(i64, u32)>,
    scale: Scale,
}

impl History {
    /// Reads the whole history; terminals' rows must be numbered 1, 2, 3 and so on.
    pub(super) fn read<T: Transaction>(
        txn: &mut T,
        tables: &Tables<T::Table>,
        scale: Scale,
        report: &mut AuditReport,
    ) -> Result<Self> {
        let districts = scale.warehouses as usize * usize::from(DISTRICTS);
        let customers = districts * scale.customers as usize;
        let mut history = Self { districts: vec![0; districts], customers: vec![(0, 0); customers], scale };
        let (mut count, mut last) = (0, [0; 12]);
        for_each(txn, &tables.history, |key, row| {
            count += 1;
            let (Ok(key), Some(row)) = (<[u8; 12]>::try_from(key), row::History::decode(row)) else {
                report.problem(format!("history row {count} cannot be decoded"));
                return;
            };
            let (source, number) = (&key[..4], key::last_u64(&key));
            if source < key::warehouse(key::loaded_history(0)).as_slice() {
                let before = if last[..4] == *source { key::last_u64(&last) } else { Some(0) };
                report.require(number == before.map(|before| before + 1), || {
                    format!("the history of the terminal in key {key:02x?} has a gap")
                });
            }
            last = key;
            let (Some(district), Some(customer)) =
                (history.district(row.w_id, row.d_id), history.customer(row.c_w_id, row.c_d_id, row.c_id))
            else {
                report.problem(format!("history row {key:02x?} refers to a district or customer that does not exist"));
                return;
            };
            history.districts[district] += row.amount;
            history.customers[customer].0 += row.amount;
            history.customers[customer].1 += 1;
        })?;
        report.fact(format!("history: {count} rows"));
        Ok(history)
    }

    /// Paid in all districts of a warehouse.
    pub(super) fn of_warehouse(&self, w: u32) -> i64 {
        (1..=DISTRICTS).map(|d| self.of_district(w, d)).sum()
    }

    /// Paid in a district.
    pub(super) fn of_district(&self, w: u32, d: u8) -> i64 {
        self.district(w, d).map_or(0, |at| self.districts[at])
    }

    /// Paid by a customer, and how often.
    pub(super) fn of_customer(&self, w: u32, d: u8, c: u16) -> (i64, u32) {
        self.customer(w, d, c).map_or((0, 0), |at| self.customers[at])
    }

    fn district(&self, w: u32, d: u8) -> Option<usize> {
        let there = (1..=self.scale.warehouses).contains(&u64::from(w)) && (1..=DISTRICTS).contains(&d);
        there.then(|| (w as usize - 1) * usize::from(DISTRICTS) + usize::from(d) - 1)
    }

    fn customer(&self, w: u32, d: u8, c: u16) -> Option<usize> {
        let district = self.district(w, d)?;
        let customers = self.scale.customers as usize;
        (1..=customers).contains(&usize::from(c)).then(|| district * customers + usize::from(c) - 1)
    }
}
