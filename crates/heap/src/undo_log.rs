//! The undo log: records of old lines, in buckets that transactions take from a pool.
//!
//! A record ([`duramen_types::undo_record`]) names its slot and its number within the update. Its
//! tag is a CRC-32C of the heap's id, the slot, the number of the update and the record. It is
//! valid for the update after the last one that its slot has finished, and for no other: to end an
//! update is to raise one number, and nothing of the log has to be erased.
//!
//! The records of an update fill its buckets one after the other, so the record with number *r* is
//! in the update's bucket number *r* / records per bucket. Recovery finds the owner of a bucket,
//! and its place among the owner's buckets, in the bucket's first record. The hardware of the paper
//! has registers for that (section IV-C); here no state outside the records has to be durable.
//!
//! Recovery accepts the records 0, 1, ... of an update as far as they are valid. Each batch of
//! records is fenced before any of its lines is stored to, so a batch of which a power cut has lost
//! a part has changed nothing, and what recovery does not accept needs no undo.

use std::ops::Range;

use duramen_sync::Mutex;
use duramen_types::crc32c_of;
use duramen_types::planted;
use duramen_types::undo_record::{LINE_BYTES, LINES_PER_RECORD, UndoHeader};

use crate::error::{Error, Result};
use crate::layout::{LINE, Layout, RECORD_BYTES};
use crate::medium::{Barrier, Medium};

/// Where the header of a record is: behind the lines.
const HEADER_AT: usize = LINES_PER_RECORD * LINE_BYTES;

/// A line, and what it held.
pub(crate) type OldLine = (u64, [u8; LINE_BYTES]);

/// What lines held, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct OldLines {
    lines: Vec<u64>,
    bytes: Vec<[u8; LINE_BYTES]>,
}

impl OldLines {
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.lines.truncate(len);
        self.bytes.truncate(len);
    }

    /// Adds lines that are neighbours, and returns where their old contents are to be put.
    pub(crate) fn push(&mut self, run: Range<u64>) -> &mut [u8] {
        let first = self.len();
        self.lines.extend(run);
        self.bytes.resize(self.lines.len(), [0; LINE_BYTES]);
        self.bytes[first..].as_flattened_mut()
    }

    /// Keeps, of the lines from number `first` on, those that `keep` accepts.
    pub(crate) fn retain_from(&mut self, first: usize, mut keep: impl FnMut(u64, &[u8; LINE_BYTES]) -> bool) {
        let mut kept = first;
        for number in first..self.len() {
            if keep(self.lines[number], &self.bytes[number]) {
                if kept < number {
                    (self.lines[kept], self.bytes[kept]) = (self.lines[number], self.bytes[number]);
                }
                kept += 1;
            }
        }
        self.truncate(kept);
    }

    /// Returns the lines from number `first` on.
    pub(crate) fn lines_from(&self, first: usize) -> &[u64] {
        &self.lines[first..]
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &[u8; LINE_BYTES])> {
        self.lines.iter().copied().zip(&self.bytes)
    }
}

/// The buckets that no transaction has.
#[derive(Debug)]
pub(crate) struct Buckets(Mutex<Vec<u32>>);

impl Buckets {
    pub(crate) fn new(buckets: u32) -> Self {
        Self(Mutex::new((0..buckets).rev().collect()))
    }

    fn take(&self) -> Option<u32> {
        self.0.lock().pop()
    }

    fn give_back(&self, buckets: impl Iterator<Item = u32>) {
        self.0.lock().extend(buckets);
    }
}

/// The records of the update that runs in a slot.
#[derive(Debug)]
pub(crate) struct UpdateLog {
    pub(crate) slot: u32,
    /// The number of the update.
    pub(crate) number: u64,
    records: u32,
    /// Whether records were appended since the last fence.
    is_unfenced: bool,
    /// The first one is kept from update to update.
    buckets: Vec<u32>,
}

impl UpdateLog {
    pub(crate) fn new(slot: u32, number: u64) -> Self {
        Self { slot, number, records: 0, is_unfenced: false, buckets: Vec::new() }
    }

    /// Returns whether the update has records.
    pub(crate) fn is_used(&self) -> bool {
        self.records > 0
    }

