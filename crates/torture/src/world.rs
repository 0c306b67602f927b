//! The devices of a database in a crash run: a disk; if its logs end in rings in persistent memory,
//! a memory for each; a memory for its page tier; or a memory for its heap. They share their power.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survivors};
use duramen::{
    Barriers, BatchOptions, CommitMode, Error, Granularity, HeapOptions, LogDevice, NvmOptions, Options,
    PcmBasicOptions, PcmOptions, Residence, Scheme, TierOptions,
};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;
use duramen_types::{BLOCK_SIZE, PAGE_SIZE};

use crate::client::OnError;
use crate::harness::Coverage;
use duramen_test_support::Rng;

/// Where the end of the log is kept, or what there is instead of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogEnd {
    /// In segment files.
    #[default]
    Files,
    /// In a ring in persistent memory for each log, on a platform with this domain.
    Ring(Domain),
    /// In segment files, below a page tier in persistent memory on a platform with this domain.
    Tier(Domain),
    /// In a ring in which it stays, beside a page tier in persistent memory: the preset
    /// `pcm-basic`.
    PcmBasic(Domain),
    /// There is no log: pages are in a heap.
    Heap(HeapKind),
    /// There is no log: changed pages are in persistent memory above the data file.
    Pcm(PcmKind),
}

/// What changed pages are on, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PcmKind {
    /// The platform's domain.
    pub domain: Domain,
    /// The protocol of a commit.
    pub barriers: Barriers,
    /// Whether there is so little memory that pages go on to the data file soon.
    pub is_small: bool,
    /// What a transaction stores at its end.
    pub granularity: Granularity,
}

impl PcmKind {
    fn bytes(self) -> u64 {
        if self.is_small { SMALL_PCM_BYTES } else { PCM_BYTES }
    }
}

impl fmt::Display for PcmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_small { "pcm-small-" } else { "pcm-" })?;
        if self.granularity != Granularity::default() {
            write!(f, "{}-", self.granularity)?;
        }
        if self.barriers != Barriers::default() {
            write!(f, "{}-", self.barriers)?;
        }
        write!(f, "{}", self.domain)
    }
}

/// What a heap is on, and how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapKind {
    /// The platform's domain.
    pub domain: Domain,
    /// The protocol of a change, or of a batch.
    pub barriers: Barriers,
    /// Where pages are read.
    pub residence: Residence,
    /// Whether changes go to the heap in batches, not in place.
    pub has_batches: bool,
}

impl fmt::Display for HeapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_batches { "batches-" } else { "heap-" })?;
        if self.barriers != Barriers::default() {
            write!(f, "{}-", self.barriers)?;
        }
        if self.residence != Residence::default() {
            write!(f, "{}-", self.residence)?;
        }
        write!(f, "{}", self.domain)
    }
}

impl LogEnd {
    /// All there are.
    pub const ALL: [Self; 35] = {
        let mut all = [Self::Files; 35];
        (all[1], all[2]) = (Self::RINGS[0], Self::RINGS[1]);
        (all[3], all[4], all[5], all[6]) = (Self::TIERS[0], Self::TIERS[1], Self::TIERS[2], Self::TIERS[3]);
        let mut heap = 0;
        while heap < Self::HEAPS.len() {
            all[7 + heap] = Self::HEAPS[heap];
            heap += 1;
        }
        while heap < Self::HEAPS.len() + Self::BATCHES.len() {
            all[7 + heap] = Self::BATCHES[heap - Self::HEAPS.len()];
            heap += 1;
        }
        let mut pcm = 0;
        while pcm < Self::PCMS.len() {
            all[7 + heap + pcm] = Self::PCMS[pcm];
            pcm += 1;
        }
        all
    };

    /// Those with a page tier in persistent memory.
    pub const TIERS: [Self; 4] = [
        Self::Tier(Domain::DurableCache),
        Self::Tier(Domain::VolatileCache),
        Self::PcmBasic(Domain::DurableCache),
        Self::PcmBasic(Domain::VolatileCache),
    ];

