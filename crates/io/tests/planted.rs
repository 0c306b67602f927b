//! The one defect planted in this crate: synced names are lost.
#![cfg(duramen_planted)]

use duramen_io::{CrashChoice, Disk, OpenMode, SimDisk};
use duramen_types::planted::{Bug, plant};

#[test]
fn skipped_directory_syncs_lose_names() {
    let disk = SimDisk::new(1);
    disk.open("data", OpenMode::CreateNew).unwrap();
    let planted = plant(Bug::SkipDirectorySync);
    disk.sync_directory("").unwrap();
    assert!(disk.crash_image(&CrashChoice::Nothing).file_names().is_empty());
    drop(planted);
    disk.sync_directory("").unwrap();
    assert_eq!(disk.crash_image(&CrashChoice::Nothing).file_names(), ["data"]);
}
