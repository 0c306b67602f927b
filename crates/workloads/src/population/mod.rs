//! Populates databases with many threads; a population can be resumed and observed.
//!
//! A population consists of portions that can be loaded in parallel. The rows of a portion always
//! have the same order and the same values, and are written in batches, one transaction each. Each
//! batch also records the number of rows so far in the workload's `meta` table, so a later run
//! continues after them when loading was cut off.

mod loader;
mod marker;
mod state;
mod threads;

pub(crate) use loader::Loader;
pub use marker::{Marker, Parameters};

use crate::audit::AuditReport;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::workload::{LoadOutcome, LoadProgress};

/// The rows to load.
pub(crate) trait Population<S: Store>: Clone + Send + Sync + 'static {
    /// Returns the number of portions.
    fn portions(&self) -> u64;

    /// Returns the number of rows of a portion; an estimate where the rows are a matter of chance.
    fn rows(&self, portion: u64) -> u64;

    /// Gives all rows of a portion to `loader`: each time the same rows in the same order.
    fn load(&self, portion: u64, loader: &mut Loader<'_, S>) -> Result<()>;
}

/// Populates `store` unless that is done already; `prepare` makes the tables.
pub(crate) fn load<S: Store, P: Parameters, L: Population<S>>(
    store: &S,
    scale: P,
    observe: &mut dyn FnMut(LoadProgress),
    prepare: impl FnOnce(&S) -> Result<L>,
) -> Result<LoadOutcome> {
    scale.validate()?;
    let found = Marker::<P>::read(store)?;
    if let Some(marker) = found {
        if marker.scale != scale {
            return Err(Error::WrongScale { found: marker.scale.to_string(), wanted: scale.to_string() });
        }
        if marker.complete {
            return Ok(LoadOutcome::Present);
        }
    } else {
        Marker { scale, complete: false }.write(store)?;
    }
    let meta = store.make_table(&marker::meta_table::<P>())?;
    let population = prepare(store)?;
    let rows = threads::load(store, &meta, &population, observe)?;
    Marker { scale, complete: true }.write(store)?;
    store.quiesce()?;
    Ok(if found.is_some() { LoadOutcome::Resumed { rows } } else { LoadOutcome::Loaded { rows } })
}

/// Audits a population of `scale` with `conditions`, if that is what the database holds.
pub(crate) fn audit<S: Store, P: Parameters>(
    store: &S,
    scale: P,
    conditions: impl FnOnce(&mut AuditReport) -> Result<()>,
) -> Result<AuditReport> {
    let mut report = AuditReport::new();
    match Marker::<P>::read(store)? {
        Some(Marker { complete: true, scale: found }) if found == scale => conditions(&mut report)?,
        Some(Marker { complete: true, scale: found }) => {
            report.problem(format!("the database holds {found}, not {scale}"));
        }
        Some(Marker { complete: false, .. }) => {
            report.problem(format!("the population of {} is incomplete", P::WORKLOAD));
        }
        None => report.problem(format!("the database holds no population of {}", P::WORKLOAD)),
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