    /// Those of a log in persistent memory.
    pub const RINGS: [Self; 2] = [Self::Ring(Domain::DurableCache), Self::Ring(Domain::VolatileCache)];

    /// Those of in-place updates: each use of a heap, in both domains.
    pub const HEAPS: [Self; 8] = {
        let mut heaps = [Self::Files; 8];
        let mut number = 0;
        while number < heaps.len() {
            let domain = [Domain::DurableCache, Domain::VolatileCache][number % 2];
            let barriers = [Barriers::Fewest, Barriers::Paper][number / 2 % 2];
            let residence = [Residence::Cached, Residence::Direct][number / 4];
            heaps[number] = Self::Heap(HeapKind { domain, barriers, residence, has_batches: false });
            number += 1;
        }
        heaps
    };

    /// Returns a random one in persistent memory: as often one without a log as a ring, with or
    /// without a tier.
    pub fn in_memory(rng: &mut Rng) -> Self {
        let end = *rng.pick(&[Self::RINGS[0], Self::RINGS[1], Self::HEAPS[0], Self::HEAPS[1]]);
        if let Self::Ring(domain) = end {
            // As below.
            return *rng.clone().pick(&[end, end, Self::Tier(domain), Self::PcmBasic(domain)]);
        }
        let Self::Heap(HeapKind { domain, .. }) = end else { return end };
        // Which scheme it is has a generator of its own, so the other random choices do not depend
        // on it.
        let of_domain = |end: &Self| match end {
            Self::Heap(kind) => kind.domain == domain,
            Self::Pcm(kind) => kind.domain == domain,
            _ => false,
        };
        let all = Self::HEAPS.into_iter().chain(Self::BATCHES).chain(Self::PCMS);
        let kinds: Vec<Self> = all.filter(of_domain).collect();
        *rng.clone().pick(&kinds)
    }

    /// Those of batches.
    pub const BATCHES: [Self; 4] = {
        let mut all = [Self::Files; 4];
        let mut number = 0;
        while number < all.len() {
            let domain = [Domain::DurableCache, Domain::VolatileCache][number % 2];
            let barriers = [Barriers::Fewest, Barriers::Paper][number / 2];
            let residence = Residence::Cached;
            all[number] = Self::Heap(HeapKind { domain, barriers, residence, has_batches: true });
            number += 1;
        }
        all
    };

    /// Those of PCMLogging.
    pub const PCMS: [Self; 16] = {
        let mut all = [Self::Files; 16];
        let mut number = 0;
        while number < all.len() {
            let domain = [Domain::DurableCache, Domain::VolatileCache][number % 2];
            let barriers = [Barriers::Fewest, Barriers::Paper][number / 2 % 2];
            let granularity = [Granularity::Page, Granularity::Tuple][number / 8];
            all[number] = Self::Pcm(PcmKind { domain, barriers, is_small: number / 4 % 2 == 1, granularity });
            number += 1;
        }
        all
    };

    /// Those of a heap, with the fewest barriers.
    pub const LOGLESS: [Self; 4] = [Self::HEAPS[0], Self::HEAPS[1], Self::BATCHES[0], Self::BATCHES[1]];

    /// Returns the same for a log without a database.
    pub fn of_log(self) -> Self {
        match self {
            Self::Heap(HeapKind { domain, .. }) | Self::Pcm(PcmKind { domain, .. }) => Self::Ring(domain),
            Self::Tier(domain) | Self::PcmBasic(domain) => Self::Ring(domain),
            Self::Files | Self::Ring(_) => self,
        }
    }

    /// Returns the option, after a blank, with which a command repeats a run; nothing for files.
    pub fn argument(self) -> String {
        if self == Self::Files { String::new() } else { format!(" --log {self}") }
    }
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("file"),
            Self::Ring(domain) => write!(f, "{domain}"),
            Self::Tier(domain) => write!(f, "tier-{domain}"),
            Self::PcmBasic(domain) => write!(f, "pcm-basic-{domain}"),
            Self::Heap(kind) => write!(f, "{kind}"),
            Self::Pcm(kind) => write!(f, "{kind}"),
        }
    }
}

