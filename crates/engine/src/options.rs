//! The choices of an application when it opens a database. Those for persistent memory instead of a
//! log are in `persistent`.

mod memory;
mod pace;
mod persistent;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub(crate) use pace::Pace;

pub use memory::{PcmBasicOptions, TierMemory, TierOptions, TierPlace};
pub use persistent::{BatchOptions, Granularity, HeapOptions, PcmOptions};

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
    /// Holds locks until the commit record is hardened: the textbook protocol.
    Sync,
    /// Early lock release: a transaction releases its locks as soon as its commit record is in the
    /// log buffer. The acknowledgement still waits until the record is hardened, and so does the
    /// acknowledgement of every transaction that could have seen its changes (Aether, section 3).
    /// The thread waits, too: [`crate::Txn::commit_async`] returns when the commit is hardened.
    Elr,
    /// Early lock release and flush pipelining (default): as `Elr`, but
    /// [`crate::Txn::commit_async`] returns at once, so that its thread can run other transactions
    /// until the commit is hardened (Aether, section 4).
    #[default]
    Pipelined,
    /// *Unsafe reference*: acknowledges a commit as soon as its record is in the log buffer. A
    /// crash loses acknowledged transactions. Use it only to measure the cost of durability.
    Async,
}

/// Which effects of other transactions a transaction sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Isolation {
    /// Strictly serializable: serializable transactions behave as if they ran one after another,
    /// without phantoms, in an order that respects real time. A transaction that begins after the
    /// commit of another was acknowledged (after [`crate::Txn::commit`] returned, or the
    /// [`crate::Commit`] was done) comes after it.
    ///
    /// This guarantee covers transactions whose commits were acknowledged. Locks may be released
    /// before a commit is hardened ([`CommitMode`]), so a transaction can rely on what it has read
    /// only when its own commit is acknowledged: an earlier crash may take back what the
    /// transaction has read, and then takes back the transaction, too. After a crash the order is
    /// as before, without the transactions that were not committed. A commit that was in flight, or
    /// failed because of the disk, is either in the order or has never happened. With
    /// [`CommitMode::Async`] all this holds until a crash, which may take acknowledged transactions
    /// away, the latest of the order.
    #[default]
    Serializable,
    /// Each read sees the latest committed value; two reads may differ, even of the same record.
    ///
    /// A scan consists of many reads at many moments: it reads a few records as they were together
    /// at one moment, and the following records later. So the result of a scan need never have
    /// existed as a whole at one moment. A record that is moved during the scan (deleted under one
    /// key and inserted under another) may be seen twice or not at all, and a sum over accounts may
    /// count a transfer half. An application that needs the table at one moment uses
    /// [`Isolation::Serializable`].
    ReadCommitted,
}

/// Which of several logs takes a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Partition {
    /// All records of a transaction go to one log: one of those that belong to the memory node on
    /// which the transaction begins to write, chosen by the processor (default; Scalable logging
    /// through NVM, sections 3.1 and 5.1).
    #[default]
    Transaction,
    /// As `Transaction`, but transactions are assigned to the logs in turn, wherever they run: for
    /// comparison.
    RoundRobin,
    /// A record goes to the log of its page, the page number modulo the number of logs; a record
    /// without a page goes to the first log.
    Page,
}

