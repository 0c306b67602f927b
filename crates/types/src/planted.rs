//! Planted bugs: deliberate defects that a suite switches on, one at a time, to prove that it
//! notices them. The crash suites look for defects of durability, and the simulated machine, which
//! tries interleavings, for defects of concurrency.
//!
//! They are in builds of their own, made with `RUSTFLAGS="--cfg duramen_planted"`. The code checks
//! [`planted!`](crate::planted!). In every other build this is the constant `false`, and the defect
//! is not in the program at all. The switch is global to the process: a suite that plants a bug
//! runs alone.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! bugs {
    (
        durability { $($(#[$durability_doc:meta])* $durability:ident,)* }
        concurrency { $($(#[$concurrency_doc:meta])* $concurrency:ident,)* }
        memory { $($(#[$memory_doc:meta])* $memory:ident,)* }
        archive { $($(#[$archive_doc:meta])* $archive:ident,)* }
        files { $($(#[$files_doc:meta])* $files:ident,)* }
        tier { $($(#[$tier_doc:meta])* $tier:ident,)* }
        slots { $($(#[$slots_doc:meta])* $slots:ident,)* }
        schemes { $($(#[$schemes_doc:meta])* $schemes:ident,)* }
        pcm { $($(#[$pcm_doc:meta])* $pcm:ident,)* }
        leaving { $($(#[$leaving_doc:meta])* $leaving:ident,)* }
        regions { $($(#[$regions_doc:meta])* $regions:ident,)* }
        snapshots { $($(#[$snapshots_doc:meta])* $snapshots:ident,)* }
    ) => {
        /// The defects that can be planted.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Bug {
            $($(#[$durability_doc])* $durability,)*
            $($(#[$concurrency_doc])* $concurrency,)*
            $($(#[$memory_doc])* $memory,)*
            $($(#[$archive_doc])* $archive,)*
            $($(#[$files_doc])* $files,)*
            $($(#[$tier_doc])* $tier,)*
            $($(#[$slots_doc])* $slots,)*
            $($(#[$schemes_doc])* $schemes,)*
            $($(#[$pcm_doc])* $pcm,)*
            $($(#[$leaving_doc])* $leaving,)*
            $($(#[$regions_doc])* $regions,)*
            $($(#[$snapshots_doc])* $snapshots,)*
        }

        impl Bug {
            /// Every defect.
            pub const ALL: &'static [Bug] = &[
                $(Bug::$durability,)*
                $(Bug::$concurrency,)*
                $(Bug::$memory,)*
                $(Bug::$archive,)*
                $(Bug::$files,)*
                $(Bug::$tier,)*
                $(Bug::$slots,)*
                $(Bug::$schemes,)*
                $(Bug::$pcm,)*
                $(Bug::$leaving,)*
                $(Bug::$regions,)*
                $(Bug::$snapshots,)*
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
            /// Those that show when the power goes off and pages are in a tier.
            pub const TIER: &'static [Bug] = &[$(Bug::$tier,)*];
            /// Those that show when slots of a tier are reused just before the power goes off.
            pub const SLOTS: &'static [Bug] = &[$(Bug::$slots,)*];
            /// Those that show when pages are kept in persistent memory.
            pub const SCHEMES: &'static [Bug] = &[$(Bug::$schemes,)*];
            /// Those that show when changed pages are the log.
            pub const PCM: &'static [Bug] = &[$(Bug::$pcm,)*];
            /// Those that show when pages leave persistent memory for the data file just before the
            /// power goes off.
            pub const LEAVING: &'static [Bug] = &[$(Bug::$leaving,)*];
            /// Those that show in a heap with atomic regions.
            pub const REGIONS: &'static [Bug] = &[$(Bug::$regions,)*];
            /// Those that show when snapshots are read while transactions write.
            pub const SNAPSHOTS: &'static [Bug] = &[$(Bug::$snapshots,)*];
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
        /// A page that was once formatted anew never gets a copy in the double-write area again.
        WrittenPageTakenForNew,
        /// The copies in the double-write area lack the lines that changed, except for the header.
        ChangedLinesForgotten,
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
        /// The header of a log segment states a size that its file does not have durably.
        GrowthUnsynced,
        /// What is inserted into a ring in persistent memory is released before it is durable
        /// there.
        RingFenceDropped,
        /// Recovery forgets the deferred frees of a commit.
        ForgetDeferredFrees,
        /// With several logs, recovery keeps what one log has, though another has lost what it
        /// depends on.
        HoleKept,
        /// With several logs, a commit is acknowledged when its own log is hardened.
        OwnLogHardenedOnly,
        /// With several logs, the thread that ends an epoch does not advance the clocks.
        EpochNotEnded,
        /// With several logs, the GSN of a record need not be higher than that of the page it
        /// changes.
        PageTimeIgnored,
        /// Under instant recovery, a page is read without the changes that it still lacks.
        PageNotRedoneOnFetch,
        /// A checkpoint does not list the pages that recovery has not redone yet.
        CheckpointForgetsUnredone,
    }
    concurrency {
        /// A flush checks for threads that wait for space before it moves the durable position, not
        /// after.
        SpaceFenceDropped,
        /// Space of the log buffer is released without waiting for what is before it.
        ReleaseOutOfOrder,
        /// An early-release entry is written over another one.
        EntryOverwritten,
        /// A slot of the consolidation array is reused while its group is still filling in records.
        SlotReusedEarly,
        /// An early release has no effect: neither the thread that releases the space before it nor
        /// a flush completes it.
        DelegatedReleaseForgotten,
        /// A link says that a record is there before it is.
        LinkedBeforeFilled,
        /// The daemon is not woken for what has become due.
        DaemonNotWoken,
        /// The end of a flush does not collect the requests that were posted meanwhile.
        PendingUnseen,
        /// A task queues for a position without checking whether it has become durable meanwhile.
        QueuedUnseen,
        /// The notifier is not woken when a flush or a round has news for it.
        NotifierNotWoken,
        /// Early lock release comes before the commit record is in the log.
        LocksReleasedBeforeCommit,
        /// A transaction that only reads is acknowledged before what it has seen is hardened.
        ReaderAcknowledgedEarly,
        /// An abort by choice is acknowledged before what its transaction has seen is hardened.
        AbortAcknowledgedEarly,
        /// A lock that is released early does not pass on to its next holder what that holder
        /// depends on.
        EarlyReleaseNotTold,
        /// Of several waiters that are granted a lock together, one is not woken.
        HandOffLost,
        /// The victim of a deadlock, whose wait another thread has ended, is not woken.
        VictimNotWoken,
        /// A request that is withdrawn does not grant those behind it.
        WaiterForgotten,
        /// An inherited lock in use is not marked when a transaction waits for it.
        InheritedLockKept,
        /// A wait is published after the search for deadlocks, not before.
        WaitPublishedLate,
        /// A scan does not check whether its range changed before it was locked.
        GapTrustedUnseen,
        /// Optimistic reads are not validated.
        ReadNotValidated,
        /// A frame gets another page without a new version of its latch.
        FrameReusedUnseen,
        /// A page is taken for clean while a thread that is about to change it holds its latch.
        CleanedUnderWriter,
        /// Under instant recovery, losers do not hold locks on what they have changed.
        LoserUnlocked,
        /// A descent does not check whether the parent was split before it reached the child.
        SplitNotSeen,
        /// A thread parks at a latch without checking whether the latch was released meanwhile.
        LatchWakeLost,
    }
    memory {
        /// A commit is acknowledged when its own thread has fenced, whether or not other threads
        /// have.
        OwnFenceOnly,
        /// Threads do not publish that they have inserted records that are not durable yet.
        DirtyBitIgnored,
        /// A thread that waits for a straggler continues without draining its processor.
        StragglerSkipped,
    }
    archive {
        /// A copy of a segment gets its name in the archive before it is durable.
        ArchiveRenamedUnsynced,
        /// Segments are recycled that are not in the archive yet.
        RecycledUnarchived,
        /// With several logs, a segment is archived that recovery may cut off.
        ArchivedIncomplete,
        /// A backup has the log only up to the checkpoint before it.
        BackupForgetsLog,
        /// A backup keeps pages that were read while they were written.
        BackupKeepsTornPages,
    }
    files {
        /// Opening accepts files of any generation.
        GenerationIgnored,
        /// Opening writes back all pages in the double-write area, whichever area it is.
        StaleAreaPutBack,
        /// A page is accepted that is older than the version known to be on disk.
        VersionsNotCompared,
        /// A page is accepted whatever its version, and a descent enters it whatever its fences.
        FencesNotCompared,
    }
    tier {
        /// Of several versions of a page in the tier, the oldest counts, however old it is.
        OlderVersionWins,
        /// Pages count as durable before the tier is synced.
        TierUnsynced,
    }
    slots {
        /// A page leaves the tier, and older versions of it stay there.
        NewestFreedFirst,
    }
    schemes {
        /// A change within a value does not mark the lines that it changes.
        LineForgotten,
        /// A change reaches the heap before its record is durable.
        HomeBeforeJournal,
        /// Changed lines are flushed to the heap, and the page's latch is released before a fence.
        HomeUnfenced,
        /// A commit is acknowledged before a fence follows its head word.
        FreedUnfenced,
        /// Recovery stores the lines of a record over later changes of the page.
        HomeTimeIgnored,
        /// Each use of a journal has the same lease.
        LeaseReused,
        /// A page log becomes valid before the old lines in it are durable.
        PageLogUnfenced,
        /// Recovery leaves an undo entry whose change was not made.
        EntryLeft,
        /// A batch ends while actions on pages are under way.
        SectionIgnored,
        /// A commit reads the number of its batch, and ends its transaction when that batch may be
        /// over.
        CommitOutsideSection,
        /// A batch does not list the transactions that are under way at its end.
        CarriedForgotten,
        /// What a carried transaction has undone is overwritten before the batch that knows of it
        /// is durable.
        CarriedOverwritten,
        /// The commits of a batch are acknowledged before its record is durable.
        BatchAcknowledgedEarly,
        /// The record of a batch overwrites that of the batch before.
        HalfReusedEarly,
        /// A page whose changes wait for a batch is dropped from its frame.
        StagedPageDropped,
    }
    pcm {
        /// The number of a transaction is listed after pages with its changes are stored.
        XidListedLate,
        /// A transaction that commits is taken off the list before its pages are stored.
        XidReplacedEarly,
        /// A transaction that is rolled back is taken off the list before its pages are stored.
        AbortUnlistedFirst,
        /// A page is stored without what its keys were before transactions under way.
        CoverForgotten,
        /// Pages count as stored before they are durable.
        StolenUnfenced,
        /// Recovery does not take back the allocations of losers.
        AllocationKept,
        /// Tuples count as stored before they are durable.
        TupleUnfenced,
        /// Of two tuples of a key the older one counts.
        OlderTupleWins,
        /// Tuples are stored although their page has no space for them.
        TupleSpaceUnchecked,
    }
    leaving {
        /// The slot of a page is freed before the data file is synced.
        SlotFreedUnsynced,
    }
    regions {
        /// A line is changed before its undo record is durable.
        HomeBeforeUndo,
        /// No fence follows undo records.
        UndoUnfenced,
        /// An undo record is accepted whichever update of its slot wrote it.
        TagUnseeded,
        /// No fence follows the changed lines before the update ends.
        HomesUnfenced,
        /// An update ends before its lines are durable.
        EndBeforeHomes,
        /// A commit is acknowledged before a fence follows the end of its update.
        EndUnfenced,
        /// Bitmaps change without being logged.
        BitmapNotLogged,
        /// Space that a transaction frees is given out before its commit.
        FreedSpaceReused,
        /// Recovery ends an update before it has undone it.
        EndedBeforeUndone,
        /// Lines have any number of writers.
        LinesNotOwned,
    }
    snapshots {
        /// Readers do not find the versions of a transaction before it commits.
        VersionPushedLate,
        /// Opening a snapshot does not publish the versions that running transactions keep.
        KeptVersionsForgotten,
        /// A commit is published before its record is in the log.
        CommitPublishedEarly,
        /// A reader does not check whether the leaf changed while it looked for versions.
        LeafNotRevalidated,
        /// A ghost is purged although a snapshot needs its slot.
        GhostPurgedUnderSnapshot,
        /// An overflow chain is freed although a snapshot needs it.
        ChainFreedUnderSnapshot,
        /// A snapshot shows commits that are not hardened.
        HorizonBeyondDurable,
        /// Pruning forgets the open snapshots.
        PrunedTooMuch,
        /// A deleted record that is inserted again loses the value that its run left in the leaf.
        RunValueLost,
    }
}

/// Whether this build has the defects in it.
pub const BUILT_IN: bool = cfg!(duramen_planted);

/// A bit for each bug.
static PLANTED: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

const _: () = assert!(Bug::ALL.len() <= 128, "each bug has a bit");

/// Whether the named [`Bug`](crate::planted::Bug) is planted, as in `planted!(SkipLogSync)`: the
/// constant `false` except in builds with `--cfg duramen_planted`.
#[macro_export]
macro_rules! planted {
    ($bug:ident) => {
        $crate::planted::is_on($crate::planted::Bug::$bug)
    };
}

/// Returns what [`planted!`](crate::planted!) stands for.
#[doc(hidden)]
#[inline(always)]
pub fn is_on(bug: Bug) -> bool {
    BUILT_IN && word_of(bug).load(Ordering::Relaxed) & bit_of(bug) != 0
}

fn word_of(bug: Bug) -> &'static AtomicU64 {
    &PLANTED[bug as usize / 64]
}

fn bit_of(bug: Bug) -> u64 {
    1 << (bug as u64 % 64)
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
    word_of(bug).fetch_or(bit_of(bug), Ordering::Relaxed);
    Planted(bug)
}

/// Removes its bug when dropped.
#[derive(Debug)]
pub struct Planted(Bug);

impl Drop for Planted {
    fn drop(&mut self) {
        word_of(self.0).fetch_and(!bit_of(self.0), Ordering::Relaxed);
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
