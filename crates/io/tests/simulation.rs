//! The behaviour of only the simulated disk: crash, tear, lose, corrupt, fill up and fail on
//! request.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use duramen_io::{AlignedBuf, CrashChoice, Disk, DiskError, Fault, File, OpenMode, SimDisk};
use duramen_types::{BLOCK_SIZE, SECTOR_SIZE};

const BLOCK: u64 = BLOCK_SIZE as u64;

fn filled(blocks: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(blocks * BLOCK_SIZE);
    buf.fill(byte);
    buf
}

fn write(file: &dyn File, blocks: usize, byte: u8, block: u64) -> duramen_io::Result<()> {
    file.write_at(&[&filled(blocks, byte)], block * BLOCK)
}

/// Returns the first byte of every block.
fn bytes(disk: &SimDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, OpenMode::Existing).unwrap();
    let mut buf = AlignedBuf::zeroed(file.len().unwrap() as usize);
    if !file.is_empty().unwrap() {
        file.read_at(&mut buf, 0).unwrap();
    }
    buf.chunks(BLOCK_SIZE).filter(|_| !file.is_empty().unwrap()).map(|block| block[0]).collect()
}

/// Makes a disk with one durable file of four blocks of ones, on which nothing is pending.
fn prepared() -> (SimDisk, Arc<dyn File>) {
    let disk = SimDisk::new(7);
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    write(&*file, 4, 1, 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    assert_eq!(disk.unsynced(), 0);
    (disk, file)
}

#[test]
fn subsets_choose_single_writes() {
    let (disk, file) = prepared();
    write(&*file, 1, 2, 0).unwrap();
    write(&*file, 2, 3, 1).unwrap();
    write(&*file, 1, 4, 1).unwrap();
    assert_eq!(disk.unsynced(), 3);
    let image = |choice| bytes(&disk.crash_image(&choice), "data");
    assert_eq!(image(CrashChoice::Nothing), [1, 1, 1, 1]);
    assert_eq!(image(CrashChoice::Everything), [2, 4, 3, 1]);
    assert_eq!(image(CrashChoice::Subset(0b001)), [2, 1, 1, 1]);
    assert_eq!(image(CrashChoice::Subset(0b010)), [1, 3, 3, 1]);
    assert_eq!(image(CrashChoice::Subset(0b101)), [2, 4, 1, 1]);
    assert_eq!(bytes(&disk.image(), "data"), [2, 4, 3, 1]);
    assert_eq!(bytes(&disk, "data"), [2, 4, 3, 1], "images leave the disk alone");
    file.sync().unwrap();
    assert_eq!(disk.unsynced(), 0);
    assert_eq!(image(CrashChoice::Nothing), [2, 4, 3, 1]);
}

#[test]
fn images_are_disks_of_their_own() {
    let (disk, file) = prepared();
    let _lock = disk.lock().unwrap();
    disk.set_capacity(0);
    disk.crash();
    assert_eq!(write(&*file, 1, 2, 0).unwrap_err().reason, "simulated crash");
    let image = disk.crash_image(&CrashChoice::Nothing);
    assert_eq!((image.operations(), image.unsynced(), image.crashed_in()), (0, 0, None));
    let _lock = image.lock().unwrap();
    let copy = image.open("data", OpenMode::Existing).unwrap();
    write(&*copy, 1, 9, 5).unwrap();
    assert_eq!(bytes(&image, "data"), [1, 1, 1, 1, 0, 9]);
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "data"), [1, 1, 1, 1]);
}

#[test]
fn a_crash_stops_everything() {
    let (disk, file) = prepared();
    disk.crash_at(disk.operations() + 1);
    write(&*file, 1, 2, 0).unwrap();
    let error = write(&*file, 1, 3, 1).unwrap_err();
    assert_eq!((error.kind, error.reason.as_str()), (ErrorKind::Other, "simulated crash"));
    assert_eq!(disk.crashed_in().unwrap(), "write 4096 bytes at offset 4096 of `simulated disk/data`");
    let errors = [
        file.sync().unwrap_err(),
        file.len().unwrap_err(),
        file.read_at(&mut filled(1, 0), 0).unwrap_err(),
        disk.exists("data").unwrap_err(),
        disk.list("").unwrap_err(),
        disk.lock().unwrap_err(),
        disk.open("data", OpenMode::Existing).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.reason == "simulated crash"));
    assert_eq!(disk.unsynced(), 2, "the write in flight may have arrived");
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Subset(0b10)), "data"), [1, 3, 1, 1]);
}