/// How changes become durable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Scheme {
    /// A write-ahead log; pages are written to the data file later (default).
    #[default]
    Wal,
    /// PCM as a page cache with a log: a preset of `Wal` for a little persistent memory above a
    /// slow disk. Dirty pages go through a page tier in persistent memory, and the log lies in a
    /// ring beside it, from which it is never written to files while the database runs: a full log
    /// means a checkpoint. The baseline *PCMBasic* of PCMLogging (CIKM 2011, section 4).
    PcmBasic(PcmBasicOptions),
    /// A write-ahead log and pages in files alone, without persistent memory: a preset of `Wal`
    /// that refuses everything else. The baseline *NoPCM* of PCMLogging.
    NoPcm,
    /// In-place updates of a heap in persistent memory: no log, no checkpoint, nothing to write
    /// back. A change is durable in its page before another transaction can see it, and a commit
    /// costs one barrier. For memory with cheap barriers: CXL memory with a global persistent
    /// flush, NVDIMMs, battery-backed memory (Storage management in the NVRAM era, section 3.2).
    InPlace(HeapOptions),
    /// NVRAM group commit: pages in a heap in persistent memory, and no log of changes. The changes
    /// of many transactions go to the heap in one batch with two barriers, and their commits are
    /// acknowledged together. For memory whose barriers cost more than a microsecond (Storage
    /// management in the NVRAM era, section 3.2).
    NvramGroupCommit(HeapOptions, BatchOptions),
    /// PCMLogging: changed pages go to persistent memory when their transactions end, and are the
    /// log at the same time; the coldest go on to the data file when the memory is full. Recovery
    /// is one scan of the memory. For persistent memory that is much smaller than the data, above a
    /// slow disk (PCMLogging, CIKM 2011, section 3).
    PcmLogging(PcmOptions),
}

impl Scheme {
    /// Returns the name of the scheme.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::PcmBasic(_) => "pcm-basic",
            Self::NoPcm => "no-pcm",
            Self::InPlace(_) => "in-place",
            Self::NvramGroupCommit(..) => "nvram-group-commit",
            Self::PcmLogging(_) => "pcm-logging",
        }
    }

    /// Returns the options for the heap, if the scheme has one.
    pub(crate) fn heap(&self) -> Option<&HeapOptions> {
        match self {
            Self::Wal | Self::PcmBasic(_) | Self::NoPcm | Self::PcmLogging(_) => None,
            Self::InPlace(heap) | Self::NvramGroupCommit(heap, _) => Some(heap),
        }
    }

    /// Returns the bytes of the batch log of a new heap.
    pub(crate) fn batch_bytes(&self) -> u64 {
        match self {
            Self::Wal | Self::PcmBasic(_) | Self::NoPcm | Self::InPlace(_) | Self::PcmLogging(_) => 0,
            Self::NvramGroupCommit(heap, batches) => batches.log_bytes_of(heap.bytes),
        }
    }
}

/// The order that a change of pages in a heap, or a batch of changes, imposes on its stores, by
/// persist barriers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Barriers {
    /// The fewest barriers: 2 for each change, or for each batch. One record with a checksum holds
    /// how to undo the change, or the transactions under way, and the new lines; recovery repeats
    /// it (default).
    #[default]
    Fewest,
    /// Those of the paper, for comparison: 6 for each change, of which 2 make an undo entry durable
    /// and 4 update the pages under a log of their old lines; or these 4 for each batch (Storage
    /// management in the NVRAM era, figure 2).
    Paper,
}

/// Where the pages of a heap are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Residence {
    /// In copies in DRAM ([`Options::pool_bytes`]), as over a data file (default).
    #[default]
    Cached,
    /// In the heap itself. DRAM holds only 128 bytes for each page of the heap. For memory that is
    /// about as fast to read as DRAM.
    Direct,
}

/// Which files are read and written through the system's page cache. All others bypass it with
/// direct I/O, on file systems that have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SystemCache {
    /// The data file (default). The cache holds pages that [`Options::pool_bytes`] has no room for,
    /// in memory that nothing else uses.
    #[default]
    Data,
    /// None. For a pool that takes most of the machine's memory, where the cache would only hold
    /// second copies.
    None,
    /// All.
    All,
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
                        reason: format!("`{text}` is not one of {}", [$($name),*].join(", ")),
                    }),
                }
            }
        }
    };
}

names!(
    CommitMode, "commit",
    "sync" => Self::Sync, "elr" => Self::Elr, "pipelined" => Self::Pipelined, "async" => Self::Async
);
names!(
    Partition, "log_partition",
    "transaction" => Self::Transaction, "round-robin" => Self::RoundRobin, "page" => Self::Page
);
names!(Granularity, "granularity", "page" => Self::Page, "tuple" => Self::Tuple);
names!(Barriers, "barriers", "fewest" => Self::Fewest, "paper" => Self::Paper);
names!(Residence, "residence", "cached" => Self::Cached, "direct" => Self::Direct);
names!(SystemCache, "system_cache", "data" => Self::Data, "none" => Self::None, "all" => Self::All);
names!(Isolation, "isolation", "serializable" => Self::Serializable, "read-committed" => Self::ReadCommitted);

