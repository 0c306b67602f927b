//! Names of simulated files and the un-synced changes to them.

use std::collections::{BTreeMap, BTreeSet};

use crate::checks::directory_of;

/// Number of a simulated file, unique in its disk.
pub(super) type InodeId = u64;

/// A change to the names of one directory that becomes durable when that directory is synced.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Create { name: String, inode: InodeId },
    Remove { name: String, inode: InodeId },
    Rename { to: String, inode: InodeId },
    CreateDirectory { name: String },
}

impl NameChange {
    /// Returns the directory whose sync makes this durable.
    pub(super) fn directory(&self) -> &str {
        match self {
            Self::Create { name, .. } | Self::Remove { name, .. } => directory_of(name),
            Self::Rename { to, .. } => directory_of(to),
            Self::CreateDirectory { .. } => "",
        }
    }

    /// Returns the file that gets a name.
    pub(super) fn inode(&self) -> Option<InodeId> {
        match self {
            Self::Create { inode, .. } | Self::Rename { inode, .. } => Some(*inode),
            Self::Remove { .. } | Self::CreateDirectory { .. } => None,
        }
    }
}

/// Which names exist.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<String, InodeId>,
    pub(super) directories: BTreeSet<String>,
}

impl Names {
    /// Makes one change. The change is meaningful even if earlier changes were lost: a file has at
    /// most one name, and a rename happens whole or not at all.
    pub(super) fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Create { name, inode } => {
                self.files.insert(name.clone(), *inode);
            }
            NameChange::Remove { name, inode } => {
                if self.files.get(name) == Some(inode) {
                    self.files.remove(name);
                }
            }
            NameChange::Rename { to, inode } => {
                self.files.retain(|_, other| other != inode);
                self.files.insert(to.clone(), *inode);
            }
            NameChange::CreateDirectory { name } => {
                self.directories.insert(name.clone());
            }
        }
    }

    pub(super) fn has_directory(&self, name: &str) -> bool {
        name.is_empty() || self.directories.contains(name)
    }

    pub(super) fn exists(&self, name: &str) -> bool {
        self.files.contains_key(name) || self.directories.contains(name)
    }

    /// Drops files whose directory does not exist.
    pub(super) fn drop_orphans(&mut self) {
        let directories = &self.directories;
        self.files.retain(|name, _| directory_of(name).is_empty() || directories.contains(directory_of(name)));
    }
}
