//! Workloads by the names that the command line gives them.

use crate::audit::AuditReport;
use crate::error::{Error, Result};
use crate::population::{Marker, Parameters};
use crate::store::Store;
use crate::tpcb::Ledger;
use crate::workload::Workload;
use crate::{Tatp, Tpcb, Tpcc, Ycsb, tatp, tpcb, tpcc, ycsb};

/// The names of all workloads.
pub const NAMES: &[&str] = &[
    "tpcb",
    "tatp",
    "tatp:update-location",
    "tatp:get-subscriber",
    "tpcc",
    "tpcc:payment",
    "tpcc:new-order",
    "ycsb:a",
    "ycsb:b",
    "ycsb:c",
    "ycsb:d",
    "ycsb:e",
    "ycsb:f",
];

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tpcb,
    Tatp(tatp::Mix),
    Tpcc(tpcc::Mix),
    Ycsb(ycsb::Mix),
}

impl Kind {
    fn called(name: &str) -> Option<Self> {
        Some(match name {
            "tpcb" => Self::Tpcb,
            "tatp" => Self::Tatp(tatp::Mix::Standard),
            "tatp:update-location" => Self::Tatp(tatp::Mix::UpdateLocation),
            "tatp:get-subscriber" => Self::Tatp(tatp::Mix::GetSubscriber),
            "tpcc" => Self::Tpcc(tpcc::Mix::Standard),
            "tpcc:payment" => Self::Tpcc(tpcc::Mix::Payment),
            "tpcc:new-order" => Self::Tpcc(tpcc::Mix::NewOrder),
            "ycsb:a" => Self::Ycsb(ycsb::Mix::A),
            "ycsb:b" => Self::Ycsb(ycsb::Mix::B),
            "ycsb:c" => Self::Ycsb(ycsb::Mix::C),
            "ycsb:d" => Self::Ycsb(ycsb::Mix::D),
            "ycsb:e" => Self::Ycsb(ycsb::Mix::E),
            "ycsb:f" => Self::Ycsb(ycsb::Mix::F),
            _ => return None,
        })
    }
}

/// A workload as asked for.
#[derive(Debug, Default)]
pub struct Request {
    /// Size of the database in the workload's unit: branches (tpcb), 100,000 subscribers (tatp),
    /// warehouses (tpcc), 100,000 records (ycsb). Without one, a database that is populated keeps
    /// its size, and a new one gets a size that suits a laptop.
    pub scale: Option<u64>,
    /// Exponent of a Zipfian distribution to draw rows from, instead of the standard one; 0 is
    /// uniform.
    pub skew: Option<f64>,
    /// Rows below each unit, instead of the specification's number: accounts of a branch,
    /// subscribers, customers of a district, records. For tests.
    pub rows_per_unit: Option<u64>,
    /// Where TPC-B notes its acknowledged transactions.
    pub ledger: Option<Ledger>,
}

