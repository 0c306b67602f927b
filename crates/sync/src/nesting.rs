//! How deeply the calling thread is nested in a kind of section that it may enter again.
//!
//! There is one depth for each thread (on the simulated machine: for each simulated thread), and
//! one user of it in the program: the sections in which a database changes pages.

#[cfg(not(duramen_loom))]
mod depth {
    use std::cell::Cell;

    thread_local! {
        static DEPTH: Cell<u32> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn change<R>(change: impl FnOnce(&mut u32) -> R) -> R {
        // Simulated threads share one thread of the system. The count ends with the run, also if
        // the thread is in a section then.
        #[cfg(duramen_machine)]
        if duramen_machine::is_simulated() {
            return duramen_machine::threads::with_nesting(change);
        }
        DEPTH.with(|own| {
            let mut depth = own.get();
            let result = change(&mut depth);
            own.set(depth);
            result
        })
    }
}

/// The threads of a model share one thread of the system, so each has an entry by its number.
#[cfg(duramen_loom)]
mod depth {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use crate::imp::thread;

    thread_local! {
        static DEPTHS: RefCell<BTreeMap<u64, u32>> = const { RefCell::new(BTreeMap::new()) };
    }

    pub(super) fn change<R>(change: impl FnOnce(&mut u32) -> R) -> R {
        let thread = thread::id();
        DEPTHS.with_borrow_mut(|depths| {
            let mut depth = depths.remove(&thread).unwrap_or(0);
            let result = change(&mut depth);
            if depth > 0 {
                depths.insert(thread, depth);
            }
            result
        })
    }
}

/// Goes one level deeper; returns the depth before.
#[inline]
pub fn deeper() -> u32 {
    depth::change(|depth| {
        *depth += 1;
        *depth - 1
    })
}

/// Goes back one level; returns the depth after.
#[inline]
pub fn back() -> u32 {
    depth::change(|depth| {
        *depth -= 1;
        *depth
    })
}

/// Returns the depth of the calling thread.
#[inline]
pub fn depth() -> u32 {
    depth::change(|depth| *depth)
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_depth() {
        assert_eq!((deeper(), deeper(), depth()), (0, 1, 2));
        std::thread::spawn(|| assert_eq!(depth(), 0)).join().unwrap();
        assert_eq!((back(), back(), depth()), (1, 0, 0));
    }
}
