//! Recovery from the batch log, as far as the heap alone tells: the module `group_commit` says why
//! it is right.

use duramen_types::{Gsn, LogAddress, TxnId};

use super::batch::store_lines;
use super::format::{Batch, Composer, LineKind, StackState, Summary, UNDO_BLOCK, half_of, offset_of};
use super::stacks::{Resumed, address_of, entry_at, place_of, top_of};
use crate::error::{Error, Result};
use crate::heap::{Heap, State, Word};
use crate::metrics::RecoveryReport;
use crate::record::Kind;

/// An entry of an interrupted transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PastEntry<'b> {
    /// The entry below.
    pub(crate) prev: LogAddress,
    pub(crate) gsn: Gsn,
    pub(crate) kind: Kind,
    pub(crate) payload: &'b [u8],
}

/// The number of the empty batch that a new heap begins with.
const FIRST_BATCH: u64 = 1;

/// What the batch log of a heap holds after a crash.
#[derive(Debug)]
pub(crate) struct Batches {
    summary: Summary,
    resumed: Vec<Resumed>,
}

/// Stores the record of the first batch, which is empty. Durable after the next barrier.
pub(crate) fn create_log(heap: &Heap) {
    let mut composer = Composer::default();
    composer.begin();
    let summary = Summary { batch: FIRST_BATCH, next_txn: TxnId::new(1), groups: 1 };
    composer.end(LineKind::New, summary, &[]);
    let (head, _) = composer.seal(heap.header.database);
    heap.stream(half_of(heap, FIRST_BATCH).0, head);
}

impl Batches {
    /// Finds the latest batch, and brings its lines home.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is no whole record, or it names a page that is not in the heap.
    pub(crate) fn repeat(heap: &Heap, report: &mut RecoveryReport) -> Result<Self> {
        let found = [0, 1].map(|parity| Batch::read(heap, parity));
        report.records = found.iter().flatten().count() as u64;
        let latest = Self::latest(heap, found, report)?;
        let resumed = resumed(heap, &latest)?;
        if heap.get(Word::State) == State::Clean as u64 {
            return Ok(Self { summary: latest.summary, resumed });
        }
        // What was found may so far be in caches only.
        heap.stream(half_of(heap, latest.summary.batch).0, latest.bytes());
        for Resumed { carried, bytes } in &resumed {
            for (block, used) in carried.blocks.iter().zip(bytes.chunks(UNDO_BLOCK as usize)) {
                let at = offset_of(heap, block.number).ok_or_else(|| corrupt(heap, "no such undo block"))?;
                heap.store(at, &[used]);
            }
        }
        if latest.kind == LineKind::Old {
            heap.store(Word::CommittedBatch as u64, &[&latest.summary.batch.to_le_bytes()]);
        }
        heap.barrier();
        if latest.kind == LineKind::New {
            bring_home(heap, &latest, report)?;
        }
        Ok(Self { summary: latest.summary, resumed })
    }

    /// Returns the latest batch that is committed, after taking back the lines of one that is not.
    fn latest(heap: &Heap, found: [Option<Batch>; 2], report: &mut RecoveryReport) -> Result<Batch> {
        let mut found: Vec<Batch> = found.into_iter().flatten().collect();
        found.sort_by_key(|batch| batch.summary.batch);
        let none = || corrupt(heap, "neither half of the batch log has a whole record of a committed batch");
        let latest = found.pop().ok_or_else(none)?;
        let number = latest.summary.batch;
        if latest.kind == LineKind::New || heap.get(Word::CommittedBatch) >= number {
            return Ok(latest);
        }
        if heap.get(Word::LoggedBatch) >= number {
            bring_home(heap, &latest, report)?;
        }
        found.pop().filter(|before| before.summary.batch + 1 == number).ok_or_else(none)
    }

    /// Returns the number of the latest durable batch.
    pub(crate) fn batch(&self) -> u64 {
        self.summary.batch
    }

    pub(crate) fn next_txn(&self) -> TxnId {
        self.summary.next_txn
    }

    pub(crate) fn groups(&self) -> u64 {
        self.summary.groups
    }

    pub(super) fn resumed(&self) -> &[Resumed] {
        &self.resumed
    }

    /// Returns the transactions that the crash has interrupted: the number of each, whether it has
    /// committed, and its latest entry.
    pub(crate) fn interrupted(&self) -> impl Iterator<Item = (TxnId, bool, LogAddress)> {
        (0..).zip(&self.resumed).map(|(home, resumed)| {
            let has_committed = resumed.carried.state == StackState::Committed;
            (resumed.carried.txn, has_committed, address_of(home, top_of(&resumed.bytes)))
        })
    }

    /// Reads an entry of one of these transactions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if there is none.
    pub(crate) fn read(&self, heap: &Heap, address: LogAddress) -> Result<PastEntry<'_>> {
        let (home, entry) = place_of(address);
        let found = self.resumed.get(home as usize).and_then(|resumed| {
            let entry = entry_at(&resumed.bytes, usize::try_from(entry.checked_sub(1)?).ok()?)?;
            Some((entry, Kind::from_u8(entry.kind)?))
        });
        let (found, kind) =
            found.ok_or_else(|| corrupt(heap, "the undo information of an interrupted transaction is damaged"))?;
        // The order of the entries takes the place of GSNs, which count batches.
        let gsn = Gsn::new(entry);
        Ok(PastEntry { prev: address_of(home, found.prev), gsn, kind, payload: found.payload })
    }
}

/// Stores the lines of a record to their pages, durably.
fn bring_home(heap: &Heap, batch: &Batch, report: &mut RecoveryReport) -> Result<()> {
    for (page, lines, contents) in batch.pages() {
        if page.get() >= heap.layout.pages {
            return Err(corrupt(heap, &format!("a batch names {page}, which is behind the end of the heap")));
        }
        report.pages += 1;
        report.redone += 1;
        store_lines(heap, page, lines, contents);
    }
    heap.barrier();
    Ok(())
}

fn resumed(heap: &Heap, latest: &Batch) -> Result<Vec<Resumed>> {
    let read = |carried: &super::format::Carried| {
        let bytes = carried.read(heap).ok_or_else(|| corrupt(heap, "an undo block of a batch is damaged"))?;
        Ok(Resumed { carried: carried.clone(), bytes })
    };
    latest.carried.iter().map(read).collect()
}

fn corrupt(heap: &Heap, reason: &str) -> Error {
    let file = heap.location().to_owned();
    Error::Corrupt { file, offset: heap.layout.batch_log(), page: None, reason: reason.to_owned() }
}