#[test]
fn a_crash_leaves_the_rest_of_a_batch_in_flight() {
    let (disk, file) = prepared();
    let bufs = [2, 3, 4].map(|byte| filled(1, byte));
    let batch: Vec<(u64, &[u8])> = (0..).zip(&bufs).map(|(block, buf)| (block * BLOCK, &buf[..])).collect();
    disk.crash_at(disk.operations() + 1);
    file.write_batch(&batch).unwrap_err();
    assert_eq!(disk.unsynced(), 3);
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Subset(0b100)), "data"), [1, 1, 4, 1]);
    file.write_batch(&batch).unwrap_err();
    assert_eq!(disk.unsynced(), 3, "nothing is written without power");
}

#[test]
fn durable_writes_are_durable_unless_in_flight() {
    let (disk, file) = prepared();
    write(&*file, 3, 2, 0).unwrap();
    file.write_durable(&[&filled(1, 3)], BLOCK).unwrap();
    file.write_durable(&[&filled(1, 4)], 6 * BLOCK).unwrap();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Nothing), "data"), [1, 3, 1, 1, 0, 0, 4]);
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "data"), [2, 3, 2, 1, 0, 0, 4]);
    disk.crash_at(disk.operations());
    file.write_durable(&[&filled(1, 5)], 6 * BLOCK).unwrap_err();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Nothing), "data")[6], 4);
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "data")[6], 5);
}

