//! The lowest version that each page can have on disk: it distinguishes a page from an older
//! version of itself.
//!
//! A device may lose a write, and a user may put a page back from a copy. Such a page is whole, and
//! its checksum fits. If the shape of the tree has not changed since, only the page's age is wrong.
//! So whenever the pool has written pages durably, it records their GSNs here, and each checkpoint
//! writes the recorded GSNs to the file `versions`. A page that is read later must not have a lower
//! GSN than the recorded one.
//!
//! A recorded GSN was durable in place when it was recorded. So the file does not have to be
//! written in step with any other file. A block that is lost, torn or older gives a weaker bound,
//! but never a wrong one. A block that does not belong to this database's file counts as blank. A
//! GSN that the log has not reached, as in a file that is newer than the others, is ignored. The
//! recorded GSNs are also sufficient: every change from before a checkpoint that recovery does not
//! repeat is in the versions that were written before that checkpoint. A page that has the recorded
//! version or a later one gets the rest of its changes from the log.
//!
//! The file is an array of blocks of 4,096 bytes; block `b` is for the pages from `b * 511` on:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | CRC-32C, seeded with the block's number and the database id, of the bytes from 4 on |
//! | 4 | 4 | format version, 1 |
//! | 8 | 8 each | for each page the GSN that it has on disk, at least; 0 if nothing is known |
//!
//! All numbers are little-endian. The table needs as much memory as the file: a thousandth of the
//! data.

use std::collections::BTreeSet;

use duramen_io::{AlignedBuf, File};
use duramen_sync::{Arc, Mutex};
use duramen_types::{BLOCK_SIZE, Gsn, PAGE_SIZE, PageId, crc32c_append};

/// Pages in a block.
const PAGES: usize = (BLOCK_SIZE - GSNS) / 8;
const CRC: usize = 0;
const VERSION: usize = 4;
const GSNS: usize = 8;
const FORMAT: u32 = 1;

/// Blocks that are read or written at a time.
const CHUNK: usize = 256;

/// The recorded versions of all pages.
#[derive(Debug)]
pub(crate) struct Versions {
    file: Arc<dyn File>,
    database: [u8; 16],
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
struct Noted {
    gsns: Vec<Gsn>,
    /// Blocks that have changed since they were last written to the file.
    unwritten: BTreeSet<usize>,
}

impl Versions {
    /// Reads the file of a database, for a data file of the given length.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn open(file: Arc<dyn File>, database: [u8; 16], data_bytes: u64) -> duramen_io::Result<Self> {
        let pages = (data_bytes / PAGE_SIZE as u64) as usize;
        let blocks = (file.len()? as usize / BLOCK_SIZE).min(pages.div_ceil(PAGES));
        let mut gsns = Vec::with_capacity(blocks * PAGES);
        let mut buffer = AlignedBuf::zeroed(blocks.min(CHUNK) * BLOCK_SIZE);
        for first in (0..blocks).step_by(CHUNK) {
            let count = CHUNK.min(blocks - first);
            let bytes = &mut buffer[..count * BLOCK_SIZE];
            file.read_at(bytes, (first * BLOCK_SIZE) as u64)?;
            for (number, block) in (first..).zip(bytes.chunks_exact(BLOCK_SIZE)) {
                let is_own = block[CRC..VERSION] == checksum(&database, number, block).to_le_bytes()
                    && block[VERSION..GSNS] == FORMAT.to_le_bytes();
                let gsn = |raw: &[u8]| Gsn::new(u64::from_le_bytes(raw.try_into().expect("eight bytes")));
                gsns.extend(block[GSNS..].chunks_exact(8).map(|raw| if is_own { gsn(raw) } else { Gsn::ZERO }));
            }
        }
        Ok(Self { file, database, noted: Mutex::new(Noted { gsns, unwritten: BTreeSet::new() }) })
    }

    /// Returns the lowest version that a page can have on disk.
    pub(super) fn least(&self, page: PageId) -> Gsn {
        self.noted.lock().gsns.get(page.get() as usize).copied().unwrap_or(Gsn::ZERO)
    }

    /// Records that these pages are durable on disk in these versions. For each page, calls come
    /// one after another, in the order of its writes.
    pub(super) fn note(&self, pages: impl Iterator<Item = (PageId, Gsn)>) {
        let mut noted = self.noted.lock();
        for (page, gsn) in pages {
            let at = page.get() as usize;
            if at >= noted.gsns.len() {
                noted.gsns.resize((at + 1).next_multiple_of(PAGES), Gsn::ZERO);
            }
            // A damaged page that is being rebuilt from the log may be older than its recorded
            // version.
            if noted.gsns[at] != gsn {
                noted.gsns[at] = gsn;
                noted.unwritten.insert(at / PAGES);
            }
        }
    }

