//! The acknowledgement ledger: what clients were told is durable, kept outside the database.
//!
//! A client appends its record after its commit returned and before it starts its next transaction.
//! Records are not synced: they need to survive the death of this process, not that of the machine,
//! and the system's page cache does. The file is a plain array of 32-byte records, little-endian:
//! sequence u64, account u64, delta i64, terminal u32, magic u32. A whole record never crosses a
//! page of the cache; what a kill cuts off at the end was never acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::Tables;
use super::row::{HistoryKey, HistoryRow};
use crate::audit::AuditReport;
use crate::error::{Error, Result};
use crate::store::{Access, Connection, Store, Transaction};

const RECORD_LEN: usize = 32;
const MAGIC: u32 = u32::from_le_bytes(*b"ACK1");

/// One acknowledged transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledgement {
    /// Key of its history row.
    pub key: HistoryKey,
    /// The account it changed.
    pub account: u64,
    /// What it added.
    pub delta: i64,
}

impl Acknowledgement {
    fn encode(&self) -> [u8; RECORD_LEN] {
        let mut record = [0; RECORD_LEN];
        record[..8].copy_from_slice(&self.key.sequence.to_le_bytes());
        record[8..16].copy_from_slice(&self.account.to_le_bytes());
        record[16..24].copy_from_slice(&self.delta.to_le_bytes());
        record[24..28].copy_from_slice(&self.key.terminal.to_le_bytes());
        record[28..].copy_from_slice(&MAGIC.to_le_bytes());
        record
    }

    fn decode(record: &[u8; RECORD_LEN]) -> Option<Self> {
        let small = |at: usize| u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let big = |at: usize| u64::from(small(at)) | u64::from(small(at + 4)) << 32;
        (small(28) == MAGIC).then(|| Self {
            key: HistoryKey { terminal: small(24), sequence: big(0) },
            account: big(8),
            delta: big(16).cast_signed(),
        })
    }
}

/// A ledger open for appending; shared by all clients.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    path: PathBuf,
}

impl Ledger {
    /// Opens the ledger, or makes a new one. A record that a kill cut off behind others is removed.
    ///
    /// # Errors
    /// [`Error::Ledger`] with what the system said, or if the file is something else than a ledger.
    pub fn append_to(path: &Path) -> Result<Self> {
        let fail = |error: std::io::Error| failure("open", path, error);
        let file = OpenOptions::new().read(true).append(true).create(true).open(path).map_err(fail)?;
        let len = file.metadata().map_err(fail)?.len();
        let whole = len - len % RECORD_LEN as u64;
        let mut record = [0; RECORD_LEN];
        for at in [0, whole.saturating_sub(RECORD_LEN as u64)] {
            if len > 0 && (file.read_exact_at(&mut record, at).is_err() || Acknowledgement::decode(&record).is_none()) {
                let reason = "it is another file than a ledger; name a new one".to_owned();
                return Err(Error::Ledger { operation: "append to", path: path.to_owned(), reason });
            }
        }
        file.set_len(whole).map_err(fail)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Appends `acknowledgement`.
    ///
    /// # Errors
    /// [`Error::Ledger`] with what the system said.
    pub fn append(&self, acknowledgement: &Acknowledgement) -> Result<()> {
        // One write(2) in append mode: records of several clients do not mix.
        match (&self.file).write(&acknowledgement.encode()) {
            Ok(RECORD_LEN) => Ok(()),
            Ok(short) => Err(Error::Ledger {
                operation: "append to",
                path: self.path.clone(),
                reason: format!("only {short} of {RECORD_LEN} bytes were written"),
            }),
            Err(error) => Err(failure("append to", &self.path, error)),
        }
    }

    /// Reads a whole ledger; a record cut off at its end is left out.
    ///
    /// # Errors
    /// [`Error::Ledger`] when it cannot be read or holds something else than records.
    pub fn read(path: &Path) -> Result<Vec<Acknowledgement>> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|mut file| file.read_to_end(&mut bytes))
            .map_err(|error| failure("read", path, error))?;
        let (records, _cut_off) = bytes.as_chunks::<RECORD_LEN>();
        let decode = |(number, record)| {
            Acknowledgement::decode(record).ok_or_else(|| Error::Ledger {
                operation: "read",
                path: path.to_owned(),
                reason: format!("record {number} is invalid"),
            })
        };
        records.iter().enumerate().map(decode).collect()
    }
}

fn failure(operation: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::Ledger { operation, path: path.to_owned(), reason: error.to_string() }
}

/// Checks that the history row of every acknowledged transaction is there and says the same.
///
/// # Errors
/// The engine's, when the database cannot be read.
pub fn verify<S: Store>(store: &S, acknowledgements: &[Acknowledgement]) -> Result<AuditReport> {
    let mut report = AuditReport::new();
    let tables = match Tables::open(store) {
        Ok(tables) => tables,
        Err(Error::MissingTable { .. }) => {
            report.fact("ledger: the database has no TPC-B tables");
            let count = acknowledgements.len();
            report
                .require(count == 0, || format!("{count} transactions were acknowledged, but the tables are missing"));
            return Ok(report);
        }
        Err(error) => return Err(error),
    };
    let mut connection = store.connect()?;
    let mut txn = connection.begin(Access::ReadCommitted)?;
    for Acknowledgement { key, account, delta } in acknowledgements {
        let name = || format!("acknowledged transaction {} of terminal {}", key.sequence, key.terminal);
        match txn.get(&tables.history, &key.encode(), HistoryRow::decode)? {
            None => report.problem(format!("{} is lost", name())),
            Some(None) => report.problem(format!("the history row of {} has the wrong length", name())),
            Some(Some(row)) => report.require(row.delta == *delta && row.account == *account, || {
                format!(
                    "{} added {delta} to account {account}, but its history row says {} to account {}",
                    name(),
                    row.delta,
                    row.account
                )
            }),
        }
    }
    txn.commit()?;
    report.fact(format!("ledger: {} acknowledged transactions looked up", acknowledgements.len()));
    Ok(report)
}
