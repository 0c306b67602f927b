//! Creates a database with a PCM region above its data file, and opens its parts.

use std::path::Path;

use duramen_io::{Disk, OpenMode};
use duramen_pmem::Source;
use duramen_sync::{Arc, clock};
use duramen_types::{Gsn, Lsn, PAGE_SIZE, TxnId};

use super::create::{FIRST_TXN, create_data};
use super::files::{DATA, new_identity};
use super::parts::Opened;
use crate::checkpoint::control::{CONTROL, Control, ControlFile, SchemeId, SeveralLogs};
use crate::error::{Error, Result};
use crate::metrics::RecoveryReport;
use crate::options::{Options, PcmOptions};
use crate::page::DatabaseTag;
use crate::pcm::{Clock, Found, Pcm, PcmPages, Word};
use crate::pool::{FilePages, PageStore, Pool, PoolConfig, Stamp};
use crate::pre_block_hook::PreBlockHook;
use crate::recovery::{self, LeftByScan, recover_pcm};
use crate::region::State;
use crate::scheme::PcmLogging;

/// Refuses a region that would mix with the files of the database in `home`, or that a new database
/// could not have.
pub(super) fn check_place(home: &Path, pcm: &PcmOptions, files: &[&str]) -> Result<()> {
    let Source::File(path) = &pcm.source else { return Ok(()) };
    if files.iter().any(|name| is_region(home, name, pcm)) {
        let reason = format!("the PCM `{}` is a file of the database itself; name another", path.display());
        return Err(Error::InvalidOption { option: "scheme", reason });
    }
    let is_new = !home.join(CONTROL).exists();
    // The directory of the region may be that of the database, and not exist yet.
    let can_be_tried = path.parent().is_some_and(Path::exists);
    if is_new && can_be_tried { Pcm::check_new(pcm) } else { Ok(()) }
}

/// Whether the region is the file with this name in the directory `home`.
pub(super) fn is_region(home: &Path, name: &str, pcm: &PcmOptions) -> bool {
    matches!(&pcm.source, Source::File(path) if *path == home.join(name))
}

/// Creates a database in a directory that is empty except for the marker.
pub(super) fn create(disk: &dyn Disk, options: &PcmOptions) -> Result<()> {
    let database = new_identity(disk);
    Pcm::create(options, database)?;
    create_data(disk, Stamp { database, generation: 1 })?;
    disk.sync_directory("")?;
    let control = Control {
        database,
        sequence: 0,
        checkpoint: Lsn::ZERO,
        redo: Gsn::ZERO,
        oldest: Gsn::ZERO,
        next_txn: FIRST_TXN,
        written: 0,
        groups: 1,
        generation: 1,
        is_clean: false,
        has_tier: false,
        scheme: SchemeId::PcmLogging,
        logs: SeveralLogs::ONE,
    };
    ControlFile::create(disk, control)?;
    Ok(())
}

/// Opens the region and the data file, and discards what transactions have changed that had not
/// committed.
pub(super) fn open(disk: &Arc<dyn Disk>, options: &PcmOptions, all: &Options, control: &Control) -> Result<Opened> {
    let started = clock::Instant::now();
    let pcm = Arc::new(Pcm::open(options, control.database)?);
    let stamp = Stamp { database: pcm.database(), generation: pcm.get(Word::Generation) };
    control.check_stamp(stamp, pcm.location())?;
    let data = disk.open(DATA, OpenMode::Existing)?;
    control.check_data(&*data)?;
    let mut found = Found::recover(&pcm, options.barriers)?;
    pcm.set(Word::State, State::InUse as u64);
    let report = RecoveryReport {
        losers: found.discarded,
        pages: found.pages,
        redo_micros: recovery::micros(started),
        ..RecoveryReport::default()
    };
    // The data file's length may not be durable for pages that are durable in the region.
    let len = (found.reach.get() + 1) * PAGE_SIZE as u64;
    if data.len()? < len {
        data.allocate(len)?;
    }

    let first = pcm.get(Word::NextTxn);
    let mut ids = (first..).map(TxnId::new);
    let losers = std::mem::take(&mut found.losers);
    let losers: Vec<_> = ids.by_ref().take(losers.len()).zip(losers).collect();
    let winners = std::mem::take(&mut found.winners);
    let winners: Vec<_> = ids.by_ref().take(winners.len()).zip(winners).collect();
    let next_txn = TxnId::new(first + (losers.len() + winners.len()) as u64);

    let tag = DatabaseTag::of(&control.database);
    let file = FilePages::new(data, tag, None, None, Arc::new(Clock(Arc::clone(&pcm))))?;
    let pages = Arc::new(PcmPages::new(Arc::clone(&pcm), file, found, options.granularity));
    let config = PoolConfig { frames: all.pool_bytes / PAGE_SIZE, ..PoolConfig::default() };
    let pool = Pool::new(config, Arc::clone(&pages) as Arc<dyn PageStore>, PreBlockHook::default())?;
    let scheme = PcmLogging::new(Arc::clone(&pcm), pages, Arc::clone(&pool), &losers, &winners);
    let groups = pcm.get(Word::Groups);
    let left = LeftByScan { location: pcm.location().to_owned(), losers, winners, next_txn, groups };
    Ok(Opened {
        pool,
        scheme: Arc::new(scheme),
        shortfall: pcm.shortfall(),
        before_lock_wait: None,
        recover: Box::new(move |host, _control| recover_pcm(host, &left, report)),
        checkpointed: Box::new(|| {}),
    })
}
