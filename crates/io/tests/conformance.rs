//! The behaviour that every disk must have, run over the simulated one and every backend of the
//! real one.

use std::io::ErrorKind;
use std::sync::Arc;

use duramen_io::{AlignedBuf, Backend, Disk, File, MemoryDisk, OpenMode, RealDisk, RealDiskOptions, SimDisk};
use duramen_types::BLOCK_SIZE;

const BLOCK: u64 = BLOCK_SIZE as u64;

/// Runs `check` over a fresh disk of every kind.
fn on_every_disk(check: impl Fn(&dyn Disk)) {
    on_every_disk_to_write_to(&check);
    let home = tempfile::tempdir().unwrap();
    check(&MemoryDisk::over(home.path()).unwrap());
    assert_eq!(home.path().read_dir().unwrap().count(), 0, "nothing has been made");
}

/// Runs `check` over a fresh disk of every kind that keeps what is written.
fn on_every_disk_to_write_to(check: impl Fn(&dyn Disk)) {
    check(&SimDisk::new(1));
    for backend in [Backend::Syscalls, Backend::Auto, Backend::IoUring] {
        for direct in [true, false] {
            let home = tempfile::tempdir().unwrap();
            match RealDisk::open(&home.path().join("made/by/open"), RealDiskOptions { backend, direct, cached: &[] }) {
                Ok(disk) => check(&disk),
                Err(error) if backend == Backend::IoUring && error.kind == ErrorKind::Unsupported => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Returns `blocks` blocks that differ from each other and from those of other seeds.
fn pattern(blocks: usize, seed: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(blocks * BLOCK_SIZE);
    for (number, block) in buf.chunks_mut(BLOCK_SIZE).enumerate() {
        block.fill(seed ^ (number as u8).wrapping_mul(37) | 1);
        block[..8].copy_from_slice(&(number as u64 * 1000 + u64::from(seed)).to_le_bytes());
    }
    buf
}

fn create(disk: &dyn Disk, name: &str) -> Arc<dyn File> {
    disk.open(name, OpenMode::CreateNew).unwrap()
}

fn read(file: &dyn File, blocks: usize, offset: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(blocks * BLOCK_SIZE);
    buf.fill(0xee);
    file.read_at(&mut buf, offset).unwrap();
    buf
}

#[test]
fn what_is_written_is_read_back() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        assert!(file.is_empty().unwrap());
        let (first, second) = (pattern(3, 1), pattern(2, 2));
        file.write_at(&[&first, &second], 0).unwrap();
        assert_eq!(file.len().unwrap(), 5 * BLOCK);
        assert_eq!(&read(&*file, 3, 0)[..], &first[..]);
        assert_eq!(&read(&*file, 2, 3 * BLOCK)[..], &second[..]);

        let third = pattern(2, 3);
        file.write_durable(&[&third], BLOCK).unwrap();
        assert_eq!(&read(&*file, 1, 0)[..], &first[..BLOCK_SIZE]);
        assert_eq!(&read(&*file, 2, BLOCK)[..], &third[..]);
        file.sync().unwrap();

        let again = disk.open("data", OpenMode::Existing).unwrap();
        assert_eq!(&read(&*again, 2, BLOCK)[..], &third[..]);
        assert!(again.path().ends_with("/data"));
    });
}

#[test]
fn nothing_is_transferred_by_empty_calls() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        file.write_at(&[], 0).unwrap();
        file.write_durable(&[], BLOCK).unwrap();
        file.write_batch(&[]).unwrap();
        file.read_batch(&mut []).unwrap();
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn batches_transfer_every_range() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        // More ranges than a ring holds, of several lengths, backwards and with gaps.
        let parts: Vec<AlignedBuf> = (0..150).map(|number| pattern(1 + number % 3, number as u8)).collect();
        let writes: Vec<(u64, &[u8])> =
            parts.iter().enumerate().rev().map(|(number, part)| (number as u64 * 4 * BLOCK, &part[..])).collect();
        file.write_batch(&writes).unwrap();
        let mut bufs: Vec<AlignedBuf> = parts.iter().map(|part| AlignedBuf::zeroed(part.len())).collect();
        let mut reads: Vec<(u64, &mut [u8])> =
            bufs.iter_mut().enumerate().map(|(number, buf)| (number as u64 * 4 * BLOCK, &mut buf[..])).collect();
        file.read_batch(&mut reads).unwrap();
        for (buf, part) in bufs.iter().zip(&parts) {
            assert_eq!(&buf[..], &part[..]);
        }
        assert!(read(&*file, 1, 3 * BLOCK).iter().all(|byte| *byte == 0), "gaps are zeros");
    });
}

