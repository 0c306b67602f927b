//! What survives what: the domain that a program is written for, the guarantee of the platform, and
//! its detection.
//!
//! A store passes the processor's store buffer, its caches and the memory controller before it
//! reaches the medium. The *persistence domain* begins at the first of these places whose content
//! survives when the power goes off.
//!
//! - *durable cache* (Intel's eADR; CXL's global persistent flush): the caches are in it. What
//!   other processors can see is durable; a fence is all a program needs.
//! - *volatile cache* (ADR): it begins at the memory controller. Written lines have to be flushed,
//!   or streamed past the caches, and a fence waits until the controller has accepted them.
//!
//! Linux names the domain of a persistent memory (`persistence_domain` of its region in `/sys`).
//! Stores reach a mapped file directly only if the system grants `MAP_SYNC`. Any other file is
//! mapped as pages of the page cache, which survive the process and nothing more.

use std::fmt;
use std::path::{Path, PathBuf};

/// The persistence domain that a program is written for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Domain {
    /// The caches survive: [`crate::Region::persist`] is a fence.
    DurableCache,
    /// The caches do not survive, the memory controller's queues do: [`crate::Region::persist`]
    /// flushes and fences.
    #[default]
    VolatileCache,
}

impl Domain {
    /// The domains, with their names.
    pub const NAMES: [(&'static str, Self); 2] =
        [("durable-cache", Self::DurableCache), ("volatile-cache", Self::VolatileCache)];
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::DurableCache => "durable-cache",
            Self::VolatileCache => "volatile-cache",
        })
    }
}

impl std::str::FromStr for Domain {
    type Err = crate::PmemError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, domain)| domain).ok_or_else(|| {
            let reason =
                format!("there is no persistence domain `{name}`; there are `durable-cache` and `volatile-cache`");
            crate::PmemError::InvalidOption { option: "domain", reason }
        })
    }
}

/// What stored data must survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Survive {
    /// Nothing: it is gone with the region.
    Nothing,
    /// The end of the process, by whatever signal.
    Process,
    /// A power cut, and the end of the operating system.
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
    /// What other processors can see survives a power cut (eADR).
    DurableCache,
    /// What has been flushed or streamed, and fenced, survives a power cut (ADR).
    VolatileCache,
    /// What has been stored survives the process, in the page cache.
    PageCache,
    /// Nothing survives the region.
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
            Self::PageCache => "stores reach the page cache",
            Self::Nothing => "memory of the process",
        })
    }
}

/// A guarantee, and how it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Finding {
    pub(crate) guarantee: Guarantee,
    /// For people: why it is this one.
    pub(crate) reason: String,
}

impl Finding {
    pub(crate) fn new(guarantee: Guarantee, reason: impl Into<String>) -> Self {
        Self { guarantee, reason: reason.into() }
    }

    /// For a file that could not be mapped synchronously, on a file system of this kind.
    pub(crate) fn page_cache(on_tmpfs: bool) -> Self {
        let reason = if on_tmpfs {
            "it lies on a tmpfs, which is ordinary memory"
        } else {
            "its file system does not map it synchronously (MAP_SYNC), so it is not persistent memory"
        };
        Self::new(Guarantee::PageCache, reason)
    }

    /// For persistent memory that is mapped directly: `device` is that of the file, or the file
    /// itself if it is a device.
    pub(crate) fn persistent_memory(device: libc::dev_t, is_character_device: bool) -> Self {
        let kind = if is_character_device { "char" } else { "block" };
        let link = format!("/sys/dev/{kind}/{}:{}", libc::major(device), libc::minor(device));
        let domain = Path::new(&link).canonicalize().ok().and_then(|device| persistence_domain(&device));
        match domain.as_deref() {
            Some("cpu_cache") => {
                Self::new(Guarantee::DurableCache, "the system says that its persistence domain is `cpu_cache`")
            }
            Some("memory_controller") => Self::new(
                Guarantee::VolatileCache,
                "the system says that its persistence domain is `memory_controller`",
            ),
            // The least that MAP_SYNC guarantees.
            Some(other) => {
                Self::new(Guarantee::VolatileCache, format!("the system names the persistence domain `{other}`"))
            }
            None => Self::new(Guarantee::VolatileCache, "the system does not say whether caches are durable"),
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

    #[test]
    fn domains_are_known_by_name() {
        for (name, domain) in Domain::NAMES {
            assert_eq!(name.parse(), Ok(domain));
            assert_eq!(domain.to_string(), name);
        }
        assert!("eADR".parse::<Domain>().unwrap_err().to_string().contains("volatile-cache"));
    }
}
