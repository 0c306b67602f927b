//! The TPC-B databases of the experiments.

use duramen::Db;
use duramen_workloads::{Tpcb, Workload, tpcb};

use crate::bed::Bed;
use crate::error::Result;
use crate::experiment::Context;

/// Memory for pages: no page is ever replaced.
const POOL_BYTES: usize = 512 << 20;

/// A populated TPC-B database.
pub(super) struct Bank {
    pub(super) bed: Bed,
    scale: tpcb::Scale,
}

impl Bank {
    /// With so many branches, of 10 tellers each.
    pub(super) fn new(context: &mut Context<'_>, branches: u64, accounts_per_branch: u64) -> Result<Self> {
        context.prepare("populating");
        let scale = tpcb::Scale { accounts_per_branch, ..tpcb::Scale::standard(branches) };
        let bank = Self { bed: Bed::new(context.pick(POOL_BYTES, POOL_BYTES, POOL_BYTES / 16))?, scale };
        bank.bed.load(&*bank.workload(None))?;
        Ok(bank)
    }

    /// Returns the data set of the paper's measurements with TPC-B: 100 tellers, so 10 branches.
    pub(super) fn hundred_tellers(context: &mut Context<'_>) -> Result<Self> {
        let accounts = context.pick(10_000, 10_000, 50);
        Self::new(context, 10, accounts)
    }

    /// Returns the benchmark, with rows drawn uniformly or with this skew.
    pub(super) fn workload(&self, skew: Option<f64>) -> Box<dyn Workload<Db>> {
        Box::new(Tpcb::new(self.scale, skew))
    }

    /// Returns the database, for the report.
    pub(super) fn setting(&self) -> String {
        format!("TPC-B, {}.", self.scale)
    }

    pub(super) fn audit(&self, context: &mut Context<'_>) -> Result<()> {
        context.prepare("auditing");
        self.bed.audit(&*self.workload(None))
    }
}
