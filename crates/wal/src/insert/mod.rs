//! The insertion designs: how threads share the one log buffer.
//!
//! Every design does the same three steps for a record: *acquire* the next bytes of the buffer,
//! which are its LSN, *fill* them in, *release* them to the flusher in LSN order. They differ in
//! what happens under the lock and in how threads help each other. All stand on [`Space`]; none
//! knows what a record is.
//!
//! | design | the lock is held for | who does not get it | release |
//! |---|---|---|---|
//! | `mutex` | acquire, fill, release | waits | in the order of the lock |
//! | `consolidated` (C) | acquire, fill, release of a group | joins a group | in the order of the lock |
//! | `decoupled` (D) | acquire | waits | in turn, or a note |
//! | `hybrid` (CD) | acquire of a group | joins a group | in turn, or a note |
//! | `delegated` (CDE) | acquire of a group | joins a group | left to the predecessor |
//! | `reserved` | there is none | does not exist | a mark that the flusher looks for |
//!
//! A design is a file with a type that implements [`Insertion`], and a line in the table below. The
//! models, the stress suite, the options, the command line and the benchmark run over the table.

mod array;
mod consolidated;
mod decoupled;
mod delegated;
mod hybrid;
mod links;
mod mutex;
mod release_queue;
mod reserved;
mod slot;
mod steps;

use std::fmt;
use std::str::FromStr;

use duramen_types::Lsn;

use crate::buffer::positions::Space;
use crate::error::{Result, WalError};

/// One way to share the log buffer.
pub(crate) trait Insertion {
    /// Sets the design up.
    fn new(shape: Shape) -> Self
    where
        Self: Sized;

    /// Does what [`Insertion::insert`] does, with one atomic operation, if nothing stands in the
    /// way: no other thread, and nothing that [`Space`] has to look at. Otherwise does nothing.
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn>;

    /// Acquires `bytes` in `space`, has them filled in, and releases them. When this returns, the
    /// bytes are released or will be by another thread without any further help from this one. It
    /// has been `tried` when [`Insertion::try_insert`] has just failed, mostly because of other
    /// threads: then there is nothing to be had at once.
    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn;

    /// Brings `released` up to date, in a design that leaves that to those who want to know it.
    /// Others may do so at the same time and stop half-way, so who waits for something to be
    /// released asks again and again.
    #[inline]
    fn collect(&self, space: &Space) {
        let _ = space;
    }

    /// Records that joined another thread's group.
    fn consolidated(&self) -> u64 {
        0
    }
}

/// What fills acquired space in. A trait, and no function, so that it can be made to be part of
/// each design's code.
pub(crate) trait Fill {
    /// Fills the space at `lsn` in.
    fn fill(self, lsn: Lsn);
}

impl<F: FnOnce(Lsn)> Fill for F {
    #[inline]
    fn fill(self, lsn: Lsn) {
        self(lsn);
    }
}

/// What a design is set up for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Places of the consolidation array, or of each if there are several.
    pub(crate) places: usize,
    /// Consolidation arrays: threads use that of their memory node (Aether, section 7.1).
    pub(crate) arrays: usize,
    /// Slots that take turns at them.
    pub(crate) pool: usize,
    /// Size of the log buffer in bytes, a power of two.
    pub(crate) capacity: u64,
    /// Bytes of the smallest record.
    pub(crate) smallest: u64,
}

/// Makes the public list of designs and the type that is any of them.
macro_rules! designs {
    ($($(#[$about:meta])* $design:ident = $name:literal => $insertion:ty,)+) => {
        /// How threads get space in the log buffer and hand it to the flusher.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub enum InsertDesign {
            $($(#[$about])* $design,)+
        }

        impl InsertDesign {
            /// Every design.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$design),+];

            /// Their names, in the same order.
            pub const NAMES: [&'static str; Self::ALL.len()] = [$($name),+];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$design => $name,)+
                }
            }
        }

        /// The design in use.
        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "there is one per log, and a box would cost every insertion a step")]
        pub(crate) enum AnyInsertion {
            $($design($insertion),)+
        }

        impl AnyInsertion {
            /// Sets `design` up.
            pub(crate) fn new(design: InsertDesign, shape: Shape) -> Self {
                match design {
                    $(InsertDesign::$design => Self::$design(<$insertion as Insertion>::new(shape)),)+
                }
            }

            /// As [`Insertion::try_insert`].
            #[inline(always)]
            pub(crate) fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
                match self {
                    $(Self::$design(design) => design.try_insert(space, bytes, fill),)+
                }
            }

            /// As [`Insertion::insert`].
            pub(crate) fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
                match self {
                    $(Self::$design(design) => design.insert(space, bytes, tried, fill),)+
                }
            }

            /// As [`Insertion::collect`].
            pub(crate) fn collect(&self, space: &Space) {
                match self {
                    $(Self::$design(design) => design.collect(space),)+
                }
            }

            /// As [`Insertion::consolidated`].
            pub(crate) fn consolidated(&self) -> u64 {
                match self {
                    $(Self::$design(design) => design.consolidated(),)+
                }
            }
        }
    };
}

designs! {
    /// One mutex around the whole insertion: the baseline (Aether, algorithm 1).
    Mutex = "mutex" => mutex::MutexInsertion,
    /// Consolidation array: threads that meet at the mutex combine their requests; it is held until
    /// their records have been copied (Aether, section 5.1).
    Consolidated = "consolidated" => consolidated::ConsolidatedInsertion,
    /// Decoupled fill: records are copied outside the mutex (Aether, section 5.2).
    Decoupled = "decoupled" => decoupled::DecoupledInsertion,
    /// Consolidation array and decoupled fill (Aether, section 5.3).
    #[default]
    Hybrid = "hybrid" => hybrid::HybridInsertion,
    /// Consolidation array, decoupled fill, and release delegated to the thread before (Aether,
    /// sections 5.2 and A.6).
    Delegated = "delegated" => delegated::DelegatedInsertion,
    /// Not from the papers: one atomic addition hands out space, and a buffer of links tells what
    /// has been filled in.
    Reserved = "reserved" => reserved::ReservedInsertion,
}

impl fmt::Display for InsertDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for InsertDesign {
    type Err = WalError;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|design| design.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|design| format!("`{design}`")).collect();
            WalError::InvalidOption {
                option: "insert",
                reason: format!("there is no insertion design `{name}`; there are {}", names.join(", ")),
            }
        })
    }
}

#[cfg(all(test, duramen_loom))]
mod loom_models;
