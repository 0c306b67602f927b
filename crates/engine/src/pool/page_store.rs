//! Where pages are that are not in a frame.
//!
//! The pool reaches these pages only through [`PageStore`]. Stores differ in how the change of a
//! page gets there:
//!
//! - The pool *writes back*: a changed page is dirty in its frame, and a batch of dirty pages goes
//!   to the store later, through the [`PageWriter`] that the store has. The log must be hardened
//!   first ([`WalRule`]). The data file is such a store ([`FilePages`]).
//! - The change itself goes to the store: the thread that changes a page makes the change durable
//!   in the store while it holds the page exclusively. Pages are then never dirty, and eviction
//!   only drops the frame. Such a store has no [`PageWriter`].
//! - The change is *staged* in its frame, and a batch takes it to the store later, together with
//!   those of other transactions ([`PageStore::most_staged`]).
//!
//! A store of the second kind may have the pages in memory, where they can be read. Then the pool
//! needs no copies: frame *n* is page *n* of the store ([`PageStore::memory`]).
//!
//! [`FilePages`]: super::FilePages

use std::fmt;
use std::ptr::NonNull;

use duramen_types::{Gsn, PageId};

use super::batch::Batch;
use super::{PoolError, Stamp};
use crate::metrics::TierMetrics;
use crate::page::SlotFlags;

/// Where the pages are that are not in a frame.
///
/// The pool reads a page only into a frame that it holds exclusively for this page, and writes a
/// page only while it is in a frame. So a page is not read while it is written, except by
/// [`PageWriter::read_whole`]. Calls for different pages come from many threads at once.
pub(crate) trait PageStore: Send + Sync + fmt::Debug {
    /// Fills `bytes` with the page and checks it as [`PageStore::verify`] does.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] for a page that fails its check; those of the store.
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError>;

    /// Fills several buffers, each with its page. The caller must then call [`PageStore::verify`]
    /// for each page.
    ///
    /// # Errors
    /// Those of the store; the contents of all buffers are then undefined.
    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError>;

    /// Checks that `bytes`, just read from the store, are the page. `was_written` says that the
    /// pool has written the page since it was made.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`].
    fn verify(&self, id: PageId, was_written: bool, bytes: &[u8]) -> Result<(), PoolError>;

    /// Returns whether [`PageStore::verify`] compares pages with their checksums.
    fn has_checksums(&self) -> bool {
        true
    }

    /// Returns the GSN that the page has in the store, for a page that is formatted anew without
    /// being read: its GSN must not decrease. Returns zero if the page was never written, and if
    /// the GSN of any new record is higher anyway because the log has a clock of its own.
    ///
    /// # Errors
    /// Those of the store.
    fn last_gsn(&self, id: PageId) -> Result<Gsn, PoolError>;

    /// Makes sure that the store has space for the page.
    ///
    /// # Errors
    /// Those of the store when there is no space. The pool keeps working.
    fn reserve(&self, id: PageId) -> Result<(), PoolError>;

    /// Returns the number of pages that the store has space for at this moment, page 0 included.
    fn pages(&self) -> u64;

    /// Returns the name of the store in messages, usually a path.
    fn location(&self) -> String;

    /// Stamps everything that the store consists of with a generation, durably. No thread writes a
    /// page meanwhile.
    ///
    /// # Errors
    /// Those of the store.
    fn stamp(&self, stamp: Stamp) -> Result<(), PoolError>;

    /// Checks that the store still has its name.
    ///
    /// # Errors
    /// Those of the store.
    fn verify_name(&self) -> Result<(), PoolError>;

    /// Returns the address of page 0 if the pages lie in memory, one behind the other, and are to
    /// be read there: their frames are then the store itself. They stay there, and may be read,
    /// as long as the store. `None`, the default, if the pool keeps copies of pages. The answer
    /// is always the same, and [`PageStore::pages`] does not change if there is an address.
    fn memory(&self) -> Option<NonNull<u8>> {
        None
    }

    /// Returns what writes dirty pages to the store; `None`, the default, if pages are never dirty.
    /// The answer is always the same.
    fn writer(&self) -> Option<&dyn PageWriter> {
        None
    }

