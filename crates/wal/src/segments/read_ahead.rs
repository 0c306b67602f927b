//! Reads ahead of a scan: while the scan processes the records of one part of the log, a thread
//! reads the next part. Without this, the device waits for the processor between two reads, and the
//! processor waits for the device during each read.
//!
//! Each part has a thread of its own, which owns the buffer until the scan waits for it. A failure
//! is not reported: the scan reads that part again when it gets there. So the number of operations
//! of a long scan may vary.

use duramen_io::AlignedBuf;
use duramen_sync::Arc;
use duramen_sync::thread::{self, JoinHandle};

use crate::segments::files::SegmentFiles;

/// Bytes that stay free at the beginning of a buffer, for the unprocessed rest of the last window.
pub(crate) const HEADROOM: usize = 64 << 10;

/// A part of the log that a thread reads.
#[derive(Debug)]
pub(crate) struct ReadAhead(Option<JoinHandle<(AlignedBuf, usize)>>);

impl ReadAhead {
    /// Begins to read `len` bytes from `from`, behind the headroom; `None` if no thread can start.
    pub(crate) fn start(files: &Arc<SegmentFiles>, from: u64, len: usize, mut buffer: AlignedBuf) -> Option<Self> {
        let files = Arc::clone(files);
        let read = move || {
            let read = files.read(from, &mut buffer[HEADROOM..HEADROOM + len]);
            (buffer, read.unwrap_or(0))
        };
        Some(Self(Some(thread::spawn("duramen-ahead", read).ok()?)))
    }

    /// Waits for the bytes. Returns the buffer with their number: zero if the read has failed.
    pub(crate) fn finish(mut self) -> Option<(AlignedBuf, usize)> {
        // A panic of the thread has already been printed.
        self.0.take()?.join().ok()
    }
}

impl Drop for ReadAhead {
    /// Nothing is read any more when the scan has ended.
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            let _ = thread.join();
        }
    }
}