/// How a database is opened. Every field has a default that suits most programs:
///
/// ```
/// let options = duramen::Options { pool_bytes: 256 << 20, ..duramen::Options::default() };
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Creates a new database if the directory is empty or missing (default yes).
    pub create: bool,
    /// Memory for pages, in bytes (default 256 MiB, at least 64 pages, at most
    /// [`Options::MOST_POOL_BYTES`]). If the system cannot provide this much memory, the opening
    /// fails.
    pub pool_bytes: usize,
    /// How changes become durable. A database keeps the scheme that it was created with.
    pub scheme: Scheme,
    /// When a commit releases its locks and is acknowledged.
    pub commit: CommitMode,
    /// The isolation level of transactions that [`crate::Db::begin`] starts.
    pub isolation: Isolation,
    /// How records enter the log buffer.
    pub log_insert: InsertDesign,
    /// Number of logs of a new database (default 1, at most [`MAX_LOGS`]). An existing database
    /// keeps its number.
    pub logs: u16,
    /// Which of several logs takes a record, in a new database. An existing database keeps its
    /// setting.
    pub log_partition: Partition,
    /// Where the end of each log is kept: in segment files (default), or in a ring in persistent
    /// memory. The device may be changed after the database has been closed cleanly.
    pub log_device: LogDevice,
    /// Size of the log buffer of each log, in bytes: a power of two (default 16 MiB). With the log
    /// device `nvm` this is the size of the ring: a larger ring writes segments less often.
    pub log_buffer_bytes: usize,
    /// Slots of the consolidation array, in the insertion designs that have one (default 4, at most
    /// 64).
    pub log_array_slots: usize,
    /// Number of consolidation arrays (default 1). Threads use the array of their memory node, so
    /// that only one thread of each group crosses to another socket (Aether, section 7.1). Machines
    /// with several sockets use one array for each socket.
    pub log_arrays: usize,
    /// Slots in the pool from which the arrays replace their slots (default 256, at least twice
    /// `log_array_slots` for each array).
    pub log_slot_pool: usize,
    /// Size of a log segment file, in bytes (default 64 MiB).
    pub log_segment_bytes: u64,
    /// The most bytes that the log, or each of several logs, may hold before transactions get
    /// [`Error::Full`] (default 16 GiB).
    pub log_max_bytes: u64,
    /// The directory to which log segments are copied before they are recycled, for restoring the
    /// database to any point in time (`docs/backup.md`); by default the one that the database
    /// keeps, which is the latest that it was opened with, or no archive. With an archive, commit
    /// records also carry the time of the commit.
    pub archive: Option<Archive>,
    /// Whether the database forgets the archive that it keeps, and opens without one (default
    /// false). The archive ends there: a later one begins anew, in another directory.
    pub give_up_archive: bool,
    /// The time in which a crashed database should open; `None` (default) is 1 second
    /// ([`Options::RECOVERY_TARGET`]), the least is 10 milliseconds. Checkpoints are taken so often
    /// that recovery finds no more log than it reads and redoes in that time, assumed to be 64 MiB
    /// a second, and half of that with a page tier, whose slots are read as well. A shorter time
    /// means that pages are written more often. A long transaction that has to be rolled back, and
    /// a disk too slow for the load, may make the opening longer.
    pub recovery_target: Option<Duration>,
    /// Instead of [`Options::recovery_target`]: the log growth in bytes after which a checkpoint is
    /// taken, at most half of [`Options::log_max_bytes`]. With several logs, a checkpoint is taken
    /// when the fastest growing log has grown by its share.
    pub checkpoint_bytes: Option<u64>,
    /// Memory that recovery may use beside the pool to sort the log's changes by page, in bytes (at
    /// least 4 KiB, at most 4 GiB); `None` (default) is 64 MiB, or 1 GiB with
    /// [`Options::instant_recovery`]. Recovery uses only as much as the log to recover from
    /// requires, and only until redo is done. If the data is larger than the pool, more memory
    /// means fewer reads of each page; if it fits, recovery takes less memory.
    pub redo_memory_bytes: Option<usize>,
    /// Number of threads that recovery uses, from 1 to [`Options::MOST_RECOVERY_THREADS`]; `None`
    /// (default) is one for each processor, at most 8, and fewer for a short log.
    pub recovery_threads: Option<usize>,
    /// Instant recovery: after a crash, transactions may begin as soon as the log has been read
    /// (default no). Losers hold their locks again until they are rolled back in the background;
    /// pages are redone when they are first needed, or in the background. Until then the changes of
    /// the end of the log wait in memory, at most as many as fit half of
    /// [`Options::redo_memory_bytes`]; earlier changes are redone before the database opens.
    pub instant_recovery: bool,
    /// The earlier spelling of [`Options::instant_recovery`]; either option turns it on.
    #[deprecated(note = "it is called `instant_recovery`")]
    pub open_early: bool,
    /// The observer of recovery's progress; none by default.
    pub recovery_observer: Option<RecoveryObserver>,
    /// Group commit: flush when this many commits wait. The default, 1, means as soon as the device
    /// is free; when many threads commit at the same time, the flush starts when most of the
    /// committers that the last flush released have come back ...
    pub group_commit_transactions: usize,
    /// ... or this many bytes are unflushed ...
    pub group_commit_bytes: usize,
    /// ... or the oldest has waited this long, whichever comes first.
    pub group_commit_time: Duration,
    /// Speculative lock inheritance: the thread's next transaction inherits the intention locks on
    /// tables (default yes).
    pub lock_inheritance: bool,
    /// The number of records that a serializable scan locks one by one before it tries to lock the
    /// whole table instead (default 1024). It does so only if no other transaction writes to the
    /// table at that moment, and tries again after as many records. A scan that has the lock of the
    /// table is faster and holds no further locks, but nobody else can write to the table until its
    /// transaction ends.
    pub lock_escalation: usize,
    /// The longest wait for a lock before [`Error::LockTimeout`] (default 10 seconds);
    /// [`crate::Txn::set_lock_wait_limit`] sets it for one transaction. With `None` a transaction
    /// waits until the lock is granted or a deadlock is found. In an asynchronous program, whose
    /// tasks may hold locks while they are suspended and all threads of the executor wait for these
    /// locks, that may be for ever.
    pub lock_wait_limit: Option<Duration>,
    /// The most threads that run transactions for [`crate::Db::run_async`] (default 8). They are
    /// started when they are needed.
    pub run_async_threads: usize,
    /// The most pages that the background cleaner writes per second; `None` (default) is as many as
    /// needed.
    pub cleaner_pages_per_second: Option<u32>,
    /// Number of dirty pages that the background cleaner aims at: while there are more, it writes
    /// the page that has been dirty the longest. Few dirty pages and a small
    /// [`Options::checkpoint_bytes`] keep recovery short, at the price of more writes (Storage
    /// management in the NVRAM era, section 4). `None` (default) lets three quarters of the pool
    /// become dirty.
    pub dirty_pages: Option<usize>,
    /// Keeps the values from before recent changes in memory, for [`crate::Db::snapshot`] (default
    /// no). While no snapshot is open, it takes a few hundredths of the throughput of short
    /// transactions.
    pub snapshots: bool,
    /// The most memory for these values, in bytes; `None` (default) is half of
    /// [`Options::pool_bytes`]. If the snapshots that are open need more than seven eighths of it,
    /// the oldest of them may end with [`Error::SnapshotTooOld`]. What running transactions have
    /// replaced, and what is committed and not yet hardened, is kept in any case.
    pub version_bytes: Option<usize>,
    /// A page tier: a file on a fast medium, or persistent memory, that takes dirty pages on their
    /// way to a slow data file (PCMLogging, CIKM 2011, section 3). `None` (default) uses the tier
    /// that the database has, if it has one; [`crate::Db::drain_page_tier`] removes it. Needs the
    /// scheme [`Scheme::Wal`].
    pub page_tier: Option<TierOptions>,
    /// How many pages of the data file a page that leaves the tier takes along: those of the tier
    /// in its aligned group of so many pages leave, too, and the group is written at once, with
    /// what lies between. A power of two, at most 128. 1 (default) suits a medium where a write
    /// costs the same anywhere, as an SSD; 64 suits a hard disk or a network, where fewer and
    /// longer writes are faster. It may differ from one opening to the next.
    pub tier_run_pages: u32,
    /// Which files the system's page cache holds as well.
    pub system_cache: SystemCache,
    /// Uses io_uring where the kernel has it (default yes).
    pub io_uring: bool,
    /// Answers other processes of the same user, and of the superuser, that ask about the database
    /// while it is open, or read a snapshot of it ([`crate::inspect::ask`],
    /// [`crate::inspect::RemoteSnapshot`], `duramen stats`, `duramen dump`; default yes). This
    /// takes a thread that waits at a local socket and, while it serves processes, a thread for
    /// each, up to eight. A database that is not in a directory does not answer, nor does one that
    /// is opened while a child lives that the process has forked with the database open before.
    pub answers_questions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            create: true,
            pool_bytes: 256 << 20,
            scheme: Scheme::default(),
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
            give_up_archive: false,
            recovery_target: None,
            checkpoint_bytes: None,
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
            lock_escalation: 1024,
            lock_wait_limit: Some(Duration::from_secs(10)),
            run_async_threads: 8,
            cleaner_pages_per_second: None,
            dirty_pages: None,
            snapshots: false,
            version_bytes: None,
            page_tier: None,
            tier_run_pages: 1,
            system_cache: SystemCache::default(),
            io_uring: true,
            answers_questions: true,
        }
    }
}

