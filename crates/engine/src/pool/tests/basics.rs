//! One thread, and a healthy disk.

use duramen_io::{RealDisk, RealDiskOptions};

use super::super::Interrupt;
use super::*;
use crate::page::Lines;

#[test]
fn pages_survive_eviction_and_reopening() {
    for fixture in over_each_store(64) {
        fixture.create_pages(300);
        for raw in (1..=300).step_by(3) {
            fixture.increment(PageId::new(raw)).unwrap();
        }
        let metrics = fixture.pool.metrics();
        assert!(metrics.evictions >= 300 - 64, "{metrics:?}");
        let in_batches = metrics.writes >= 300 - 64 && metrics.batches * 8 < metrics.writes;
        assert!(in_batches || fixture.memory.is_some(), "written in batches: {metrics:?}");
        fixture.pool.flush_all().unwrap();
        assert_eq!(fixture.pool.metrics().dirty, 0);
        assert_eq!(fixture.pool.dirty_pages(), []);
        let fixture = fixture.reopen(64);
        for raw in 1..=300 {
            assert_eq!(fixture.counter(PageId::new(raw)).unwrap(), u64::from(raw % 3 == 1));
        }
    }
}

/// A thread that waits for the disk must not hold up threads that wait for the log.
#[test]
fn the_log_is_told_before_a_thread_blocks_on_the_disk() {
    for fixture in over_each_store(64) {
        fixture.create_pages(100);
        fixture.pool.flush_all().unwrap();
        let fixture = fixture.reopen(64);
        let told = || fixture.log.told.swap(0, Ordering::Relaxed);
        told();
        fixture.counter(PageId::new(7)).unwrap();
        assert_eq!(told(), 1);
        fixture.counter(PageId::new(7)).unwrap();
        assert_eq!(told(), 0);
        fixture.pool.reserve_page(PageId::new(100)).unwrap();
        assert_eq!(told(), 0);
        fixture.pool.reserve_page(PageId::new(10_000)).unwrap();
        assert_eq!(told(), u64::from(fixture.memory.is_none()), "only a file has to grow");
    }
}

#[test]
fn a_real_disk_does_as_well() {
    let home = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(home.path(), RealDiskOptions::default()).unwrap();
    let fixture = Fixture::create_on(disk, PoolConfig { frames: 64, ..PoolConfig::default() });
    fixture.create_pages(200);
    (1..=200).step_by(2).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
    fixture.pool.flush_all().unwrap();
    let fixture = fixture.reopen(64);
    for raw in 1..=200 {
        assert_eq!(fixture.counter(PageId::new(raw)).unwrap(), raw % 2);
    }
    assert!(matches!(fixture.counter(PageId::new(1 << 30)), Err(PoolError::Disk(_))));
}

#[test]
fn optimistic_reads_notice_changes_and_nothing_else() {
    for fixture in over_each_store(64) {
        fixture.create_pages(2);
        let (one, two) = (PageId::new(1), PageId::new(2));
        let read = fixture.pool.optimistic(one).unwrap();
        assert_eq!(counter(&read.page(), one), Ok(0));
        read.validate().unwrap();
        fixture.increment(two).unwrap();
        drop(fixture.pool.exclusive(one).unwrap());
        drop(fixture.pool.shared(one).unwrap());
        read.validate().unwrap();
        fixture.increment(one).unwrap();
        read.validate().unwrap_err();
        assert!(read.upgrade().is_err());

        let read = fixture.pool.optimistic(one).unwrap();
        assert_eq!(read.id(), one);
        let mut guard = read.upgrade().unwrap();
        assert_eq!(guard.id(), one);
        assert!(fixture.pool.try_exclusive(one).unwrap().is_none());
        assert!(matches!(fixture.pool.optimistic(one), Err(Interrupt::Restart)), "the holder is this very thread");
        fixture.increment_guard(&mut guard);
        drop(guard);
        assert_eq!(counter(&*fixture.pool.try_exclusive(one).unwrap().unwrap(), one), Ok(2));
    }
}

#[test]
fn optimistic_reads_notice_eviction() {
    for fixture in over_each_store(64) {
        fixture.create_pages(200);
        fixture.pool.flush_all().unwrap();
        let read = fixture.pool.optimistic(PageId::new(1)).unwrap();
        (2..=200).for_each(|raw| drop(fixture.pool.shared(PageId::new(raw)).unwrap()));
        assert!(!fixture.pool.is_resident(PageId::new(1)));
        read.validate().unwrap_err();
    }
}

