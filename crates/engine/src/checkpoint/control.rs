//! The control file: the database's identity and the address of its latest checkpoint.
//!
//! Two slots of one block each are written alternately; the valid one with the higher sequence
//! number counts. A torn write of one slot leaves the other intact.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURAMEN\0` |
//! | 8 | 4 | format version |
//! | 12 | 4 | page size in bytes |
//! | 16 | 16 | database id |
//! | 32 | 8 | sequence number of this slot |
//! | 40 | 8 | LSN of the latest complete checkpoint's begin record |
//! | 48 | 8 | GSN from which redo begins at the earliest |
//! | 56 | 8 | LSN below which the log is not needed |
//! | 64 | 8 | no transaction id below this is given out again |
//! | 72 | 8 | when the slot was written, microseconds since 1970 |
//! | 80 | 8 | number of groups of pages that have a bitmap, at least; 0 is as good as 1 |
//! | 88 | 2 | number of logs; 0 is as good as 1 |
//! | 90 | 1 | partition of several logs: 0 transaction, 1 round-robin, 2 page |
//! | 91 | 1 | 1 while several logs are being cut after the GSN at 104 |
//! | 92 | 1 | 1 if the database was closed in order, and nothing was written since |
//! | 93 | 1 | storage scheme: 0 write-ahead log, 1 in-place, 2 NVRAM group commit, 3 PCMLogging |
//! | 94 | 1 | 1 if pages may be in a page tier |
//! | 96 | 8 | several logs: GSN of the begin record |
//! | 104 | 8 | several logs: GSN up to which all of them are complete |
//! | 112 | 16 each | for each of several logs: LSN from which analysis reads, LSN from which redo reads |
//! | 496 | 8 | generation of the other files (see `generation.rs`); 0 if they have no stamps yet |
//! | 508 | 4 | CRC-32C of bytes 0 to 507 |
//!
//! The rest of a block is zero. Version 3 added the fields at 92 and 496, version 4 the one at 93,
//! version 5 the one at 94, and version 6 the scheme 3. Since version 7, log records have short
//! headers, and updates short forms. Since version 8, the double-write area has changed lines
//! instead of whole pages. Since version 9, nodes may have narrow slots. Before that, a database
//! had the lowest version that sufficed for it: 1 was for one log and 2 for several, 4 for a heap.

use std::fmt;

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::{Arc, clock};
use duramen_types::{BLOCK_SIZE, Gsn, LogId, Lsn, PAGE_SIZE, TxnId, crc32c};
use duramen_wal::MAX_LOGS;

use crate::error::{Error, Result};
use crate::options::{Partition, Scheme};

/// The format version that this program writes, and the highest version that it reads.
pub(crate) const FORMAT_VERSION: u32 = 9;

/// The lowest format version that this program reads.
const OLDEST_VERSION: u32 = 1;

/// The first version whose files have generations.
const GENERATIONS_VERSION: u32 = 3;

/// The first version for other storage schemes than a write-ahead log.
const SCHEMES_VERSION: u32 = 4;

/// The first version for page tiers.
const TIER_VERSION: u32 = 5;

/// The first version for PCMLogging.
const PCM_VERSION: u32 = 6;

/// Name of the control file.
pub(crate) const CONTROL: &str = "control";

/// Name of the control file while it is made.
pub(crate) const CONTROL_NEW: &str = "control.new";

const MAGIC: [u8; 8] = *b"DURAMEN\0";
const LOGS: usize = 88;
const CLEAN: usize = 92;
const SCHEME: usize = 93;
const HAS_TIER: usize = 94;
const GENERATION: usize = 496;
const CRC: usize = 508;

const _: () = assert!(LOGS + 24 + 16 * MAX_LOGS as usize <= GENERATION, "the places of all logs fit");

/// The storage scheme that a database was created with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum SchemeId {
    Wal = 0,
    InPlace = 1,
    NvramGroupCommit = 2,
    PcmLogging = 3,
}

impl SchemeId {
    /// Returns the scheme that the options name.
    pub(crate) fn of(scheme: &Scheme) -> Self {
        match scheme {
            // Presets are no schemes of their own.
            Scheme::Wal | Scheme::PcmBasic(_) | Scheme::NoPcm => Self::Wal,
            Scheme::InPlace(_) => Self::InPlace,
            Scheme::NvramGroupCommit(..) => Self::NvramGroupCommit,
            Scheme::PcmLogging(_) => Self::PcmLogging,
        }
    }

