//! The file that marks a directory in which a database is being created.

use duramen_io::{AlignedBuf, Disk, OpenMode};
use duramen_types::BLOCK_SIZE;

use super::files::CREATING;
use crate::error::Result;

/// The marker's text. A crash may keep the marker's name and lose its contents, so an empty marker
/// counts too.
const MARKER: &[u8] = b"A Duramen database is being made here.\n";

/// Marks the directory, durably, before anything else is put into it.
pub(super) fn mark(disk: &dyn Disk) -> Result<()> {
    let file = disk.open(CREATING, OpenMode::CreateNew)?;
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    block[..MARKER.len()].copy_from_slice(MARKER);
    file.write_at(&[&block], 0)?;
    file.sync()?;
    disk.sync_directory("")?;
    Ok(())
}

pub(super) fn is_marker(disk: &dyn Disk) -> Result<bool> {
    let file = disk.open(CREATING, OpenMode::Existing)?;
    match file.len()? {
        0 => Ok(true),
        len if len == BLOCK_SIZE as u64 => {
            let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
            file.read_at(&mut block, 0)?;
            Ok(block.starts_with(MARKER) || block.iter().all(|&byte| byte == 0))
        }
        _ => Ok(false),
    }
}
