//! Slots for updates.

use std::collections::VecDeque;

use super::description::Machine;

/// Slots for updates. If there is one for each core, the core has it for good; otherwise the first
/// controller hands them out.
#[derive(Debug)]
pub(super) struct Slots {
    pub(super) fixed: bool,
    pub(super) free: VecDeque<u8>,
    pub(super) waiting: VecDeque<u8>,
}

impl Slots {
    pub(super) fn new(machine: &Machine) -> Self {
        Self {
            fixed: machine.log.updates >= machine.core.cores,
            free: (0..machine.log.updates as u8).collect(),
            waiting: VecDeque::new(),
        }
    }
}
