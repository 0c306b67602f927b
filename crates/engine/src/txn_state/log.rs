//! A transaction's log state: its chain of records, its private undo buffer in DRAM, and its log
//! reservation.
//!
//! Each update puts its inverse into the undo buffer when it is logged, so that a rollback never
//! reads the log (Scalable logging through NVM, section 3).
//!
//! # Log space
//! Before an operation, [`TxnLog::reserve_log`] reserves log space for the operation's records, and
//! for undoing everything that the transaction has done, including this operation. A rollback
//! therefore always finds space. A transaction that would need more than the log can give is
//! refused while it can still be rolled back.

use duramen_sync::Arc;
use duramen_types::{Gsn, LogAddress, PageId, TxnId};
use duramen_wal::NewRecord;

use super::table::{TxnEntry, TxnSlot, TxnState, TxnTable};
use crate::error::{Error, Result};
use crate::pool::Exclusive;
use crate::record::{
    DeferredFree, FLAG_HAS_DEFERRED_FREES, FLAG_SEVERAL_PAGES, Kind, PageOp, Reader, Tree, Undo, put_number, put_update,
};
use crate::scheme::{Change, Home, Recorded, StorageScheme};
use crate::storage::mini_transaction::MiniTransaction;
use crate::timestamp::Timestamp;

/// Log space is reserved in steps of this many bytes.
const STEP_BYTES: u64 = 64 << 10;

/// Bits of an overflow chain's number that count the chains of one transaction; the others are the
/// transaction's number.
const CHAIN_BITS: u32 = 20;

/// Transaction ids stay below this limit, because the numbers of overflow chains have no bits for
/// more.
pub(crate) const TXN_LIMIT: TxnId = TxnId::new(1 << (64 - CHAIN_BITS));

/// The most overflow chains that one transaction can write.
const MOST_OVERFLOW_CHAINS: u64 = (1 << CHAIN_BITS) - 1;

/// Bytes of payload, at most, with which the operations of freeing a page are recorded.
const ALLOCATION_BYTES: usize = 64;

/// Bytes of payload, at most, with which the flags of one record are set in a compensation.
const COMPENSATION_BYTES: usize = 32;

/// What a rollback does with one entry of the undo buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inverse {
    /// The bytes are an [`Undo`].
    Undo,
    /// The bytes are a [`DeferredFree`], which a rollback drops.
    DeferredFree,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    inverse: Inverse,
    /// End of the entry's bytes in the arena.
    end: usize,
    /// The record that this entry undoes.
    address: LogAddress,
    /// The transaction's record before that one.
    prev: LogAddress,
    /// The deletion that made records ghosts with this update.
    deletion: Option<Deletion>,
    /// Bytes of log reserved for undoing it.
    undo_bytes: u64,
}

/// A deletion of a record, or of the records of a range, of which each update has the same number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Deletion(u32);

impl Deletion {
    /// A deletion of one record.
    pub(crate) const ONE: Self = Self(0);
}

/// Bytes of memory for changes that a finished transaction leaves to the next one.
const MOST_KEPT: usize = 1 << 20;

/// The log state of one transaction. Reused from transaction to transaction, to keep its buffers.
#[derive(Debug, Default)]
pub(crate) struct TxnLog {
    txn: TxnId,
    slot: Arc<TxnSlot>,
    entered: bool,
    /// The place that takes the transaction's records.
    home: Home,
    /// The transaction's clock: its next records get higher GSNs.
    clock: Gsn,
    entries: Vec<Entry>,
    arena: Vec<u8>,
    scratch: Statement,
    /// Bytes reserved and not given back.
    reserved: u64,
    /// Bytes of `reserved` that records have used up.
    used: u64,
    /// Bytes that a rollback of everything would need.
    undo_bytes: u64,
    /// Overflow values written so far.
    overflow_chains: u64,
    /// Deletions of ranges so far.
    deletions: u32,
    /// Ghosts that rollbacks to savepoints have left.
    left_behind: Vec<(Tree, Vec<u8>)>,
    /// How many of them were different when that was last seen to.
    different: usize,
}

