//! What a dump reads.

use duramen::Snapshot;
use duramen::inspect::RemoteSnapshot;

use crate::failure::Result;

/// A snapshot.
pub(super) enum Source {
    /// Of a database that this process has opened.
    Own(Snapshot),
    /// Of one that another process has open.
    Other(RemoteSnapshot),
}

impl Source {
    /// Returns the names of all tables, sorted.
    pub(super) fn list(&self) -> Result<Vec<String>> {
        Ok(match self {
            Self::Own(snapshot) => snapshot.list()?,
            Self::Other(snapshot) => snapshot.list().to_vec(),
        })
    }

    /// Calls `each` with every record of a table, in the order of the keys.
    pub(super) fn read(&mut self, table: &str, mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
        match self {
            Self::Own(snapshot) => {
                let table = snapshot.open_table(table)?;
                let mut cursor = snapshot.cursor(&table, ..);
                while let Some((key, value)) = cursor.next()? {
                    each(key, value)?;
                }
            }
            Self::Other(snapshot) => {
                snapshot.read(table)?;
                while let Some((key, value)) = snapshot.next()? {
                    each(key, value)?;
                }
            }
        }
        Ok(())
    }
}
