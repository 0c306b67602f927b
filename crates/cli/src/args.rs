//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, value_parser};
use duramen::pmem::Domain;
use duramen::{
    Barriers, CommitMode, Granularity, Gsn, InsertDesign, Isolation, Partition, Residence, RestoreTo, SystemCache,
    Timestamp,
};

use crate::axes;
use crate::failure::EXIT_CODES;

#[derive(Parser, Debug)]
#[command(name = "duramen", version, about = "Measure, check, inspect and restore Duramen \
                                              databases", after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line of this process.
    pub(crate) fn of_process() -> Self {
        let matches = Self::command().get_matches();
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if let (Command::Bench(args), Some(matches)) = (&mut cli.command, matches.subcommand_matches("bench")) {
            args.given = given("bench", matches);
        }
        cli
    }
}

/// Returns the names of the options of a subcommand that the command line has.
fn given(subcommand: &str, matches: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let options = command.find_subcommand(subcommand).into_iter().flat_map(clap::Command::get_arguments);
    options
        .filter(|option| matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine))
        .filter_map(|option| option.get_long().map(str::to_owned))
        .collect()
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Copy a database into a backup directory, from which `restore` can restore it
    #[command(after_help = EXIT_CODES)]
    Backup(BackupArgs),
    /// Populate a database if it is empty, run a workload on it, audit it, and print a report
    #[command(after_help = EXIT_CODES)]
    Bench(Box<BenchArgs>),
    /// Check every page and table of a closed database, or let the process that has it open read
    /// it; also audit a benchmark database
    #[command(after_help = EXIT_CODES)]
    Check(CheckArgs),
    /// Copy a closed database into a new one, packed: a data file never shrinks by itself
    #[command(after_help = EXIT_CODES)]
    Compact(CompactArgs),
    /// Write the records of a database to standard output, as text that `load` reads; those of an
    /// open one through the process that has it open
    #[command(after_help = EXIT_CODES)]
    Dump(DumpArgs),
    /// Print a closed database's log, pages or last checkpoint, or the shape of a table
    #[command(after_help = EXIT_CODES)]
    Inspect(InspectArgs),
    /// Repeat experiments of the papers that Duramen is built on, and compare the results
    #[command(after_help = EXIT_CODES)]
    Lab(LabArgs),
    /// Put the records of a dump into a database, which is created if there is none
    #[command(after_help = EXIT_CODES)]
    Load(LoadArgs),
    /// Create a database from a backup and the log archive, as it was at a point after the backup,
    /// and check it
    #[command(after_help = EXIT_CODES)]
    Restore(RestoreArgs),
    /// Print the files of a database, its counters and what recovery did, or the counters of the
    /// process that has it open
    #[command(after_help = EXIT_CODES)]
    Stats(StatsArgs),
    /// Work on the page tier of a closed database
    #[command(after_help = EXIT_CODES)]
    Tier(TierArgs),
}

#[derive(Args, Debug)]
pub(crate) struct TierArgs {
    #[command(subcommand)]
    pub(crate) command: TierCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TierCommand {
    /// Write all pages of the tier to the data file, and remove the tier
    Drain {
        /// Directory of the database
        dir: PathBuf,
        #[command(flatten)]
        open: OpenArgs,
    },
}

/// Options for opening a database: I/O, the log device, memory and recovery.
#[derive(Args, Debug, Clone)]
pub(crate) struct OpenArgs {
    /// Memory of the buffer pool, in MiB
    #[arg(long, value_name = "M", default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pool_mb: u32,
    /// Threads for recovery [default: one for each processor, at most 8, and fewer for a short log]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=32))]
    pub(crate) recovery_threads: Option<u32>,
    /// After a crash, open the database as soon as recovery has read the log; roll back
    /// transactions and redo pages in the background
    #[arg(long, alias = "open-early")]
    pub(crate) instant_recovery: bool,
    /// Memory in which recovery sorts the changes in the log by page, in MiB; with
    /// --instant-recovery, half of it holds changes that the background has not applied yet
    /// [default: 64, or 1024 with --instant-recovery]
    #[arg(long, value_name = "M", value_parser = value_parser!(u32).range(1..=4096))]
    pub(crate) redo_memory_mb: Option<u32>,
    /// Which files the system's page cache holds as well: the data file, none, or all. All others
    /// bypass it with direct I/O
    #[arg(long, value_name = "FILES", default_value = "data", value_parser = axes::system_cache)]
    pub(crate) system_cache: SystemCache,
    /// Do not use io_uring
    #[arg(long)]
    pub(crate) no_uring: bool,
    /// Archive log segments in this directory before they are recycled, so that `restore` can use
    /// them [default: the archive that the database keeps, which is the latest that it was opened
    /// with]
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Make the database forget its archive, which ends there
    #[arg(long, conflicts_with = "archive")]
    pub(crate) no_archive: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) heap: HeapArgs,
}

