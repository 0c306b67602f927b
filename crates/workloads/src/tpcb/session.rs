//! The TPC-B transaction.

use std::ops::ControlFlow;

use duramen_sync::clock::wall_micros;
use duramen_sync::{Arc, Mutex};
use rand::RngExt;
use rand::rngs::StdRng;

use super::ledger::{Acknowledgement, Ledger};
use super::row::{BalanceRow, HistoryKey, HistoryRow, id_key};
use super::scale::Scale;
use super::{LastAcknowledged, Tables};
use crate::error::{Error, Result};
use crate::random::Chooser;
use crate::store::{Access, Acknowledge, Connection, ScanRange, Store, Transaction};
use crate::workload::{Done, Executed, Session};

/// Largest amount moved by one transaction.
const MOST_DELTA: i64 = 999_999;
/// Share of transactions, in percent, whose account belongs to the teller's branch (when there are
/// others).
const LOCAL_PERCENT: u32 = 85;

/// Inputs of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inputs {
    pub(super) teller: u64,
    pub(super) branch: u64,
    pub(super) account: u64,
    pub(super) delta: i64,
}

impl Inputs {
    /// Draws a teller of any branch, and an account: of the teller's branch in 85 % of the cases,
    /// else of another one.
    pub(super) fn draw(choosers: &Choosers, rng: &mut StdRng) -> Self {
        let scale = choosers.scale;
        let teller = choosers.teller.draw(rng);
        let branch = teller / scale.tellers_per_branch;
        let home = if scale.branches == 1 || rng.random_range(0..100) < LOCAL_PERCENT {
            branch
        } else {
            let other = rng.random_range(0..scale.branches - 1);
            other + u64::from(other >= branch)
        };
        let account = scale.accounts_of(home).start + choosers.account.draw(rng);
        Self { teller, branch, account, delta: rng.random_range(-MOST_DELTA..=MOST_DELTA) }
    }
}

/// What the inputs are drawn from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choosers {
    scale: Scale,
    teller: Chooser,
    /// Within a branch.
    account: Chooser,
}

impl Choosers {
    pub(super) fn new(scale: Scale, skew: Option<f64>) -> Self {
        let chooser = |count| Chooser::with_skew(Chooser::Uniform { count }, skew);
        Self { scale, teller: chooser(scale.tellers()), account: chooser(scale.accounts_per_branch) }
    }
}

/// One terminal.
pub(super) struct TpcbSession<S: Store> {
    connection: S::Connection,
    tables: Tables<S::Table>,
    choosers: Choosers,
    inputs: Inputs,
    terminal: u32,
    /// Sequence of the terminal's last committed transaction; the next one gets the number behind
    /// it, whether or not attempts fail in between, so that a terminal's history has no holes.
    sequence: u64,
    /// Sequence of its last acknowledged transaction.
    acknowledged: u64,
    ledger: Option<Arc<Ledger>>,
    last_acknowledged: Arc<Mutex<LastAcknowledged>>,
}

impl<S: Store> TpcbSession<S> {
    pub(super) fn open(
        store: &S,
        choosers: Choosers,
        terminal: u32,
        ledger: Option<Arc<Ledger>>,
        last_acknowledged: Arc<Mutex<LastAcknowledged>>,
    ) -> Result<Self> {
        let tables = Tables::open(store)?;
        let mut connection = store.connect()?;
        let sequence = last_sequence(&mut connection, &tables.history, terminal)?;
        let inputs = Inputs { teller: 0, branch: 0, account: 0, delta: 0 };
        Ok(Self {
            connection,
            tables,
            choosers,
            inputs,
            terminal,
            sequence,
            acknowledged: sequence,
            ledger,
            last_acknowledged,
        })
    }
}

/// Adds `delta` to a balance; returns the new balance. `name` is the table's, for people.
fn add<T: Transaction>(txn: &mut T, table: &T::Table, name: &str, id: u64, delta: i64) -> Result<i64> {
    let damaged = |what: &str| Error::Damaged { reason: format!("row {id} of `tpcb_{name}` {what}") };
    txn.modify(table, &id_key(id), |bytes| {
        let mut row = BalanceRow::decode(bytes).ok_or_else(|| damaged("has the wrong length"))?;
        row.balance = row.balance.checked_add(delta).ok_or_else(|| damaged("has a balance out of range"))?;
        bytes.copy_from_slice(&row.encode());
        Ok(row.balance)
    })?
    .ok_or_else(|| damaged("is missing"))?
}

