//! Options for a page tier, and for the preset that has one in persistent memory.

use std::path::PathBuf;

use duramen_pmem::{Domain, Guarantee, Placement, Source, Survive, Timing};
use duramen_types::{BLOCK_SIZE, PAGE_SIZE};
use duramen_wal::{LogDevice, NvmOptions};

use super::{Options, Scheme};
use crate::error::{Error, Result};

/// A page tier ([`crate::Options::page_tier`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierOptions {
    /// What it lies on. The database remembers it.
    pub place: TierPlace,
    /// Its size in bytes. It may be larger at a later opening, but not smaller.
    pub bytes: u64,
}

/// What a page tier lies on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TierPlace {
    /// A file in the database's own directory.
    Home,
    /// A file in this directory, an absolute path, on a medium that is faster than the database's.
    Directory(PathBuf),
    /// A region in persistent memory.
    Memory(TierMemory),
}

/// The persistent memory of a page tier. It belongs to the database as its files do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierMemory {
    /// The file or device, with an absolute path. A file that does not exist is created, and one
    /// that exists must contain only zeros, or a tier that has been drained.
    pub source: Source,
    /// The persistence domain on which the tier relies.
    pub domain: Domain,
    /// What its pages must survive: if the platform cannot guarantee this, the database is not
    /// opened. By default a power cut.
    pub survive: Survive,
    /// The platform's guarantee, stated by the user for platforms where it cannot be detected.
    pub stated: Option<Guarantee>,
    /// The memory node on which the tier should lie.
    pub placement: Placement,
    /// The latencies of a modelled device.
    pub timing: Timing,
}

impl TierOptions {
    /// The smallest tier.
    pub const LEAST_BYTES: u64 = (BLOCK_SIZE + 16 * PAGE_SIZE) as u64;

    /// Returns options for a file of so many bytes in the database's own directory.
    ///
    /// ```
    /// # use duramen::{Db, Options, TierOptions};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// let page_tier = Some(TierOptions::at_home(1 << 20));
    /// Db::open(home.path(), Options { page_tier, ..Options::small() })?.close()?;
    ///
    /// // The database remembers its tier.
    /// let db = Db::open(home.path(), Options::small())?;
    /// assert_eq!(db.metrics().page_tier.unwrap().slots, 127);
    /// # db.close()
    /// # }
    /// ```
    pub fn at_home(bytes: u64) -> Self {
        Self { place: TierPlace::Home, bytes }
    }

    /// Returns options for a file of so many bytes in another directory.
    ///
    /// The path must be absolute:
    ///
    /// ```
    /// # use duramen::{Db, Error, Options, TierOptions};
    /// # fn main() -> duramen::Result<()> {
    /// # let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    /// let page_tier = Some(TierOptions::in_directory("fast", 1 << 20));
    /// let refused = Db::open(home.path(), Options { page_tier, ..Options::small() });
    /// assert!(matches!(refused, Err(Error::InvalidOption { option: "page_tier", .. })));
    ///
    /// let page_tier = Some(TierOptions::in_directory(fast.path(), 1 << 20));
    /// let db = Db::open(home.path(), Options { page_tier, ..Options::small() })?;
    /// assert_eq!(db.metrics().page_tier.unwrap().slots, 127);
    /// # db.close()
    /// # }
    /// ```
    pub fn in_directory(directory: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { place: TierPlace::Directory(directory.into()), bytes }
    }

    /// Returns options for so many bytes of persistent memory, which survive power cuts, on a
    /// platform with `domain`.
    ///
    /// This example has simulated memory; a program names a file in persistent memory:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use duramen::pmem::{Domain, SimMemory, Source};
    /// # use duramen::{Db, Options, TierOptions};
    /// # fn main() -> duramen::Result<()> {
    /// # let disk = Arc::new(duramen_io::SimDisk::new(1));
    /// let memory = Source::Simulated(SimMemory::new(1 << 20, Domain::VolatileCache));
    /// let page_tier = Some(TierOptions::in_memory(memory, Domain::VolatileCache, 1 << 20));
    /// let db = Db::open_on(disk, Options { page_tier, ..Options::small() })?;
    /// assert_eq!(db.metrics().page_tier.unwrap().slots, 127);
    /// # db.close()
    /// # }
    /// ```
    pub fn in_memory(source: Source, domain: Domain, bytes: u64) -> Self {
        Self { place: TierPlace::Memory(TierMemory::new(source, domain)), bytes }
    }
}

