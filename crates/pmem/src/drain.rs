//! Draining the buffers of all processors at once.

use crate::region::Region;

/// The mechanism that makes processors drain their buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DrainBy {
    /// `membarrier(2)`: an interrupt on every processor that runs a thread of this process.
    #[default]
    Membarrier,
    /// A signal to every thread of this process, whose handler executes a fence: for kernels
    /// without `membarrier(2)`. It occupies one real-time signal of the process and interrupts
    /// system calls.
    Signal,
}

/// The outcome of [`drain_processors`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// Every processor drained its buffers.
    Done {
        /// The number of signals that were sent.
        signals: u64,
    },
    /// The kernel has no `membarrier(2)`; or the signal already has another handler, is blocked by
    /// a thread, or cannot be sent to all of them. Some processors may not have drained theirs.
    Unsupported,
}

/// Makes durable what any thread of this process has streamed or flushed to these regions before
/// the call. Every processor that runs a thread of this process executes a full barrier, once for
/// all regions; the other processors executed one when they switched to another process. A call
/// takes about ten microseconds (with signals, about ten for each thread), and costs each
/// interrupted thread one or two.
///
/// After Wang and Johnson, *Scalable Logging through Emerging Non-Volatile Memory* (PVLDB 7(10),
/// 2014), section 4.1; they send signals to the threads that need it.
pub fn drain_processors<'a>(regions: impl IntoIterator<Item = &'a Region>, by: DrainBy) -> Drained {
    let mut drained = Drained::Done { signals: 0 };
    let mut is_done = false;
    for region in regions {
        if let Some(recorder) = region.recorder() {
            recorder.drain();
        } else if !std::mem::replace(&mut is_done, true) {
            drained = drain(region, by);
        }
    }
    drained
}

/// Returns whether processors can be drained in this way, by doing so.
#[cfg(not(any(duramen_loom, duramen_machine)))]
pub fn can_drain(by: DrainBy) -> bool {
    interrupted(by).is_some()
}

/// Returns that it is possible: a fence does.
#[cfg(any(duramen_loom, duramen_machine))]
pub fn can_drain(_by: DrainBy) -> bool {
    true
}

