//! Opens the parts of a database with a write-ahead log.

use duramen_io::{Disk, File, OpenMode};
use duramen_sync::{Arc, clock};
use duramen_types::{Lsn, PAGE_SIZE, planted};
use duramen_wal::{Known, Log, LogDevice, WalOptions};

use super::files::{DATA, DOUBLE_WRITE, VERSIONS};
use super::parts::Opened;
use super::tier;
use crate::checkpoint::control::{Control, ControlFile, SeveralLogs};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::page::DatabaseTag;
use crate::pool::{
    FilePages, FoundArea, FoundTier, PageStore, Pool, PoolConfig, Slots, TieredPages, Versions, WalRule,
};
use crate::pre_block_hook::PreBlockHook;
use crate::recovery;
use crate::scheme::WalScheme;

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

/// Opens files and logs, and repairs torn pages. With `new_log`, this process has just created the
/// files and that log, so that all of them are durable.
pub(super) fn open(
    disk: &Arc<dyn Disk>,
    options: &Options,
    control_file: &mut ControlFile,
    new_log: Option<Log>,
) -> Result<Opened> {
    let control = control_file.control;
    let data = disk.open(DATA, OpenMode::Existing)?;
    let double_write = disk.open(DOUBLE_WRITE, OpenMode::Existing)?;
    let versions = match disk.open(VERSIONS, OpenMode::Existing) {
        Err(error) if error.is_not_found() => disk.open(VERSIONS, OpenMode::CreateNew)?,
        opened => opened?,
    };
    control.check_data(&*data)?;
    let repaired = repair_torn_pages(&control, &*data, &*double_write)?;
    if new_log.is_none() {
        // Data that can be read may not be durable, if the process that wrote it has ended or has
        // seen a sync fail.
        data.sync()?;
        double_write.sync()?;
        disk.sync_directory("")?;
    }

    let started = clock::Instant::now();
    let logs = match new_log {
        Some(log) => log,
        None => open_logs(disk, options, control_file)?,
    };
    let log_end_micros = recovery::micros(started);
    let shortfall = logs.shortfall();
    let is_in_memory = matches!(options.log_device, LogDevice::Nvm(_));
    let scheme = Arc::new(WalScheme::new(Arc::new(logs), control.logs.partition));
    scheme.logs().reserve_for_sync_records();
    let rule: Arc<dyn WalRule> = Arc::clone(&scheme) as Arc<dyn WalRule>;
    let tier = tier::open(disk, options, control_file)?;
    let shortfall = shortfall.or_else(|| tier.as_ref().and_then(Slots::shortfall));
    if tier.is_none() && options.tier_run_pages > 1 {
        let reason = "the option needs a page tier, and the database has none: leave the option out".to_owned();
        return Err(Error::InvalidOption { option: "tier_run_pages", reason });
    }
    let tier = tier.map(|slots| FoundTier::read(slots, options.recovery_threads)).transpose()?;
    if let Some(tier) = &tier {
        // The data file's length may not be durable for pages that are durable in the tier.
        let len = tier.reach() * PAGE_SIZE as u64;
        if data.len()? < len {
            data.allocate(len)?;
        }
    }
    let versions = Versions::open(versions, control.database, data.len()?)?;
    let config = PoolConfig {
        frames: options.pool_bytes / PAGE_SIZE,
        cleaner_pages_per_second: options.cleaner_pages_per_second.unwrap_or(0).into(),
        dirty_pages: options.dirty_pages,
        ..PoolConfig::default()
    };
    let tag = DatabaseTag::of(&control.database);
    let pages = FilePages::new(Arc::clone(&data), tag, Some(double_write), Some(versions), Arc::clone(&rule))?;
    let pages: Arc<dyn PageStore> = match tier {
        Some(tier) => Arc::new(TieredPages::new(pages, tier, options.tier_run_pages)?),
        None => Arc::new(pages),
    };
    let pool = Pool::new(config, pages, PreBlockHook::new(move || rule.before_blocking()))?;
    // The holder of a lock may be waiting for its commit, and that commit for records that the
    // waiting thread has inserted.
    let before_lock_wait = is_in_memory.then(|| {
        let scheme = Arc::clone(&scheme);
        Box::new(move || scheme.logs().before_blocking()) as Box<dyn Fn() + Send + Sync>
    });
    let recovered = Arc::clone(&scheme);
    Ok(Opened {
        pool,
        scheme: Arc::clone(&scheme) as _,
        shortfall,
        before_lock_wait,
        recover: Box::new(move |host, control| {
            let mut report = recovery::recover(host, &scheme, control, &*data)?;
            report.repaired = repaired as u64;
            report.log_end_micros = log_end_micros;
            Ok(report)
        }),
        checkpointed: Box::new(move || recovered.logs().lift_limit(false)),
    })
}
