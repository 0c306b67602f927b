//! Inspects a database's files: the log, single pages, the latest checkpoint, a heap or changed
//! pages in persistent memory, and the shape of a table.
//!
//! [`log()`], [`page()`] and [`checkpoint()`] read the files of a closed database as they are, and
//! [`heap()`], [`page_of_heap()`], [`pcm()`] and [`page_of_pcm()`] its persistent memory.
//! [`scheme()`] tells whether it has any. They recover nothing and write nothing. They lock
//! persistent memory and the file of a page tier while they read them, and no other file; the
//! caller must make sure that no process opens the database meanwhile. These functions are made for
//! the diagnosis of damage: they report each problem that they find and show what can be read,
//! whatever the bytes are. A page in the data file may be older than the log, and one in a heap may
//! lack the latest change in a journal; recovery would bring it up to date.
//!
//! [`table()`] works on an open database. [`ask()`] asks another process about the database that it
//! has open, and [`RemoteSnapshot`] reads its records.

mod batches;
mod checkpoint;
mod describe;
mod heap;
mod log;
mod page;
mod pcm;
mod table;
mod text;

pub use crate::api::answerer::{Answer, Question, RemoteSnapshot, ask};

pub use crate::check::{LevelReport, TableReport};
pub use batches::{BatchReport, CarriedReport};
pub use checkpoint::{ActiveTransaction, CheckpointReport, CheckpointTables, ControlSlot, checkpoint, scheme};
pub use heap::{HeapHeader, HeapReport, HeapSpace, JournalRecords, JournalReport, PageLogReport, heap};
pub use log::{LogEntries, LogEntry, log, log_of};
pub use page::{PageReport, page, page_of_heap, page_of_pcm};
pub use pcm::{ActiveInPcm, PcmReport, pcm};
pub use table::table;