#[test]
fn torn_writes_mix_whole_sectors() {
    let (disk, file) = prepared();
    write(&*file, 1, 2, 0).unwrap();
    write(&*file, 1, 3, 0).unwrap();
    let mut seen = BTreeSet::new();
    let mut torn = 0;
    for seed in 0..200 {
        let block = disk.crash_image(&CrashChoice::Random(seed)).durable_bytes("data").unwrap()[..BLOCK_SIZE].to_vec();
        let sectors: Vec<u8> = block.chunks(SECTOR_SIZE).map(|sector| sector[0]).collect();
        assert!(block.chunks(SECTOR_SIZE).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        torn += usize::from(sectors.iter().any(|sector| *sector != sectors[0]));
        seen.extend(sectors);
        let again = disk.crash_image(&CrashChoice::Random(seed)).durable_bytes("data").unwrap();
        assert_eq!(&again[..BLOCK_SIZE], &block[..], "the same seed tears the same way");
    }
    assert_eq!(seen, BTreeSet::from([1, 2, 3]), "the old and both new values occur");
    assert!((20..180).contains(&torn), "{torn} of 200 images are torn");
}

#[test]
fn lengths_are_lost_apart_from_data() {
    let (disk, file) = prepared();
    write(&*file, 2, 2, 4).unwrap();
    assert_eq!(disk.unsynced(), 2);
    let image = |mask| bytes(&disk.crash_image(&CrashChoice::Subset(mask)), "data");
    assert_eq!(image(0b01), [1, 1, 1, 1, 0, 0], "the length without the data");
    assert_eq!(image(0b10), [1, 1, 1, 1], "the data without the length");
    assert_eq!(image(0b11), [1, 1, 1, 1, 2, 2]);
    let cut = disk.crash_image(&CrashChoice::Subset(0b10));
    write(&*cut.open("data", OpenMode::Existing).unwrap(), 1, 3, 5).unwrap();
    assert_eq!(bytes(&cut, "data"), [1, 1, 1, 1, 0, 3], "data behind the end is gone for good");
    let lengths: BTreeSet<usize> =
        (0..200).map(|seed| bytes(&disk.crash_image(&CrashChoice::Random(seed)), "data").len()).collect();
    assert_eq!(lengths, BTreeSet::from([4, 5, 6]));
}

#[test]
fn cutting_a_file_is_lost_or_kept_in_its_place() {
    let (disk, file) = prepared();
    file.set_len(BLOCK + 100).unwrap();
    file.set_len(3 * BLOCK).unwrap();
    let image = |choice| disk.crash_image(&choice).durable_bytes("data").unwrap();
    assert_eq!(image(CrashChoice::Nothing), vec![1; 4 * BLOCK_SIZE]);
    assert_eq!(image(CrashChoice::Subset(0b10)), vec![1; 4 * BLOCK_SIZE], "extending is no cutting");
    let mut expected = vec![1; BLOCK_SIZE + 100];
    assert_eq!(image(CrashChoice::Subset(0b01)), expected);
    expected.resize(3 * BLOCK_SIZE, 0);
    assert_eq!(image(CrashChoice::Everything), expected);
    file.write_durable(&[&filled(1, 2)], 2 * BLOCK).unwrap();
    expected[2 * BLOCK_SIZE..].fill(2);
    assert_eq!(image(CrashChoice::Nothing), expected, "a durable write takes the lengths before it along");
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let (disk, file) = prepared();
    disk.create_directory("log").unwrap();
    let segment = disk.open("log/1", OpenMode::CreateNew).unwrap();
    segment.write_durable(&[&filled(1, 5)], 0).unwrap();
    assert_eq!(disk.unsynced(), 2);
    assert!(disk.crash_image(&CrashChoice::Nothing).list("log").unwrap_err().is_not_found());
    assert_eq!(disk.crash_image(&CrashChoice::Subset(0b01)).list("log").unwrap(), [""; 0]);
    assert!(disk.crash_image(&CrashChoice::Subset(0b10)).list("log").unwrap_err().is_not_found());
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "log/1"), [5]);
    disk.sync_directory("log").unwrap();
    assert_eq!(disk.crash_image(&CrashChoice::Nothing).file_names(), ["data"], "the directory itself is not durable");
    disk.sync_directory("").unwrap();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Nothing), "log/1"), [5]);

    disk.rename("data", "old").unwrap();
    let new = disk.open("data", OpenMode::CreateNew).unwrap();
    write(&*new, 1, 8, 0).unwrap();
    new.sync().unwrap();
    disk.remove("old").unwrap();
    let names = |mask| disk.crash_image(&CrashChoice::Subset(mask)).file_names();
    assert_eq!(names(0b000), ["data", "log/1"]);
    assert_eq!(names(0b001), ["log/1", "old"]);
    assert_eq!(names(0b011), ["data", "log/1", "old"]);
    assert_eq!(names(0b101), ["log/1"]);
    assert_eq!(names(0b100), ["data", "log/1"], "a removal without its rename has nothing to remove");
    disk.sync_directory("").unwrap();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Nothing), "data"), [8]);
    write(&*file, 1, 9, 0).unwrap();
    assert_eq!(disk.unsynced(), 0, "nothing of a removed file can come back");
}

#[test]
fn replacing_by_rename_keeps_one_or_the_other() {
    let (disk, old) = prepared();
    let new = disk.open("new", OpenMode::CreateNew).unwrap();
    new.write_durable(&[&filled(1, 2)], 0).unwrap();
    disk.rename("new", "data").unwrap();
    assert_eq!(disk.file_names(), ["data"]);
    for mask in 0..4 {
        let image = disk.crash_image(&CrashChoice::Subset(mask));
        let expected = if mask & 0b10 == 0 { vec![1; 4] } else { vec![2] };
        assert_eq!(bytes(&image, "data"), expected);
    }
    disk.sync_directory("").unwrap();
    assert_eq!(disk.used(), 5 * BLOCK, "an open file outlives its name");
    drop(old);
    assert_eq!(disk.used(), BLOCK);
}