impl FromStr for LogEnd {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|end| end.to_string() == name);
        known.ok_or_else(|| format!("`{name}` is not one of {}", Self::ALL.map(|end| end.to_string()).join(", ")))
    }
}

/// What each device of a world has done, in the order in which [`World::crash_at`] numbers the
/// devices.
#[derive(Clone, Debug)]
pub struct Operations(Vec<DeviceOperations>);

#[derive(Clone, Debug)]
struct DeviceOperations {
    count: u64,
    /// Which of them were fences of a memory.
    fences: Vec<u64>,
}

impl Operations {
    /// Returns a number above those of all operations.
    pub fn end(&self) -> u64 {
        self.0.len() as u64 * self.0.iter().map(|device| device.count).max().unwrap_or(0)
    }

    /// Returns the chosen numbers: all in order, or a sample in random order, with as many of each
    /// device, if it has done so many. In a sample of several, up to half of those of a memory are
    /// fences.
    pub fn choose(&self, coverage: Coverage, rng: &mut Rng) -> Vec<u64> {
        let devices = self.0.len();
        let of_each = match coverage {
            Coverage::All => Coverage::All,
            Coverage::Sample(wanted) => Coverage::Sample(wanted.div_ceil(devices)),
        };
        let of_device = |(device, operations): (usize, &DeviceOperations)| {
            let count = usize::try_from(operations.count).expect("runs are short");
            let mut chosen = of_each.choose(count, rng);
            if let Coverage::Sample(wanted) = of_each
                && wanted < count
            {
                let fences = Coverage::Sample(wanted / 2).choose(operations.fences.len(), rng);
                chosen.truncate(wanted - fences.len());
                chosen.extend(fences.into_iter().map(|at| operations.fences[at] as usize));
                chosen.sort_unstable();
                chosen.dedup();
            }
            chosen.into_iter().map(move |operation| (operation * devices + device) as u64)
        };
        let mut all: Vec<u64> = self.0.iter().enumerate().flat_map(of_device).collect();
        match coverage {
            Coverage::All => all.sort_unstable(),
            Coverage::Sample(wanted) => {
                rng.shuffle(&mut all);
                all.truncate(wanted);
            }
        }
        all
    }
}

/// A disk, and memories with the same power.
#[derive(Clone)]
pub struct World {
    /// The disk.
    pub disk: SimDisk,
    /// For each log, if they end in rings; or that of the heap, or of changed pages; or that of the
    /// tier, perhaps with one for the log.
    memories: Vec<SimMemory>,
    end: LogEnd,
}

/// Bytes of the memory for changed pages: space for all pages of a script, and for the transactions
/// of one that has long ones.
const PCM_BYTES: u64 = 6 << 20;

/// The same where pages go on to the data file.
const SMALL_PCM_BYTES: u64 = (4 << 20) + (256 << 10);

/// Pages of a tier in memory.
const TIER_PAGES: usize = 80;

/// The same for `pcm-basic`, whose log has at most nine tenths of the memory.
const PCM_BASIC_PAGES: usize = 140;

/// Bytes of the ring of `pcm-basic`: some scripts have long transactions.
const STAYING_RING: u64 = 8 << 20;

/// Bytes of a heap: images of it are copied often.
const HEAP_BYTES: u64 = 8 << 20;

/// Bytes of its journals: some scripts have long transactions, and some have nineteen at a time.
const JOURNAL_BYTES: u64 = 4 << 20;

/// Batches that end often: scripts have short transactions. Their log makes the heap longer.
const BATCHES: BatchOptions =
    BatchOptions { period: Duration::from_micros(300), drain: Duration::from_micros(30), log_bytes: Some(1 << 20) };

/// Bytes of a region before the ring.
const HEADER_BYTES: u64 = 4096;

