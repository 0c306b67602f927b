//! The file `tier`, which says where the page tier of a database is.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `DURATLNK` |
//! | 8 | 4 | format version: 1, or 2 for a tier in persistent memory |
//! | 12 | 4 | CRC-32C of the bytes from 16 to the end of the last field |
//! | 16 | 16 | database id |
//! | 32 | 2 | length of the path; 0 if the tier is in the database's directory |
//! | 34 | | path, UTF-8: of the tier's directory, or of the file or device of its memory |
//! | behind | 1 | version 2: persistence domain: 0 durable caches, 1 volatile caches |
//! | behind | 1 | version 2: what its pages must survive: 0 nothing, 1 the process, 2 a power cut |
//! | behind | 1 | version 2: the platform's guarantee as stated: 0 not stated, 1 durable caches, 2 volatile caches, 3 the page cache, 4 none |
//!
//! All numbers are little-endian; the file has 4,096 bytes. It is written under another name and
//! renamed when the tier is ready, so it is whole or absent.

use std::path::{Path, PathBuf};

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_pmem::{Domain, Guarantee, Source, Survive};
use duramen_types::{BLOCK_SIZE, crc32c};

use crate::checkpoint::control::Control;
use crate::error::{Error, Result};
use crate::open::files::{TIER, TIER_NEW};
use crate::options::{TierMemory, TierPlace};
use crate::pool::REMEDY;

const MAGIC: &[u8; 8] = b"DURATLNK";
const VERSION: u32 = 1;
const MEMORY_VERSION: u32 = 2;
const VERSION_FIELD: usize = 8;
const CRC: usize = 12;
const DATABASE: usize = 16;
const LEN: usize = 32;
const PATH: usize = 34;
/// Bytes behind the path in version 2.
const ATTRIBUTES: usize = 3;

const DOMAINS: [Domain; 2] = [Domain::DurableCache, Domain::VolatileCache];
const SURVIVALS: [Survive; 3] = [Survive::Nothing, Survive::Process, Survive::PowerCut];
const GUARANTEES: [Option<Guarantee>; 5] = [
    None,
    Some(Guarantee::DurableCache),
    Some(Guarantee::VolatileCache),
    Some(Guarantee::PageCache),
    Some(Guarantee::Nothing),
];

/// The contents of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Link {
    /// A tier that can be found with what the link says.
    Place(TierPlace),
    /// A tier in memory without a name, which only the options can name.
    Nameless,
}

/// Writes the file.
pub(super) fn write(disk: &dyn Disk, control: &Control, place: &TierPlace) -> Result<()> {
    let text = text(place)?;
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    let (mut version, mut end) = (VERSION, PATH + text.len());
    block[PATH..end].copy_from_slice(text.as_bytes());
    if let TierPlace::Memory(memory) = place {
        version = MEMORY_VERSION;
        for attribute in attributes(memory) {
            block[end] = attribute;
            end += 1;
        }
    }
    block[..8].copy_from_slice(MAGIC);
    block[VERSION_FIELD..CRC].copy_from_slice(&version.to_le_bytes());
    block[DATABASE..LEN].copy_from_slice(&control.database);
    block[LEN..PATH].copy_from_slice(&(text.len() as u16).to_le_bytes());
    let crc = crc32c(&block[DATABASE..end]);
    block[CRC..DATABASE].copy_from_slice(&crc.to_le_bytes());
    if disk.exists(TIER_NEW)? {
        disk.remove(TIER_NEW)?;
    }
    disk.open(TIER_NEW, OpenMode::CreateNew)?.write_durable(&[&block], 0)?;
    disk.rename(TIER_NEW, TIER)?;
    Ok(disk.sync_directory("")?)
}

/// Returns how the link names a place; refuses one that it cannot name.
pub(super) fn text(place: &TierPlace) -> Result<&str> {
    let path: &Path = match place {
        TierPlace::Home => return Ok(""),
        TierPlace::Directory(path) => path,
        TierPlace::Memory(memory) => match &memory.source {
            Source::File(path) => path,
            Source::Simulated(_) => return Ok(""),
            Source::Anonymous => {
                return Err(invalid("anonymous memory cannot be opened again: name a file or device for the tier"));
            }
        },
    };
    if !path.is_absolute() {
        return Err(invalid("a page tier needs an absolute path, which the database keeps"));
    }
    let text = path.to_str().ok_or_else(|| invalid("the path of a page tier must be UTF-8"))?;
    if PATH + text.len() + ATTRIBUTES > BLOCK_SIZE {
        return Err(invalid("the path of the page tier is too long"));
    }
    Ok(text)
}

/// Reads the file, which exists.
pub(super) fn read(disk: &dyn Disk, control: &Control) -> Result<Link> {
    let file = disk.open(TIER, OpenMode::Existing)?;
    let corrupt = |reason: String| Error::Corrupt { file: file.path(), offset: 0, page: None, reason };
    let damaged = || corrupt(format!("it does not say where the page tier is; {REMEDY}"));
    if file.len()? < BLOCK_SIZE as u64 {
        return Err(damaged());
    }
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    file.read_at(&mut block, 0)?;
    let version = u32::from_le_bytes(block[VERSION_FIELD..CRC].try_into().expect("four bytes"));
    let end = PATH + usize::from(u16::from_le_bytes([block[LEN], block[LEN + 1]]));
    let checked_end = if version == MEMORY_VERSION { end + ATTRIBUTES } else { end };
    let checked = block.get(DATABASE..checked_end).ok_or_else(damaged)?;
    if &block[..8] != MAGIC || block[CRC..DATABASE] != crc32c(checked).to_le_bytes() {
        return Err(damaged());
    }
    if version != VERSION && version != MEMORY_VERSION {
        return Err(corrupt("it has an unknown format version: a newer program wrote it".to_owned()));
    }
    if block[DATABASE..LEN] != control.database {
        return Err(corrupt(format!("it belongs to another database; {REMEDY}")));
    }
    let path = std::str::from_utf8(&block[PATH..end]).map_err(|_| damaged())?;
    if version == VERSION {
        let is_home = path.is_empty();
        return Ok(Link::Place(if is_home { TierPlace::Home } else { TierPlace::Directory(PathBuf::from(path)) }));
    }
    if path.is_empty() {
        return Ok(Link::Nameless);
    }
    let of = |at: usize| usize::from(block[end + at]);
    let (domain, survive, stated) = (DOMAINS.get(of(0)), SURVIVALS.get(of(1)), GUARANTEES.get(of(2)));
    let (Some(domain), Some(survive), Some(stated)) = (domain, survive, stated) else { return Err(damaged()) };
    let memory = TierMemory::new(Source::File(PathBuf::from(path)), *domain);
    Ok(Link::Place(TierPlace::Memory(TierMemory { survive: *survive, stated: *stated, ..memory })))
}

fn attributes(memory: &TierMemory) -> [u8; ATTRIBUTES] {
    let place = |found: Option<usize>| found.expect("every value has a number") as u8;
    [
        place(DOMAINS.iter().position(|domain| *domain == memory.domain)),
        place(SURVIVALS.iter().position(|survive| *survive == memory.survive)),
        place(GUARANTEES.iter().position(|stated| *stated == memory.stated)),
    ]
}

fn invalid(reason: &str) -> Error {
    Error::InvalidOption { option: "page_tier", reason: reason.to_owned() }
}
