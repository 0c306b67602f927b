//! Opening a database: what is in the directory decides what is done. `docs/recovery.md` has the table.
//!
//! A database is made in steps that leave no doubt at any point: a file `creating` marks the directory first; then come
//! the data file, the double-write area and the log; then, by a rename, the control file, with which the database
//! exists; last the mark goes. A directory with the mark and no control file holds nothing and is made anew. One with
//! data and neither is refused: something is missing that was there.

use std::path::Path;

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::atomic::AtomicU64;
use duramen_sync::{Arc, CachePadded, Mutex, OnceLock, clock};
use duramen_types::planted::{Bug, is_on};
use duramen_types::{BLOCK_SIZE, LogId, Lsn, PAGE_SIZE, PageId, TxnId, crc32c_append};
use duramen_wal::{Known, Log, LogDevice, MAX_LOGS, WalOptions};

use crate::api::metrics::Counters;
use crate::api::options::Options;
use crate::btree::{Store, empty_root};
use crate::engine::Core;
use crate::error::{Error, Result};
use crate::full_log::FullLog;
use crate::health::Health;
use crate::lock::LockManager;
use crate::page;
use crate::pool::{FoundArea, Pool, PoolConfig, Versions, WalRule};
use crate::record::Kind;
use crate::recovery::checkpoint::{Checkpointer, first_checkpoint};
use crate::recovery::control::{CONTROL, CONTROL_NEW, Control, ControlFile, SeveralLogs};
use crate::recovery::generation::Stamp;
use crate::recovery::{self, BackgroundRecovery};
use crate::scheme::WalScheme;
use crate::storage::bitmap;
use crate::storage::catalog::{CATALOG, Handles};
use crate::storage::free_space::{Space, blank_bitmap};
use crate::txn::context_pool::Contexts;
use crate::txn::table::ActiveTxns;

/// Pages.
pub(crate) const DATA: &str = "data";
/// Copies of the pages that are being written.
pub(crate) const DOUBLE_WRITE: &str = "doublewrite";
/// Which versions pages have, at least. One that is not there is made; nothing is known then.
const VERSIONS: &str = "versions";
/// The log's directory.
pub(crate) const LOG: &str = "log";
/// Present while a database is being made.
const CREATING: &str = "creating";

/// Size of a new data file in pages.
const INITIAL_PAGES: u64 = 128;

/// The first transaction's number.
const FIRST_TXN: TxnId = TxnId::new(1);

/// Opens the database on `disk`, or makes one where nothing is.
pub(crate) fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Arc<Core>> {
    options.validate()?;
    if let Some(home) = disk.directory() {
        check_places(&home, &options)?;
    }
    let home = disk.lock()?;
    match state_of(&*disk)? {
        State::Database => {
            if disk.exists(CREATING)? {
                disk.remove(CREATING)?;
                disk.sync_directory("")?;
            }
        }
        State::Empty | State::HalfMade if !options.create => {
            return Err(Error::NotADatabase {
                path: disk.location().into(),
                reason: "there is no database, and the option `create` is off".into(),
            });
        }
        state => {
            Log::check_regions(&options.of_log())?;
            if let Some(archive) = &options.archive {
                archive.made()?;
            }
            if matches!(state, State::HalfMade) {
                clear(&*disk)?;
            }
            create(&*disk, &disk, &options)?;
        }
    }
    start(disk, home, options)
}

/// Refuses a path that names nothing: it would be an error of the system that names nothing, either.
pub(crate) fn named(path: &Path) -> Result<&Path> {
    if path.as_os_str().is_empty() {
        let reason = "it is empty; name a directory (`.` is the current one)".to_owned();
        return Err(Error::InvalidOption { option: "path", reason });
    }
    Ok(path)
}

/// Refuses an archive, and regions for the logs' rings, that would be mixed up with the files of the database in
/// `home`.
pub(crate) fn check_places(home: &Path, options: &Options) -> Result<()> {
    let files = [DATA, DOUBLE_WRITE, CONTROL, CONTROL_NEW, CREATING];
    let named = match &options.log_device {
        LogDevice::Nvm(nvm) => nvm.further.len() + 1,
        LogDevice::File => 1,
    };
    // A database that exists may have more logs than the options say.
    let count = options.logs.max(u16::try_from(named).unwrap_or(MAX_LOGS));
    Ok(WalOptions { logs: count.min(MAX_LOGS), ..options.of_log() }.check_places(home, &files)?)
}