/// An update of one page, as it is recorded.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    /// The inverse, and what follows it.
    bytes: Vec<u8>,
    /// Where the inverse ends.
    operation: usize,
    /// Whether a log takes the update: then its payload follows the inverse, in the shortest form.
    /// Otherwise the operation follows.
    is_logged: bool,
}

impl Statement {
    fn begin(&mut self, is_logged: bool) {
        self.bytes.clear();
        self.is_logged = is_logged;
    }

    /// States the inverse and the operation; returns the operation.
    #[inline]
    pub(crate) fn put<'e>(&mut self, undo: &Undo<'_>, op: PageOp<'e>) -> PageOp<'e> {
        undo.encode(&mut self.bytes);
        self.operation = self.bytes.len();
        if self.is_logged {
            put_update(&mut self.bytes, undo, &op);
        } else {
            op.encode(&mut self.bytes);
        }
        op
    }

    fn inverse(&self) -> &[u8] {
        &self.bytes[..self.operation]
    }

    /// Returns the payload of the record, and where the operation begins in it unless a log takes
    /// it.
    fn payload(&self) -> (&[u8], usize) {
        if self.is_logged { (&self.bytes[self.operation..], 0) } else { (&self.bytes, self.operation) }
    }
}

/// A record of a transaction that recovery resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PastRecord<'a> {
    pub(crate) address: LogAddress,
    /// The transaction, if the record tells.
    pub(crate) txn: Option<TxnId>,
    /// The transaction's record before it.
    pub(crate) prev: LogAddress,
    pub(crate) gsn: Gsn,
    pub(crate) kind: Kind,
    /// Begins with how to undo the change.
    pub(crate) payload: &'a [u8],
}

/// A record that still lacks the transaction's id and the address of the previous record.
#[derive(Clone, Copy)]
struct Draft<'a> {
    kind: Kind,
    flags: u8,
    page: PageId,
    after: Gsn,
    payload: &'a [u8],
}

impl<'a> Draft<'a> {
    /// Creates a draft about pages.
    const fn of_page(kind: Kind, flags: u8, page: PageId, after: Gsn, payload: &'a [u8]) -> Self {
        Self { kind, flags, page, after, payload }
    }

    /// Creates a draft about the transaction itself.
    const fn of_txn(kind: Kind, flags: u8, payload: &'a [u8]) -> Self {
        Self::of_page(kind, flags, PageId::ZERO, Gsn::ZERO, payload)
    }
}

/// A transaction's request to a full log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Missing {
    /// Bytes to reserve.
    pub(crate) bytes: u64,
    pub(crate) txn: TxnId,
    /// GSN of the transaction's first record, or zero.
    pub(crate) first: Gsn,
    /// Bytes that the transaction has reserved already.
    pub(crate) reserved: u64,
}

/// A point in a transaction to roll back to; by default its beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Mark(usize);

impl TxnLog {
    /// Begins a transaction.
    pub(crate) fn begin(&mut self, txn: TxnId) {
        debug_assert!(!self.entered && self.entries.is_empty() && self.reserved == 0);
        self.txn = txn;
        self.overflow_chains = 0;
        self.left_behind.clear();
        self.different = 0;
        self.clock = Gsn::ZERO;
    }

    /// Restores the log state of a transaction that recovery has found in the log, to finish it.
    pub(crate) fn resume(&mut self, scheme: &dyn StorageScheme, txns: &TxnTable, entry: TxnEntry) {
        self.begin(entry.txn);
        self.home = scheme.home_of(entry.txn, entry.last);
        txns.enter(&self.slot, entry);
        self.entered = true;
    }

