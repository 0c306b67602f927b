//! Copies of an open log, for backups.

use duramen_io::{Disk, OpenMode};
use duramen_sync::Arc;
use duramen_types::Lsn;

use crate::error::{Result, WalError};
use crate::format::segment::{BLOCK, SegmentHeader, directory, segment_name};
use crate::place::FIRST_LSN;
use crate::segments::files::copy_range;
use crate::stream::inner::Shared;
use crate::stream::log::Wal;

/// Keeps an open log from being recycled until it is dropped.
#[derive(Debug)]
pub struct LogHold {
    shared: Arc<Shared>,
    hold: u64,
}

impl Wal {
    /// Keeps everything from the log's present start on. A log that is held may grow up to its limit, and reservations then
    /// get [`WalError::Full`].
    pub fn hold(&self) -> LogHold {
        let hold = self.shared.segments.hold();
        LogHold { shared: Arc::clone(&self.shared), hold }
    }
}

impl LogHold {
    /// What is below `lsn` need not be kept any more.
    pub fn keep_from(&self, lsn: Lsn) {
        self.shared.segments.retention.move_hold(self.hold, lsn);
        self.shared.recycle_admitted();
    }

    /// Who holds the log has got on with what it is held for: whoever waits for room in it goes on waiting.
    pub fn note_progress(&self) {
        self.shared.segments.retention.note_backed_up();
    }

    /// Copies the log from `from`, the start of a record that is held, to where it is hardened at this moment, or up to `to`,
    /// the end of a record before that, into its empty directory in `disk`, durably; returns how far that is. `progress` is told
    /// how many bytes have been copied, now and then. The copy is a log that begins with `from`; nobody can go on with it.
    ///
    /// # Errors
    /// [`WalError::OutOfRange`], [`WalError::Disk`], or what stopped the log.
    pub fn copy_to(&self, disk: &dyn Disk, from: Lsn, to: Option<Lsn>, mut progress: impl FnMut(u64)) -> Result<Lsn> {
        let (files, start) = (&self.shared.files, self.shared.segments.start());
        let hardened = self.shared.destage()?;
        let end = to.unwrap_or(hardened);
        if from < start.max(FIRST_LSN) || from > end || end > hardened {
            return Err(WalError::OutOfRange { lsn: from, start, end: hardened });
        }
        let log = files.identity.log;
        disk.create_directory(&directory(log))?;
        disk.sync_directory("")?;
        let geometry = files.geometry;
        let mut copied = 0;
        // To the end of the last block, and one block at least.
        let first = from.get() / BLOCK * BLOCK;
        let behind = end.get().next_multiple_of(BLOCK).max(first + BLOCK).min(files.limit());
        for (from_lsn, to_lsn) in files.pieces(first, behind) {
            let number = geometry.segment_of(from_lsn);
            let copy = disk.open(&segment_name(log, number), OpenMode::CreateNew)?;
            copy.set_len(geometry.segment_bytes)?;
            SegmentHeader::of_copy(&files.identity, number, from, geometry.segment_bytes).write(&*copy)?;
            let (file, offset) = (files.file_at(from_lsn)?, geometry.offset(from_lsn));
            // What is being written behind the end is none of the copy's.
            let kept = offset + end.get().saturating_sub(from_lsn);
            copy_range(&*file, &*copy, offset..offset + (to_lsn - from_lsn), kept, |bytes| {
                copied += bytes;
                self.note_progress();
                progress(copied);
            })?;
            copy.sync()?;
        }
        disk.sync_directory(&directory(log))?;
        Ok(end)
    }
}

/// Keeps all logs of a database from being recycled until it is dropped.
#[derive(Debug)]
pub struct LogsHold(Vec<LogHold>);

impl LogsHold {
    pub(crate) fn new(holds: Vec<LogHold>) -> Self {
        Self(holds)
    }

    /// What is below these positions, one of each log, need not be kept any more.
    pub fn keep_from(&self, from: &[Lsn]) {
        self.0.iter().zip(from).for_each(|(hold, lsn)| hold.keep_from(*lsn));
    }

    /// As [`LogHold::note_progress`].
    pub fn note_progress(&self) {
        self.0.iter().for_each(LogHold::note_progress);
    }

    /// As [`LogHold::copy_to`], for each log from its position in `from` up to that in `to` ([`crate::Logs::ends_before`]).
    ///
    /// # Errors
    /// As [`LogHold::copy_to`].
    pub fn copy_to(&self, disk: &dyn Disk, from: &[Lsn], to: &[Lsn], mut progress: impl FnMut(u64)) -> Result<()> {
        let mut before = 0;
        for (hold, (from, to)) in self.0.iter().zip(from.iter().zip(to)) {
            let mut copied = 0;
            let end = hold.copy_to(disk, *from, Some(*to), |bytes| {
                copied = bytes;
                progress(before + bytes);
            });
            end.map_err(|error| error.in_log(hold.shared.files.identity.log))?;
            before += copied;
        }
        Ok(())
    }
}

impl Drop for LogHold {
    fn drop(&mut self) {
        self.shared.segments.retention.release(self.hold);
        self.shared.recycle_admitted();
    }
}