    /// Returns the scheme of a heap, by its number.
    pub(crate) fn of_heap(raw: u8) -> Option<Self> {
        [Self::InPlace, Self::NvramGroupCommit].into_iter().find(|scheme| *scheme as u8 == raw)
    }

    /// Returns the scheme's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Wal => "wal",
            Self::InPlace => "in-place",
            Self::NvramGroupCommit => "nvram-group-commit",
            Self::PcmLogging => "pcm-logging",
        }
    }
}

impl fmt::Display for SchemeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The contents of the control file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Control {
    pub(crate) database: [u8; 16],
    pub(crate) sequence: u64,
    /// The begin record of the latest complete checkpoint.
    pub(crate) checkpoint: Lsn,
    /// Redo begins here at the earliest.
    pub(crate) redo: Gsn,
    /// The start of the log that is still needed.
    pub(crate) oldest: Gsn,
    pub(crate) next_txn: TxnId,
    /// The time of the write, in microseconds since 1970.
    pub(crate) written: u64,
    /// At least this many groups of pages have an allocation bitmap.
    pub(crate) groups: u64,
    /// The generation that the other files are stamped with; 0 in a database whose format has no
    /// stamps.
    pub(crate) generation: u64,
    /// Whether the database was closed in order, and nothing was written since.
    pub(crate) is_clean: bool,
    pub(crate) scheme: SchemeId,
    /// Whether pages may be in a page tier.
    pub(crate) has_tier: bool,
    pub(crate) logs: SeveralLogs,
}

/// The control file's data about several logs. A database with one log does not need it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SeveralLogs {
    /// The number of logs.
    pub(crate) count: u16,
    pub(crate) partition: Partition,
    /// Whether the logs are being cut after `complete`.
    pub(crate) is_cutting: bool,
    /// The GSN of the checkpoint's begin record.
    pub(crate) checkpoint: Gsn,
    /// The GSN up to which all logs are complete.
    pub(crate) complete: Gsn,
    /// For each log, the end of the records inserted before the checkpoint began, and the address
    /// from which redo reads.
    pub(crate) places: [(Lsn, Lsn); MAX_LOGS as usize],
}

impl SeveralLogs {
    /// A single log.
    pub(crate) const ONE: Self = Self {
        count: 1,
        partition: Partition::Transaction,
        is_cutting: false,
        checkpoint: Gsn::ZERO,
        complete: Gsn::ZERO,
        places: [(Lsn::ZERO, Lsn::ZERO); MAX_LOGS as usize],
    };

    /// Returns the data for `count` logs of a new database, whose first checkpoint begins at
    /// `begin`, after these `tails`.
    pub(crate) fn new(count: u16, partition: Partition, begin: Gsn, end: Gsn, tails: &[Lsn]) -> Self {
        if count == 1 {
            Self::ONE
        } else {
            Self { count, partition, ..Self::ONE }.at_checkpoint(begin, end, tails, tails)
        }
    }

    /// Returns the same data after a hardened checkpoint from `begin` to `end`.
    pub(crate) fn at_checkpoint(self, begin: Gsn, end: Gsn, tails: &[Lsn], redo: &[Lsn]) -> Self {
        if self.count == 1 {
            return self;
        }
        let mut places = [(Lsn::ZERO, Lsn::ZERO); MAX_LOGS as usize];
        for (place, ends) in places.iter_mut().zip(tails.iter().zip(redo)) {
            *place = (*ends.0, *ends.1);
        }
        Self { checkpoint: begin, complete: end, is_cutting: false, places, ..self }
    }

    fn encode(&self, block: &mut [u8]) {
        if self.count == 1 {
            return;
        }
        block[LOGS..LOGS + 2].copy_from_slice(&self.count.to_le_bytes());
        block[LOGS + 2] = self.partition as u8;
        block[LOGS + 3] = self.is_cutting.into();
        let places = self.places[..usize::from(self.count)].iter().flat_map(|place| [place.0.get(), place.1.get()]);
        let fields = [self.checkpoint.get(), self.complete.get()].into_iter().chain(places);
        for (field, number) in block[LOGS + 8..GENERATION].chunks_exact_mut(8).zip(fields) {
            field.copy_from_slice(&number.to_le_bytes());
        }
    }

