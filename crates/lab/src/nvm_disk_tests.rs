use std::num::NonZeroU64;
use std::time::Duration;

use duramen_io::SimDisk;
use duramen_sync::clock::Instant;

use super::*;

/// Returns what `work` persists on the file called `name`.
fn persists(name: &str, work: impl FnOnce(&dyn File)) -> Persists {
    let disk = NvmDisk::new(Arc::new(SimDisk::new(1)));
    disk.create_directory("log").unwrap();
    let file = disk.open(name, OpenMode::CreateNew).unwrap();
    let before = disk.persists();
    work(&*file);
    disk.persists().since(&before)
}

fn page(byte: u8) -> AlignedBuf {
    let mut page = AlignedBuf::zeroed(PAGE_SIZE);
    page.fill(byte);
    page
}

#[test]
fn a_page_takes_four_barriers_and_its_changed_lines_twice() {
    let first = persists("data", |file| file.write_batch(&[(PAGE_SIZE as u64, &page(1))]).unwrap());
    assert_eq!(first, Persists { pages: 1, flushes: 0, barriers: 4, lines: 2 * 128 + 2 });
    let changed = persists("data", |file| {
        let mut contents = page(1);
        file.write_at(&[&contents], 0).unwrap();
        contents[70] = 2;
        contents[8000] = 2;
        file.write_at(&[&contents], 0).unwrap();
        file.sync().unwrap();
        let mut found = AlignedBuf::zeroed(PAGE_SIZE);
        file.read_at(&mut found, 0).unwrap();
        assert_eq!(found[..], contents[..]);
    });
    assert_eq!(changed, Persists { pages: 2, flushes: 0, barriers: 8, lines: 2 * 128 + 2 + 2 * 2 + 2 });
    let three = AlignedBuf::zeroed(3 * PAGE_SIZE);
    let joined = persists("data", |file| file.write_batch(&[(0, &three)]).unwrap());
    assert_eq!((joined.pages, joined.barriers), (3, 12));
}

#[test]
fn a_flush_takes_two_barriers_and_what_is_new_in_it() {
    let mut block = AlignedBuf::zeroed(BLOCK_SIZE);
    block[..100].fill(1);
    let durable = persists("log/0", |file| {
        file.write_durable(&[&block], 0).unwrap();
        block[100..140].fill(2);
        file.write_durable(&[&block], 0).unwrap();
    });
    // Two lines and the mark; then the second line again, the third, and the mark.
    assert_eq!(durable, Persists { pages: 0, flushes: 2, barriers: 4, lines: 3 + 3 });
    let synced = persists("log/0", |file| {
        file.write_at(&[&page(1)], 0).unwrap();
        file.write_at(&[&page(2)], 0).unwrap();
        file.sync().unwrap();
        file.sync().unwrap();
    });
    assert_eq!(synced, Persists { pages: 0, flushes: 1, barriers: 2, lines: 128 + 1 });
}

#[test]
fn the_double_write_area_is_not_charged() {
    let none = persists("doublewrite", |file| file.write_durable(&[&page(1)], 0).unwrap());
    assert_eq!(none, Persists::default());
}

#[test]
fn all_files_share_one_device_whose_times_can_change() {
    let disk = NvmDisk::new(Arc::new(SimDisk::new(1)));
    disk.create_directory("log").unwrap();
    let data = disk.open("data", OpenMode::CreateNew).unwrap();
    let log = disk.handle().open("log/0", OpenMode::CreateNew).unwrap();
    let took = |work: &dyn Fn()| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    let write = |byte| data.write_at(&[&page(byte)], 0).unwrap();
    let ms = Duration::from_millis;
    disk.set_timing(&Timing { barrier: ms(3), ..Timing::NONE });
    let flush = || log.write_durable(&[&page(1)], 0).unwrap();
    assert!(took(&|| write(1)) >= ms(11));
    assert!(took(&flush) >= ms(5));
    // 16 KiB at 1 MiB per second.
    disk.set_timing(&Timing { bandwidth: NonZeroU64::new(1 << 20), ..Timing::NONE });
    assert!(took(&|| write(2)) >= ms(15));
    disk.set_timing(&Timing::NONE);
    assert!(took(&|| write(3)) < ms(3));
    assert_eq!((disk.persists().pages, disk.persists().flushes), (3, 1));
}
