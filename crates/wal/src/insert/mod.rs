//! The insertion designs: how threads share the one log buffer.
//!
//! Every design does the same three steps for a record: *acquire* the next bytes of the buffer,
//! whose position is the record's LSN; *fill* them in; *release* them to the flusher in LSN order.
//! The designs differ in what happens under the lock and in how threads help each other. All are
//! built on [`Space`]; none of them interprets records.
//!
//! | design | the lock covers | a thread that does not get it | release |
//! |---|---|---|---|
//! | `mutex` | acquire, fill, release | waits | in the order of the lock |
//! | `consolidated` (C) | acquire, fill, release of a group | joins a group | in the order of the lock |
//! | `decoupled` (D) | acquire | waits | in order, or by an early-release entry |
//! | `hybrid` (CD) | acquire of a group | joins a group | in order, or by an early-release entry |
//! | `delegated` (CDE) | acquire of a group | joins a group | delegated to the predecessor |
//! | `reserved` | there is no lock | - | by a link that the flusher follows |
//!
//! A design is a type that implements [`Insertion`], and a line in the table of `designs!`, over
//! which the models, the stress suite, the options, the command line and the benchmark iterate.
//! `aether` is the first four designs; the other two have a file each. Their parts are in `array`
//! (the consolidation array), `slot` (a slot of it, one word), `release_queue` and `links`.

mod aether;
mod array;
mod delegated;
mod links;
mod release_queue;
mod reserved;
mod slot;

use std::fmt;
use std::str::FromStr;

use duramen_types::Lsn;

use crate::buffer::positions::Space;
use crate::error::{Result, WalError};

/// One way to share the log buffer.
pub(crate) trait Insertion {
    fn new(shape: Shape) -> Self;

    /// Does what [`Insertion::insert`] does, with one atomic operation, if neither another thread
    /// nor a check that [`Space`] must make stands in the way. Otherwise does nothing.
    fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn>;

    /// Acquires `bytes` in `space`, has them filled in, and releases them, or leaves the release to
    /// another thread that needs no further help. `tried` states that [`Insertion::try_insert`] has
    /// just failed: if another thread has the lock, trying it again at once is pointless.
    fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn;

    /// Brings `released` up to date, in a design that leaves this to the threads that need it.
    /// Other threads may stop half-way in the same work, so a waiting thread calls this repeatedly.
    fn collect(&self, _space: &Space) {}

    /// Returns the number of records that joined another thread's group.
    fn consolidated(&self) -> u64 {
        0
    }
}

/// Fills in acquired space. A trait, so that it can be inlined into each design.
pub(crate) trait Fill {
    fn fill(self, lsn: Lsn);
}

impl<F: FnOnce(Lsn)> Fill for F {
    #[inline]
    fn fill(self, lsn: Lsn) {
        self(lsn);
    }
}

/// The parameters of a design.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Places of the consolidation array, or of each one if there are several.
    pub(crate) places: usize,
    /// Consolidation arrays: a thread uses the array of its memory node (Aether, section 7.1).
    pub(crate) arrays: usize,
    /// Slots in the pool from which the arrays are refilled.
    pub(crate) pool: usize,
    /// Size of the log buffer in bytes, a power of two.
    pub(crate) capacity: u64,
    /// Bytes of the smallest record.
    pub(crate) smallest: u64,
}

/// Makes the public list of designs, and an enum of their types with the methods of [`Insertion`].
macro_rules! designs {
    ($($(#[$about:meta])* $design:ident = $name:literal => $insertion:ty,)+) => {
        /// How threads get space in the log buffer and release it to the flusher.
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
                Self::NAMES[self as usize]
            }
        }

        #[derive(Debug)]
        #[allow(clippy::large_enum_variant, reason = "one for each log; a box would cost every insertion a step")]
        pub(crate) enum AnyInsertion {
            $($design($insertion),)+
        }

        impl AnyInsertion {
            pub(crate) fn new(design: InsertDesign, shape: Shape) -> Self {
                match design {
                    $(InsertDesign::$design => Self::$design(<$insertion as Insertion>::new(shape)),)+
                }
            }

            #[inline(always)]
            pub(crate) fn try_insert(&self, space: &Space, bytes: u64, fill: impl Fill) -> Option<Lsn> {
                match self {
                    $(Self::$design(design) => design.try_insert(space, bytes, fill),)+
                }
            }

            pub(crate) fn insert(&self, space: &Space, bytes: u64, tried: bool, fill: impl Fill) -> Lsn {
                match self {
                    $(Self::$design(design) => design.insert(space, bytes, tried, fill),)+
                }
            }

            pub(crate) fn collect(&self, space: &Space) {
                match self {
                    $(Self::$design(design) => design.collect(space),)+
                }
            }

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
    Mutex = "mutex" => aether::AetherInsertion<false, false>,
    /// Consolidation array: threads that meet at the mutex combine their requests; the mutex stays
    /// locked until their records have been copied (Aether, section 5.1).
    Consolidated = "consolidated" => aether::AetherInsertion<true, false>,
    /// Decoupled fill: records are copied outside the mutex (Aether, section 5.2).
    Decoupled = "decoupled" => aether::AetherInsertion<false, true>,
    /// Consolidation array and decoupled fill (Aether, section 5.3).
    #[default]
    Hybrid = "hybrid" => aether::AetherInsertion<true, true>,
    /// Consolidation array, decoupled fill, and delegated release (Aether, sections 5.2 and A.6).
    Delegated = "delegated" => delegated::DelegatedInsertion,
    /// Not from the papers: one atomic addition hands out space, and links show what is filled in.
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
            let names = Self::NAMES.map(|name| format!("`{name}`")).join(", ");
            WalError::invalid("insert", format!("there is no insertion design `{name}`; the designs are {names}"))
        })
    }
}

#[cfg(all(test, duramen_loom))]
mod loom_models;
