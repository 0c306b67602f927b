//! TPC-B: branches, tellers and accounts of a bank, and a history of what was moved.
//!
//! Each transaction adds a random amount to one account, one teller and the teller's branch, and inserts a history
//! row: small, all writes, and with one hot row for each branch.

mod audit;
mod ledger;
mod load;
mod row;
mod scale;
mod session;

use std::collections::HashMap;

use duramen::{Db, Table};
use duramen_sync::{Arc, Mutex};

pub use ledger::{Acknowledgement, Ledger, verify};
pub use row::{BALANCE_ROW_LEN, BalanceRow, HISTORY_ROW_LEN, HistoryKey, HistoryRow, decode_id_key, id_key};
pub use scale::{Marker, Scale};

use crate::audit::AuditReport;
use crate::error::Result;
use crate::workload::{LoadOutcome, LoadProgress, Session, Workload};

/// Name of the table with the population marker.
const META: &str = "tpcb_meta";

/// For each terminal the sequence of its last acknowledged transaction.
type LastAcknowledged = HashMap<u32, u64>;

/// The tables.
#[derive(Clone)]
pub struct Tables {
    /// One row for each branch.
    pub branch: Table,
    /// Ten rows for each branch.
    pub teller: Table,
    /// 100,000 rows for each branch, unless scaled down.
    pub account: Table,
    /// One row for each committed transaction.
    pub history: Table,
}

impl Tables {
    /// Opens all of them.
    ///
    /// # Errors
    /// [`duramen::Error::NoSuchTable`] when the population has not begun.
    pub fn open(db: &Db) -> Result<Self> {
        Self::with(|name| Ok(db.open_table(name)?))
    }

    fn with(open: impl Fn(&str) -> Result<Table>) -> Result<Self> {
        Ok(Self {
            branch: open("tpcb_branch")?,
            teller: open("tpcb_teller")?,
            account: open("tpcb_account")?,
            history: open("tpcb_history")?,
        })
    }
}

/// What the database says about its population: `None` when it holds no TPC-B tables, or no population was begun.
///
/// # Errors
/// The engine's; [`crate::Error::Damaged`] when the marker makes no sense.
pub fn read_marker(db: &Db) -> Result<Option<Marker>> {
    let meta = match db.open_table(META) {
        Err(duramen::Error::NoSuchTable { .. }) => return Ok(None),
        other => other?,
    };
    let mut txn = db.begin();
    let row = txn.get(&meta, Marker::KEY)?;
    txn.commit()?;
    row.map(|row| Marker::decode(&row)).transpose()
}

/// The TPC-B workload.
#[derive(Debug)]
pub struct Tpcb {
    scale: Scale,
    ledger: Option<Arc<Ledger>>,
    last_acknowledged: Arc<Mutex<LastAcknowledged>>,
}

impl Tpcb {
    /// TPC-B at `scale`.
    pub fn new(scale: Scale) -> Self {
        Self { scale, ledger: None, last_acknowledged: Arc::default() }
    }

    /// Has every client note each acknowledged transaction in `ledger`.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = Some(Arc::new(ledger));
        self
    }

    /// Size of the database.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

impl Workload for Tpcb {
    fn name(&self) -> &'static str {
        "tpcb"
    }

    fn load(&self, db: &Db, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        load::load(db, self.scale, observe)
    }

    fn session(&self, db: &Db, client: u32) -> Result<Box<dyn Session>> {
        let (ledger, last) = (self.ledger.clone(), self.last_acknowledged.clone());
        Ok(Box::new(session::TpcbSession::open(db, self.scale, client, ledger, last)?))
    }

    /// Sums of accounts, tellers, branches and history are equal; so are each branch, its tellers and its history, each
    /// teller and its history, each account and its history; the numbers of rows are right; every commit that a
    /// session of this object saw acknowledged is in the history, and no terminal's history has a hole.
    fn audit(&self, db: &Db) -> Result<AuditReport> {
        let acknowledged = self.last_acknowledged.lock().clone();
        let mut report = AuditReport::new();
        match read_marker(db)? {
            Some(Marker { complete: true, scale }) if scale == self.scale => {
                report.merge(audit::audit(db, scale, &acknowledged)?);
            }
            Some(Marker { complete: true, scale }) => {
                report.problem(format!("the database holds {scale}, not {}", self.scale));
            }
            Some(Marker { complete: false, .. }) => report.problem("the population of TPC-B is incomplete"),
            None => report.problem("the database holds no TPC-B population"),
        }
        Ok(report)
    }
}
