//! Finds, attaches and removes the page tier of a database.
//!
//! A file `tier` in the database's directory says that there is one, and where (`link`). So an
//! opening without [`Options::page_tier`] uses it, too: its pages are nowhere else. The control
//! file says that there is a tier from before the first page is in it until the tier is drained:
//! without the file `tier` the database is then refused.
//!
//! A tier in another directory, or in persistent memory, is not copied with the database. The copy
//! names the same tier. It cannot use it while the other uses it, which locks it, nor later, when
//! the generation of the tier is not its own.

mod link;
mod medium;

use std::path::Path;

use duramen_io::{AlignedBuf, Disk};
use duramen_pmem::Source;
use duramen_sync::{Arc, Mutex};
use duramen_types::{BLOCK_SIZE, PageId};

use super::files::TIER;
use crate::checkpoint::control::{Control, ControlFile};
use crate::error::{Error, Result};
use crate::options::{Options, TierOptions, TierPlace};
use crate::pool::{FoundTier, Medium, Pool, REMEDY, Slots, Stamp};
use link::Link;
use medium::Place;

/// Refuses a tier that cannot be, before anything is made. `files` are the names of the database's
/// own files in `home`.
pub(super) fn check(tier: &TierOptions, home: Option<&Path>, files: &[&str]) -> Result<()> {
    link::text(&tier.place)?;
    let TierPlace::Memory(memory) = &tier.place else { return Ok(()) };
    if let (Source::File(path), Some(home)) = (&memory.source, home)
        && files.iter().any(|name| *path == home.join(name))
    {
        let reason = format!("the page tier `{}` is a file of the database itself; name another", path.display());
        return Err(Error::InvalidOption { option: "page_tier", reason });
    }
    // The directory of the tier may be that of the database, and not exist yet.
    match (&memory.source, home) {
        (Source::File(path), Some(home)) if path.parent() == Some(home) && !home.exists() => Ok(()),
        _ => medium::check_new(memory),
    }
}

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
    match (link::read(&**disk, control)?, &options.page_tier) {
        (None, _) if control.has_tier => Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!("the file `{TIER}`, which records where the page tier is, is missing; {REMEDY}"),
        }),
        (None, None) => Ok(None),
        (None, Some(tier)) => attach(disk, options, control, tier).map(Some),
        (Some(link), tier) => {
            let place = usable(link, tier.as_ref())?;
            if disk.forgets() && place != TierPlace::Home {
                return Err(super::changes_what_stays("page_tier", &format!("its page tier in {}", name(&place))));
            }
            let (slots, at) = existing(disk, options, control, &place)?;
            match tier {
                Some(tier) => Ok(Some(resized(slots, &at, tier.bytes, control)?)),
                None => Ok(Some(slots)),
            }
        }
    }
}

/// Returns the place that the link names, or the options where the link has no name for it; refuses
/// options that name another place. How the memory of a tier is used, the options may change.
fn usable(link: Link, wanted: Option<&TierOptions>) -> Result<TierPlace> {
    let invalid = |reason: String| Error::InvalidOption { option: "page_tier", reason };
    let wanted = wanted.map(|tier| &tier.place);
    let is_simulated =
        |place: &TierPlace| matches!(place, TierPlace::Memory(memory) if matches!(memory.source, Source::Simulated(_)));
    match (link, wanted) {
        (Link::Nameless, Some(place)) if is_simulated(place) => Ok(place.clone()),
        (Link::Nameless, _) => Err(invalid(
            "the page tier of this database is in anonymous memory; pass that memory in `page_tier`".into(),
        )),
        (Link::Place(place), None) => Ok(place),
        (Link::Place(place), Some(wanted)) => match (&place, wanted) {
            (TierPlace::Memory(found), TierPlace::Memory(memory)) if found.source == memory.source => {
                Ok(wanted.clone())
            }
            _ if place == *wanted => Ok(place),
            _ => Err(invalid(format!(
                "the page tier of this database is in {}, not in {}; drain it first (`duramen tier drain`)",
                name(&place),
                name(wanted)
            ))),
        },
    }
}

