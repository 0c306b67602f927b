//! What PCMLogging does to the PCM and the disk.

use crate::pcm::conventional::SLOT_HEADER;
use crate::pcm::devices::lines;
use crate::pcm::scheme::Xid;
use crate::pcm::trace::{PAGE_BYTES, Page, TUPLE_BYTES, TUPLES, Tuple};

/// What is buffered in the PCM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Granularity {
    /// Pages (PCMLogging, section 3.2). Transactions lock pages.
    Page,
    /// Tuples (section 3.3). Transactions lock tuples.
    Tuple,
}

impl Granularity {
    /// Returns the unit that `tuple` is buffered with.
    pub(super) fn unit(self, tuple: Tuple) -> Unit {
        Unit(match self {
            Self::Page => tuple.page().get(),
            Self::Tuple => tuple.get(),
        })
    }

    /// Returns the page that `unit` belongs to.
    pub(super) fn page(self, unit: Unit) -> Page {
        Page::new(match self {
            Self::Page => unit.0,
            Self::Tuple => unit.0 / TUPLES,
        })
    }

    const fn body(self) -> u64 {
        match self {
            Self::Page => PAGE_BYTES,
            Self::Tuple => TUPLE_BYTES,
        }
    }

    /// Returns the bytes of PCM that a slot takes: a unit, and its number, transaction and time.
    pub(crate) const fn slot_bytes(self) -> u64 {
        self.body() + SLOT_HEADER
    }

    /// Returns how many lines are written with a slot.
    pub(super) const fn slot_lines(self) -> u64 {
        lines(self.body()) + lines(SLOT_HEADER)
    }
}

/// Number of a page or tuple, whichever is buffered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Unit(pub(super) u32);

/// A place for a unit in the PCM.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Slot(pub(super) u32);

/// Stands for the content of a unit: each change gives another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Version(pub(super) u64);

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stored {
    pub(super) unit: Unit,
    /// The transaction that changed it last.
    pub(super) xid: Xid,
    /// When it was stored.
    pub(super) stamp: u64,
    pub(super) version: Version,
}

/// The PCM, with its slots and its list of active transactions, and the disk. Each call is durable
/// when it returns; a crash comes between two calls.
pub(super) trait Medium {
    /// Adds a transaction to the list.
    fn list(&mut self, xid: Xid);

    /// Removes a transaction from the list.
    fn unlist(&mut self, xid: Xid);

    /// Fills a free slot.
    fn store(&mut self, slot: Slot, stored: Stored);

    /// Says that a slot is free.
    fn free(&mut self, slot: Slot);

    /// Writes units of `page`, merged with the rest of it, to disk. `has_uncommitted` says whether
    /// the page has changes in DRAM or PCM that must not get there.
    fn write_back(&mut self, page: Page, units: &[Stored], has_uncommitted: bool);
}
