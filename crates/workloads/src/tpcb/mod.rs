//! TPC-B: branches, tellers and accounts of a bank, and a history of what was moved.
//!
//! Each transaction adds a random amount to one account, one teller and the teller's branch, and
//! inserts a history row: small, all writes, and with one hot row for each branch.

mod audit;
mod ledger;
mod load;
mod row;
mod scale;
mod session;

use std::collections::HashMap;

use duramen_sync::{Arc, Mutex};

pub use ledger::{Acknowledgement, Ledger, verify};
pub use row::{BALANCE_ROW_LEN, BalanceRow, HISTORY_ROW_LEN, HistoryKey, HistoryRow, decode_id_key, id_key};
pub use scale::Scale;

use crate::audit::AuditReport;
use crate::error::Result;
use crate::population;
use crate::store::Store;
use crate::workload::{LoadOutcome, LoadProgress, Session, Workload};

/// For each terminal the sequence of its last acknowledged transaction.
type LastAcknowledged = HashMap<u32, u64>;

/// The tables.
#[derive(Clone, Debug)]
pub struct Tables<T> {
    /// One row for each branch.
    pub branch: T,
    /// Ten rows for each branch.
    pub teller: T,
    /// 100,000 rows for each branch, unless scaled down.
    pub account: T,
    /// One row for each committed transaction.
    pub history: T,
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
            branch: open("tpcb_branch")?,
            teller: open("tpcb_teller")?,
            account: open("tpcb_account")?,
            history: open("tpcb_history")?,
        })
    }
}

/// The TPC-B workload.
#[derive(Debug)]
pub struct Tpcb {
    scale: Scale,
    choosers: session::Choosers,
    ledger: Option<Arc<Ledger>>,
    last_acknowledged: Arc<Mutex<LastAcknowledged>>,
}

impl Tpcb {
    /// TPC-B at `scale`. Tellers, and accounts within a branch, are drawn uniformly as specified,
    /// or, if `skew` is given, from a Zipfian distribution with this exponent.
    pub fn new(scale: Scale, skew: Option<f64>) -> Self {
        Self { scale, choosers: session::Choosers::new(scale, skew), ledger: None, last_acknowledged: Arc::default() }
    }

    /// Has every client note each acknowledged transaction in `ledger`.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = Some(Arc::new(ledger));
        self
    }
}

impl<S: Store> Workload<S> for Tpcb {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn scale(&self) -> String {
        self.scale.to_string()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["tpcb"]
    }

    fn load(&self, store: &S, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        population::load(store, self.scale, observe, |store| load::BankPopulation::prepare(store, self.scale))
    }

    fn session(&self, store: &S, client: u32) -> Result<Box<dyn Session>> {
        let (ledger, last) = (self.ledger.clone(), self.last_acknowledged.clone());
        Ok(Box::new(session::TpcbSession::open(store, self.choosers, client, ledger, last)?))
    }

    /// Checks that the sums of accounts, tellers, branches and history are equal, also for each
    /// branch with its tellers and its history, and for each teller and each account with its
    /// history. The numbers of rows must be right, every commit that was acknowledged to a session
    /// of this object must be in the history, and no terminal's history may have a hole.
    fn audit(&self, store: &S) -> Result<AuditReport> {
        let acknowledged = self.last_acknowledged.lock().clone();
        population::audit(store, self.scale, |report| audit::audit(store, self.scale, &acknowledged, report))
    }
}
