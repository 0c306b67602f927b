//! What distinguishes the records of one log from those of others.

use duramen_types::{LogId, Lsn, crc32c_append};

/// Identifies the log to which records belong. It and the position seed their checksums.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) database: [u8; 16],
    pub(crate) log: LogId,
    /// Number of logs of the database.
    pub(crate) count: u16,
    seed: u64,
}

impl Identity {
    /// Returns the identity of one of `count` logs.
    pub(crate) fn one_of(database: [u8; 16], log: LogId, count: u16) -> Self {
        let low = u64::from(crc32c_append(u64::from(log.get()), &database));
        let high = u64::from(crc32c_append(!u64::from(log.get()), &database));
        Self { database, log, count, seed: high << 32 | low }
    }

    pub(crate) fn seed_at(&self, lsn: Lsn) -> u64 {
        self.seed.wrapping_add(lsn.get())
    }
}
