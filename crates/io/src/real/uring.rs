//! Several transfers in flight at once through `io_uring`.
//!
//! A ring serves one batch at a time. A batch takes an idle ring from the pool or makes a new one,
//! so there are as many rings as there were concurrent batches. The ring handles only the common
//! case: ordinary system calls finish what it reports as short, interrupted or to be retried.
//!
//! # Failure
//! If the system refuses to enter the ring, ordinary system calls do what it has not taken over,
//! and the ring is discarded. The system still completes what it has taken over, and reports this
//! in memory that is shared with it. The batch does not return before that, because the system may
//! still read or write the buffers.
//!
//! If the process is killed, the system may carry out later what it has taken over, when the
//! process's locks are gone. So each ring holds a lock, too: see [`RingPool::keep_locked`].

use std::fs::File;
use std::io::{Error, ErrorKind, IoSliceMut, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use std::time::Duration;

use duramen_sync::{Mutex, thread};
use duramen_types::BLOCK_SIZE;
use io_uring::{IoUring, Probe, opcode, squeue, types};

use super::sys::{self, Durability};

/// The largest number of transfers in flight per batch.
const DEPTH: u32 = 64;

/// The largest number of bytes in one entry of the ring; the rest is continued.
const MAX_TRANSFER: usize = 1 << 30;

/// Pause between checks for completions in a ring that cannot be entered.
const LOOK: Duration = Duration::from_micros(200);

/// Makes the system wait for a completion (`IORING_ENTER_GETEVENTS`).
const GET_EVENTS: u32 = 1;

/// The operations of a ring that a batch needs.
trait Ring {
    /// Adds an entry; there is room.
    ///
    /// # Safety
    /// The entry's buffer and descriptor must stay valid until its completion has been taken, or
    /// the ring is dropped without the entry having been submitted.
    unsafe fn push(&mut self, entry: &squeue::Entry);

    /// Submits the added entries and waits for a completion.
    fn submit_and_wait(&mut self) -> Result<()>;

    /// Waits for a completion and submits nothing.
    fn wait(&mut self) -> Result<()>;

    /// Returns the number of entries that the system has not taken over: the latest ones.
    fn unsubmitted(&mut self) -> usize;

    /// Returns the next completion: the entry's mark, and its outcome.
    fn completed(&mut self) -> Option<(u64, i32)>;
}

impl Ring for IoUring {
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the caller guarantees the contract of `push`.
        unsafe { self.submission().push(entry) }.expect("the queue has room for as many entries as may be in flight");
    }

    fn submit_and_wait(&mut self) -> Result<()> {
        IoUring::submit_and_wait(self, 1).map(|_| ())
    }

    fn wait(&mut self) -> Result<()> {
        // SAFETY: nothing is submitted, and there is no argument.
        unsafe { self.submitter().enter::<libc::sigset_t>(0, 1, GET_EVENTS, None) }.map(|_| ())
    }

    fn unsubmitted(&mut self) -> usize {
        self.submission().len()
    }

    fn completed(&mut self) -> Option<(u64, i32)> {
        let completion = self.completion().next()?;
        Some((completion.user_data(), completion.result()))
    }
}

/// Idle rings.
pub(super) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
    /// The file whose lock the rings keep.
    locked: Mutex<Option<File>>,
}

impl std::fmt::Debug for RingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RingPool")
    }
}

/// One transfer of a batch.
trait Transfer {
    fn offset(&self) -> u64;
    fn len(&self) -> usize;
    fn entry(&mut self, fd: types::Fd) -> squeue::Entry;
    /// Transfers the rest after `done` bytes, blocking.
    fn finish(&mut self, fd: BorrowedFd<'_>, done: usize) -> std::result::Result<(), Failed>;
}

/// Reads that follow each other in the file: one operation of the device.
struct ReadRun<'b> {
    offset: u64,
    len: usize,
    /// The buffers, in the order of the file.
    parts: Vec<IoSliceMut<'b>>,
}

impl<'b> ReadRun<'b> {
    /// The largest number of bytes that are joined.
    const JOINED: usize = 1 << 20;

    /// Joins the reads that follow each other, here and in the file.
    fn join(reads: &'b mut [(u64, &mut [u8])]) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::with_capacity(reads.len());
        for (offset, buf) in reads {
            let (offset, len) = (*offset, buf.len());
            match runs.last_mut() {
                Some(run) if run.offset + run.len as u64 == offset && run.len + len <= Self::JOINED => {
                    run.len += len;
                    run.parts.push(IoSliceMut::new(buf));
                }
                _ => runs.push(Self { offset, len, parts: vec![IoSliceMut::new(buf)] }),
            }
        }
        runs
    }
}

