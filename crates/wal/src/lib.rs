//! The log manager.

mod error;
mod options;
mod record;
mod stats;
mod wal;

pub use error::{Result, WalError};
pub use options::{GroupCommit, InsertDesign, WalOptions};
pub use record::{NewRecord, Record, RecordRef};
pub use stats::WalStats;
pub use wal::{FIRST_LSN, Hardened, Inserted, LogReader, Scanner, Wal};
