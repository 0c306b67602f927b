//! Planted bugs: deliberate defects that the crash suites switch on, one at a time, to prove that they would notice.
//!
//! A place in the engine asks [`is_on`]; without the feature `planted-bugs` that is the constant `false` and the defect
//! is not in the program at all. The switch is global to the process: a suite that plants a bug runs alone.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The defects that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug { $($(#[$doc])* $name,)* }

        impl Bug {
            /// Every defect.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)*];
        }
    };
}

bugs! {
    /// The log daemon writes but does not sync.
    SkipLogSync,
    /// A commit is acknowledged before its log record is hardened.
    AcknowledgeBeforeFlush,
    /// Log records are accepted by recovery without checking their checksum.
    IgnoreLogChecksum,
    /// Pages are accepted without checking their checksum.
    IgnorePageChecksum,
    /// A rollback writes no compensation records.
    ForgetCompensation,
    /// Dirty pages are written before the log that describes them is hardened.
    SkipWalRule,
    /// Recovery does not undo losers.
    SkipUndo,
    /// Recovery does not redo.
    SkipRedo,
    /// Redo ignores the page's GSN and applies every record again.
    IgnorePageGsn,
    /// A checkpoint claims that every page is clean.
    CheckpointForgetsDirtyPages,
    /// A checkpoint does not list active transactions.
    CheckpointForgetsTransactions,
    /// The double-write area is not used before pages are written in place.
    SkipDoubleWrite,
    /// Pages are taken for clean before the data file is synced.
    SkipDataSync,
    /// Log segments are recycled that recovery would still need.
    RecycleTooEarly,
    /// Insertions do not check the gap lock of the next key.
    SkipGapLock,
    /// Point reads take no lock.
    SkipReadLock,
    /// New files are not made durable in their directory.
    SkipDirectorySync,
    /// The frees that a commit promised are forgotten at recovery.
    ForgetDeferredFrees,
}

#[cfg(feature = "planted-bugs")]
mod switch {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Bug;

    static PLANTED: AtomicU64 = AtomicU64::new(0);

    /// Whether `bug` is planted.
    #[inline]
    pub fn is_on(bug: Bug) -> bool {
        PLANTED.load(Ordering::Relaxed) & (1 << bug as u64) != 0
    }

    /// Plants `bug` until the returned guard is dropped.
    #[must_use]
    pub fn plant(bug: Bug) -> Planted {
        PLANTED.fetch_or(1 << bug as u64, Ordering::Relaxed);
        Planted(bug)
    }

    /// Removes its bug when dropped.
    #[derive(Debug)]
    pub struct Planted(Bug);

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.fetch_and(!(1 << self.0 as u64), Ordering::Relaxed);
        }
    }
}

#[cfg(feature = "planted-bugs")]
pub use switch::{Planted, is_on, plant};

/// Whether `bug` is planted: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn is_on(_bug: Bug) -> bool {
    false
}
