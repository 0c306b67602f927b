//! What caches know of a line.

/// A line in a private cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PrivateLine {
    /// No other core has it.
    pub(super) owned: bool,
    pub(super) dirty: bool,
    /// The log bit: set if this is the core's number of the moment.
    pub(super) log: u32,
}

impl PrivateLine {
    pub(super) fn is_owned(&self) -> bool {
        self.owned
    }

    pub(super) fn make_dirty(&mut self) {
        self.dirty = true;
    }

    pub(super) fn log_epoch(&self) -> u32 {
        self.log
    }

    pub(super) fn set_log(&mut self, epoch: u32) {
        self.log = epoch;
    }
}

/// A line in a tile.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SharedLine {
    /// The core that has it for itself.
    pub(super) owner: Option<u8>,
    /// Cores that have copies, a bit each.
    pub(super) sharers: u32,
    pub(super) dirty: bool,
    /// The core whose log bit came with the line, where a fault keeps it.
    pub(super) kept_log: Option<u8>,
}
