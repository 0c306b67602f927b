//! Whatever is done to a simulated file and whenever the power goes off: what was synced is
//! present, and every sector holds one of the values that it may hold.

use std::sync::Arc;

use duramen_io::{AlignedBuf, CrashChoice, Disk, Fault, File, OpenMode, SimDisk};
use duramen_types::{BLOCK_SIZE, SECTOR_SIZE};
use proptest::prelude::*;

const BLOCK: u64 = BLOCK_SIZE as u64;
const SECTOR: u64 = SECTOR_SIZE as u64;
const BLOCKS: u64 = 12;

#[derive(Clone, Debug)]
enum Step {
    Write { block: u64, blocks: u64 },
    WriteDurable { block: u64, blocks: u64 },
    Batch { ranges: Vec<(u64, u64)> },
    Sync,
    FailedSync,
    SetLen { sectors: u64 },
    Allocate { blocks: u64 },
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    (0..BLOCKS - 3, 1..4_u64)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => range().prop_map(|(block, blocks)| Step::Write { block, blocks }),
        3 => range().prop_map(|(block, blocks)| Step::WriteDurable { block, blocks }),
        2 => prop::collection::vec(range(), 1..4).prop_map(|ranges| Step::Batch { ranges }),
        2 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
        1 => (0..BLOCKS * BLOCK / SECTOR).prop_map(|sectors| Step::SetLen { sectors }),
        1 => (0..BLOCKS).prop_map(|blocks| Step::Allocate { blocks }),
    ]
}

/// A change to a sector that a crash may lose.
#[derive(Clone, Copy)]
enum Change {
    Write(u32),
    Cut,
}

impl Change {
    fn value(self) -> u32 {
        match self {
            Self::Write(value) => value,
            Self::Cut => 0,
        }
    }
}

#[derive(Clone, Default)]
struct SectorModel {
    seen: u32,
    durable: u32,
    pending: Vec<Change>,
}

/// The expected content of the file. Every write fills its sectors with a distinct number.
struct Model {
    sectors: Vec<SectorModel>,
    len: u64,
    durable_len: u64,
    pending_lens: Vec<u64>,
    stamp: u32,
}

impl Model {
    fn new() -> Self {
        let sectors = vec![SectorModel::default(); (BLOCKS * BLOCK / SECTOR) as usize];
        Self { sectors, len: 0, durable_len: 0, pending_lens: Vec::new(), stamp: 0 }
    }

    fn range(&mut self, block: u64, blocks: u64) -> &mut [SectorModel] {
        let per_block = BLOCK / SECTOR;
        &mut self.sectors[(block * per_block) as usize..((block + blocks) * per_block) as usize]
    }

    fn set_len(&mut self, len: u64) {
        if len != self.len {
            self.len = len;
            self.pending_lens.push(len);
        }
        for sector in &mut self.sectors[(len / SECTOR) as usize..] {
            sector.seen = 0;
            sector.pending.push(Change::Cut);
        }
    }

    fn grow(&mut self, len: u64) {
        if len > self.len {
            self.len = len;
            self.pending_lens.push(len);
        }
    }

    fn write(&mut self, block: u64, blocks: u64) -> AlignedBuf {
        self.stamp += 1;
        let stamp = self.stamp;
        for sector in self.range(block, blocks) {
            sector.seen = stamp;
            sector.pending.push(Change::Write(stamp));
        }
        self.grow((block + blocks) * BLOCK);
        stamped((blocks * BLOCK) as usize, stamp)
    }

    fn make_durable(&mut self, block: u64, blocks: u64) {
        for sector in self.range(block, blocks) {
            sector.durable = sector.seen;
            sector.pending.clear();
        }
        let end = (block + blocks) * BLOCK;
        self.durable_len = self.durable_len.max(end);
        self.pending_lens.iter_mut().for_each(|len| *len = end.max(*len));
    }

    fn sync(&mut self) {
        for sector in &mut self.sectors {
            if let Some(last) = sector.pending.last() {
                sector.durable = last.value();
            }
            sector.pending.clear();
        }
        self.durable_len = self.len;
        self.pending_lens.clear();
    }

    fn fail_sync(&mut self) {
        self.sectors.iter_mut().for_each(|sector| sector.pending.retain(|change| matches!(change, Change::Cut)));
    }

