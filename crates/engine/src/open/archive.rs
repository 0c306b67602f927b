//! The archive that a database keeps.
//!
//! A log that is recycled once without its archive leaves a gap that ends the archive. So a
//! database that was opened with an archive in a directory remembers it in the file `archive`
//! ([`LinkFile`]), and an opening that names none uses it. [`Options::give_up_archive`] removes the
//! file. An archive on a disk without a directory cannot be remembered.

use std::path::Path;

use duramen_io::Disk;
use duramen_wal::Archive;

use super::files::{ARCHIVE, ARCHIVE_NEW, log_directories};
use super::link::LinkFile;
use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::options::Options;

const LINK: LinkFile =
    LinkFile { name: ARCHIVE, new_name: ARCHIVE_NEW, magic: b"DURAARCH", target: "log archive", further: &[0] };

/// Refuses an archive that a database cannot remember, before anything is made.
pub(super) fn check(archive: Option<&Archive>) -> Result<()> {
    archive.and_then(Archive::directory).map_or(Ok(()), |directory| path_of(&directory).map(drop))
}

fn path_of(directory: &Path) -> Result<&str> {
    directory.to_str().filter(|path| LINK.fits(path)).ok_or_else(|| {
        invalid("the path of the archive, which the database keeps, is too long or not UTF-8".to_owned())
    })
}

/// Returns the options with the archive that the database keeps, if they name none. A database on a
/// disk that forgets archives nothing.
///
/// # Errors
/// [`Error::InvalidOption`] if that archive is not there: the next one would begin after a gap; or
/// if the other options leave no log to archive.
pub(super) fn with_kept(disk: &dyn Disk, control: &Control, options: Options) -> Result<Options> {
    if options.give_up_archive {
        forget(disk)?;
        return Ok(options);
    }
    if disk.forgets() {
        return Ok(options);
    }
    let link = match LINK.read(disk, control.database) {
        Ok(Some(link)) => link,
        Ok(None) => return Ok(options),
        // The archive that is named replaces what cannot be read.
        Err(_) if options.archive.is_some() => return Ok(options),
        Err(error) => return Err(error),
    };
    let home = Path::new(&link.path);
    if options.archive.as_ref().is_some_and(|archive| archive.directory().as_deref() != Some(home)) {
        return Ok(options);
    }
    // They were there before the database remembered the archive. In an empty directory, for
    // instance where a file system is not mounted, another archive would begin, after a gap.
    if !log_directories().take(control.logs.count.into()).all(|log| home.join(log).is_dir()) {
        return Err(invalid(format!(
            "the database keeps its log archive in `{}`, which is not there or empty: make that directory available \
             (is its file system mounted?), name another archive, or give the archive up \
             (`Options::give_up_archive`, `--no-archive`)",
            link.path
        )));
    }
    if options.archive.is_some() {
        return Ok(options);
    }
    let options = Options { archive: Some(Archive::at(&link.path)?), ..options };
    options.validate()?;
    Ok(options)
}

/// Remembers the archive of an open database.
pub(super) fn keep(disk: &dyn Disk, control: &Control, archive: Option<&Archive>) -> Result<()> {
    let Some(archive) = archive else { return Ok(()) };
    let Some(directory) = archive.directory() else { return forget(disk) };
    let path = path_of(&directory)?;
    match LINK.read(disk, control.database) {
        Ok(Some(link)) if link.path == path => Ok(()),
        // What cannot be read is replaced.
        Ok(_) | Err(Error::Corrupt { .. }) => LINK.write(disk, control.database, path, &[]),
        Err(error) => Err(error),
    }
}

fn forget(disk: &dyn Disk) -> Result<()> {
    if disk.exists(ARCHIVE)? {
        disk.remove(ARCHIVE)?;
        disk.sync_directory("")?;
    }
    Ok(())
}

fn invalid(reason: String) -> Error {
    Error::InvalidOption { option: "archive", reason }
}
