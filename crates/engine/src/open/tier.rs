//! Finds, attaches and removes the page tier of a database.
//!
//! A file `tier` in the database's directory says that there is one, and where. So an opening
//! without [`Options::page_tier`] uses it, too: its pages are nowhere else.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURATLNK` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | CRC-32C of the bytes from 16 to the end of the path |
//! | 16 | 16 | database id |
//! | 32 | 2 | length of the path; 0 if the tier is in the database's directory |
//! | 34 | | path of the tier's directory, UTF-8 |
//!
//! All numbers are little-endian; the file has 4,096 bytes. It is written under another name and
//! renamed when the tier is ready, so it is whole or absent. The control file says that there is a
//! tier from before the first page is in it until the tier is drained: without this file the
//! database is then refused.
//!
//! A tier in another directory is not copied with the database. The copy names the same tier. It
//! cannot use it while the other uses it, which locks it, nor later, when the generation of the
//! tier is not its own.

use std::path::{Path, PathBuf};

use duramen_io::{AlignedBuf, Backend, Disk, File, OpenMode, RealDisk, RealDiskOptions};
use duramen_sync::{Arc, Mutex};
use duramen_types::{BLOCK_SIZE, PageId, crc32c};

use super::files::{TIER, TIER_NEW, TIER_PAGES};
use crate::checkpoint::control::{Control, ControlFile};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::pool::{FoundTier, Pool, REMEDY, Slots, Stamp};

const MAGIC: &[u8; 8] = b"DURATLNK";
const VERSION: u32 = 1;
const VERSION_FIELD: usize = 8;
const CRC: usize = 12;
const DATABASE: usize = 16;
const LEN: usize = 32;
const PATH: usize = 34;

/// Returns the slots of the database's tier, which is attached if the options ask for one and there
/// is none.
pub(super) fn open(disk: &Arc<dyn Disk>, options: &Options, control_file: &mut ControlFile) -> Result<Option<Slots>> {
    let slots = find_or_attach(disk, options, &control_file.control)?;
    if slots.is_some() && !control_file.control.has_tier {
        control_file.write(Control { has_tier: true, ..control_file.control })?;
    }
    Ok(slots)
}

fn find_or_attach(disk: &Arc<dyn Disk>, options: &Options, control: &Control) -> Result<Option<Slots>> {
    let found = if disk.exists(TIER)? { Some(read(&**disk, control)?) } else { None };
    match (found, &options.page_tier) {
        (None, _) if control.has_tier => Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("the file `{TIER}` is missing, which says where the page tier is; {REMEDY}"),
        }),
        (None, None) => Ok(None),
        (None, Some(tier)) => attach(disk, options, control, tier.directory.as_deref(), tier.bytes).map(Some),
        (Some(place), tier) => {
            let wanted = tier.as_ref().map(|tier| &tier.directory);
            if let Some(wanted) = wanted.filter(|wanted| **wanted != place) {
                let name = |place: &Option<PathBuf>| {
                    place.as_ref().map_or("the database's directory".to_owned(), |path| format!("`{}`", path.display()))
                };
                let reason = format!(
                    "the page tier of this database is in {}, not in {}; drain it first (`duramen tier drain`)",
                    name(&place),
                    name(wanted)
                );
                return Err(Error::InvalidOption { option: "page_tier", reason });
            }
            let mut slots = existing(disk, options, control, place.as_deref())?;
            if let Some(tier) = tier {
                resize(&mut slots, Slots::count_in(tier.bytes), control)?;
            }
            Ok(Some(slots))
        }
    }
}

/// Writes all pages of the tier to the data file, and removes it; returns whether there is one.
pub(crate) fn drain(
    pool: &Pool,
    disk: &Arc<dyn Disk>,
    options: &Options,
    control_file: &Mutex<ControlFile>,
) -> Result<bool> {
    pool.drain_tier(&mut || remove(disk, options, &mut control_file.lock()))
}

