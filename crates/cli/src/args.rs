//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, value_parser};
use duramen::pmem::Domain;
use duramen::{CommitMode, Gsn, InsertDesign, Isolation, Partition, RestoreTo, Timestamp};

use crate::axes;
use crate::failure::EXIT_CODES;

#[derive(Parser, Debug)]
#[command(name = "duramen", version, about = "Measure, check and look into Duramen databases", after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// Copy a database into a directory, from which it can be restored
    #[command(after_help = EXIT_CODES)]
    Backup(BackupArgs),
    /// Populate a database if it is empty, run a workload on it, audit it and report
    #[command(after_help = EXIT_CODES)]
    Bench(Box<BenchArgs>),
    /// Check every page and table of a closed database, and audit a benchmark's
    #[command(after_help = EXIT_CODES)]
    Check(CheckArgs),
    /// Look into a closed database's log, pages, tables or last checkpoint
    #[command(after_help = EXIT_CODES)]
    Inspect(InspectArgs),
    /// Repeat experiments of the papers that Duramen is built on, and say what comes out
    #[command(after_help = EXIT_CODES)]
    Lab(LabArgs),
    /// Make a database of a backup and the log archive, as it was at any point since, and check it
    #[command(after_help = EXIT_CODES)]
    Restore(RestoreArgs),
    /// Open a database and print its files, counters and what recovery did
    #[command(after_help = EXIT_CODES)]
    Stats(StatsArgs),
}

