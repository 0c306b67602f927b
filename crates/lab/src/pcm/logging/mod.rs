//! PCMLogging: changes are buffered in the PCM, and are the log (PCMLogging, section 3).
//!
//! DRAM keeps pages, as in every scheme. Changes of transactions in progress go to the PCM when
//! their page leaves DRAM, and at the latest when the transaction commits, so that a page can leave
//! DRAM at any time and nothing is written to disk for it. What the paper leaves open:
//!
//! - A tuple that is in the PCM, of a page that is not in DRAM, is read there, and the page is not
//!   loaded. If it is changed, the new version goes to the PCM at once.
//! - The tuple that was used longest ago makes room. All committed tuples of its page leave with
//!   it, since the page that is written to disk contains them. The page is read from disk first,
//!   unless DRAM has it without uncommitted changes, or it has never been on disk.
//! - While a transaction is in progress, DRAM keeps the tuples as they were before its changes, so
//!   that an abort needs no disk. Pages, at the granularity of pages, are discarded instead.
//!
//! # Parts
//! | module | what it does |
//! |---|---|
//! | `medium` | granularities, slots, versions; what is done to PCM and disk |
//! | `buffer` | flush, commit, abort, replacement, recovery; the dirty page table |
//! | `mapping`, `transactions`, `slots` | the tables in DRAM |
//! | `crash` | recovery in the middle of a replay |

mod buffer;
mod crash;
mod mapping;
mod medium;
mod slots;
mod transactions;

use super::devices::Devices;
use super::scheme::{Existing, Frames, Scheme, Xid};
use super::trace::{Op, Page, Trace, Tuple};
use buffer::Buffer;
use crash::Contents;
use medium::{Medium, Slot, Stored, Version};

pub(crate) use crash::Recovery;
pub(crate) use medium::Granularity;

/// PCMLogging.
#[derive(Debug)]
pub(crate) struct Logging {
    granularity: Granularity,
    frames: Frames,
    existing: Existing,
    buffer: Buffer,
    slots: usize,
    changes: u64,
    /// What the PCM holds, if crashes are wanted.
    contents: Option<Contents>,
}

impl Logging {
    /// Returns the scheme with so many frames in DRAM and so many bytes of PCM.
    pub(crate) fn new(trace: &Trace, frames: usize, granularity: Granularity, pcm: u64) -> Self {
        let slots = (pcm / granularity.slot_bytes()) as usize;
        Self {
            granularity,
            frames: Frames::new(frames, trace.pages()),
            existing: Existing::new(trace.stored(), trace.pages()),
            buffer: Buffer::new(granularity, slots),
            slots,
            changes: 0,
            contents: None,
        }
    }

    /// Remembers what the PCM holds, so that there can be crashes.
    pub(crate) fn with_contents(self) -> Self {
        Self { contents: Some(Contents::default()), ..self }
    }

    /// Returns how recovery would go if the power failed now; nothing without contents.
    pub(crate) fn recovery(&self) -> Option<Recovery> {
        Some(self.contents.as_ref()?.recover(self.granularity, self.slots, &self.buffer))
    }

    /// Returns the buffer, and what it works on.
    fn parts<'d>(&'d mut self, devices: &'d mut Devices) -> (&'d mut Buffer, Charged<'d>) {
        let Self { granularity, frames, existing, buffer, contents, .. } = self;
        (buffer, Charged { granularity: *granularity, devices, frames, existing, contents: contents.as_mut() })
    }

    /// Brings the page of `tuple` to DRAM; false when the tuple is in the PCM and need not be
    /// there.
    fn fetch(&mut self, tuple: Tuple, devices: &mut Devices) -> bool {
        let page = tuple.page();
        if self.frames.hit(page) {
            return true;
        }
        if !self.existing.create(page) {
            devices.counts.lookups += 1;
            let hit = self.buffer.hit(self.granularity.unit(tuple));
            if hit {
                devices.read_lines(self.granularity.slot_lines());
                if self.granularity == Granularity::Tuple {
                    return false;
                }
            } else {
                // A page that has never been on disk is made of what the PCM has of it.
                if self.existing.is_on_disk(page) {
                    devices.counts.misses += 1;
                    devices.read(page);
                }
                devices.read_lines(self.buffer.buffered(page) as u64 * self.granularity.slot_lines());
            }
        }
        if let Some(victim) = self.frames.admit(page) {
            let (buffer, mut medium) = self.parts(devices);
            buffer.flush_page(victim, &mut medium);
        }
        true
    }
}

impl Scheme for Logging {
    fn lock_of(&self, tuple: Tuple) -> u32 {
        self.granularity.unit(tuple).0
    }

    fn access(&mut self, txn: Xid, op: Op, devices: &mut Devices) {
        let in_dram = self.fetch(op.tuple(), devices);
        if op.writes() {
            self.changes += 1;
            let (unit, version) = (self.granularity.unit(op.tuple()), Version(self.changes));
            let (buffer, mut medium) = self.parts(devices);
            buffer.change(txn, unit, version);
            if !in_dram {
                buffer.flush(txn, unit, &mut medium);
            }
        }
    }

    fn commit(&mut self, txn: Xid, devices: &mut Devices) {
        let (buffer, mut medium) = self.parts(devices);
        buffer.commit(txn, &mut medium);
    }

    fn abort(&mut self, txn: Xid, devices: &mut Devices) {
        let (buffer, mut medium) = self.parts(devices);
        let units = buffer.abort(txn, &mut medium);
        if self.granularity == Granularity::Page {
            units.into_iter().for_each(|unit| self.frames.discard(self.granularity.page(unit)));
        }
    }

    fn has_been_full(&self) -> bool {
        self.buffer.has_been_full()
    }
}

/// Devices that are charged for what is done to the PCM and the disk.
struct Charged<'d> {
    granularity: Granularity,
    devices: &'d mut Devices,
    frames: &'d Frames,
    existing: &'d mut Existing,
    contents: Option<&'d mut Contents>,
}

impl Medium for Charged<'_> {
    fn list(&mut self, xid: Xid) {
        self.devices.write_lines(1);
        if let Some(contents) = &mut self.contents {
            contents.active.insert(xid);
        }
    }

    fn unlist(&mut self, xid: Xid) {
        self.devices.write_lines(1);
        if let Some(contents) = &mut self.contents {
            contents.active.remove(&xid);
        }
    }

    fn store(&mut self, slot: Slot, stored: Stored) {
        self.devices.write_lines(self.granularity.slot_lines());
        if let Some(contents) = &mut self.contents {
            contents.stored.insert(slot, stored);
        }
    }

    fn free(&mut self, slot: Slot) {
        self.devices.write_lines(1);
        if let Some(contents) = &mut self.contents {
            contents.stored.remove(&slot);
        }
    }

    fn write_back(&mut self, page: Page, units: &[Stored], has_uncommitted: bool) {
        let is_whole = self.granularity == Granularity::Page || self.frames.has(page) && !has_uncommitted;
        if !is_whole && self.existing.is_on_disk(page) {
            self.devices.read_to_merge(page);
        }
        self.devices.read_lines(units.len() as u64 * self.granularity.slot_lines());
        self.existing.written(page);
        self.devices.write(page);
    }
}

#[cfg(test)]
mod tests;
