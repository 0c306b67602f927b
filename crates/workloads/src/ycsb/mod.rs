//! YCSB, the Yahoo! Cloud Serving Benchmark (B. Cooper et al., SoCC 2010): single-record operations
//! and short scans on one table of records of 1,000 bytes, in six mixes. Each operation is a
//! transaction.

mod audit;
mod load;
mod records;
pub mod row;
mod scale;
mod session;

use duramen_sync::Arc;

pub use scale::Scale;

use crate::audit::AuditReport;
use crate::error::Result;
use crate::population;
use crate::store::Store;
use crate::workload::{LoadOutcome, LoadProgress, Session, Workload};
use records::Records;

/// Name of the table.
pub const TABLE: &str = "ycsb_usertable";

/// The exponent of the benchmark's Zipfian distribution.
const STANDARD_SKEW: f64 = 0.99;

/// Which operations are run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Half reads, half updates of one field, popular records more often.
    A,
    /// 95 % reads, 5 % updates of one field, popular records more often.
    B,
    /// Only reads, popular records more often.
    C,
    /// 95 % reads, 5 % inserts, recent records more often.
    D,
    /// 95 % scans of up to 100 records, 5 % inserts, popular records more often.
    E,
    /// Half reads, half reads of a record that one field of is then updated, popular records more
    /// often.
    F,
}

/// The YCSB workload.
#[derive(Debug)]
pub struct Ycsb {
    scale: Scale,
    mix: Mix,
    skew: f64,
    records: Arc<Records>,
}

impl Ycsb {
    /// YCSB at `scale`. Records are drawn from a Zipfian distribution with the benchmark's
    /// exponent, 0.99, or `skew`.
    pub fn new(scale: Scale, mix: Mix, skew: Option<f64>) -> Self {
        Self { scale, mix, skew: skew.unwrap_or(STANDARD_SKEW), records: Arc::default() }
    }
}

impl<S: Store> Workload<S> for Ycsb {
    fn name(&self) -> &'static str {
        match self.mix {
            Mix::A => "ycsb:a",
            Mix::B => "ycsb:b",
            Mix::C => "ycsb:c",
            Mix::D => "ycsb:d",
            Mix::E => "ycsb:e",
            Mix::F => "ycsb:f",
        }
    }

    fn scale(&self) -> String {
        self.scale.to_string()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &session::KINDS
    }

    fn load(&self, store: &S, observe: &mut dyn FnMut(LoadProgress)) -> Result<LoadOutcome> {
        population::load(store, self.scale, observe, |store| {
            Ok(load::RecordPopulation { table: store.make_table(TABLE)?, scale: self.scale })
        })
    }

    fn session(&self, store: &S, _: u32) -> Result<Box<dyn Session>> {
        let table = store.table(TABLE)?;
        self.records.open(store, &table, self.scale.records)?;
        Ok(Box::new(session::YcsbSession::open(store, table, self.scale, self.mix, self.skew, self.records.clone())?))
    }

    /// Checks that every record of the population is there, and every record that this object's
    /// sessions inserted. No field of any record may be torn, mixed up or under a wrong key.
    fn audit(&self, store: &S) -> Result<AuditReport> {
        population::audit(store, self.scale, |report| audit::audit(store, self.scale, self.records.inserted(), report))
    }
}
