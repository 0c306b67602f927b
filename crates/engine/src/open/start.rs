//! Brings an existing database into service.

use duramen_io::{Disk, DiskLock};
use duramen_sync::{Arc, clock};
use duramen_types::{event, span};
use duramen_wal::Log;

use super::{archive, in_heap, in_pcm, with_log};
use crate::checkpoint::control::{ControlFile, SchemeId};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::lock::LockManager;
use crate::maintenance::Maintenance;
use crate::options::{Options, Scheme};
use crate::recovery;
use crate::storage::free_space::Space;
use crate::storage::store::Store;

/// Brings an existing database into service. With `new_log`, this process has just created it, with
/// this log, so that all of it is durable.
pub(super) fn start(
    disk: Arc<dyn Disk>,
    home: DiskLock,
    options: Options,
    new_log: Option<Log>,
) -> Result<Arc<Engine>> {
    let opening = clock::Instant::now();
    let _span = span!("open", database = disk.location());
    let mut control_file = ControlFile::open_for_use(&*disk)?;
    // What these refuse leaves the control file as it is.
    check_scheme(control_file.control.scheme, &options.scheme)?;
    let options = archive::with_kept(&*disk, &control_file.control, options)?;
    let has_new_log = new_log.is_some();
    if !has_new_log {
        control_file.resync()?;
    }
    let opened = match &options.scheme {
        Scheme::Wal | Scheme::PcmBasic(_) | Scheme::NoPcm => {
            with_log::open(&disk, &options, &mut control_file, new_log)?
        }
        Scheme::InPlace(heap) => in_heap::open(heap, &options, &control_file.control)?,
        Scheme::NvramGroupCommit(heap, batches) => {
            in_heap::open_with_batches(heap, *batches, &options, &control_file.control)?
        }
        Scheme::PcmLogging(pcm) => {
            // Recovery changes nodes there, so neither slot may have an earlier format version.
            control_file.write(control_file.control)?;
            in_pcm::open(&disk, pcm, &options, &control_file.control)?
        }
    };
    let mut locks = LockManager::new(LOCK_BUCKETS).with_inheritance(options.lock_inheritance);
    if let Some(limit) = options.lock_wait_limit {
        locks = locks.with_wait_limit(limit);
    }
    if let Some(before_lock_wait) = opened.before_lock_wait {
        locks = locks.with_pre_block_hook(before_lock_wait);
    }
    let store = Store { pool: opened.pool, space: Space::new(1), scheme: opened.scheme };
    let engine = Arc::new(Engine::new((disk, home), options, control_file, store, locks, opened.shortfall));
    // With a new log nothing has changed: the checkpoint begins the second generation.
    if !has_new_log {
        engine.generations().begin()?;
    }
    let control = engine.control.lock().control;
    let mut report = {
        let _span = span!("recover");
        (opened.recover)(&(Arc::clone(&engine) as _), control)?
    };
    engine.checkpoint_at_opening()?;
    archive::keep(&*engine.disk, &control, engine.options.archive.as_ref())?;
    (opened.checkpointed)();
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
    event!(INFO, "open", log_bytes = report.bytes, losers = report.losers, micros = report.open_micros);
    engine.recovery.set(report).expect("recovery runs once");
    Ok(engine)
}

/// Refuses to open a database with another scheme than it was created with.
fn check_scheme(found: SchemeId, wanted: &Scheme) -> Result<()> {
    let wanted = SchemeId::of(wanted);
    if found == wanted {
        return Ok(());
    }
    let reason = format!("the database was created with the scheme `{found}` and cannot be opened with `{wanted}`");
    Err(Error::InvalidOption { option: "scheme", reason })
}

/// Buckets of the lock table.
const LOCK_BUCKETS: usize = 1 << 14;
