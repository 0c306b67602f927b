//! Reads a log that no process has open, without changing anything.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{LogId, Lsn};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::segments::files::OpenFiles;
use crate::segments::recover::{Found, find};
use crate::segments::scan::Scanner;

/// A closed log, for tools: nothing is modified, so a tool can examine a damaged log as it is.
#[derive(Debug)]
pub struct LogReader {
    found: Found,
}

impl LogReader {
    /// Opens a log in `disk`. With `expected`, checks that it belongs to the database with this
    /// identity and this number of logs.
    ///
    /// # Errors
    /// Those of [`crate::Log::open`] if the segments do not make a log.
    pub fn open(disk: &dyn Disk, log: LogId, expected: Option<([u8; 16], u16)>) -> Result<Self> {
        let identity = expected.map(|(database, count)| Identity::one_of(database, log, count));
        Ok(Self { found: find(&OpenFiles::of(disk.handle()), log, identity, None)? })
    }

    /// Returns the number of the ring, not read here, that may hold the end of the log.
    pub fn ring(&self) -> Option<u64> {
        (self.found.ring != 0).then_some(self.found.ring)
    }

    /// Returns the numbers of the first and the last segment.
    pub fn segments(&self) -> (u64, u64) {
        self.found.files.span().unwrap_or_default()
    }

    /// Reads the records from `from`, or the log's start, to the last valid one.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] if `from` is not a possible position.
    pub fn scan(&self, from: Option<Lsn>) -> Result<Scanner> {
        let from = from.unwrap_or(self.found.start);
        let end = Lsn::new(self.found.files.limit());
        if from < FIRST_LSN || from > end {
            return Err(WalError::OutOfRange { lsn: from, start: self.found.start, end });
        }
        Ok(Scanner::to_first_invalid(Arc::clone(&self.found.files), from))
    }
}