enum State {
    Empty,
    HalfMade,
    Database,
}

fn state_of(disk: &dyn Disk) -> Result<State> {
    if disk.exists(CONTROL)? {
        for (name, what) in [(DATA, "data file"), (DOUBLE_WRITE, "double-write area"), (LOG, "log directory")] {
            if !disk.exists(name)? {
                return Err(Error::NotADatabase {
                    path: disk.location().into(),
                    reason: format!("the {what} `{name}` is missing; put it back or restore the database from a copy"),
                });
            }
        }
        return Ok(State::Database);
    }
    if disk.exists(CREATING)? {
        if is_marker(disk)? {
            return Ok(State::HalfMade);
        }
        return Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("its file `{CREATING}` is not Duramen's; choose an empty or new directory"),
        });
    }
    let mut found = disk.list("")?;
    if disk.exists(LOG)? {
        found.push(LOG.to_owned());
    }
    match found.first() {
        None => Ok(State::Empty),
        Some(_) if found.iter().any(|name| name == DATA || name == LOG) => Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("the file `{CONTROL}` is missing; put it back or restore the database from a copy"),
        }),
        Some(name) => Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("it holds `{name}` and no database; choose an empty or new directory"),
        }),
    }
}

/// What the marker says. A crash may keep its name and lose its contents: an empty one counts, too.
const MARKER: &[u8] = b"A Duramen database is being made here.\n";

/// Marks the directory, durably, before anything else is put into it.
fn mark(disk: &dyn Disk) -> Result<()> {
    let file = disk.open(CREATING, OpenMode::CreateNew)?;
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    block[..MARKER.len()].copy_from_slice(MARKER);
    file.write_at(&[&block], 0)?;
    file.sync()?;
    disk.sync_directory("")?;
    Ok(())
}

fn is_marker(disk: &dyn Disk) -> Result<bool> {
    let file = disk.open(CREATING, OpenMode::Existing)?;
    match file.len()? {
        0 => Ok(true),
        len if len == BLOCK_SIZE as u64 => {
            let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
            file.read_at(&mut block, 0)?;
            Ok(block.starts_with(MARKER) || block.iter().all(|&byte| byte == 0))
        }
        _ => Ok(false),
    }
}

/// Removes what an interrupted creation or copy has left, but for its mark.
pub(crate) fn clear(disk: &dyn Disk) -> Result<()> {
    for log in log_directories() {
        if disk.exists(&log)? {
            for name in disk.list(&log)? {
                disk.remove(&format!("{log}/{name}"))?;
            }
            disk.sync_directory(&log)?;
        }
    }
    for name in [CONTROL_NEW, DOUBLE_WRITE, VERSIONS, DATA] {
        if disk.exists(name)? {
            disk.remove(name)?;
        }
    }
    disk.sync_directory("")?;
    Ok(())
}

