//! Opens databases for the subcommands.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen::inspect::{Answer, Question, RemoteSnapshot};
use duramen::pmem::{Domain, Source, Survive, Timing};
use duramen::{
    Archive, BatchOptions, Db, HeapOptions, LogDevice, NvmOptions, Options, PcmBasicOptions, PcmOptions,
    RecoveryObserver, Scheme, TierMemory, inspect,
};
use duramen_io::{Disk, DiskLock, MemoryDisk};
use duramen_sync::clock::Instant;
use duramen_sync::{Arc, Mutex};

use crate::args::{LogArgs, OpenArgs};
use crate::failure::{Failure, Result};
use crate::progress::{Bar, Narrator};

/// A shorter opening is not reported.
const UNNOTICED: Duration = Duration::from_millis(500);

/// The file that every database has.
const CONTROL_FILE: &str = "control";

/// The name of the scheme with batches.
const GROUP_COMMIT: &str = "nvram-group-commit";

/// The name of the scheme with changed pages in persistent memory.
const PCM_LOGGING: &str = "pcm-logging";

/// The name of the preset with a page tier and the log in persistent memory.
const PCM_BASIC: &str = "pcm-basic";

/// The name of the preset without persistent memory.
const NO_PCM: &str = "no-pcm";

/// The file with the memory of pcm-logging or with the pages of pcm-basic, unless the command line
/// names another.
const PCM_FILE: &str = "pcm";

/// The size of new memory of these two, in bytes.
const PCM_BYTES: u64 = 64 << 20;

/// The file with the heap, unless the command line names another.
const HEAP_FILE: &str = "heap";

/// Returns the name of the storage scheme: the one that the command line names, or else that of the
/// database in `dir`, or else that of a new database.
pub(crate) fn scheme(dir: &Path, open: &OpenArgs) -> &'static str {
    let found = || {
        let disk = dir.join(CONTROL_FILE).is_file().then(|| MemoryDisk::over(dir).ok()).flatten()?;
        inspect::scheme(&disk).ok()
    };
    open.heap.scheme.or_else(found).unwrap_or("wal")
}

/// Returns an error if an option does not apply to the storage scheme or the log device.
fn check_applicable(scheme: &str, open: &OpenArgs, has_tier_region: bool) -> Result<()> {
    let (has_heap, has_ring) = (has_heap(scheme), open.log.log_device == "nvm");
    let (is_basic, has_files_alone) = (scheme == PCM_BASIC, scheme == NO_PCM);
    let has_no_log = has_heap || scheme == PCM_LOGGING;
    let heap = &open.heap;
    let of_heap = [heap.heap_mb, heap.journal_mb].iter().any(Option::is_some);
    let of_memory = heap.barriers.is_some() || heap.barrier_ns.is_some();
    let of_both = [open.log.domain.is_some(), !open.log.region.is_empty()];
    let of_batches = heap.batch_ms.is_some() || heap.batch_log_mb.is_some();
    let usage = |reason: &str| Err(Failure::Usage(reason.to_owned()));
    match () {
        () if !has_heap && of_heap => {
            usage("`--heap-mb` and `--journal-mb` require `--scheme in-place` or `--scheme nvram-group-commit`")
        }
        () if !has_no_log && of_memory => usage(
            "`--barriers` and `--barrier-ns` require `--scheme in-place`, `--scheme nvram-group-commit` or `--scheme \
             pcm-logging`",
        ),
        () if scheme != PCM_LOGGING && heap.granularity.is_some() => {
            usage("`--granularity` requires `--scheme pcm-logging`")
        }
        () if scheme != PCM_LOGGING && !is_basic && heap.pcm_mb.is_some() => {
            usage("`--pcm-mb` requires `--scheme pcm-logging` or `--scheme pcm-basic`")
        }
        () if scheme != "in-place" && heap.residence.is_some() => usage("`--residence` requires `--scheme in-place`"),
        () if scheme != GROUP_COMMIT && of_batches => {
            usage("`--batch-ms` and `--batch-log-mb` require `--scheme nvram-group-commit`")
        }
        () if !is_basic && heap.log_share.is_some() => usage("`--log-share` requires `--scheme pcm-basic`"),
        () if is_basic && has_ring => usage("`--scheme pcm-basic` has its log in its own memory: omit `--log-device`"),
        () if has_files_alone && (has_ring || has_tier_region) => usage(
            "`--scheme no-pcm` stores all in files: omit `--log-device` and `--tier-region`, or use `--scheme wal`",
        ),
        () if is_basic && open.log.region.len() > 1 => {
            usage("give `--region` once: the log of `pcm-basic` is in a file beside it")
        }
        () if is_basic && open.archive.is_some() => {
            usage("the log of `pcm-basic` stays in memory, and cannot be archived: omit `--archive`")
        }
        () if !has_ring && open.log.ring_mb.is_some() => usage("`--ring-mb` requires `--log-device nvm`"),
        () if has_no_log && (open.recovery_threads.is_some() || open.instant_recovery) => usage(
            "`--recovery-threads` and `--instant-recovery` are for recovery from a log, which a scheme with persistent \
             memory does not have",
        ),
        () if has_tier_region && !has_ring && !is_basic && !has_no_log && !open.log.region.is_empty() => {
            usage("`--region` requires `--log-device nvm`; the file of the tier is that of `--tier-region`")
        }
        () if !has_no_log && !has_ring && !is_basic && !has_tier_region && of_both.contains(&true) => usage(
            "`--domain` and `--region` require `--log-device nvm` or a scheme with persistent memory, such as \
             `--scheme in-place`",
        ),
        () if has_no_log && open.log.region.len() > 1 => {
            usage("this scheme uses one region: give `--region` only once")
        }
        () => Ok(()),
    }
}