struct DiskPower(SimDisk);

impl Power for DiskPower {
    fn is_on(&self) -> bool {
        self.0.crashed_in().is_none()
    }

    fn cut(&self) {
        self.0.crash();
    }
}

fn power_of(disk: &SimDisk) -> Option<Arc<dyn Power>> {
    Some(Arc::new(DiskPower(disk.clone())))
}

impl World {
    /// Returns a world on this disk, for a database with these options.
    pub fn new(disk: SimDisk, end: LogEnd, options: &Options) -> Self {
        Self::with_rings(disk, end, options.logs, options.log_buffer_bytes)
    }

    /// Returns a world on this disk, for so many logs, with rings of so many bytes if they are to
    /// have any.
    pub fn with_rings(disk: SimDisk, end: LogEnd, logs: u16, ring_bytes: usize) -> Self {
        let bytes = HEADER_BYTES + ring_bytes as u64;
        let memories = match end {
            LogEnd::Files => Vec::new(),
            LogEnd::Ring(domain) => (0..logs).map(|_| SimMemory::with_power(bytes, domain, power_of(&disk))).collect(),
            LogEnd::Tier(domain) => vec![SimMemory::with_power(tier_bytes(TIER_PAGES), domain, power_of(&disk))],
            LogEnd::PcmBasic(domain) => [tier_bytes(PCM_BASIC_PAGES), HEADER_BYTES + STAYING_RING]
                .map(|bytes| SimMemory::with_power(bytes, domain, power_of(&disk)))
                .to_vec(),
            LogEnd::Heap(kind) => {
                let log = BATCHES.log_bytes.filter(|_| kind.has_batches).unwrap_or(0);
                vec![SimMemory::with_power(HEAP_BYTES + log, kind.domain, power_of(&disk))]
            }
            LogEnd::Pcm(kind) => vec![SimMemory::with_power(kind.bytes(), kind.domain, power_of(&disk))],
        };
        Self { disk, memories, end }
    }

    /// Returns the rings and the bytes of each, if there are any.
    pub fn rings(&self) -> Option<(LogDevice, usize)> {
        if !matches!(self.end, LogEnd::Ring(_)) {
            return None;
        }
        let mut sources = self.memories.iter().map(|memory| Source::Simulated(memory.clone()));
        let (first, source) = (self.memories.first()?, sources.next()?);
        let ring = NvmOptions { further: sources.collect(), ..NvmOptions::new(source, first.domain()) };
        Some((LogDevice::Nvm(ring), (first.len() - HEADER_BYTES) as usize))
    }

    /// What a script does about an error before the power goes off. A small memory refuses a
    /// transaction that changes more pages than it holds, and none after that.
    pub fn on_error(&self, error: &Error) -> OnError {
        match (self.end, error) {
            (LogEnd::Pcm(kind), Error::Full { .. }) if kind.is_small => OnError::GiveUpTransaction,
            _ => OnError::Stop,
        }
    }

    /// These options, with the log's end where it is here.
    pub fn options(&self, options: &Options) -> Options {
        match (self.end, &*self.memories) {
            (LogEnd::Heap(kind), [heap]) => in_heap(options, heap, kind),
            (LogEnd::Pcm(kind), [pages]) => in_pcm(options, pages, kind),
            (LogEnd::Tier(domain), [memory]) => {
                let tier = TierOptions::in_memory(Source::Simulated(memory.clone()), domain, memory.len());
                Options { page_tier: Some(tier), ..options.clone() }
            }
            (LogEnd::PcmBasic(domain), [pages, log]) => in_pcm_basic(options, pages, log, domain),
            _ => match self.rings() {
                None => options.clone(),
                // A ring in use keeps its size.
                Some((log_device, log_buffer_bytes)) => Options { log_device, log_buffer_bytes, ..options.clone() },
            },
        }
    }

    /// Returns whether the database has persistent memory instead of a log.
    pub fn has_heap(&self) -> bool {
        matches!(self.end, LogEnd::Heap(_) | LogEnd::Pcm(_))
    }