/// Returns the sequence of the last history row of `terminal`; 0 when there is none.
fn last_sequence<C: Connection>(connection: &mut C, history: &C::Table, terminal: u32) -> Result<u64> {
    let key = |sequence| HistoryKey { terminal, sequence }.encode();
    let (start, end) = (key(0), key(u64::MAX));
    let mut last = Ok(0);
    let mut txn = connection.begin(Access::ReadCommitted)?;
    txn.scan(history, ScanRange::new(&start, &end).backward().limit(1), |key, _| {
        last = HistoryKey::decode(key)
            .map(|key| key.sequence)
            .ok_or_else(|| Error::Damaged { reason: format!("a history key has {} bytes", key.len()) });
        ControlFlow::Break(())
    })?;
    txn.commit()?;
    last
}

impl<S: Store> Session for TpcbSession<S> {
    fn draw(&mut self, rng: &mut StdRng) {
        self.inputs = Inputs::draw(&self.choosers, rng);
    }

    fn execute(&mut self, acknowledge: Acknowledge) -> Result<Executed> {
        let Inputs { teller, branch, account, delta } = self.inputs;
        let key = HistoryKey { terminal: self.terminal, sequence: self.sequence + 1 };
        let mut txn = self.connection.begin(Access::ReadWrite)?;
        // The specification's order, which takes the most contended row, the branch, last among the
        // balances.
        let balance = add(&mut txn, &self.tables.account, "account", account, delta)?;
        add(&mut txn, &self.tables.teller, "teller", teller, delta)?;
        add(&mut txn, &self.tables.branch, "branch", branch, delta)?;
        let row = HistoryRow { teller, branch, account, delta, time: wall_micros() };
        if !txn.insert(&self.tables.history, &key.encode(), &row.encode())? {
            return Err(Error::Damaged { reason: format!("history row {key:?} existed before its transaction") });
        }
        let pending = txn.commit_for(acknowledge)?;
        self.sequence = key.sequence;
        // The transaction's answer to its terminal. It is not used here, but it must be computed.
        std::hint::black_box(balance);
        Ok(Executed { done: Done::committed(0), pending })
    }

    fn acknowledged(&mut self) -> Result<()> {
        self.acknowledged = self.sequence;
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let Inputs { account, delta, .. } = self.inputs;
        let key = HistoryKey { terminal: self.terminal, sequence: self.sequence };
        ledger.append(&Acknowledgement { key, account, delta })
    }
}

impl<S: Store> Drop for TpcbSession<S> {
    fn drop(&mut self) {
        self.last_acknowledged.lock().insert(self.terminal, self.acknowledged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn inputs_follow_the_specification() {
        let scale = Scale { accounts_per_branch: 1_000, ..Scale::standard(8) };
        let choosers = Choosers::new(scale, None);
        let mut rng = StdRng::seed_from_u64(7);
        let draws = 20_000;
        let mut local = 0;
        let mut negative = 0;
        let mut remote_homes = [0u32; 8];
        for _ in 0..draws {
            let inputs = Inputs::draw(&choosers, &mut rng);
            assert!(scale.tellers_of(inputs.branch).contains(&inputs.teller));
            assert!(inputs.account < scale.accounts());
            assert!((-999_999..=999_999).contains(&inputs.delta));
            negative += u32::from(inputs.delta < 0);
            if scale.accounts_of(inputs.branch).contains(&inputs.account) {
                local += 1;
            } else {
                remote_homes[(inputs.account / 1_000) as usize] += 1;
            }
        }
        let share = |count: u32| f64::from(count) / f64::from(draws);
        assert!((share(local) - 0.85).abs() < 0.01, "{}", share(local));
        assert!((share(negative) - 0.5).abs() < 0.02);
        assert!(remote_homes.iter().all(|&count| (share(count) - 0.15 / 8.0).abs() < 0.005), "{remote_homes:?}");
    }

    #[test]
    fn skew_makes_low_numbers_frequent() {
        let scale = Scale { accounts_per_branch: 1_000, ..Scale::standard(8) };
        let choosers = Choosers::new(scale, Some(1.5));
        let mut rng = StdRng::seed_from_u64(7);
        let inputs: Vec<Inputs> = (0..2_000).map(|_| Inputs::draw(&choosers, &mut rng)).collect();
        assert!(inputs.iter().filter(|inputs| inputs.teller == 0).count() > 500);
        assert!(inputs.iter().filter(|inputs| inputs.account % 1_000 == 0).count() > 500);
    }

    #[test]
    fn one_branch_has_no_remote_accounts() {
        let scale = Scale { accounts_per_branch: 10, ..Scale::standard(1) };
        let choosers = Choosers::new(scale, None);
        let mut rng = StdRng::seed_from_u64(1);
        assert!((0..1_000).all(|_| Inputs::draw(&choosers, &mut rng).account < 10));
    }
}