#[test]
fn the_clock_spares_pages_in_use() {
    for fixture in over_each_store(64) {
        fixture.create_pages(200);
        fixture.pool.flush_all().unwrap();
        let hot = PageId::new(1);
        for raw in 2..=200 {
            drop(fixture.pool.shared(PageId::new(raw)).unwrap());
            fixture.pool.optimistic(hot).unwrap();
        }
        let reads = fixture.pool.metrics().reads;
        fixture.pool.optimistic(hot).unwrap();
        assert_eq!(fixture.pool.metrics().reads, reads);
    }
}

#[test]
fn created_pages_start_as_zeros_and_unformatted_ones_do_not_stay() {
    for fixture in over_each_store(64) {
        fixture.create_pages(1);
        let one = PageId::new(1);
        let mut again = fixture.pool.create(one).unwrap();
        again.prepare();
        assert!(again[..].iter().all(|&byte| byte == 0) || again.gsn() != Gsn::ZERO);
        let gsn = fixture.log.insert(one);
        let mut contents = again.page_mut();
        assert!(contents.iter().all(|&byte| byte == 0));
        page::init_header(&mut contents, PageType::Leaf, 0, one, TableId::new(1));
        set_counter(&mut contents, 7, gsn);
        fixture.keep(&again);
        drop(again);
        assert_eq!(fixture.counter(one).unwrap(), 7);
        drop(fixture.pool.create(one).unwrap());
        assert_eq!(fixture.counter(one).unwrap(), 7, "created but not changed");

        let two = PageId::new(2);
        let unformatted = fixture.pool.create(two).unwrap();
        assert!(unformatted.iter().all(|&byte| byte == 0));
        unformatted.prepare();
        drop(unformatted);
        assert!(!fixture.pool.is_resident(two));
        assert_eq!(fixture.pool.metrics().dirty, u64::from(fixture.memory.is_none()));
        assert!(matches!(fixture.counter(two), Err(PoolError::Corrupt { page, .. }) if page == two));
    }
}

#[test]
fn guards_know_the_lines_that_were_changed_through_them() {
    let fixture = Fixture::new(64);
    fixture.create_pages(2);
    fixture.pool.flush_all().unwrap();
    let fixture = fixture.reopen(64);
    let lines = |guard: &Exclusive<'_>| guard.lines().runs().map(|run| (run.start, run.end)).collect::<Vec<_>>();
    let header = |guard: &mut Exclusive<'_>| {
        guard.prepare();
        let gsn = fixture.log.insert(guard.id());
        page::set_gsn(&mut guard.page_mut(), gsn);
    };

    let one = PageId::new(1);
    let mut loaded = fixture.pool.exclusive(one).unwrap();
    assert!(loaded.lines().is_empty(), "a page that was just read in");
    loaded.prepare();
    assert!(loaded.lines().is_empty(), "prepared, but not changed");
    loaded.page_mut().put(4090, b"across lines");
    assert_eq!(lines(&loaded), [(63, 65)]);
    header(&mut loaded);
    assert_eq!(lines(&loaded), [(0, 1), (63, 65)]);
    drop(loaded);
    let mut resident = fixture.pool.exclusive_or_blank(one).unwrap();
    header(&mut resident);
    assert_eq!(lines(&resident), [(0, 1)], "the lines of another guard do not count");
    drop(resident);

    // Pages that are formatted anew: one whose former bytes are in the frame, and one that was
    // never there.
    for id in [one, PageId::new(3)] {
        let mut anew = fixture.pool.create(id).unwrap();
        assert!(anew.lines().is_empty());
        anew.prepare();
        page::init_header(&mut anew.page_mut(), PageType::Leaf, 0, id, TableId::new(1));
        assert_eq!(anew.lines(), Lines::ALL);
    }
    let mut unreadable = fixture.pool.exclusive_or_blank(PageId::new(4)).unwrap();
    unreadable.prepare();
    page::set_page_id(&mut unreadable.page_mut(), PageId::new(4));
    assert_eq!(unreadable.lines(), Lines::ALL);
}

#[test]
fn recovery_gsns_are_bounds_and_rise_only_when_durable() {
    let fixture = Fixture::new(64);
    let (one, two) = (PageId::new(1), PageId::new(2));
    let start = fixture.log.end();
    fixture.create_pages(2);
    let after_create = fixture.log.end();
    let mut dirty = fixture.pool.dirty_pages();
    dirty.sort();
    assert_eq!(dirty, [(one, start), (two, Gsn::new(start.get() + 8))]);
    fixture.increment(one).unwrap();
    assert_eq!(fixture.pool.dirty_pages().iter().find(|(id, _)| *id == one), Some(&(one, start)));

    fixture.pool.flush_before(Gsn::new(start.get() + 1)).unwrap();
    assert_eq!(fixture.pool.dirty_pages(), [(two, Gsn::new(start.get() + 8))]);
    fixture.pool.flush_before(after_create).unwrap();
    assert_eq!(fixture.pool.dirty_pages(), []);

    fixture.increment(two).unwrap();
    let guard = fixture.pool.exclusive(one).unwrap();
    guard.prepare_redo(Gsn::new(5000));
    drop(guard);
    let mut dirty = fixture.pool.dirty_pages();
    dirty.sort();
    assert_eq!(dirty, [(one, Gsn::new(5000)), (two, Gsn::new(after_create.get() + 8))]);
}

