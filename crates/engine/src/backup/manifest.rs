//! The manifest of a backup: the backup exists once the manifest does.
//!
//! The manifest is one block. Each half kilobyte of it that is used has a checksum of its own:
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
//! | 1024 | 16 each | for each log: LSN from which, and up to which, the backup has it |
//! | 1532 | 4 | CRC-32C of bytes 1,024 to 1,531 |
//!
//! The rest is zero.

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_types::{BLOCK_SIZE, Gsn, Lsn, PAGE_SIZE, SECTOR_SIZE, crc32c};

use duramen_wal::FIRST_LSN;

use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::timestamp::Timestamp;

/// The name of the manifest, and its name before it is complete.
pub(super) const BACKUP: &str = "backup";
pub(super) const BACKUP_NEW: &str = "backup.new";

const MAGIC: [u8; 8] = *b"DURABCKP";
const VERSION: u32 = 1;
const CRC: usize = SECTOR_SIZE - 4;

/// The contents of the manifest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Manifest {
    /// The checkpoint before the backup, and the database's identity.
    pub(super) control: Control,
    /// The GSN of the backup's end. The backup has every record before it, and no page in the
    /// backup has a later change. Records after it do not count.
    pub(super) end: Gsn,
    /// Length of the data file.
    pub(super) data_bytes: u64,
    pub(super) begun: Timestamp,
    pub(super) complete: Timestamp,
    /// For each log, the start and the end of the part that the backup has.
    pub(super) parts: Vec<(Lsn, Lsn)>,
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
        let (control, parts) = control.split_at_mut(SECTOR_SIZE);
        self.control.encode(control);
        let ends = self.parts.iter().flat_map(|(from, end)| [from.get(), end.get()]);
        for (field, number) in parts[..CRC].chunks_exact_mut(8).zip(ends) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c(&parts[..CRC]);
        parts[CRC..SECTOR_SIZE].copy_from_slice(&crc.to_le_bytes());
    }

    fn decode(block: &[u8], file: &str) -> Result<Self> {
        let no_backup = |reason: String| Error::NotABackup { path: file.into(), reason };
        let half = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        if block[..8] != MAGIC {
            return Err(no_backup("the file does not begin with the mark of a manifest".into()));
        }
        if half(8) != VERSION {
            return Err(Error::WrongVersion { file: file.into(), found: half(8), supported: VERSION });
        }
        let corrupt = |reason: String| Error::Corrupt { file: file.into(), offset: 0, page: None, reason };
        if half(CRC) != crc32c(&block[..CRC]) {
            return Err(corrupt("the manifest's checksum is wrong".into()));
        }
        if half(12) as usize != PAGE_SIZE {
            return Err(no_backup(format!(
                "its pages have {} bytes, but this program is built for pages of {PAGE_SIZE} bytes",
                half(12)
            )));
        }
        let control = Control::decode(&block[SECTOR_SIZE..2 * SECTOR_SIZE])
            .map_err(|defect| corrupt(format!("its checkpoint is unusable: {defect}")))?;
        let (end, data_bytes) = (Gsn::new(word(32)), word(40));
        let parts = &block[2 * SECTOR_SIZE..3 * SECTOR_SIZE];
        if parts[CRC..] != crc32c(&parts[..CRC]).to_le_bytes() {
            return Err(corrupt("the checksum of the log positions is wrong".into()));
        }
        let place = |at: usize| Lsn::new(word(2 * SECTOR_SIZE + at));
        let parts: Vec<(Lsn, Lsn)> =
            (0..usize::from(control.logs.count)).map(|log| (place(16 * log), place(16 * log + 8))).collect();
        if control.database != block[16..32]
            || control.oldest > control.checkpoint_gsn()
            || end < control.checkpoint_gsn()
            || parts.iter().any(|(from, end)| *from < FIRST_LSN || from > end)
            || control.logs.count == 1 && parts[0].1.get() != end.get()
            || !data_bytes.is_multiple_of(PAGE_SIZE as u64)
        {
            return Err(corrupt("the manifest contains impossible values".into()));
        }
        let (begun, complete) = (Timestamp::from_micros(word(48)), Timestamp::from_micros(word(56)));
        Ok(Self { control, end, data_bytes, begun, complete, parts })
    }

    /// Reads the manifest of the backup in `disk`.
    pub(super) fn read(disk: &dyn Disk) -> Result<Self> {
        if !disk.exists(BACKUP)? {
            let reason = if disk.exists(BACKUP_NEW)? {
                "the backup is incomplete; take a new one"
            } else {
                "the file `backup`, which every complete backup has, is missing"
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

    /// Writes the manifest, which completes the backup. Everything else must be durable already.
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
    use duramen_types::TxnId;

    use crate::checkpoint::control::{SchemeId, SeveralLogs};
    use crate::options::Partition;

    #[test]
    fn manifests_round_trip_and_every_flipped_bit_shows() {
        let at = |lsn| Gsn::new(lsn);
        let tails = [Lsn::new(9000), Lsn::new(5000)];
        let two = SeveralLogs::new(2, Partition::Page, at(9000), at(9100), &tails);
        let one_part = vec![(Lsn::new(8000), Lsn::new(10_000))];
        let two_parts = vec![(Lsn::new(8000), Lsn::new(9500)), (Lsn::new(4096), Lsn::new(6000))];
        for (logs, parts) in [(SeveralLogs::ONE, one_part), (two, two_parts)] {
            let control = Control {
                database: [7; 16],
                sequence: 9,
                checkpoint: Lsn::new(9000),
                redo: at(8000),
                oldest: at(8000),
                next_txn: TxnId::new(12),
                written: 1,
                groups: 3,
                generation: 4,
                is_clean: false,
                has_tier: false,
                scheme: SchemeId::Wal,
                logs,
            };
            let (begun, complete) = (Timestamp::from_micros(5), Timestamp::from_micros(6));
            let manifest = Manifest { control, end: at(10_000), data_bytes: 16 * 8192, begun, complete, parts };
            let mut block = vec![0; BLOCK_SIZE];
            manifest.encode(&mut block);
            assert_eq!(Manifest::decode(&block, "backup").unwrap(), manifest);
            for bit in 0..3 * SECTOR_SIZE * 8 {
                block[bit / 8] ^= 1 << (bit % 8);
                assert!(Manifest::decode(&block, "backup").is_err(), "bit {bit}");
                block[bit / 8] ^= 1 << (bit % 8);
            }
            Manifest { end: at(8999), ..manifest }.encode(&mut block);
            assert!(matches!(Manifest::decode(&block, "backup"), Err(Error::Corrupt { .. })));
        }
    }
}
