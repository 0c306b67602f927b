//! The simulated machines that experiments run on.

use std::num::NonZeroU64;

#[cfg(duramen_machine)]
use duramen_machine::Plan;

#[cfg(duramen_machine)]
use crate::error::Result;
#[cfg(duramen_machine)]
use crate::simulation::plan;

/// A machine, as experiments call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Machine {
    /// Its description.
    pub(crate) name: &'static str,
    /// What figures and files of it have behind the claim's id.
    suffix: &'static str,
    /// What titles of figures call it.
    pub(super) title: &'static str,
    /// Its sockets.
    pub(super) sockets: usize,
    /// Bytes per second that the memory of a socket reads and writes, if not the published ones.
    pub(crate) memory_bandwidth: Option<NonZeroU64>,
}

/// The paper's: 64 contexts on one socket.
pub(super) const NIAGARA: Machine =
    Machine { name: "niagara2", suffix: "", title: "Niagara II", sockets: 1, memory_bandwidth: None };

/// The paper's, with memory as fast as its Fig. 9 shows: every design ends at about 2.2 GB/s of
/// log, and each byte of it is read once and written once.
pub(super) const NIAGARA_AS_MEASURED: Machine = Machine {
    suffix: "-memory",
    title: "Niagara II, memory of 4.4 GB/s",
    memory_bandwidth: NonZeroU64::new(4_400_000_000),
    ..NIAGARA
};

/// Four of the paper's.
pub(super) const FOUR_SOCKETS: Machine =
    Machine { name: "niagara2-4", suffix: "-sockets", title: "four Niagara II", sockets: 4, ..NIAGARA };

/// That of the paper on logging in persistent memory: four sockets of six cores, 48 contexts.
pub(super) const XEON: Machine = Machine { name: "xeon-e7-4807", title: "four Xeon E7-4807", sockets: 4, ..NIAGARA };

/// The same, with memory that the log of 24 threads fills, if it all goes to one node.
pub(super) const XEON_NARROW: Machine = Machine {
    suffix: "-memory",
    title: "four Xeon E7-4807, memory of 0.5 GB/s",
    memory_bandwidth: NonZeroU64::new(500_000_000),
    ..XEON
};

/// A machine of today, which no paper has: 256 contexts on two sockets.
pub(super) const SERVER: Machine =
    Machine { name: "server-2x64", suffix: "-server", title: "2 x 64 cores of today", sockets: 2, ..NIAGARA };

impl Machine {
    /// Returns what the figure of claim `id` is called that shows this machine.
    pub(super) fn figure(&self, id: &str) -> String {
        format!("{id}{}", self.suffix)
    }

    /// Returns the plan of a run on it.
    #[cfg(duramen_machine)]
    pub(crate) fn plan(&self) -> Result<Plan> {
        let mut plan = plan(self.name)?;
        if let Some(bandwidth) = self.memory_bandwidth {
            plan.description = plan.description.with_memory_bandwidth(bandwidth);
        }
        Ok(plan)
    }
}