/// Simulated threads share a processor, whose buffers the caller's fence drains.
#[cfg(any(duramen_loom, duramen_machine))]
fn drain(region: &Region, _by: DrainBy) -> Drained {
    region.fence();
    Drained::Done { signals: 0 }
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
fn drain(_region: &Region, by: DrainBy) -> Drained {
    interrupted(by).map_or(Drained::Unsupported, |signals| Drained::Done { signals })
}

/// Makes processors drain their buffers; returns the number of signals that this took.
#[cfg(not(any(duramen_loom, duramen_machine)))]
fn interrupted(by: DrainBy) -> Option<u64> {
    match by {
        DrainBy::Membarrier => interrupt::all_processors().then_some(0),
        DrainBy::Signal => signal::all_threads(),
    }
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
mod interrupt {
    use duramen_sync::OnceLock;

    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    /// Interrupts every processor that runs a thread of this process; returns whether the kernel
    /// supports `membarrier(2)`.
    pub(super) fn all_processors() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED)) && membarrier(PRIVATE_EXPEDITED)
    }

    fn membarrier(command: libc::c_int) -> bool {
        // SAFETY: the call takes three numbers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(any(duramen_loom, duramen_machine)))]
mod signal {
    use std::mem::MaybeUninit;

    use duramen_sync::atomic::{AtomicU64, Ordering};
    use duramen_sync::clock::Instant;
    use duramen_sync::{Backoff, Mutex, OnceLock};

    use crate::instructions;

    /// The number of the present round, in the upper half, and its signals that were handled. A
    /// signal of an earlier round, which a thread handles late, does not count.
    static HANDLED: AtomicU64 = AtomicU64::new(0);

    /// Time after which the threads are signalled again: a thread may have ended between being
    /// found and being signalled.
    const SIGNAL_LIMIT: std::time::Duration = std::time::Duration::from_millis(2);

    /// What the kernel passes on with a signal that a process has queued (`siginfo_t`).
    #[repr(C)]
    struct Queued {
        signal: libc::c_int,
        error: libc::c_int,
        code: libc::c_int,
        padding: libc::c_int,
        process: libc::pid_t,
        user: libc::uid_t,
        round: u64,
        rest: [u8; 96],
    }

    const _: () = assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>());

    extern "C" fn handle(_signal: libc::c_int, info: *const Queued, _context: *const libc::c_void) {
        instructions::fence();
        // SAFETY: the kernel passes what the signal was queued with.
        let Queued { code, round, .. } = unsafe { &*info };
        if *code == libc::SI_QUEUE {
            let is_present = |handled: u64| (handled >> 32 == *round).then_some(handled + 1);
            let _ = HANDLED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_present);
        }
    }

    fn number() -> libc::c_int {
        libc::SIGRTMIN() + 7
    }

    /// Installs the handler, unless the signal has one already.
    fn install() -> bool {
        // SAFETY: the structures are plain numbers, for which zero is a value, and the handler does
        // nothing that a handler may not: a fence and an atomic addition.
        unsafe {
            let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
            if libc::sigaction(number(), std::ptr::null(), &raw mut before) != 0 || before.sa_sigaction != libc::SIG_DFL
            {
                return false;
            }
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_SIGINFO;
            libc::sigemptyset(&raw mut action.sa_mask);
            libc::sigaction(number(), &raw const action, std::ptr::null_mut()) == 0
        }
    }

    /// Rounds of signals after which a thread is taken for one that blocks the signal.
    const MOST_ROUNDS: u32 = 500;

    /// Signals every other thread of the process and waits until all have fenced; returns how many
    /// signals that took. Returns `None` if it cannot be certain that all have.
    pub(super) fn all_threads() -> Option<u64> {
        static INSTALLED: OnceLock<bool> = OnceLock::new();
        static TURN: Mutex<()> = Mutex::new(());
        if !*INSTALLED.get_or_init(install) {
            return None;
        }
        instructions::fence();
        let _turn = TURN.lock();
        let mut signals = 0;
        for _ in 0..MOST_ROUNDS {
            let round = ((HANDLED.load(Ordering::SeqCst) >> 32) + 1) & u64::from(u32::MAX);
            HANDLED.store(round << 32, Ordering::SeqCst);
            let mut sent = 0;
            for thread in others()? {
                sent += u64::from(signal(thread, round)?);
            }
            signals += sent;
            let (mut backoff, since) = (Backoff::new(), Instant::now());
            while since.elapsed() < SIGNAL_LIMIT {
                if HANDLED.load(Ordering::SeqCst) == round << 32 | sent {
                    return Some(signals);
                }
                backoff.snooze();
            }
        }
        None
    }

    /// Returns the other threads of the process; `None` if the system does not tell all of them.
    fn others() -> Option<Vec<libc::pid_t>> {
        // SAFETY: the call takes and touches nothing.
        let own = unsafe { libc::gettid() };
        let mut threads: Vec<libc::pid_t> = Vec::new();
        for task in std::fs::read_dir("/proc/self/task").ok()? {
            threads.push(task.ok()?.file_name().to_str()?.parse().ok()?);
        }
        threads.retain(|thread| *thread != own);
        Some(threads)
    }

    /// Signals a thread; returns false if it has ended, and `None` if the signal cannot be queued.
    fn signal(thread: libc::pid_t, round: u64) -> Option<bool> {
        // SAFETY: the calls take and touch nothing.
        let (process, user) = unsafe { (libc::getpid(), libc::getuid()) };
        let (signal, code) = (number(), libc::SI_QUEUE);
        let info = Queued { signal, error: 0, code, padding: 0, process, user, round, rest: [0; 96] };
        let info = std::ptr::from_ref(&info);
        // SAFETY: the call copies `info`; all threads of the process handle the signal.
        if unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) } == 0 {
            return Some(true);
        }
        (std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)).then_some(false)
    }
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
#[path = "drain_tests.rs"]
mod tests;
