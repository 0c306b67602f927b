//! Files that say where a part of a database is that may lie elsewhere.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic, which says what the file is for |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the bytes from 16 to the end of the last field |
//! | 16 | 16 | database id |
//! | 32 | 2 | length of the path; 0 stands for the database's own directory |
//! | 34 | | path, UTF-8 |
//! | behind | | further fields, of a length that the version determines |
//!
//! All numbers are little-endian; the file has 4,096 bytes. It is written under another name and
//! renamed when it is whole, so it is whole or absent.

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_types::{BLOCK_SIZE, crc32c};

use crate::error::{Error, Result};
use crate::pool::REMEDY;

const VERSION: usize = 8;
const CRC: usize = 12;
const DATABASE: usize = 16;
const LEN: usize = 32;
const PATH: usize = 34;

/// What a link file is for.
pub(super) struct LinkFile {
    pub(super) name: &'static str,
    /// The name until the file is whole.
    pub(super) new_name: &'static str,
    pub(super) magic: &'static [u8; 8],
    /// What the path leads to.
    pub(super) target: &'static str,
    /// Bytes of further fields, for each format version from 1 on.
    pub(super) further: &'static [usize],
}

/// The contents of a link file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Linked {
    pub(super) path: String,
    /// The further fields.
    pub(super) further: Vec<u8>,
}

impl LinkFile {
    /// Returns whether a path of this many bytes fits, whatever the version.
    pub(super) fn fits(&self, path: &str) -> bool {
        PATH + path.len() + self.further.iter().max().copied().unwrap_or(0) <= BLOCK_SIZE
    }

    /// Writes the file. The path fits, and a version has so many further fields.
    pub(super) fn write(&self, disk: &dyn Disk, database: [u8; 16], path: &str, further: &[u8]) -> Result<()> {
        let version = 1 + self.further.iter().position(|bytes| *bytes == further.len()).expect("a version has them");
        let end = PATH + path.len();
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        block[..VERSION].copy_from_slice(self.magic);
        block[VERSION..CRC].copy_from_slice(&(version as u32).to_le_bytes());
        block[DATABASE..LEN].copy_from_slice(&database);
        block[LEN..PATH].copy_from_slice(&(path.len() as u16).to_le_bytes());
        block[PATH..end].copy_from_slice(path.as_bytes());
        block[end..end + further.len()].copy_from_slice(further);
        let crc = crc32c(&block[DATABASE..end + further.len()]);
        block[CRC..DATABASE].copy_from_slice(&crc.to_le_bytes());
        if disk.exists(self.new_name)? {
            disk.remove(self.new_name)?;
        }
        disk.open(self.new_name, OpenMode::CreateNew)?.write_durable(&[&block], 0)?;
        disk.rename(self.new_name, self.name)?;
        Ok(disk.sync_directory("")?)
    }

    /// Reads the file, if it exists.
    pub(super) fn read(&self, disk: &dyn Disk, database: [u8; 16]) -> Result<Option<Linked>> {
        if !disk.exists(self.name)? {
            return Ok(None);
        }
        let file = disk.open(self.name, OpenMode::Existing)?;
        let corrupt = |reason: String| Error::Corrupt { file: file.path(), offset: 0, page: None, reason };
        let damaged = || corrupt(format!("it does not say where the {} is; {REMEDY}", self.target));
        if file.len()? < BLOCK_SIZE as u64 {
            return Err(damaged());
        }
        let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
        file.read_at(&mut block, 0)?;
        let version = u32::from_le_bytes(block[VERSION..CRC].try_into().expect("four bytes"));
        let further = (version as usize).checked_sub(1).and_then(|number| self.further.get(number));
        let behind = PATH + usize::from(u16::from_le_bytes([block[LEN], block[LEN + 1]]));
        let end = behind + further.unwrap_or(&0);
        let checked = block.get(DATABASE..end).ok_or_else(damaged)?;
        if &block[..VERSION] != self.magic
            || (further.is_some() && block[CRC..DATABASE] != crc32c(checked).to_le_bytes())
        {
            return Err(damaged());
        }
        if further.is_none() {
            return Err(corrupt("it has an unknown format version: a newer program wrote it".to_owned()));
        }
        if block[DATABASE..LEN] != database {
            return Err(corrupt(format!("it belongs to another database; {REMEDY}")));
        }
        let path = std::str::from_utf8(&block[PATH..behind]).map_err(|_| damaged())?.to_owned();
        Ok(Some(Linked { path, further: block[behind..end].to_vec() }))
    }
}