#[test]
fn the_file_grows_ahead_of_the_pages() {
    let fixture = Fixture::new(64);
    let data = fixture.disk.open("data", OpenMode::Existing).unwrap();
    let page = PAGE_SIZE as u64;
    // A small file grows by 16 pages or a half, a large one by 128 pages; if needed, by more.
    for (id, pages) in [(1, 16), (15, 16), (16, 32), (32, 48), (48, 72), (100_000, 100_001), (100_001, 100_129)] {
        fixture.pool.reserve_page(PageId::new(id)).unwrap();
        assert_eq!(data.len().unwrap(), pages * page, "page {id}");
    }
}

#[test]
fn the_cleaner_keeps_its_limit_and_its_rate() {
    let config = PoolConfig {
        frames: 256,
        max_dirty_percent: 50,
        cleaner_interval: std::time::Duration::from_millis(5),
        ..PoolConfig::default()
    };
    let fixture = Fixture::with_config(config.clone());
    fixture.pool.start_cleaner().unwrap();
    fixture.create_pages(250);
    let start = duramen_sync::clock::Instant::now();
    while fixture.pool.metrics().dirty > 128 {
        assert!(start.elapsed().as_secs() < 10, "{:?}", fixture.pool.metrics());
        duramen_sync::thread::yield_now();
    }
    // The oldest pages are written first.
    let newest = fixture.log.history.lock()[&PageId::new(250)][0];
    assert!(fixture.pool.dirty_pages().contains(&(PageId::new(250), Gsn::new(newest))));
    fixture.pool.stop_cleaner();
    fixture.pool.stop_cleaner();

    let fixture = Fixture::with_config(PoolConfig { cleaner_pages_per_second: 200, ..config });
    fixture.pool.start_cleaner().unwrap();
    fixture.create_pages(250);
    let start = duramen_sync::clock::Instant::now();
    duramen_sync::thread::sleep(std::time::Duration::from_millis(200));
    let written = fixture.pool.metrics().writes;
    let allowed = start.elapsed().as_millis() as u64 / 5 + 2 * 25;
    assert!(written > 0 && written <= allowed, "{written} pages written, {allowed} allowed");
    fixture.pool.stop_cleaner();
}

#[test]
fn the_cleaner_keeps_a_number_of_dirty_pages_oldest_first() {
    const DIRTY: usize = 16;
    let cleaner_interval = std::time::Duration::from_secs(3600);
    let config = PoolConfig { frames: 512, dirty_pages: Some(DIRTY), cleaner_interval, ..PoolConfig::default() };
    let fixture = Fixture::with_config(config);
    fixture.create_pages(400);
    fixture.pool.start_cleaner().unwrap();
    let wait_until_few = || {
        let start = duramen_sync::clock::Instant::now();
        while fixture.pool.metrics().dirty > DIRTY as u64 {
            assert!(start.elapsed().as_secs() < 10, "{:?}", fixture.pool.metrics());
            duramen_sync::thread::yield_now();
        }
    };
    wait_until_few();
    let dirty = fixture.pool.dirty_pages();
    assert!(
        dirty.len() >= DIRTY - DIRTY / 16 && dirty.iter().all(|(id, _)| id.get() > 400 - DIRTY as u64),
        "{dirty:?}"
    );
    // Nothing but the number wakes the cleaner: its interval does not end.
    for round in 0..5 {
        // Other pages in each round: one that stays dirty from one to the next would be old.
        for id in (1 + round..=400).step_by(5) {
            fixture.increment(PageId::new(id)).unwrap();
        }
        wait_until_few();
        let dirty = fixture.pool.dirty_pages();
        assert!(dirty.iter().all(|(id, _)| id.get() > 310), "round {round}: {dirty:?}");
    }
    fixture.pool.stop_cleaner();
}

#[test]
fn the_cleaner_ends_with_the_pool() {
    let fixture = Fixture::new(64);
    fixture.pool.start_cleaner().unwrap();
    fixture.pool.start_cleaner().unwrap();
    fixture.create_pages(3);
    let weak = Arc::downgrade(&fixture.pool);
    drop(fixture);
    let start = duramen_sync::clock::Instant::now();
    while weak.strong_count() > 0 {
        assert!(start.elapsed().as_secs() < 10);
        duramen_sync::thread::yield_now();
    }
}
