//! Page logs: the old lines of pages, kept while the new ones are stored (`persist_page` in figure
//! 2 of Pelley et al.). Only the barriers of the paper need them.
//!
//! A page log is in the block of one of the journals for changes that no transaction owns. It
//! covers all pages of a change, so that one word makes it valid and invalid for all of them:
//!
//! | bytes of the block | content |
//! |---|---|
//! | 0 to 8 | head word: lease × 4 + 3 while the log is valid, lease × 4 otherwise |
//! | 64 on | a record, sealed for this lease, that holds the old lines |
//!
//! The record is durable before the log becomes valid. A valid log whose record fails its checksum
//! is therefore damage, and not what a crash leaves.

use duramen_sync::MutexGuard;

use super::journal::{Journal, JournalState, Journals, head_of};
use super::record::{Fields, Held, Record, Seed};
use crate::error::{Error, Result};
use crate::heap::{BLOCK_BYTES, Heap, LINE};
use crate::pool::Exclusive;

/// A page log in use. The block is the holder's until this is dropped.
pub(super) struct PageLog<'j> {
    heap: &'j Heap,
    journal: MutexGuard<'j, Journal>,
}

impl<'j> PageLog<'j> {
    /// Copies the lines of the pages that have changed from the heap, where the new ones are not
    /// yet. Not durable before the next barrier of the calling thread.
    pub(super) fn of_old_lines(
        journals: &'j Journals,
        heap: &'j Heap,
        fields: Fields<'_>,
        pages: &[Exclusive<'_>],
    ) -> Self {
        let mut journal = journals.system_block();
        let journal_of = &mut *journal;
        let first = journal_of.blocks[0];
        let len = journal_of.writer.put_together(Fields { undo: &[], ..fields }, pages, Held::Old(heap));
        assert!(len <= BLOCK_BYTES - LINE, "a page log of {len} bytes is larger than any");
        let seed = Seed { database: heap.header.database, lease: journal_of.lease, first_block: first };
        let address = heap.layout.block(first) + LINE;
        heap.store(address, &[journal_of.writer.seal(seed, address)]);
        Self { heap, journal }
    }

    /// From the next barrier on, a crash takes the pages back to their old lines.
    pub(super) fn mark_valid(&self) {
        self.set_state(JournalState::PageLog);
    }

    /// From the next barrier on, a crash leaves the pages as they are.
    pub(super) fn mark_invalid(&self) {
        self.set_state(JournalState::Free);
    }

    fn set_state(&self, state: JournalState) {
        let word = self.journal.lease << 2 | state as u64;
        self.heap.store(self.heap.layout.block(self.journal.blocks[0]), &[&word.to_le_bytes()]);
    }
}

/// A page log that was valid when the heap was left.
#[derive(Debug)]
pub(super) struct FoundLog {
    /// The block.
    pub(super) first: u32,
    lease: u64,
    /// The old lines.
    pub(super) record: Record,
}

impl FoundLog {
    /// Makes the log invalid. Not durable before the next barrier of the calling thread.
    pub(super) fn invalidate(&self, heap: &Heap) {
        let word = self.lease << 2 | JournalState::Free as u64;
        heap.store(heap.layout.block(self.first), &[&word.to_le_bytes()]);
    }
}

/// Reads the page logs that are valid.
///
/// # Errors
/// [`Error::Corrupt`] if one fails its checksum.
pub(super) fn find(heap: &Heap) -> Result<Vec<FoundLog>> {
    let mut found = Vec::new();
    for first in 0..heap.layout.blocks as u32 {
        let Some((lease, record)) = find_one(heap, first) else { continue };
        let record = record.ok_or_else(|| Error::Corrupt {
            file: heap.location().to_owned(),
            offset: heap.layout.block(first),
            page: None,
            reason: "a page log is marked valid, but the checksum of its record is wrong".to_owned(),
        })?;
        found.push(FoundLog { first, lease, record });
    }
    Ok(found)
}

/// Reads the page log in a block; `None` if there is no valid one. Returns its lease, and its
/// record unless that fails its checksum.
pub(super) fn find_one(heap: &Heap, first: u32) -> Option<(u64, Option<Record>)> {
    let start = heap.layout.block(first);
    let (state, lease) = head_of(heap.word_at(start));
    if state != JournalState::PageLog {
        return None;
    }
    let seed = Seed { database: heap.header.database, lease, first_block: first };
    Some((lease, Record::read(heap, seed, start + LINE, start + BLOCK_BYTES)))
}
