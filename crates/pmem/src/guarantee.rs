//! What a platform guarantees for a region, and the detection of that guarantee.
//!
//! Linux reports the domain of persistent memory (`persistence_domain` of its region in `/sys`).
//! Stores reach a mapped file directly only if the system grants `MAP_SYNC`. Any other file is
//! mapped as pages of the page cache, which survive the process but not a power cut.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::domain::Domain;

/// What stored data must survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Survive {
    /// Nothing: the data is lost when the region is dropped.
    Nothing,
    /// The end of the process, also by a signal.
    Process,
    /// A power cut, and a crash of the operating system.
    #[default]
    PowerCut,
}

impl fmt::Display for Survive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nothing => "nothing",
            Self::Process => "the end of the process",
            Self::PowerCut => "a power cut",
        })
    }
}

/// What a platform guarantees for a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guarantee {
    /// Stores that other processors can see survive a power cut (eADR).
    DurableCache,
    /// Data that has been flushed or streamed, and then fenced, survives a power cut (ADR).
    VolatileCache,
    /// Stored data survives the process, in the page cache.
    PageCache,
    /// The data does not outlive the region.
    Nothing,
}

impl Guarantee {
    /// Returns what the data of a program that is written for `domain` survives.
    pub fn survives(self, domain: Domain) -> Survive {
        match (self, domain) {
            (Self::DurableCache, _) | (Self::VolatileCache, Domain::VolatileCache) => Survive::PowerCut,
            // Lines that no thread flushes are lost with the caches.
            (Self::VolatileCache, Domain::DurableCache) | (Self::PageCache, _) => Survive::Process,
            (Self::Nothing, _) => Survive::Nothing,
        }
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DurableCache => "the processor's caches are in the persistence domain",
            Self::VolatileCache => "the persistence domain begins at the memory controller",
            Self::PageCache => "stores reach only the page cache",
            Self::Nothing => "the region is memory of the process",
        })
    }
}

/// A guarantee, and how it was determined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    pub(crate) guarantee: Guarantee,
    /// How the guarantee was determined, as text for error messages.
    pub(crate) reason: String,
}

impl Finding {
    pub(crate) fn new(guarantee: Guarantee, reason: impl Into<String>) -> Self {
        Self { guarantee, reason: reason.into() }
    }

    /// Returns the finding for a file that cannot be mapped synchronously.
    pub(crate) fn page_cache(on_tmpfs: bool) -> Self {
        let reason = if on_tmpfs {
            "it is on a tmpfs, which is ordinary memory"
        } else {
            "its file system refuses to map it synchronously (MAP_SYNC), so it is not persistent memory"
        };
        Self::new(Guarantee::PageCache, reason)
    }

    /// Returns the finding for persistent memory that is mapped directly. `device` is the file's
    /// device, or the file itself if it is a device.
    pub(crate) fn persistent_memory(device: libc::dev_t, is_character_device: bool) -> Self {
        let kind = if is_character_device { "char" } else { "block" };
        let link = format!("/sys/dev/{kind}/{}:{}", libc::major(device), libc::minor(device));
        let domain = Path::new(&link).canonicalize().ok().and_then(|device| persistence_domain(&device));
        match domain.as_deref() {
            Some("cpu_cache") => {
                Self::new(Guarantee::DurableCache, "the system reports its persistence domain as `cpu_cache`")
            }
            Some("memory_controller") => {
                Self::new(Guarantee::VolatileCache, "the system reports its persistence domain as `memory_controller`")
            }
            // MAP_SYNC guarantees at least this.
            Some(other) => {
                Self::new(Guarantee::VolatileCache, format!("the system reports its persistence domain as `{other}`"))
            }
            None => Self::new(Guarantee::VolatileCache, "the system does not report whether its caches are durable"),
        }
    }
}

/// Reads the guarantee of the device at `path` below `/sys/devices`, from the nearest directory
/// above it that has one.
fn persistence_domain(path: &Path) -> Option<String> {
    let files = path.ancestors().map(|directory| directory.join("persistence_domain"));
    let file = files.take_while(|file| file.starts_with("/sys/devices")).find(|file: &PathBuf| file.exists())?;
    Some(std::fs::read_to_string(file).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_for_durable_caches_lose_data_where_caches_are_volatile() {
        assert_eq!(Guarantee::DurableCache.survives(Domain::DurableCache), Survive::PowerCut);
        assert_eq!(Guarantee::DurableCache.survives(Domain::VolatileCache), Survive::PowerCut);
        assert_eq!(Guarantee::VolatileCache.survives(Domain::VolatileCache), Survive::PowerCut);
        assert_eq!(Guarantee::VolatileCache.survives(Domain::DurableCache), Survive::Process);
        assert_eq!(Guarantee::PageCache.survives(Domain::DurableCache), Survive::Process);
        assert_eq!(Guarantee::Nothing.survives(Domain::VolatileCache), Survive::Nothing);
    }
}
