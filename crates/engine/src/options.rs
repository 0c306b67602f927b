//! What an application chooses when it opens a database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use duramen_wal::{Archive, InsertDesign, LogDevice, MAX_LOGS, NvmOptions};

use duramen_types::PAGE_SIZE;
use duramen_wal::{GroupCommit, ReadObserver, WalOptions};

use crate::error::{Error, Result};
use crate::progress::{Gauge, RecoveryObserver, RecoveryPass};
use crate::record::Kind;
use crate::timestamp::Timestamp;

/// When a commit releases its locks and when it is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CommitMode {
    /// Locks are held until the commit record is hardened: the textbook protocol.
    Sync,
    /// Early lock release: locks go as soon as the commit record is in the log buffer; the
    /// acknowledgement still waits until it is hardened, and so does that of every transaction that
    /// could have seen its changes (Aether, section 3). The thread waits, too:
    /// [`crate::Txn::commit_async`] returns when the commit is hardened.
    Elr,
    /// Early lock release and flush pipelining (default): as `Elr`, and
    /// [`crate::Txn::commit_async`] returns at once, so that its thread can run other transactions
    /// until the commit is hardened (Aether, section 4).
    #[default]
    Pipelined,
    /// *Unsafe reference*: acknowledged as soon as the commit record is in the log buffer. A crash
    /// loses acknowledged transactions. Only for measuring what durability costs.
    Async,
}

/// What a transaction sees of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Strictly serializable: as if serializable transactions ran one after another, phantoms
    /// locked out, in an order that respects real time. A transaction that begins after the commit
    /// of another was acknowledged (after [`crate::Txn::commit`] returned, or the [`crate::Commit`]
    /// was done) comes after it.
    ///
    /// This is about transactions whose commits were acknowledged. Locks may be released before a
    /// commit is hardened ([`CommitMode`]), so what a transaction has read is certain only when its
    /// own commit is acknowledged: a crash before may take back what it has read, and takes back
    /// the reader, too. After a crash the order is as before, without what was not committed; a
    /// commit that was in flight, or failed because of the disk, is in it or has never happened.
    /// With [`CommitMode::Async`] all this holds until a crash, which may take acknowledged
    /// transactions away, the latest of the order.
    #[default]
    Serializable,
    /// Each read sees the latest committed value; two reads may differ, of the same record, too.
    ///
    /// A scan is many reads at many moments: each few records are as they were together at one
    /// moment, and those that follow are read later. So what a scan returns need never have been
    /// there all at once; a record that is moved meanwhile (deleted under one key and inserted
    /// under another) may be seen twice or not at all, and a sum over accounts may count a transfer
    /// half. Whoever needs the table at one moment uses [`Isolation::Serializable`].
    ReadCommitted,
}

/// Which of several logs takes a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Partition {
    /// A transaction's records go to one log: one of those that belong to the memory node on which
    /// it begins to write, which one depends on the processor (default; Scalable logging through
    /// NVM, sections 3.1 and 5.1).
    #[default]
    Transaction,
    /// As `Transaction`, but transactions are dealt out to the logs in turn, wherever they run: for
    /// comparison.
    RoundRobin,
    /// A record goes to the log of its page, the page's number modulo that of the logs; one without
    /// a page to the first log.
    Page,
}

macro_rules! names {
    ($type:ty, $option:literal, $($name:literal => $variant:expr),* $(,)?) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(if *self == $variant { return f.pad($name); })*
                unreachable!("every variant has a name")
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok($variant),)*
                    _ => Err(Error::InvalidOption {
                        option: $option,
                        reason: format!("`{text}` is none of {}", [$($name),*].join(", ")),
                    }),
                }
            }
        }
    };
}

names!(CommitMode, "commit", "sync" => Self::Sync, "elr" => Self::Elr, "pipelined" => Self::Pipelined, "async" => Self::Async);
names!(Partition, "log_partition", "transaction" => Self::Transaction, "round-robin" => Self::RoundRobin, "page" => Self::Page);
names!(Isolation, "isolation", "serializable" => Self::Serializable, "read-committed" => Self::ReadCommitted);

