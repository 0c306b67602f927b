//! Holding an open log against recycling, and copying it, for backups.

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_types::{LogId, Lsn};

use crate::error::Result;
use crate::stream::inner::StreamInner;

/// Keeps an open log from being recycled until the hold is dropped. The log may grow up to its
/// limit; reservations then fail with [`WalError::Full`](crate::WalError::Full).
#[derive(Debug)]
pub struct LogHold(Vec<(Arc<StreamInner>, u64)>);

impl LogHold {
    /// Holds everything from the present start of each stream on.
    pub(crate) fn new(streams: &[Arc<StreamInner>]) -> Self {
        Self(streams.iter().map(|shared| (Arc::clone(shared), shared.segments.hold())).collect())
    }

    /// Ends the hold on everything below these positions, one for each log.
    pub fn keep_from(&self, from: &[Lsn]) {
        for ((shared, hold), lsn) in self.0.iter().zip(from) {
            shared.segments.retention.move_hold(*hold, *lsn);
            shared.recycle_admitted();
        }
    }

    /// Notes progress of the hold's owner: threads that wait for log space then continue to wait.
    pub fn note_progress(&self) {
        self.0.iter().for_each(|(shared, _)| shared.segments.retention.note_backed_up());
    }

    /// Copies each log into its empty directory in `disk`, durably: a log that cannot be continued,
    /// from its position in `from`, the start of a record that is held, to its position in `to`,
    /// the end of a hardened record ([`crate::Log::ends_before`]). From time to time, `progress`
    /// receives the number of bytes copied so far.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`](crate::WalError::OutOfRange),
    /// [`WalError::Disk`](crate::WalError::Disk), or the error that stopped the log.
    pub fn copy_to(&self, disk: &dyn Disk, from: &[Lsn], to: &[Lsn], mut progress: impl FnMut(u64)) -> Result<()> {
        let mut before = 0;
        for (log, ((shared, _), (from, to))) in self.0.iter().zip(from.iter().zip(to)).enumerate() {
            let mut copied = 0;
            let outcome = shared.copy_to(disk, *from, *to, |bytes| {
                copied = bytes;
                progress(before + bytes);
            });
            outcome.map_err(|error| error.in_log(LogId::new(log as u16)))?;
            before += copied;
        }
        Ok(())
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        for (shared, hold) in &self.0 {
            shared.segments.retention.release(*hold);
            shared.recycle_admitted();
        }
    }
}