impl Transfer for ReadRun<'_> {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn len(&self) -> usize {
        self.len
    }

    fn entry(&mut self, fd: types::Fd) -> squeue::Entry {
        match &mut self.parts[..] {
            [only] => {
                let len = only.len().min(MAX_TRANSFER) as u32;
                opcode::Read::new(fd, only.as_mut_ptr(), len).offset(self.offset).build()
            }
            // An `IoSliceMut` is an `iovec` by contract.
            parts => {
                let count = parts.len() as u32;
                opcode::Readv::new(fd, parts.as_mut_ptr().cast(), count).offset(self.offset).build()
            }
        }
    }

    fn finish(&mut self, fd: BorrowedFd<'_>, mut done: usize) -> std::result::Result<(), Failed> {
        let mut offset = self.offset;
        for part in &mut self.parts {
            let (len, skip) = (part.len(), done.min(part.len()));
            sys::read_all(fd, &mut part[skip..], offset + skip as u64).map_err(|error| Failed {
                offset,
                len,
                error,
            })?;
            offset += len as u64;
            done -= skip;
        }
        Ok(())
    }
}

impl Transfer for (u64, &[u8]) {
    fn offset(&self) -> u64 {
        self.0
    }

    fn len(&self) -> usize {
        self.1.len()
    }

    fn entry(&mut self, fd: types::Fd) -> squeue::Entry {
        let len = self.1.len().min(MAX_TRANSFER) as u32;
        opcode::Write::new(fd, self.1.as_ptr(), len).offset(self.0).build()
    }

    fn finish(&mut self, fd: BorrowedFd<'_>, done: usize) -> std::result::Result<(), Failed> {
        sys::write_all(fd, &[&self.1[done..]], self.0 + done as u64, Durability::Later)
            .map_err(|error| fail(self, error))
    }
}

/// The transfer of a batch that failed, and how.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) offset: u64,
    pub(super) len: usize,
    pub(super) error: Error,
}

impl RingPool {
    /// Makes a pool, if the kernel has `io_uring`, lets this process use it, and supports the
    /// necessary operations.
    pub(super) fn probe() -> Result<Self> {
        let ring = IoUring::new(DEPTH)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Readv::CODE, opcode::Write::CODE];
        if !needed.iter().all(|operation| probe.is_supported(*operation)) {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(Self { idle: Mutex::new(vec![ring]), locked: Mutex::new(None) })
    }

    /// Makes the lock of `file` last until the system has carried out what it has taken over, even
    /// if the process is killed meanwhile: the system keeps a file that a ring knows open as long
    /// as the ring.
    pub(super) fn keep_locked(&self, file: File) {
        *self.locked.lock() = Some(file);
        // Those that are made from now on know the file.
        self.idle.lock().clear();
    }

    fn make(&self) -> Result<IoUring> {
        let ring = IoUring::new(DEPTH)?;
        if let Some(file) = &*self.locked.lock() {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
        }
        Ok(ring)
    }

    /// Fills every buffer.
    pub(super) fn read(&self, fd: BorrowedFd<'_>, reads: &mut [(u64, &mut [u8])]) -> std::result::Result<(), Failed> {
        self.run(fd, &mut ReadRun::join(reads))
    }