    /// Puts the inverse of an update into the undo buffer of a resumed transaction. The updates
    /// come latest first, as recovery reads them; [`Self::end_recall`] follows the last one.
    pub(crate) fn recall_update(&mut self, scheme: &dyn StorageScheme, record: &PastRecord<'_>, undo: Undo<'_>) {
        let start = self.arena.len();
        undo.encode(&mut self.arena);
        let payload = match undo {
            // Giving the page back does not need its image.
            Undo::Allocate { .. } => self.arena.len() - start + ALLOCATION_BYTES,
            _ => record.payload.len(),
        };
        self.recall(scheme, Inverse::Undo, start, record, payload);
        if let Undo::Delete { keys, .. } = undo {
            self.expect_compensations(scheme, keys.count());
        }
    }

    /// Does the same as [`Self::recall_update`] for a deferred free.
    pub(crate) fn recall_deferred_free(
        &mut self,
        scheme: &dyn StorageScheme,
        record: &PastRecord<'_>,
        free: DeferredFree,
    ) {
        let start = self.arena.len();
        free.encode(&mut self.arena);
        self.recall(scheme, Inverse::DeferredFree, start, record, record.payload.len());
    }

    fn recall(
        &mut self,
        scheme: &dyn StorageScheme,
        inverse: Inverse,
        start: usize,
        record: &PastRecord<'_>,
        payload: usize,
    ) {
        let undo_bytes = scheme.space_for_undo(payload, self.arena.len() - start);
        // `end_recall` reverses the whole arena, which restores these bytes.
        self.arena[start..].reverse();
        let (address, prev) = (record.address, record.prev);
        self.entries.push(Entry { inverse, end: start, address, prev, deletion: None, undo_bytes });
        self.undo_bytes += undo_bytes;
    }

    /// Puts the recalled entries into their original order. It does so in place, because the buffer
    /// may be large.
    pub(crate) fn end_recall(&mut self) {
        self.arena.reverse();
        self.entries.reverse();
        for entry in &mut self.entries {
            entry.end = self.arena.len() - entry.end;
        }
    }

    /// Returns the GSN of the transaction's latest record, or zero.
    pub(crate) fn latest(&self) -> Gsn {
        self.clock
    }

    /// Returns the GSN of the transaction's first record, or zero.
    pub(crate) fn first(&self) -> Gsn {
        if self.entered { self.slot.first() } else { Gsn::ZERO }
    }

    /// Returns whether the transaction has written to the log.
    pub(crate) fn has_written(&self) -> bool {
        self.entered
    }

    /// Returns a number for an overflow chain that no other chain of the database has.
    ///
    /// # Errors
    /// [`Error::TooManyLargeValues`] if the transaction's numbers are used up. The transaction may
    /// continue otherwise.
    pub(crate) fn next_overflow_chain(&mut self) -> Result<u64> {
        if self.overflow_chains == MOST_OVERFLOW_CHAINS {
            return Err(Error::TooManyLargeValues { limit: MOST_OVERFLOW_CHAINS });
        }
        self.overflow_chains += 1;
        Ok((self.txn.get() << CHAIN_BITS) | self.overflow_chains)
    }

    /// Returns the bytes that [`Self::reserve_log`] would have to request for a record with `bytes`
    /// of payload, if the reservation is too small.
    fn lacks_reservation(&self, scheme: &dyn StorageScheme, bytes: u64) -> Option<u64> {
        let needed = self.used + self.undo_bytes + scheme.space_for_operation(bytes);
        needed.checked_sub(self.reserved).filter(|&missing| missing > 0)
    }

    /// Reserves log space for an operation whose record has up to `bytes` of payload, and for its
    /// undo; returns whether it had to request space from the log. Called without latches: if the
    /// log is full, `when_full` reserves the missing space, which may take long. `when_full` is
    /// also called for a transaction without a reservation if `has_line` reports that others wait
    /// for log space.
    #[inline]
    pub(crate) fn reserve_log(
        &mut self,
        scheme: &dyn StorageScheme,
        bytes: usize,
        has_line: impl FnOnce() -> bool,
        when_full: impl FnOnce(Missing) -> Result<()>,
    ) -> Result<bool> {
        let Some(missing) = self.lacks_reservation(scheme, bytes as u64) else { return Ok(false) };
        if self.txn >= TXN_LIMIT {
            return Err(Error::Poisoned {
                reason: "all transaction numbers are used; copy the data into a new database".to_owned(),
            });
        }
        let step = missing.next_multiple_of(STEP_BYTES);
        let is_new = self.reserved == 0 && !self.entered;
        let reserved = if is_new && has_line() { None } else { Some(scheme.reserve(step)) };
        match reserved {
            None | Some(Err(Error::Full { .. })) => {
                self.give_back_used(scheme);
                let first = self.first();
                when_full(Missing { bytes: step, txn: self.txn, first, reserved: self.reserved })?;
            }
            Some(other) => other?,
        }
        self.reserved += step;
        self.give_back_used(scheme);
        Ok(true)
    }

