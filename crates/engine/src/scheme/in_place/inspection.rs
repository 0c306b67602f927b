//! What the journals of a closed heap hold, for inspection.

use duramen_types::{Gsn, PageId, TxnId};

use super::journal::{self, JournalState, Journals};
use super::page_log;
use super::record::Record;
use crate::heap::Heap;

/// A journal whose head word does not say that it is free.
#[derive(Clone, Debug)]
pub(crate) struct JournalInUse {
    /// The journal's first block.
    pub(crate) first: u32,
    /// Whether it is one of the journals for changes that no transaction owns.
    pub(crate) is_system: bool,
    pub(crate) state: JournalState,
    pub(crate) lease: u64,
    /// What was recorded in it; `None` if no record of its lease is there.
    pub(crate) contents: Option<Contents>,
}

/// The records of a journal.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) blocks: u64,
    pub(crate) txn: TxnId,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// The kind and the GSN of the latest record.
    pub(crate) kind: u8,
    pub(crate) gsn: Gsn,
    /// The pages of the latest record, each with the number of lines.
    pub(crate) pages: Vec<(PageId, u32)>,
}

/// A page log that is valid: recovery will take its pages back to the lines in it.
#[derive(Clone, Debug)]
pub(crate) struct PageLogInUse {
    /// The block.
    pub(crate) first: u32,
    pub(crate) lease: u64,
    /// The pages, each with the number of lines; `None` if the log fails its checksum.
    pub(crate) pages: Option<Vec<(PageId, u32)>>,
}

/// Reads the page logs of a heap that are valid, whatever its bytes are.
pub(crate) fn page_logs_in_use(heap: &Heap) -> Vec<PageLogInUse> {
    let blocks = 0..u32::try_from(heap.layout.blocks).unwrap_or(u32::MAX);
    let found = blocks.filter_map(|first| page_log::find_one(heap, first).map(|found| (first, found)));
    let in_use = found.map(|(first, (lease, record))| {
        let lines_of = |record: Record| record.pages().map(|(page, lines, _)| (page, lines.count())).collect();
        PageLogInUse { first, lease, pages: record.map(lines_of) }
    });
    in_use.collect()
}

/// Reads the journals of a heap that are in use, whatever its bytes are.
pub(crate) fn journals_in_use(heap: &Heap) -> Vec<JournalInUse> {
    let blocks = 0..u32::try_from(heap.layout.blocks).unwrap_or(u32::MAX);
    blocks.filter_map(|first| of_block(heap, first)).collect()
}

/// Returns the number of journals for changes that no transaction owns.
pub(crate) fn system_journals(heap: &Heap) -> u64 {
    Journals::system_of(heap).into()
}

fn of_block(heap: &Heap, first: u32) -> Option<JournalInUse> {
    let (state, lease) = journal::head_of(heap.word_at(heap.layout.block(first)));
    if matches!(state, JournalState::Free | JournalState::PageLog) {
        return None;
    }
    let contents = journal::find_one(heap, first).map(|found| Contents {
        blocks: found.blocks.len() as u64,
        txn: found.txn,
        records: found.records.0,
        bytes: found.records.1,
        kind: found.last.raw_kind(),
        gsn: found.last.gsn(),
        pages: found.last.pages().map(|(page, lines, _)| (page, lines.count())).collect(),
    });
    Some(JournalInUse { first, is_system: first < Journals::system_of(heap), state, lease, contents })
}
