//! What a run depends on, besides the code.

use crate::recorder::Tracing;
use crate::{Description, Schedule, Time};

/// What a run depends on, besides the code.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The computer.
    pub description: Description,
    /// Which thread runs next.
    pub schedule: Schedule,
    /// Virtual time at which the run is stopped.
    pub limit: Time,
    /// Operations on shared memory after which the run is stopped.
    pub max_operations: u64,
    /// The contexts that threads may run on, in the order in which they get them; without it, all.
    pub contexts: Option<Vec<usize>>,
    /// Where the threads' random numbers begin.
    pub seed: u64,
    /// Whether and how the run is traced. Changes nothing else.
    pub trace: Option<Tracing>,
}

impl Plan {
    /// Returns a run for figures on this computer.
    pub fn new(description: Description) -> Self {
        Self {
            description,
            schedule: Schedule::Time,
            limit: Time::NEVER,
            max_operations: u64::MAX,
            contexts: None,
            seed: 1,
            trace: None,
        }
    }
}