fn create(disk: &dyn Disk, shared: &Arc<dyn Disk>, options: &Options) -> Result<()> {
    if !disk.exists(CREATING)? {
        mark(disk)?;
    }
    let database = new_identity(disk);

    let data = disk.open(DATA, OpenMode::CreateNew)?;
    data.allocate(INITIAL_PAGES * PAGE_SIZE as u64)?;
    let mut bitmap = blank_bitmap(0);
    bitmap::set(&mut bitmap, CATALOG.root.get() as u32, true).expect("the bitmap is blank");
    write_page(&*data, bitmap::bitmap_page(0), bitmap)?;
    write_page(&*data, CATALOG.root, empty_root(CATALOG.root, CATALOG.table))?;
    let stamp = Stamp { database, generation: 1 };
    stamp.write(&*data)?;
    data.sync()?;
    for name in [DOUBLE_WRITE, VERSIONS] {
        disk.open(name, OpenMode::CreateNew)?;
    }

    // Persistent memory and the archive are taken when the database is opened: what is made here may have to be made again.
    let on_files = WalOptions { device: LogDevice::File, archive: None, ..options.of_log() };
    let logs = Log::create(shared, &on_files, database)?;
    let mut tails = Vec::new();
    let log =
        |kind: Kind, payload: &[u8]| logs.insert_synchronized(LogId::ZERO, kind.record(payload), Some(&mut tails));
    let (begin, end) = first_checkpoint(log, FIRST_TXN);
    logs.harden_at_once(end.gsn, Some(end.place()))?;
    logs.close()?;

    disk.sync_directory("")?;
    let control = Control {
        database,
        sequence: 0,
        checkpoint: begin.lsn,
        redo: begin.gsn,
        oldest: begin.gsn,
        next_txn: FIRST_TXN,
        written: 0,
        groups: 1,
        generation: stamp.generation,
        is_clean: false,
        logs: SeveralLogs::new(options.logs, options.log_partition, begin.gsn, end.gsn, &tails),
    };
    ControlFile::create(disk, control)?;
    disk.remove(CREATING)?;
    disk.sync_directory("")?;
    Ok(())
}

fn write_page(data: &dyn File, id: PageId, mut bytes: Vec<u8>) -> Result<()> {
    page::seal(&mut bytes);
    let mut buffer = AlignedBuf::zeroed(PAGE_SIZE);
    buffer.copy_from_slice(&bytes);
    Ok(data.write_at(&[&buffer], id.get() * PAGE_SIZE as u64)?)
}

