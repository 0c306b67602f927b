//! Several threads that share one piece of work and end with it.

use std::panic::AssertUnwindSafe;

use crate::{Arc, thread};

/// An additional thread does not pay for fewer bytes.
const BYTES_PER_THREAD: u64 = 16 << 20;

/// The largest number of threads if the caller wants no particular number.
const MOST: usize = 8;

/// Returns how many threads should share work on this number of bytes: `wanted`, or else one for
/// each processor (two if there is only one, so that waiting for a device and computing overlap),
/// as far as the bytes justify them.
pub fn size_for(wanted: Option<usize>, bytes: u64) -> usize {
    wanted.unwrap_or_else(|| {
        let worthwhile = usize::try_from(1 + bytes / BYTES_PER_THREAD).unwrap_or(MOST);
        thread::available_parallelism().clamp(2, MOST).min(worthwhile)
    })
}

/// Runs `work` on the calling thread and on `threads - 1` others at the same time; returns what
/// each of them returned, in no particular order. If the system refuses threads, the existing ones
/// do everything: the work must be such that one of them can.
///
/// # Panics
/// If one of them has panicked, after all have ended.
pub fn run<T: Send + 'static>(threads: usize, name: &str, work: impl Fn() -> T + Send + Sync + 'static) -> Vec<T> {
    let work = Arc::new(work);
    let spawn = || {
        let work = Arc::clone(&work);
        thread::spawn(name, move || work()).ok()
    };
    let others: Vec<_> = (1..threads).map_while(|_| spawn()).collect();
    let own = std::panic::catch_unwind(AssertUnwindSafe(|| work()));
    let theirs = others.into_iter().map(|other| other.join());
    let outcomes: Vec<_> = std::iter::once(own).chain(theirs).collect();
    outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
}

#[cfg(all(test, not(any(duramen_loom, duramen_machine))))]
mod tests {
    use super::*;
    use crate::atomic::{AtomicUsize, Ordering};

    #[test]
    fn all_of_them_work() {
        let next = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&next);
        let sums = run(3, "parallel", move || {
            let mut sum = 0;
            loop {
                match taken.fetch_add(1, Ordering::Relaxed) {
                    number @ ..100 => sum += number,
                    _ => return sum,
                }
            }
        });
        assert_eq!((sums.len(), sums.iter().sum::<usize>()), (3, 4950));
        assert_eq!(next.load(Ordering::Relaxed), 103);
        assert_eq!(run(1, "parallel", || 7), [7]);
    }

    #[test]
    fn all_have_ended_when_a_panic_goes_on() {
        let ended = Arc::new(AtomicUsize::new(0));
        let others = Arc::clone(&ended);
        let caller = std::thread::current().id();
        let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
            run(3, "parallel", move || {
                assert!(std::thread::current().id() != caller, "the caller's own part");
                thread::sleep(std::time::Duration::from_millis(50));
                others.fetch_add(1, Ordering::Relaxed);
            })
        }));
        assert!(ran.is_err());
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn small_work_is_done_alone() {
        assert_eq!(size_for(None, 1000), 1);
        assert!((2..=MOST).contains(&size_for(None, u64::MAX)));
        assert_eq!((size_for(Some(5), 0), size_for(Some(1), u64::MAX)), (5, 1));
    }
}