impl TierMemory {
    /// Returns options for persistent memory that survives power cuts, on a platform with `domain`.
    ///
    /// ```
    /// # use duramen::pmem::{Domain, Source, Survive};
    /// # use duramen::{Db, Options, TierMemory, TierOptions, TierPlace};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let file = home.path().join("memory");
    /// let memory = TierMemory::new(Source::File(file), Domain::VolatileCache);
    /// assert_eq!(memory.survive, Survive::PowerCut);
    ///
    /// // The data in an ordinary file survives the process, but no power cut.
    /// let memory = TierMemory { survive: Survive::Process, ..memory };
    /// let page_tier = Some(TierOptions { place: TierPlace::Memory(memory), bytes: 1 << 20 });
    /// let db = Db::open(home.path().join("db"), Options { page_tier, ..Options::small() })?;
    /// assert_eq!(db.metrics().page_tier.unwrap().slots, 127);
    /// # db.close()
    /// # }
    /// ```
    pub fn new(source: Source, domain: Domain) -> Self {
        Self {
            source,
            domain,
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }
}

/// The persistent memory of [`crate::Scheme::PcmBasic`]. It belongs to the database as its files
/// do. The log has a region of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PcmBasicOptions {
    /// The file for pages, with an absolute path ([`TierMemory::source`]).
    pub source: Source,
    /// The file or device for the log; by default a file with the name of `source` followed by
    /// `-log`.
    pub log_source: Option<Source>,
    /// Bytes of both together, at least [`PcmBasicOptions::LEAST_BYTES`]. Regions that exist and
    /// are larger keep their sizes.
    pub bytes: u64,
    /// The share of the log, in percent, from 1 to 90 (default 25). The ring of the log is a power
    /// of two, the largest within its share and at least 1 MiB; the rest is for pages.
    pub log_share: u8,
    /// The persistence domain on which the database relies.
    pub domain: Domain,
    /// What pages and log must survive. By default a power cut.
    pub survive: Survive,
    /// The platform's guarantee, stated by the user for platforms where it cannot be detected.
    pub stated: Option<Guarantee>,
    /// The memory node on which the memory should lie.
    pub placement: Placement,
    /// The latencies of a modelled device.
    pub timing: Timing,
}

impl PcmBasicOptions {
    /// The least memory, in bytes.
    pub const LEAST_BYTES: u64 = 2 << 20;

    /// The smallest ring for the log, in bytes.
    pub const LEAST_RING_BYTES: u64 = 1 << 20;

    /// A log in the ring has this many segments' places, a quarter of which stay empty.
    const SEGMENTS: u64 = 16;

    /// Returns options for `bytes` bytes that survive power cuts, on a platform with `domain`.
    ///
    /// ```
    /// # use duramen::pmem::{Domain, Source, Survive};
    /// # use duramen::{Db, Options, PcmBasicOptions, Scheme};
    /// # fn main() -> duramen::Result<()> {
    /// # let home = tempfile::tempdir().unwrap();
    /// # let file = home.path().join("pcm");
    /// let pcm = PcmBasicOptions::new(Source::File(file), 2 << 20, Domain::VolatileCache);
    /// assert_eq!((pcm.survive, pcm.log_share), (Survive::PowerCut, 25));
    ///
    /// // The data in an ordinary file survives the process, but no power cut.
    /// let scheme = Scheme::PcmBasic(PcmBasicOptions { survive: Survive::Process, ..pcm });
    /// let options = Options { scheme, pool_bytes: 1 << 20, ..Options::default() };
    /// let db = Db::open(home.path().join("db"), options)?;
    /// assert!(db.metrics().page_tier.is_some());
    /// assert!(home.path().join("pcm-log").is_file()); // the log is beside the pages
    /// # db.close()
    /// # }
    /// ```
    pub fn new(source: Source, bytes: u64, domain: Domain) -> Self {
        Self {
            source,
            log_source: None,
            bytes,
            log_share: 25,
            domain,
            survive: Survive::default(),
            stated: None,
            placement: Placement::default(),
            timing: Timing::NONE,
        }
    }

    /// Returns the source of the log's region.
    pub(crate) fn log_source(&self) -> Source {
        match (&self.log_source, &self.source) {
            (Some(source), _) => source.clone(),
            (None, Source::File(path)) => {
                let mut path = path.clone().into_os_string();
                path.push("-log");
                Source::File(path.into())
            }
            (None, other) => other.clone(),
        }
    }

    /// Returns the bytes of the ring and of the tier.
    pub(crate) fn parts(&self) -> (u64, u64) {
        let share = (u128::from(self.bytes) * u128::from(self.log_share) / 100) as u64;
        let header = BLOCK_SIZE as u64;
        let planned = 1 << share.saturating_sub(header).max(Self::LEAST_RING_BYTES).ilog2();
        let ring = match len_of(&self.log_source()).and_then(|len| len.checked_sub(header)) {
            Some(len) if len.is_power_of_two() && len >= Self::LEAST_RING_BYTES => len,
            _ => planned,
        };
        let pages = self.bytes.saturating_sub(planned + header);
        (ring, pages.max(len_of(&self.source).unwrap_or(0)))
    }

