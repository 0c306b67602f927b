//! Coverage probes: the branches that are rarely taken. Simulated runs count how often each was
//! reached; in every other build [`reach`] is empty.

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The rare branches.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Probe { $($(#[$doc])* $name,)* }

        impl Probe {
            /// Every one.
            pub const ALL: &'static [Probe] = &[$(Probe::$name,)*];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Probe::$name => stringify!($name),)* }
            }
        }
    };
}

probes! {
    /// An insertion found the log buffer full and waited.
    BufferFull,
    /// A reservation was held back because others waited for room.
    BackedOff,
    /// A record joined a group of the consolidation array as a member.
    GroupJoined,
    /// No slot of the array's pool was free.
    SlotsExhausted,
    /// A space was left to its predecessor to release.
    ReleaseDelegated,
    /// A space that another thread had delegated was released.
    DelegatedReleased,
    /// An early release left a note of its space.
    NoteLeft,
    /// A release went on over a noted space.
    NoteFollowed,
    /// The flusher found a record that was still being filled in at the end of the stable log.
    FlushWithoutProgress,
    /// Processors were drained because a thread held up the commits of all.
    StragglersDrained,
    /// A waiter flushed by itself.
    FlushedByCommitter,
    /// What a flush was for had not been released when it began.
    FlushCameTooEarly,
    /// A flush waits for a group of committers.
    FlushWaitsForGroup,
    /// The notifier told somebody.
    NotifierTold,
    /// A log segment was used again.
    SegmentRecycled,
    /// The log was full, and a transaction made room or was refused.
    LogFull,
    /// A lock was handed to who waited for it.
    LockHandedOff,
    /// A lock was converted to a stronger mode in the queue.
    LockConverted,
    /// A transaction was the victim of a deadlock.
    DeadlockVictim,
    /// The victim of a deadlock was another transaction than the one whose request closed it.
    SleepingVictim,
    /// A cycle was gone when it was read again.
    DeadlockDissolved,
    /// A request was withdrawn, and one behind it was granted.
    GrantedByWithdrawal,
    /// An idle agent lost its inherited lock.
    InheritedLockRevoked,
    /// An inherited lock that was wanted was given back at the transaction's end.
    InheritedLockGivenBack,
    /// A gap was not the one that had been locked, and the key was looked up again.
    GapLockedAgain,
    /// An insertion waited for the lock on its gap.
    InsertionWaitedForGap,
    /// An optimistic read was invalid and started over.
    OptimisticRestart,
    /// An optimistic read could not be turned into exclusive access.
    UpgradeFailed,
    /// A thread slept at a latch.
    LatchSlept,
    /// A thread found the frame of its page taken by another page, or loaded by another thread.
    FrameRaceLost,
    /// A page was evicted.
    PageEvicted,
    /// A thread in need of a frame wrote dirty pages.
    EvictorCleaned,
    /// Writing a page had to wait for the log first.
    WalRuleForcedFlush,
    /// A page was changed between its copy and the end of its write.
    ChangedWhileWritten,
    /// The writer left a page out because somebody held it.
    WriterSkippedLatched,
    /// A node was split.
    NodeSplit,
    /// The root was pushed down.
    RootPushedDown,
    /// A node had been split already by another thread.
    SplitByAnother,
    /// Two nodes were merged.
    NodesMerged,
    /// A merge was given up because others were in the way.
    MergeGivenUp,
    /// A ghost was purged.
    GhostPurged,
    /// A checkpoint was taken while transactions were active.
    CheckpointUnderLoad,
    /// A transaction that only read waited for what it saw.
    ReaderWaitedForWriter,
    /// An abort waited for what its transaction saw.
    AbortWaitedForWriter,
    /// Recovery took back a transaction.
    UndoneInRecovery,
    /// A transaction that a crash had interrupted was brought to its end after the database had
    /// been opened.
    UndoneBehindOpening,
    /// Recovery repaired a torn page.
    TornPageRepaired,
    /// Recovery rebuilt a page that could not be read.
    PageRebuilt,
    /// A page was redone when it was read in, or in the background, after the database had been
    /// opened.
    PageRedoneOnTouch,
    /// A checkpoint was taken while pages were still to be redone.
    CheckpointBeforeRedo,
    /// The disk had no room.
    DiskFull,
    /// The power went off in a disk operation.
    PowerCut,
    /// A disk operation failed.
    OperationFailed,
    /// A transfer was shorter than asked for.
    ShortTransfer,
    /// A sync failed and dropped what it was for.
    SyncFailed,
    /// A disk operation took far longer than usual.
    DeviceHung,
}

/// The calling thread takes a rare branch.
#[inline(always)]
pub fn reach(_probe: Probe) {
    #[cfg(duramen_machine)]
    duramen_machine::probe::reach(_probe as usize, _probe.name());
}