    /// Gives back the part of the reservation that records have used. The records may have taken
    /// more than was reserved.
    fn give_back_used(&mut self, scheme: &dyn StorageScheme) {
        let used = self.used.min(self.reserved);
        if used > 0 {
            scheme.unreserve(used);
            self.reserved -= used;
            self.used -= used;
        }
        self.slot.note_reserved(self.reserved);
    }

    /// Counts the bytes of log that system transactions have taken on this transaction's behalf.
    pub(crate) fn charge(&mut self, bytes: u64) {
        self.used += bytes;
    }

    /// Reserves the log space that a rollback at recovery needs, because nothing was reserved for
    /// it in this run.
    pub(crate) fn reserve_for_recovery(&mut self, scheme: &dyn StorageScheme) -> Result<()> {
        self.reserve(scheme, scheme.space_for_operation(0))
    }

    /// Reserves all the log space that a rollback needs if other transactions may take the
    /// remaining space at the same time.
    pub(crate) fn reserve_for_rollback(&mut self, scheme: &dyn StorageScheme) -> Result<()> {
        self.reserve(scheme, self.undo_bytes + scheme.space_for_operation(0))
    }

    fn reserve(&mut self, scheme: &dyn StorageScheme, bytes: u64) -> Result<()> {
        scheme.reserve(bytes)?;
        self.reserved += bytes;
        self.slot.note_reserved(self.reserved);
        Ok(())
    }

    fn enter(&mut self, scheme: &dyn StorageScheme, txns: &TxnTable) {
        if !self.entered {
            self.home = scheme.home(self.txn);
            txns.enter(&self.slot, TxnEntry::new(self.txn));
            self.entered = true;
        }
    }