    /// Returns what the preset decides about log and tier.
    pub(crate) fn decide(&self) -> Decided {
        let (ring, bytes) = self.parts();
        let Self { domain, survive, stated, placement, timing, .. } = *self;
        let nvm = NvmOptions::new(self.log_source(), domain);
        let memory = TierMemory { source: self.source.clone(), domain, survive, stated, placement, timing };
        Decided {
            log_device: LogDevice::Nvm(NvmOptions { survive, stated, placement, timing, stays: true, ..nvm }),
            log_buffer_bytes: ring as usize,
            log_segment_bytes: ring / Self::SEGMENTS,
            log_max_bytes: NvmOptions::most_bytes(ring as usize),
            page_tier: TierOptions { place: TierPlace::Memory(memory), bytes },
        }
    }
}

impl Options {
    /// Returns the options that a preset stands for; other options as they are.
    pub(crate) fn resolved(self) -> Self {
        match &self.scheme {
            Scheme::PcmBasic(pcm) => self.decided_by(pcm),
            _ => self,
        }
    }

    fn decided_by(&self, pcm: &PcmBasicOptions) -> Self {
        let Decided { log_device, log_buffer_bytes, log_segment_bytes, log_max_bytes, page_tier } = pcm.decide();
        Self {
            log_device,
            log_buffer_bytes,
            log_segment_bytes,
            log_max_bytes,
            checkpoint_bytes: self.checkpoint_bytes.map(|bytes| bytes.min(log_max_bytes / 2)),
            page_tier: Some(page_tier),
            ..self.clone()
        }
    }

    /// Checks that no option asks for what the preset decides, or does not have.
    pub(super) fn validate_pcm_basic(&self, pcm: &PcmBasicOptions) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        let usual = Self::default();
        if pcm.bytes < PcmBasicOptions::LEAST_BYTES || pcm.bytes > 1 << 46 {
            return wrong("scheme", "`pcm-basic` needs from 2 MiB to 64 TiB of persistent memory");
        }
        if !(1..=90).contains(&pcm.log_share) {
            return wrong("log_share", "must be at least 1 and at most 90 percent");
        }
        if pcm.parts().1 < TierOptions::LEAST_BYTES {
            return wrong("log_share", "leaves no room for pages: lower it, or give more bytes");
        }
        for source in [&pcm.source, &pcm.log_source()] {
            match source {
                Source::Anonymous => {
                    return wrong("scheme", "anonymous memory cannot be opened again: name a file for `pcm-basic`");
                }
                Source::File(path) if path.as_os_str().is_empty() => {
                    return wrong("scheme", "the path of the memory is empty; name a file");
                }
                _ => {}
            }
        }
        if pcm.source == pcm.log_source() {
            return wrong("scheme", "pages and log need separate regions: name another `log_source`");
        }
        if self.logs != usual.logs || self.log_partition != usual.log_partition {
            return wrong("logs", "`pcm-basic` has one log: leave the option out");
        }
        if self.log_device != usual.log_device {
            return wrong("log_device", "the log of `pcm-basic` is in its persistent memory: leave the option out");
        }
        let sizes = |options: &Self| (options.log_buffer_bytes, options.log_segment_bytes, options.log_max_bytes);
        if sizes(self) != sizes(&usual) {
            return wrong("log", "the log of `pcm-basic` has the size that `log_share` gives it: leave the option out");
        }
        if self.page_tier.is_some() {
            return wrong("page_tier", "`pcm-basic` has its own page tier: leave the option out");
        }
        if self.archive.is_some() {
            return wrong("archive", "the log of `pcm-basic` stays in memory, and has no segments to archive");
        }
        self.decided_by(pcm).of_log().validate()?;
        Ok(())
    }

    /// Checks that nothing is to lie in persistent memory.
    pub(super) fn validate_no_pcm(&self) -> Result<()> {
        let wrong = |option, reason: &str| Err(Error::InvalidOption { option, reason: reason.to_owned() });
        if self.log_device != LogDevice::File {
            return wrong("log_device", "`no-pcm` has its log in files: leave the option out, or use the scheme `wal`");
        }
        if self.page_tier.is_some() || self.tier_run_pages > 1 {
            return wrong("page_tier", "`no-pcm` has its pages in the data file alone: use the scheme `wal`");
        }
        if self.logs != 1 {
            return wrong("logs", "`no-pcm` has one log: use the scheme `wal` for several");
        }
        Ok(())
    }
}

/// What a preset decides about log and tier.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    pub(crate) log_device: LogDevice,
    pub(crate) log_buffer_bytes: usize,
    pub(crate) log_segment_bytes: u64,
    pub(crate) log_max_bytes: u64,
    pub(crate) page_tier: TierOptions,
}

/// Returns the length of what exists.
fn len_of(source: &Source) -> Option<u64> {
    match source {
        Source::File(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len()),
        Source::Simulated(memory) => Some(memory.len()),
        Source::Anonymous => None,
    }
}