/// The storage scheme, and the heap of a scheme that has one.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct HeapArgs {
    /// Storage scheme: wal, in-place (pages in a heap in persistent memory, without a log),
    /// nvram-group-commit (the same, with changes in batches), pcm-logging (changed pages in
    /// persistent memory above the data file, without a log), pcm-basic (wal with a page tier and
    /// the log in a little persistent memory), no-pcm (wal in files alone) [default: that of the
    /// database, where pcm-basic and no-pcm count as wal; wal for a new one]
    #[arg(long, value_name = "SCHEME", value_parser = axes::scheme)]
    pub(crate) scheme: Option<&'static str>,
    /// Size of a new heap, in MiB; an existing heap grows to it [default: 1024, or the present
    /// size]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(2..=1 << 30))]
    pub(crate) heap_mb: Option<u64>,
    /// The part of a new heap that is for journals, in MiB [default: a sixteenth, at most 256]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) journal_mb: Option<u64>,
    /// Size of the persistent memory of a new database with pcm-logging, or with pcm-basic for
    /// pages and log together, in MiB; what exists grows to it [default: 64, or the present size]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=16 << 20))]
    pub(crate) pcm_mb: Option<u64>,
    /// Persist barriers of a change in a heap: fewest (2), paper (6, the protocol of the paper, for
    /// comparison); or of a batch: fewest (2), paper (4); or of a commit with pcm-logging: fewest
    /// (2), paper (3); may differ from one opening to the next [default: fewest]
    #[arg(long, value_name = "PROTOCOL", value_parser = axes::barriers)]
    pub(crate) barriers: Option<Barriers>,
    /// What a transaction stores with pcm-logging when it ends: page (the pages that it has
    /// changed), tuple (the records); may differ from one opening to the next [default: page]
    #[arg(long, value_name = "WHAT", value_parser = axes::granularity)]
    pub(crate) granularity: Option<Granularity>,
    /// Where pages of a heap are read: cached (in copies in DRAM, as many as --pool-mb holds),
    /// direct (in the heap); may differ from one opening to the next [default: cached]
    #[arg(long, value_name = "WHERE", value_parser = axes::residence)]
    pub(crate) residence: Option<Residence>,
    /// How long a batch of nvram-group-commit lasts, in ms, for instance 0.5 [default: 5]
    #[arg(long, value_name = "MS", value_parser = axes::batch_period)]
    pub(crate) batch_ms: Option<Duration>,
    /// The part of a new heap that is for batches, in MiB [default: an eighth, at most 64]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=4096))]
    pub(crate) batch_log_mb: Option<u64>,
    /// Percentage of the new persistent memory of pcm-basic that the log uses [default: 25]
    #[arg(long, value_name = "PERCENT", value_parser = value_parser!(u8).range(1..=90))]
    pub(crate) log_share: Option<u8>,
    /// Make each barrier of the heap, or of pcm-logging, take this many nanoseconds, to model
    /// slower memory
    #[arg(long, value_name = "NS", value_parser = value_parser!(u64).range(0..=1_000_000_000))]
    pub(crate) barrier_ns: Option<u64>,
}