/// Removes a tier that has been drained. A file that cannot be removed is replaced when a tier is
/// attached again: it says that it is drained.
fn remove(disk: &Arc<dyn Disk>, options: &Options, control_file: &mut ControlFile) -> Result<()> {
    let control = control_file.control;
    let place = read(&**disk, &control)?;
    control_file.write(Control { has_tier: false, ..control })?;
    disk.remove(TIER)?;
    disk.sync_directory("")?;
    let _ = home(disk, options, &control, place.as_deref()).and_then(|(home, name)| {
        home.remove(&name)?;
        Ok(home.sync_directory("")?)
    });
    Ok(())
}

/// Returns the page as the tier of a closed database has it; `None` if it is not in a tier.
pub(crate) fn page(disk: &dyn Disk, page: PageId) -> Result<Option<AlignedBuf>> {
    if !disk.exists(TIER)? {
        return Ok(None);
    }
    let control = ControlFile::open(disk)?.control;
    let place = read(disk, &control)?;
    Ok(existing(&disk.handle(), &Options::default(), &control, place.as_deref())?.page(page)?)
}

fn resize(slots: &mut Slots, wanted: u32, control: &Control) -> Result<()> {
    let has = slots.count();
    if wanted < has {
        let reason = format!("the page tier has {has} slots and cannot shrink to {wanted}: drain it first");
        return Err(Error::InvalidOption { option: "page_tier", reason });
    }
    if wanted > has {
        slots.grow(wanted, stamp(control))?;
    }
    Ok(())
}

fn stamp(control: &Control) -> Stamp {
    Stamp { database: control.database, generation: control.generation }
}

/// Makes a tier, and then its link. What could be made is removed again if the call fails.
fn attach(
    disk: &Arc<dyn Disk>,
    options: &Options,
    control: &Control,
    place: Option<&Path>,
    bytes: u64,
) -> Result<Slots> {
    let text = link_text(place)?;
    let (home, name) = home(disk, options, control, place)?;
    if home.exists(&name)? {
        check_unused(home.open(&name, OpenMode::Existing)?)?;
        home.remove(&name)?;
    }
    let file = home.open(&name, OpenMode::CreateNew)?;
    let made = (|| {
        file.lock()?;
        let slots = Slots::create(file, Slots::count_in(bytes), stamp(control))?;
        home.sync_directory("")?;
        link(&**disk, control, text)?;
        Ok(slots)
    })();
    if made.is_err() && !disk.exists(TIER).unwrap_or(true) {
        let _ = home.remove(&name);
    }
    made
}

/// Refuses to replace anything but what a crash leaves: an empty file, or a tier that is drained or
/// has no pages.
fn check_unused(file: Arc<dyn File>) -> Result<()> {
    file.lock()?;
    let path = file.path();
    let holds = match Slots::open(Arc::clone(&file))? {
        Ok((_, header)) if header.is_drained => return Ok(()),
        Ok((slots, _)) => match FoundTier::read(slots)?.pages() {
            0 => return Ok(()),
            pages => format!("has {pages} pages of this database or of one that it was copied from"),
        },
        Err(_) if is_blank(&*file)? => return Ok(()),
        Err(defect) => format!("is in the way: {defect}"),
    };
    let reason = format!("`{path}` {holds}; name another directory, or remove the file if no database needs it");
    Err(Error::InvalidOption { option: "page_tier", reason })
}

/// Returns whether a file begins with zeros only, as that of a tier does until it is complete.
fn is_blank(file: &dyn File) -> Result<bool> {
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    if file.len()? >= BLOCK_SIZE as u64 {
        file.read_at(&mut block, 0)?;
    }
    Ok(block.iter().all(|byte| *byte == 0))
}

/// Writes the file that says where the tier is.
fn link(disk: &dyn Disk, control: &Control, text: &str) -> Result<()> {
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    block[..8].copy_from_slice(MAGIC);
    block[VERSION_FIELD..CRC].copy_from_slice(&VERSION.to_le_bytes());
    block[DATABASE..LEN].copy_from_slice(&control.database);
    block[LEN..PATH].copy_from_slice(&(text.len() as u16).to_le_bytes());
    block[PATH..PATH + text.len()].copy_from_slice(text.as_bytes());
    let crc = crc32c(&block[DATABASE..PATH + text.len()]);
    block[CRC..DATABASE].copy_from_slice(&crc.to_le_bytes());
    if disk.exists(TIER_NEW)? {
        disk.remove(TIER_NEW)?;
    }
    disk.open(TIER_NEW, OpenMode::CreateNew)?.write_durable(&[&block], 0)?;
    disk.rename(TIER_NEW, TIER)?;
    Ok(disk.sync_directory("")?)
}

