//! Fallbacks for what a system lacks.

use duramen_types::BLOCK_SIZE;

use super::*;
use crate::AlignedBuf;

#[test]
fn durable_writes_do_without_the_flag() {
    let home = tempfile::tempdir().unwrap();
    let options = RealDiskOptions { backend: Backend::Syscalls, ..Default::default() };
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
    assert!(!names::accepts_direct(&names::open_path(Path::new("/proc/self")).unwrap(), "comm").unwrap());
}

#[test]
fn named_files_use_the_system_cache() {
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions { cached: &["data"], ..Default::default() }).unwrap();
    let is_direct = |name| {
        let _open = disk.open(name, OpenMode::CreateNew).unwrap();
        let path = home.path().join(name);
        let mut own = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
        let handle = own.find(|entry| std::fs::read_link(entry.path()).is_ok_and(|target| target == path)).unwrap();
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(handle.file_name())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        i32::from_str_radix(flags, 8).unwrap() & libc::O_DIRECT != 0
    };
    assert_eq!((is_direct("data"), is_direct("other")), (false, disk.is_direct()));
}

#[test]
fn missing_homes_are_made_and_unusable_ones_reported() {
    let home = tempfile::tempdir().unwrap();
    let inner = home.path().join("a/b");
    RealDisk::open(&inner, RealDiskOptions::default()).unwrap();
    assert!(inner.is_dir());
    let refused = |path: &Path, words: &[&str]| {
        let error = RealDisk::open(path, RealDiskOptions::default()).unwrap_err().to_string();
        words.iter().for_each(|word| assert!(error.contains(word), "no `{word}` in: {error}"));
    };
    // A file and a link that leads nowhere were both "File exists".
    std::fs::write(home.path().join("file"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", home.path().join("link")).unwrap();
    refused(&home.path().join("file"), &["cannot create the directory `", "/file`: it is a file"]);
    refused(&home.path().join("file/inner"), &["/file`: it is a file"]);
    refused(&home.path().join("link"), &["/link`: it is a link to `nowhere`, which does not exist"]);
    // The directory was named as "``".
    refused(Path::new(""), &["its path is empty; the current directory is `.`"]);
    let disk = RealDisk::open(&inner, RealDiskOptions::default()).unwrap();
    std::fs::write(inner.join("log"), "").unwrap();
    let error = disk.create_directory("log").unwrap_err().to_string();
    assert!(error.ends_with("a/b/log`: it is a file"), "{error}");
}

/// A directory was moved away and replaced while it was open: files went to the new one, and two
/// databases were lost.
#[test]
fn names_stay_in_the_directory_that_was_opened() {
    let root = tempfile::tempdir().unwrap();
    let (path, moved) = (root.path().join("db"), root.path().join("db.old"));
    let disk = RealDisk::open(&path, RealDiskOptions::default()).unwrap();
    disk.create_directory("log").unwrap();
    let file = disk.open("log/1", OpenMode::CreateNew).unwrap();
    disk.verify_home().unwrap();
    file.verify_name().unwrap();

    std::fs::rename(&path, &moved).unwrap();
    let error = disk.verify_home().unwrap_err().to_string();
    assert!(error.contains("/db`: it is no longer there"), "{error}");
    std::fs::create_dir_all(path.join("log")).unwrap();
    std::fs::write(path.join("log/1"), "the other's").unwrap();
    let error = disk.verify_home().unwrap_err().to_string();
    assert!(error.contains("/db`: another directory is in its place"), "{error}");
    disk.open("log/2", OpenMode::CreateNew).unwrap();
    disk.rename("log/2", "log/3").unwrap();
    disk.open("data", OpenMode::CreateNew).unwrap();
    disk.sync_directory("log").unwrap();
    disk.remove("log/1").unwrap();
    assert_eq!(disk.list("log").unwrap(), ["3"]);
    assert_eq!(disk.list("").unwrap(), ["data"]);
    assert!(disk.exists("data").unwrap() && !disk.exists("log/1").unwrap());
    assert!(moved.join("log/3").is_file() && !path.join("log/3").exists());
    assert_eq!(std::fs::read(path.join("log/1")).unwrap(), b"the other's");

    // Back again, except for a subdirectory and a file.
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::rename(&moved, &path).unwrap();
    disk.verify_home().unwrap();
    let file = disk.open("data", OpenMode::Existing).unwrap();
    std::fs::rename(path.join("data"), path.join("data.old")).unwrap();
    assert!(file.verify_name().unwrap_err().to_string().contains("/data`: it is no longer there"));
    std::fs::write(path.join("data"), "").unwrap();
    assert!(file.verify_name().unwrap_err().to_string().contains("/data`: another file is in its place"));
    std::fs::rename(path.join("log"), path.join("log.old")).unwrap();
    std::fs::create_dir(path.join("log")).unwrap();
    assert!(disk.verify_home().unwrap_err().to_string().contains("/log`: another directory is in its place"));
}

/// Without the file `lock` there was no lock: a second opener was admitted.
#[test]
fn the_lock_does_not_depend_on_files() {
    let home = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| RealDisk::open(home.path(), RealDiskOptions::default()).unwrap());
    let held = one.lock().unwrap();
    std::fs::remove_file(home.path().join("lock")).unwrap();
    let error = two.lock().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ResourceBusy);
    assert!(error.to_string().contains("removing files does not change that"), "{error}");
    drop(held);
    drop(two.lock().unwrap());
    // A separate file, wherever it is.
    let file = one.open("control", OpenMode::CreateNew).unwrap();
    file.lock().unwrap();
    std::fs::create_dir(home.path().join("other")).unwrap();
    std::fs::rename(home.path().join("control"), home.path().join("other/control")).unwrap();
    let other = RealDisk::open(&home.path().join("other"), RealDiskOptions::default()).unwrap();
    let again = other.open("control", OpenMode::Existing).unwrap();
    assert_eq!(again.lock().unwrap_err().kind, ErrorKind::ResourceBusy);
    drop(file);
    again.lock().unwrap();
}

