//! Extends a file ahead of need, without delaying writes for which other threads wait.

use std::time::Duration;

use duramen_sync::clock::Instant;
use duramen_sync::thread;

use crate::disk::{File, Result};

/// Bytes written at a time: the device needs for them about as long as for one synchronous write.
const STEP: u64 = 256 << 10;
/// A pause is this many times as long as the step before it, so that the device is idle most of the
/// time...
const PAUSES: u32 = 3;
/// ...but no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_millis(4);

/// Does what [`File::allocate`] does, in small steps with pauses. Once `hurry` returns that a
/// thread needs the file, there are no more pauses.
///
/// # Errors
/// Those of [`File::allocate`]; the file may already have become longer.
pub fn throttled_allocate(file: &dyn File, len: u64, hurry: impl Fn() -> bool) -> Result<()> {
    let mut at = file.len()?;
    while at < len {
        let start = Instant::now();
        at = len.min(at.saturating_add(STEP));
        file.allocate(at)?;
        if at < len && !hurry() {
            thread::sleep((start.elapsed() * PAUSES).min(LONGEST_PAUSE));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{Disk, OpenMode, SimDisk};

    #[test]
    fn the_file_gets_its_length_with_and_without_hurry() {
        let disk = SimDisk::new(7);
        for (name, len) in [("a", 3 * STEP + 4096), ("b", STEP), ("c", 0)] {
            for from in [0, 1] {
                let file = disk.open(&format!("{name}{from}"), OpenMode::CreateNew).unwrap();
                file.allocate(from * 8192).unwrap();
                let asked = Cell::new(0);
                throttled_allocate(&*file, len, || {
                    asked.set(asked.get() + 1);
                    asked.get() > 1
                })
                .unwrap();
                assert_eq!(file.len().unwrap(), len.max(from * 8192));
                assert!(asked.get() <= 3, "it is asked between two steps");
            }
        }
    }
}