impl HeapArgs {
    /// No option.
    const NONE: Self = Self {
        scheme: None,
        heap_mb: None,
        pcm_mb: None,
        journal_mb: None,
        barriers: None,
        granularity: None,
        residence: None,
        batch_ms: None,
        batch_log_mb: None,
        log_share: None,
        barrier_ns: None,
    };
}

/// The device for the end of the log.
#[derive(Args, Debug, Clone)]
pub(crate) struct LogArgs {
    /// Device for the end of the log: file, nvm (a ring in persistent memory)
    #[arg(long, value_name = "DEVICE", default_value = "file", value_parser = axes::log_device)]
    pub(crate) log_device: &'static str,
    /// Persistence domain assumed for the ring, heap, page tier or memory of pcm-logging:
    /// durable-cache, volatile-cache [default: volatile-cache; both for the workload barrier]
    #[arg(long, value_name = "DOMAIN", value_parser = axes::domain)]
    pub(crate) domain: Option<Domain>,
    /// File or device of the ring, of the heap, or of the memory of pcm-logging; or file of
    /// pcm-basic, whose log is in another file with `-log` appended. A missing file is created.
    /// With several logs, each log has a ring: repeat the option for the second log and so on. The
    /// ring of a log without the option is the file of the first ring with the log's number
    /// appended. The workload barrier measures it [default: memory for barrier, otherwise `ring`,
    /// `heap` or `pcm` in the database's directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) region: Vec<PathBuf>,
    /// Size of a new ring, in MiB, a power of two [default: 64]
    #[arg(long, value_name = "M", value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) ring_mb: Option<u32>,
}

