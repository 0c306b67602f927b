//! Coverage probes: the branches that are rarely taken. Simulated runs count how often each was
//! reached; in every other build [`reach`] is empty.

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The rare branches.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Probe { $($(#[$doc])* $name,)* }

        impl Probe {
            /// All of them.
            pub const ALL: &'static [Probe] = &[$(Probe::$name,)*];

            /// Returns its name.
            pub const fn name(self) -> &'static str {
                match self { $(Probe::$name => stringify!($name),)* }
            }
        }
    };
}

probes! {
    /// Records that were deleted together were in several leaves when they were restored.
    DeletionRestoredInParts,
    /// A deletion of a range locked the table.
    DeletionEscalated,
    /// An insertion found the log buffer full and waited.
    BufferFull,
    /// A reservation was held back because other threads waited for room.
    BackedOff,
    /// A record joined a group of the consolidation array as a member.
    GroupJoined,
    /// No slot of the array's pool was free.
    SlotsExhausted,
    /// The release of a space was delegated to the predecessor.
    ReleaseDelegated,
    /// A space that another thread had delegated was released.
    DelegatedReleased,
    /// An early release left an early-release entry for its space.
    EarlyReleaseEntered,
    /// A release continued over a space with an early-release entry.
    NoteFollowed,
    /// The flusher found a record that was still being filled in at the end of the stable log.
    FlushWithoutProgress,
    /// Processors were drained because a thread delayed the commits of all.
    StragglersDrained,
    /// A waiter flushed by itself.
    FlushedByCommitter,
    /// The bytes that a flush should have covered had not been released when it began.
    FlushCameTooEarly,
    /// A flush waits for a group of committers.
    FlushWaitsForGroup,
    /// The notifier woke a waiting thread.
    NotifierTold,
    /// A log segment was reused.
    SegmentRecycled,
    /// The file of the last log segment grew.
    SegmentGrown,
    /// A batch of pages was written in parts, for which the double-write area had space.
    BatchInParts,
    /// The log was full, and a transaction made room or was refused.
    LogFull,
    /// A lock was handed to a waiting transaction.
    LockHandedOff,
    /// A lock was converted to a stronger mode in the queue.
    LockConverted,
    /// A transaction was the victim of a deadlock.
    DeadlockVictim,
    /// The victim of a deadlock was not the transaction whose request closed the cycle.
    SleepingVictim,
    /// A cycle was gone when it was read again.
    DeadlockDissolved,
    /// A request was withdrawn, and one behind it was granted.
    GrantedByWithdrawal,
    /// An idle agent lost its inherited lock.
    InheritedLockRevoked,
    /// A requested inherited lock was released at the transaction's end.
    InheritedLockGivenBack,
    /// A gap was not the one that had been locked, and the key was searched again.
    GapLockedAgain,
    /// A scan locked its table as a whole.
    ScanEscalated,
    /// A read locked the table: it stepped over too many empty leaves to see them at one moment.
    TableLockedForLeaves,
    /// An insertion waited for the lock on its gap.
    InsertionWaitedForGap,
    /// An optimistic read was invalid and started over.
    OptimisticRestart,
    /// An optimistic read could not be turned into exclusive access.
    UpgradeFailed,
    /// A thread parked at a latch.
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
    /// The writer skipped a page because another thread held its latch.
    WriterSkippedLatched,
    /// A node was split.
    NodeSplit,
    /// The root was pushed down.
    RootPushedDown,
    /// Another thread had already split a node.
    SplitByAnother,
    /// Two nodes were merged.
    NodesMerged,
    /// A merge was given up because other threads were in the way.
    MergeGivenUp,
    /// A ghost was purged.
    GhostPurged,
    /// A ghost stayed because another transaction had a lock on it.
    GhostLocked,
    /// A ghost stayed because a snapshot may need its slot.
    GhostKeptForSnapshot,
    /// A snapshot read a value that the page no longer has.
    OlderVersionRead,
    /// Neighbouring records that were deleted together were published as one.
    RunPublished,
    /// A snapshot read a record that was deleted with others.
    RunRead,
    /// A transaction stored the value of such a record before it changed the leaf.
    RunValueStored,
    /// A snapshot was opened while a transaction kept versions.
    RunningPublished,
    /// A snapshot was opened while a commit whose transaction has ended was not hardened.
    CommittedPublished,
    /// A retired transaction was dropped before snapshots that are older than it.
    RetiredSwept,
    /// A snapshot met a transaction that was inserting its commit record.
    CommitUnsettled,
    /// Versions that no snapshot needs were unlinked from a long chain.
    VersionsPruned,
    /// A snapshot was ended because versions took too much memory.
    SnapshotEnded,
    /// A checkpoint was taken while transactions were active.
    CheckpointUnderLoad,
    /// A transaction that only read waited until the commits that it saw were hardened.
    ReaderWaitedForWriter,
    /// An abort waited until the commits that its transaction saw were hardened.
    AbortWaitedForWriter,
    /// Recovery undid a transaction.
    UndoneInRecovery,
    /// A transaction that a crash had interrupted was undone after the database had been opened.
    UndoneBehindOpening,
    /// Recovery repaired a torn page.
    TornPageRepaired,
    /// Recovery rebuilt a page that could not be read.
    PageRebuilt,
    /// A page was redone when it was read in, or in the background, after the database had been
    /// opened.
    PageRedoneOnFetch,
    /// A checkpoint was taken while pages still had to be redone.
    CheckpointBeforeRedo,
    /// The disk had no room.
    DiskFull,
    /// The power went off in a disk operation.
    PowerCut,
    /// A disk operation failed.
    OperationFailed,
    /// A transfer was shorter than requested.
    ShortTransfer,
    /// A sync failed and dropped the data that it covered.
    SyncFailed,
    /// A disk operation took far longer than usual.
    DeviceHung,
}

/// States that the calling thread takes a rare branch.
#[inline(always)]
pub fn reach(_probe: Probe) {
    #[cfg(duramen_machine)]
    duramen_machine::probe::reach(_probe as usize, _probe.name());
}
