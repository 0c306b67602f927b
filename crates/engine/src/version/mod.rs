//! Versions: the values that records had before recent changes, kept in memory for snapshots.
//!
//! A snapshot reads the database as it was after a prefix of the commits, takes no locks and stops
//! nobody. Pages hold the latest values only. So each writing transaction keeps, for each record
//! that it changes, the value from before its first change. While no snapshot is open, the values
//! stay in a buffer of the transaction's context ([`Kept`](kept)), which costs little. A thread
//! that opens a snapshot *publishes* them: it copies them, and *nodes* refer to the copies. Nodes
//! are found by the key of the record; splits and merges do not matter to them, and nothing of them
//! is on disk.
//!
//! # Structures
//! - [`TxnVersions`]: what a context has: the values that it keeps, of its running transaction and
//!   of those before it, or what the running one has published.
//! - [`Writer`](writer): the published values of one transaction, and a word for its outcome. Its
//!   nodes refer to it. When they are gone, another transaction uses it.
//! - [`Registry`](registry): the order of commits, its *horizon*, and the open snapshots.
//! - [`Buckets`](buckets): the nodes, in no order, and beside them a byte for each bucket that says
//!   whether it is empty. Made when versions are first published; the buckets in parts, when one of
//!   a part gets its first node.
//! - [`Runs`](runs): neighbouring records that were deleted together and are published as one.
//!   Their values stay in the leaf. For readers, and for ghosts, a record of a run is what a node
//!   is.
//! - [`VersionStore`]: all of it. A *retired* transaction, one that has committed and has published
//!   versions or leaves something to be cleared away, waits in a queue of the thread's stripe until
//!   no snapshot needs its versions. One that has only kept values does nothing when it ends: its
//!   context drops them when it needs the space and no snapshot will need them.
//!
//! # Protocol
//! A position is the GSN of a commit, or the number of the commit ([`CommitOrder`]).
//!
//! *Write.* The leaf is latched. The value is kept, or published, before the page changes. If the
//! transaction has a node of the key, that one has the older value. If the record lies in a run,
//! of this or another transaction, the run first gets the value that the leaf has. A transaction
//! that has published one value, or deletes a record, publishes all of them.
//!
//! *Publish.* The thread that opens a snapshot while there is none first lets every later change
//! publish its version at once. Then it publishes what each context keeps, under the lock of the
//! context's buffer: of the running transaction, and of those whose commits are beyond the horizon,
//! which become retired ones. A context that is not in the list yet gets there before its first
//! change, and so finds that it must publish. When the last snapshot is closed, transactions keep
//! their versions again.
//!
//! *Commit.* The writer is set to *committing*; the commit record is inserted; the writer is set to
//! *committed* at its position. While the values are only kept, the context has this state, and a
//! thread that publishes them gives it to the writer. The locks are held until then, and the commit
//! comes after those that the locks have seen, so the order of positions of one record's changes is
//! that of the changes. Commits of one position, those of a batch, have turns.
//!
//! *Abort.* After the undo the writer is set to *aborted*, and its versions are dropped. Rolling
//! back to a savepoint needs nothing.
//!
//! *Begin.* All versions are published. The registry sets zero as the oldest position, which keeps
//! everything. Then it takes S, the horizon, and sets S. Every commit up to S survives a crash, so
//! a snapshot never waits for the disk, and shows nothing that could be lost.
//!
//! *Visible.* A commit is visible at S if its position is S or lower. An active writer is
//! invisible: its commit will come behind every horizon taken before. A committing one is neither
//! yet, and the reader tries again; the state lasts for the insertion of one record. The value at S
//! is that of the oldest node whose writer is invisible, and if there is none, the value on the
//! page.
//!
//! *Read.* The reader reads the leaf optimistically, looks for a node, and then *validates the leaf
//! again*. Without that, a writer that aborts in between, and drops its node, would leave its value
//! in the reader's hands. Every key that a snapshot needs has a slot in its leaf, as a record or as
//! a ghost. So a reader looks for nodes only of the keys that it has found.
//!
//! # What waits for snapshots
//! [`VersionStore::reclaimable`] is the smaller of the horizon and the oldest open snapshot. It is
//! read in this order; [`Registry`](registry) says why. What follows from a commit at position g
//! may happen when g is reclaimable: the versions are freed; the ghosts are purged; overflow chains
//! and trees of dropped tables are freed (`txn_state/deferred_free.rs`). A ghost may be purged when
//! no value of its key has a writer beyond the reclaimable position. The versions of deletions are
//! always published: without a later deletion the slot would not be a ghost, so what transactions
//! keep does not matter here.
//!
//! # Pruning
//! A node is the value of the snapshots from the position of the next older node's writer up to,
//! and not including, that of its own writer. Pushing to a long chain unlinks the nodes for which
//! there is no such snapshot, and can be none in future because the writer is not beyond the
//! horizon. So the chain of a hot record is bounded by the open snapshots and the commits that are
//! not hardened, however long a snapshot stays open.
//!
//! The values of a transaction are dropped together, when none of its nodes is left: a *sweep* of
//! a stripe looks for such transactions whenever the stripe's queue has doubled, and before a
//! snapshot is ended for lack of memory.
//!
//! # Memory
//! If published versions take more than [`crate::Options::version_bytes`], all chains are pruned
//! and all stripes swept. If seven eighths of the limit are still in use then, the oldest snapshots
//! are ended. The registry marks them before anything is freed, and a reader checks the mark after
//! each read. One thread at a time does this, while the others commit.
//!
//! # Order of locks
//! Page latch → list of contexts → buffer → stripe → bucket → runs or registry; opening of
//! snapshots → buffer; keeping the limit → stripe. Readers hold no latch.

mod buckets;
mod kept;
mod node;
mod registry;
mod retired;
mod runs;
mod store;
mod txn_versions;
mod values;
mod writer;

pub(crate) use buckets::Version;
pub(crate) use registry::{CommitOrder, OpenSnapshot};
pub(crate) use retired::{Cleanup, Due, Ghost};
pub(crate) use runs::Deleted;
pub(crate) use store::VersionStore;
pub(crate) use txn_versions::TxnVersions;
pub(crate) use values::Before;

/// Parts of what many threads change. A model has few threads, and small stacks.
const STRIPES: usize = if cfg!(duramen_loom) { 1 } else { 32 };

#[cfg(all(test, duramen_loom))]
mod loom_tests;
#[cfg(all(test, not(duramen_loom)))]
mod tests;
