//! Brings an existing database into service.

use duramen_io::{Disk, DiskLock, File, OpenMode};
use duramen_sync::{Arc, clock};
use duramen_types::{Lsn, PAGE_SIZE, planted};
use duramen_wal::{Known, Log, LogDevice, WalOptions};

use super::files::{DATA, DOUBLE_WRITE, VERSIONS};
use crate::checkpoint::control::{Control, ControlFile, SeveralLogs};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockManager;
use crate::maintenance::Maintenance;
use crate::options::Options;
use crate::pool::{FilePages, FoundArea, Pool, PoolConfig, Versions, WalRule};
use crate::pre_block_hook::PreBlockHook;
use crate::recovery;
use crate::scheme::WalScheme;
use crate::storage::free_space::Space;
use crate::storage::store::Store;

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
        // The decision must be durable before the logs are cut: see `FoundLog`.
        let logs = SeveralLogs { complete, is_cutting: true, ..control.logs };
        control_file.write(Control { logs, ..control })?;
    }
    Ok(found.open()?)
}

/// Restores pages that a crash tore, from the double-write area; returns their number. A database
/// that was closed in order has no torn pages, so the area is then not read.
fn repair_torn_pages(control: &Control, data: &dyn File, double_write: &dyn File) -> Result<usize> {
    if control.is_clean && !planted!(StaleAreaPutBack) {
        return Ok(0);
    }
    let Some(area) = FoundArea::read(double_write)? else { return Ok(0) };
    if !planted!(StaleAreaPutBack) {
        control.check_stamp(area.stamp(), &double_write.path())?;
    }
    Ok(area.put_back(data, double_write)?)
}

/// Brings an existing database into service.
pub(super) fn start(disk: Arc<dyn Disk>, home: DiskLock, options: Options) -> Result<Arc<Engine>> {
    let opening = clock::Instant::now();
    let mut control_file = ControlFile::open_for_use(&*disk)?;
    control_file.resync()?;
    let control = control_file.control;
    let data = disk.open(DATA, OpenMode::Existing)?;
    let double_write = disk.open(DOUBLE_WRITE, OpenMode::Existing)?;
    let versions = match disk.open(VERSIONS, OpenMode::Existing) {
        Err(error) if error.is_not_found() => disk.open(VERSIONS, OpenMode::CreateNew)?,
        opened => opened?,
    };
    control.check_data(&*data)?;
    let repaired = repair_torn_pages(&control, &*data, &*double_write)?;
    // Data that can be read may not be durable, if the process that wrote it has ended or has seen
    // a sync fail.
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
    let pages = FilePages::new(Arc::clone(&data), double_write, Some(versions), Arc::clone(&rule))?;
    let pool = Pool::new(config, Arc::new(pages), PreBlockHook::new(move || rule.before_blocking()))?;
    let mut locks = LockManager::new(LOCK_BUCKETS).with_inheritance(options.lock_inheritance);
    if let Some(limit) = options.lock_wait_limit {
        locks = locks.with_wait_limit(limit);
    }
    if is_in_memory {
        // The holder of the lock may be waiting for its commit, and that commit for records that
        // the waiting thread has inserted.
        let scheme = Arc::clone(&scheme);
        locks = locks.with_pre_block_hook(move || scheme.logs().before_blocking());
    }
    let store = Store { pool, space: Space::new(1), scheme: Arc::clone(&scheme) as _ };
    let engine = Arc::new(Engine::new((disk, home), options, control_file, store, locks, log_shortfall));
    engine.generations().begin()?;
    let control = engine.control.lock().control;
    let mut report = recovery::recover(&(Arc::clone(&engine) as _), &scheme, control, &*data)?;
    report.repaired = repaired as u64;
    report.log_end_micros = log_end_micros;
    engine.checkpoint()?;
    scheme.logs().lift_limit(false);
    engine.store.pool.start_cleaner()?;
    let maintenance: Arc<dyn Maintenance> = Arc::clone(&engine) as _;
    engine
        .checkpointer
        .start(Arc::downgrade(&maintenance))
        .map_err(|error| Error::Io { reason: format!("cannot start the checkpoint thread: {error}") })?;
    engine
        .background
        .start(maintenance)
        .inspect_err(|_| engine.checkpointer.stop())
        .map_err(|error| Error::Io { reason: format!("cannot start the thread for redo: {error}") })?;
    report.open_micros = recovery::micros(opening);
    engine.recovery.set(report).expect("recovery runs once");
    Ok(engine)
}

/// Buckets of the lock table.
const LOCK_BUCKETS: usize = 1 << 14;