    /// Returns whether the power is off, so that answers no longer count. Persistent memory does
    /// not report it.
    pub fn is_unheard(&self) -> bool {
        !self.memories.is_empty() && self.disk.crashed_in().is_some()
    }

    /// Returns the number of rings.
    pub fn ring_count(&self) -> usize {
        self.memories.len()
    }

    /// Returns a copy in which each ring number `to` is as ring number `from` of another world was,
    /// if both worlds have them.
    pub fn with_rings_of(&self, from: &[(usize, &World, usize)]) -> Self {
        let mut copy = self.crash_image(&CrashChoice::Everything);
        let power = power_of(&copy.disk);
        for &(to, other, number) in from {
            if let (Some(ring), Some(source)) = (copy.memories.get_mut(to), other.memories.get(number)) {
                *ring = source.crash_image(Survivors::Everything, power.clone());
            }
        }
        copy
    }

    fn devices(&self) -> u64 {
        self.memories.len() as u64 + 1
    }

    /// Returns the operations so far.
    pub fn operations(&self) -> Operations {
        let of_memory = |memory: &SimMemory| DeviceOperations { count: memory.operations(), fences: memory.fences() };
        let of_disk = DeviceOperations { count: self.disk.operations(), fences: Vec::new() };
        Operations(self.memories.iter().map(of_memory).chain([of_disk]).collect())
    }

    /// Turns the power off at an operation. Where there are memories, the operations of all devices
    /// are numbered in turn, those of the memories first: with one, even numbers are its
    /// operations, and odd ones are the disk's.
    pub fn crash_at(&self, operation: u64) {
        let (at, device) = (operation / self.devices(), operation % self.devices());
        match self.memories.get(device as usize) {
            Some(memory) => memory.crash_at(at),
            None => self.disk.crash_at(at),
        }
    }

    /// Turns the power off after so many operations of the disk, or of a memory, which has more of
    /// them. A database in a heap rarely uses the disk.
    pub fn crash_after(&self, operations: u64, rng: &mut Rng) {
        let device = match self.end {
            LogEnd::Heap(_) => usize::from(!rng.percent(10)),
            _ if self.memories.is_empty() => 0,
            _ => rng.within(0..self.memories.len() + 1),
        };
        match device.checked_sub(1).map(|memory| &self.memories[memory]) {
            None => self.disk.crash_at(self.disk.operations() + operations),
            Some(memory) => memory.crash_at(memory.operations() + 10 * operations),
        }
    }

    /// Turns the power off at one of the next operations.
    pub fn crash_soon(&self, rng: &mut Rng) {
        let soon = rng.within(0..120) as u64;
        let of_disk = if matches!(self.end, LogEnd::Heap(_)) { 10 } else { 50 };
        match &*self.memories {
            [] => {}
            [memory] if !rng.percent(of_disk) => return memory.crash_at(memory.operations() + 10 * soon),
            [_] => {}
            several => {
                let device = rng.within(0..several.len() + 1);
                if let Some(memory) = several.get(device) {
                    return memory.crash_at(memory.operations() + 10 * soon);
                }
            }
        }
        self.disk.crash_at(self.disk.operations() + soon);
    }

    /// Returns the number of independent changes that a crash now would lose or keep.
    pub fn unsure(&self) -> usize {
        self.disk.unsynced() + self.memories.iter().map(SimMemory::unsure).sum::<usize>()
    }

    /// Returns what a power cut leaves.
    pub fn crash_image(&self, choice: &CrashChoice) -> Self {
        let disk = self.disk.crash_image(choice);
        let mut before = self.disk.unsynced() as u32;
        let image = |(number, memory): (usize, &SimMemory)| {
            let survivors = match choice {
                CrashChoice::Nothing => Survivors::Nothing,
                CrashChoice::Everything => Survivors::Everything,
                CrashChoice::Subset(bits) => Survivors::Nth(bits.checked_shr(before).unwrap_or(0)),
                CrashChoice::Random(seed) => Survivors::Random(seed.wrapping_add(number as u64)),
            };
            before = before.saturating_add(memory.unsure() as u32);
            memory.crash_image(survivors, power_of(&disk))
        };
        let memories = self.memories.iter().enumerate().map(image).collect();
        Self { disk, memories, end: self.end }
    }
}

