//! Inspects a database's files: the log, single pages, the latest checkpoint, and the shape of a
//! table.
//!
//! [`log()`], [`page()`] and [`checkpoint()`] read the files of a closed database as they are. They
//! recover nothing, write nothing, and take no lock. The caller must make sure that no process
//! opens the database meanwhile. These functions are made for the diagnosis of damage: they report
//! each problem that they find and show what can be read, whatever the bytes are. A page in the
//! data file may be older than the log; recovery would bring it up to date.
//!
//! [`table()`] works on an open database.

mod checkpoint;
mod describe;
mod log;
mod page;
mod table;
mod text;

pub use checkpoint::{CheckpointReport, CheckpointTables, ControlSlot, UnfinishedTransaction, checkpoint};
pub use log::{LogEntries, LogEntry, log, log_of};
pub use page::{PageReport, page};
pub use table::{LevelReport, TableReport, table};