    /// Records the transaction's next fact, which leaves it in `state`; `record` gives the record
    /// to the scheme.
    fn record(
        &mut self,
        state: TxnState,
        draft: Draft<'_>,
        record: impl FnOnce(Home, NewRecord<'_>) -> Recorded,
    ) -> Recorded {
        let (txn, home) = (self.txn, self.home);
        let Draft { kind, flags, page, after, payload } = draft;
        let after = after.max(self.clock);
        let recorded = self
            .slot
            .insert(state, |prev| record(home, NewRecord { kind: kind as u8, flags, txn, page, prev, after, payload }));
        self.clock = recorded.gsn;
        self.used += recorded.bytes;
        recorded
    }

    /// Records a change of pages; `prefix` is the length of what comes before the operations in the
    /// payload.
    fn change(
        &mut self,
        scheme: &dyn StorageScheme,
        draft: Draft<'_>,
        prefix: usize,
        pages: &mut [Exclusive<'_>],
    ) -> Recorded {
        self.record(TxnState::Active, draft, |home, record| scheme.change(Some(home), Change { record, prefix }, pages))
    }

    /// Changes a latched leaf: `describe` states the inverse and the operation, both made from the
    /// leaf's present contents, and returns the operation. `deletion` says whether it deletes.
    /// The leaf stays latched.
    pub(crate) fn update<'e>(
        &mut self,
        scheme: &dyn StorageScheme,
        txns: &TxnTable,
        leaf: &mut Exclusive<'_>,
        deletion: Option<Deletion>,
        describe: impl FnOnce(&[u8], &mut Statement) -> PageOp<'e>,
    ) -> Recorded {
        self.enter(scheme, txns);
        let mut statement = std::mem::take(&mut self.scratch);
        statement.begin(scheme.log().is_some());
        let op = describe(leaf, &mut statement);
        leaf.prepare();
        op.apply(&mut leaf.page_mut()).expect("the operation was checked against the page");
        let prev = self.slot.last();
        let (payload, prefix) = statement.payload();
        let draft = Draft::of_page(Kind::Update, 0, leaf.id(), leaf.gsn(), payload);
        let recorded = self.change(scheme, draft, prefix, std::slice::from_mut(leaf));
        let records = (recorded.address, prev);
        self.remember(scheme, Inverse::Undo, statement.inverse(), records, deletion, statement.bytes.len());
        self.scratch = statement;
        recorded
    }

    /// Logs a mini-transaction that allocates the page `allocated`; its undo frees this page.
    pub(crate) fn allocate(
        &mut self,
        scheme: &dyn StorageScheme,
        txns: &TxnTable,
        mini: MiniTransaction<'_>,
        allocated: PageId,
    ) {
        self.enter(scheme, txns);
        self.charge(mini.charged());
        let mut prefix = Vec::new();
        Undo::Allocate { page: allocated }.encode(&mut prefix);
        let prev = self.slot.last();
        let recorded = mini.record(&prefix, |page, after, payload, pages| {
            let draft = Draft::of_page(Kind::Update, FLAG_SEVERAL_PAGES, page, after, payload);
            self.change(scheme, draft, prefix.len(), pages)
        });
        let records = (recorded.address, prev);
        self.remember(scheme, Inverse::Undo, &prefix, records, None, prefix.len() + ALLOCATION_BYTES);
    }

    /// Defers freeing pages until the transaction has committed.
    pub(crate) fn free_on_commit(&mut self, scheme: &dyn StorageScheme, txns: &TxnTable, free: DeferredFree) {
        self.enter(scheme, txns);
        let mut payload = Vec::new();
        free.encode(&mut payload);
        let prev = self.slot.last();
        let draft = Draft::of_txn(Kind::FreeOnCommit, 0, &payload);
        let recorded = self.record(TxnState::Active, draft, |home, record| scheme.note(home, record));
        let records = (recorded.address, prev);
        self.remember(scheme, Inverse::DeferredFree, &payload, records, None, payload.len());
    }

    /// Puts an inverse into the undo buffer. `records` are the addresses of the record that it
    /// undoes and of the transaction's record before. `payload` is the length of the record's
    /// payload, or of that of a compensation if this is known to be shorter.
    fn remember(
        &mut self,
        scheme: &dyn StorageScheme,
        inverse: Inverse,
        bytes: &[u8],
        (address, prev): (LogAddress, LogAddress),
        deletion: Option<Deletion>,
        payload: usize,
    ) {
        self.arena.extend_from_slice(bytes);
        let undo_bytes = scheme.space_for_undo(payload, bytes.len());
        self.entries.push(Entry { inverse, end: self.arena.len(), address, prev, deletion, undo_bytes });
        self.undo_bytes += undo_bytes;
    }

    /// Reserves for the latest change what undoing it takes if its records are in different leaves
    /// by then: a compensation for each of the `records`.
    fn expect_compensations(&mut self, scheme: &dyn StorageScheme, records: usize) {
        let entry = self.entries.last_mut().expect("the change was just remembered");
        let more = records as u64 * scheme.space_for_undo(COMPENSATION_BYTES, 0);
        entry.undo_bytes += more;
        self.undo_bytes += more;
    }

    /// Deletes several records of a latched leaf as [`Self::update`] changes one.
    pub(crate) fn delete_together<'e>(
        &mut self,
        scheme: &dyn StorageScheme,
        txns: &TxnTable,
        leaf: &mut Exclusive<'_>,
        (deletion, records): (Deletion, usize),
        describe: impl FnOnce(&[u8], &mut Statement) -> PageOp<'e>,
    ) {
        self.update(scheme, txns, leaf, Some(deletion), describe);
        self.expect_compensations(scheme, records);
    }

