//! Keeping an open log, and copies of it, for backups.

use duramen_io::Disk;
use duramen_types::{LogId, Lsn};

use crate::error::Result;
use crate::stream::copy::StreamHold;

/// Keeps an open log from being recycled until it is dropped. It may grow up to its limit, and
/// reservations then get [`WalError::Full`](crate::WalError::Full).
#[derive(Debug)]
pub struct LogHold(Vec<StreamHold>);

impl LogHold {
    /// Of each log one.
    pub(crate) fn new(holds: Vec<StreamHold>) -> Self {
        Self(holds)
    }

    /// What is below these positions, one of each log, need not be kept any more.
    pub fn keep_from(&self, from: &[Lsn]) {
        self.0.iter().zip(from).for_each(|(hold, lsn)| hold.keep_from(*lsn));
    }

    /// The owner has got on with what the logs are held for: whoever waits for room in them goes on
    /// waiting.
    pub fn note_progress(&self) {
        self.0.iter().for_each(StreamHold::note_progress);
    }

    /// Copies each log from its position in `from`, the start of a record that is held, up to that
    /// in `to`, the end of a hardened record ([`crate::Log::ends_before`]), into its empty
    /// directory in `disk`, durably. `progress` is told how many bytes have been copied, now and
    /// then. The copies are logs that begin with `from`; nobody can go on with them.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`](crate::WalError::OutOfRange), [`WalError::Disk`](crate::WalError::Disk), or what stopped the
    /// log.
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
