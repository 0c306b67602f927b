//! Which tables there are.

use duramen_sync::Reference;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockId;
use crate::options::Isolation;
use crate::record::Tree;
use crate::storage::catalog::{self, CATALOG, NEXT_TABLE_KEY, Table};
use crate::txn::Txn;

/// Returns the names of all tables. The transaction holds the catalog.
pub(super) fn names(txn: &mut Txn) -> Result<Vec<String>> {
    Ok(tables(txn)?.into_iter().map(|(name, _)| name).collect())
}

/// Returns the names and trees of all tables. The transaction holds the catalog.
pub(super) fn tables(txn: &mut Txn) -> Result<Vec<(String, Tree)>> {
    let mut tables = Vec::new();
    for (key, value) in txn.scan_raw(CATALOG)? {
        if key != NEXT_TABLE_KEY {
            tables.push((String::from_utf8_lossy(&key).into_owned(), catalog::decode(&value)?));
        }
    }
    Ok(tables)
}

/// Returns a table. The transaction holds the catalog.
pub(super) fn open(txn: &mut Txn, engine: &Engine, name: &str) -> Result<Table> {
    catalog::check_name(name)?;
    let found = txn.get_raw(CATALOG, name.as_bytes())?;
    let bytes = found.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
    Ok(engine.tables.intern(name, catalog::decode(&bytes)?))
}

/// Begins a transaction that holds the catalog exclusively.
pub(super) fn begin_catalog(engine: Reference<Engine>) -> Result<Txn> {
    let mut txn = Txn::begin(engine, Isolation::Serializable);
    txn.lock_exclusively(LockId::catalog())?;
    Ok(txn)
}