/// The rings know the locked directory, which keeps it open.
#[test]
fn rings_do_not_keep_a_lock_that_is_released() {
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions::default()).unwrap();
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    let block = AlignedBuf::zeroed(BLOCK_SIZE);
    for _ in 0..3 {
        let held = disk.lock().unwrap();
        file.write_batch(&[(0, &block), (4 * BLOCK_SIZE as u64, &block)]).unwrap();
        let other = RealDisk::open(home.path(), RealDiskOptions::default()).unwrap();
        assert_eq!(other.lock().unwrap_err().kind, ErrorKind::ResourceBusy);
        drop(held);
        drop(other.lock().unwrap());
    }
}

/// A file system that reported more bytes than requested made the writer panic.
#[test]
fn impossible_counts_are_errors() {
    assert_eq!(sys::checked(4096, 4096).unwrap(), 4096);
    assert_eq!(sys::checked(0, 4096).unwrap(), 0);
    let error = sys::checked(4097, 4096).unwrap_err().to_string();
    assert_eq!(error, "the system reports 4097 transferred bytes, but only 4096 were requested");
}

/// A read that stopped inside a block of a longer file was reported as "the file ends at byte
/// 12288".
#[test]
fn a_short_read_inside_a_block_says_what_was_read() {
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions { direct: false, ..Default::default() }).unwrap();
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    file.set_len(3 * BLOCK_SIZE as u64).unwrap();
    let place = disk.home.place("open", "data").unwrap();
    let (directory, name) = (place.directory, "data".to_owned());
    let handle = names::open(directory.as_fd(), "data", libc::O_RDONLY, 0).unwrap();
    let is_locked = AtomicBool::new(false);
    let is_direct = false;
    let file = RealFile {
        disk: Arc::clone(&disk.shared),
        file: handle,
        path: place.path,
        directory,
        name,
        is_direct,
        is_locked,
    };
    let short = |done| Error::new(ErrorKind::UnexpectedEof, sys::Ended { done });
    let error = file.read_error(2 * BLOCK_SIZE, 4096, &short(5000)).to_string();
    assert!(error.contains("cannot read 8192 bytes at offset 4096 of `"), "{error}");
    assert!(error.ends_with("/data`: the system stopped after 5000 bytes, although the file has 12288"), "{error}");
    let error = file.read_error(2 * BLOCK_SIZE, 8192, &short(4096)).to_string();
    assert!(error.ends_with("the file ends at byte 12288"), "{error}");
}

/// A full disk and a limit on the length of files are refusals when space is reserved, and failures
/// of a write or sync.
#[test]
fn refusals_and_failures_are_told_apart() {
    for code in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
        let error = DiskError::system("allocate 1 bytes for", "data", &Error::from_raw_os_error(code));
        assert!(error.is_full(), "{error}");
        assert!(!error.of_write().is_full());
    }
    for code in [libc::EMFILE, libc::ENFILE] {
        assert!(DiskError::system("open", "data", &Error::from_raw_os_error(code)).is_passing());
    }
}