impl Request {
    /// Returns the workload called `name`, for the database in `store`.
    ///
    /// # Errors
    /// [`Error::InvalidParameter`] for a name that there is not, and for an option that the
    /// workload does not have; [`Error::Damaged`] when the database's size cannot be read; the
    /// engine's.
    pub fn workload<S: Store>(self, name: &str, store: &S) -> Result<Box<dyn Workload<S>>> {
        let Some(kind) = Kind::called(name) else {
            return Err(Error::InvalidParameter { reason: format!("there is no workload `{name}`") });
        };
        if self.skew.is_some_and(|skew| !(0.0..=10.0).contains(&skew)) {
            return Err(Error::InvalidParameter { reason: "the skew must be from 0 to 10".into() });
        }
        if self.skew.is_some() && matches!(kind, Kind::Tpcc(_)) {
            return Err(Error::InvalidParameter { reason: "TPC-C has a fixed skew; omit `--skew`".into() });
        }
        if self.ledger.is_some() && !matches!(kind, Kind::Tpcb) {
            return Err(Error::InvalidParameter { reason: "only `tpcb` supports a ledger".into() });
        }
        Ok(match kind {
            Kind::Tpcb => {
                let mut scale = found(store)?.unwrap_or(tpcb::Scale::standard(4));
                scale.branches = self.scale.unwrap_or(scale.branches);
                scale.accounts_per_branch = self.rows_per_unit.unwrap_or(scale.accounts_per_branch);
                let tpcb = Tpcb::new(scale, self.skew);
                Box::new(match self.ledger {
                    Some(ledger) => tpcb.with_ledger(ledger),
                    None => tpcb,
                })
            }
            Kind::Tatp(mix) => {
                let mut scale = found(store)?.unwrap_or(tatp::Scale::standard(1));
                if self.scale.is_some() || self.rows_per_unit.is_some() {
                    let unit = self.rows_per_unit.unwrap_or(tatp::Scale::standard(1).subscribers);
                    scale.subscribers = self.scale.unwrap_or(1).saturating_mul(unit);
                }
                Box::new(Tatp::new(scale, mix, self.skew))
            }
            Kind::Tpcc(mix) => {
                let mut scale = found(store)?.unwrap_or(tpcc::Scale::standard(4));
                let warehouses = self.scale.unwrap_or(scale.warehouses);
                scale = match self.rows_per_unit {
                    Some(customers) => tpcc::Scale::small(warehouses, customers),
                    None => tpcc::Scale { warehouses, ..scale },
                };
                Box::new(Tpcc::new(scale, mix))
            }
            Kind::Ycsb(mix) => {
                let mut scale = found(store)?.unwrap_or(ycsb::Scale::standard(1));
                if self.scale.is_some() || self.rows_per_unit.is_some() {
                    let unit = self.rows_per_unit.unwrap_or(ycsb::Scale::standard(1).records);
                    scale.records = self.scale.unwrap_or(1).saturating_mul(unit);
                }
                Box::new(Ycsb::new(scale, mix, self.skew))
            }
        })
    }
}

/// Returns the size of the database, if it is populated.
fn found<S: Store, P: Parameters>(store: &S) -> Result<Option<P>> {
    Ok(Marker::read(store)?.map(|marker| marker.scale))
}

/// Audits every workload whose tables are in `store`; a population that was cut off is only
/// mentioned.
///
/// # Errors
/// As [`Workload::audit`].
pub fn audit_all<S: Store>(store: &S) -> Result<AuditReport> {
    let mut report = AuditReport::new();
    audit_one(store, &mut report, |scale| Tpcb::new(scale, None))?;
    audit_one(store, &mut report, |scale| Tatp::new(scale, tatp::Mix::default(), None))?;
    audit_one(store, &mut report, |scale| Tpcc::new(scale, tpcc::Mix::default()))?;
    audit_one(store, &mut report, |scale| Ycsb::new(scale, ycsb::Mix::C, None))?;
    Ok(report)
}

fn audit_one<S: Store, P: Parameters, W: Workload<S>>(
    store: &S,
    report: &mut AuditReport,
    workload: impl FnOnce(P) -> W,
) -> Result<()> {
    let name = P::WORKLOAD;
    match Marker::<P>::read(store)? {
        Some(Marker { scale, complete: true }) => report.merge(workload(scale).audit(store)?),
        Some(Marker { complete: false, .. }) => report.fact(format!(
            "{name}: the population is incomplete, so there is nothing to audit; `bench {name}` completes it"
        )),
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_a_workload_of_this_name() {
        let home = tempfile::tempdir().unwrap();
        let options = duramen::Options { pool_bytes: 4 << 20, ..duramen::Options::default() };
        let db = duramen::Db::open(home.path(), options).unwrap();
        for name in NAMES {
            assert_eq!(Request::default().workload(name, &db).unwrap().name(), *name);
        }
        let refused = |request: Request, name: &str| {
            assert!(matches!(request.workload(name, &db), Err(Error::InvalidParameter { .. })), "{name}");
        };
        refused(Request::default(), "tpcx");
        refused(Request { skew: Some(1.0), ..Request::default() }, "tpcc");
        refused(Request { skew: Some(-1.0), ..Request::default() }, "tatp");
        let ledger = Some(Ledger::append_to(&home.path().join("ledger")).unwrap());
        refused(Request { ledger, ..Request::default() }, "ycsb:a");
        assert!(audit_all(&db).unwrap().is_ok());
    }
}
