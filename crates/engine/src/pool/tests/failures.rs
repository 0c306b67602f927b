//! Failing disks, full disks, and excessive requests.

use duramen_io::Fault;

use super::super::{Damage, Interrupt};
use super::*;

#[test]
fn too_small_a_pool_is_refused() {
    let config = PoolConfig { frames: 63, ..PoolConfig::default() };
    let error = Pool::new(config, Arc::<MemoryPages>::default(), PreBlockHook::default()).unwrap_err();
    assert!(matches!(error, PoolError::TooSmall { frames: 63, minimum: 64 }));
}

#[test]
fn damaged_pages_are_reported_with_their_place() {
    let fixture = Fixture::new(64);
    fixture.create_and_write_twice(3);
    let fixture = fixture.reopen(64);
    fixture.disk.flip_bit("data", 2 * PAGE_SIZE as u64 + 5000, 3);
    let error = fixture.counter(PageId::new(2)).unwrap_err();
    assert!(
        matches!(
            &error,
            PoolError::Corrupt { page, file, offset: 16384, .. } if page.get() == 2 && file.contains("data")
        ),
        "{error}"
    );
    assert!(matches!(fixture.pool.optimistic(PageId::new(2)), Err(Interrupt::Failed(PoolError::Corrupt { .. }))));
    assert_eq!(fixture.counter(PageId::new(3)).unwrap(), 1);
    assert!(matches!(fixture.counter(PageId::ZERO), Err(PoolError::Corrupt { .. })));
    assert!(matches!(fixture.counter(PageId::MAX), Err(PoolError::Corrupt { .. })));
    assert!(matches!(fixture.pool.optimistic(PageId::MAX), Err(Interrupt::Failed(PoolError::Corrupt { .. }))));
    assert!(matches!(fixture.pool.create(PageId::MAX), Err(PoolError::Corrupt { .. })));
    // The double-write area does not have what never changed.
    let fixture = fixture.reopen(64);
    assert!(matches!(fixture.counter(PageId::new(2)), Err(PoolError::Corrupt { .. })));
}

#[test]
fn redo_may_rebuild_what_cannot_be_read() {
    let fixture = Fixture::new(64);
    fixture.create_pages(1);
    fixture.pool.flush_all().unwrap();
    let sound = fixture.pool.exclusive_or_blank(PageId::new(1)).unwrap();
    assert!(sound.was_unreadable().is_none());
    drop(sound);
    // Blank within the file, and beyond its end.
    for id in [PageId::new(2), PageId::new(5000)] {
        let blank = fixture.pool.exclusive_or_blank(id).unwrap();
        assert!(blank.was_unreadable().is_some());
        assert_eq!(blank.gsn(), Gsn::ZERO);
        drop(blank);
        assert!(fixture.counter(id).is_err(), "still unreadable");
        let mut rebuilt = fixture.pool.exclusive_or_blank(id).unwrap();
        rebuilt.prepare_redo(Gsn::new(4096));
        let mut page = rebuilt.page_mut();
        page::init_header(&mut page, PageType::Leaf, 0, id, TableId::new(1));
        set_counter(&mut page, 9, Gsn::new(4096));
        drop(rebuilt);
        assert!(fixture.pool.exclusive_or_blank(id).unwrap().was_unreadable().is_none());
    }
    fixture.pool.flush_all().unwrap();
    let fixture = fixture.reopen(64);
    assert_eq!(fixture.counter(PageId::new(5000)).unwrap(), 9);
}

#[test]
fn a_failed_read_leaves_no_trace() {
    let fixture = Fixture::new(64);
    fixture.create_pages(2);
    fixture.pool.flush_all().unwrap();
    let fixture = fixture.reopen(64);
    fixture.disk.fail_at(0, Fault::Eio, true);
    for _ in 0..100 {
        assert!(matches!(fixture.counter(PageId::new(1)), Err(PoolError::Disk(_))));
        assert!(matches!(fixture.pool.exclusive_or_blank(PageId::new(1)), Err(PoolError::Disk(_))));
        assert!(matches!(fixture.pool.optimistic(PageId::new(1)), Err(Interrupt::Failed(PoolError::Disk(_)))));
    }
    fixture.disk.clear_faults();
    assert_eq!(fixture.counter(PageId::new(1)).unwrap(), 0);
    fixture.pool.check_poison().unwrap();
}

