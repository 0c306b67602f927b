//! What goes wrong, and when.

/// A failure to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The device reports an error. A read returns nothing. A write leaves a part of its blocks
    /// written, un-synced. A sync or durable write fails as with [`Fault::FailedSync`]. Any other
    /// operation has no effect.
    Eio,
    /// The device is full. Extensions and new names are refused without effect
    /// ([`DiskError::is_full`](crate::DiskError::is_full)). Writes and syncs fail, writes without
    /// effect and syncs as with [`Fault::FailedSync`].
    /// [`SimDisk::set_capacity`](super::SimDisk::set_capacity) makes a device really fill up.
    Enospc,
    /// Too many files are open: opening, creating and listing fail without effect.
    TooManyFiles,
    /// A read system call returns half of the requested bytes (at least one block). The disk
    /// continues it with a further operation, as the real one does, so callers never notice.
    ShortRead,
    /// Does the same as [`Fault::ShortRead`] to writes.
    ShortWrite,
    /// A sync fails, and the un-synced data of the file is dropped and marked clean: reads see it
    /// until the crash, but no later sync makes it durable. A durable write that fails like this
    /// loses its own bytes. A failed sync of a directory leaves the names pending.
    FailedSync,
}

/// The kind of an operation, as far as faults and crashes distinguish it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
    WriteDurable,
    Sync,
    SyncDirectory,
    /// Opens something that exists: a file, or a directory to list it.
    Open,
    /// Creates a new file.
    Create,
    /// Takes space in another way: a new directory, a longer file.
    Grow,
    /// Everything else: removing and renaming.
    Other,
}

impl Fault {
    fn applies_to(self, kind: Kind) -> bool {
        match self {
            Self::Eio => true,
            Self::Enospc => !matches!(kind, Kind::Read | Kind::Open | Kind::Other),
            Self::TooManyFiles => matches!(kind, Kind::Open | Kind::Create),
            Self::ShortRead => kind == Kind::Read,
            Self::ShortWrite => matches!(kind, Kind::Write | Kind::WriteDurable),
            Self::FailedSync => matches!(kind, Kind::Sync | Kind::SyncDirectory | Kind::WriteDurable),
        }
    }
}

/// What happens to an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It succeeds.
    Proceed,
    /// It takes effect without becoming durable, then fails: the power goes off during it.
    Crash,
    /// It fails, or returns short, in this way.
    Fail(Fault),
}

#[derive(Debug)]
struct PlannedFault {
    from: u64,
    fault: Fault,
    persistent: bool,
}

/// The faults and the crash of one disk, and the operation counter to which they refer.
#[derive(Debug, Default)]
pub(super) struct Plan {
    operations: u64,
    crash_at: Option<u64>,
    faults: Vec<PlannedFault>,
}

impl Plan {
    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    pub(super) fn crash_at(&mut self, operation: u64) {
        self.crash_at = Some(operation);
    }

    pub(super) fn fail_at(&mut self, from: u64, fault: Fault, persistent: bool) {
        self.faults.push(PlannedFault { from, fault, persistent });
    }

    pub(super) fn clear(&mut self) {
        self.crash_at = None;
        self.faults.clear();
    }

    /// Numbers the next operation and returns what happens to it.
    pub(super) fn next(&mut self, kind: Kind) -> Verdict {
        let number = self.operations;
        self.operations += 1;
        if self.crash_at.is_some_and(|at| number >= at) {
            return Verdict::Crash;
        }
        let Some(hit) = self.faults.iter().position(|planned| number >= planned.from && planned.fault.applies_to(kind))
        else {
            return Verdict::Proceed;
        };
        let fault = self.faults[hit].fault;
        if !self.faults[hit].persistent {
            self.faults.remove(hit);
        }
        Verdict::Fail(fault)
    }
}
