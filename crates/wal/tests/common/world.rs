//! The devices of logs: a disk, and for logs that end in rings in persistent memory a memory for
//! each. All lose power together.

use duramen_io::{CrashChoice, SimDisk};
use duramen_pmem::{Domain, Power, SimMemory, Source, Survivors};
use duramen_sync::Arc;
use duramen_wal::{LogDevice, NvmOptions, WalOptions};

/// Bytes of each ring.
pub const RING: usize = 64 << 10;
/// Bytes of a ring's region.
pub const REGION: u64 = 4096 + RING as u64;

pub struct World {
    pub disk: SimDisk,
    /// One for each log, or none.
    pub memories: Vec<SimMemory>,
    /// Whether the log stays in its ring, which is then larger.
    pub stays: bool,
}

/// Bytes of a ring in which a log stays.
pub const LARGE_RING: usize = 256 << 10;

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
    /// Makes devices for this number of logs on a platform with `domain`; without one, for logs in
    /// files.
    pub fn new(seed: u64, domain: Option<Domain>, logs: usize) -> Self {
        let disk = SimDisk::new(seed);
        let memory = |domain| SimMemory::with_power(REGION, domain, power_of(&disk));
        let memories = domain.map_or(Vec::new(), |domain| (0..logs).map(|_| memory(domain)).collect());
        Self { disk, memories, stays: false }
    }

    /// Makes devices for one log that stays in its ring.
    pub fn staying(seed: u64, domain: Domain) -> Self {
        let disk = SimDisk::new(seed);
        let memory = SimMemory::with_power(4096 + LARGE_RING as u64, domain, power_of(&disk));
        Self { disk, memories: vec![memory], stays: true }
    }

    /// Returns the memory of the first log.
    pub fn memory(&self) -> &SimMemory {
        &self.memories[0]
    }

    /// Returns these options, with the end of the logs in the memories.
    pub fn options(&self, base: &WalOptions) -> WalOptions {
        let mut sources = self.memories.iter().map(|memory| Source::Simulated(memory.clone()));
        let Some(first) = sources.next() else { return base.clone() };
        let nvm = NvmOptions { further: sources.collect(), ..NvmOptions::new(first, self.memory().domain()) };
        if self.stays {
            let device = LogDevice::Nvm(NvmOptions { stays: true, ..nvm });
            let max_bytes = NvmOptions::most_bytes(LARGE_RING);
            return WalOptions { device, ring_bytes: LARGE_RING, max_bytes, ..base.clone() };
        }
        WalOptions { device: LogDevice::Nvm(nvm), ring_bytes: RING, ..base.clone() }
    }

    /// Returns the number of devices: the disk and the memories.
    pub fn devices(&self) -> usize {
        1 + self.memories.len()
    }

    /// Returns the number of operations of a device so far.
    pub fn operations(&self, device: usize) -> u64 {
        match device.checked_sub(1) {
            None => self.disk.operations(),
            Some(memory) => self.memories[memory].operations(),
        }
    }

    /// Turns the power off at this operation of a device.
    pub fn crash_at(&self, device: usize, operation: u64) {
        match device.checked_sub(1) {
            None => self.disk.crash_at(operation),
            Some(memory) => self.memories[memory].crash_at(operation),
        }
    }

    /// Turns the power off.
    pub fn crash(&self) {
        self.disk.crash();
        self.memories.iter().for_each(SimMemory::crash);
    }

    /// Returns whether the power is off. A ring does not report it, so acknowledgements after that
    /// do not count.
    pub fn is_off(&self) -> bool {
        self.disk.crashed_in().is_some() || self.memories.iter().any(SimMemory::is_off)
    }

    /// Returns what a power cut leaves.
    pub fn crash_image(&self, choice: &CrashChoice) -> Self {
        let disk = self.disk.crash_image(choice);
        let image = |(number, memory): (usize, &SimMemory)| {
            let survivors = match choice {
                CrashChoice::Nothing => Survivors::Nothing,
                CrashChoice::Everything => Survivors::Everything,
                CrashChoice::Subset(bits) | CrashChoice::Random(bits) => {
                    Survivors::Random(bits.wrapping_add(number as u64))
                }
            };
            memory.crash_image(survivors, power_of(&disk))
        };
        let memories = self.memories.iter().enumerate().map(image).collect();
        Self { disk, memories, stays: self.stays }
    }
}
