//! Copying an open stream, which is held against recycling, for backups.

use duramen_io::{Disk, OpenMode};
use duramen_types::Lsn;

use crate::address::FIRST_LSN;
use crate::error::{Result, WalError};
use crate::format::segment::{BLOCK, SegmentHeader, directory, segment_name};
use crate::segments::files::copy_range;
use crate::stream::inner::StreamInner;

impl StreamInner {
    /// Copies the stream from `from`, the start of a record that is held, up to `end`, the end of a
    /// hardened record, into its empty directory in `disk`, durably. From time to time, `progress`
    /// receives the number of bytes copied so far.
    pub(crate) fn copy_to(&self, disk: &dyn Disk, from: Lsn, end: Lsn, mut progress: impl FnMut(u64)) -> Result<()> {
        let (files, start) = (&self.files, self.segments.start());
        let hardened = self.destage()?;
        if from < start.max(FIRST_LSN) || from > end || end > hardened {
            return Err(WalError::OutOfRange { lsn: from, start, end: hardened });
        }
        let log = files.identity.log;
        disk.create_directory(&directory(log))?;
        disk.sync_directory("")?;
        let geometry = files.geometry;
        let mut copied = 0;
        // Up to the end of the last block, and at least one block.
        let first = from.get() / BLOCK * BLOCK;
        let behind = end.get().next_multiple_of(BLOCK).max(first + BLOCK).min(files.limit());
        for (from_lsn, to_lsn) in files.pieces(first, behind) {
            let number = geometry.segment_of(from_lsn);
            let copy = disk.open(&segment_name(log, number), OpenMode::CreateNew)?;
            copy.set_len(geometry.segment_bytes)?;
            SegmentHeader::of_copy(&files.identity, number, from, geometry.segment_bytes).write(&*copy)?;
            let (file, offset) = (files.file_at(from_lsn)?, geometry.offset(from_lsn));
            // Bytes that are being written behind the end do not belong to the copy.
            let kept = offset + end.get().saturating_sub(from_lsn);
            copy_range(&*file, &*copy, offset..offset + (to_lsn - from_lsn), kept, |bytes| {
                copied += bytes;
                self.segments.retention.note_backed_up();
                progress(copied);
            })?;
            copy.sync()?;
        }
        Ok(disk.sync_directory(&directory(log))?)
    }
}
