//! What a tier lies on in tests: a file, or simulated persistent memory whose power goes off
//! together with that of the disk with the data file.

use duramen_io::{AlignedBuf, CrashChoice, Disk, File, OpenMode, SimDisk};
use duramen_pmem::{Domain, Mode, Power, Region, RegionOptions, SimMemory, Source, Survivors};
use duramen_sync::Arc;
use duramen_types::{BLOCK_SIZE, Gsn, PAGE_SIZE, PageId, TableId};

use super::super::*;
use crate::page::{self, DatabaseTag, Lines, PageMut, PageType};
use crate::pool::batch::Copied;
use crate::pool::{FoundArea, Versions};

/// What a tier lies on; the domain of its memory, if it is in memory.
pub(super) type OnWhat = Option<Domain>;

/// Everything that a tier can lie on.
pub(super) const MEDIA: [OnWhat; 3] = [None, Some(Domain::DurableCache), Some(Domain::VolatileCache)];

/// Slots that the memory has room for.
const MOST_SLOTS: u64 = 40;

/// A log that hardens at once, and ends here.
#[derive(Debug)]
pub(super) struct NoLog(Gsn);

impl NoLog {
    /// Returns the rule of a log whose end is far.
    pub(super) fn rule() -> Arc<dyn WalRule> {
        Arc::new(Self(Gsn::MAX))
    }
}

impl WalRule for NoLog {
    fn harden(&self, _: Gsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn end(&self) -> Gsn {
        self.0
    }
}

struct DiskPower(SimDisk);

impl Power for DiskPower {
    fn is_on(&self) -> bool {
        self.0.crashed_in().is_none()
    }

    fn cut(&self) {
        self.0.crash();
    }
}

/// A disk, and perhaps a memory.
pub(super) struct Ground {
    pub(super) disk: SimDisk,
    memory: Option<SimMemory>,
    /// Whether there is no tier in the memory yet.
    is_new: std::cell::Cell<bool>,
    /// Pages that leave together.
    pub(super) run: std::cell::Cell<u32>,
    /// Where the log ends when a tier is opened.
    pub(super) log_end: std::cell::RefCell<Gsn>,
}

impl Ground {
    pub(super) fn new(seed: u64, on: OnWhat) -> Self {
        let disk = SimDisk::new(seed);
        let bytes = BLOCK_SIZE as u64 + MOST_SLOTS * PAGE_SIZE as u64;
        let power = || Some(Arc::new(DiskPower(disk.clone())) as Arc<dyn Power>);
        let memory = on.map(|domain| SimMemory::with_power(bytes, domain, power()));
        Self { disk, memory, is_new: true.into(), run: 1.into(), log_end: Gsn::MAX.into() }
    }

    pub(super) fn open(&self, name: &str) -> Arc<dyn File> {
        let mode = if self.disk.exists(name).unwrap() { OpenMode::Existing } else { OpenMode::CreateNew };
        self.disk.open(name, mode).unwrap()
    }

    /// Opens what the tier lies on.
    pub(super) fn medium(&self) -> Arc<dyn Medium> {
        let Some(memory) = &self.memory else { return Arc::new(self.open("tier")) };
        let options = RegionOptions { mode: Mode::Open, domain: memory.domain(), ..RegionOptions::new(memory.len()) };
        Arc::new(Region::open(&Source::Simulated(memory.clone()), &options).unwrap())
    }

    /// Opens a tier, which is made if there is none.
    pub(super) fn tier(&self, slots: u32) -> TieredPages {
        let is_new = self.is_new.replace(false);
        let medium = self.medium();
        let slots = if is_new {
            Slots::create(medium, slots, Stamp::default()).unwrap()
        } else {
            Slots::open(medium).unwrap().unwrap().0
        };
        self.above_file(FoundTier::read(slots, Some(2)).unwrap())
    }

    pub(super) fn above_file(&self, tier: FoundTier) -> TieredPages {
        let data = self.open("data");
        data.allocate(401 * PAGE_SIZE as u64).unwrap();
        let versions = Versions::open(self.open("versions"), [3; 16], data.len().unwrap()).unwrap();
        let tag = DatabaseTag::of(&[3; 16]);
        let file = FilePages::new(
            data,
            tag,
            Some(self.open("doublewrite")),
            Some(versions),
            Arc::new(NoLog(*self.log_end.borrow())),
        )
        .unwrap();
        self.disk.sync_directory("").unwrap();
        TieredPages::new(file, tier, self.run.get()).unwrap()
    }