    /// Reads the data from a slot; `None` when the values are impossible.
    fn decode(block: &[u8]) -> Option<Self> {
        let count = u16::from_le_bytes([block[LOGS], block[LOGS + 1]]).max(1);
        if count == 1 {
            return Some(Self::ONE);
        }
        let partition = match block[LOGS + 2] {
            0 => Partition::Transaction,
            1 => Partition::RoundRobin,
            2 => Partition::Page,
            _ => return None,
        };
        let word = |index: usize| {
            let at = LOGS + 8 + index * 8;
            u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
        };
        let mut places = Self::ONE.places;
        for (index, place) in places.get_mut(..usize::from(count))?.iter_mut().enumerate() {
            *place = (Lsn::new(word(2 + 2 * index)), Lsn::new(word(3 + 2 * index)));
        }
        let (checkpoint, complete) = (Gsn::new(word(0)), Gsn::new(word(1)));
        Some(Self { count, partition, is_cutting: block[LOGS + 3] != 0, checkpoint, complete, places })
    }
}

/// The open control file and its contents.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: Arc<dyn File>,
    pub(crate) control: Control,
}

impl Control {
    /// Returns a position in a log, everything before which was hardened when the checkpoint ended.
    pub(crate) fn hardened(&self, log: LogId) -> Lsn {
        match self.logs.count {
            // A part of the checkpoint's first record.
            1 => Lsn::new(self.checkpoint.get() + 1),
            _ => self.logs.places[usize::from(log.get())].0,
        }
    }

    /// Returns, for each log, the address of the first record whose effects a checkpoint's tables
    /// may lack.
    pub(crate) fn behind_checkpoint(&self) -> Vec<Lsn> {
        match self.logs.count {
            1 => vec![self.checkpoint],
            count => self.logs.places[..usize::from(count)].iter().map(|place| place.0).collect(),
        }
    }

    /// Returns the GSN of the latest complete checkpoint's begin record.
    pub(crate) fn checkpoint_gsn(&self) -> Gsn {
        if self.logs.count == 1 { Gsn::new(self.checkpoint.get()) } else { self.logs.checkpoint }
    }