    /// Writes the versions that were recorded since the last call. If the disk is full, the blocks
    /// that do not fit are left for the next call.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn write(&self) -> duramen_io::Result<()> {
        let unwritten: Vec<usize> = std::mem::take(&mut self.noted.lock().unwritten).into_iter().collect();
        let Some(last) = unwritten.last() else { return Ok(()) };
        match self.file.allocate(((last + 1) * BLOCK_SIZE) as u64) {
            Err(error) if error.is_full() => {
                self.noted.lock().unwritten.extend(unwritten);
                return Ok(());
            }
            room => room?,
        }
        let mut buffer = AlignedBuf::zeroed(unwritten.len().min(CHUNK) * BLOCK_SIZE);
        for some in unwritten.chunks(CHUNK) {
            for (number, block) in some.iter().zip(buffer.chunks_exact_mut(BLOCK_SIZE)) {
                block.fill(0);
                let noted = self.noted.lock();
                let gsns = &noted.gsns[number * PAGES..][..PAGES];
                for (field, gsn) in block[GSNS..].chunks_exact_mut(8).zip(gsns) {
                    field.copy_from_slice(&gsn.get().to_le_bytes());
                }
                drop(noted);
                block[VERSION..GSNS].copy_from_slice(&FORMAT.to_le_bytes());
                let crc = checksum(&self.database, *number, block);
                block[CRC..VERSION].copy_from_slice(&crc.to_le_bytes());
            }
            let blocks = some.iter().zip(buffer.chunks_exact(BLOCK_SIZE));
            let writes: Vec<_> = blocks.map(|(number, block)| ((number * BLOCK_SIZE) as u64, block)).collect();
            self.file.write_batch(&writes)?;
        }
        self.file.sync()
    }
}

fn checksum(database: &[u8; 16], number: usize, block: &[u8]) -> u32 {
    let halves: [u64; 2] = [0, 8].map(|at| u64::from_le_bytes(database[at..at + 8].try_into().expect("eight bytes")));
    let seed = halves.into_iter().fold(number as u64, |seed, half| seed.rotate_left(17) ^ half);
    crc32c_append(seed, &block[VERSION..])
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;
    use duramen_io::{Disk, OpenMode, SimDisk};

    /// Length of a data file with many pages.
    const ALL: u64 = 300_000 * PAGE_SIZE as u64;

    #[test]
    fn what_was_noted_is_there_again_and_damage_only_forgets() {
        let disk = SimDisk::new(1);
        let file = disk.open("versions", OpenMode::CreateNew).unwrap();
        let at = |page: u64| PageId::new(page);
        let versions = Versions::open(Arc::clone(&file), [7; 16], ALL).unwrap();
        assert_eq!(versions.least(at(3)), Gsn::ZERO);
        let pages = [(1, 50), (2, 70), (510, 9), (511, 10), (200_000, 11)];
        versions.note(pages.iter().map(|&(page, gsn)| (at(page), Gsn::new(gsn))));
        versions.write().unwrap();
        let again = || Versions::open(Arc::clone(&file), [7; 16], ALL).unwrap();
        for (page, gsn) in pages {
            assert_eq!(again().least(at(page)), Gsn::new(gsn), "{page}");
        }
        assert_eq!(
            Versions::open(Arc::clone(&file), [8; 16], ALL).unwrap().least(at(2)),
            Gsn::ZERO,
            "of another database"
        );
        disk.flip_bit("versions", 20, 3);
        assert_eq!((again().least(at(2)), again().least(at(511))), (Gsn::ZERO, Gsn::new(10)));
        let written = disk.operations();
        versions.write().unwrap();
        assert_eq!(disk.operations(), written, "nothing is left to be written");
    }

    #[test]
    fn a_full_disk_is_no_failure() {
        let disk = SimDisk::new(1);
        let file = disk.open("versions", OpenMode::CreateNew).unwrap();
        let versions = Versions::open(Arc::clone(&file), [7; 16], ALL).unwrap();
        disk.set_capacity(0);
        versions.note([(PageId::new(2), Gsn::new(60))].into_iter());
        versions.write().unwrap();
        disk.set_capacity(1 << 20);
        versions.write().unwrap();
        assert_eq!(Versions::open(file, [7; 16], ALL).unwrap().least(PageId::new(2)), Gsn::new(60));
    }
}