#[test]
fn writes_take_more_parts_than_one_system_call() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        let all = pattern(2500, 9);
        let parts: Vec<&[u8]> = all.chunks(BLOCK_SIZE).collect();
        file.write_durable(&parts, 4 * BLOCK).unwrap();
        assert_eq!(file.len().unwrap(), 2504 * BLOCK);
        assert_eq!(&read(&*file, 2500, 4 * BLOCK)[..], &all[..]);
        assert!(read(&*file, 4, 0).iter().all(|byte| *byte == 0), "the gap is zeros");
    });
}

#[test]
fn reads_of_neighbours_fill_their_own_buffers() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        let all = pattern(700, 5);
        file.write_at(&[&all], 0).unwrap();
        // More neighbours than are read at once, with gaps, and one that comes again.
        let places: Vec<usize> = (0..600).filter(|place| place % 397 != 13).chain([3]).collect();
        let mut bufs: Vec<AlignedBuf> = places.iter().map(|_| AlignedBuf::zeroed(BLOCK_SIZE)).collect();
        let mut reads: Vec<(u64, &mut [u8])> =
            places.iter().zip(&mut bufs).map(|(place, buf)| (*place as u64 * BLOCK, &mut buf[..])).collect();
        file.read_batch(&mut reads).unwrap();
        for (place, buf) in places.iter().zip(&bufs) {
            assert_eq!(buf[..], all[place * BLOCK_SIZE..][..BLOCK_SIZE], "{place}");
        }
    });
}

#[test]
fn reading_behind_the_end_is_an_error_that_says_where() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        file.write_at(&[&pattern(2, 1)], 0).unwrap();
        for (blocks, offset) in [(1, 2 * BLOCK), (2, BLOCK), (1, 100 * BLOCK)] {
            let error = file.read_at(&mut AlignedBuf::zeroed(blocks * BLOCK_SIZE), offset).unwrap_err();
            assert_eq!(error.kind, ErrorKind::UnexpectedEof);
            let text = error.to_string();
            for part in [&file.path(), &format!("offset {offset}"), "ends at byte 8192"] {
                assert!(text.contains(part), "{text}");
            }
            let (mut fine, mut beyond) = (AlignedBuf::zeroed(BLOCK_SIZE), AlignedBuf::zeroed(blocks * BLOCK_SIZE));
            let error = file.read_batch(&mut [(0, &mut fine[..]), (offset, &mut beyond[..])]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::UnexpectedEof);
            assert!(error.to_string().contains(&format!("offset {offset}")), "{error}");
        }
    });
}

#[test]
fn lengths_need_not_be_whole_blocks() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        file.write_at(&[&pattern(3, 5)], 0).unwrap();
        file.set_len(2 * BLOCK + 100).unwrap();
        assert_eq!(file.len().unwrap(), 2 * BLOCK + 100);
        let (mut fine, mut beyond) = (AlignedBuf::zeroed(BLOCK_SIZE), AlignedBuf::zeroed(2 * BLOCK_SIZE));
        let error = file.read_at(&mut fine, 2 * BLOCK).unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnexpectedEof);
        let error = file.read_batch(&mut [(0, &mut fine[..]), (BLOCK, &mut beyond[..])]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::UnexpectedEof);
        file.set_len(5 * BLOCK).unwrap();
        let tail = read(&*file, 3, 2 * BLOCK);
        assert_eq!(&tail[..100], &pattern(3, 5)[2 * BLOCK_SIZE..2 * BLOCK_SIZE + 100]);
        assert!(tail[100..].iter().all(|byte| *byte == 0), "what was cut off does not come back");
    });
}

