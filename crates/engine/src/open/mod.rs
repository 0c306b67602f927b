//! Opens a database; the contents of the directory determine the steps. `docs/recovery.md` has the
//! table.
//!
//! A database is created in steps that are unambiguous at any point. A file `creating` first marks
//! the directory. Then come the data file, the double-write area and the log, or the heap in
//! persistent memory. A rename then adds the control file; the database exists from then on. Last
//! the marker is removed. A directory with the marker and without a control file holds nothing, and
//! the database is created anew; so is one with nothing but a heap that is not in use. A directory
//! with data but with neither of the two is refused: a file that was there is missing.

mod archive;
mod create;
pub(crate) mod files;
mod in_heap;
mod in_pcm;
mod link;
mod marker;
mod parts;
mod start;
pub(crate) mod tier;
mod with_log;

use std::path::Path;

use duramen_io::Disk;
use duramen_sync::Arc;
use duramen_wal::{Log, LogDevice, MAX_LOGS, WalOptions};

use crate::checkpoint::control::{CONTROL, CONTROL_NEW, ControlFile, SchemeId};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::heap::Heap;
use crate::options::{Options, Scheme, TierPlace};
use crate::pcm::Pcm;
use create::create;
use files::{ARCHIVE, ARCHIVE_NEW, CREATING, DATA, DOUBLE_WRITE, LOG, TIER, TIER_NEW, TIER_PAGES, clear, first_log};
use marker::{is_marker, mark};
use start::start;

pub(crate) use files::named;

/// Opens the database on `disk`, or creates one if there is none.
pub(crate) fn open(disk: Arc<dyn Disk>, options: Options) -> Result<Arc<Engine>> {
    options.validate()?;
    let options = options.resolved();
    in_heap::check_sizes(&options.scheme)?;
    archive::check(options.archive.as_ref())?;
    if disk.forgets() {
        check_within(&options)?;
    }
    match (disk.directory(), &options.page_tier) {
        (Some(home), _) => check_places(&home, &options)?,
        (None, Some(tier)) => tier::check(tier, None, &[])?,
        (None, None) => {}
    }
    let home = disk.lock()?;
    let new_log = match state_of(&*disk, &options.scheme)? {
        State::Database => {
            if disk.exists(CREATING)? {
                disk.remove(CREATING)?;
                disk.sync_directory("")?;
            }
            None
        }
        State::Empty | State::HalfMade if !options.create => {
            return Err(Error::NotADatabase {
                path: disk.location().into(),
                reason: "it holds no database, and the option `create` is off".into(),
            });
        }
        state => {
            match &options.scheme {
                Scheme::Wal | Scheme::PcmBasic(_) | Scheme::NoPcm => Log::check_regions(&options.of_log())?,
                Scheme::InPlace(heap) | Scheme::NvramGroupCommit(heap, _) => {
                    Heap::check_new(heap, options.scheme.batch_bytes())?
                }
                Scheme::PcmLogging(pcm) => Pcm::check_new(pcm)?,
            }
            if let Some(archive) = &options.archive {
                archive.made()?;
            }
            if matches!(state, State::HalfMade) {
                clear(&*disk)?;
            }
            if !disk.exists(CREATING)? {
                mark(&*disk)?;
            }
            let new_log = match &options.scheme {
                Scheme::Wal | Scheme::PcmBasic(_) | Scheme::NoPcm => create(&disk, &options)?,
                Scheme::InPlace(heap) | Scheme::NvramGroupCommit(heap, _) => {
                    in_heap::create(&*disk, heap, &options.scheme).map(|()| None)?
                }
                Scheme::PcmLogging(pcm) => in_pcm::create(&*disk, pcm).map(|()| None)?,
            };
            disk.remove(CREATING)?;
            disk.sync_directory("")?;
            new_log
        }
    };
    start(disk, home, options, new_log)
}

