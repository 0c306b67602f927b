//! Planted bugs: deliberate defects that the suites switch on, one at a time, to prove that they
//! would notice. Those of durability are for the crash suites, those of concurrency for the
//! simulated machine, which tries interleavings.
//!
//! They are in builds of their own, made with `RUSTFLAGS="--cfg duramen_planted"`. A place in the
//! engine asks [`planted!`](crate::planted!); in every other build the answer is the constant
//! `false`, and the defect is not in the program at all. The switch is global to the process: a
//! suite that plants a bug runs alone.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! bugs {
    (
        durability { $($(#[$durability_doc:meta])* $durability:ident,)* }
        concurrency { $($(#[$concurrency_doc:meta])* $concurrency:ident,)* }
        memory { $($(#[$memory_doc:meta])* $memory:ident,)* }
        archive { $($(#[$archive_doc:meta])* $archive:ident,)* }
        files { $($(#[$files_doc:meta])* $files:ident,)* }
    ) => {
        /// The defects that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug {
            $($(#[$durability_doc])* $durability,)*
            $($(#[$concurrency_doc])* $concurrency,)*
            $($(#[$memory_doc])* $memory,)*
            $($(#[$archive_doc])* $archive,)*
            $($(#[$files_doc])* $files,)*
        }

        impl Bug {
            /// Every defect.
            pub const ALL: &'static [Bug] = &[
                $(Bug::$durability,)*
                $(Bug::$concurrency,)*
                $(Bug::$memory,)*
                $(Bug::$archive,)*
                $(Bug::$files,)*
            ];
            /// Those that show when the power goes off, data is damaged, or transactions meet in
            /// any way.
            pub const DURABILITY: &'static [Bug] = &[$(Bug::$durability,)*];
            /// Those that show in some interleavings of threads only.
            pub const CONCURRENCY: &'static [Bug] = &[$(Bug::$concurrency,)*];
            /// Those that show when the power goes off while several threads share a ring in
            /// persistent memory.
            pub const MEMORY: &'static [Bug] = &[$(Bug::$memory,)*];
            /// Those that show when a database is restored from a backup and an archive.
            pub const ARCHIVE: &'static [Bug] = &[$(Bug::$archive,)*];
            /// Those that show when files, rings or pages are older copies, or another database's.
            pub const FILES: &'static [Bug] = &[$(Bug::$files,)*];
        }
    };
}

bugs! {
    durability {
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
        /// What is inserted into a ring in persistent memory is released before it is durable
        /// there.
        RingFenceDropped,
        /// The frees that a commit promised are forgotten at recovery.
        ForgetDeferredFrees,
        /// With several logs, recovery keeps what one log has, though another has lost what it
        /// depends on.
        HoleKept,
        /// With several logs, a commit is acknowledged when its own log is hardened.
        OwnLogHardenedOnly,
        /// With several logs, the GSN of a record need not be higher than that of the page it
        /// changes.
        PageTimeIgnored,
        /// In a database that was opened early, a page is read without the changes that it still
        /// lacks.
        PageNotRedoneOnTouch,
        /// A checkpoint does not list the pages that recovery has not redone yet.
        CheckpointForgetsUnfinished,
    }
    concurrency {
        /// A flush looks for those who wait for room before it moves the durable position, not
        /// after.
        RoomFenceDropped,
        /// Space of the log buffer is released without waiting for what is before it.
        ReleaseOutOfOrder,
        /// A note of an early release is written over another one.
        NoteOverwritten,
        /// A slot of the consolidation array is used again while its group still fills in.
        SlotReusedEarly,
        /// Nobody releases what was left to others: neither who releases the space before it, nor a
        /// flush.
        DelegatedReleaseForgotten,
        /// A link says that a record is there before it is.
        LinkedBeforeFilled,
        /// The daemon is not woken for what has become due.
        DaemonNotRung,
        /// The end of a flush does not collect the requests that were posted meanwhile.
        LeftUnseen,
        /// A task queues for a position without looking whether it has become durable meanwhile.
        QueuedUnseen,
        /// The notifier is not woken when a flush has news for it.
        TellerNotRung,
        /// Early lock release comes before the commit record is in the log.
        LocksReleasedBeforeCommit,
        /// Who only reads is acknowledged before what it has seen is hardened.
        ReaderAcknowledgedEarly,
        /// An abort by choice is acknowledged before what its transaction has seen is hardened.
        AbortAcknowledgedEarly,
        /// A lock that is released early does not tell the next holder what that one depends on.
        EarlyReleaseNotTold,
        /// Of several waiters that are granted a lock together, one is not woken.
        HandOffLost,
        /// The victim of a deadlock, whose wait somebody else has ended, is not woken.
        VictimNotWoken,
        /// A request that is withdrawn does not grant those behind it.
        WaiterForgotten,
        /// An inherited lock in use is not marked when somebody waits for it.
        InheritedLockKept,
        /// A wait is published after the search for deadlocks, not before.
        WaitPublishedLate,
        /// A scan does not look whether its range has changed before it was locked.
        GapTrustedUnseen,
        /// Optimistic reads are not validated.
        ReadNotValidated,
        /// A frame gets another page without a new version of its latch.
        FrameReusedUnseen,
        /// A page is taken for clean while a thread that is about to change it holds its latch.
        CleanedUnderWriter,
        /// In a database that was opened early, losers do not hold locks on what they have changed.
        LoserUnlocked,
        /// A descent does not look whether the parent was split before it reached the child.
        SplitNotSeen,
        /// Who goes to sleep at a latch does not look whether it was released meanwhile.
        LatchWakeLost,
    }
    memory {
        /// A commit is acknowledged when its own thread has fenced, whatever others have not.
        OwnFenceOnly,
        /// Threads do not say that they have inserted what is not durable yet.
        DirtyBitIgnored,
        /// Who waits for a straggler goes on without draining its processor.
        StragglerSkipped,
    }
    archive {
        /// A copy of a segment gets its name in the archive before it is durable.
        ArchiveRenamedUnsynced,
        /// Segments are recycled that are not in the archive yet.
        RecycledUnarchived,
        /// With several logs, a segment is archived that recovery may cut off.
        ArchivedIncomplete,
        /// A backup has the log up to the checkpoint before it only.
        BackupForgetsLog,
        /// A backup keeps pages that were read while they were written.
        BackupKeepsTornPages,
    }
    files {
        /// Opening takes files for those of the database, whatever their generation.
        GenerationIgnored,
        /// Opening writes all pages back that it finds in the double-write area, whatever that is.
        StaleAreaPutBack,
        /// A page is taken that is older than what is known to be on disk.
        VersionsNotCompared,
        /// A page is taken whatever its version is, and a descent enters it whatever its fences
        /// are.
        FencesNotCompared,
    }
}

/// Whether this build has the defects in it.
pub const BUILT_IN: bool = cfg!(duramen_planted);

/// A bit for each bug.
static PLANTED: AtomicU64 = AtomicU64::new(0);

/// Whether the named [`Bug`](crate::planted::Bug) is planted, as in `planted!(SkipLogSync)`: the constant `false` but in
/// builds with `--cfg duramen_planted`.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_on($crate::planted::Bug::$bug)
    };
}

/// What [`planted!`](crate::planted!) stands for.
#[doc(hidden)]
#[inline(always)]
pub fn is_on(bug: Bug) -> bool {
    BUILT_IN && PLANTED.load(Ordering::Relaxed) & (1 << bug as u64) != 0
}

/// Plants `bug` until the returned guard is dropped.
///
/// # Panics
/// In a build that has no planted bugs.
#[must_use]
pub fn plant(bug: Bug) -> Planted {
    if !BUILT_IN {
        panic!("this build has no planted bugs: make one with RUSTFLAGS=\"--cfg duramen_planted\"");
    }
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

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn bugs_are_in_builds_of_their_own_only() {
        assert!(!planted!(SkipRedo));
        let planted = catch_unwind(|| plant(Bug::SkipRedo));
        assert_eq!(planted.is_ok(), cfg!(duramen_planted));
        assert_eq!(planted!(SkipRedo), cfg!(duramen_planted));
        assert!(!planted!(SkipUndo));
        drop(planted);
        assert!(!planted!(SkipRedo));
    }
}
