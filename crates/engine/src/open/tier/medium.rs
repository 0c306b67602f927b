//! Opens, makes and removes what a page tier lies on.

use duramen_io::{Disk, File, OpenMode, RealDisk};
use duramen_pmem::{Mode, PmemError, Region, RegionOptions, Source};
use duramen_sync::Arc;
use duramen_types::BLOCK_SIZE;

use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::open::files::{TIER_PAGES, access};
use crate::options::{Options, TierMemory, TierPlace};
use crate::pool::{Medium, REMEDY};

/// The length of a region is a multiple of this.
const MAPPED: u64 = BLOCK_SIZE as u64;

/// What a tier is to lie on.
pub(super) enum Place {
    /// A file of this name, in this directory.
    File(Arc<dyn Disk>, String),
    Memory(TierMemory),
}

impl Place {
    /// Returns the place of the tier of a database.
    pub(super) fn of(disk: &Arc<dyn Disk>, options: &Options, control: &Control, place: &TierPlace) -> Result<Self> {
        let directory = match place {
            TierPlace::Home => return Ok(Self::File(Arc::clone(disk), TIER_PAGES.to_owned())),
            TierPlace::Memory(memory) => return Ok(Self::Memory(memory.clone())),
            TierPlace::Directory(directory) => directory,
        };
        let home = RealDisk::open(directory, access(options))?;
        let id: String = control.database.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self::File(Arc::new(home), format!("duramen-tier-{id}")))
    }

    /// Opens what a tier of the database `disk` is on, and locks it.
    pub(super) fn existing(&self, disk: &Arc<dyn Disk>) -> Result<Arc<dyn Medium>> {
        let missing = |what: String| Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("{what} is missing, and the pages of the tier are nowhere else; {REMEDY}"),
        };
        match self {
            Self::File(home, name) => match home.open(name, OpenMode::Existing) {
                Err(error) if error.is_not_found() => {
                    Err(missing(format!("the page tier `{name}` in `{}`", home.location())))
                }
                opened => locked(opened?),
            },
            Self::Memory(memory) => {
                let name = match &memory.source {
                    Source::File(path) => format!("`{}`", path.display()),
                    _ => "in memory".to_owned(),
                };
                let len = len_of(&memory.source).ok_or_else(|| missing(format!("the page tier {name}")))?;
                if len < MAPPED {
                    let reason = format!("it has {len} bytes, too few for a page tier; {REMEDY}");
                    return Err(Error::Corrupt { file: name, offset: 0, page: None, reason });
                }
                Ok(Arc::new(open_region(memory, len / MAPPED * MAPPED, Mode::Open)?))
            }
        }
    }

    /// Opens what is where a tier is to be made, and locks it, if there is anything.
    pub(super) fn occupant(&self) -> Result<Option<Arc<dyn Medium>>> {
        match self {
            Self::File(home, name) if home.exists(name)? => Ok(Some(locked(home.open(name, OpenMode::Existing)?)?)),
            Self::File(..) => Ok(None),
            Self::Memory(memory) => match len_of(&memory.source) {
                Some(len) if len >= MAPPED => {
                    Ok(Some(Arc::new(open_region(memory, len / MAPPED * MAPPED, Mode::Open)?)))
                }
                _ => Ok(None),
            },
        }
    }

    /// Makes room for a tier of so many bytes, and locks it. What was there is not needed.
    pub(super) fn make(&self, bytes: u64) -> Result<Arc<dyn Medium>> {
        match self {
            Self::File(home, name) => {
                if home.exists(name)? {
                    home.remove(name)?;
                }
                locked(home.open(name, OpenMode::CreateNew)?)
            }
            Self::Memory(memory) => {
                let has = len_of(&memory.source);
                let mode = if has.is_some() { Mode::Grow } else { Mode::OpenOrCreate };
                Ok(Arc::new(open_region(memory, bytes.max(has.unwrap_or(0)), mode)?))
            }
        }
    }

    /// Makes the name of what was made durable.
    pub(super) fn sync_name(&self) -> Result<()> {
        match self {
            Self::File(home, _) => Ok(home.sync_directory("")?),
            // A region has a durable name when it is open.
            Self::Memory(_) => Ok(()),
        }
    }

    /// Removes the file of a tier. Memory without a file of its own stays.
    pub(super) fn remove(&self) -> Result<()> {
        match self {
            Self::File(home, name) => {
                home.remove(name)?;
                Ok(home.sync_directory("")?)
            }
            Self::Memory(TierMemory { source: Source::File(path), .. }) if path.is_file() => std::fs::remove_file(path)
                .map_err(|error| Error::Io {
                    reason: format!("cannot remove the page tier `{}`: {error}", path.display()),
                }),
            Self::Memory(_) => Ok(()),
        }
    }
}

fn locked(file: Arc<dyn File>) -> Result<Arc<dyn Medium>> {
    // Before the stamp is read, which another process changes.
    file.lock()?;
    Ok(Arc::new(file))
}

/// Returns how many bytes there are of the memory; `None` if it does not exist.
fn len_of(source: &Source) -> Option<u64> {
    match source {
        Source::File(path) => path.metadata().ok().map(|file| file.len()),
        Source::Simulated(memory) => Some(memory.len()),
        Source::Anonymous => None,
    }
}

/// Checks that a tier could lie in this memory, before anything is made.
pub(super) fn check_new(memory: &TierMemory) -> Result<()> {
    let Source::File(path) = &memory.source else { return Ok(()) };
    if path.is_file() {
        return Ok(());
    }
    if path.exists() {
        let path = path.display();
        return Err(invalid(format!("`{path}` is not a file; name a file on a DAX file system for the page tier")));
    }
    if path.parent().is_some_and(|home| !home.exists()) {
        return Err(invalid(format!("the directory of the page tier `{}` does not exist; create it", path.display())));
    }
    // Whether memory survives what it must can be found out only with a file.
    let tried = Region::open(&memory.source, &region_options(memory, MAPPED, Mode::Create)).map(drop);
    // The file of another program that was quicker stays.
    if matches!(tried, Ok(()) | Err(PmemError::NotDurable { .. })) {
        let _ = std::fs::remove_file(path);
    }
    tried.map_err(of_region)
}

/// Opens the memory of an existing tier with at least so many bytes.
pub(super) fn larger(memory: &TierMemory, bytes: u64) -> Result<Arc<dyn Medium>> {
    Ok(Arc::new(open_region(memory, bytes, Mode::Grow)?))
}

fn open_region(memory: &TierMemory, len: u64, mode: Mode) -> Result<Region> {
    // Simulated memory does not grow.
    let is_simulated = matches!(memory.source, Source::Simulated(_));
    let len = if is_simulated { len / MAPPED * MAPPED } else { len.next_multiple_of(MAPPED) };
    Region::open(&memory.source, &region_options(memory, len, mode)).map_err(of_region)
}

fn region_options(memory: &TierMemory, len: u64, mode: Mode) -> RegionOptions {
    RegionOptions {
        len,
        mode,
        ring_from: None,
        domain: memory.domain,
        survive: memory.survive,
        stated: memory.stated,
        placement: memory.placement,
        populate: false,
        timing: memory.timing,
    }
}

fn of_region(error: PmemError) -> Error {
    match error {
        PmemError::NotDurable { .. } | PmemError::InvalidOption { .. } | PmemError::TooSmall { .. } => {
            invalid(error.to_string())
        }
        PmemError::Busy { location } => {
            Error::AlreadyOpen { path: location.into(), reason: "another program has the page tier open".into() }
        }
        other => Error::Io { reason: other.to_string() },
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidOption { option: "page_tier", reason }
}
