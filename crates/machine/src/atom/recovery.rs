//! Recovery from undo logs: a routine that sees nothing but memory, of which the critical states
//! are a part.
//!
//! 1. Read the critical state of every controller.
//! 2. A slot's update was committed if its home controller has another phase: its log at this
//!    controller is stale. Otherwise find its buckets: the current one by register, the full ones
//!    among the allocated by the header of their first record.
//! 3. Write the entries back, newest record first and newest entry first.
//! 4. When all that is durable, put every slot out of use, with its home's phase; when that is
//!    durable, free the buckets.
//!
//! A slot out of use is ignored whatever the bit vector says, so step 4 is atomic for each slot,
//! and it keeps phases, so it needs no order between controllers. Until the buckets are freed, it
//! also keeps current buckets apart from full ones: a partly filled bucket may begin with an old
//! header that names another slot. The routine can be cut off anywhere and repeated.

use duramen_types::undo_record::{LINES_PER_RECORD, RECORD_LINES, UndoHeader, UndoHeaderError};

use super::critical::{CriticalState, SLOTS};
use super::description::Machine;
use super::{Bytes, Fault, LINE_BYTES};

/// A line of memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A line of the programs.
    Data(u32),
    /// A line of the log space behind a controller.
    Log(u8, u32),
    /// A line of a controller's critical state: 0 or 1.
    Critical(u8, u8),
}

/// Memory after a crash.
pub trait Image {
    /// Returns the bytes of a line.
    fn read(&self, place: Place) -> Bytes;
    /// Writes a line; it is durable after the next fence.
    fn write(&mut self, place: Place, bytes: Bytes);
    /// Makes what was written durable.
    fn fence(&mut self);
    /// Programs' lines.
    fn lines(&self) -> u32;
}

/// What recovery must know of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub(super) controllers: u8,
    pub(super) buckets: usize,
    pub(super) records: u16,
}

impl Geometry {
    /// Returns that of `machine`.
    pub fn of(machine: &Machine) -> Self {
        Self {
            controllers: machine.memory.controllers as u8,
            buckets: machine.log.buckets,
            records: machine.log.records,
        }
    }

    /// The first line of a record in the log space.
    pub(super) fn record(self, bucket: u8, record: u16) -> u32 {
        (u32::from(bucket) * u32::from(self.records) + u32::from(record)) * RECORD_LINES as u32
    }
}

/// What recovery did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Entries written back, in this order: controller, line of the log space, line of memory.
    pub undone: Vec<(u8, u32, u32)>,
    /// Records with fewer than seven entries.
    pub partial: u64,
    /// Records taken from buckets that are not current.
    pub from_full_buckets: u64,
    /// Logs that were ignored because the phase tells that their update was committed.
    pub committed: u64,
}

/// Why recovery cannot go on: the log is not what hardware can have left.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecoveryError {
    /// A valid record has no valid header.
    #[error("the record at line {at} of controller {controller} has no valid header: {reason}")]
    Header {
        /// The controller.
        controller: u8,
        /// The record's first line in its log space.
        at: u32,
        /// What is wrong.
        reason: UndoHeaderError,
    },
    /// A record of one slot lies in a bucket of another.
    #[error("the record at line {at} of controller {controller} is of slot {found}, not {wanted}")]
    Slot {
        /// The controller.
        controller: u8,
        /// The record's first line in its log space.
        at: u32,
        /// The slot that it names.
        found: u8,
        /// The slot that owns the bucket.
        wanted: u8,
    },
    /// An entry names a line that there is not.
    #[error("the record at line {at} of controller {controller} names a line beyond the end of memory")]
    Address {
        /// The controller.
        controller: u8,
        /// The record's first line in its log space.
        at: u32,
    },
    /// A slot's current bucket does not exist.
    #[error("the current bucket {bucket} of slot {slot} does not exist or is not allocated")]
    Bucket {
        /// The slot.
        slot: u8,
        /// Its current bucket.
        bucket: u8,
    },
}

/// Undoes all incomplete updates.
///
/// # Errors
/// If the log is not what hardware can have left.
pub fn recover(image: &mut impl Image, geometry: Geometry) -> Result<Recovered, RecoveryError> {
    recover_with(image, geometry, None)
}

/// As [`recover`], with a fault.
pub(super) fn recover_with(
    image: &mut impl Image,
    geometry: Geometry,
    fault: Option<Fault>,
) -> Result<Recovered, RecoveryError> {
    let read = |image: &dyn Fn(Place) -> Bytes, mc| {
        CriticalState::decode(&[image(Place::Critical(mc, 0)), image(Place::Critical(mc, 1))])
    };
    let states: Vec<CriticalState> = (0..geometry.controllers).map(|mc| read(&|place| image.read(place), mc)).collect();
    if fault == Some(Fault::ResetBeforeDurable) {
        reset(image, &states);
    }
    let mut recovered = Recovered::default();
    for mc in 0..geometry.controllers {
        undo_controller(image, geometry, &states, mc, fault, &mut recovered)?;
    }
    image.fence();
    reset(image, &states);
    Ok(recovered)
}

