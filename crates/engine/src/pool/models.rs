//! A model of a whole pool with a single frame: look-up, load and eviction race for the frame.

use duramen_io::File;
use duramen_sync::thread;
use duramen_types::{Gsn, PAGE_SIZE, PageId, TableId};

use super::*;
use crate::page::{self, Lines, PageMut, PageType};

/// A file in which every page is intact, and a trace of the contents of the pool's only frame. Loom
/// does not model plain memory, so it cannot tell what a thread may see in the frame itself.
#[derive(Debug)]
struct Pages {
    in_frame: AtomicU64,
}

impl Pages {
    /// Returns the page that the calling thread may find in the frame.
    fn in_frame(&self) -> PageId {
        PageId::new(self.in_frame.load(Ordering::Relaxed))
    }
}

impl File for Pages {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> duramen_io::Result<()> {
        let id = PageId::new(offset / PAGE_SIZE as u64);
        self.in_frame.store(id.get(), Ordering::Relaxed);
        page::init_header(&mut PageMut::new(buf, &mut Lines::NONE), PageType::Leaf, 0, id, TableId::new(1));
        page::seal(buf, page::DatabaseTag::of(&[3; 16]));
        Ok(())
    }

    fn read_batch(&self, _: &mut [(u64, &mut [u8])]) -> duramen_io::Result<()> {
        unreachable!("the pool reads single pages")
    }

    fn write_at(&self, _: &[&[u8]], _: u64) -> duramen_io::Result<()> {
        unreachable!("no page is dirty")
    }

    fn write_durable(&self, _: &[&[u8]], _: u64) -> duramen_io::Result<()> {
        unreachable!("no page is dirty")
    }

    fn write_batch(&self, _: &[(u64, &[u8])]) -> duramen_io::Result<()> {
        unreachable!("no page is dirty")
    }

    fn sync(&self) -> duramen_io::Result<()> {
        Ok(())
    }

    fn len(&self) -> duramen_io::Result<u64> {
        Ok(4 * PAGE_SIZE as u64)
    }

    fn allocate(&self, _: u64) -> duramen_io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> duramen_io::Result<()> {
        unreachable!("the pool never cuts files")
    }

    fn path(&self) -> String {
        "model".to_owned()
    }
}

struct NoLog;

impl WalRule for NoLog {
    fn harden(&self, _: Gsn) -> Result<(), PoolError> {
        Ok(())
    }

    fn end(&self) -> Gsn {
        Gsn::new(1)
    }
}

const ONE: PageId = PageId::new(1);
const TWO: PageId = PageId::new(2);

/// Runs `ask` for page 1 on one thread while page 2 takes the frame of page 1.
fn model(ask: impl Fn(&Pool, &Pages) + Copy + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 20_000;
    builder.check(move || {
        let file = Arc::new(Pages { in_frame: AtomicU64::new(0) });
        let data = Arc::clone(&file) as Arc<dyn File>;
        let config = PoolConfig { frames: 1, ..PoolConfig::default() };
        let store =
            FilePages::new(Arc::clone(&data), page::DatabaseTag::of(&[3; 16]), Some(data), None, Arc::new(NoLog))
                .unwrap();
        let pool = Pool::new(config, Arc::new(store), PreBlockHook::default()).unwrap();
        pool.find_or_load(ONE).unwrap();
        let other = {
            let pool = Arc::clone(&pool);
            thread::spawn("other", move || ask(&pool, &file)).unwrap()
        };
        pool.find_or_load(TWO).unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_validated_read_is_of_the_page_asked_for() {
    model(|pool, frame| {
        if let Ok(read) = pool.optimistic(ONE) {
            let found = frame.in_frame();
            assert!(read.validate().is_err() || found == ONE, "read {found}");
        }
    });
}

#[test]
fn a_shared_latch_is_of_the_page_asked_for() {
    model(|pool, frame| {
        let guard = pool.shared(ONE).unwrap();
        assert_eq!((frame.in_frame(), page::page_id(&guard)), (ONE, ONE));
    });
}

#[test]
fn an_exclusive_latch_is_of_the_page_asked_for() {
    model(|pool, frame| {
        let guard = pool.exclusive(ONE).unwrap();
        assert_eq!((frame.in_frame(), page::page_id(&guard)), (ONE, ONE));
    });
}

#[test]
fn an_upgrade_is_of_the_page_asked_for() {
    model(|pool, frame| {
        if let Ok(read) = pool.optimistic(ONE)
            && let Ok(guard) = read.upgrade()
        {
            assert_eq!((frame.in_frame(), page::page_id(&guard)), (ONE, ONE));
        }
    });
}