    /// Returns the space that a transaction has to reserve, beyond [`Self::reserve_log`] for no
    /// record, before it deletes this many records together. Their undo information has `bytes`.
    pub(crate) fn bytes_to_delete(scheme: &dyn StorageScheme, records: usize, bytes: usize) -> usize {
        bytes + records * (scheme.space_for_undo(COMPENSATION_BYTES, 0) as usize)
    }

    /// Returns the current point of the transaction.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.entries.len())
    }

    /// Returns the point `changes` changes before the current one, or the beginning.
    pub(crate) fn mark_before(&self, changes: usize) -> Mark {
        Mark(self.entries.len().saturating_sub(changes))
    }

    /// Returns whether the undo buffer still has entries above `mark`.
    pub(crate) fn is_above(&self, mark: Mark) -> bool {
        self.entries.len() > mark.0
    }

    /// Copies the inverse of the latest update that is not undone yet into `bytes`. Returns `None`
    /// for a deferred free, whose undo is only a record that cancels it.
    pub(crate) fn last_inverse<'b>(&self, bytes: &'b mut Vec<u8>) -> Option<Undo<'b>> {
        let entry = self.entries.last().expect("the caller has asked is_above");
        bytes.clear();
        bytes.extend_from_slice(&self.arena[self.start_of(self.entries.len() - 1)..entry.end]);
        match entry.inverse {
            Inverse::Undo => Some(Undo::decode(&mut Reader::new(bytes)).expect("the buffer holds what was encoded")),
            Inverse::DeferredFree => None,
        }
    }

    /// Returns the address of the record to undo after the latest one: a compensation record for
    /// the latest carries it.
    pub(crate) fn undo_next(&self) -> LogAddress {
        self.entries.last().expect("the caller has asked is_above").prev
    }

    /// Returns the address of the latest record: a compensation for a part of it carries it.
    pub(crate) fn undo_again(&self) -> LogAddress {
        self.entries.last().expect("the caller has asked is_above").address
    }

    fn start_of(&self, index: usize) -> usize {
        if index == 0 { 0 } else { self.entries[index - 1].end }
    }

    /// Drops the latest entry, which has been undone.
    pub(crate) fn forget_last(&mut self) {
        let entry = self.entries.pop().expect("there is an entry to undo");
        self.undo_bytes -= entry.undo_bytes;
        self.arena.truncate(self.entries.last().map_or(0, |entry| entry.end));
    }

    /// Logs the compensation of an update; the mini-transaction holds the operations on the pages.
    pub(crate) fn compensate(&mut self, scheme: &dyn StorageScheme, undo_next: LogAddress, mini: MiniTransaction<'_>) {
        let mut prefix = Vec::new();
        put_number(&mut prefix, undo_next.get());
        mini.record(&prefix, |page, after, payload, pages| {
            self.change(scheme, Draft::of_page(Kind::Compensation, 0, page, after, payload), prefix.len(), pages)
        });
    }

    /// Calls `each` with every deferred free, oldest first.
    pub(crate) fn for_each_deferred_free(&self, mut each: impl FnMut(DeferredFree)) {
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.inverse == Inverse::DeferredFree {
                let bytes = &self.arena[self.start_of(index)..entry.end];
                each(DeferredFree::decode(bytes).expect("the buffer holds what was encoded"));
            }
        }
    }

    /// Notes ghosts that a rollback to a savepoint has left.
    pub(crate) fn leave_ghosts(&mut self, ghosts: Vec<(Tree, Vec<u8>)>) {
        self.left_behind.extend(ghosts);
        // A transaction may try the same again and again.
        if self.left_behind.len() > 2 * self.different + 64 {
            self.left_behind.sort_by(|one, other| (one.0.table, &one.1).cmp(&(other.0.table, &other.1)));
            self.left_behind.dedup();
            self.different = self.left_behind.len();
        }
    }

    /// Returns a number for a deletion of a range.
    pub(crate) fn begin_deletion(&mut self) -> Deletion {
        self.deletions = self.deletions.wrapping_add(1).max(1);
        Deletion(self.deletions)
    }

    /// Calls `each` with every record that the transaction has deleted, oldest first; with the
    /// first and the last one of those that it has deleted together. The ghosts that rollbacks to
    /// savepoints have left follow.
    pub(crate) fn for_each_ghost(&self, mut each: impl FnMut(Tree, &[u8], Option<&[u8]>, Deletion)) {
        for (index, entry) in self.entries.iter().enumerate() {
            let Some(deletion) = entry.deletion else { continue };
            let bytes = &self.arena[self.start_of(index)..entry.end];
            match Undo::decode(&mut Reader::new(bytes)).expect("the buffer holds what was encoded") {
                Undo::Insert { tree, key } | Undo::Change { tree, key, .. } => each(tree, key, None, deletion),
                Undo::Delete { tree, keys } => {
                    if let Some((first, last)) = keys.ends() {
                        each(tree, &first, Some(&last), deletion);
                    }
                }
                Undo::Allocate { .. } => {}
            }
        }
        self.for_each_left_behind(|tree, key| each(tree, key, None, Deletion::ONE));
    }

    /// Calls `each` with every ghost that rollbacks to savepoints have left.
    pub(crate) fn for_each_left_behind(&self, mut each: impl FnMut(Tree, &[u8])) {
        self.left_behind.iter().for_each(|(tree, key)| each(*tree, key));
    }

    /// Inserts the commit record, with `time` if present. With deferred frees, the transaction is
    /// over only after [`Self::end`].
    pub(crate) fn commit(
        &mut self,
        scheme: &dyn StorageScheme,
        has_deferred_frees: bool,
        time: Option<Timestamp>,
    ) -> Recorded {
        let (state, flags) =
            if has_deferred_frees { (TxnState::Committed, FLAG_HAS_DEFERRED_FREES) } else { (TxnState::Over, 0) };
        let (stamp, len) = time.map_or(([0; 10], 0), Timestamp::encode);
        // The transaction can no longer be rolled back.
        self.undo_bytes = 0;
        let draft = Draft::of_txn(Kind::Commit, flags, &stamp[..len]);
        self.record(state, draft, |home, record| scheme.end_txn(home, record))
    }

    /// Logs again, at the end of the log, the remaining deferred frees of a committed transaction
    /// and its commit, so that the transaction needs no earlier log. A log at its limit exceeds the
    /// limit by these records, and can be recycled then.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is full; then nothing has been logged again.
    pub(crate) fn repeat_deferred_frees(&mut self, scheme: &dyn StorageScheme, frees: &[DeferredFree]) -> Result<()> {
        let Some(log) = scheme.log() else { return Ok(()) };
        let bytes = (frees.len() as u64 + 1) * log.record_bytes(DeferredFree::MAX_BYTES);
        log.reserve_beyond_limit(bytes)?;
        self.repeat_in_reservation(scheme, frees);
        scheme.unreserve(bytes);
        Ok(())
    }

    fn repeat_in_reservation(&mut self, scheme: &dyn StorageScheme, frees: &[DeferredFree]) {
        self.come_after_all(scheme);
        let mut chain: Option<(Gsn, LogAddress)> = None;
        let mut payload = Vec::new();
        for item in frees {
            payload.clear();
            item.encode(&mut payload);
            let prev = chain.map_or(LogAddress::ZERO, |(_, last)| last);
            let recorded = self.record_apart(scheme, Kind::FreeOnCommit, 0, prev, &payload);
            chain = Some((chain.map_or(recorded.gsn, |(first, _)| first), recorded.address));
        }
        // Only the new commit record makes the repetition valid: until then the old one counts.
        let Some((first, last)) = chain else { return };
        let slot = Arc::clone(&self.slot);
        slot.insert(TxnState::Committed, |_| {
            self.record_apart(scheme, Kind::Commit, FLAG_HAS_DEFERRED_FREES, last, &[])
        });
        self.slot.restart_at(first);
    }

    /// Advances the transaction's clock beyond the commit at `gsn`.
    pub(crate) fn come_after(&mut self, gsn: Gsn) {
        self.clock = self.clock.max(gsn);
    }

    /// Advances the transaction's clock beyond all records so far. The records that free pages are
    /// not the transaction's own and may be in any log: a record that marks the frees as done, or
    /// lists the remaining ones, must not survive without them.
    fn come_after_all(&mut self, scheme: &dyn StorageScheme) {
        self.clock = self.clock.max(scheme.latest());
    }

    /// Records a fact that does not follow the transaction's latest.
    fn record_apart(
        &mut self,
        scheme: &dyn StorageScheme,
        kind: Kind,
        flags: u8,
        prev: LogAddress,
        payload: &[u8],
    ) -> Recorded {
        let (txn, page, after) = (self.txn, PageId::ZERO, self.clock);
        let record = NewRecord { kind: kind as u8, flags, txn, page, prev, after, payload };
        let recorded = scheme.note(self.home, record);
        self.clock = recorded.gsn;
        recorded
    }

    /// Gives back the reserved log space.
    pub(crate) fn release_reservation(&mut self, scheme: &dyn StorageScheme) {
        let (reserved, used) = (std::mem::take(&mut self.reserved), std::mem::take(&mut self.used));
        self.slot.note_reserved(0);
        if reserved > 0 {
            scheme.unreserve(used.min(reserved));
            scheme.unreserve_unused(reserved.saturating_sub(used));
        }
        self.undo_bytes = 0;
        self.entries.clear();
        self.arena.clear();
        if self.arena.capacity() > MOST_KEPT {
            self.give_back_memory();
        }
    }

    /// Returns the bytes of memory for changes.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.arena.capacity() + self.scratch.bytes.capacity()
    }

    /// Gives back the memory for changes, of which none is undone any more.
    pub(crate) fn give_back_memory(&mut self) {
        assert!(self.entries.is_empty(), "changes cannot be undone any more");
        (self.entries, self.arena, self.scratch) = Default::default();
        (self.left_behind, self.different) = Default::default();
    }

    /// Reserves log space for [`Self::end`] if the whole reservation has been given back. A log at
    /// its limit exceeds the limit by this space, because a transaction that has not ended keeps
    /// the log from being recycled.
    ///
    /// # Errors
    /// [`Error::Full`] if the disk is full.
    pub(crate) fn reserve_to_end(&mut self, scheme: &dyn StorageScheme) -> Result<()> {
        if self.reserved == 0 {
            self.reserved = scheme.reserve_end()?;
        }
        Ok(())
    }

    /// Inserts the record that ends a rollback, or the clean-up after a commit.
    pub(crate) fn end(&mut self, scheme: &dyn StorageScheme) -> Recorded {
        self.come_after_all(scheme);
        self.record(TxnState::Over, Draft::of_txn(Kind::End, 0, &[]), |home, record| scheme.end_txn(home, record))
    }

    /// Leaves the transaction table and gives back the log reservation.
    pub(crate) fn finish(&mut self, scheme: &dyn StorageScheme, txns: &TxnTable) {
        if std::mem::take(&mut self.entered) {
            txns.leave(&self.slot);
        }
        self.release_reservation(scheme);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the numbers started over, and two chains of one transaction could have the same
    /// number.
    #[test]
    fn chains_are_numbered_until_the_numbers_are_used_up() {
        let mut log = TxnLog::default();
        log.begin(TxnId::new(7));
        assert_eq!(log.next_overflow_chain().unwrap(), 7 << 20 | 1);
        log.overflow_chains = MOST_OVERFLOW_CHAINS - 1;
        assert_eq!(log.next_overflow_chain().unwrap(), (8 << 20) - 1);
        for _ in 0..2 {
            assert!(matches!(log.next_overflow_chain(), Err(Error::TooManyLargeValues { limit: 1_048_575 })));
        }
        log.begin(TxnId::new(8));
        assert_eq!(log.next_overflow_chain().unwrap(), 8 << 20 | 1);
    }
}
