//! Errors of heaps.

use duramen_pmem::PmemError;

/// Why a heap could not be opened, or a transaction not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The memory could not be opened: it is missing, in use, too small, or less durable than the
    /// options require.
    #[error(transparent)]
    Memory(#[from] PmemError),

    /// The memory holds something that is not a heap.
    #[error(
        "`{location}` holds something that is not a heap; name a heap, a file that does not exist, or one filled with \
         zeros"
    )]
    Foreign {
        /// The heap's location.
        location: String,
    },

    /// The heap has a format that this version does not know.
    #[error("the heap `{location}` has format version {found}; this program knows version {known}")]
    Version {
        /// The heap's location.
        location: String,
        /// The version in the header.
        found: u32,
        /// The version that this program reads and writes.
        known: u32,
    },

    /// The heap is damaged.
    #[error("the heap `{location}` is damaged at byte {offset}: {reason}; restore a copy of the file")]
    Corrupt {
        /// The heap's location.
        location: String,
        /// Where the damage is.
        offset: u64,
        /// What is wrong there.
        reason: String,
    },

    /// The heap would be smaller than its fixed parts.
    #[error("a heap of {bytes} bytes is too small; with this log it needs at least {needed}")]
    TooSmall {
        /// The size that was asked for.
        bytes: u64,
        /// The smallest possible size.
        needed: u64,
    },

    /// An option has an invalid value.
    #[error("option `{option}` of the heap is invalid: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// Which values are valid.
        reason: String,
    },

    /// The root is that of another program, or of another version of the type.
    #[error("the root of the heap `{location}` is not a `{wanted}`; open it with the type that made it")]
    WrongRoot {
        /// The heap's location.
        location: String,
        /// The name of the requested type.
        wanted: &'static str,
    },

    /// There is no space for an object.
    #[error("the heap has no space for an object of {bytes} bytes; free objects, or open it with more bytes")]
    OutOfSpace {
        /// The size of the object.
        bytes: u64,
    },

    /// The transaction has changed more lines than the log holds.
    #[error(
        "the log has no space for {lines} more lines of this transaction; change less in one, or make the log larger"
    )]
    LogFull {
        /// The lines that were to be logged.
        lines: usize,
    },

    /// A pointer points to no object, or beyond the end of one.
    #[error("there are no {bytes} bytes of an object at {at}: the pointer is null, damaged, or of a freed object")]
    BadPointer {
        /// The position in the heap.
        at: u64,
        /// The number of bytes that were to be accessed.
        bytes: u64,
    },

    /// A transaction was begun inside another one of the same thread and heap.
    #[error("a transaction of this thread is open on this heap; pass its `Tx` on instead of beginning another")]
    Nested,

    /// The process was forked from the one that opened the heap.
    #[error("a forked process cannot use a heap of its parent; open a heap after the fork, in one of them")]
    Forked,

    /// Another transaction is in the way. The heap rolls the transaction back and runs the closure
    /// again, whatever the closure makes of this error.
    #[error("another transaction has changed what this one works with; it will be run again")]
    Conflict,

    /// What a closure returns to have its transaction rolled back by choice.
    #[error("the transaction was rolled back by choice")]
    Aborted,
}

/// Result of an operation on a heap.
pub type Result<T, E = Error> = std::result::Result<T, E>;
