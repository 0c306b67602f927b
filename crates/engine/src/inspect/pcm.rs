//! Reports on the persistent memory of a database with PCMLogging.

use std::fmt;

use duramen_pmem::Source;
use duramen_types::{PageId, TxnId};

use super::text;
use crate::error::Result;
use crate::options::PcmOptions;
use crate::pcm::{Pcm, Summary, Word};
use crate::region::State;

/// A transaction that had not committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActiveInPcm {
    /// Its number in the region.
    pub number: u64,
    /// Its entry of the active transaction list.
    pub entry: u32,
    /// Its changes in pages of the region: recovery will discard them.
    pub changes: u64,
}

/// The persistent memory of a database with PCMLogging. `Display` formats it for human readers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcmReport {
    /// The file or device.
    pub location: String,
    /// The database that it belongs to.
    pub database: [u8; 16],
    /// The state: `blank`, `being made`, `in use`, `closed in order`, or `unknown` with a number.
    pub state: String,
    /// The generation, which must be that of the control file.
    pub generation: u64,
    /// No transaction number below this is given out again.
    pub next_txn: TxnId,
    /// Number of slots.
    pub slots: u64,
    /// Slots that are free.
    pub free: u64,
    /// Pages whose latest version is here.
    pub pages: u64,
    /// Tuples that are later than their pages here.
    pub tuples: u64,
    /// Slots with tuples.
    pub tuple_slots: u64,
    /// Slots that recovery would erase: earlier versions, and what was being written.
    pub erased: u64,
    /// Slots with deferred frees.
    pub garbage: u64,
    /// The transactions that had not committed and have changes here.
    pub active: Vec<ActiveInPcm>,
    /// Pages whose covers cannot be read, which no crash causes.
    pub unreadable: Vec<PageId>,
}

/// Reads the memory of a closed database. Only the source counts among the options.
///
/// ```
/// # use duramen::pmem::{Domain, Source, Survive};
/// # use duramen::{Db, Options, PcmOptions, Scheme, inspect};
/// # fn main() -> duramen::Result<()> {
/// # let home = tempfile::tempdir().unwrap();
/// # let source = Source::File(home.path().join("pcm"));
/// # let pcm = PcmOptions::new(source, 1 << 20, Domain::VolatileCache);
/// # let pcm = PcmOptions { survive: Survive::Process, ..pcm };
/// let scheme = Scheme::PcmLogging(pcm.clone());
/// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
/// let db = Db::open(home.path().join("db"), options)?;
/// db.create_table("orders")?;
/// db.close()?;
///
/// let report = inspect::pcm(&pcm)?;
/// assert_eq!(report.state, "closed in order");
/// assert!(report.pages > 0 && report.active.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`crate::Error::Corrupt`] if there is no usable header; [`crate::Error::NotADatabase`] if there
/// is no such file; [`crate::Error::AlreadyOpen`] when it is in use.
pub fn pcm(options: &PcmOptions) -> Result<PcmReport> {
    let pcm = open(options)?;
    let Summary { slots, free, pages, tuples, tuple_slots, erased, garbage, active, unreadable } = pcm.summary();
    let state = pcm.get(Word::State);
    Ok(PcmReport {
        location: pcm.location().to_owned(),
        database: pcm.database(),
        state: match State::from_word(state) {
            Some(State::Blank) => "blank".to_owned(),
            Some(State::BeingMade) => "being made".to_owned(),
            Some(State::InUse) => "in use".to_owned(),
            Some(State::Clean) => "closed in order".to_owned(),
            None => format!("unknown {state}"),
        },
        generation: pcm.get(Word::Generation),
        next_txn: TxnId::new(pcm.get(Word::NextTxn)),
        slots,
        free,
        pages,
        tuples,
        tuple_slots,
        erased,
        garbage,
        active: active.into_iter().map(|(number, entry, changes)| ActiveInPcm { number, entry, changes }).collect(),
        unreadable,
    })
}

/// Opens the memory to look at it.
pub(super) fn open(options: &PcmOptions) -> Result<Pcm> {
    Pcm::open_to_inspect(options).map_err(|error| match &options.source {
        Source::File(path) => error.in_opening(path),
        _ => error,
    })
}

impl fmt::Display for PcmReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "PCM: {}", self.location)?;
        writeln!(f, "database: {}", text::hex(&self.database))?;
        writeln!(f, "state: {}", self.state)?;
        writeln!(f, "generation: {}", self.generation)?;
        writeln!(f, "next transaction: {}", self.next_txn.get())?;
        write!(
            f,
            "slots: {}, {} free, {} with earlier versions or unfinished, {} with pages to be freed",
            self.slots, self.free, self.erased, self.garbage
        )?;
        write!(f, "\npages: {}\ntuples: {} in {} slots", self.pages, self.tuples, self.tuple_slots)?;
        for active in &self.active {
            write!(
                f,
                "\nnot committed: transaction {}, entry {} of the list, {} changes",
                active.number, active.entry, active.changes
            )?;
        }
        for page in &self.unreadable {
            write!(f, "\ndamaged: the covers of {page} cannot be read")?;
        }
        Ok(())
    }
}