/// How a database is opened. Every field has a default that suits most programs:
///
/// ```
/// let options = duramen::Options { pool_bytes: 256 << 20, ..duramen::Options::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Make a new database when the directory is empty or missing (default yes).
    pub create: bool,
    /// Memory for pages, in bytes (default 256 MiB, at least 64 pages, at most
    /// [`Options::MOST_POOL_BYTES`]). If the system does not give so much, the database is not
    /// opened.
    pub pool_bytes: usize,
    /// When a commit releases its locks and is acknowledged.
    pub commit: CommitMode,
    /// What [`crate::Db::begin`] gives.
    pub isolation: Isolation,
    /// How records enter the log buffer.
    pub log_insert: InsertDesign,
    /// Number of logs of a new database (default 1, at most [`MAX_LOGS`]). One that exists keeps
    /// its number.
    pub logs: u16,
    /// Which of several logs takes a record, in a new database. One that exists keeps to its way.
    pub log_partition: Partition,
    /// Where the end of each log is kept: in segment files (default), or in a ring in persistent
    /// memory. The device may be changed after the database has been closed in order.
    pub log_device: LogDevice,
    /// Size of the log buffer, of each log, in bytes: a power of two (default 16 MiB). With the log
    /// device `nvm` it is the ring: the larger, the more rarely segments are written.
    pub log_buffer_bytes: usize,
    /// Slots of the consolidation array, in the insertion designs that have one (default 4, at most
    /// 64).
    pub log_array_slots: usize,
    /// Consolidation arrays (default 1): threads use that of their memory node, so that only one of
    /// each group crosses to another socket (Aether, section 7.1). For machines with several
    /// sockets, one for each.
    pub log_arrays: usize,
    /// Slots in the pool that takes turns at the array (default 256, at least twice
    /// `log_array_slots` for each array).
    pub log_slot_pool: usize,
    /// Size of a log segment file, in bytes (default 64 MiB).
    pub log_segment_bytes: u64,
    /// The most that the log, or each of several, may hold before transactions get [`Error::Full`],
    /// in bytes (default 16 GiB).
    pub log_max_bytes: u64,
    /// Where log segments are copied to before they are recycled, for restoring the database to any
    /// point in time (`docs/backup.md`); nowhere by default. Commit records then say when the
    /// commit was, too.
    pub archive: Option<Archive>,
    /// A checkpoint is taken each time the log has grown by this many bytes (default 256 MiB); of
    /// several logs, when the one that grows most has grown by its share.
    pub checkpoint_bytes: u64,
    /// Memory that recovery may use beside the pool to sort the log's changes by page, in bytes (at
    /// least 4 KiB, at most 4 GiB); `None` (default) is 64 MiB, or 1 GiB with
    /// [`Options::instant_recovery`]. It is used as far as there is log to recover from, and only
    /// until redo is done. Where data is larger than the pool, more of it means fewer reads of each
    /// page.
    pub redo_memory_bytes: Option<usize>,
    /// Threads that recovery uses, from 1 to [`Options::MOST_RECOVERY_THREADS`]; `None` (default)
    /// is one for each processor, at most 8, as far as there is log that is worth it.
    pub recovery_threads: Option<usize>,
    /// Instant recovery: after a crash, let transactions begin as soon as the log has been read
    /// (default no). Losers hold their locks again until they are rolled back, in the background;
    /// pages are redone when they are first needed, or in the background. The changes wait in
    /// memory meanwhile: those of the end of the log, at most as much as fits half of
    /// [`Options::redo_memory_bytes`]; what is before is redone first.
    pub instant_recovery: bool,
    /// The earlier spelling of [`Options::instant_recovery`]; either turns it on.
    #[deprecated(note = "it is called `instant_recovery`")]
    pub open_early: bool,
    /// Who is told how far recovery is; nobody by default.
    pub recovery_observer: Option<RecoveryObserver>,
    /// Group commit: flush when this many commits wait. The default, 1, means as soon as the device
    /// is free; when many commit at once, that is when most of those whom the last flush released
    /// have come back ...
    pub group_commit_transactions: usize,
    /// ... or this many bytes are unflushed ...
    pub group_commit_bytes: usize,
    /// ... or the oldest has waited this long, whichever comes first.
    pub group_commit_time: Duration,
    /// Speculative lock inheritance: intention locks on tables stay with the thread's next
    /// transaction (default yes).
    pub lock_inheritance: bool,
    /// The longest wait for a lock before [`Error::LockTimeout`]; `None` (default) waits until
    /// granted or deadlocked.
    pub lock_wait_limit: Option<Duration>,
    /// The most pages that the background cleaner writes per second; `None` (default) is as needed.
    pub cleaner_pages_per_second: Option<u32>,
    /// Direct I/O, past the system's page cache (default yes; file systems without it are used
    /// buffered).
    pub direct_io: bool,
    /// Use io_uring where the kernel has it (default yes).
    pub io_uring: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            pool_bytes: 256 << 20,
            commit: CommitMode::default(),
            isolation: Isolation::default(),
            log_insert: InsertDesign::Hybrid,
            logs: 1,
            log_partition: Partition::default(),
            log_device: LogDevice::File,
            log_buffer_bytes: 16 << 20,
            log_array_slots: 4,
            log_arrays: 1,
            log_slot_pool: 256,
            log_segment_bytes: 64 << 20,
            log_max_bytes: 16 << 30,
            archive: None,
            checkpoint_bytes: 256 << 20,
            redo_memory_bytes: None,
            recovery_threads: None,
            instant_recovery: false,
            #[expect(deprecated, reason = "every field has a default")]
            open_early: false,
            recovery_observer: None,
            group_commit_transactions: 1,
            group_commit_bytes: 1 << 20,
            group_commit_time: Duration::from_millis(1),
            lock_inheritance: true,
            lock_wait_limit: None,
            cleaner_pages_per_second: None,
            direct_io: true,
            io_uring: true,
        }
    }
}