    /// Logs the old lines from number `first` on. They may be stored to after [`Self::fence`].
    pub(crate) fn append(
        &mut self,
        (medium, layout, pool): (&Medium, &Layout, &Buckets),
        old: &OldLines,
        first: usize,
    ) -> Result<()> {
        let per_bucket = layout.header.log.records;
        let lines = old.lines_from(first);
        let wanted = self.records + lines.len().div_ceil(LINES_PER_RECORD) as u32;
        while self.buckets.len() < wanted.div_ceil(per_bucket) as usize {
            let Some(bucket) = pool.take() else {
                return Err(Error::LogFull { lines: lines.len() });
            };
            self.buckets.push(bucket);
        }
        let bytes = old.bytes[first..].chunks(LINES_PER_RECORD);
        for entries in lines.chunks(LINES_PER_RECORD).zip(bytes) {
            let bucket = self.buckets[(self.records / per_bucket) as usize];
            let at = layout.record(bucket, self.records % per_bucket);
            write_record(medium, layout, at, (self.slot, self.number, self.records), entries);
            self.records += 1;
        }
        self.is_unfenced = true;
        Ok(())
    }

    /// Makes durable what was logged. Whatever the program does between naming lines and storing to
    /// them is done while the records are on their way.
    pub(crate) fn fence(&mut self, medium: &Medium) {
        if std::mem::take(&mut self.is_unfenced) && !planted!(UndoUnfenced) {
            medium.barrier(Barrier::Log);
        }
    }

    /// Ends the update: its records are not valid any more.
    pub(crate) fn end(&mut self, medium: &Medium, layout: &Layout, pool: &Buckets) {
        end_update(medium, layout, self.slot, self.number);
        if !planted!(EndUnfenced) {
            medium.barrier(Barrier::End);
        }
        self.number += 1;
        self.records = 0;
        self.is_unfenced = false;
        if self.buckets.len() > 1 {
            pool.give_back(self.buckets.drain(1..));
        }
    }

    /// Gives back what was taken by an update that ends without a record.
    pub(crate) fn forget(&mut self, pool: &Buckets) {
        if self.buckets.len() > 1 {
            pool.give_back(self.buckets.drain(1..));
        }
    }
}

/// Stores the number of the last finished update of a slot; a barrier must follow.
pub(crate) fn end_update(medium: &Medium, layout: &Layout, slot: u32, number: u64) {
    let at = layout.slot(slot);
    medium.store_word(at, layout.seal(at, number));
    medium.flush(at, 8);
}

fn write_record(
    medium: &Medium,
    layout: &Layout,
    at: u64,
    update: (u32, u64, u32),
    (lines, old): (&[u64], &[[u8; LINE_BYTES]]),
) {
    let (slot, number, record) = update;
    let mut header = UndoHeader::new(slot as u8, record, 0);
    for line in lines {
        header.push(line * LINE).expect("a record has space for a batch's part");
    }
    let lines = old.as_flattened();
    header.set_tag(tag(layout, (slot, number), &header, lines));
    medium.stream(at, &[lines]);
    medium.stream(at + HEADER_AT as u64, &[header.bytes()]);
}

/// Reads a record; `None` if it is not a valid one of this update.
pub(crate) fn read_record(
    medium: &Medium,
    layout: &Layout,
    at: u64,
    (slot, number): (u32, u64),
) -> Option<(u32, Vec<OldLine>)> {
    let mut bytes = [0; RECORD_BYTES];
    medium.read(at, &mut bytes);
    let (lines, header) = bytes.split_at(HEADER_AT);
    let header = UndoHeader::decode(header.first_chunk()?).ok()?;
    let lines = &lines[..header.count() * LINE_BYTES];
    let mut untagged = header;
    untagged.set_tag(0);
    if u32::from(header.slot()) != slot || tag(layout, (slot, number), &untagged, lines) != header.tag() {
        return None;
    }
    let old = lines.as_chunks::<LINE_BYTES>().0.iter();
    let entries = header.addresses().map(|at| at / LINE).zip(old.copied());
    Some((header.number(), entries.collect()))
}

/// Returns the slot that a record names, valid or not.
pub(crate) fn slot_of_record(medium: &Medium, at: u64) -> Option<u32> {
    let mut bytes = [0; LINE_BYTES];
    medium.read(at + HEADER_AT as u64, &mut bytes);
    UndoHeader::decode(&bytes).ok().map(|header| u32::from(header.slot()))
}

/// Returns the tag of a record with this header, whose own tag is zero.
fn tag(layout: &Layout, (slot, number): (u32, u64), header: &UndoHeader, lines: &[u8]) -> u32 {
    let number = if planted!(TagUnseeded) { 0 } else { number };
    let mut seed = [0; 32];
    seed[..16].copy_from_slice(&layout.header.id);
    seed[16..24].copy_from_slice(&u64::from(slot).to_le_bytes());
    seed[24..].copy_from_slice(&number.to_le_bytes());
    crc32c_of(&[&seed, header.bytes(), lines])
}