fn tier_bytes(pages: usize) -> u64 {
    (BLOCK_SIZE + pages * PAGE_SIZE) as u64
}

/// Returns these options for the preset `pcm-basic`, without those that it decides.
fn in_pcm_basic(options: &Options, pages: &SimMemory, log: &SimMemory, domain: Domain) -> Options {
    let usual = Options::default();
    let (bytes, log_source) = (pages.len() + log.len(), Some(Source::Simulated(log.clone())));
    let log_share = (log.len() * 100).div_ceil(bytes) as u8;
    let pcm = PcmBasicOptions::new(Source::Simulated(pages.clone()), bytes, domain);
    Options {
        scheme: Scheme::PcmBasic(PcmBasicOptions { log_source, log_share, ..pcm }),
        logs: usual.logs,
        log_partition: usual.log_partition,
        log_device: usual.log_device,
        log_buffer_bytes: usual.log_buffer_bytes,
        log_segment_bytes: usual.log_segment_bytes,
        log_max_bytes: usual.log_max_bytes,
        archive: None,
        page_tier: None,
        ..options.clone()
    }
}

/// Returns these options for a database in a heap.
fn in_heap(options: &Options, heap: &SimMemory, kind: HeapKind) -> Options {
    let usual = Options::default();
    let source = Source::Simulated(heap.clone());
    let heap = HeapOptions {
        journal_bytes: Some(JOURNAL_BYTES),
        barriers: kind.barriers,
        residence: kind.residence,
        ..HeapOptions::new(source, heap.len(), kind.domain)
    };
    let is_cached = kind.residence == Residence::Cached;
    let (scheme, commit) = match options.commit {
        commit if !kind.has_batches => (Scheme::InPlace(heap), commit),
        CommitMode::Sync => (Scheme::NvramGroupCommit(heap, BATCHES), CommitMode::Elr),
        commit => (Scheme::NvramGroupCommit(heap, BATCHES), commit),
    };
    let pool_bytes = if is_cached { options.pool_bytes } else { usual.pool_bytes };
    Options { scheme, commit, pool_bytes, ..without_log(options) }
}

/// Returns these options for a database with changed pages in persistent memory.
fn in_pcm(options: &Options, memory: &SimMemory, kind: PcmKind) -> Options {
    let source = Source::Simulated(memory.clone());
    let (barriers, granularity) = (kind.barriers, kind.granularity);
    let pcm = PcmOptions { barriers, granularity, ..PcmOptions::new(source, memory.len(), kind.domain) };
    Options { scheme: Scheme::PcmLogging(pcm), ..without_log(options) }
}

/// Returns these options without those that only a log has.
fn without_log(options: &Options) -> Options {
    let usual = Options::default();
    Options {
        logs: usual.logs,
        log_partition: usual.log_partition,
        log_insert: usual.log_insert,
        log_device: usual.log_device,
        log_buffer_bytes: usual.log_buffer_bytes,
        log_segment_bytes: usual.log_segment_bytes,
        log_max_bytes: usual.log_max_bytes,
        log_array_slots: usual.log_array_slots,
        log_arrays: usual.log_arrays,
        log_slot_pool: usual.log_slot_pool,
        group_commit_transactions: usual.group_commit_transactions,
        group_commit_bytes: usual.group_commit_bytes,
        group_commit_time: usual.group_commit_time,
        redo_memory_bytes: None,
        checkpoint_bytes: usual.checkpoint_bytes,
        archive: None,
        cleaner_pages_per_second: None,
        dirty_pages: None,
        page_tier: None,
        recovery_threads: None,
        instant_recovery: false,
        ..options.clone()
    }
}
