//! The ways round what a system lacks.

use duramen_types::BLOCK_SIZE;

use super::*;
use crate::AlignedBuf;

#[test]
fn durable_writes_do_without_the_flag() {
    let home = tempfile::tempdir().unwrap();
    let options = RealDiskOptions { backend: Backend::Syscalls, direct: true };
    let disk = RealDisk::open(home.path(), options).unwrap();
    assert_eq!(disk.backend(), "pwritev2");
    disk.shared.dsync.store(false, Ordering::Relaxed);
    assert_eq!(disk.backend(), "pwritev and fdatasync");
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    let mut buf = AlignedBuf::zeroed(BLOCK_SIZE);
    buf.fill(7);
    file.write_durable(&[&buf], 0).unwrap();
    let mut back = AlignedBuf::zeroed(BLOCK_SIZE);
    file.read_at(&mut back, 0).unwrap();
    assert_eq!(back[..], buf[..]);
}

#[test]
fn refused_direct_io_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions { direct: false, ..Default::default() }).unwrap();
    assert!(!disk.is_direct());
    assert_eq!(disk.note(), None, "what was not asked for is not missed");
    // A file system without direct I/O, on every machine.
    assert!(!accepts_direct(Path::new("/proc/self/comm")).unwrap());
    assert!(accepts_direct(Path::new("/none/lock")).unwrap_err().is_not_found());
}

#[test]
fn missing_homes_are_made_and_unusable_ones_reported() {
    let home = tempfile::tempdir().unwrap();
    let inner = home.path().join("a/b");
    RealDisk::open(&inner, RealDiskOptions::default()).unwrap();
    assert!(inner.is_dir());
    std::fs::write(home.path().join("file"), "").unwrap();
    let error = RealDisk::open(&home.path().join("file"), RealDiskOptions::default()).unwrap_err();
    assert!(error.to_string().contains("/file`"), "{error}");
}
