//! Holding an open log against recycling, and copying it, for backups.

use duramen_io::Disk;
use duramen_types::{LogId, Lsn};

use crate::error::Result;
use crate::stream::copy::StreamHold;

/// Keeps an open log from being recycled until the hold is dropped. The log may grow up to its
/// limit; reservations then fail with [`WalError::Full`](crate::WalError::Full).
#[derive(Debug)]
pub struct LogHold(Vec<StreamHold>);

impl LogHold {
    /// Combines one hold of each log.
    pub(crate) fn new(holds: Vec<StreamHold>) -> Self {
        Self(holds)
    }

    /// Ends the hold on everything below these positions, one for each log.
    pub fn keep_from(&self, from: &[Lsn]) {
        self.0.iter().zip(from).for_each(|(hold, lsn)| hold.keep_from(*lsn));
    }

    /// Notes that the owner of the hold has made progress. Threads that wait for space in the logs
    /// then continue to wait.
    pub fn note_progress(&self) {
        self.0.iter().for_each(StreamHold::note_progress);
    }

    /// Copies each log into its empty directory in `disk`, durably. The copy of a log begins at its
    /// position in `from`, the start of a record that is held, and ends at its position in `to`,
    /// the end of a hardened record ([`crate::Log::ends_before`]). From time to time, `progress`
    /// receives the number of bytes copied so far. Each copy is a log that begins at its position
    /// in `from`; no log can be continued from it.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`](crate::WalError::OutOfRange),
    /// [`WalError::Disk`](crate::WalError::Disk), or the error that stopped the log.
    pub fn copy_to(&self, disk: &dyn Disk, from: &[Lsn], to: &[Lsn], mut progress: impl FnMut(u64)) -> Result<()> {
        let mut before = 0;
        for (log, (hold, (from, to))) in self.0.iter().zip(from.iter().zip(to)).enumerate() {
            let mut copied = 0;
            let outcome = hold.copy_to(disk, *from, *to, |bytes| {
                copied = bytes;
                progress(before + bytes);
            });
            outcome.map_err(|error| error.in_log(LogId::new(log as u16)))?;
            before += copied;
        }
        Ok(())
    }
}