impl OpenArgs {
    /// Returns the defaults, with this much memory for the buffer pool.
    pub(crate) const fn with_pool(pool_mb: u32) -> Self {
        let log = LogArgs { log_device: "file", domain: None, region: Vec::new(), ring_mb: None };
        Self {
            pool_mb,
            recovery_threads: None,
            instant_recovery: false,
            redo_memory_mb: None,
            system_cache: SystemCache::Data,
            no_uring: false,
            archive: None,
            no_archive: false,
            log,
            heap: HeapArgs::NONE,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Directory for the backup; it must be new or empty
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CompactArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Directory for the copy; it must be new or empty
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DumpArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Tables to write [default: all]
    #[arg(value_name = "TABLE")]
    pub(crate) tables: Vec<String>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LoadArgs {
    /// Directory of the database; the tables that the dump has must be empty or missing
    pub(crate) dir: PathBuf,
    /// File that `dump` has written; it is read twice, so it must be a file
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// Directory of the backup
    pub(crate) backup: PathBuf,
    /// Directory for the restored database; it must be new or empty
    pub(crate) target: PathBuf,
    /// Directory of the log archive
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Directory of the database that was backed up, closed or crashed; supplies the log that is
    /// not archived yet
    #[arg(long, value_name = "DIR")]
    pub(crate) log: Option<PathBuf>,
    /// Restore the state before this GSN, or before the first commit after this time
    /// (2026-11-21T15:28:34.123456Z) [default: the end of the log]
    #[arg(long, value_name = "POINT", value_parser = point)]
    pub(crate) to: Option<RestoreTo>,
    /// Memory of the buffer pool for recovering and checking the database, in MiB
    #[arg(long, value_name = "M", default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pool_mb: u32,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Workload: tpcb, tatp, tatp:update-location, tatp:get-subscriber, tpcc, tpcc:payment,
    /// tpcc:new-order, or ycsb:a to ycsb:f; log-insert measures the log buffer alone, each
    /// insertion design beside plain copying; device-sync measures durable writes of 4 KiB, one
    /// after another, to a file in the directory; barrier measures what it takes to make cache
    /// lines durable in persistent memory (--region), and recommends a storage scheme
    #[arg(value_parser = axes::workload)]
    pub(crate) workload: &'static str,
    /// Number of clients; each has one transaction at a time in progress or waiting for its commit
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// Threads that run the clients [default: one for each client if a commit blocks its thread
    /// (sync, elr), else one for each processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) agents: Option<u32>,
    /// Transactions per second that all clients together begin, evenly spaced [default: each client
    /// begins a transaction when its previous one is acknowledged]
    #[arg(long, value_name = "N", value_parser = axes::rate)]
    pub(crate) rate: Option<f64>,
    /// Duration of the run, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = axes::seconds)]
    pub(crate) seconds: f64,
    /// Duration of a warm-up before the run, in seconds: it reads pages into memory and creates log
    /// segments, and is not measured
    #[arg(long, value_name = "S", default_value = "0", value_parser = axes::warmup)]
    pub(crate) warmup: f64,
    /// Run this many transactions, instead of --seconds
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..))]
    pub(crate) transactions: Option<u64>,
    /// Size of a new database: branches of 100,000 accounts (tpcb), units of 100,000 subscribers
    /// (tatp), warehouses (tpcc), units of 100,000 records (ycsb) [default: the size of the
    /// existing database, else a size for a laptop]
    #[arg(long, value_name = "K", value_parser = value_parser!(u32).range(1..))]
    pub(crate) scale: Option<u32>,
    /// Directory of the database [default: ./duramen-data/WORKLOAD]
    #[arg(long, value_name = "PATH")]
    pub(crate) dir: Option<PathBuf>,
    /// Commit mode, which decides when locks are released and commits acknowledged: sync, elr,
    /// pipelined, async (async can lose acknowledged transactions in a crash)
    #[arg(long, value_name = "MODE", default_value = "pipelined", value_parser = axes::commit)]
    pub(crate) commit: CommitMode,
    /// Design of log insertion: mutex, consolidated, decoupled, hybrid, delegated, reserved
    /// [default: hybrid; all designs for the workload log-insert]
    #[arg(long, value_name = "DESIGN", value_parser = axes::log_insert)]
    pub(crate) log_insert: Option<InsertDesign>,
    /// Record size of the workload log-insert, in bytes [default: 120]
    #[arg(long, value_name = "B", value_parser = value_parser!(u32).range(48..))]
    pub(crate) record_bytes: Option<u32>,
    /// Number of logs, 1 to 24; must match the number of an existing database
    #[arg(long, value_name = "N", default_value = "1", value_parser = axes::logs)]
    pub(crate) logs: u16,
    /// What decides the log of a record, if there are several: transaction (the processor on which
    /// the transaction begins), page, round-robin (each transaction takes the next log); must match
    /// the partition of an existing database
    #[arg(long, value_name = "BY", default_value = "transaction", value_parser = axes::partition)]
    pub(crate) partition: Partition,
    /// Isolation level: serializable, read-committed
    #[arg(long, value_name = "LEVEL", default_value = "serializable", value_parser = axes::isolation)]
    pub(crate) isolation: Isolation,
    /// Take checkpoints so often that opening after a crash takes about this many milliseconds
    /// [default: 1000]
    #[arg(long, value_name = "MS", conflicts_with = "checkpoint_mb")]
    #[arg(value_parser = value_parser!(u64).range(10..=1 << 32))]
    pub(crate) recovery_target_ms: Option<u64>,
    /// Take a checkpoint each time the log has grown by this many MiB [default: by the time that
    /// opening after a crash may take]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) checkpoint_mb: Option<u64>,
    /// Number of dirty pages that the page cleaner aims at [default: three quarters of the pool]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=1 << 40))]
    pub(crate) dirty_pages: Option<u64>,
    /// Size of the page tier, in MiB: a file on a fast medium that takes dirty pages on their way
    /// to the data file; the database keeps it
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 24))]
    pub(crate) tier_mb: Option<u64>,
    /// Directory of the page tier [default: that of the database]
    #[arg(long, value_name = "DIR", requires = "tier_mb")]
    pub(crate) tier: Option<PathBuf>,
    /// File in persistent memory for the page tier, instead of a directory (--domain says what it
    /// assumes)
    #[arg(long, value_name = "PATH", requires = "tier_mb", conflicts_with = "tier")]
    pub(crate) tier_region: Option<PathBuf>,
    /// Number of neighbouring pages that leave the tier together, a power of two: 64 for a disk
    /// where fewer and longer writes are faster [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=128))]
    pub(crate) tier_run: Option<u32>,
    /// Make each random write of the disk with the database take this many milliseconds longer, one
    /// after another as on one arm, while the workload runs
    #[arg(long, value_name = "MS", value_parser = axes::delay)]
    pub(crate) disk_delay_ms: Option<Duration>,
    /// Size of the segment files of a new log, in MiB [default: 64]
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) segment_mb: Option<u64>,
    /// Seed of the clients' inputs [default: a different one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Draw rows from a Zipfian distribution with this exponent, 0 for uniform [default: the
    /// workload's own]
    #[arg(long, value_name = "THETA", value_parser = axes::skew)]
    pub(crate) skew: Option<f64>,
    /// Append every acknowledged transaction of tpcb to this file, for `check --ledger`
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Take a backup into this new or empty directory during the run
    #[arg(long, value_name = "DIR")]
    pub(crate) backup: Option<PathBuf>,
    /// Keep old values for snapshots
    #[arg(long)]
    pub(crate) snapshots: bool,
    /// Threads that read the whole database through snapshots during the run, again and again
    /// (with --snapshots)
    #[arg(long, value_name = "N", requires = "snapshots", value_parser = value_parser!(u32).range(1..=1024))]
    pub(crate) scans: Option<u32>,
    /// Rows for each unit of --scale in a new database, fewer than the specification says
    #[arg(long, value_name = "N", hide = true, value_parser = value_parser!(u64).range(1..))]
    pub(crate) rows_per_unit: Option<u64>,
    /// Print the results as JSON on standard output instead of a table: one object on one line, or
    /// several lines for log-insert
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
    /// Names of the options that the command line has.
    #[arg(skip)]
    pub(crate) given: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Also look up every transaction that `bench --ledger` recorded as acknowledged in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[command(subcommand)]
    pub(crate) what: Inspect,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Inspect {
    /// Print log records
    Log {
        /// Directory of the database
        dir: PathBuf,
        /// Number of the log, if there are several
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        log: u16,
        /// Start at this log sequence number [default: the start of the log]
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// Print at most this many records
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
    },
    /// Print the header and the slots of a page, as they are on disk, in the heap, or in the memory
    /// of pcm-logging
    Page {
        /// Directory of the database
        dir: PathBuf,
        /// Number of the page
        page: u64,
        /// File or device of the heap or of the memory of pcm-logging [default: `heap` or `pcm` in
        /// the database's directory]
        #[arg(long, value_name = "PATH")]
        region: Option<PathBuf>,
    },
    /// Print the header, the space and the journals of a heap in persistent memory
    Heap {
        /// Directory of the database
        dir: PathBuf,
        /// File or device of the heap [default: `heap` in the database's directory]
        #[arg(long, value_name = "PATH")]
        region: Option<PathBuf>,
    },
    /// Print the header, the slots and the active transactions of the memory of pcm-logging
    Pcm {
        /// Directory of the database
        dir: PathBuf,
        /// File or device of the memory [default: `pcm` in the database's directory]
        #[arg(long, value_name = "PATH")]
        region: Option<PathBuf>,
    },
    /// Print the shape of a table and its first keys (a process that has the database open is
    /// asked; else this opens the database, which recovers it; where files cannot be written, in
    /// memory)
    Table {
        /// Directory of the database
        dir: PathBuf,
        /// Name of the table
        name: String,
        /// Number of keys to print
        #[arg(long, value_name = "N", default_value_t = 0)]
        keys: usize,
        /// File or device of the heap or of the memory of pcm-logging, if the database has one
        /// [default: `heap` or `pcm` in its directory]
        #[arg(long, value_name = "PATH")]
        region: Option<PathBuf>,
    },
    /// Print the control file, which records the last checkpoint
    Checkpoint {
        /// Directory of the database
        dir: PathBuf,
    },
}

