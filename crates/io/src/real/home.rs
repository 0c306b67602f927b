//! The directory of a [`RealDisk`](super::RealDisk): handles of it and of its subdirectories, which
//! stay open, and names in them.
//!
//! Every name is resolved relative to a handle. So if someone moves the directory away and puts
//! another one in its place, the disk continues in the directory that it opened, and touches
//! nothing in the other. [`Home::verify`] detects this.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Error, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use duramen_sync::{Arc, Mutex};

use super::names::{self, FileId};
use crate::checks::directory_of;
use crate::{DiskError, Result};

/// The directory.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    handle: Arc<File>,
    /// Subdirectories that have been used.
    inner: Mutex<BTreeMap<String, Arc<File>>>,
}

/// A name within one directory.
pub(super) struct Place<'n> {
    pub(super) directory: Arc<File>,
    pub(super) name: &'n str,
    pub(super) path: PathBuf,
}

impl Place<'_> {
    /// Describes a failed operation on it.
    pub(super) fn fail(&self, operation: &str, error: &Error) -> DiskError {
        DiskError::system(operation, self.path.display().to_string(), error)
    }
}

impl Home {
    /// Opens `path`; creates it durably if it does not exist.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let named = path.display().to_string();
        if path.as_os_str().is_empty() {
            let reason = "its path is empty; the current directory is `.`";
            return Err(DiskError::new("open the directory", named, reason, ErrorKind::InvalidInput));
        }
        create_durably(path)?;
        let fail = |error: Error| DiskError::system("open the directory", &named, &error);
        let handle = Arc::new(names::open_path(path).map_err(fail)?);
        let home = Self { path: path.canonicalize().map_err(fail)?, handle, inner: Mutex::new(BTreeMap::new()) };
        home.verify()?;
        Ok(home)
    }

    /// Returns its path at the time of opening.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn handle(&self) -> &Arc<File> {
        &self.handle
    }

    /// Returns the path of `name` (`""` is the directory itself), for messages.
    pub(super) fn path_of(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.path.clone() } else { self.path.join(name) }
    }

    /// Returns the directory `name`, open.
    pub(super) fn directory(&self, name: &str) -> std::io::Result<Arc<File>> {
        if name.is_empty() {
            return Ok(Arc::clone(&self.handle));
        }
        let mut inner = self.inner.lock();
        if let Some(handle) = inner.get(name) {
            return Ok(Arc::clone(handle));
        }
        let handle = Arc::new(names::open_directory(self.handle.as_fd(), name)?);
        inner.insert(name.to_owned(), Arc::clone(&handle));
        Ok(handle)
    }

    /// Returns the directory in which `name` is resolved, for `operation`.
    pub(super) fn place<'n>(&self, operation: &str, name: &'n str) -> Result<Place<'n>> {
        let (directory, path) = (directory_of(name), self.path_of(name));
        let leaf = if directory.is_empty() { name } else { &name[directory.len() + 1..] };
        match self.directory(directory) {
            Ok(directory) => Ok(Place { directory, name: leaf, path }),
            Err(error) => Err(DiskError::system(operation, path.display().to_string(), &error)),
        }
    }

    /// Checks that the paths of the directory and of its subdirectories still lead to them.
    pub(super) fn verify(&self) -> Result<()> {
        let check = |path: PathBuf, handle: &File, found: std::io::Result<FileId>| {
            let fail = |error: &Error| DiskError::system("look for", path.display().to_string(), error);
            let own = names::identity(handle).map_err(|error| fail(&error))?;
            match found {
                Ok(id) if id == own => Ok(()),
                Ok(_) => Err(moved(&path, "another directory is in its place")),
                Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENOTDIR) => {
                    Err(moved(&path, "it is no longer there"))
                }
                // A process that has given up the right to resolve the path continues.
                Err(_) => Ok(()),
            }
        };
        check(self.path.clone(), &self.handle, names::identity_of_path(&self.path))?;
        for (name, handle) in &*self.inner.lock() {
            let found = names::find(self.handle.as_fd(), name).map(|(id, _)| id);
            check(self.path_of(name), handle, found)?;
        }
        Ok(())
    }
}

/// Makes the error of a file or directory that has lost its name since it was opened.
pub(super) fn moved(path: &Path, what: &str) -> DiskError {
    let reason = format!(
        "{what}: it was moved or replaced while it was open. The moved files hold all acknowledged data, and nothing \
         was written to the files that are there now; move the files back, or open them at their new place"
    );
    DiskError::new("continue with", path.display().to_string(), reason, ErrorKind::NotFound)
}

/// Makes the error of a directory whose name belongs to another kind of file.
pub(super) fn not_a_directory(path: &Path) -> DiskError {
    let reason = match fs::read_link(path) {
        Ok(target) if !path.exists() => format!("it is a link to `{}`, which does not exist", target.display()),
        Ok(target) => format!("it is a link to `{}`, which is a file", target.display()),
        Err(_) => "it is a file".to_owned(),
    };
    DiskError::new("create the directory", path.display().to_string(), reason, ErrorKind::NotADirectory)
}

/// Creates `path` and its parents, each of them durable in its parent.
fn create_durably(path: &Path) -> Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let fail = |error: &Error| DiskError::system("create the directory", path.display().to_string(), error);
    if path.is_dir() {
        // Whoever has created it may not have made it durable. Its parent may be out of reach.
        return match fs::File::open(parent).map(|parent| parent.sync_all()) {
            Ok(Err(error)) if is_of_device(&error) => Err(fail(&error).of_write()),
            _ => Ok(()),
        };
    }
    create_durably(parent)?;
    match fs::create_dir(path) {
        // Another process may be opening the same home.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(not_a_directory(path));
        }
        done => done.map_err(|error| fail(&error))?,
    }
    fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(|error| fail(&error).of_write())
}

/// Returns whether a sync has failed, rather than not being possible.
fn is_of_device(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::ENOSPC | libc::EDQUOT))
}
