//! The disk of a benchmark's database, which may have slow random writes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use duramen::{Db, Options, SystemCache};
use duramen_io::{ArmDisk, Backend, RealDisk, RealDiskOptions};
use duramen_sync::Arc;

use crate::args::BenchArgs;
use crate::database;
use crate::failure::Result;
use crate::progress::Narrator;

/// A directory, or one whose disk is slowed down.
pub(super) enum Disk {
    Plain(PathBuf),
    Slow(Arc<ArmDisk>),
}

impl Disk {
    /// Returns the disk with the database in `dir`.
    pub(super) fn of(dir: &Path, args: &BenchArgs) -> Result<Self> {
        if args.disk_delay_ms.is_none() {
            return Ok(Self::Plain(dir.to_owned()));
        }
        let backend = if args.open.no_uring { Backend::Syscalls } else { Backend::Auto };
        let (direct, cached): (_, &[_]) = match args.open.system_cache {
            SystemCache::Data => (true, &["data"]),
            SystemCache::None => (true, &[]),
            SystemCache::All => (false, &[]),
        };
        let real = RealDisk::open(dir, RealDiskOptions { backend, direct, cached })?;
        Ok(Self::Slow(Arc::new(ArmDisk::new(Arc::new(real)))))
    }

    /// Opens the database.
    pub(super) fn open(&self, options: Options, narrator: Narrator) -> Result<Db> {
        match self {
            Self::Plain(dir) => database::open(dir, options, narrator),
            Self::Slow(disk) => Ok(Db::open_on(disk.clone(), options)?),
        }
    }

    /// Makes random writes take so much longer from now on.
    pub(super) fn slow_down(&self, delay: Duration) {
        if let Self::Slow(disk) = self {
            disk.set_delay(delay);
        }
    }

    /// Returns the number of random writes so far, of a disk that can be slowed down.
    pub(super) fn random_writes(&self) -> Option<u64> {
        match self {
            Self::Plain(_) => None,
            Self::Slow(disk) => Some(disk.random_writes()),
        }
    }
}
