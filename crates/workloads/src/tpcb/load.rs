//! Populates a TPC-B database: each branch with its tellers and accounts is a portion.

use super::Tables;
use super::row::{BalanceRow, id_key};
use super::scale::Scale;
use crate::error::Result;
use crate::population::{Loader, Population};
use crate::store::Store;

#[derive(Clone)]
pub(super) struct BankPopulation<T> {
    tables: Tables<T>,
    scale: Scale,
}

impl<T> BankPopulation<T> {
    /// Makes the tables that are not there.
    pub(super) fn prepare<S: Store<Table = T>>(store: &S, scale: Scale) -> Result<Self> {
        Ok(Self { tables: Tables::with(|name| store.make_table(name))?, scale })
    }
}

impl<S: Store> Population<S> for BankPopulation<S::Table> {
    fn portions(&self) -> u64 {
        self.scale.branches
    }

    fn rows(&self, _: u64) -> u64 {
        self.scale.rows() / self.scale.branches
    }

    fn load(&self, branch: u64, loader: &mut Loader<'_, S>) -> Result<()> {
        let row = |id| BalanceRow { id, branch, balance: 0 }.encode();
        for account in self.scale.accounts_of(branch) {
            loader.put(&self.tables.account, &id_key(account), &row(account))?;
        }
        for teller in self.scale.tellers_of(branch) {
            loader.put(&self.tables.teller, &id_key(teller), &row(teller))?;
        }
        loader.put(&self.tables.branch, &id_key(branch), &row(branch))
    }
}
