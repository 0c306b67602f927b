//! The files in a database's directory, by name.

use std::path::Path;

use duramen_io::{Backend, Disk, RealDiskOptions};
use duramen_sync::clock;
use duramen_types::crc32c_append;
use duramen_wal::MAX_LOGS;

use crate::checkpoint::control::CONTROL_NEW;
use crate::error::{Error, Result};
use crate::options::{Options, SystemCache};

/// The pages.
pub(crate) const DATA: &str = "data";
/// Copies of the pages that are being written.
pub(crate) const DOUBLE_WRITE: &str = "doublewrite";
/// The lowest version that each page can have. If the file is missing, opening creates an empty
/// one.
pub(super) const VERSIONS: &str = "versions";
/// The log's directory.
pub(crate) const LOG: &str = "log";
/// Says that there is a page tier, and where.
pub(super) const TIER: &str = "tier";
/// The same before it is whole.
pub(super) const TIER_NEW: &str = "tier.new";
/// The page tier itself, if it is in the same directory.
pub(super) const TIER_PAGES: &str = "tier-pages";
/// Says where the log archive is.
pub(super) const ARCHIVE: &str = "archive";
/// The same before it is whole.
pub(super) const ARCHIVE_NEW: &str = "archive.new";
/// Marks a directory in which a database is being created.
pub(super) const CREATING: &str = "creating";

/// Returns how the files of a database are accessed.
pub(crate) fn access(options: &Options) -> RealDiskOptions {
    let backend = if options.io_uring { Backend::Auto } else { Backend::Syscalls };
    let (direct, cached): (_, &[_]) = match options.system_cache {
        SystemCache::Data => (true, &[DATA]),
        SystemCache::None => (true, &[]),
        SystemCache::All => (false, &[]),
    };
    RealDiskOptions { backend, direct, cached }
}

/// Returns the directories that logs may be in.
pub(crate) fn log_directories() -> impl Iterator<Item = String> {
    std::iter::once(LOG.to_owned()).chain((1..MAX_LOGS).map(|log| format!("{LOG}{log}")))
}

/// Returns the first directory of a log that exists.
pub(crate) fn first_log(disk: &dyn Disk) -> Result<Option<String>> {
    for log in log_directories() {
        if disk.exists(&log)? {
            return Ok(Some(log));
        }
    }
    Ok(None)
}

/// Refuses an empty path: the error of the operating system would name nothing either.
pub(crate) fn named(path: &Path) -> Result<&Path> {
    if path.as_os_str().is_empty() {
        let reason = "it is empty; name a directory (`.` is the current one)".to_owned();
        return Err(Error::InvalidOption { option: "path", reason });
    }
    Ok(path)
}

/// Removes what an interrupted creation or copy left, except for its marker.
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

/// Returns a number that distinguishes this database's files from those of any other database. It
/// need not be secret, only different.
pub(crate) fn new_identity(disk: &dyn Disk) -> [u8; 16] {
    let mut mix = u64::from(crc32c_append(0, disk.location().as_bytes()));
    let mut identity = [0; 16];
    for (index, part) in identity.chunks_mut(8).enumerate() {
        for seed in
            [clock::wall_micros(), clock::Instant::now().nanos(), duramen_sync::process_id().into(), index as u64]
        {
            // A step of a multiplicative mixer: each bit of the seeds reaches every bit of the
            // number.
            mix = (mix ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            mix ^= mix >> 29;
        }
        part.copy_from_slice(&mix.to_le_bytes());
    }
    identity
}
