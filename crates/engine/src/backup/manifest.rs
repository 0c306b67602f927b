//! The manifest of a backup: with it, and not before, there is a backup.
//!
//! One block, of which each half kilobyte that is used has a checksum of its own:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURABCKP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | page size in bytes |
//! | 16 | 16 | database id |
//! | 32 | 8 | GSN of the backup's end |
//! | 40 | 8 | length of the data file in bytes |
//! | 48 | 8 | when the backup was begun, in microseconds since 1970 |
//! | 56 | 8 | when it was complete |
//! | 508 | 4 | CRC-32C of bytes 0 to 507 |
//! | 512 | 512 | slot of the control file: the checkpoint before the backup |
//!
//! The rest is zero.

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_types::{BLOCK_SIZE, Gsn, PAGE_SIZE, SECTOR_SIZE, crc32c};

use super::{BACKUP, BACKUP_NEW};
use crate::control::Control;
use crate::error::{Error, Result};
use crate::timestamp::Timestamp;

const MAGIC: [u8; 8] = *b"DURABCKP";
const VERSION: u32 = 1;
const CRC: usize = SECTOR_SIZE - 4;

/// What the manifest says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// The checkpoint before the backup, and which database it is.
    pub(super) control: Control,
    /// Every record before it is in the backup, and no page in it has a later change.
    pub(super) end: Gsn,
    /// Length of the data file.
    pub(super) data_bytes: u64,
    pub(super) begun: Timestamp,
    pub(super) complete: Timestamp,
}

impl Manifest {
    fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        let (sector, control) = block.split_at_mut(SECTOR_SIZE);
        sector[..8].copy_from_slice(&MAGIC);
        sector[8..12].copy_from_slice(&VERSION.to_le_bytes());
        sector[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        sector[16..32].copy_from_slice(&self.control.database);
        let numbers = [self.end.get(), self.data_bytes, self.begun.micros(), self.complete.micros()];
        for (field, number) in sector[32..64].chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&sector[..CRC]);
        sector[CRC..].copy_from_slice(&crc.to_le_bytes());
        self.control.encode(&mut control[..SECTOR_SIZE]);
    }

    fn decode(block: &[u8], file: &str) -> Result<Self> {
        let no_backup = |reason: String| Error::NotABackup { path: file.into(), reason };
        let half = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[..8] != MAGIC {
            return Err(no_backup("the manifest does not begin with the mark of one".into()));
        }
        if half(8) != VERSION {
            return Err(Error::WrongVersion { file: file.into(), found: half(8), supported: VERSION });
        }
        let corrupt = |reason: String| Error::Corrupt { file: file.into(), offset: 0, page: None, reason };
        if half(CRC) != crc32c(&block[..CRC]) {
            return Err(corrupt("the manifest's checksum is wrong".into()));
        }
        if half(12) as usize != PAGE_SIZE {
            return Err(no_backup(format!("its pages have {} bytes; this program is built for {PAGE_SIZE}", half(12))));
        }
        let control = Control::decode(&block[SECTOR_SIZE..2 * SECTOR_SIZE])
            .map_err(|defect| corrupt(format!("its checkpoint cannot be used: {defect}")))?;
        let (end, data_bytes) = (Gsn::new(word(32)), word(40));
        if control.database != block[16..32]
            || control.logs.count != 1
            || control.oldest_lsn() > control.checkpoint
            || end.get() < control.checkpoint.get()
            || !data_bytes.is_multiple_of(PAGE_SIZE as u64)
        {
            return Err(corrupt("the manifest holds impossible values".into()));
        }
        let (begun, complete) = (Timestamp::from_micros(word(48)), Timestamp::from_micros(word(56)));
        Ok(Self { control, end, data_bytes, begun, complete })
    }

    /// Reads the manifest of the backup in `disk`.
    pub(super) fn read(disk: &dyn Disk) -> Result<Self> {
        if !disk.exists(BACKUP)? {
            let reason = if disk.exists(BACKUP_NEW)? {
                "the backup was not completed; take it again"
            } else {
                "there is no file `backup`, with which a backup is complete"
            };
            return Err(Error::NotABackup { path: disk.location().into(), reason: reason.into() });
        }
        let file = disk.open(BACKUP, OpenMode::Existing)?;
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        if file.len()? < BLOCK_SIZE as u64 {
            let reason = "the manifest is cut off".into();
            return Err(Error::Corrupt { file: file.path(), offset: file.len()?, page: None, reason });
        }
        file.read_at(&mut block, 0)?;
        Self::decode(&block, &file.path())
    }

    /// Completes a backup, all else of which is durable.
    pub(super) fn write(&self, disk: &dyn Disk) -> Result<()> {
        let file = disk.open(BACKUP_NEW, OpenMode::Existing)?;
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        self.encode(&mut block);
        file.write_at(&[&block], 0)?;
        file.sync()?;
        drop(file);
        disk.rename(BACKUP_NEW, BACKUP)?;
        Ok(disk.sync_directory("")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duramen_types::{Lsn, TxnId};

    use crate::control::SeveralLogs;

    #[test]
    fn manifests_round_trip_and_every_flipped_bit_shows() {
        let control = Control {
            database: [7; 16],
            sequence: 9,
            checkpoint: Lsn::new(9000),
            redo: Gsn::new(8000),
            oldest: Gsn::new(8000),
            next_txn: TxnId::new(12),
            written: 1,
            groups: 3,
            logs: SeveralLogs::ONE,
        };
        let (begun, complete) = (Timestamp::from_micros(5), Timestamp::from_micros(6));
        let manifest = Manifest { control, end: Gsn::new(10_000), data_bytes: 16 * 8192, begun, complete };
        let mut block = vec![0; BLOCK_SIZE];
        manifest.encode(&mut block);
        assert_eq!(Manifest::decode(&block, "backup").unwrap(), manifest);
        for bit in 0..2 * SECTOR_SIZE * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Manifest::decode(&block, "backup").is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        Manifest { end: Gsn::new(8999), ..manifest }.encode(&mut block);
        assert!(matches!(Manifest::decode(&block, "backup"), Err(Error::Corrupt { .. })));
    }
}