impl Options {
    /// The fewest pages that a pool can work with.
    pub const MIN_POOL_PAGES: usize = 64;

    /// The most memory that a pool can have, in bytes.
    pub const MOST_POOL_BYTES: usize = 8 << 40;

    /// The most threads that recovery can use: each needs some pages of the pool.
    pub const MOST_RECOVERY_THREADS: usize = 32;

    /// The default of [`Options::recovery_target`].
    pub const RECOVERY_TARGET: Duration = Duration::from_secs(1);

    /// The shortest [`Options::recovery_target`].
    pub const LEAST_RECOVERY_TARGET: Duration = Duration::from_millis(10);

    /// Returns options for programs with little data, such as tools and tests: 4 MiB of memory for
    /// pages and a log of some megabytes. Not for the schemes without a log in files.
    ///
    /// ```
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// let db = duramen::Db::open(home.path(), duramen::Options::small())?;
    /// # db.close()
    /// # }
    /// ```
    #[must_use]
    pub fn small() -> Self {
        Self {
            pool_bytes: 4 << 20,
            log_buffer_bytes: 256 << 10,
            log_segment_bytes: 1 << 20,
            checkpoint_bytes: Some(4 << 20),
            redo_memory_bytes: Some(4 << 20),
            run_async_threads: 2,
            ..Self::default()
        }
    }

