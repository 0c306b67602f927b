//! The persistence domain that a program assumes.
//!
//! A store passes the processor's store buffer, its caches and the memory controller before it
//! reaches the medium. The *persistence domain* begins at the first of these places whose content
//! survives a power cut.
//!
//! - *durable cache* (Intel's eADR; CXL's global persistent flush): the domain includes the caches.
//!   A store that other processors can see is durable; a program needs only a fence.
//! - *volatile cache* (ADR): the domain begins at the memory controller. A program must flush the
//!   lines that it wrote, or stream them past the caches; a fence waits until the controller has
//!   accepted them.

use std::fmt;

/// The persistence domain that a program is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Domain {
    /// The caches survive: [`crate::Region::persist`] is a fence.
    DurableCache,
    /// The caches do not survive, the memory controller's queues do: [`crate::Region::persist`]
    /// flushes and fences.
    #[default]
    VolatileCache,
}

impl Domain {
    /// The domains, with their names.
    pub const NAMES: [(&'static str, Self); 2] =
        [("durable-cache", Self::DurableCache), ("volatile-cache", Self::VolatileCache)];
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DurableCache => "durable-cache",
            Self::VolatileCache => "volatile-cache",
        })
    }
}