#[test]
fn failed_syncs_drop_what_they_were_for() {
    let (disk, file) = prepared();
    write(&*file, 1, 2, 0).unwrap();
    disk.fail_at(disk.operations(), Fault::FailedSync, false);
    assert!(file.sync().unwrap_err().to_string().contains("cannot sync `simulated disk/data`"));
    write(&*file, 1, 3, 1).unwrap();
    file.sync().unwrap();
    assert_eq!(bytes(&disk, "data"), [2, 3, 1, 1], "reads still see the dropped write");
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "data"), [1, 3, 1, 1]);

    disk.fail_at(disk.operations(), Fault::FailedSync, false);
    file.write_durable(&[&filled(1, 4)], 2 * BLOCK).unwrap_err();
    file.sync().unwrap();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Everything), "data"), [1, 3, 1, 1]);

    disk.open("new", OpenMode::CreateNew).unwrap();
    disk.fail_at(disk.operations(), Fault::FailedSync, true);
    disk.sync_directory("").unwrap_err();
    disk.sync_directory("").unwrap_err();
    assert_eq!(disk.unsynced(), 1);
    disk.clear_faults();
    disk.sync_directory("").unwrap();
    assert_eq!(disk.unsynced(), 0);
}

#[test]
fn short_transfers_are_continued() {
    let (disk, file) = prepared();
    disk.fail_at(0, Fault::ShortWrite, true);
    disk.fail_at(0, Fault::ShortRead, true);
    let before = disk.operations();
    write(&*file, 4, 2, 1).unwrap();
    assert_eq!(disk.operations() - before, 3, "two blocks, one, one");
    assert_eq!(bytes(&disk, "data"), [1, 2, 2, 2, 2]);
    file.write_durable(&[&filled(3, 3)], 0).unwrap();
    assert_eq!(bytes(&disk.crash_image(&CrashChoice::Nothing), "data"), [3, 3, 3, 1]);
    disk.crash_at(disk.operations() + 1);
    write(&*file, 4, 4, 0).unwrap_err();
    assert_eq!(bytes(&disk.image(), "data"), [4, 4, 4, 4, 2], "the crash met the second half in flight");
}

/// Returns whether the error is that of a write that found no space: it has failed like any other
/// write, and is not a refusal that could be remedied.
fn found_no_space(error: &DiskError) -> bool {
    error.reason.contains("No space left") && !error.is_full()
}

#[test]
fn errors_hit_the_operation_they_are_planned_for() {
    let (disk, file) = prepared();
    disk.fail_at(disk.operations() + 1, Fault::Eio, false);
    file.read_at(&mut filled(1, 0), 0).unwrap();
    let error = file.read_at(&mut filled(1, 0), BLOCK).unwrap_err();
    assert!(error.to_string().contains("read 4096 bytes at offset 4096"), "{error}");
    file.read_at(&mut filled(1, 0), 0).unwrap();

    disk.fail_at(disk.operations(), Fault::Enospc, true);
    assert!(found_no_space(&write(&*file, 1, 9, 0).unwrap_err()));
    assert_eq!(disk.unsynced(), 0, "a write that found no space had no effect");
    assert!(found_no_space(&file.sync().unwrap_err()));
    assert!(found_no_space(&disk.sync_directory("").unwrap_err()));
    disk.clear_faults();

    disk.fail_at(disk.operations(), Fault::Eio, true);
    let mut reached = BTreeSet::new();
    for _ in 0..100 {
        write(&*file, 3, 2, 0).unwrap_err();
        reached.insert(disk.crash_image(&CrashChoice::Everything).durable_bytes("data").unwrap());
        file.sync().unwrap_err();
    }
    assert_eq!(reached.len(), 4, "a failed write reaches none to all of its blocks");
    disk.open("other", OpenMode::CreateNew).unwrap_err();
    disk.clear_faults();
    assert_eq!(disk.list("").unwrap(), ["data"]);
}