fn name(place: &TierPlace) -> String {
    match place {
        TierPlace::Home => "the database's directory".to_owned(),
        TierPlace::Directory(path) => format!("`{}`", path.display()),
        TierPlace::Memory(memory) => match &memory.source {
            Source::File(path) => format!("the memory `{}`", path.display()),
            _ => "memory without a name".to_owned(),
        },
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
    let link = link::read(&**disk, &control)?;
    control_file.write(Control { has_tier: false, ..control })?;
    disk.remove(TIER)?;
    disk.sync_directory("")?;
    if let Some(Link::Place(place)) = link {
        let _ = Place::of(disk, options, &control, &place).and_then(|place| place.remove());
    }
    Ok(())
}

/// Returns the page as the tier of a closed database has it; `None` if it is not in a tier.
pub(crate) fn page(disk: &dyn Disk, page: PageId) -> Result<Option<AlignedBuf>> {
    if !disk.exists(TIER)? {
        return Ok(None);
    }
    let control = ControlFile::open(disk)?.control;
    let Some(link) = link::read(disk, &control)? else { return Ok(None) };
    let place = usable(link, None)?;
    let disk = disk.handle();
    Ok(existing(&disk, &Options::default(), &control, &place)?.0.page(page)?)
}

/// Returns the slots of a tier that is to have so many bytes; memory is mapped anew for that.
fn resized(slots: Slots, at: &Place, bytes: u64, control: &Control) -> Result<Slots> {
    let (has, wanted) = (slots.count(), Slots::count_in(bytes));
    let invalid = |reason: String| Error::InvalidOption { option: "page_tier", reason };
    if wanted == has {
        return Ok(slots);
    }
    if wanted < has {
        return Err(invalid(format!("the page tier has {has} slots and cannot shrink to {wanted}: drain it first")));
    }
    let mut slots = match at {
        Place::File(..) => slots,
        Place::Memory(memory) => {
            drop(slots);
            Slots::open(medium::larger(memory, bytes)?)?.map_err(invalid)?.0
        }
    };
    slots.grow(wanted, stamp(control))?;
    Ok(slots)
}

fn stamp(control: &Control) -> Stamp {
    Stamp { database: control.database, generation: control.generation }
}

/// Makes a tier, and then its link. What could be made is removed again if the call fails.
fn attach(disk: &Arc<dyn Disk>, options: &Options, control: &Control, tier: &TierOptions) -> Result<Slots> {
    link::text(&tier.place)?;
    let at = Place::of(disk, options, control, &tier.place)?;
    if let Some(occupant) = at.occupant()? {
        check_unused(occupant, &at)?;
    }
    let made = (|| {
        let medium = at.make(tier.bytes)?;
        if matches!(at, Place::Memory(_)) {
            // Pages of a drained tier may be there.
            Slots::erase_all(Arc::clone(&medium))?;
        }
        let slots = Slots::create(medium, Slots::count_in(tier.bytes), stamp(control))?;
        at.sync_name()?;
        link::write(&**disk, control, &tier.place)?;
        Ok(slots)
    })();
    if made.is_err() && !disk.exists(TIER).unwrap_or(true) {
        let _ = at.remove();
    }
    made
}

/// Refuses to replace anything but what a crash leaves: a blank file, or a tier that is drained or
/// has no pages.
fn check_unused(occupant: Arc<dyn Medium>, at: &Place) -> Result<()> {
    let path = occupant.location();
    let holds = match Slots::open(Arc::clone(&occupant))? {
        Ok((_, header)) if header.is_drained => return Ok(()),
        Ok((slots, _)) => match FoundTier::read(slots, None)?.pages() {
            0 => return Ok(()),
            pages => format!("has {pages} pages of this database or of one that it was copied from"),
        },
        Err(_) if is_blank(&*occupant, at)? => return Ok(()),
        Err(defect) => format!("is in the way: {defect}"),
    };
    let reason = format!("`{path}` {holds}; name another place, or remove the file if no database needs it");
    Err(Error::InvalidOption { option: "page_tier", reason })
}

/// Returns whether there are only zeros where a tier is to be made, as there are until it is
/// complete; in memory also a header that was being written. A file is replaced, so its beginning
/// is enough.
fn is_blank(occupant: &dyn Medium, at: &Place) -> Result<bool> {
    const CHUNK: u64 = 1 << 20;
    let len = occupant.len()? / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
    let len = if matches!(at, Place::File(..)) { len.min(BLOCK_SIZE as u64) } else { len };
    let mut bytes = AlignedBuf::zeroed(CHUNK.min(len.max(1)) as usize);
    for first in (0..len).step_by(CHUNK as usize) {
        let some = &mut bytes[..CHUNK.min(len - first) as usize];
        occupant.read(&mut [(first, &mut *some)])?;
        if first == 0 && matches!(at, Place::Memory(_)) {
            Slots::blank_torn_header(some);
        }
        if some.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens the slots of the tier that the link names, and locks them.
fn existing(disk: &Arc<dyn Disk>, options: &Options, control: &Control, place: &TierPlace) -> Result<(Slots, Place)> {
    // An absent directory would be created.
    if let TierPlace::Directory(path) = place
        && !path.is_dir()
    {
        return Err(Error::NotADatabase {
            path: disk.location().into(),
            reason: format!(
                "the directory `{}` of the page tier is missing, and the pages of the tier are nowhere else; {REMEDY}",
                path.display()
            ),
        });
    }
    let at = Place::of(disk, options, control, place)?;
    let medium = at.existing(disk)?;
    let path = medium.location();
    let (slots, header) = Slots::open(medium)?.map_err(|defect| {
        let reason = format!("{defect}; its pages are nowhere else: {REMEDY}");
        Error::Corrupt { file: path.clone(), offset: 0, page: None, reason }
    })?;
    control.check_stamp(header.stamp, &path)?;
    Ok((slots, at))
}