#[test]
fn allocation_extends_with_zeros_and_keeps_what_is_there() {
    on_every_disk(|disk| {
        let file = create(disk, "segment");
        let head = pattern(2, 7);
        file.write_at(&[&head], 0).unwrap();
        file.allocate((5 << 20) / 2 + 1).unwrap();
        let len = file.len().unwrap();
        assert_eq!(len, (5 << 20) / 2 + BLOCK, "rounded up to whole blocks");
        let all = read(&*file, (len / BLOCK) as usize, 0);
        assert_eq!(&all[..2 * BLOCK_SIZE], &head[..]);
        assert!(all[2 * BLOCK_SIZE..].iter().all(|byte| *byte == 0));
        file.allocate(BLOCK).unwrap();
        assert_eq!(file.len().unwrap(), len, "allocation never shrinks");
        file.sync().unwrap();
    });
}

#[test]
fn what_is_discarded_leaves_the_rest() {
    on_every_disk(|disk| {
        let file = create(disk, "file");
        file.write_at(&[&pattern(6, 1)], 0).unwrap();
        file.discard(BLOCK..3 * BLOCK).unwrap();
        assert_eq!(file.len().unwrap(), 6 * BLOCK);
        assert_eq!(read(&*file, 1, 0)[..], pattern(6, 1)[..BLOCK as usize]);
        assert_eq!(read(&*file, 3, 3 * BLOCK)[..], pattern(6, 1)[3 * BLOCK as usize..]);
        file.write_at(&[&pattern(2, 2)], BLOCK).unwrap();
        assert_eq!(read(&*file, 2, BLOCK)[..], pattern(2, 2)[..]);
    });
}

#[test]
fn names_come_go_and_move() {
    on_every_disk(|disk| {
        assert!(disk.list("").unwrap().is_empty());
        disk.create_directory("log").unwrap();
        disk.create_directory("log").unwrap();
        for name in ["data", "control", "log/2", "log/1"] {
            create(disk, name);
        }
        let _lock = disk.lock().unwrap();
        assert_eq!(disk.list("").unwrap(), ["control", "data"]);
        assert_eq!(disk.list("log").unwrap(), ["1", "2"]);
        assert!(disk.exists("log/1").unwrap() && disk.exists("log").unwrap() && !disk.exists("log/3").unwrap());

        let one = disk.open("log/1", OpenMode::Existing).unwrap();
        one.write_at(&[&pattern(1, 1)], 0).unwrap();
        disk.rename("log/1", "log/2").unwrap();
        assert_eq!(disk.list("log").unwrap(), ["2"]);
        let moved = disk.open("log/2", OpenMode::Existing).unwrap();
        assert_eq!(&read(&*moved, 1, 0)[..], &pattern(1, 1)[..]);
        disk.sync_directory("log").unwrap();
        disk.sync_directory("").unwrap();

        disk.remove("log/2").unwrap();
        assert_eq!(&read(&*moved, 1, 0)[..], &pattern(1, 1)[..], "an open file outlives its name");
        disk.sync_directory("log").unwrap();
        moved.write_durable(&[&pattern(1, 2)], 0).unwrap();
        assert!(disk.list("log").unwrap().is_empty());
    });
}

#[test]
fn missing_and_existing_files_are_told_apart() {
    on_every_disk(|disk| {
        create(disk, "data");
        let error = disk.open("data", OpenMode::CreateNew).unwrap_err();
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("data`"), "{error}");
        for error in [
            disk.open("none", OpenMode::Existing).unwrap_err(),
            disk.open("none/none", OpenMode::CreateNew).unwrap_err(),
            disk.remove("none").unwrap_err(),
            disk.rename("none", "data").unwrap_err(),
            disk.list("none").unwrap_err(),
            disk.sync_directory("none").unwrap_err(),
        ] {
            assert!(error.is_not_found(), "{error}");
            assert!(error.to_string().contains("none"), "{error}");
        }
        let error = disk.rename("none", "data").unwrap_err().to_string();
        let (none, data) = (error.find("none`").unwrap(), error.find("data`").unwrap());
        assert!(error.starts_with("cannot rename `") && none < data, "{error}");
    });
}