#[derive(Args, Debug)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) what: Lab,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Lab {
    /// Print a list of the experiments
    List,
    /// Run experiments; write their figures as CSV and SVG, and a page about all completed
    /// experiments
    Run {
        /// Ids of experiments, as `lab list` prints them, or `all`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Measure few points, each for a short time: all experiments together take some minutes
        #[arg(long)]
        quick: bool,
        /// Measure almost nothing, for tests
        #[arg(long, hide = true, conflicts_with = "quick")]
        tiny: bool,
        /// Directory for the results
        #[arg(long, value_name = "DIR", default_value = "lab-results")]
        out: PathBuf,
        /// Also write the plots, without the numbers, to this directory
        #[arg(long, value_name = "DIR")]
        figures: Option<PathBuf>,
    },
    /// Print the papers' findings beside the measured figures, with the verdicts
    Claims {
        /// Print one JSON object for each claim, each on its own line
        #[arg(long)]
        json: bool,
        /// Directory with the results
        #[arg(long, value_name = "DIR", default_value = "lab-results")]
        out: PathBuf,
    },
    /// Measure the same operations on this machine and on a simulated one, and print the model's
    /// errors
    Calibrate {
        /// Print one JSON object for each operation, measured with this build only
        #[arg(long)]
        json: bool,
    },
}