    fn check_visible(&self, file: &dyn File) {
        assert_eq!(file.len().unwrap(), self.len);
        let mut buf = AlignedBuf::zeroed(BLOCK_SIZE);
        for block in 0..self.len / BLOCK {
            file.read_at(&mut buf, block * BLOCK).unwrap();
            let sectors = &self.sectors[(block * BLOCK / SECTOR) as usize..];
            for (bytes, sector) in buf.chunks(SECTOR_SIZE).zip(sectors) {
                assert_eq!(stamp_of(bytes), sector.seen);
            }
        }
    }

    /// Checks what a crash left.
    fn check_image(&self, image: &SimDisk) {
        let bytes = image.durable_bytes("data").expect("the name is durable");
        let lens = || self.pending_lens.iter().chain([&self.durable_len]).copied();
        let len = bytes.len() as u64;
        assert!((lens().min().unwrap()..=lens().max().unwrap()).contains(&len), "length {len}");
        for (number, (bytes, sector)) in bytes.chunks(SECTOR_SIZE).zip(&self.sectors).enumerate() {
            let stamp = stamp_of(bytes);
            let possible = stamp == sector.durable || sector.pending.iter().any(|change| change.value() == stamp);
            assert!(possible, "sector {number} holds {stamp}, not {}", sector.durable);
        }
    }
}

fn stamped(len: usize, stamp: u32) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.chunks_mut(4).for_each(|bytes| bytes.copy_from_slice(&stamp.to_le_bytes()));
    buf
}

fn stamp_of(sector: &[u8]) -> u32 {
    let stamp = u32::from_le_bytes(sector[..4].try_into().unwrap());
    assert!(sector.chunks(4).all(|bytes| bytes == stamp.to_le_bytes()), "a sector is written whole or not at all");
    stamp
}

/// Takes one step with the disk and the model. In the model, a step that fails by a crash has all
/// its effects pending.
fn take(step: &Step, disk: &SimDisk, file: &Arc<dyn File>, model: &mut Model) -> duramen_io::Result<()> {
    match step {
        Step::Write { block, blocks } => file.write_at(&[&model.write(*block, *blocks)], block * BLOCK),
        Step::WriteDurable { block, blocks } => {
            let buf = model.write(*block, *blocks);
            let (low, high) = buf.split_at(BLOCK_SIZE);
            file.write_durable(&[low, high], block * BLOCK)?;
            model.make_durable(*block, *blocks);
            Ok(())
        }
        Step::Batch { ranges } => {
            let bufs: Vec<_> = ranges.iter().map(|(block, blocks)| (*block, model.write(*block, *blocks))).collect();
            let writes: Vec<(u64, &[u8])> = bufs.iter().map(|(block, buf)| (block * BLOCK, &buf[..])).collect();
            file.write_batch(&writes)
        }
        Step::Sync => {
            file.sync()?;
            model.sync();
            Ok(())
        }
        Step::FailedSync => {
            disk.fail_at(disk.operations(), Fault::FailedSync, false);
            let error = file.sync().unwrap_err();
            if disk.crashed_in().is_some() {
                return Err(error);
            }
            model.fail_sync();
            Ok(())
        }
        Step::SetLen { sectors } => {
            model.set_len(sectors * SECTOR);
            file.set_len(sectors * SECTOR)
        }
        Step::Allocate { blocks } => {
            model.grow(blocks * BLOCK);
            file.allocate(blocks * BLOCK)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn crashes_lose_only_what_was_not_synced(
        steps in prop::collection::vec(step(), 1..25),
        crash_at in 0..60_u64,
        seed in any::<u64>(),
    ) {
        let disk = SimDisk::new(seed);
        let file = disk.open("data", OpenMode::CreateNew).unwrap();
        disk.sync_directory("").unwrap();
        let mut model = Model::new();
        disk.crash_at(disk.operations() + crash_at);
        for step in &steps {
            if let Err(error) = take(step, &disk, &file, &mut model) {
                prop_assert_eq!(error.reason, "simulated crash");
                break;
            }
        }
        if disk.crashed_in().is_none() {
            disk.clear_faults();
            model.check_visible(&*file);
        }
        for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Subset(seed)] {
            model.check_image(&disk.crash_image(&choice));
        }
        for round in 0..12 {
            model.check_image(&disk.crash_image(&CrashChoice::Random(seed.wrapping_add(round))));
        }
        // A second crash right after recovery from the first changes nothing.
        let image = disk.crash_image(&CrashChoice::Random(seed));
        prop_assert_eq!(image.unsynced(), 0);
        let again = image.crash_image(&CrashChoice::Nothing);
        prop_assert_eq!(again.durable_bytes("data"), image.durable_bytes("data"));
    }
}