#[test]
fn the_home_is_locked_once() {
    on_every_disk_to_write_to(|disk| {
        let held = disk.lock().unwrap();
        let error = disk.lock().unwrap_err();
        assert_eq!(error.kind, ErrorKind::ResourceBusy);
        assert!(error.to_string().contains("already open in this process"), "{error}");
        drop(held);
        drop(disk.lock().unwrap());
    });
}

#[test]
fn a_second_opener_of_a_real_home_is_kept_out() {
    let home = tempfile::tempdir().unwrap();
    let [one, two] = [(); 2].map(|()| RealDisk::open(home.path(), RealDiskOptions::default()).unwrap());
    let held = one.lock().unwrap();
    assert_eq!(two.lock().unwrap_err().kind, ErrorKind::ResourceBusy);
    std::fs::write(home.path().join("lock"), "4294967295\n").unwrap();
    // The system may report the holder, which counts then.
    let error = two.lock().unwrap_err().to_string();
    assert!(["process 4294967295", "in this process"].iter().any(|place| error.contains(place)), "{error}");
    std::fs::write(home.path().join("lock"), "").unwrap();
    let error = two.lock().unwrap_err().to_string();
    assert!(["elsewhere", "in this process"].iter().any(|place| error.contains(place)), "{error}");
    drop(held);
    drop(two.lock().unwrap());
}

#[test]
fn counters_count() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        let before = disk.counters();
        let buf = pattern(2, 1);
        file.write_at(&[&buf, &buf], 0).unwrap();
        file.write_durable(&[&buf], 0).unwrap();
        file.write_batch(&[(0, &buf), (2 * BLOCK, &buf), (4 * BLOCK, &buf)]).unwrap();
        file.sync().unwrap();
        disk.sync_directory("").unwrap();
        read(&*file, 1, 0);
        let (mut one, mut two) = (AlignedBuf::zeroed(BLOCK_SIZE), AlignedBuf::zeroed(BLOCK_SIZE));
        file.read_batch(&mut [(0, &mut one[..]), (BLOCK, &mut two[..])]).unwrap();
        let after = disk.counters();
        assert_eq!(after.writes - before.writes, 5);
        assert_eq!(after.written_bytes - before.written_bytes, 12 * BLOCK);
        assert_eq!(after.syncs - before.syncs, 3);
        assert_eq!(after.reads - before.reads, 3);
        assert_eq!(after.read_bytes - before.read_bytes, 3 * BLOCK);
    });
}

#[test]
fn threads_share_files() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..20 {
                        let part = pattern(4, (thread * 50 + round) as u8);
                        let at = (thread * 20 + round) * 4 * BLOCK;
                        let (low, high) = part.split_at(2 * BLOCK_SIZE);
                        file.write_batch(&[(at, low), (at + 2 * BLOCK, high)]).unwrap();
                        assert_eq!(&read(&**file, 4, at)[..], &part[..]);
                    }
                });
            }
        });
        assert_eq!(file.len().unwrap(), 320 * BLOCK);
    });
}

#[test]
fn transfers_must_be_aligned() {
    on_every_disk(|disk| {
        let file = create(disk, "data");
        let buf = pattern(2, 1);
        let refused = |call: &dyn Fn()| {
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
        };
        refused(&|| drop(file.write_at(&[&buf], 512)));
        refused(&|| drop(file.write_at(&[&buf[512..]], 0)));
        refused(&|| drop(file.write_durable(&[&buf[..512]], 0)));
        refused(&|| drop(file.write_batch(&[(0, &buf), (512, &buf)])));
        refused(&|| drop(file.read_at(&mut AlignedBuf::zeroed(1), 1)));
        refused(&|| drop(disk.open("../data", OpenMode::CreateNew)));
        refused(&|| drop(disk.open("a/b/c", OpenMode::CreateNew)));
        assert!(file.is_empty().unwrap());
    });
}

