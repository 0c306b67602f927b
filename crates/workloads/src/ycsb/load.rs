//! Populates a YCSB database: ten thousand records are a portion.

use super::row;
use super::scale::Scale;
use crate::error::Result;
use crate::population::{Loader, Population};
use crate::store::Store;

/// Records of one portion.
const PORTION: u64 = 10_000;

#[derive(Clone)]
pub(super) struct RecordPopulation<T> {
    pub(super) table: T,
    pub(super) scale: Scale,
}

impl<S: Store> Population<S> for RecordPopulation<S::Table> {
    fn portions(&self) -> u64 {
        self.scale.records.div_ceil(PORTION)
    }

    fn rows(&self, portion: u64) -> u64 {
        PORTION.min(self.scale.records - portion * PORTION)
    }

    fn load(&self, portion: u64, loader: &mut Loader<'_, S>) -> Result<()> {
        let first = portion * PORTION;
        for number in first..self.scale.records.min(first + PORTION) {
            loader.put(&self.table, &row::key(number), &row::row(number, number))?;
        }
        Ok(())
    }
}
