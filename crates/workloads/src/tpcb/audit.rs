//! The consistency conditions of TPC-B.
//!
//! The specification asks that the balance of every branch equals the sum of its tellers' balances
//! and the sum of its history. The audit also compares every teller and every account with its own
//! history, which reveals lost updates that cancel out, and requires that no terminal's history has
//! a hole.

use std::collections::HashMap;

use super::row::{BalanceRow, HistoryKey, HistoryRow, decode_id_key};
use super::scale::Scale;
use super::{LastAcknowledged, Tables};
use crate::audit::AuditReport;
use crate::error::Result;
use crate::store::{Access, Connection, Store, Transaction, for_each};

/// What the history says.
#[derive(Default)]
struct History {
    rows: u64,
    sum: i128,
    branches: HashMap<u64, i128>,
    tellers: HashMap<u64, i128>,
    accounts: HashMap<u64, i128>,
    terminals: HashMap<u32, u64>,
}

pub(super) fn audit<S: Store>(
    store: &S,
    scale: Scale,
    acknowledged: &LastAcknowledged,
    report: &mut AuditReport,
) -> Result<()> {
    let tables = Tables::open(store)?;
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    let history = read_history(&mut txn, &tables.history, scale, report)?;
    for (terminal, acknowledged) in acknowledged {
        let found = history.terminals.get(terminal).copied().unwrap_or(0);
        report.require(found >= *acknowledged, || {
            format!("terminal {terminal} has {found} history rows, but {acknowledged} of its commits were acknowledged")
        });
    }

    let mut tellers_by_branch = HashMap::<u64, i128>::new();
    let tellers = Balances { table: &tables.teller, name: "teller", rows: scale.tellers(), history: &history.tellers };
    let tellers_sum = tellers.check(&mut txn, scale.tellers_per_branch, report, &mut |row| {
        *tellers_by_branch.entry(row.branch).or_default() += i128::from(row.balance);
    })?;
    let branches = Balances { table: &tables.branch, name: "branch", rows: scale.branches, history: &history.branches };
    let mut unequal = Vec::new();
    let branches_sum = branches.check(&mut txn, 1, report, &mut |row| {
        let tellers = tellers_by_branch.get(&row.id).copied().unwrap_or(0);
        if tellers != i128::from(row.balance) {
            unequal.push((row.id, row.balance, tellers));
        }
    })?;
    for (id, balance, tellers) in unequal {
        report.problem(format!("branch {id} has balance {balance}, but its tellers sum up to {tellers}"));
    }
    let accounts =
        Balances { table: &tables.account, name: "account", rows: scale.accounts(), history: &history.accounts };
    let accounts_sum = accounts.check(&mut txn, scale.accounts_per_branch, report, &mut |_| {})?;
    txn.commit()?;

    let sums = [accounts_sum, tellers_sum, branches_sum, history.sum];
    report.require(sums.iter().all(|sum| *sum == sums[0]), || {
        format!(
            "the sums differ: accounts {accounts_sum}, tellers {tellers_sum}, branches {branches_sum}, history {}",
            history.sum
        )
    });
    report.fact(format!("balance sum: {branches_sum}"));
    Ok(())
}

/// Adds up the history; terminals' sequences must be 1, 2, 3 and so on.
fn read_history<T: Transaction>(
    txn: &mut T,
    table: &T::Table,
    scale: Scale,
    report: &mut AuditReport,
) -> Result<History> {
    let mut history = History::default();
    for_each(txn, table, |key, row| {
        history.rows += 1;
        let (Some(key), Some(row)) = (HistoryKey::decode(key), HistoryRow::decode(row)) else {
            report.problem(format!("history row {} cannot be decoded", history.rows));
            return;
        };
        let last = history.terminals.entry(key.terminal).or_default();
        if key.sequence != *last + 1 {
            report.problem(format!(
                "the history of terminal {} has a gap: {} follows {last}",
                key.terminal, key.sequence
            ));
        }
        *last = key.sequence;
        if row.teller >= scale.tellers()
            || row.account >= scale.accounts()
            || row.teller / scale.tellers_per_branch != row.branch
        {
            report.problem(format!("history row {key:?} refers to a teller, branch or account that does not exist"));
        }
        let delta = i128::from(row.delta);
        history.sum += delta;
        *history.branches.entry(row.branch).or_default() += delta;
        *history.tellers.entry(row.teller).or_default() += delta;
        *history.accounts.entry(row.account).or_default() += delta;
    })?;
    report.fact(format!("history: {} rows of {} terminals", history.rows, history.terminals.len()));
    Ok(history)
}

/// One table of balances and what it must hold.
struct Balances<'a, T> {
    table: &'a T,
    name: &'static str,
    rows: u64,
    history: &'a HashMap<u64, i128>,
}

impl<T> Balances<'_, T> {
    /// Checks every row against its key and its history; returns the sum of the balances.
    fn check(
        &self,
        txn: &mut impl Transaction<Table = T>,
        per_branch: u64,
        report: &mut AuditReport,
        visit: &mut dyn FnMut(&BalanceRow),
    ) -> Result<i128> {
        let name = self.name;
        let (mut count, mut sum) = (0, 0);
        for_each(txn, self.table, |key, row| {
            let (Some(id), Some(row)) = (decode_id_key(key), BalanceRow::decode(row)) else {
                report.problem(format!("{name} row {count} cannot be decoded"));
                count += 1;
                return;
            };
            count += 1;
            report.require(row.id == id && id < self.rows && row.branch == id / per_branch, || {
                format!("{name} {id} holds the row of {name} {} of branch {}", row.id, row.branch)
            });
            let expected = self.history.get(&id).copied().unwrap_or(0);
            report.require(i128::from(row.balance) == expected, || {
                format!("{name} {id} has balance {}, but its history sums up to {expected}", row.balance)
            });
            sum += i128::from(row.balance);
            visit(&row);
        })?;
        report.require(count == self.rows, || format!("there are {count} {name} rows, not {}", self.rows));
        report.fact(format!("{name}: {count} rows, balance sum {sum}"));
        Ok(sum)
    }
}
