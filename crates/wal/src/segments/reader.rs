//! Reads a log that no process has open, without changing anything.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{LogId, Lsn};

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::identity::Identity;
use crate::segments::files::{OpenFiles, SegmentFiles};
use crate::segments::recover;
use crate::segments::scan::Scanner;

/// A closed log, for tools: nothing is modified, so a tool can examine a damaged log as it is.
#[derive(Debug)]
pub struct LogReader {
    files: Arc<SegmentFiles>,
    start: Lsn,
    ring: u64,
}

impl LogReader {
    /// Opens a log in `disk`, the first or another one. With `expected`, checks that the log
    /// belongs to the database with this identity and that the database has this number of logs.
    ///
    /// # Errors
    /// Those of [`crate::Log::open`] if the segments do not make a log.
    pub fn open(disk: &dyn Disk, log: LogId, expected: Option<([u8; 16], u16)>) -> Result<Self> {
        let identity = expected.map(|(database, count)| Identity::one_of(database, log, count));
        let found = recover::find(&OpenFiles::of(disk.handle()), log, identity, None)?;
        Ok(Self { files: found.files, start: found.start, ring: found.ring })
    }

    /// Returns the identity of the database to which the log belongs.
    pub fn database(&self) -> [u8; 16] {
        self.files.identity.database
    }

    /// Returns where the log starts.
    pub fn start(&self) -> Lsn {
        self.start
    }

    /// Returns the number of the ring in persistent memory that may hold the end of the log. This
    /// reader does not read the ring.
    pub fn ring(&self) -> Option<u64> {
        (self.ring != 0).then_some(self.ring)
    }

    /// Returns the size of a segment in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.files.geometry.segment_bytes
    }

    /// Returns the numbers of the first and the last segment.
    pub fn segments(&self) -> (u64, u64) {
        self.files.span().unwrap_or_default()
    }

    /// Reads the records from `from`, or the log's start, to the last valid one.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`] if `from` is not a possible position.
    pub fn scan(&self, from: Option<Lsn>) -> Result<Scanner> {
        let from = from.unwrap_or(self.start);
        let end = Lsn::new(self.files.limit());
        if from < FIRST_LSN || from > end {
            return Err(WalError::OutOfRange { lsn: from, start: self.start, end });
        }
        Ok(Scanner::to_first_invalid(Arc::clone(&self.files), from))
    }
}
