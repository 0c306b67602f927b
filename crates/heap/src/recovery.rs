//! Recovery: undoes the updates that a crash has interrupted, from the records alone.
//!
//! 1. For each slot, read the number of its last finished update.
//! 2. Look at the first record of each bucket. If it is valid for the unfinished update of its
//!    slot, the bucket belongs to this update, and the record's number says which bucket it is.
//! 3. Of each update, read the records 0, 1, ... as far as they are valid.
//! 4. Write all lines back, newest first, and fence.
//! 5. Raise the numbers of all slots, and fence. An update whose first record was lost in a power
//!    cut may have left later ones; they must not count for the next update of its slot. The
//!    numbers that were found are durable only now: a process may have been killed before it had
//!    flushed one.
//!
//! It may be interrupted anywhere and be repeated. Before step 5 the records are still valid, and
//! writing old contents twice is writing them once. A power cut within step 5 leaves some slots
//! whose lines are written back again; no other transaction has run meanwhile. The lines of two
//! slots are different ones, because a line has one writer at a time and a finished update ends
//! durably before its lines may be written by others.

use std::collections::BTreeMap;

use duramen_types::planted;
use duramen_types::undo_record::LINE_BYTES;

use crate::error::{Error, Result};
use crate::layout::{LINE, Layout};
use crate::medium::{Barrier, Medium};
use crate::undo_log::{OldLine, end_update, read_record, slot_of_record};

/// What recovery has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Transactions that were undone.
    pub transactions: u64,
    /// Undo records that were applied.
    pub records: u64,
    /// Lines that were written back.
    pub lines: u64,
}

/// Undoes what was interrupted; returns the number of each slot's next update.
pub(crate) fn recover(medium: &Medium, layout: &Layout) -> Result<(Vec<u64>, Recovered)> {
    let mut next = numbers(medium, layout)?;
    let mut done = Recovered::default();
    let buckets = buckets_by_slot(medium, layout, &next)?;
    let mut undone = Vec::new();
    for (slot, buckets) in (0..).zip(&buckets) {
        let records = records_of(medium, layout, (slot, next[slot as usize]), buckets);
        if records.is_empty() {
            continue;
        }
        check_homes(medium, layout, &records)?;
        done.transactions += 1;
        done.records += records.len() as u64;
        done.lines += records.iter().map(Vec::len).sum::<usize>() as u64;
        undone.push((slot, records));
    }
    if planted!(EndedBeforeUndone) {
        raise(medium, layout, &mut next);
        write_back(medium, &undone);
        return Ok((next, done));
    }
    write_back(medium, &undone);
    raise(medium, layout, &mut next);
    Ok((next, done))
}

type Undone = [(u32, Vec<Vec<OldLine>>)];

fn write_back(medium: &Medium, undone: &Undone) {
    for (line, old) in undone.iter().flat_map(|(_, records)| records.iter().rev()).flat_map(|lines| lines.iter().rev())
    {
        medium.store(line * LINE, old);
        medium.flush(line * LINE, LINE_BYTES);
    }
    if !undone.is_empty() {
        medium.barrier(Barrier::Home);
    }
}

fn raise(medium: &Medium, layout: &Layout, next: &mut [u64]) {
    for (slot, next) in (0..).zip(next) {
        end_update(medium, layout, slot, *next);
        *next += 1;
    }
    medium.barrier(Barrier::End);
}

/// Returns the number of each slot's unfinished update.
fn numbers(medium: &Medium, layout: &Layout) -> Result<Vec<u64>> {
    let number = |slot| {
        let at = layout.slot(slot);
        let finished = layout.unseal(at, medium.read_word(at));
        finished.map(|number| number + 1).ok_or_else(|| corrupt(medium, at, format!("the number of slot {slot}")))
    };
    (0..layout.header.log.slots).map(number).collect()
}

/// Returns the buckets of the unfinished update of each slot, by their place in the update.
fn buckets_by_slot(medium: &Medium, layout: &Layout, next: &[u64]) -> Result<Vec<BTreeMap<u32, u32>>> {
    let mut buckets = vec![BTreeMap::new(); next.len()];
    for bucket in 0..layout.header.log.buckets {
        let at = layout.record(bucket, 0);
        let Some(slot) = slot_of_record(medium, at) else { continue };
        let Some(number) = next.get(slot as usize) else { continue };
        let Some((record, _)) = read_record(medium, layout, at, (slot, *number)) else { continue };
        let (place, rest) = (record / layout.header.log.records, record % layout.header.log.records);
        if rest != 0 || buckets[slot as usize].insert(place, bucket).is_some() {
            let reason = format!("bucket {bucket} has no place among those of slot {slot}: its first record");
            return Err(corrupt(medium, at, reason));
        }
    }
    Ok(buckets)
}

/// Returns the valid records of an update, oldest first.
fn records_of(medium: &Medium, layout: &Layout, update: (u32, u64), buckets: &BTreeMap<u32, u32>) -> Vec<Vec<OldLine>> {
    let per_bucket = layout.header.log.records;
    let at = |number: u32| Some(layout.record(*buckets.get(&(number / per_bucket))?, number % per_bucket));
    let read = |number: u32| {
        let (found, lines) = read_record(medium, layout, at(number)?, update)?;
        (found == number).then_some(lines)
    };
    (0..).map_while(read).collect()
}

fn check_homes(medium: &Medium, layout: &Layout, records: &[Vec<OldLine>]) -> Result<()> {
    let foreign = records.iter().flatten().find(|(line, _)| !layout.is_home(line * LINE));
    foreign.map_or(Ok(()), |(line, _)| {
        Err(corrupt(medium, line * LINE, "an undo record names an address that belongs to no object".to_owned()))
    })
}

fn corrupt(medium: &Medium, offset: u64, reason: String) -> Error {
    Error::Corrupt { location: medium.location().to_owned(), offset, reason }
}
