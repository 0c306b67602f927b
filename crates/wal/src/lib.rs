//! The log manager.

mod bell;
mod commit;
mod daemon;
mod error;
mod files;
mod flush;
mod hardened;
mod insert;
mod options;
mod reader;
mod record;
mod recover;
mod ring;
mod scan;
mod segment;
mod segments;
mod shared;
mod space;
mod stats;
mod wal;

pub use error::{Result, WalError};
pub use hardened::Hardened;
pub use options::{GroupCommit, InsertDesign, WalOptions};
pub use reader::LogReader;
pub use record::{NewRecord, Record, RecordRef};
pub use scan::Scanner;
pub use stats::WalStats;
pub use wal::{FIRST_LSN, Inserted, Wal};
