//! What a database stands on in a crash run: a disk, and, if its log ends in a ring in persistent memory, that memory. They
//! have the same power.

use std::fmt;
use std::str::FromStr;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survivors};
use duramen::{LogDevice, NvmOptions, Options};
use duramen_io::{CrashChoice, SimDisk};
use duramen_sync::Arc;

use crate::rng::Rng;

/// Where the end of the log is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogEnd {
    /// In segment files.
    #[default]
    Files,
    /// In a ring in persistent memory, on a platform with this domain.
    Ring(Domain),
}

impl LogEnd {
    /// All there are.
    pub const ALL: [Self; 3] = [Self::Files, Self::Ring(Domain::DurableCache), Self::Ring(Domain::VolatileCache)];
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files => f.write_str("file"),
            Self::Ring(domain) => write!(f, "{domain}"),
        }
    }
}

impl FromStr for LogEnd {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|end| end.to_string() == name);
        known.ok_or_else(|| format!("`{name}` is none of file, durable-cache, volatile-cache"))
    }
}

/// A disk, and a memory with the same power.
#[derive(Clone)]
pub struct World {
    /// The disk.
    pub disk: SimDisk,
    memory: Option<SimMemory>,
}

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
    /// A world on this disk, for a database with these options.
    pub fn new(disk: SimDisk, end: LogEnd, options: &Options) -> Self {
        let memory = match end {
            LogEnd::Files => None,
            LogEnd::Ring(domain) => {
                let bytes = HEADER_BYTES + options.log_buffer_bytes as u64;
                Some(SimMemory::with_power(bytes, domain, power_of(&disk)))
            }
        };
        Self { disk, memory }
    }

    /// These options, with the log's end where it is here.
    pub fn options(&self, options: &Options) -> Options {
        let Some(memory) = &self.memory else { return options.clone() };
        let ring = NvmOptions::new(Source::Simulated(memory.clone()), memory.domain());
        // A ring in use keeps its size.
        let log_buffer_bytes = (memory.len() - HEADER_BYTES) as usize;
        Options { log_device: LogDevice::Nvm(ring), log_buffer_bytes, ..options.clone() }
    }

    /// Operations so far, as [`World::crash_at`] counts them.
    pub fn operations(&self) -> u64 {
        let disk = self.disk.operations();
        self.memory.as_ref().map_or(disk, |memory| 2 * disk.max(memory.operations()))
    }

    /// Turns the power off at an operation: of the disk; or, if there is memory, of that (even numbers, of twice the
    /// operation) or the disk (odd ones).
    pub fn crash_at(&self, operation: u64) {
        match &self.memory {
            None => self.disk.crash_at(operation),
            Some(memory) if operation.is_multiple_of(2) => memory.crash_at(operation / 2),
            Some(_) => self.disk.crash_at(operation / 2),
        }
    }

    /// Turns the power off at one of the next operations.
    pub fn crash_soon(&self, rng: &mut Rng) {
        let soon = rng.within(0..120) as u64;
        match &self.memory {
            Some(memory) if rng.within(0..2) == 0 => memory.crash_at(memory.operations() + 10 * soon),
            _ => self.disk.crash_at(self.disk.operations() + soon),
        }
    }

    /// Number of independent changes that a crash now would lose or keep.
    pub fn unsure(&self) -> usize {
        self.disk.unsynced() + self.memory.as_ref().map_or(0, SimMemory::unsure)
    }

    /// What a power cut leaves.
    pub fn crash_image(&self, choice: &CrashChoice) -> Self {
        let disk = self.disk.crash_image(choice);
        let memory = self.memory.as_ref().map(|memory| {
            let survivors = match choice {
                CrashChoice::Nothing => Survivors::Nothing,
                CrashChoice::Everything => Survivors::Everything,
                CrashChoice::Subset(bits) => Survivors::Nth(bits.checked_shr(self.disk.unsynced() as u32).unwrap_or(0)),
                CrashChoice::Random(seed) => Survivors::Random(*seed),
            };
            memory.crash_image(survivors, power_of(&disk))
        });
        Self { disk, memory }
    }
}
