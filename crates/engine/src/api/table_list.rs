//! Which tables there are.

use duramen_sync::Reference;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockId;
use crate::options::Isolation;
use crate::record::Tree;
use crate::storage::catalog::{self, CATALOG, NEXT_TABLE_KEY, Table};
use crate::txn::Txn;

/// Returns the names of all tables.
pub(super) fn names(engine: Reference<Engine>) -> Result<Vec<String>> {
    Ok(tables(engine)?.into_iter().map(|(name, _)| name).collect())
}

/// Returns the names and trees of all tables.
pub(super) fn tables(engine: Reference<Engine>) -> Result<Vec<(String, Tree)>> {
    let mut txn = begin_catalog(engine)?;
    let mut tables = Vec::new();
    for (key, value) in txn.scan_raw(CATALOG)? {
        if key != NEXT_TABLE_KEY {
            tables.push((String::from_utf8_lossy(&key).into_owned(), catalog::decode(&value)?));
        }
    }
    txn.commit()?;
    Ok(tables)
}

/// Returns a table.
pub(super) fn open(engine: Reference<Engine>, name: &str) -> Result<Table> {
    catalog::check_name(name)?;
    let mut txn = begin_catalog(engine.clone())?;
    let found = txn.get_raw(CATALOG, name.as_bytes())?;
    let bytes = found.ok_or_else(|| Error::NoSuchTable { name: name.to_owned() })?;
    let table = engine.tables.intern(name, catalog::decode(&bytes)?);
    txn.commit()?;
    Ok(table)
}

/// Begins a transaction that holds the catalog exclusively.
pub(super) fn begin_catalog(engine: Reference<Engine>) -> Result<Txn> {
    let mut txn = Txn::begin(engine, Isolation::Serializable);
    txn.lock_exclusively(LockId::catalog())?;
    Ok(txn)
}