/// Returns whether the pages of a database with this scheme are in a heap, without a log.
pub(crate) fn has_heap(scheme: &str) -> bool {
    ["in-place", GROUP_COMMIT].contains(&scheme)
}

/// Engine options for the database in `dir` as the command line asks for them.
pub(crate) fn options(dir: &Path, open: &OpenArgs) -> Result<Options> {
    options_with_tier(dir, open, false)
}

/// As [`options`]; `has_tier_region` says that there is a page tier in persistent memory.
pub(crate) fn options_with_tier(dir: &Path, open: &OpenArgs, has_tier_region: bool) -> Result<Options> {
    let defaults = Options::default();
    let scheme = self::scheme(dir, open);
    check_applicable(scheme, open, has_tier_region)?;
    let scheme = match scheme {
        PCM_BASIC => Scheme::PcmBasic(pcm_basic(dir, open)?),
        NO_PCM => Scheme::NoPcm,
        "in-place" => Scheme::InPlace(heap(dir, open, HeapOptions::LEAST_BYTES)),
        GROUP_COMMIT => Scheme::NvramGroupCommit(heap(dir, open, BatchOptions::LEAST_HEAP_BYTES), batches(open)),
        PCM_LOGGING => Scheme::PcmLogging(pcm(dir, open)),
        _ => Scheme::Wal,
    };
    let (log_device, log_buffer_bytes) = match open.log.log_device {
        "nvm" => (LogDevice::Nvm(ring(dir, &open.log)), (open.log.ring_mb.unwrap_or(64) as usize) << 20),
        _ => (LogDevice::File, defaults.log_buffer_bytes),
    };
    let archive = open.archive.as_ref().map(Archive::at).transpose().map_err(duramen::Error::from)?;
    Ok(Options {
        scheme,
        log_device,
        log_buffer_bytes,
        pool_bytes: (open.pool_mb as usize) << 20,
        recovery_threads: open.recovery_threads.map(|threads| threads as usize),
        instant_recovery: open.instant_recovery,
        redo_memory_bytes: open.redo_memory_mb.map(|megabytes| (megabytes as usize) << 20),
        system_cache: open.system_cache,
        io_uring: !open.no_uring,
        archive,
        give_up_archive: open.no_archive,
        ..defaults
    })
}

/// Opens a database, and shows the progress of a long recovery.
pub(crate) fn open(dir: &Path, options: Options, narrator: Narrator) -> Result<Db> {
    let (began, bar) = (Instant::now(), Arc::new(Mutex::new(None::<Bar>)));
    let shown = Arc::clone(&bar);
    let observer = RecoveryObserver::new(move |progress| {
        if began.elapsed() >= UNNOTICED {
            shown.lock().get_or_insert_with(|| narrator.bar("recovering", 1)).recover(progress);
        }
    });
    let opened = Db::open(dir, Options { recovery_observer: Some(observer), ..options });
    if let Some(bar) = bar.lock().take() {
        bar.finish();
    }
    Ok(opened?)
}

fn batches(open: &OpenArgs) -> BatchOptions {
    let usual = BatchOptions::default();
    let log_bytes = open.heap.batch_log_mb.map(|megabytes| megabytes << 20);
    BatchOptions { period: open.heap.batch_ms.unwrap_or(usual.period), log_bytes, ..usual }
}

