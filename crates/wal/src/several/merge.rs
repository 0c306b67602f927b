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
    /// The scanner whose record is lent: it advances first.
    lent: Option<usize>,
    started: bool,
}

impl MergedScanner {
    pub(crate) fn new(scanners: Vec<Scanner>) -> Self {
        let heads = vec![None; scanners.len()];
        Self { scanners, heads, lent: None, started: false }
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
        if !std::mem::replace(&mut self.started, true) {
            for at in 0..self.scanners.len() {
                self.advance(at)?;
            }
        }
        if let Some(at) = self.lent.take() {
            self.advance(at)?;
        }
        let first = self.heads.iter().enumerate().filter_map(|(at, gsn)| Some(((*gsn)?, at))).min();
        let Some((_, at)) = first else { return Ok(None) };
        self.lent = Some(at);
        Ok(self.scanners[at].again())
    }

    fn advance(&mut self, at: usize) -> Result<()> {
        self.heads[at] = None;
        self.heads[at] = self.scanners[at].next()?.map(|record| record.gsn);
        Ok(())
    }
}