    /// Writes every buffer. After a failure any of the others may have been written or not.
    pub(super) fn write(&self, fd: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> std::result::Result<(), Failed> {
        self.run(fd, &mut writes.to_vec())
    }

    fn run<T: Transfer>(&self, fd: BorrowedFd<'_>, batch: &mut [T]) -> std::result::Result<(), Failed> {
        let idle = self.idle.lock().pop();
        // A process may run out of rings before it runs out of threads; its transfers then go one
        // by one.
        let Some(mut ring) = idle.or_else(|| self.make().ok()) else { return finish_all(fd, batch) };
        let (outcome, is_usable) = run_on(&mut ring, fd, batch);
        if is_usable {
            self.idle.lock().push(ring);
        }
        outcome
    }
}

fn fail<T: Transfer>(transfer: &T, error: Error) -> Failed {
    Failed { offset: transfer.offset(), len: transfer.len(), error }
}

fn finish_all<T: Transfer>(fd: BorrowedFd<'_>, batch: &mut [T]) -> std::result::Result<(), Failed> {
    batch.iter_mut().try_for_each(|transfer| transfer.finish(fd, 0))
}

/// Runs a batch; returns whether the ring can be reused, too. In success as in failure nothing is
/// in flight on return: the system must not touch the buffers later.
fn run_on<T: Transfer>(
    ring: &mut impl Ring,
    fd: BorrowedFd<'_>,
    batch: &mut [T],
) -> (std::result::Result<(), Failed>, bool) {
    let (mut next, mut in_flight, mut is_usable) = (0, 0, true);
    let mut outcome = Ok(());
    let mut unfinished = Vec::new();
    while in_flight > 0 || (is_usable && next < batch.len() && outcome.is_ok()) {
        while is_usable && next < batch.len() && in_flight < DEPTH as usize && outcome.is_ok() {
            let entry = batch[next].entry(types::Fd(fd.as_raw_fd())).user_data(next as u64);
            // SAFETY: `batch` borrows the entry's buffers until this function returns, which
            // happens when the entry's completion has been taken, or with a ring that is not used
            // again; the descriptor is borrowed as long.
            unsafe { ring.push(&entry) };
            next += 1;
            in_flight += 1;
        }
        let entered = if is_usable { ring.submit_and_wait() } else { ring.wait() };
        let is_passing = |code: i32| [libc::EINTR, libc::EAGAIN, libc::EBUSY].contains(&code);
        match entered {
            Err(error) if !error.raw_os_error().is_some_and(is_passing) => {
                if is_usable {
                    is_usable = false;
                    let left = ring.unsubmitted();
                    unfinished.extend((next - left..next).map(|index| (index, 0)));
                    in_flight -= left;
                } else {
                    thread::sleep(LOOK);
                }
            }
            _ => {}
        }
        while let Some((index, result)) = ring.completed() {
            in_flight -= 1;
            let index = index as usize;
            let transfer = &batch[index];
            match result {
                count if count >= 0 => match sys::checked(count as usize, transfer.len().min(MAX_TRANSFER)) {
                    Ok(count) if count == transfer.len() => {}
                    // Direct I/O goes on at the beginning of a block.
                    Ok(count) => unfinished.push((index, count - count % BLOCK_SIZE)),
                    Err(error) => outcome = outcome.and(Err(fail(transfer, error))),
                },
                code if [libc::EINTR, libc::EAGAIN].contains(&-code) => unfinished.push((index, 0)),
                code => outcome = outcome.and(Err(fail(transfer, Error::from_raw_os_error(-code)))),
            }
        }
    }
    unfinished.extend((next..batch.len()).map(|index| (index, 0)));
    let finished =
        outcome.and_then(|()| unfinished.into_iter().try_for_each(|(index, done)| batch[index].finish(fd, done)));
    (finished, is_usable)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// A ring that the system refuses to enter from some moment on, with added entries submitted or
    /// not.
    struct Refused {
        inner: IoUring,
        entries_left: usize,
        submits: bool,
    }

    impl Ring for Refused {
        unsafe fn push(&mut self, entry: &squeue::Entry) {
            // SAFETY: the caller guarantees the contract of `push`.
            unsafe { self.inner.push(entry) };
        }

        fn submit_and_wait(&mut self) -> Result<()> {
            if self.entries_left > 0 {
                self.entries_left -= 1;
                return Ring::submit_and_wait(&mut self.inner);
            }
            if self.submits {
                self.inner.submit().unwrap();
            }
            Err(Error::from_raw_os_error(libc::EBADF))
        }

        fn wait(&mut self) -> Result<()> {
            Err(Error::from_raw_os_error(libc::EBADF))
        }

        fn unsubmitted(&mut self) -> usize {
            self.inner.unsubmitted()
        }

        fn completed(&mut self) -> Option<(u64, i32)> {
            self.inner.completed()
        }
    }

    /// A ring that could not be entered ended the process.
    #[test]
    fn a_batch_is_completed_though_the_ring_cannot_be_entered() {
        let directory = tempfile::tempdir().unwrap();
        let file = std::fs::File::create_new(directory.path().join("data")).unwrap();
        let parts: Vec<Vec<u8>> = (0..200_u8).map(|number| vec![number; 4096]).collect();
        let writes: Vec<(u64, &[u8])> =
            (0..).map(|number| number * 4096).zip(parts.iter().map(|part| &part[..])).collect();
        file.set_len(0).unwrap();
        for (entries_left, submits) in [(0, false), (0, true), (1, false), (2, true)] {
            // A kernel without rings cannot refuse one.
            let Ok(inner) = IoUring::new(DEPTH) else { return };
            file.set_len(0).unwrap();
            let mut ring = Refused { inner, entries_left, submits };
            let (outcome, is_usable) = run_on(&mut ring, file.as_fd(), &mut writes.clone());
            outcome.unwrap();
            assert!(!is_usable, "{entries_left} {submits}");
            assert_eq!(std::fs::read(directory.path().join("data")).unwrap(), parts.concat());
        }
        // A ring that fails for another reason reports it, and nothing is in flight on return.
        let Ok(inner) = IoUring::new(DEPTH) else { return };
        let read_only = std::fs::File::open(directory.path().join("data")).unwrap();
        let mut ring = Refused { inner, entries_left: 0, submits: true };
        let (outcome, _) = run_on(&mut ring, read_only.as_fd(), &mut writes.clone());
        assert_eq!(outcome.unwrap_err().error.raw_os_error(), Some(libc::EBADF));
    }
}