/// Returns options for the heap; an existing one keeps its size, of which `least` is the smallest.
fn heap(dir: &Path, open: &OpenArgs, least: u64) -> HeapOptions {
    let path = open.log.region.first().cloned().unwrap_or_else(|| dir.join(HEAP_FILE));
    let bytes = open.heap.heap_mb.map(|megabytes| megabytes << 20);
    let bytes = bytes.unwrap_or(if path.exists() { least } else { 1 << 30 });
    HeapOptions {
        journal_bytes: open.heap.journal_mb.map(|megabytes| megabytes << 20),
        barriers: open.heap.barriers.unwrap_or_default(),
        residence: open.heap.residence.unwrap_or_default(),
        // A user who measures on memory that is not persistent gets a warning and no error.
        survive: Survive::Process,
        timing: Timing { barrier: Duration::from_nanos(open.heap.barrier_ns.unwrap_or(0)), ..Timing::NONE },
        ..HeapOptions::new(Source::File(path), bytes, open.log.domain.unwrap_or_default())
    }
}

/// Returns options for the memory of pcm-logging; an existing one keeps its size.
fn pcm(dir: &Path, open: &OpenArgs) -> PcmOptions {
    let path = open.log.region.first().cloned().unwrap_or_else(|| dir.join(PCM_FILE));
    let bytes = open.heap.pcm_mb.map(|megabytes| megabytes << 20);
    let bytes = bytes.unwrap_or(if path.exists() { PcmOptions::LEAST_BYTES } else { PCM_BYTES });
    PcmOptions {
        barriers: open.heap.barriers.unwrap_or_default(),
        granularity: open.heap.granularity.unwrap_or_default(),
        // A user who measures on memory that is not persistent gets a warning and no error.
        survive: Survive::Process,
        timing: Timing { barrier: Duration::from_nanos(open.heap.barrier_ns.unwrap_or(0)), ..Timing::NONE },
        ..PcmOptions::new(Source::File(path), bytes, open.log.domain.unwrap_or_default())
    }
}

/// Returns options for looking at the memory of pcm-logging of the database in `dir`.
pub(crate) fn pcm_to_inspect(dir: &Path, region: Option<&Path>) -> PcmOptions {
    let path = region.map_or_else(|| dir.join(PCM_FILE), Path::to_owned);
    PcmOptions::new(Source::File(path), PcmOptions::LEAST_BYTES, Domain::default())
}

/// Returns options for looking at the heap of the database in `dir`, and the heap's path.
pub(crate) fn heap_to_inspect(dir: &Path, region: Option<&Path>) -> (HeapOptions, PathBuf) {
    let path = region.map_or_else(|| dir.join(HEAP_FILE), Path::to_owned);
    let options = HeapOptions::new(Source::File(path.clone()), HeapOptions::LEAST_BYTES, Domain::default());
    (options, path)
}

/// Returns options for the memory of `pcm-basic`; what exists keeps its size unless it is to grow.
fn pcm_basic(dir: &Path, open: &OpenArgs) -> Result<PcmBasicOptions> {
    let path = std::path::absolute(open.log.region.first().cloned().unwrap_or_else(|| dir.join(PCM_FILE)))?;
    let bytes = open.heap.pcm_mb.map(|megabytes| megabytes << 20);
    let bytes = bytes.unwrap_or(if path.exists() { PcmBasicOptions::LEAST_BYTES } else { PCM_BYTES });
    let options = PcmBasicOptions::new(Source::File(path), bytes, open.log.domain.unwrap_or_default());
    Ok(PcmBasicOptions {
        log_share: open.heap.log_share.unwrap_or(options.log_share),
        // A user who measures on memory that is not persistent gets a warning and no error.
        survive: Survive::Process,
        ..options
    })
}

/// Returns options for a page tier in the persistent memory at `path`.
pub(crate) fn tier_memory(path: &Path, open: &OpenArgs) -> Result<TierMemory> {
    let source = Source::File(std::path::absolute(path)?);
    let memory = TierMemory::new(source, open.log.domain.unwrap_or_default());
    Ok(TierMemory { survive: Survive::Process, ..memory })
}

fn ring(dir: &Path, log: &LogArgs) -> NvmOptions {
    let mut sources = log.region.iter().cloned().map(Source::File);
    let first = sources.next().unwrap_or_else(|| Source::File(dir.join("ring")));
    // A user who measures on memory that is not persistent gets a warning and no error.
    let survive = Survive::Process;
    NvmOptions { survive, further: sources.collect(), ..NvmOptions::new(first, log.domain.unwrap_or_default()) }
}

