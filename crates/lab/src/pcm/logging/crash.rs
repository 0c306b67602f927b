//! Crashes in the middle of a replay: what recovery reads, and whether it finds what was committed.

use std::collections::{BTreeMap, BTreeSet};

use super::buffer::Buffer;
use super::medium::{Granularity, Medium, Slot, Stored};
use crate::pcm::conventional::SLOT_HEADER;
use crate::pcm::devices::{Devices, Nanos, lines};
use crate::pcm::scheme::Xid;
use crate::pcm::trace::Page;

/// What the PCM holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    pub(super) stored: BTreeMap<Slot, Stored>,
    pub(super) active: BTreeSet<Xid>,
}

/// A recovery.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Recovery {
    /// Slots that were in use.
    pub(crate) slots: u64,
    /// Slots whose versions were discarded.
    pub(crate) discarded: u64,
    /// Transfers of the disk.
    pub(crate) disk_ios: u64,
    /// How long the PCM takes for it.
    pub(crate) time: Nanos,
    /// Units that are not as they were committed last.
    pub(crate) wrong: u64,
}

impl Contents {
    /// Recovers from this, and compares the result with `before`, which crashed.
    pub(super) fn recover(&self, granularity: Granularity, slots: usize, before: &Buffer) -> Recovery {
        let mut devices = Devices::new(1);
        // The headers and the list are scanned.
        let list = self.active.len() as u64;
        devices.read_lines(slots as u64 * lines(SLOT_HEADER) + lines(list * 8));
        let mut medium = Recovering { devices, discarded: 0 };
        let after = Buffer::recover((granularity, slots), &self.stored, &self.active, &mut medium);
        let wrong = self.stored.values().map(|stored| stored.unit).collect::<BTreeSet<_>>();
        let wrong = wrong.into_iter().filter(|unit| after.committed(*unit) != before.committed(*unit)).count();
        let Recovering { devices, discarded } = medium;
        Recovery {
            slots: self.stored.len() as u64,
            discarded,
            disk_ios: devices.counts.data_ios() + devices.counts.log_writes,
            time: devices.now,
            wrong: wrong as u64,
        }
    }
}

/// The devices during recovery.
struct Recovering {
    devices: Devices,
    discarded: u64,
}

impl Medium for Recovering {
    fn list(&mut self, _: Xid) {
        self.devices.write_lines(1);
    }

    fn unlist(&mut self, _: Xid) {
        self.devices.write_lines(1);
    }

    fn store(&mut self, _: Slot, stored: Stored) {
        unreachable!("recovery stores nothing, and not {stored:?}");
    }

    fn free(&mut self, _: Slot) {
        self.discarded += 1;
        self.devices.write_lines(1);
    }

    fn write_back(&mut self, page: Page, _: &[Stored], _: bool) {
        self.devices.write(page);
    }
}
