//! Random numbers for spreading threads over places, and numbers that tell threads apart.

use std::cell::Cell;

/// A cheap random number, from a sequence of the calling thread's own.
#[inline]
pub fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    STATE.with(|state| {
        let mut x = state.get();
        if x == 0 {
            // The address of a thread-local variable tells threads apart.
            x = std::ptr::from_ref(state) as u64 | 1;
        }
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        state.set(x);
        x
    })
}

/// A number that no other thread of the process has at the same time: the address of a variable of the thread's own.
#[cfg(not(loom))]
#[inline]
pub fn id() -> u64 {
    thread_local! {
        static OWN: Cell<u8> = const { Cell::new(0) };
    }
    OWN.with(|own| std::ptr::from_ref(own) as u64)
}
