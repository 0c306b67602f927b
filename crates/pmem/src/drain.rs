//! Draining the buffers of all processors at once.

use duramen_sync::OnceLock;

use crate::region::Region;

/// What was done so that every processor drained its buffers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drained {
    /// `membarrier(2)`: an interrupt on every processor that runs a thread of this process.
    Membarrier,
    /// The kernel has no `membarrier(2)`; nothing was done.
    Unsupported,
}

const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Makes durable what any thread of this process has streamed or flushed to `region` before the call: every processor that
/// runs one executes a full barrier, and the others have done so when they switched to something else. Takes some ten
/// microseconds, and costs the interrupted threads one or two.
///
/// After Wang and Johnson, *Scalable Logging through Emerging Non-Volatile Memory* (PVLDB 7(10), 2014), section 4.1, who send
/// signals to the same end.
pub fn drain_processors(region: &Region) -> Drained {
    if let Some(recorder) = region.recorder() {
        recorder.drain();
        return Drained::Membarrier;
    }
    if cfg!(any(loom, machine)) {
        // Simulated threads share a processor, whose buffers the caller's fence drains.
        region.fence();
        return Drained::Membarrier;
    }
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    if *REGISTERED.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED)) && membarrier(PRIVATE_EXPEDITED) {
        Drained::Membarrier
    } else {
        Drained::Unsupported
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