#[test]
fn a_write_to_a_full_device_has_failed() {
    // The kernel's always-full device replaces a full file system.
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions { direct: false, ..Default::default() }).unwrap();
    std::os::unix::fs::symlink("/dev/full", home.path().join("data")).unwrap();
    let file = disk.open("data", OpenMode::Existing).unwrap();
    let error = file.write_at(&[&pattern(1, 1)], 8192).unwrap_err();
    assert!(!error.is_full() && error.reason.contains("No space left"), "{error}");
    assert!(error.to_string().contains("write 4096 bytes at offset 8192 of"), "{error}");
}

#[test]
fn a_directory_that_is_only_read_stays_as_it_is() {
    let home = tempfile::tempdir().unwrap();
    let real = RealDisk::open(home.path(), RealDiskOptions::default()).unwrap();
    real.create_directory("log").unwrap();
    let contents = [("data", pattern(4, 1)), ("old", pattern(1, 2)), ("log/one", pattern(2, 3))];
    for (name, contents) in &contents {
        create(&real, name).write_at(&[contents], 0).unwrap();
    }
    let held = real.lock().unwrap();
    let disk = MemoryDisk::over(home.path()).unwrap();
    let error = disk.lock().unwrap_err();
    assert_eq!(error.kind, ErrorKind::ResourceBusy);
    assert!(error.to_string().contains(&format!("open in process {}", std::process::id())), "{error}");
    drop(held);
    let readers = [disk.lock().unwrap(), MemoryDisk::over(home.path()).unwrap().lock().unwrap()];
    assert_eq!(real.lock().unwrap_err().kind, ErrorKind::ResourceBusy, "nobody opens it meanwhile");
    drop(readers);

    let data = disk.open("data", OpenMode::Existing).unwrap();
    assert_eq!(&read(&*data, 4, 0)[..], &contents[0].1[..]);
    data.write_at(&[&pattern(1, 9)], BLOCK).unwrap();
    data.set_len(3 * BLOCK).unwrap();
    data.allocate(5 * BLOCK).unwrap();
    let again = read(&*disk.open("data", OpenMode::Existing).unwrap(), 5, 0);
    assert_eq!(&again[..BLOCK_SIZE], &contents[0].1[..BLOCK_SIZE]);
    assert_eq!(&again[BLOCK_SIZE..2 * BLOCK_SIZE], &pattern(1, 9)[..]);
    assert_eq!(&again[2 * BLOCK_SIZE..3 * BLOCK_SIZE], &contents[0].1[2 * BLOCK_SIZE..3 * BLOCK_SIZE]);
    assert!(again[3 * BLOCK_SIZE..].iter().all(|byte| *byte == 0));
    disk.rename("log/one", "log/two").unwrap();
    create(&disk, "log/three");
    disk.remove("old").unwrap();
    assert_eq!(disk.list("log").unwrap(), ["three", "two"]);
    assert_eq!(disk.list("").unwrap(), ["data"]);
    assert_eq!(&read(&*disk.open("log/two", OpenMode::Existing).unwrap(), 2, 0)[..], &contents[2].1[..]);
    for name in ["old", "log/one"] {
        assert!(!disk.exists(name).unwrap() && disk.open(name, OpenMode::Existing).unwrap_err().is_not_found());
    }
    for (name, contents) in &contents {
        assert_eq!(std::fs::read(home.path().join(name)).unwrap(), contents[..], "{name}");
    }
    assert_eq!((real.list("").unwrap(), real.list("log").unwrap().len()), (vec!["data".into(), "old".into()], 1));
}

#[test]
fn a_disk_without_content_has_lengths_and_zeros() {
    let disk = MemoryDisk::without_content();
    let file = create(&disk, "data");
    file.allocate(2 * BLOCK).unwrap();
    file.write_durable(&[&pattern(2, 1)], BLOCK).unwrap();
    let again = disk.open("data", OpenMode::Existing).unwrap();
    assert_eq!(again.len().unwrap(), 3 * BLOCK);
    assert!(read(&*again, 3, 0).iter().all(|byte| *byte == 0));
    assert_eq!(disk.counters().written_bytes, 2 * BLOCK);
}
