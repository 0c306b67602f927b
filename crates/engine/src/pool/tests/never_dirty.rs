//! A store without a writer: pages are never dirty, and each change is in the store before the page
//! is unlatched.

use super::super::Stamp;
use super::*;

const ONE: PageId = PageId::new(1);

fn fixture() -> (Fixture, Arc<MemoryPages>) {
    let fixture = Fixture::over(Kind::Memory, PoolConfig { frames: 64, ..PoolConfig::default() });
    let memory = fixture.memory.clone().unwrap();
    (fixture, memory)
}

/// Lets other pages take the frame of page 1.
fn evict(fixture: &Fixture) {
    (2..=200).for_each(|raw| fixture.create(PageId::new(raw)).unwrap());
    (2..=200).for_each(|raw| drop(fixture.pool.shared(PageId::new(raw)).unwrap()));
    assert!(!fixture.pool.is_resident(ONE));
}

#[test]
fn eviction_drops_pages_and_reading_gets_them_back() {
    let (fixture, _) = fixture();
    fixture.create_pages(300);
    (1..=300).step_by(3).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
    for raw in 1..=300 {
        assert_eq!(fixture.counter(PageId::new(raw)).unwrap(), u64::from(raw % 3 == 1));
    }
    let metrics = fixture.pool.metrics();
    assert!(metrics.evictions >= 300 - 64 && metrics.reads >= 300 - 64, "{metrics:?}");
    assert_eq!((metrics.writes, metrics.batches, metrics.dirty, metrics.stalls), (0, 0, 0, 0));
}

/// A change that is not in the store is gone with its frame: nothing else keeps it.
#[test]
fn eviction_writes_nothing() {
    let (fixture, memory) = fixture();
    fixture.create_pages(1);
    evict(&fixture);
    let mut page = fixture.pool.exclusive(ONE).unwrap();
    page.prepare();
    let gsn = page.gsn();
    set_counter(&mut page.page_mut(), 7, gsn);
    drop(page);
    assert_eq!(fixture.counter(ONE).unwrap(), 7);
    (2..=200).for_each(|raw| drop(fixture.pool.shared(PageId::new(raw)).unwrap()));
    assert_eq!(fixture.counter(ONE).unwrap(), 0);
    let prefetched = [PageId::new(2), PageId::new(3), PageId::new(100_000)];
    fixture.pool.prefetch(&prefetched);
    assert_eq!(prefetched.map(|id| fixture.pool.is_resident(id)), [true, true, false]);
    assert_eq!(memory.pages(), 201);
}

#[test]
fn nothing_becomes_dirty() {
    let (fixture, memory) = fixture();
    fixture.pool.start_cleaner().unwrap();
    assert_eq!(Arc::weak_count(&fixture.pool), 0, "no thread watches the pool");
    fixture.create_pages(10);
    let page = fixture.pool.exclusive(ONE).unwrap();
    page.prepare_redo(Gsn::new(5000));
    drop(page);
    assert_eq!((fixture.pool.dirty_pages(), fixture.pool.metrics().dirty), (Vec::new(), 0));
    assert_eq!(fixture.pool.clean(&fixture.pool.oldest_dirty(10)).unwrap(), 0);
    fixture.pool.flush_before(Gsn::MAX).unwrap();
    fixture.pool.flush_all().unwrap();
    fixture.pool.write_versions().unwrap();
    assert_eq!(fixture.log.hardened.load(Ordering::Acquire), 0, "nothing asked for the log");
    let stamp = |generation| Stamp { database: [7; 16], generation };
    fixture.pool.stamp(stamp(1)).unwrap();
    fixture.pool.check_poison().unwrap();
    fixture.pool.stamp_last(stamp(2)).unwrap();
    assert!(fixture.pool.stamp(stamp(3)).is_err(), "the database is closed");
    assert_eq!(*memory.stamp.lock(), Some(stamp(2)));
    fixture.pool.stop_cleaner();
}

/// The time of a page must not run backwards when the page is freed, evicted and used again.
#[test]
fn creation_continues_from_the_gsn_in_the_store() {
    let (fixture, memory) = fixture();
    fixture.create_pages(1);
    fixture.increment(ONE).unwrap();
    for round in 0..2 {
        // In the second round, the page is in the pool.
        if round == 0 {
            evict(&fixture);
        }
        let last = memory.last_gsn(ONE).unwrap();
        assert!(!last.is_zero());
        let mut page = fixture.pool.create(ONE).unwrap();
        assert_eq!(page.gsn(), last, "before the first change");
        page.prepare();
        page::init_header(&mut page.page_mut(), PageType::Leaf, 0, ONE, TableId::new(1));
        assert_eq!((page.gsn(), page::gsn(&page)), (last, Gsn::ZERO), "formatted, and not stamped yet");
        let next = Gsn::new(last.get() + 1);
        set_counter(&mut page.page_mut(), 40 + round, next);
        assert_eq!(page.gsn(), next, "stamped");
        memory.put(&page);
        drop(page);
        assert_eq!(fixture.counter(ONE).unwrap(), 40 + round);
    }
    // A page that was never written has no time yet.
    assert_eq!(fixture.pool.create(PageId::new(5000)).unwrap().gsn(), Gsn::ZERO);
}

#[test]
fn a_page_whose_gsn_cannot_be_read_is_not_created() {
    let (fixture, memory) = fixture();
    fixture.create_pages(1);
    evict(&fixture);
    memory.fails.store(true, Ordering::Relaxed);
    for _ in 0..100 {
        assert!(fixture.pool.create(ONE).is_err());
    }
    assert!(!fixture.pool.is_resident(ONE));
    memory.fails.store(false, Ordering::Relaxed);
    drop(fixture.pool.create(ONE).unwrap());
    assert_eq!(fixture.counter(ONE).unwrap(), 0);
}

#[test]
fn a_page_that_is_given_up_stays_as_it_is_in_the_store() {
    let (fixture, _) = fixture();
    fixture.create_pages(1);
    evict(&fixture);
    // Created and not changed.
    let page = fixture.pool.create(ONE).unwrap();
    page.prepare();
    drop(page);
    assert!(!fixture.pool.is_resident(ONE));
    assert_eq!(fixture.counter(ONE).unwrap(), 0);
    // Changed and discarded.
    let mut page = fixture.pool.exclusive(ONE).unwrap();
    page.prepare();
    let gsn = page.gsn();
    set_counter(&mut page.page_mut(), 9, gsn);
    page.discard();
    assert!(!fixture.pool.is_resident(ONE));
    assert_eq!(fixture.counter(ONE).unwrap(), 0);
    assert_eq!(fixture.pool.metrics().dirty, 0);
}