/// Refuses an archive, and regions for the logs' rings, that would mix with the files of the
/// database in `home`.
pub(crate) fn check_places(home: &Path, options: &Options) -> Result<()> {
    let files = [DATA, DOUBLE_WRITE, CONTROL, CONTROL_NEW, CREATING, TIER, TIER_NEW, TIER_PAGES, ARCHIVE, ARCHIVE_NEW];
    if let Some(heap) = options.scheme.heap() {
        return in_heap::check_place(home, heap, options.scheme.batch_bytes(), &files);
    }
    if let Scheme::PcmLogging(pcm) = &options.scheme {
        return in_pcm::check_place(home, pcm, &files);
    }
    let named = match &options.log_device {
        LogDevice::Nvm(nvm) => nvm.further.len() + 1,
        LogDevice::File => 1,
    };
    if let Some(tier) = &options.page_tier {
        tier::check(tier, Some(home), &files)?;
    }
    // A database that exists may have more logs than the options say.
    let count = options.logs.max(u16::try_from(named).unwrap_or(MAX_LOGS));
    Ok(WalOptions { logs: count.min(MAX_LOGS), ..options.of_log() }.check_places(home, &files)?)
}

/// Refuses options by which a database on a disk that forgets changes something that stays.
fn check_within(options: &Options) -> Result<()> {
    let outside = if !matches!(options.scheme, Scheme::Wal | Scheme::NoPcm) {
        Some(("scheme", "persistent memory"))
    } else if options.log_device != LogDevice::File {
        Some(("log_device", "the ring of a log"))
    } else if options.archive.is_some() {
        Some(("archive", "an archive"))
    } else if options.page_tier.as_ref().is_some_and(|tier| tier.place != TierPlace::Home) {
        Some(("page_tier", "a page tier"))
    } else {
        None
    };
    outside.map_or(Ok(()), |(option, what)| Err(changes_what_stays(option, what)))
}

/// Returns the error for a database on a disk that forgets which would change something else.
fn changes_what_stays(option: &'static str, what: &str) -> Error {
    let reason = format!(
        "the database is opened in memory, where its changes are lost, so it must not change {what}; open it in a \
         directory that can be written"
    );
    Error::InvalidOption { option, reason }
}

enum State {
    Empty,
    HalfMade,
    Database,
}

fn state_of(disk: &dyn Disk, scheme: &Scheme) -> Result<State> {
    if disk.exists(CONTROL)? {
        let scheme = ControlFile::open(disk)?.control.scheme;
        if disk.forgets() && scheme != SchemeId::Wal {
            return Err(changes_what_stays("scheme", "persistent memory"));
        }
        let parts: &[(&str, &str)] = match scheme {
            SchemeId::Wal => &[(DATA, "data file"), (DOUBLE_WRITE, "double-write area"), (LOG, "log directory")],
            SchemeId::PcmLogging => &[(DATA, "data file")],
            SchemeId::InPlace | SchemeId::NvramGroupCommit => &[],
        };
        for (name, what) in parts {
            if !disk.exists(name)? {
                return Err(Error::NotADatabase {
                    path: disk.location().into(),
                    reason: format!(
                        "the {what} `{name}` is missing; put it back, or restore the database from a backup"
                    ),
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
            reason: format!("its file `{CREATING}` is not a file of Duramen; choose an empty or new directory"),
        });
    }
    let mut found = disk.list("")?;
    if let (Some(heap), Some(home)) = (scheme.heap(), disk.directory()) {
        // A crash while a new heap was tried has left it. `Heap::check_new` tells whether it is one
        // in use.
        found.retain(|name| !in_heap::is_heap(&home, name, heap));
    }
    if let (Scheme::PcmLogging(pcm), Some(home)) = (scheme, disk.directory()) {
        found.retain(|name| !in_pcm::is_region(&home, name, pcm));
    }
    let log = first_log(disk)?.filter(|log| !found.contains(log));
    let reason = match (found.first(), log) {
        (None, None) => return Ok(State::Empty),
        (Some(name), None) if !found.iter().any(|name| name == DATA) => {
            format!("it holds `{name}`, but no database; choose an empty or new directory")
        }
        (None, Some(log)) if log != LOG => format!(
            "it holds `{log}`, but the file `{CONTROL}` is missing; put it back, restore the database from a backup, \
             or choose an empty or new directory"
        ),
        _ => format!("the file `{CONTROL}` is missing; put it back, or restore the database from a backup"),
    };
    Err(Error::NotADatabase { path: disk.location().into(), reason })
}
