//! Reads ahead of a scan: while the scan processes the records of one part of the log, a thread
//! reads the next part. Without this, the device waits for the processor between two reads, and the
//! processor waits for the device during each read.
//!
//! There is one buffer besides the scan's own. It goes to the thread with a request and comes back
//! with the bytes read, so at each moment one side owns it. A failure in reading ahead is not
//! reported: the scan reads that part again when it gets there. So the number of operations of a
//! long scan may vary.

use duramen_io::AlignedBuf;
use duramen_sync::thread::{self, JoinHandle};
use duramen_sync::{Arc, Condvar, Mutex};

use crate::segments::files::SegmentFiles;

/// Bytes at the beginning of a buffer that stay free for the part of the previous window that the
/// scan has not processed yet.
pub(crate) const HEADROOM: usize = 64 << 10;

/// A thread that reads the next part of the log.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Start of the part that was requested last and has not been taken.
    asked: Option<u64>,
}

#[derive(Debug)]
struct Shared {
    files: Arc<SegmentFiles>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
enum State {
    /// No request. The scan owns the buffer, or it is kept here.
    Idle(Option<AlignedBuf>),
    /// Request to read `len` bytes from the LSN `from`, behind the buffer's headroom.
    Asked { from: u64, len: usize, buffer: AlignedBuf },
    /// The thread is reading.
    Reading,
    /// `len` bytes were read; zero if the read failed.
    Read { buffer: AlignedBuf, len: usize },
    /// The scan has ended, or the thread has panicked.
    Closed,
}

impl ReadAhead {
    /// Starts the thread; `None` where a thread is impossible. The scan's own buffer has `bytes`
    /// bytes.
    pub(crate) fn start(files: &Arc<SegmentFiles>, bytes: usize) -> Option<Self> {
        let state = Mutex::new(State::Idle(None));
        let shared = Arc::new(Shared { files: Arc::clone(files), state, changed: Condvar::new() });
        let serving = Arc::clone(&shared);
        let thread = thread::spawn("duramen-ahead", move || serving.serve()).ok()?;
        let mut ahead = Self { shared, thread: Some(thread), asked: None };
        ahead.give_back(AlignedBuf::zeroed(bytes));
        Some(ahead)
    }

    /// Requests `len` bytes from the LSN `from`. The previous request must have been taken. Returns
    /// false if the thread no longer reads.
    pub(crate) fn ask(&mut self, from: u64, len: usize) -> bool {
        let mut state = self.shared.state.lock();
        let State::Idle(buffer) = &mut *state else { return false };
        let buffer = buffer.take().expect("the scan gives a buffer back for each that it takes");
        *state = State::Asked { from, len, buffer };
        self.asked = Some(from);
        self.shared.changed.notify_all();
        true
    }

    /// Waits for the requested part. Returns it with the number of its bytes, if it begins at
    /// `from` and could be read. The caller gives it back, or another buffer for it.
    pub(crate) fn take(&mut self, from: u64) -> Option<(AlignedBuf, usize)> {
        let asked = self.asked.take()?;
        let mut state = self.shared.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Reading) {
                State::Read { buffer, len } if asked == from && len > 0 => {
                    *state = State::Idle(None);
                    return Some((buffer, len));
                }
                State::Read { buffer, .. } => {
                    *state = State::Idle(Some(buffer));
                    return None;
                }
                State::Closed => {
                    *state = State::Closed;
                    return None;
                }
                other => *state = other,
            }
            self.shared.changed.wait(&mut state);
        }
    }

    /// Gives a buffer back for the one that was taken.
    pub(crate) fn give_back(&mut self, buffer: AlignedBuf) {
        let mut state = self.shared.state.lock();
        if !matches!(*state, State::Closed) {
            *state = State::Idle(Some(buffer));
        }
    }
}

impl Shared {
    fn serve(&self) {
        let _gone = Gone(self);
        let mut state = self.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Reading) {
                State::Closed => return,
                State::Asked { from, len, mut buffer } => {
                    drop(state);
                    let read = self.files.read(from, &mut buffer[HEADROOM..HEADROOM + len]);
                    state = self.state.lock();
                    if !matches!(*state, State::Closed) {
                        *state = State::Read { buffer, len: read.unwrap_or(0) };
                    }
                    self.changed.notify_all();
                    continue;
                }
                other => *state = other,
            }
            self.changed.wait(&mut state);
        }
    }
}

/// Marks the reader closed when the thread panics, so that no caller waits for it.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        *self.0.state.lock() = State::Closed;
        self.0.changed.notify_all();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        *self.shared.state.lock() = State::Closed;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has already been printed.
            let _ = thread.join();
        }
    }
}
