//! Traces which pages threads visit and which cache lines of them they touch, and can make each
//! visit slower.
//!
//! Only the *trace* build (`--cfg duramen_trace`) does so; in every other build the calls are
//! empty. A thread visits a page when it latches the page or begins to read it optimistically. The
//! reads that follow belong to the visit in whose frame they lie, if it is among the latest few of
//! the thread. A page that is first read and then latched for a change is visited once.
//!
//! This is for experiments that need to know how a database touches its pages (Pelley et al.,
//! *Storage Management in the NVRAM Era*, PVLDB 7(2), 2013, section 5, used PIN).

#[cfg(not(duramen_trace))]
pub use empty::{changed, read, visit};
#[cfg(duramen_trace)]
pub use recording::{changed, delay_visits, read, record, take, visit};

/// A visit of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// The page's number.
    pub page: u64,
    /// The type in the page's header.
    pub kind: u8,
    /// The lines of 64 bytes that were read or changed, a bit for each.
    pub lines: u128,
}

#[cfg(not(duramen_trace))]
mod empty {
    /// States that the caller visits the page with this number, whose frame is at `frame`.
    #[inline(always)]
    pub fn visit(_page: u64, _frame: *const u8) {}

    /// States that the caller reads the `len` bytes at `data`, which may be those of a page.
    #[inline(always)]
    pub fn read(_data: *const u8, _len: usize) {}

    /// States that the caller has changed these lines of the page whose frame is at `frame`.
    #[inline(always)]
    pub fn changed(_frame: *const u8, _lines: u128) {}
}

#[cfg(duramen_trace)]
mod recording {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::time::Duration;

    use super::Visit;
    use crate::atomic::{AtomicBool, AtomicU64, Ordering};
    use crate::clock::Ticks;
    use crate::{Mutex, OnceLock};

    const LINE: usize = 64;
    const PAGE: usize = 128 * LINE;
    /// Where a page's header has its type.
    const KIND: usize = 4;
    /// Visits of a thread that are still open to reads: a parent and its child, and some more.
    const OPEN: usize = 4;

    static RECORDING: AtomicBool = AtomicBool::new(false);
    static DELAY: AtomicU64 = AtomicU64::new(0);
    static DONE: Mutex<Vec<Visit>> = Mutex::new(Vec::new());

    thread_local! {
        /// The latest visits with the addresses of their frames, oldest first.
        static LATEST: RefCell<VecDeque<(usize, Visit)>> = const { RefCell::new(VecDeque::new()) };
    }

    fn clock() -> &'static Ticks {
        static CLOCK: OnceLock<Ticks> = OnceLock::new();
        CLOCK.get_or_init(Ticks::calibrated)
    }

    /// Begins or ends the recording of visits.
    pub fn record(is_on: bool) {
        RECORDING.store(is_on, Ordering::SeqCst);
    }

    /// Returns the visits recorded since the last call, those of one thread in order. The latest
    /// few of each thread come with a later call.
    pub fn take() -> Vec<Visit> {
        std::mem::take(&mut *DONE.lock())
    }

    /// Makes each visit from now on take so much longer, in nanoseconds.
    pub fn delay_visits(delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        DELAY.store(clock().of_nanos(nanos), Ordering::SeqCst);
    }

    /// States that the caller visits the page with this number, whose frame is at `frame`.
    pub fn visit(page: u64, frame: *const u8) {
        let delay = DELAY.load(Ordering::Relaxed);
        let is_recording = RECORDING.load(Ordering::Relaxed);
        if delay == 0 && !is_recording {
            return;
        }
        let is_new = LATEST.with_borrow_mut(|latest| {
            if latest.iter().any(|(address, visit)| *address == frame as usize && visit.page == page) {
                return false;
            }
            // SAFETY: the caller's frame is mapped as long as its pool; a racing load returns some
            // byte.
            let kind = unsafe { frame.add(KIND).read_volatile() };
            latest.push_back((frame as usize, Visit { page, kind, lines: 0 }));
            if latest.len() > OPEN {
                let oldest = latest.pop_front().expect("it is not empty");
                if is_recording {
                    DONE.lock().push(oldest.1);
                }
            }
            true
        });
        if is_new && delay > 0 {
            clock().wait_until(clock().now() + delay);
        }
    }

    /// States that the caller reads the `len` bytes at `data`, which may be those of a page.
    pub fn read(data: *const u8, len: usize) {
        if len > 0 && RECORDING.load(Ordering::Relaxed) {
            let (first, last) = (data as usize, data as usize + len - 1);
            with_visit(first, |start, visit| {
                let line = |at: usize| ((at - start) / LINE).min(PAGE / LINE - 1);
                (line(first)..=line(last)).for_each(|line| visit.lines |= 1 << line);
            });
        }
    }

    /// States that the caller has changed these lines of the page whose frame is at `frame`.
    pub fn changed(frame: *const u8, lines: u128) {
        if RECORDING.load(Ordering::Relaxed) {
            with_visit(frame as usize, |_, visit| {
                visit.lines |= lines;
                // A page that was made during the visit had no type before.
                // SAFETY: as in `visit`.
                visit.kind = unsafe { frame.add(KIND).read_volatile() };
            });
        }
    }

    /// Calls `note` with the visit whose frame the address lies in, if there is one.
    fn with_visit(address: usize, note: impl FnOnce(usize, &mut Visit)) {
        LATEST.with_borrow_mut(|latest| {
            let found = latest.iter_mut().rev().find(|(start, _)| (*start..*start + PAGE).contains(&address));
            if let Some((start, visit)) = found {
                note(*start, visit);
            }
        });
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn reads_belong_to_the_visit_of_their_frame() {
            let frames = vec![2_u8; 2 * PAGE];
            let frame = |number: usize| frames[number * PAGE..].as_ptr();
            record(true);
            visit(7, frame(0));
            visit(8, frame(1));
            read(frame(0).wrapping_add(LINE - 1), 2);
            read(frame(1).wrapping_add(PAGE - 8), 8);
            read([0_u8; 8].as_ptr(), 8);
            changed(frame(1), 1 << 5);
            visit(7, frame(0));
            for page in 10..14 {
                visit(page, frame(0));
            }
            record(false);
            let expected =
                [Visit { page: 7, kind: 2, lines: 0b11 }, Visit { page: 8, kind: 2, lines: 1 << 127 | 1 << 5 }];
            assert_eq!(take(), expected);
            delay_visits(Duration::from_millis(2));
            let begin = crate::clock::Instant::now();
            visit(99, frame(1));
            visit(99, frame(1));
            delay_visits(Duration::ZERO);
            let took = begin.elapsed();
            assert!(took >= Duration::from_micros(1_900), "{took:?}");
        }
    }
}