/// Warns if acknowledged commits survive less than a power cut.
pub(crate) fn warn_of_shortfall(db: &Db) {
    if let Some(warning) = db.log_shortfall() {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
}

/// Opens the database in `dir`, which must exist; makes nothing where there is none.
pub(crate) fn open_existing(dir: &Path, open: &OpenArgs) -> Result<Db> {
    open_existing_with(dir, open, |options| options)
}

/// As [`open_existing`], with options that `change` changes.
pub(crate) fn open_existing_with(dir: &Path, open: &OpenArgs, change: impl FnOnce(Options) -> Options) -> Result<Db> {
    require_database(dir)?;
    let options = change(Options { create: false, ..options(dir, open)? });
    let db = self::open(dir, options, Narrator::new(false))?;
    warn_of_shortfall(&db);
    Ok(db)
}

/// Asks the process that has the database open, if there is one that answers.
pub(crate) fn ask(dir: &Path, question: &Question) -> Result<Option<Answer>> {
    require_database(dir)?;
    Ok(inspect::ask(dir, question)?)
}

/// Opens a snapshot in the process that has the database open, if there is one that answers.
pub(crate) fn remote_snapshot(dir: &Path) -> Result<Option<RemoteSnapshot>> {
    require_database(dir)?;
    Ok(RemoteSnapshot::open(dir)?)
}

/// Returns the files of a closed database, for reading; no other process can open it while the
/// guard lives.
pub(crate) fn closed_disk(dir: &Path) -> Result<(Arc<dyn Disk>, DiskLock)> {
    require_database(dir)?;
    let disk = MemoryDisk::over(dir)?;
    let lock = disk.lock().map_err(|error| match error.kind {
        ErrorKind::ResourceBusy => {
            Failure::Run(format!("the database {} is in use: {}; close it there first", dir.display(), error.reason))
        }
        _ => error.into(),
    })?;
    Ok((Arc::new(disk), lock))
}

/// As [`open_existing`], for inspection: where nothing can be written, it recovers the database in
/// memory.
pub(crate) fn open_to_inspect(dir: &Path, open: &OpenArgs) -> Result<Db> {
    if !MemoryDisk::is_all_there_is(dir) {
        return open_existing(dir, open);
    }
    require_database(dir)?;
    let options = Options { create: false, ..options(dir, open)? };
    Ok(Db::open_on(Arc::new(MemoryDisk::over(dir)?), options)?)
}

fn require_database(dir: &Path) -> Result<()> {
    let problem = if !dir.exists() {
        "there is no such directory"
    } else if !dir.is_dir() {
        "it is not a directory"
    } else if !dir.join(CONTROL_FILE).is_file() {
        "it holds no database (the file `control` is missing)"
    } else {
        return Ok(());
    };
    Err(Failure::Run(format!("cannot open {}: {problem}; `duramen bench` creates databases", dir.display())))
}

/// Returns what recovery did when `db` was opened, in one line; `None` when there was nothing to
/// do.
pub(crate) fn recovery(db: &Db) -> Option<String> {
    let report = db.metrics().recovery;
    if !report.was_needed() {
        return None;
    }
    let seconds = |micros: u64| micros as f64 / 1e6;
    let left = match (report.left, report.transactions_left) {
        (0, 0) => String::new(),
        (pages, transactions) => {
            format!("{pages} pages and {transactions} transactions remain to be recovered in the background; ")
        }
    };
    let rate = |bytes: u64, micros: u64| bytes as f64 / (micros as f64).max(1.0);
    Some(format!(
        "{:.2} s: {} log records ({:.1} MB) read, {} page changes repeated, {} transactions rolled back, \
         {} torn pages repaired (finding the end of the log {:.2} s at {:.0} MB/s; analysis and redo {:.2} s at {:.0} \
         MB/s with {} threads, {} page visits in {} windows, {:.2} s reading, {:.2} s repeating; undo {:.2} s); \
         {left}{:.2} s to the first transaction",
        seconds(report.micros()),
        report.records,
        report.bytes as f64 / 1e6,
        report.redone,
        report.losers,
        report.repaired,
        seconds(report.log_end_micros),
        rate(report.log_end_bytes, report.log_end_micros),
        seconds(report.redo_micros),
        rate(report.bytes, report.redo_micros),
        report.redo_threads,
        report.pages,
        report.windows,
        seconds(report.redo_read_micros),
        seconds(report.redo_repeat_micros),
        seconds(report.undo_micros),
        seconds(report.open_micros),
    ))
}