/// Returns how the link names a directory.
fn link_text(place: Option<&Path>) -> Result<&str> {
    let invalid = |reason: &str| Error::InvalidOption { option: "page_tier", reason: reason.to_owned() };
    let Some(place) = place else { return Ok("") };
    if !place.is_absolute() {
        return Err(invalid("the directory of a page tier needs an absolute path, which the database keeps"));
    }
    let text = place.to_str().ok_or_else(|| invalid("the path of a page tier must be UTF-8"))?;
    if PATH + text.len() > BLOCK_SIZE {
        return Err(invalid("the path of the page tier is too long"));
    }
    Ok(text)
}

/// Reads where the tier is.
fn read(disk: &dyn Disk, control: &Control) -> Result<Option<PathBuf>> {
    let file = disk.open(TIER, OpenMode::Existing)?;
    let corrupt = |reason: String| Error::Corrupt { file: file.path(), offset: 0, page: None, reason };
    let damaged = || corrupt(format!("it does not say where the page tier is; {REMEDY}"));
    if file.len()? < BLOCK_SIZE as u64 {
        return Err(damaged());
    }
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    file.read_at(&mut block, 0)?;
    let len = usize::from(u16::from_le_bytes([block[LEN], block[LEN + 1]]));
    let checked = block.get(DATABASE..PATH + len).ok_or_else(damaged)?;
    if &block[..8] != MAGIC || block[CRC..DATABASE] != crc32c(checked).to_le_bytes() {
        return Err(damaged());
    }
    if block[VERSION_FIELD..CRC] != VERSION.to_le_bytes() {
        return Err(corrupt("it has an unknown format version: a newer program wrote it".to_owned()));
    }
    if block[DATABASE..LEN] != control.database {
        return Err(corrupt(format!("it belongs to another database; {REMEDY}")));
    }
    let path = std::str::from_utf8(&block[PATH..PATH + len]).map_err(|_| damaged())?;
    Ok((len > 0).then(|| PathBuf::from(path)))
}

/// Returns the directory of a tier, and the name of its file there.
fn home(
    disk: &Arc<dyn Disk>,
    options: &Options,
    control: &Control,
    place: Option<&Path>,
) -> Result<(Arc<dyn Disk>, String)> {
    let Some(place) = place else { return Ok((Arc::clone(disk), TIER_PAGES.to_owned())) };
    let backend = if options.io_uring { Backend::Auto } else { Backend::Syscalls };
    let home = RealDisk::open(place, RealDiskOptions { backend, direct: options.direct_io })?;
    let id: String = control.database.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((Arc::new(home), format!("duramen-tier-{id}")))
}

/// Opens the slots of the tier that the link names, and locks them.
fn existing(disk: &Arc<dyn Disk>, options: &Options, control: &Control, place: Option<&Path>) -> Result<Slots> {
    let missing = |what: String| Error::NotADatabase {
        path: disk.location().into(),
        reason: format!("{what} is missing, and the pages of the tier are nowhere else; {REMEDY}"),
    };
    // An absent directory would be created.
    if let Some(place) = place.filter(|place| !place.is_dir()) {
        return Err(missing(format!("the directory `{}` of the page tier", place.display())));
    }
    let (home, name) = home(disk, options, control, place)?;
    let file: Arc<dyn File> = match home.open(&name, OpenMode::Existing) {
        Err(error) if error.is_not_found() => {
            return Err(missing(format!("the page tier `{name}` in `{}`", home.location())));
        }
        opened => opened?,
    };
    // Before the stamp is read, which another process changes.
    file.lock()?;
    let path = file.path();
    let (slots, header) = Slots::open(file)?.map_err(|defect| {
        let reason = format!("{defect}; its pages are nowhere else: {REMEDY}");
        Error::Corrupt { file: path.clone(), offset: 0, page: None, reason }
    })?;
    control.check_stamp(header.stamp, &path)?;
    Ok(slots)
}
