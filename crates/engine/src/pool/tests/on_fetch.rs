//! Pages that lack changes on disk; the thread that reads such a page in redoes it.

use super::super::{Interrupt, RedoOnFetch};
use super::*;

/// The value of the counter in redone pages.
const REDONE: u64 = 7;

/// Pages that lack a change which sets their counter.
#[derive(Default)]
struct Lacking {
    pages: Mutex<HashMap<PageId, Gsn>>,
    /// Whether the changes fail to fit the pages.
    fails: AtomicBool,
}

impl RedoOnFetch for Lacking {
    fn lacks(&self, page: PageId) -> bool {
        self.pages.lock().contains_key(&page)
    }

    fn redo(&self, page: &mut Exclusive<'_>) -> Result<(), PoolError> {
        let (id, gsn) = (page.id(), self.pages.lock()[&page.id()]);
        page.prepare_redo(gsn);
        let mut contents = page.page_mut();
        page::init_header(&mut contents, PageType::Leaf, 0, id, TableId::new(1));
        set_counter(&mut contents, REDONE, gsn);
        if self.fails.load(Ordering::Relaxed) {
            return Err(PoolError::Corrupt {
                page: id,
                defect: "it does not fit".into(),
                damage: super::super::Damage::Other,
                file: "data".into(),
                offset: 0,
            });
        }
        self.pages.lock().remove(&id);
        Ok(())
    }

    fn pages(&self) -> Vec<(PageId, Gsn)> {
        self.pages.lock().iter().map(|(page, gsn)| (*page, *gsn)).collect()
    }
}

/// Makes a pool as after an opening, over ten pages on disk and a blank one, all of which lack a
/// change.
fn opened() -> (Fixture, Arc<Lacking>) {
    let fixture = Fixture::new(64);
    fixture.create_pages(10);
    fixture.pool.flush_all().unwrap();
    fixture.pool.reserve_page(PageId::new(11)).unwrap();
    let lacking = Arc::new(Lacking::default());
    lacking.pages.lock().extend((1..=11).map(PageId::new).map(|id| (id, fixture.log.insert(id))));
    let fixture = fixture.reopen(64);
    fixture.pool.redo_on_fetch(Arc::clone(&lacking) as _);
    (fixture, lacking)
}

#[test]
fn whatever_the_way_to_a_page_it_is_redone_before() {
    let (fixture, lacking) = opened();
    let (pool, id) = (&fixture.pool, PageId::new);
    assert_eq!(pool.unredone_pages().len(), 11);
    let read = pool.optimistic(id(1)).unwrap_or_else(|_| panic!("nobody is in the way"));
    assert_eq!(counter(&read.page(), id(1)), Ok(REDONE));
    read.validate().unwrap();
    assert_eq!(fixture.counter(id(2)).unwrap(), REDONE);
    fixture.increment(id(3)).unwrap();
    fixture.increment_guard(&mut pool.try_exclusive(id(4)).unwrap().unwrap());
    // A created page that is not changed after all keeps its contents.
    drop(pool.create(id(5)).unwrap());
    pool.prefetch(&[id(6), id(7)]);
    for (page, expected) in [(3, REDONE + 1), (4, REDONE + 1), (5, REDONE), (6, REDONE), (7, REDONE), (11, REDONE)] {
        assert_eq!(fixture.counter(id(page)).unwrap(), expected, "page {page}");
    }
    let mut left: Vec<u64> = pool.unredone_pages().into_iter().map(|(page, _)| page.get()).collect();
    left.sort_unstable();
    assert_eq!(left, [8, 9, 10]);
    assert_eq!(pool.dirty_pages().len(), 8, "those that have been redone");
    // The page is redone once, for all later readers.
    pool.flush_all().unwrap();
    lacking.pages.lock().clear();
    let fixture = fixture.reopen(64);
    assert_eq!(fixture.counter(id(4)).unwrap(), REDONE + 1);
    assert_eq!((fixture.counter(id(11)).unwrap(), fixture.counter(id(8)).unwrap()), (REDONE, 0));
}

#[test]
fn a_page_that_cannot_be_redone_stays_what_it_is_on_disk() {
    let (fixture, lacking) = opened();
    let (pool, id) = (&fixture.pool, PageId::new);
    lacking.fails.store(true, Ordering::Relaxed);
    for page in [1, 11] {
        pool.prefetch(&[id(page)]);
        assert!(matches!(fixture.counter(id(page)), Err(PoolError::Corrupt { .. })));
        assert!(matches!(pool.optimistic(id(page)), Err(Interrupt::Failed(PoolError::Corrupt { .. }))));
        assert!(matches!(pool.create(id(page)), Err(PoolError::Corrupt { .. })));
        assert!(!pool.is_resident(id(page)));
    }
    assert_eq!((pool.dirty_pages(), pool.metrics().dirty), (Vec::new(), 0));
    assert_eq!(pool.unredone_pages().len(), 11);
    lacking.fails.store(false, Ordering::Relaxed);
    assert_eq!((fixture.counter(id(1)).unwrap(), fixture.counter(id(11)).unwrap()), (REDONE, REDONE));
    // A page that is not on disk at all is an error.
    assert!(fixture.counter(id(12)).is_err());
}