    /// Writes a slot, of at least half a kilobyte.
    pub(crate) fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        block[16..32].copy_from_slice(&self.database);
        let fields = [
            self.sequence,
            self.checkpoint.get(),
            self.redo.get(),
            self.oldest.get(),
            self.next_txn.get(),
            self.written,
            self.groups,
        ];
        for (index, field) in fields.into_iter().enumerate() {
            block[32 + index * 8..40 + index * 8].copy_from_slice(&field.to_le_bytes());
        }
        self.logs.encode(block);
        block[CLEAN] = self.is_clean.into();
        block[SCHEME] = self.scheme as u8;
        block[HAS_TIER] = self.has_tier.into();
        block[GENERATION..GENERATION + 8].copy_from_slice(&self.generation.to_le_bytes());
        let crc = crc32c(&block[..CRC]);
        block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a slot, or returns why it cannot be used.
    pub(crate) fn decode(block: &[u8]) -> std::result::Result<Self, Defect> {
        let half = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[0..8] != MAGIC {
            return Err(Defect::Foreign);
        }
        if half(CRC) != crc32c(&block[..CRC]) {
            return Err(Defect::Damaged);
        }
        let version = half(8);
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(Defect::Version(version));
        }
        let has_generations = version >= GENERATIONS_VERSION;
        if half(12) as usize != PAGE_SIZE {
            return Err(Defect::PageSize(half(12)));
        }
        Ok(Self {
            database: block[16..32].try_into().expect("sixteen bytes"),
            sequence: word(32),
            checkpoint: Lsn::new(word(40)),
            redo: Gsn::new(word(48)),
            oldest: Gsn::new(word(56)),
            next_txn: TxnId::new(word(64)),
            written: word(72),
            groups: word(80),
            generation: if has_generations { word(GENERATION) } else { 0 },
            is_clean: has_generations && block[CLEAN] != 0,
            scheme: match (version < SCHEMES_VERSION, block[SCHEME]) {
                (true, _) | (false, 0) => SchemeId::Wal,
                (false, 1) => SchemeId::InPlace,
                (false, 2) => SchemeId::NvramGroupCommit,
                (false, 3) if version >= PCM_VERSION => SchemeId::PcmLogging,
                _ => return Err(Defect::Damaged),
            },
            has_tier: version >= TIER_VERSION && block[HAS_TIER] != 0,
            logs: SeveralLogs::decode(block).ok_or(Defect::Damaged)?,
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Defect {
    #[error("it is not a slot of a Duramen control file")]
    Foreign,
    #[error("its checksum is wrong")]
    Damaged,
    #[error("it has format version {0}, but this program reads versions {OLDEST_VERSION} to {FORMAT_VERSION}")]
    Version(u32),
    #[error("its pages have {0} bytes, but this program is built for pages of {PAGE_SIZE} bytes")]
    PageSize(u32),
}

impl ControlFile {
    /// Writes a new control file under a temporary name and renames it. The database exists from
    /// the rename on.
    pub(crate) fn create(disk: &dyn Disk, mut control: Control) -> Result<Self> {
        if disk.exists(CONTROL_NEW)? {
            disk.remove(CONTROL_NEW)?;
        }
        let file = disk.open(CONTROL_NEW, OpenMode::CreateNew)?;
        control.sequence = 2;
        control.written = clock::wall_micros();
        let mut blocks = AlignedBuf::zeroed(2 * BLOCK_SIZE);
        let (even, odd) = blocks.split_at_mut(BLOCK_SIZE);
        control.encode(even);
        Control { sequence: 1, ..control }.encode(odd);
        file.write_at(&[&blocks], 0)?;
        file.sync()?;
        disk.rename(CONTROL_NEW, CONTROL)?;
        disk.sync_directory("")?;
        drop(file);
        Ok(Self { file: disk.open(CONTROL, OpenMode::Existing)?, control })
    }

    /// Opens the control file of a database that is about to be used. The file is locked before it
    /// is read: the directory's lock does not keep out a program that reaches the same files
    /// through another directory.
    pub(crate) fn open_for_use(disk: &dyn Disk) -> Result<Self> {
        let file = disk.open(CONTROL, OpenMode::Existing)?;
        file.lock()?;
        let slots = slots_of(&*file)?;
        Self::of_slots(file, slots)
    }

    /// Reads the control file.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Self> {
        let (file, slots) = open_slots(disk)?;
        Self::of_slots(file, slots)
    }

    fn of_slots(file: Arc<dyn File>, slots: Slots<Defect>) -> Result<Self> {
        let newest = slots.iter().flatten().max_by_key(|control| control.sequence);
        match newest {
            Some(&control) => Ok(Self { file, control }),
            None => Err(refuse(&file.path(), slots)),
        }
    }

    /// Returns the file.
    pub(crate) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Makes the contents of the file durable again: the file can be read, but the process that
    /// wrote it may have seen the write fail.
    pub(crate) fn resync(&mut self) -> Result<()> {
        self.put(self.control)
    }

    /// Makes `control` the latest contents, durably. After an error the file holds either the
    /// earlier contents or these.
    pub(crate) fn write(&mut self, control: Control) -> Result<()> {
        self.put(Control { sequence: self.control.sequence + 1, written: clock::wall_micros(), ..control })
    }

    fn put(&mut self, control: Control) -> Result<()> {
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        control.encode(&mut block);
        self.file.write_durable(&[&block], (control.sequence % 2) * BLOCK_SIZE as u64)?;
        self.control = control;
        Ok(())
    }
}

/// The two slots, or for each unusable slot the reason.
type Slots<E> = [std::result::Result<Control, E>; 2];

/// Opens the file and reads both slots.
fn open_slots(disk: &dyn Disk) -> Result<(Arc<dyn File>, Slots<Defect>)> {
    let file = disk.open(CONTROL, OpenMode::Existing)?;
    let slots = slots_of(&*file)?;
    Ok((file, slots))
}

/// Reads both slots.
fn slots_of(file: &dyn File) -> Result<Slots<Defect>> {
    let mut blocks = AlignedBuf::zeroed(2 * BLOCK_SIZE);
    if file.len()? < blocks.len() as u64 {
        return Err(Error::Corrupt {
            file: file.path(),
            offset: file.len()?,
            page: None,
            reason: "the file is too short for a control file".into(),
        });
    }
    file.read_at(&mut blocks, 0)?;
    Ok([Control::decode(&blocks[..BLOCK_SIZE]), Control::decode(&blocks[BLOCK_SIZE..])])
}

/// Reads both slots.
pub(crate) fn read_slots(disk: &dyn Disk) -> Result<Slots<String>> {
    let (_, slots) = open_slots(disk)?;
    Ok(slots.map(|slot| slot.map_err(|defect| defect.to_string())))
}

fn refuse(file: &str, slots: Slots<Defect>) -> Error {
    let defects = slots.map(|slot| slot.expect_err("no slot is valid"));
    for defect in defects {
        match defect {
            Defect::Version(found) => {
                return Error::WrongVersion { file: file.into(), found, supported: FORMAT_VERSION };
            }
            Defect::PageSize(found) => {
                return Error::NotADatabase {
                    path: file.into(),
                    reason: format!(
                        "its pages have {found} bytes, but this program is built for pages of {PAGE_SIZE} bytes"
                    ),
                };
            }
            Defect::Foreign | Defect::Damaged => {}
        }
    }
    if defects == [Defect::Foreign; 2] {
        return Error::NotADatabase { path: file.into(), reason: "it is not a Duramen control file".into() };
    }
    Error::Corrupt { file: file.into(), offset: 0, page: None, reason: "the checksums of both slots are wrong".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> Control {
        Control {
            database: [7; 16],
            sequence,
            checkpoint: Lsn::new(4096),
            redo: Gsn::new(4096),
            oldest: Gsn::new(4096),
            next_txn: TxnId::new(12),
            written: 1,
            groups: 3,
            generation: 4,
            is_clean: true,
            scheme: SchemeId::Wal,
            has_tier: false,
            logs: SeveralLogs::ONE,
        }
    }

    #[test]
    fn slots_round_trip_and_every_flipped_bit_shows() {
        let mut block = vec![0; BLOCK_SIZE];
        sample(5).encode(&mut block);
        assert_eq!(Control::decode(&block), Ok(sample(5)));
        for bit in 0..(CRC + 4) * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Control::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn several_logs_round_trip_and_one_has_nothing_to_say() {
        let tails: Vec<Lsn> = (1..=24).map(|log| Lsn::new(log * 8192)).collect();
        for count in [2, 3, MAX_LOGS] {
            for partition in [Partition::Transaction, Partition::RoundRobin, Partition::Page] {
                let mut logs = SeveralLogs::new(count, partition, Gsn::new(7), Gsn::new(9), &tails[..count.into()]);
                logs.is_cutting = count == 3;
                let mut block = vec![0; BLOCK_SIZE];
                let control = Control { logs, ..sample(5) };
                control.encode(&mut block);
                assert_eq!(Control::decode(&block), Ok(control));
                block[LOGS + 2] = 3;
                let crc = crc32c(&block[..CRC]);
                block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
                assert_eq!(Control::decode(&block), Err(Defect::Damaged));
            }
        }
        let mut block = vec![0; BLOCK_SIZE];
        sample(5).encode(&mut block);
        assert!(block[LOGS..CLEAN].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn formats_before_have_no_generations() {
        for version in [1_u32, 2] {
            let mut block = vec![0; BLOCK_SIZE];
            sample(5).encode(&mut block);
            block[8..12].copy_from_slice(&version.to_le_bytes());
            let crc = crc32c(&block[..CRC]);
            block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(Control::decode(&block), Ok(Control { generation: 0, is_clean: false, ..sample(5) }));
        }
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        let mut block = vec![0; BLOCK_SIZE];
        Control { has_tier: true, ..sample(5) }.encode(&mut block);
        assert_eq!((block[8], Control::decode(&block)), (9, Ok(Control { has_tier: true, ..sample(5) })));
        Control { scheme: SchemeId::InPlace, ..sample(5) }.encode(&mut block);
        assert_eq!(Control::decode(&block).map(|control| control.scheme), Ok(SchemeId::InPlace));
        sample(5).encode(&mut block);
        assert_eq!(block[8], 9, "earlier programs do not read narrow slots");
        block[8] = 10;
        let crc = crc32c(&block[..CRC]);
        block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Control::decode(&block), Err(Defect::Version(10)));
        let error = refuse("control", [Control::decode(&block), Err(Defect::Damaged)]);
        assert!(matches!(error, Error::WrongVersion { found: 10, .. }), "{error}");
    }
}