impl Options {
    /// Fewest pages a pool can work with.
    pub const MIN_POOL_PAGES: usize = 64;

    /// Most memory that a pool can have, in bytes.
    pub const MOST_POOL_BYTES: usize = 8 << 40;

    /// Most threads that recovery can be told to use: each needs some pages of the pool.
    pub const MOST_RECOVERY_THREADS: usize = 32;

    /// Whether [`Options::instant_recovery`] is on, by either spelling.
    #[expect(deprecated, reason = "the earlier spelling counts, too")]
    pub(crate) fn recovers_instantly(&self) -> bool {
        self.instant_recovery || self.open_early
    }

    /// Memory that recovery may use beside the pool, in bytes: [`Options::redo_memory_bytes`], or
    /// its default.
    pub(crate) fn redo_memory(&self) -> usize {
        self.redo_memory_bytes.unwrap_or(if self.recovers_instantly() { 1 << 30 } else { 64 << 20 })
    }

    /// The options of each log.
    pub(crate) fn of_log(&self) -> WalOptions {
        WalOptions {
            logs: self.logs,
            insert: self.log_insert,
            device: self.log_device.clone(),
            ring_bytes: self.log_buffer_bytes,
            array_slots: self.log_array_slots,
            arrays: self.log_arrays,
            slot_pool: self.log_slot_pool,
            segment_bytes: self.log_segment_bytes,
            max_bytes: self.log_max_bytes,
            archive: self.archive.clone(),
            read_observer: self.recovery_observer.as_ref().map(|observer| {
                let gauge = Gauge::new(Some(observer), RecoveryPass::LogEnd, None, 1);
                ReadObserver::new(move |bytes| gauge.add(bytes))
            }),
            shared_synchronizations: self.commit == CommitMode::Pipelined,
            synchronization_kind: Kind::Synchronization as u8,
            group_commit: GroupCommit {
                transactions: self.group_commit_transactions,
                bytes: self.group_commit_bytes,
                time: self.group_commit_time,
            },
            ..WalOptions::default()
        }
    }

    /// Refuses what makes no sense.
    ///
    /// # Errors
    /// [`Error::InvalidOption`] names the first such option and says what would be right.
    pub fn validate(&self) -> Result<()> {
        let wrong = |option, reason: String| Err(Error::InvalidOption { option, reason });
        if self.pool_bytes < Self::MIN_POOL_PAGES * PAGE_SIZE {
            return wrong("pool_bytes", format!("at least {} bytes are needed", Self::MIN_POOL_PAGES * PAGE_SIZE));
        }
        if self.pool_bytes > Self::MOST_POOL_BYTES {
            return wrong("pool_bytes", format!("must be at most {} bytes (8 TiB)", Self::MOST_POOL_BYTES));
        }
        self.of_log().validate()?;
        if self.checkpoint_bytes > self.log_max_bytes / 2 {
            return wrong("checkpoint_bytes", "must be at most half of `log_max_bytes`".into());
        }
        if !(1..=MAX_LOGS).contains(&self.logs) {
            return wrong("logs", format!("must be at least 1 and at most {MAX_LOGS}"));
        }
        if self.logs > 1 && self.log_insert == InsertDesign::Reserved {
            let reason =
                "`reserved` hands out space in no particular turn, which several logs need: choose another or one log";
            return wrong("log_insert", reason.into());
        }
        if self.checkpoint_bytes == 0 {
            return wrong("checkpoint_bytes", "must not be zero".into());
        }
        if !(4 << 10..=4 << 30).contains(&self.redo_memory()) {
            return wrong("redo_memory_bytes", "must be at least 4 KiB and at most 4 GiB".into());
        }
        if self.recovery_threads.is_some_and(|threads| !(1..=Self::MOST_RECOVERY_THREADS).contains(&threads)) {
            return wrong(
                "recovery_threads",
                format!("must be at least 1 and at most {}", Self::MOST_RECOVERY_THREADS),
            );
        }
        if self.cleaner_pages_per_second == Some(0) {
            return wrong("cleaner_pages_per_second", "must not be zero; leave it out for no limit".into());
        }
        Ok(())
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::InvalidOption {
            option: "time",
            reason: format!("`{text}` is no time; write it like 2026-11-21T15:28:34.123456Z (UTC)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(deprecated, reason = "it is what is tested")]
    fn the_earlier_spelling_of_instant_recovery_turns_it_on() {
        assert!(!Options::default().recovers_instantly());
        assert!(Options { instant_recovery: true, ..Options::default() }.recovers_instantly());
        let earlier = Options { open_early: true, ..Options::default() };
        assert!(earlier.recovers_instantly());
        assert_eq!(earlier.redo_memory(), 1 << 30);
    }
}