    /// Operations so far, those of the memory and of the disk in turn.
    pub(super) fn operations(&self) -> u64 {
        match &self.memory {
            None => self.disk.operations(),
            Some(memory) => 2 * self.disk.operations().max(memory.operations()),
        }
    }

    /// Turns the power off at an operation.
    pub(super) fn crash_at(&self, operation: u64) {
        match &self.memory {
            None => self.disk.crash_at(operation),
            Some(_) if operation % 2 == 1 => self.disk.crash_at(operation / 2),
            Some(memory) => memory.crash_at(operation / 2),
        }
    }

    /// Does `work` until the power goes off; returns whether it did. A memory does not tell.
    pub(super) fn is_cut_off(&self, work: impl FnOnce()) -> bool {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err();
        panicked || self.is_off()
    }

    pub(super) fn is_off(&self) -> bool {
        self.disk.crashed_in().is_some() || self.memory.as_ref().is_some_and(SimMemory::is_off)
    }

    /// Returns what a power cut leaves, with torn pages of the data file mended.
    pub(super) fn crash_image(&self, choice: &CrashChoice) -> Self {
        let disk = self.disk.crash_image(choice);
        let survivors = match choice {
            CrashChoice::Nothing => Survivors::Nothing,
            CrashChoice::Everything => Survivors::Everything,
            CrashChoice::Subset(bits) => Survivors::Nth(*bits),
            CrashChoice::Random(seed) => Survivors::Random(*seed),
        };
        let power = || Some(Arc::new(DiskPower(disk.clone())) as Arc<dyn Power>);
        let memory = self.memory.as_ref().map(|memory| memory.crash_image(survivors, power()));
        let image = Self { disk, memory, is_new: false.into(), run: self.run.clone(), log_end: self.log_end.clone() };
        if let Some(area) = FoundArea::read(&*image.open("doublewrite")).unwrap() {
            area.put_back(&*image.open("data"), &*image.open("doublewrite")).unwrap();
        }
        image
    }
}

/// Writes these pages in these versions.
pub(super) fn write(tier: &TieredPages, pages: impl IntoIterator<Item = (u64, u64)>) {
    try_write(tier, pages).unwrap();
}

pub(super) fn try_write(tier: &TieredPages, pages: impl IntoIterator<Item = (u64, u64)>) -> Result<(), PoolError> {
    let mut batch = Batch::new();
    for (page, gsn) in pages {
        let (mut bytes, mut lines) = (vec![0; PAGE_SIZE], Lines::NONE);
        let mut contents = PageMut::new(&mut bytes, &mut lines);
        page::init_header(&mut contents, PageType::Leaf, 0, PageId::new(page), TableId::ZERO);
        page::set_gsn(&mut contents, Gsn::new(gsn));
        // What has changed since the tier had the page says nothing about the data file.
        batch.push(Copied { id: PageId::new(page), lines: Lines::NONE, anew: true, page: &bytes });
    }
    tier.write(&mut batch)
}

pub(super) fn version(tier: &TieredPages, page: u64) -> u64 {
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    tier.read(PageId::new(page), false, &mut bytes).unwrap();
    page::gsn(&bytes).get()
}

/// Flips a bit of the page in the data file.
pub(super) fn decay_in_file(ground: &Ground, page: u64) {
    ground.disk.flip_bit("data", page * PAGE_SIZE as u64 + 4000, 3);
}

/// Flips a bit of the slot that holds the page.
pub(super) fn decay(tier: &TieredPages, ground: &Ground, page: u64) {
    let slot = tier.slot(PageId::new(page)).unwrap();
    if ground.memory.is_none() {
        return ground.disk.flip_bit("tier", tier.slots.offset(slot) + 4000, 3);
    }
    let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
    tier.slots.read(&mut [(slot, &mut bytes)]).unwrap();
    bytes[4000] ^= 8;
    tier.slots.write([(slot, &bytes[..])].into_iter()).unwrap();
    tier.slots.sync().unwrap();
}
