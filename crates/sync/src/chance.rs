//! Random numbers that spread threads over places, and numbers that distinguish threads.

use std::cell::Cell;

/// Returns a cheap random number, from a sequence of the calling thread.
#[inline]
pub fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            // The address of a thread-local variable distinguishes threads.
            x = std::ptr::from_ref(state) as u64 | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x
    })
}

/// Returns a number above zero that no other thread of the process has or has had: the numbers
/// count up.
#[cfg(not(duramen_loom))]
#[inline]
pub fn id() -> u64 {
    thread_local! {
        static OWN: Cell<u64> = const { Cell::new(0) };
    }
    OWN.with(|own| if own.get() == 0 { number(own) } else { own.get() })
}

#[cfg(not(duramen_loom))]
#[cold]
fn number(own: &Cell<u64>) -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};

    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    own.set(NUMBERS.fetch_add(1, Ordering::Relaxed));
    own.get()
}
