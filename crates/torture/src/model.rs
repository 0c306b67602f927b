//! What a database should hold: tables as ordered maps in memory.

use std::collections::BTreeMap;

use duramen::{Db, Result};
use duramen_sync::Arc;

/// A key.
pub type Key = Vec<u8>;
/// A value; shared, so that copying a model is cheap.
pub type Value = Arc<[u8]>;
/// The records of one table.
pub type Records = BTreeMap<Key, Value>;

/// The committed contents of a database.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Model {
    /// Every table by name.
    pub tables: BTreeMap<String, Records>,
}

impl Model {
    /// Reads the whole of `db`: the list of tables, and each by a scan.
    ///
    /// # Errors
    /// The first that the engine gives.
    pub fn read_from(db: &Db) -> Result<Self> {
        let mut tables = BTreeMap::new();
        for name in db.list()? {
            let table = db.open_table(&name)?;
            let mut txn = db.begin();
            let mut records = Records::new();
            for record in txn.scan(&table, ..) {
                let (key, value) = record?;
                records.insert(key, value.into());
            }
            txn.commit()?;
            tables.insert(name, records);
        }
        Ok(Self { tables })
    }

    /// Returns the first difference between this model and what was `found`, for people; `None`
    /// when they are equal.
    pub fn difference(&self, found: &Self) -> Option<String> {
        for (name, records) in &self.tables {
            let Some(other) = found.tables.get(name) else { return Some(format!("table `{name}` is missing")) };
            if let Some(difference) = differing_record(records, other) {
                return Some(format!("table `{name}`: {difference}"));
            }
        }
        let extra = found.tables.keys().find(|name| !self.tables.contains_key(*name))?;
        Some(format!("table `{extra}` should not be there"))
    }

    /// Returns the number of records in all tables.
    pub fn records(&self) -> usize {
        self.tables.values().map(Records::len).sum()
    }
}

fn differing_record(expected: &Records, found: &Records) -> Option<String> {
    for (key, value) in expected {
        match found.get(key) {
            None => {
                return Some(format!(
                    "key {} is missing ({} expected, {} found)",
                    brief(key),
                    expected.len(),
                    found.len()
                ));
            }
            Some(other) if other != value => {
                return Some(format!("key {} has value {} instead of {}", brief(key), brief(other), brief(value)));
            }
            Some(_) => {}
        }
    }
    let extra = found.keys().find(|key| !expected.contains_key(*key))?;
    Some(format!("key {} should not be there ({} expected, {} found)", brief(extra), expected.len(), found.len()))
}

/// Formats bytes for people: short ones whole, long ones by their beginning and length.
pub fn brief(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(24)];
    let text = if shown.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        format!("`{}`", String::from_utf8_lossy(shown))
    } else {
        shown.iter().fold(String::from("0x"), |text, byte| format!("{text}{byte:02x}"))
    };
    if shown.len() < bytes.len() { format!("{text}... ({} bytes)", bytes.len()) } else { text }
}