    /// Returns the tier that keeps some of the pages, if there is one. The answer is always the
    /// same.
    fn tier(&self) -> Option<&dyn PageTier> {
        None
    }

    /// Returns what has records of leaves that are not in frames, if there is such a thing. The
    /// answer is always the same.
    fn tuples(&self) -> Option<&dyn TupleStore> {
        None
    }

    /// Returns the most bytes of a batch, if changed lines wait in their frames until a batch takes
    /// them to the store (`staging.rs`). Such a store has no writer. The answer is always the same.
    fn most_staged(&self) -> Option<u64> {
        None
    }
}

/// Has the latest versions of some records, apart from the leaves that they belong to.
pub(crate) trait TupleStore {
    /// Copies a record of a leaf that is in no frame into `value` (which is cleared first); returns
    /// its flags. `None` if the leaf must be read for it. The caller has a lock on the record.
    fn record(&self, leaf: PageId, key: &[u8], value: &mut Vec<u8>) -> Option<SlotFlags>;
}

/// Writes dirty pages to a store.
pub(crate) trait PageWriter {
    /// Returns the log that must be hardened before its changes reach the store.
    fn wal_rule(&self) -> &dyn WalRule;

    /// Notes that a page was copied, to be given to [`PageWriter::write`] with the other pages of
    /// its batch. The caller holds the page's latch.
    fn copied(&self, _id: PageId, _bytes: &[u8]) {}

    /// Seals the pages of a batch and writes them. They are durable when the call returns, and each
    /// is whole in the store at any moment, or is made whole by the next opening or its redo. One
    /// thread at a time may call this; it has hardened the log past all the pages' changes.
    ///
    /// # Errors
    /// Those of the store. The contents of the store are then unknown.
    fn write(&self, batch: &mut Batch) -> Result<(), PoolError>;

    /// Returns whether a page that was read, in this version, is durable for sure; then the store
    /// notes the version as after [`PageWriter::write`]. The default is that a system may return
    /// what it has failed to write. No thread writes the page meanwhile.
    fn is_durable_as_read(&self, _id: PageId, _gsn: Gsn) -> bool {
        false
    }

    /// Saves the versions of the pages that were written, if the store keeps them.
    ///
    /// # Errors
    /// Those of the store.
    fn write_versions(&self) -> Result<(), PoolError>;

    /// Fills `bytes` with the pages from `first` on as they are in the store, each of them whole
    /// although pages may be written meanwhile. Returns how many pages had to be read twice because
    /// they were being written. A blank page is returned as zeros.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] for a damaged page; those of the store.
    fn read_whole(&self, first: PageId, bytes: &mut [u8]) -> Result<u64, PoolError>;
}

/// Keeps some of the pages of a store on a faster medium.
pub(crate) trait PageTier {
    /// Writes all pages to the store below, marks the tier as drained, and calls
    /// `remove`, which removes it durably. The tier takes no page from then on. No thread writes
    /// pages meanwhile.
    ///
    /// # Errors
    /// [`PoolError::Corrupt`] for a damaged page in the tier, which is then still in use. After
    /// those of the disk and of `remove` the contents of the store are unknown.
    fn drain(&self, remove: &mut dyn FnMut() -> crate::Result<()>) -> crate::Result<()>;

    /// Returns whether the tier has been drained.
    fn is_drained(&self) -> bool;

    /// Returns the tier's counters.
    fn metrics(&self) -> TierMetrics;
}

/// What the pool and its store require of the log.
pub(crate) trait WalRule: Send + Sync {
    /// Makes the log durable past the record `gsn`. The pool calls this before it writes a page
    /// that carries `gsn`.
    ///
    /// # Errors
    /// [`PoolError::Log`] when the log cannot be hardened; the page is not written.
    fn harden(&self, gsn: Gsn) -> Result<(), PoolError>;

    /// Returns a GSN that is not larger than that of any record inserted from now on, and never
    /// zero. A thread that sees a record in the log must also see what its inserter did before (the
    /// insertion releases, `end` acquires): fuzzy checkpoints rest on this.
    fn end(&self) -> Gsn;

    /// Prepares for a wait for the disk or for another thread, perhaps a long one: no other thread
    /// should have to wait for what this thread has inserted.
    fn before_blocking(&self) {}
}