#[test]
fn devices_fill_up() {
    let (disk, file) = prepared();
    disk.set_capacity(7 * BLOCK);
    assert_eq!(disk.used(), 4 * BLOCK);
    write(&*file, 4, 2, 0).unwrap();
    assert_eq!(disk.used(), 4 * BLOCK, "overwriting takes no space");
    write(&*file, 3, 3, 3).unwrap();
    assert!(found_no_space(&write(&*file, 2, 4, 6).unwrap_err()));
    assert_eq!(bytes(&disk, "data"), [2, 2, 2, 3, 3, 3, 4], "what fits is written");
    file.set_len(2 * BLOCK).unwrap();
    assert_eq!(disk.used(), 2 * BLOCK);

    let log = disk.open("log", OpenMode::CreateNew).unwrap();
    assert!(log.allocate(6 * BLOCK).unwrap_err().is_full());
    assert!(log.is_empty().unwrap());
    log.allocate(4 * BLOCK).unwrap();
    log.allocate(4 * BLOCK).unwrap();
    assert_eq!(disk.used(), 6 * BLOCK);
    write(&*file, 1, 5, 2).unwrap();
    assert!(found_no_space(&write(&*file, 1, 5, 3).unwrap_err()));
    write(&*log, 4, 6, 0).unwrap();
    assert!(found_no_space(&write(&*log, 1, 6, 4).unwrap_err()));
    assert_eq!(bytes(&disk, "log"), [6, 6, 6, 6], "allocated space is there when it is needed");
    disk.remove("log").unwrap();
    drop(log);
    assert_eq!(disk.used(), 7 * BLOCK, "the removal is not durable");
    disk.sync_directory("").unwrap();
    assert_eq!(disk.used(), 3 * BLOCK);
}

#[test]
fn what_is_cut_off_a_long_file_is_gone() {
    let disk = SimDisk::new(1);
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    write(&*file, 1000, 1, 0).unwrap();
    file.set_len(70 * BLOCK).unwrap();
    assert_eq!(disk.used(), 70 * BLOCK);
    file.set_len(1000 * BLOCK).unwrap();
    let found = bytes(&disk, "data");
    assert_eq!((found.len(), found.iter().filter(|byte| **byte == 1).count()), (1000, 70));
}

#[test]
fn bits_rot_on_the_medium() {
    let (disk, file) = prepared();
    write(&*file, 1, 2, 1).unwrap();
    disk.flip_bit("data", 5, 1);
    disk.flip_bit("data", BLOCK, 7);
    let mut buf = filled(2, 0);
    file.read_at(&mut buf, 0).unwrap();
    assert_eq!((buf[4], buf[5], buf[BLOCK_SIZE]), (1, 3, 2), "the newer block has not reached the medium");
    let medium = disk.durable_bytes("data").unwrap();
    assert_eq!((medium.len(), medium[5], medium[BLOCK_SIZE]), (4 * BLOCK_SIZE, 3, 0x81));
    file.sync().unwrap();
    assert_eq!(disk.durable_bytes("data").unwrap()[BLOCK_SIZE], 2);
    assert_eq!(disk.durable_bytes("none"), None);
    let image = disk.crash_image(&CrashChoice::Nothing);
    image.flip_bit("data", 5, 1);
    assert_eq!(image.durable_bytes("data").unwrap()[5], 1);
    assert_eq!(disk.durable_bytes("data").unwrap()[5], 3);
}

#[test]
fn large_files_are_cheap_to_copy() {
    let disk = SimDisk::new(1);
    let file = disk.open("data", OpenMode::CreateNew).unwrap();
    for block in 0..64 {
        write(&*file, 256, block as u8, block * 256).unwrap();
    }
    file.sync().unwrap();
    disk.sync_directory("").unwrap();
    let start = std::time::Instant::now();
    let images: Vec<SimDisk> = (0..1000)
        .map(|seed| {
            let image = disk.crash_image(&CrashChoice::Random(seed));
            write(&*image.open("data", OpenMode::Existing).unwrap(), 1, 1, seed).unwrap();
            image
        })
        .collect();
    // A copy of every block would take 64 GiB.
    assert!(start.elapsed().as_secs() < 20, "1000 images took {:?}", start.elapsed());
    assert_eq!(bytes(&images[999], "data").len(), 64 * 256);
}