/// A valid record.
struct Record {
    at: u32,
    header: UndoHeader,
}

fn undo_controller(
    image: &mut impl Image,
    geometry: Geometry,
    states: &[CriticalState],
    mc: u8,
    fault: Option<Fault>,
    recovered: &mut Recovered,
) -> Result<(), RecoveryError> {
    let state = &states[usize::from(mc)];
    let mut records: Vec<Vec<Record>> = (0..SLOTS).map(|_| Vec::new()).collect();
    let is_open = |slot: usize| {
        let home = &states[slot % states.len()];
        fault == Some(Fault::Broadcast) || state.phase(slot) == home.phase(slot)
    };
    let mut current = vec![false; geometry.buckets];
    if (0..SLOTS).all(|slot| state.current(slot).is_none()) {
        return Ok(());
    }
    for (slot, of_slot) in records.iter_mut().enumerate() {
        let undone = state.named_bucket(slot).filter(|_| state.current(slot).is_none());
        if let Some(bucket) = undone.and_then(|bucket| current.get_mut(usize::from(bucket))) {
            *bucket = true;
        }
        let Some((bucket, count)) = state.current(slot) else { continue };
        let known = current.get_mut(usize::from(bucket)).filter(|_| state.is_allocated(usize::from(bucket)));
        *known.ok_or(RecoveryError::Bucket { slot: slot as u8, bucket })? = true;
        if !is_open(slot) {
            recovered.committed += 1;
            continue;
        }
        for record in 0..count.min(geometry.records) {
            of_slot.push(valid_record(image, geometry, mc, (bucket, record), Some(slot as u8))?);
        }
    }
    if fault != Some(Fault::CurrentBucketsOnly) {
        let full = (0..geometry.buckets).filter(|&bucket| state.is_allocated(bucket) && !current[bucket]);
        for bucket in full {
            let first = valid_record(image, geometry, mc, (bucket as u8, 0), None)?;
            let slot = usize::from(first.header.slot());
            if state.current(slot).is_none() || !is_open(slot) {
                continue;
            }
            recovered.from_full_buckets += u64::from(geometry.records);
            records[slot].push(first);
            for record in 1..geometry.records {
                records[slot].push(valid_record(image, geometry, mc, (bucket as u8, record), Some(slot as u8))?);
            }
        }
    }
    for of_slot in &mut records {
        undo_update(image, mc, of_slot, fault, recovered)?;
    }
    Ok(())
}

fn valid_record(
    image: &impl Image,
    geometry: Geometry,
    mc: u8,
    (bucket, record): (u8, u16),
    slot: Option<u8>,
) -> Result<Record, RecoveryError> {
    let at = geometry.record(bucket, record);
    let header = UndoHeader::decode(&image.read(Place::Log(mc, at + LINES_PER_RECORD as u32)))
        .map_err(|reason| RecoveryError::Header { controller: mc, at, reason })?;
    match slot {
        Some(wanted) if wanted != header.slot() => {
            Err(RecoveryError::Slot { controller: mc, at, found: header.slot(), wanted })
        }
        _ => Ok(Record { at, header }),
    }
}

/// Writes the entries of an update back, newest first.
fn undo_update(
    image: &mut impl Image,
    mc: u8,
    records: &mut [Record],
    fault: Option<Fault>,
    recovered: &mut Recovered,
) -> Result<(), RecoveryError> {
    records.sort_unstable_by_key(|record| record.header.number());
    let mut entries = Vec::new();
    for record in records.iter() {
        recovered.partial += u64::from(record.header.count() < LINES_PER_RECORD);
        let mut addresses: Vec<u64> = record.header.addresses().collect();
        if fault == Some(Fault::SevenEntries) {
            addresses.resize(LINES_PER_RECORD, 0);
        }
        for (index, address) in addresses.into_iter().enumerate() {
            let line = u32::try_from(address / LINE_BYTES as u64).ok().filter(|line| *line < image.lines());
            let line = line.ok_or(RecoveryError::Address { controller: mc, at: record.at })?;
            entries.push((mc, record.at + index as u32, line));
        }
    }
    if fault != Some(Fault::OldestFirst) {
        entries.reverse();
    }
    for &(mc, at, line) in &entries {
        let old = image.read(Place::Log(mc, at));
        image.write(Place::Data(line), old);
    }
    recovered.undone.extend(entries);
    Ok(())
}

/// Puts every slot out of use, then frees the buckets.
fn reset(image: &mut impl Image, states: &[CriticalState]) {
    let mut after: Vec<CriticalState> = states.to_vec();
    for (mc, state) in after.iter_mut().enumerate() {
        for slot in 0..SLOTS {
            state.retire(slot, states[slot % states.len()].phase(slot));
        }
        image.write(Place::Critical(mc as u8, 1), state.encode()[1]);
    }
    image.fence();
    for (mc, state) in after.iter_mut().enumerate() {
        state.free_all();
        image.write(Place::Critical(mc as u8, 0), state.encode()[0]);
    }
    image.fence();
}
