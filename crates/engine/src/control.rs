//! The control file: the database's identity and the place of its latest checkpoint.
//!
//! Two slots of one block each are written alternately; the valid one with the higher sequence number counts. A torn
//! write of one slot leaves the other.
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
//! | 508 | 4 | CRC-32C of bytes 0 to 507 |
//!
//! The rest of a block is zero.

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::{Arc, clock};
use duramen_types::{BLOCK_SIZE, Lsn, PAGE_SIZE, TxnId, crc32c};

use crate::error::{Error, Result};

/// The format version that this program writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Name of the file.
pub(crate) const CONTROL: &str = "control";

/// Name under which it is made.
pub(crate) const CONTROL_NEW: &str = "control.new";

const MAGIC: [u8; 8] = *b"DURAMEN\0";
const CRC: usize = 508;

/// What the control file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Control {
    pub(crate) database: [u8; 16],
    pub(crate) sequence: u64,
    /// Begin record of the latest complete checkpoint.
    pub(crate) checkpoint: Lsn,
    /// Redo begins here at the earliest.
    pub(crate) redo: Lsn,
    /// The log is needed from here on.
    pub(crate) oldest: Lsn,
    pub(crate) next_txn: TxnId,
    /// When this was written, in microseconds since 1970.
    pub(crate) written: u64,
    /// So many groups of pages have an allocation bitmap, if not more.
    pub(crate) groups: u64,
}

/// The open file and what it says.
#[derive(Debug)]
pub(crate) struct ControlFile {
    file: Arc<dyn File>,
    pub(crate) control: Control,
}

impl Control {
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
        let crc = crc32c(&block[..CRC]);
        block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a slot; says why it cannot be used.
    pub(crate) fn decode(block: &[u8]) -> std::result::Result<Self, Defect> {
        let half = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[0..8] != MAGIC {
            return Err(Defect::Foreign);
        }
        if half(CRC) != crc32c(&block[..CRC]) {
            return Err(Defect::Damaged);
        }
        if half(8) != FORMAT_VERSION {
            return Err(Defect::Version(half(8)));
        }
        if half(12) as usize != PAGE_SIZE {
            return Err(Defect::PageSize(half(12)));
        }
        Ok(Self {
            database: block[16..32].try_into().expect("sixteen bytes"),
            sequence: word(32),
            checkpoint: Lsn::new(word(40)),
            redo: Lsn::new(word(48)),
            oldest: Lsn::new(word(56)),
            next_txn: TxnId::new(word(64)),
            written: word(72),
            groups: word(80),
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Defect {
    #[error("it is not a slot of a Duramen control file")]
    Foreign,
    #[error("its checksum is wrong")]
    Damaged,
    #[error("it has format version {0}; this program reads version {FORMAT_VERSION}")]
    Version(u32),
    #[error("its pages have {0} bytes; this program is built for {PAGE_SIZE}")]
    PageSize(u32),
}

impl ControlFile {
    /// Writes a new control file under a temporary name and renames it: with that, and not before, there is a database.
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

    /// Reads the control file.
    pub(crate) fn open(disk: &dyn Disk) -> Result<Self> {
        let (file, slots) = open_slots(disk)?;
        let newest = slots.iter().flatten().max_by_key(|control| control.sequence);
        match newest {
            Some(&control) => Ok(Self { file, control }),
            None => Err(refuse(&file.path(), slots)),
        }
    }

    /// Makes what the file says durable: it can be read, but whoever wrote it may have seen the write fail.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.put(self.control)
    }

    /// Makes `control` durable as the latest. After an error the file still says what it said before, or this.
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

/// The two slots; of one that cannot be used, why.
type Slots<E> = [std::result::Result<Control, E>; 2];

/// Opens the file and reads both slots.
fn open_slots(disk: &dyn Disk) -> Result<(Arc<dyn File>, Slots<Defect>)> {
    let file = disk.open(CONTROL, OpenMode::Existing)?;
    let mut blocks = AlignedBuf::zeroed(2 * BLOCK_SIZE);
    if file.len()? < blocks.len() as u64 {
        return Err(Error::Corrupt {
            file: file.path(),
            offset: file.len()?,
            page: None,
            reason: "the file is shorter than a control file is".into(),
        });
    }
    file.read_at(&mut blocks, 0)?;
    Ok((file, [Control::decode(&blocks[..BLOCK_SIZE]), Control::decode(&blocks[BLOCK_SIZE..])]))
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
                    reason: format!("its pages have {found} bytes; this program is built for {PAGE_SIZE}"),
                };
            }
            Defect::Foreign | Defect::Damaged => {}
        }
    }
    if defects == [Defect::Foreign; 2] {
        return Error::NotADatabase { path: file.into(), reason: "it is not a Duramen control file".into() };
    }
    Error::Corrupt { file: file.into(), offset: 0, page: None, reason: "both slots fail their checksum".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> Control {
        Control {
            database: [7; 16],
            sequence,
            checkpoint: Lsn::new(4096),
            redo: Lsn::new(4096),
            oldest: Lsn::new(4096),
            next_txn: TxnId::new(12),
            written: 1,
            groups: 3,
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
    fn other_versions_are_refused_by_name() {
        let mut block = vec![0; BLOCK_SIZE];
        sample(5).encode(&mut block);
        block[8] = 9;
        let crc = crc32c(&block[..CRC]);
        block[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Control::decode(&block), Err(Defect::Version(9)));
        let error = refuse("control", [Control::decode(&block), Err(Defect::Damaged)]);
        assert!(matches!(error, Error::WrongVersion { found: 9, .. }), "{error}");
    }
}