/// How files are read and written, where the end of the log is, and how much memory holds pages.
#[derive(Args, Debug, Clone)]
pub(crate) struct OpenArgs {
    /// Memory for pages, in MiB
    #[arg(long, value_name = "M", default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pool_mb: u32,
    /// Threads that recovery uses [default: one for each processor, as far as there is log that is
    /// worth it]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=32))]
    pub(crate) recovery_threads: Option<u32>,
    /// After a crash, open as soon as the log has been read; losers are rolled back and pages
    /// redone in the background
    #[arg(long, alias = "open-early")]
    pub(crate) instant_recovery: bool,
    /// Memory for the changes that recovery repeats, sorted by page, in MiB; with
    /// --instant-recovery, half of it is for those that wait [default: 64, or 1024 with
    /// --instant-recovery]
    #[arg(long, value_name = "M", value_parser = value_parser!(u32).range(1..=4096))]
    pub(crate) redo_memory_mb: Option<u32>,
    /// Read and write through the system's page cache
    #[arg(long)]
    pub(crate) no_direct: bool,
    /// Do not use io_uring
    #[arg(long)]
    pub(crate) no_uring: bool,
    /// Copy log segments to this directory before they are recycled, for restoring; once begun, to
    /// be given always
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

/// Where the end of the log is kept.
#[derive(Args, Debug, Clone)]
pub(crate) struct LogArgs {
    /// Where the end of the log is kept: file, nvm (a ring in persistent memory)
    #[arg(long, value_name = "DEVICE", default_value = "file", value_parser = axes::log_device)]
    pub(crate) log_device: &'static str,
    /// Persistence domain that the ring relies on: durable-cache, volatile-cache [default:
    /// volatile-cache]
    #[arg(long, value_name = "DOMAIN", value_parser = axes::domain)]
    pub(crate) domain: Option<Domain>,
    /// File or device of the ring; a file that is not there is made. With several logs, each has a
    /// ring: given again, for the second log and so on; without, it is the file named as the first,
    /// with the log's number behind it [default: `ring` in the database's directory]
    #[arg(long, value_name = "PATH")]
    pub(crate) region: Vec<PathBuf>,
    /// Size of a new ring, in MiB: a power of two [default: 64]
    #[arg(long, value_name = "M", value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) ring_mb: Option<u32>,
}

impl OpenArgs {
    /// With so much memory for pages; what else there is is as when nothing is said.
    pub(crate) const fn with_pool(pool_mb: u32) -> Self {
        let log = LogArgs { log_device: "file", domain: None, region: Vec::new(), ring_mb: None };
        Self {
            pool_mb,
            recovery_threads: None,
            instant_recovery: false,
            redo_memory_mb: None,
            no_direct: false,
            no_uring: false,
            archive: None,
            log,
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Directory for the backup, new or empty
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RestoreArgs {
    /// Directory of the backup
    pub(crate) backup: PathBuf,
    /// Directory for the database, new or empty
    pub(crate) target: PathBuf,
    /// Directory of the log archive
    #[arg(long, value_name = "DIR")]
    pub(crate) archive: Option<PathBuf>,
    /// Directory of the database that the backup is of, closed or crashed, for the log that is not
    /// archived yet
    #[arg(long, value_name = "DIR")]
    pub(crate) log: Option<PathBuf>,
    /// Restore the state before this GSN, or after the last commit up to this time
    /// (2026-11-21T15:28:34.123456Z) [default: all there is]
    #[arg(long, value_name = "POINT", value_parser = point)]
    pub(crate) to: Option<RestoreTo>,
    /// Memory for pages while the database is recovered and checked, in MiB
    #[arg(long, value_name = "M", default_value_t = 256, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pool_mb: u32,
}

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// What to run: tpcb, tatp, tatp:update-location, tatp:get-subscriber, tpcc, tpcc:payment,
    /// tpcc:new-order, ycsb:a to ycsb:f; log-insert: the log buffer alone, design by design, beside
    /// copying; or device-sync: durable writes of 4 KiB, one after another, to a file in the
    /// directory
    #[arg(value_parser = axes::workload)]
    pub(crate) workload: &'static str,
    /// Clients: so many transactions are in progress, or waiting for their commits, at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=65_536))]
    pub(crate) clients: u32,
    /// Threads that carry the clients [default: one for each client where a commit holds up its
    /// thread (sync, elr), else one for each processor]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) agents: Option<u32>,
    /// Transactions that all clients together begin in a second, evenly spaced [default: each
    /// client begins the next one as soon as its last one is acknowledged]
    #[arg(long, value_name = "N", value_parser = axes::rate)]
    pub(crate) rate: Option<f64>,
    /// How long to run
    #[arg(long, value_name = "S", default_value = "10", value_parser = axes::seconds)]
    pub(crate) seconds: f64,
    /// Run so long before, without counting, so that what is measured finds its pages in memory and
    /// its log segments made
    #[arg(long, value_name = "S", default_value = "0", value_parser = axes::warmup)]
    pub(crate) warmup: f64,
    /// Run so many transactions instead
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = value_parser!(u64).range(1..))]
    pub(crate) transactions: Option<u64>,
    /// Size of a new database: branches of 100,000 accounts (tpcb), times 100,000 subscribers
    /// (tatp), warehouses (tpcc), times 100,000 records (ycsb) [default: what the database holds,
    /// else one that suits a laptop]
    #[arg(long, value_name = "K", value_parser = value_parser!(u32).range(1..))]
    pub(crate) scale: Option<u32>,
    /// Directory of the database [default: ./duramen-data/WORKLOAD]
    #[arg(long, value_name = "PATH")]
    pub(crate) dir: Option<PathBuf>,
    /// When locks are released and commits acknowledged: sync, elr, pipelined, async (async loses
    /// transactions at a crash)
    #[arg(long, value_name = "MODE", default_value = "pipelined", value_parser = axes::commit)]
    pub(crate) commit: CommitMode,
    /// How records enter the log buffer: mutex, consolidated, decoupled, hybrid, delegated,
    /// reserved [default: hybrid; log-insert: each of them]
    #[arg(long, value_name = "DESIGN", value_parser = axes::log_insert)]
    pub(crate) log_insert: Option<InsertDesign>,
    /// Size of the records of log-insert, in bytes [default: 120]
    #[arg(long, value_name = "B", value_parser = value_parser!(u32).range(48..))]
    pub(crate) record_bytes: Option<u32>,
    /// Number of logs of a new database: 1 to 24
    #[arg(long, value_name = "N", default_value = "1", value_parser = axes::logs)]
    pub(crate) logs: u16,
    /// What decides which of several logs a record goes to, in a new database: transaction (by the
    /// processor that it begins on), page, round-robin (by transaction, in turn)
    #[arg(long, value_name = "BY", default_value = "transaction", value_parser = axes::partition)]
    pub(crate) partition: Partition,
    /// How updates reach the database: wal
    #[arg(long, value_name = "SCHEME", default_value = "wal", value_parser = axes::scheme)]
    pub(crate) scheme: &'static str,
    /// What transactions see of each other: serializable, read-committed
    #[arg(long, value_name = "LEVEL", default_value = "serializable", value_parser = axes::isolation)]
    pub(crate) isolation: Isolation,
    /// Take a checkpoint each time the log has grown by so many MiB
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) checkpoint_mb: Option<u64>,
    /// Size of a new log's segment files, in MiB
    #[arg(long, value_name = "M", value_parser = value_parser!(u64).range(1..=1 << 20))]
    pub(crate) segment_mb: Option<u64>,
    /// Seed of the clients' inputs [default: another one each time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Draw rows from a Zipfian distribution with this exponent, 0 for uniform [default: the
    /// workload's own]
    #[arg(long, value_name = "THETA", value_parser = axes::skew)]
    pub(crate) skew: Option<f64>,
    /// Append every acknowledged transaction of tpcb to this file, for `check --ledger`
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,
    /// Take a backup into this directory, new or empty, while the run goes on
    #[arg(long, value_name = "DIR")]
    pub(crate) backup: Option<PathBuf>,
    /// Rows for each unit of the scale of a new database, fewer than the specification says
    #[arg(long, value_name = "N", hide = true, value_parser = value_parser!(u64).range(1..))]
    pub(crate) rows_per_unit: Option<u64>,
    /// Print one JSON object on standard output instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) open: OpenArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Directory of the database
    pub(crate) dir: PathBuf,
    /// Also look up every transaction that `bench --ledger` noted as acknowledged
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
        /// Which of several logs
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        log: u16,
        /// Start at this log sequence number [default: where the log starts]
        #[arg(long, value_name = "LSN")]
        from: Option<u64>,
        /// Print at most so many records
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: u64,
    },
    /// Print a page's header and slots, as they are on disk
    Page {
        /// Directory of the database
        dir: PathBuf,
        /// Number of the page
        page: u64,
    },
    /// Print a table's shape and its first keys (opens the database, which recovers it; in memory,
    /// where nothing can be written)
    Table {
        /// Directory of the database
        dir: PathBuf,
        /// Name of the table
        name: String,
        /// Print so many keys
        #[arg(long, value_name = "N", default_value_t = 0)]
        keys: usize,
    },
    /// Print the control file: versions, and where the last checkpoint is
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
    /// Print the experiments there are
    List,
    /// Run experiments; write their figures as CSV and SVG, and a page about all that have been run
    Run {
        /// Experiments as `lab list` names them, or `all`
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Few points, each measured for a moment: all experiments together take about a minute
        #[arg(long)]
        quick: bool,
        /// Next to nothing is measured, for tests
        #[arg(long, hide = true, conflicts_with = "quick")]
        tiny: bool,
        /// Directory for the results
        #[arg(long, value_name = "DIR", default_value = "lab-results")]
        out: PathBuf,
        /// Also write the plots, without the numbers, to this directory
        #[arg(long, value_name = "DIR")]
        figures: Option<PathBuf>,
    },
    /// Print what the papers found beside what was measured, and the verdicts
    Claims {
        /// Print one JSON object for each claim, on a line of its own
        #[arg(long)]
        json: bool,
        /// Directory with the results
        #[arg(long, value_name = "DIR", default_value = "lab-results")]
        out: PathBuf,
    },
    /// Measure the same operations here and on a simulated machine, and print how far the model is
    /// off
    Calibrate {
        /// Print one JSON object for each operation, of this build alone
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
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contract_has_its_defaults() {
        let cli = Cli::try_parse_from(["duramen", "bench", "tpcb"]).unwrap();
        let Command::Bench(args) = cli.command else { panic!() };
        assert_eq!((args.clients, args.seconds, args.logs), (16, 10.0, 1));
        assert_eq!((args.partition, args.open.log.log_device, args.scheme), (Partition::Transaction, "file", "wal"));
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