#[test]
fn failed_writes_poison() {
    for fault in [Fault::Eio, Fault::FailedSync] {
        let fixture = Fixture::new(64);
        fixture.create_pages(64);
        fixture.disk.fail_at(fixture.disk.operations(), fault, false);
        assert!(matches!(fixture.pool.flush_all(), Err(PoolError::Disk(_))));
        assert!(matches!(fixture.pool.flush_all(), Err(PoolError::Poisoned { .. })));
        assert_eq!(fixture.pool.dirty_pages().len(), 64, "nothing is taken for clean");
        assert_eq!(fixture.counter(PageId::new(64)).unwrap(), 0, "resident pages can be read");
        assert!(matches!(fixture.create(PageId::new(65)), Err(PoolError::Poisoned { .. })), "needs a clean frame");
        let writes = fixture.disk.counters().writes;
        drop(fixture.pool);
        assert_eq!(fixture.disk.counters().writes, writes);
    }
}

/// Each read of a page used to evict the page before it, so that a descent, which needs a few pages
/// at a time, never ended.
#[test]
fn a_poisoned_pool_refuses_reads_into_its_last_clean_frames() {
    for dirty in [40, 60] {
        let fixture = Fixture::new(64);
        fixture.create_pages(100);
        fixture.pool.flush_all().unwrap();
        // These are in their frames, so none is cleaned for another one.
        let first = 101 - dirty;
        for raw in first..=100 {
            fixture.increment(PageId::new(raw)).unwrap();
        }
        fixture.pool.poison("a write failed");
        let mut refused = 0;
        for raw in (1..=100).chain(1..=100) {
            match fixture.counter(PageId::new(raw)) {
                Ok(counter) => assert_eq!(counter, u64::from(raw >= first)),
                Err(PoolError::Poisoned { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        // Four clean pages are in their frames still.
        assert_eq!(refused, if dirty == 60 { 2 * 36 } else { 0 });
    }
}

#[test]
fn a_log_that_cannot_be_hardened_keeps_pages_from_the_disk() {
    let fixture = Fixture::new(64);
    fixture.create_pages(10);
    let writes = fixture.disk.counters().writes;
    fixture.log.fails.store(true, Ordering::Relaxed);
    assert!(matches!(fixture.pool.flush_all(), Err(PoolError::Log { .. })));
    assert_eq!(fixture.disk.counters().writes, writes);
    assert_eq!(fixture.pool.dirty_pages().len(), 10);
    fixture.log.fails.store(false, Ordering::Relaxed);
    fixture.increment(PageId::new(1)).unwrap();
    fixture.pool.flush_all().unwrap();
    assert_eq!(fixture.reopen(64).counter(PageId::new(1)).unwrap(), 1);
}

#[test]
fn a_full_disk_is_an_error_of_reserving_only() {
    let fixture = Fixture::new(64);
    fixture.create_pages(100);
    let used = fixture.disk.used();
    fixture.disk.set_capacity(used + 10 * PAGE_SIZE as u64);
    // The usual growth step does not fit, but the page does.
    fixture.create(PageId::new(115)).unwrap();
    let error = fixture.create(PageId::new(200)).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(!fixture.pool.is_resident(PageId::new(200)));
    fixture.pool.flush_all().unwrap();
    fixture.disk.set_capacity(u64::MAX);
    fixture.create(PageId::new(200)).unwrap();
    fixture.pool.flush_all().unwrap();
    assert_eq!(fixture.reopen(64).counter(PageId::new(115)).unwrap(), 0);
}

/// The area has space for eight whole pages from the start, and for more changes it must grow.
#[test]
fn on_a_full_disk_a_batch_is_written_in_parts() {
    let fixture = Fixture::new(64);
    fixture.create_pages(60);
    fixture.pool.flush_all().unwrap();
    fixture.disk.set_capacity(fixture.disk.used());
    let area = || fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
    let len = area().len().unwrap();
    for raw in 1..=20 {
        let mut guard = fixture.pool.exclusive(PageId::new(raw)).unwrap();
        guard.prepare();
        let gsn = fixture.log.insert(PageId::new(raw));
        set_counter(&mut guard.page_mut(), 5, gsn);
    }
    (21..=60).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
    fixture.pool.flush_all().unwrap();
    assert_eq!(area().len().unwrap(), len);
    // The last part has four pages.
    assert_eq!(FoundArea::read(&*area()).unwrap().unwrap().len(), 4);
    let fixture = fixture.reopen(64);
    for raw in 1..=60 {
        assert_eq!(fixture.counter(PageId::new(raw)).unwrap(), if raw <= 20 { 5 } else { 1 });
    }
}

#[test]
fn an_exhausted_pool_says_so_and_recovers() {
    for fixture in over_each_store(64) {
        fixture.create_pages(200);
        fixture.pool.flush_all().unwrap();
        let guards: Vec<_> = (1..=64).map(|raw| fixture.pool.exclusive(PageId::new(raw)).unwrap()).collect();
        assert!(matches!(fixture.counter(PageId::new(65)), Err(PoolError::Exhausted { frames: 64 })));
        drop(guards);
        assert_eq!(fixture.counter(PageId::new(65)).unwrap(), 0);
    }
}

#[test]
#[should_panic(expected = "without being prepared")]
fn changes_must_be_prepared() {
    let fixture = Fixture::new(64);
    fixture.create_pages(1);
    fixture.pool.exclusive(PageId::new(1)).unwrap().page_mut().put(100, &[1]);
}

/// Only pages that redo visited were compared with the log. A page that was read later could have
/// changes that the log had lost, and once the log had grown past them, the page could not be
/// distinguished from a current one.
#[test]
fn pages_ahead_of_the_log_are_refused() {
    let fixture = Fixture::new(64);
    fixture.create_pages(2);
    let end = fixture.log.end();
    fixture.increment(PageId::new(2)).unwrap();
    fixture.pool.flush_all().unwrap();
    let Fixture { disk, log: whole, pool, .. } = fixture;
    drop(pool);

    let cut = Arc::new(TestLog::default());
    cut.next.store(end.get() - TestLog::FIRST, Ordering::Release);
    let fixture = Fixture::open(disk, PoolConfig { frames: 64, ..PoolConfig::default() }, cut).unwrap();
    let is_ahead = |error: &PoolError| {
        matches!(error, PoolError::Corrupt { page, damage: Damage::AheadOfLog, .. } if page.get() == 2)
            && error.to_string().contains("the log has lost its end")
    };
    fixture.pool.prefetch(&[PageId::new(1), PageId::new(2)]);
    assert!(fixture.pool.is_resident(PageId::new(1)) && !fixture.pool.is_resident(PageId::new(2)));
    for round in 0..3 {
        assert!(is_ahead(&fixture.counter(PageId::new(2)).unwrap_err()), "round {round}");
        assert!(is_ahead(&fixture.pool.exclusive_or_blank(PageId::new(2)).err().unwrap()), "not to be rebuilt");
        // The log grows past the page, and another page is changed, written, replaced and read
        // again.
        for _ in 0..5 {
            fixture.increment(PageId::new(1)).unwrap();
        }
        fixture.pool.flush_all().unwrap();
        for raw in 3..200 {
            fixture.create(PageId::new(raw + 200 * round)).unwrap();
        }
        assert!(!fixture.pool.is_resident(PageId::new(1)));
        assert_eq!(fixture.counter(PageId::new(1)).unwrap(), 5 * (round + 1));
    }
    let fixture = Fixture { log: whole, ..fixture }.reopen(64);
    assert!(fixture.counter(PageId::new(2)).is_ok(), "with its own log it is sound");
}

/// Threads that held frames and waited for more would wait for each other.
#[test]
fn prefetch_waits_for_no_frame() {
    let fixture = Fixture::new(64);
    fixture.create_pages(100);
    fixture.pool.flush_all().unwrap();
    let fixture = fixture.reopen(64);
    let held: Vec<_> = (1..=60).map(|raw| fixture.pool.shared(PageId::new(raw)).unwrap()).collect();
    let wanted: Vec<PageId> = (61..=90).map(PageId::new).collect();
    let resident = || wanted.iter().filter(|&&id| fixture.pool.is_resident(id)).count();
    fixture.pool.prefetch(&wanted);
    assert_eq!(fixture.pool.metrics().stalls, 0);
    assert!((1..=4).contains(&resident()), "{}", resident());
    drop(held);
    fixture.pool.prefetch(&wanted);
    assert_eq!(resident(), wanted.len());
}
