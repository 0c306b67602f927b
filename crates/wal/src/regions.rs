//! Checks where the archive and the rings of a database may lie: they must not overwrite its files
//! or each other.
//!
//! Files are compared by device and number, so that links and other names are recognized; and by
//! name and directory, for files that do not exist yet.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use duramen_pmem::Source;
use duramen_types::LogId;

use crate::error::{Result, WalError};
use crate::format::segment::directory;
use crate::options::{LogDevice, MAX_LOGS, WalOptions};

/// Returns the device and the number of the file or directory to which `path` leads, if it exists.
fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

impl WalOptions {
    /// Checks, before anything is created, that the archive and the rings of the database in `home`
    /// can lie where the options put them. `files` are the names of its own files in `home`.
    ///
    /// # Errors
    /// [`WalError::InvalidOption`].
    pub fn check_places(&self, home: &Path, files: &[&str]) -> Result<()> {
        let archive = self.archive.as_ref().and_then(|archive| archive.directory());
        if let Some(archive) = &archive {
            check_archive(home, archive)?;
        }
        let LogDevice::Nvm(nvm) = &self.device else { return Ok(()) };
        let mut regions: Vec<(u16, PathBuf)> = Vec::new();
        for log in 0..self.logs {
            let Ok(Source::File(path)) = nvm.of_log(LogId::new(log)).map(|nvm| nvm.source) else { continue };
            let invalid = |reason: String| Err(WalError::invalid("device", reason));
            let shown = path.display();
            if let Some(file) = file_at(&path, home, files, archive.as_deref()) {
                return invalid(format!(
                    "the region `{shown}` is, or would become, the file `{}` of the database or of its archive; name \
                     another file",
                    file.display()
                ));
            }
            if let Some((other, _)) = regions.iter().find(|(_, other)| is_same(other, &path)) {
                return invalid(format!(
                    "log {other} and log {log} have the same region, `{shown}`; name a separate region for each log"
                ));
            }
            regions.push((log, path));
        }
        Ok(())
    }
}

/// Returns the file of the database or its archive that `path` is, by name or by identity, or would
/// become.
fn file_at(path: &Path, home: &Path, files: &[&str], archive: Option<&Path>) -> Option<PathBuf> {
    /// Each directory has a lock file.
    const LOCK: &str = "lock";
    let of_home = files.iter().copied().chain([LOCK]).map(|name| home.join(name));
    let logs = [Some(home), archive]
        .into_iter()
        .flatten()
        .flat_map(|root| (0..MAX_LOGS).map(move |log| root.join(directory(LogId::new(log)))));
    let whole: Vec<PathBuf> = archive.map(Path::to_owned).into_iter().chain(logs).collect();
    let (name, place) = (path.file_name()?, parent(path));
    let named = of_home.clone().find(|file| file.file_name() == Some(name) && is_same(home, place));
    let within = || whole.iter().find(|directory| is_same(directory, place)).map(|directory| directory.join(name));
    if let Some(file) = named.or_else(within) {
        return Some(file);
    }
    let found = identity(path)?;
    let inside = whole.iter().filter_map(|directory| directory.read_dir().ok()).flatten().flatten();
    of_home.chain(inside.map(|entry| entry.path())).find(|file| identity(file) == Some(found))
}

/// Refuses an archive inside the database's directory, or the reverse: files might be mixed up.
fn check_archive(home: &Path, archive: &Path) -> Result<()> {
    let (home, archive) = (resolved(home), resolved(archive));
    let relation = if is_same(&home, &archive) {
        "is the database's own directory"
    } else if archive.ancestors().any(|above| is_same(above, &home)) {
        "lies in the database's directory"
    } else if home.ancestors().any(|above| is_same(above, &archive)) {
        "contains the database's directory"
    } else {
        return Ok(());
    };
    let (archive, home) = (archive.display(), home.display());
    let reason = format!(
        "the archive `{archive}` {relation}, `{home}`; choose a directory outside it, preferably on another disk"
    );
    Err(WalError::invalid("archive", reason))
}

/// Returns whether two paths lead to the same file, or would if they existed.
fn is_same(one: &Path, other: &Path) -> bool {
    match (identity(one), identity(other)) {
        (None, None) => resolved(one) == resolved(other),
        (one, other) => one == other,
    }
}

/// Returns the path without links and detours as far as it exists, and the rest as written.
fn resolved(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.file_name(), path.components().next_back()) {
        (Some(name), _) => resolved(parent(path)).join(name),
        (None, Some(Component::ParentDir)) => parent(&resolved(parent(path))).to_owned(),
        _ => path.to_owned(),
    }
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_as_far_as_they_lead() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().canonicalize().unwrap();
        std::fs::create_dir(home.join("db")).unwrap();
        std::os::unix::fs::symlink(home.join("db"), home.join("link")).unwrap();
        assert_eq!(resolved(&home.join("link/new/log")), home.join("db/new/log"));
        assert_eq!(resolved(&home.join("link/new/../log")), home.join("db/log"));
        assert_eq!(resolved(&home.join("./db/../other")), home.join("other"));
        assert!(is_same(&home.join("link/ring"), &home.join("db/./ring")));
        assert!(!is_same(&home.join("link/ring"), &home.join("ring")));
        assert!(!is_same(&home.join("db"), &home.join("ring")));
    }

    #[test]
    fn an_archive_lies_beside_the_database() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("db");
        let refusal =
            |archive: &str| check_archive(&home, &root.path().join(archive)).map_err(|error| error.to_string());
        for made in [false, true] {
            assert!(refusal("db").unwrap_err().contains("is the database's own directory"));
            assert!(refusal("db/log").unwrap_err().contains("lies in the database's directory"));
            assert!(refusal("other/../db/new/archive").unwrap_err().contains("lies in"));
            assert!(refusal("").unwrap_err().contains("contains the database's directory"));
            assert_eq!((refusal("archive"), refusal("db2")), (Ok(()), Ok(())));
            if !made {
                std::fs::create_dir(&home).unwrap();
                std::os::unix::fs::symlink(&home, root.path().join("link")).unwrap();
            }
        }
        assert!(refusal("link/archive").unwrap_err().contains("lies in"));
    }
}