/// Parses a point to restore to: a GSN or a time.
fn point(text: &str) -> Result<RestoreTo, String> {
    if let Ok(gsn) = text.parse() {
        return Ok(RestoreTo::Gsn(Gsn::new(gsn)));
    }
    let time: Result<Timestamp, _> = text.parse();
    time.map(RestoreTo::Time)
        .map_err(|_| "it is neither a GSN nor a time like 2026-11-21T15:28:34.123456Z (UTC)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contract_has_its_defaults() {
        let cli = Cli::try_parse_from(["duramen", "bench", "tpcb"]).unwrap();
        let Command::Bench(args) = cli.command else { panic!() };
        assert_eq!((args.clients, args.seconds, args.logs), (16, 10.0, 1));
        assert_eq!(
            (args.partition, args.open.log.log_device, args.open.heap.scheme),
            (Partition::Transaction, "file", None)
        );
    }

    #[test]
    fn options_of_the_command_line_are_told_from_defaults() {
        let line = ["duramen", "bench", "tpcb", "--clients", "16", "--json", "--region", "a"];
        let matches = Cli::command().get_matches_from(line);
        let given = given("bench", matches.subcommand_matches("bench").unwrap());
        assert_eq!(given, ["clients", "json", "region"]);
    }

    #[test]
    fn the_earlier_spelling_of_instant_recovery_is_understood() {
        for spelling in ["--instant-recovery", "--open-early"] {
            let cli = Cli::try_parse_from(["duramen", "bench", "tpcb", spelling]).unwrap();
            let Command::Bench(args) = cli.command else { panic!() };
            assert!(args.open.instant_recovery, "{spelling}");
        }
    }

    #[test]
    fn points_are_numbers_or_times() {
        assert_eq!(point("4096"), Ok(RestoreTo::Gsn(Gsn::new(4096))));
        assert_eq!(point("2001-09-09T01:46:40Z"), Ok(RestoreTo::Time(Timestamp::from_micros(1_000_000_000_000_000))));
        for text in ["", "-1", "yesterday", "2001-09-09"] {
            assert!(point(text).unwrap_err().contains("neither"), "{text}");
        }
    }
}