    /// Returns whether [`Options::instant_recovery`] is on, by either spelling.
    #[expect(deprecated, reason = "the earlier spelling counts, too")]
    pub(crate) fn recovers_instantly(&self) -> bool {
        self.instant_recovery || self.open_early
    }

    /// Returns the memory that recovery may use beside the pool, in bytes:
    /// [`Options::redo_memory_bytes`], or its default.
    pub(crate) fn redo_memory(&self) -> usize {
        self.redo_memory_bytes.unwrap_or(if self.recovers_instantly() { 1 << 30 } else { 64 << 20 })
    }

    /// Returns how far apart checkpoints are.
    pub(crate) fn checkpoint_pace(&self, has_tier: bool) -> Pace {
        if let Some(bytes) = self.checkpoint_bytes {
            return Pace::Every(bytes);
        }
        let target = self.recovery_target.unwrap_or(Self::RECOVERY_TARGET);
        Pace::within(if has_tier { target / 2 } else { target }, self.log_max_bytes)
    }

    /// Returns the most memory for versions, in bytes.
    pub(crate) fn version_memory(&self) -> usize {
        self.version_bytes.unwrap_or(self.pool_bytes / 2)
    }

    /// Returns the options of each log.
    pub(crate) fn of_log(&self) -> WalOptions {
        // What a checkpoint recycles is used until the next one.
        let recycled =
            self.checkpoint_pace(false).interval() / u64::from(self.logs.max(1)) / self.log_segment_bytes.max(1);
        let usual = WalOptions::default();
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
            sync_record_kind: Kind::SyncRecord as u8,
            group_commit: GroupCommit {
                transactions: self.group_commit_transactions,
                bytes: self.group_commit_bytes,
                time: self.group_commit_time,
            },
            spare_segments: usual.spare_segments.saturating_add(recycled as usize),
            ..usual
        }
    }

    /// Checks that every option has a valid value.
    ///
    /// ```
    /// # use duramen::{Error, Options};
    /// assert!(Options::default().validate().is_ok());
    ///
    /// let options = Options { pool_bytes: 4096, ..Options::default() };
    /// let error = options.validate().unwrap_err();
    /// assert!(matches!(error, Error::InvalidOption { option: "pool_bytes", .. }));
    /// assert!(error.to_string().contains("at least 524288 bytes"));
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidOption`] names the first invalid option and its valid values.
    pub fn validate(&self) -> Result<()> {
        let wrong = |option, reason: String| Err(Error::InvalidOption { option, reason });
        if self.pool_bytes < Self::MIN_POOL_PAGES * PAGE_SIZE {
            return wrong("pool_bytes", format!("must be at least {} bytes", Self::MIN_POOL_PAGES * PAGE_SIZE));
        }
        if self.pool_bytes > Self::MOST_POOL_BYTES {
            return wrong("pool_bytes", format!("must be at most {} bytes (8 TiB)", Self::MOST_POOL_BYTES));
        }
        match &self.scheme {
            Scheme::Wal => {}
            Scheme::PcmBasic(pcm) => self.validate_pcm_basic(pcm)?,
            Scheme::NoPcm => self.validate_no_pcm()?,
            Scheme::InPlace(heap) | Scheme::NvramGroupCommit(heap, _) => self.validate_heap(heap)?,
            Scheme::PcmLogging(pcm) => self.validate_pcm(pcm)?,
        }
        self.of_log().validate()?;
        if self.give_up_archive && self.archive.is_some() {
            return wrong("give_up_archive", "contradicts `archive`: leave one of them out".into());
        }
        if self.checkpoint_bytes.is_some_and(|bytes| bytes > self.log_max_bytes / 2) {
            return wrong("checkpoint_bytes", "must be at most half of `log_max_bytes`".into());
        }
        if !(1..=MAX_LOGS).contains(&self.logs) {
            return wrong("logs", format!("must be at least 1 and at most {MAX_LOGS}"));
        }
        if self.logs > 1 && self.log_insert == InsertDesign::Reserved {
            let reason = "`reserved` does not assign log space in order, which several logs need; choose another \
                          design, or use one log";
            return wrong("log_insert", reason.into());
        }
        if self.checkpoint_bytes == Some(0) {
            return wrong("checkpoint_bytes", "must not be zero".into());
        }
        if self.recovery_target.is_some() && self.checkpoint_bytes.is_some() {
            let reason = "stands against `checkpoint_bytes`, which also decides when checkpoints are taken; give one \
                          of them";
            return wrong("recovery_target", reason.into());
        }
        if self.recovery_target.is_some_and(|target| target < Self::LEAST_RECOVERY_TARGET) {
            return wrong("recovery_target", "must be at least 10 milliseconds".into());
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
        if self.lock_escalation == 0 {
            return wrong("lock_escalation", "must be at least 1".into());
        }
        if self.run_async_threads == 0 {
            return wrong("run_async_threads", "must be at least 1".into());
        }
        if self.cleaner_pages_per_second == Some(0) {
            return wrong("cleaner_pages_per_second", "must not be zero; `None` means no limit".into());
        }
        if self.dirty_pages == Some(0) {
            return wrong("dirty_pages", "must not be zero; `None` means three quarters of the pool".into());
        }
        if self.page_tier.as_ref().is_some_and(|tier| tier.bytes < TierOptions::LEAST_BYTES) {
            return wrong("page_tier", format!("must have at least {} bytes", TierOptions::LEAST_BYTES));
        }
        if !self.tier_run_pages.is_power_of_two() || self.tier_run_pages > 128 {
            return wrong("tier_run_pages", "must be a power of two, at most 128".into());
        }
        Ok(())
    }
}

impl Options {
    /// Checks that no option asks for what only a log can do; `copy` is what to do instead of
    /// archiving it.
    fn validate_without_log(&self, copy: &str) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        let name = self.scheme.name();
        let has_none = |option, reason: &str| wrong(option, &format!("the scheme `{name}` {reason}: leave it out"));
        let usual = Self::default();
        if self.log_insert != usual.log_insert {
            return has_none("log_insert", "has no log that threads share");
        }
        if self.logs != usual.logs || self.log_partition != usual.log_partition {
            return has_none("logs", "has no log");
        }
        if self.log_device != usual.log_device {
            return has_none("log_device", "has no log");
        }
        let of_log = |options: &Self| {
            let bytes = (options.log_buffer_bytes, options.log_segment_bytes, options.log_max_bytes);
            (bytes, options.log_array_slots, options.log_arrays, options.log_slot_pool)
        };
        if of_log(self) != of_log(&usual) {
            return has_none("log", "has no log with sizes");
        }
        let of_groups =
            |options: &Self| (options.group_commit_transactions, options.group_commit_bytes, options.group_commit_time);
        if of_groups(self) != of_groups(&usual) {
            return has_none("group_commit", "has no group commit of a log");
        }
        if self.recovery_threads.is_some() {
            return has_none("recovery_threads", "has no log to recover from");
        }
        if self.recovers_instantly() {
            return has_none("instant_recovery", "has no redo that could be left for later");
        }
        if self.redo_memory_bytes.is_some() {
            return has_none("redo_memory_bytes", "has no redo of a log");
        }
        if self.archive.is_some() {
            let reason = format!("the scheme `{name}` has no log to archive: {copy}");
            return wrong("archive", &reason);
        }
        if self.give_up_archive {
            return has_none("give_up_archive", "has no log to archive");
        }
        if self.cleaner_pages_per_second.is_some() {
            return has_none("cleaner_pages_per_second", "has no cleaner");
        }
        if self.dirty_pages.is_some() {
            return has_none("dirty_pages", "has no cleaner");
        }
        if self.page_tier.is_some() {
            return has_none("page_tier", "has its pages in persistent memory");
        }
        if self.tier_run_pages != usual.tier_run_pages {
            return has_none("tier_run_pages", "has no page tier");
        }
        if self.checkpoint_bytes.is_some() {
            return has_none("checkpoint_bytes", "takes no checkpoints");
        }
        if self.recovery_target.is_some() {
            return has_none("recovery_target", "has no log to recover from");
        }
        Ok(())
    }
}

impl FromStr for Timestamp {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::InvalidOption {
            option: "time",
            reason: format!("`{text}` is not a time; write it like 2026-11-21T15:28:34.123456Z (UTC)"),
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

    #[test]
    fn checkpoints_are_due_sooner_with_a_tier_and_in_a_small_log() {
        let mib = |options: &Options, has_tier| options.checkpoint_pace(has_tier).interval() >> 20;
        let usual = Options::default();
        assert_eq!((mib(&usual, false), mib(&usual, true)), (32, 16));
        let small = Options { log_max_bytes: 32 << 20, log_segment_bytes: 1 << 20, ..Options::default() };
        small.validate().unwrap();
        assert_eq!((mib(&small, false), mib(&small, true)), (16, 16));
        let quick = Options { recovery_target: Some(Duration::from_millis(250)), ..Options::default() };
        assert_eq!((mib(&quick, false), mib(&quick, true)), (8, 4));
        let own = Options { checkpoint_bytes: Some(100 << 20), ..Options::default() };
        assert_eq!((mib(&own, false), mib(&own, true)), (100, 100));
    }
}
