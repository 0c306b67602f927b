//! Reading several logs in the GSN order of their records.

use duramen_types::Gsn;

use crate::error::Result;
use crate::format::record::RecordRef;
use crate::segments::scan::Scanner;

/// Reads the records of one or more logs in GSN order. Each record is borrowed until the next call.
/// Records of different logs with the same GSN do not depend on each other.
#[derive(Debug)]
pub struct MergedScanner {
    scanners: Vec<Scanner>,
    /// For each scanner, the GSN of the record that it returned last and that has not been lent
    /// yet.
    heads: Vec<Option<Gsn>>,
    /// The scanners that advance before the next record is lent. A failed read leaves its own here.
    due: Vec<usize>,
}

impl MergedScanner {
    pub(crate) fn new(scanners: Vec<Scanner>) -> Self {
        let due = (0..scanners.len()).collect();
        Self { heads: vec![None; scanners.len()], due, scanners }
    }

    /// Returns the next record, or `None` at the end.
    ///
    /// # Errors
    /// As [`Scanner::next`].
    #[allow(clippy::should_implement_trait, reason = "the record is lent, which `Iterator` cannot express")]
    pub fn next(&mut self) -> Result<Option<RecordRef<'_>>> {
        if self.scanners.len() == 1 {
            return self.scanners[0].next();
        }
        while let Some(&at) = self.due.last() {
            self.heads[at] = self.scanners[at].next()?.map(|record| record.gsn);
            self.due.pop();
        }
        let first = self.heads.iter().enumerate().filter_map(|(at, gsn)| Some(((*gsn)?, at))).min();
        let Some((_, at)) = first else { return Ok(None) };
        self.due.push(at);
        Ok(self.scanners[at].again())
    }
}
