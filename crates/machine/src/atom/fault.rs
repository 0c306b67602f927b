//! Faults planted into the model, one in a run: each breaks the promise that a crash leaves whole
//! updates, and must be noticed.

/// A fault of the hardware or of the recovery routine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Data writes are not compared with the record headers.
    WritesNotCompared,
    /// Lines are unlocked when their header is issued, not when it is durable.
    UnlockAtIssue,
    /// A header is issued before the lines of its record are durable.
    HeaderBeforeLines,
    /// A record counts when its header is issued, not when it is durable.
    CountedAtIssue,
    /// A posted entry is acknowledged without its address in the header register being compared.
    AckWithoutLock,
    /// A new bucket is missing from the saved bit vector.
    BucketNotInVector,
    /// The saved current bucket stays the first one.
    BucketNotSaved,
    /// A bucket is left before its last header is durable.
    BucketLeftEarly,
    /// The end of an update does not wait for the flushes before it.
    EndBeforeFlushes,
    /// The next update begins before the controllers have cleared the last one.
    BeginBeforeClears,
    /// The literal commit: all controllers are told to clear, without phases.
    Broadcast,
    /// The log entry is copied after the store.
    CopiedAfterStore,
    /// A read that is logged at the source goes past a queued newer write of the line.
    SourcePastQueue,
    /// The log bit goes with the line when it is written back and comes back with it.
    BitKeptAfterWriteBack,
    /// The log bits stay set at the end of an update.
    BitKeptAcrossEnd,
    /// The log bit comes set with a line from the shared cache.
    BitSetOnSharedFill,
    /// A log entry goes to another controller than its line.
    OtherController,
    /// A flush ends at the shared cache.
    FlushStopsAtShared,
    /// The end of an inner region commits.
    InnerEndCommits,
    /// Two cores share a slot when none is free.
    SlotShared,
    /// Log overflow starts over in the current bucket.
    OverflowWraps,
    /// Recovery undoes the oldest entry first.
    OldestFirst,
    /// Recovery takes seven entries of every record.
    SevenEntries,
    /// Recovery looks at current buckets only.
    CurrentBucketsOnly,
    /// Recovery resets the critical state before what it undid is durable.
    ResetBeforeDurable,
    /// Log writes wait in the queue of data writes.
    OneQueue,
    /// Redo: the commit record is written before the log is durable.
    RedoCommitEarly,
    /// Redo: updates are retired in the wrong order.
    RedoOutOfOrder,
    /// Redo: a dirty line that leaves the shared cache reaches memory.
    RedoVictimWritten,
}

impl Fault {
    /// The faults of undo logging: 26.
    pub const UNDO: [Self; 26] = [
        Self::WritesNotCompared,
        Self::UnlockAtIssue,
        Self::HeaderBeforeLines,
        Self::CountedAtIssue,
        Self::AckWithoutLock,
        Self::BucketNotInVector,
        Self::BucketNotSaved,
        Self::BucketLeftEarly,
        Self::EndBeforeFlushes,
        Self::BeginBeforeClears,
        Self::Broadcast,
        Self::CopiedAfterStore,
        Self::SourcePastQueue,
        Self::BitKeptAfterWriteBack,
        Self::BitKeptAcrossEnd,
        Self::BitSetOnSharedFill,
        Self::OtherController,
        Self::FlushStopsAtShared,
        Self::InnerEndCommits,
        Self::SlotShared,
        Self::OverflowWraps,
        Self::OldestFirst,
        Self::SevenEntries,
        Self::CurrentBucketsOnly,
        Self::ResetBeforeDurable,
        Self::OneQueue,
    ];
    /// The faults of redo logging: 3.
    pub const REDO: [Self; 3] = [Self::RedoCommitEarly, Self::RedoOutOfOrder, Self::RedoVictimWritten];
}
