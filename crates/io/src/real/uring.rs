//! Several transfers in flight at once through `io_uring`.
//!
//! A ring serves one batch at a time; a batch takes an idle ring from the pool or makes a new one, so there are as many
//! rings as there were batches at the same time. The ring does the common case only: what it reports as short,
//! interrupted or to be tried again is finished by the ordinary system calls.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd};

use duramen_sync::Mutex;
use io_uring::{IoUring, Probe, opcode, types};

use super::sys::{self, Durability};

/// Most transfers in flight per batch.
const DEPTH: u32 = 64;

/// Most bytes that one entry of the ring asks for; the rest is continued.
const MAX_TRANSFER: usize = 1 << 30;

/// Idle rings.
pub(super) struct RingPool {
    idle: Mutex<Vec<IoUring>>,
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
    fn entry(&mut self, fd: types::Fd) -> io_uring::squeue::Entry;
    /// Does what is left after `done` bytes, waiting for it.
    fn finish(&mut self, fd: BorrowedFd<'_>, done: usize) -> Result<()>;
}

impl Transfer for (u64, &mut [u8]) {
    fn offset(&self) -> u64 {
        self.0
    }

    fn len(&self) -> usize {
        self.1.len()
    }

    fn entry(&mut self, fd: types::Fd) -> io_uring::squeue::Entry {
        let len = self.1.len().min(MAX_TRANSFER) as u32;
        opcode::Read::new(fd, self.1.as_mut_ptr(), len).offset(self.0).build()
    }

    fn finish(&mut self, fd: BorrowedFd<'_>, done: usize) -> Result<()> {
        sys::read_all(fd, &mut self.1[done..], self.0 + done as u64)
    }
}

impl Transfer for (u64, &[u8]) {
    fn offset(&self) -> u64 {
        self.0
    }

    fn len(&self) -> usize {
        self.1.len()
    }

    fn entry(&mut self, fd: types::Fd) -> io_uring::squeue::Entry {
        let len = self.1.len().min(MAX_TRANSFER) as u32;
        opcode::Write::new(fd, self.1.as_ptr(), len).offset(self.0).build()
    }

    fn finish(&mut self, fd: BorrowedFd<'_>, done: usize) -> Result<()> {
        sys::write_all(fd, &[&self.1[done..]], self.0 + done as u64, Durability::Later)
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
    /// A pool, if the kernel has `io_uring`, lets this process use it, and knows the operations needed.
    pub(super) fn probe() -> Result<Self> {
        let ring = IoUring::new(DEPTH)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !(probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE)) {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(Self { idle: Mutex::new(vec![ring]) })
    }

    /// Fills every buffer.
    pub(super) fn read(&self, fd: BorrowedFd<'_>, reads: &mut [(u64, &mut [u8])]) -> std::result::Result<(), Failed> {
        self.run(fd, reads)
    }

    /// Writes every buffer. After a failure any of the others may have been written or not.
    pub(super) fn write(&self, fd: BorrowedFd<'_>, writes: &[(u64, &[u8])]) -> std::result::Result<(), Failed> {
        self.run(fd, &mut writes.to_vec())
    }

    fn run<T: Transfer>(&self, fd: BorrowedFd<'_>, batch: &mut [T]) -> std::result::Result<(), Failed> {
        let idle = self.idle.lock().pop();
        // A process may run out of rings before it runs out of threads; its batches then go one by one.
        let Some(mut ring) = idle.or_else(|| IoUring::new(DEPTH).ok()) else { return finish_all(fd, batch) };
        let outcome = run_on(&mut ring, fd, batch);
        self.idle.lock().push(ring);
        outcome
    }
}

fn fail<T: Transfer>(transfer: &T, error: Error) -> Failed {
    Failed { offset: transfer.offset(), len: transfer.len(), error }
}

fn finish_all<T: Transfer>(fd: BorrowedFd<'_>, batch: &mut [T]) -> std::result::Result<(), Failed> {
    batch.iter_mut().try_for_each(|transfer| transfer.finish(fd, 0).map_err(|error| fail(transfer, error)))
}

/// Runs a batch. Returns, in success as in failure, with nothing in flight: the kernel must not touch the buffers later.
fn run_on<T: Transfer>(ring: &mut IoUring, fd: BorrowedFd<'_>, batch: &mut [T]) -> std::result::Result<(), Failed> {
    let (mut next, mut in_flight) = (0, 0);
    let mut outcome = Ok(());
    let mut unfinished = Vec::new();
    while in_flight > 0 || (next < batch.len() && outcome.is_ok()) {
        while next < batch.len() && in_flight < DEPTH as usize && outcome.is_ok() {
            let entry = batch[next].entry(types::Fd(fd.as_raw_fd())).user_data(next as u64);
            // SAFETY: the entry's buffer is borrowed by `batch` until this function returns, which it does with no
            // entry in flight; the descriptor is borrowed as long.
            unsafe { ring.submission().push(&entry) }
                .expect("the queue has room for as many entries as may be in flight");
            next += 1;
            in_flight += 1;
        }
        if let Err(error) = ring.submit_and_wait(1) {
            let passing = [libc::EINTR, libc::EAGAIN, libc::EBUSY];
            if !error.raw_os_error().is_some_and(|code| passing.contains(&code)) {
                // The kernel may still own buffers that the caller takes back on return or on unwinding.
                eprintln!("duramen: io_uring cannot be waited for ({error}) with transfers in flight; aborting");
                std::process::abort();
            }
        }
        for completion in ring.completion() {
            in_flight -= 1;
            let index = completion.user_data() as usize;
            let transfer = &batch[index];
            match completion.result() {
                count if count >= 0 && count as usize == transfer.len() => {}
                count if count >= 0 => unfinished.push((index, count as usize)),
                code if [libc::EINTR, libc::EAGAIN].contains(&-code) => unfinished.push((index, 0)),
                code => outcome = outcome.and(Err(fail(transfer, Error::from_raw_os_error(-code)))),
            }
        }
    }
    outcome?;
    for (index, done) in unfinished {
        let transfer = &mut batch[index];
        transfer.finish(fd, done).map_err(|error| fail(transfer, error))?;
    }
    Ok(())
}