/// A number that tells this database's files from another's. It need not be secret, only different.
pub(crate) fn new_identity(disk: &dyn Disk) -> [u8; 16] {
    let mut mix = u64::from(crc32c_append(0, disk.location().as_bytes()));
    let mut identity = [0; 16];
    for (index, part) in identity.chunks_mut(8).enumerate() {
        for seed in
            [clock::wall_micros(), clock::Instant::now().nanos(), duramen_sync::process_id().into(), index as u64]
        {
            // A step of a multiplicative mixer: each bit of the seeds reaches every bit of the number.
            mix = (mix ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mix ^= mix >> 29;
        }
        part.copy_from_slice(&mix.to_le_bytes());
    }
    identity
}

/// The directories that logs may be in.
pub(crate) fn log_directories() -> impl Iterator<Item = String> {
    std::iter::once(LOG.to_owned()).chain((1..MAX_LOGS).map(|log| format!("{LOG}{log}")))
}

/// Opens the logs of an existing database.
fn open_logs(disk: &Arc<dyn Disk>, options: &Options, control_file: &mut ControlFile) -> Result<Log> {
    let control = control_file.control;
    let count = control.logs.count;
    let from = control.behind_checkpoint();
    let earlier: Vec<Lsn> = control.logs.places[..usize::from(count)].iter().map(|place| place.1).collect();
    let known = Known {
        from: &from,
        earlier: (control.redo, &earlier),
        complete: control.logs.complete,
        is_cutting: control.logs.is_cutting,
    };
    let wal_options = WalOptions { logs: count, generation: control.generation, ..options.of_log() };
    let found = Log::find(disk, &wal_options, control.database, &known, options.recovery_threads)?;
    if let Some(complete) = found.cut() {
        // Made once: see `FoundLog`.
        let logs = SeveralLogs { complete, is_cutting: true, ..control.logs };
        control_file.write(Control { logs, ..control })?;
    }
    Ok(found.open()?)
}

/// Puts pages back that a crash tore, from the double-write area; returns how many. A database that was closed in order has
/// none, and whatever the area holds then is not looked at.
fn repair_torn_pages(control: &Control, data: &dyn File, double_write: &dyn File) -> Result<usize> {
    if control.is_clean && !is_on(Bug::StaleAreaPutBack) {
        return Ok(0);
    }
    let Some(area) = FoundArea::read(double_write)? else { return Ok(0) };
    if !is_on(Bug::StaleAreaPutBack) {
        control.check_stamp(area.stamp(), &double_write.path())?;
    }
    Ok(area.put_back(data, double_write)?)
}

/// Brings an existing database into service.
fn start(disk: Arc<dyn Disk>, home: duramen_io::DiskLock, options: Options) -> Result<Arc<Core>> {
    let opening = clock::Instant::now();
    let mut control_file = ControlFile::open_for_use(&*disk)?;
    control_file.settle()?;
    let control = control_file.control;
    let data = disk.open(DATA, OpenMode::Existing)?;
    let double_write = disk.open(DOUBLE_WRITE, OpenMode::Existing)?;
    let versions = match disk.open(VERSIONS, OpenMode::Existing) {
        Err(error) if error.is_not_found() => disk.open(VERSIONS, OpenMode::CreateNew)?,
        opened => opened?,
    };
    control.check_data(&*data)?;
    let repaired = repair_torn_pages(&control, &*data, &*double_write)?;
    // What is seen need not be durable, if the process that wrote it has ended, or has seen a sync fail.
    data.sync()?;
    double_write.sync()?;
    disk.sync_directory("")?;

    let started = clock::Instant::now();
    let logs = open_logs(&disk, &options, &mut control_file)?;
    let log_end_micros = recovery::micros(started);
    let log_shortfall = logs.shortfall();
    let is_in_memory = matches!(options.log_device, LogDevice::Nvm(_));
    let scheme = Arc::new(WalScheme::new(Arc::new(logs), control.logs.partition));
    scheme.logs().set_room_aside();
    let config = PoolConfig {
        frames: options.pool_bytes / PAGE_SIZE,
        cleaner_pages_per_second: options.cleaner_pages_per_second.unwrap_or(0).into(),
        ..PoolConfig::default()
    };
    let rule: Arc<dyn WalRule> = Arc::clone(&scheme) as Arc<dyn WalRule>;
    let versions = Versions::open(versions, control.database, data.len()?)?;
    let pool = Pool::new(config, Arc::clone(&data), double_write, Some(versions), rule)?;
    let mut locks = LockManager::new(LOCK_BUCKETS).with_inheritance(options.lock_inheritance);
    if let Some(limit) = options.lock_wait_limit {
        locks = locks.with_wait_limit(limit);
    }
    if is_in_memory {
        // The holder of the lock may be waiting for its commit, and that for what the waiter has inserted.
        let scheme = Arc::clone(&scheme);
        locks = locks.with_call_before_waits(move || scheme.logs().settle());
    }
    let core = Arc::new(Core {
        disk,
        options,
        control: Mutex::new(control_file),
        store: Store { pool, space: Space::new(1), scheme: Arc::clone(&scheme) as _ },
        locks,
        active: ActiveTxns::default(),
        tables: Handles::default(),
        health: Health::default(),
        counters: Counters::default(),
        checkpointer: Checkpointer::default(),
        full_log: FullLog::default(),
        deferred: Mutex::new(Vec::new()),
        recovery: OnceLock::new(),
        background: BackgroundRecovery::default(),
        log_shortfall,
        next_txn: CachePadded::new(AtomicU64::new(control.next_txn.get())),
        pre_committed: CachePadded::new(AtomicU64::new(0)),
        contexts: Contexts::default(),
        home,
    });
    core.begin_generation()?;
    let mut report = recovery::recover(&core, &scheme, &*data)?;
    report.repaired = repaired as u64;
    report.log_end_micros = log_end_micros;
    core.checkpoint()?;
    scheme.logs().lift_limit(false);
    core.store.pool.start_cleaner()?;
    Checkpointer::start(&core)
        .map_err(|error| Error::Io { reason: format!("cannot start the checkpoint thread: {error}") })?;
    BackgroundRecovery::start(&core)
        .inspect_err(|_| core.checkpointer.stop())
        .map_err(|error| Error::Io { reason: format!("cannot start the thread for redo: {error}") })?;
    report.open_micros = recovery::micros(opening);
    core.recovery.set(report).expect("recovery runs once");
    Ok(core)
}

/// Buckets of the lock table.
const LOCK_BUCKETS: usize = 1 << 14;
