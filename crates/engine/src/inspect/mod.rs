//! Looking at a database's files: the log, single pages, the latest checkpoint, and the shape of a
//! table.
//!
//! [`log()`], [`page()`] and [`checkpoint()`] read the files of a database that nobody has open, as
//! they are: nothing is recovered, nothing written, and no lock taken; the caller sees to it that
//! nobody opens the database meanwhile. They are made for looking at damage, so they say what is
//! wrong with what they find and show what can be read, whatever the bytes are. A page in the data
//! file may be older than the log; recovery would bring it up to date.
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
