//! placeholder
use crate::{Db, error::Result};
/// placeholder
#[derive(Debug, Default)]
pub struct CheckReport {
    /// tables
    pub tables: u64,
    /// pages
    pub pages: u64,
    /// records
    pub records: u64,
    /// ghosts
    pub ghosts: u64,
    /// free
    pub free_pages: u64,
    /// problems
    pub problems: Vec<String>,
}
impl CheckReport {
    /// ok
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}
pub(crate) fn check(_db: &Db) -> Result<CheckReport> {
    Ok(CheckReport::default())
}
