//! The simulated machines that experiments run on.

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
}

/// The paper's: 64 contexts on one socket.
pub(super) const NIAGARA: Machine = Machine { name: "niagara2", suffix: "", title: "Niagara II", sockets: 1 };

/// Four of them.
pub(super) const FOUR_SOCKETS: Machine =
    Machine { name: "niagara2-4", suffix: "-sockets", title: "four Niagara II", sockets: 4 };

/// That of the paper on logging in persistent memory: four sockets of six cores, 48 contexts.
pub(super) const XEON: Machine = Machine { name: "xeon-e7-4807", suffix: "", title: "four Xeon E7-4807", sockets: 4 };

/// A machine of today, which no paper has: 256 contexts on two sockets.
pub(super) const SERVER: Machine =
    Machine { name: "server-2x64", suffix: "-server", title: "2 x 64 cores of today", sockets: 2 };

impl Machine {
    /// Returns what the figure of claim `id` is called that shows this machine.
    pub(super) fn figure(&self, id: &str) -> String {
        format!("{id}{}", self.suffix)
    }
}
