//! Creates a database in a heap in persistent memory, and opens its parts.

use std::path::Path;

use duramen_io::Disk;
use duramen_pmem::Source;
use duramen_sync::Arc;
use duramen_types::{Gsn, Lsn, PAGE_SIZE, PageId};

use super::create::FIRST_TXN;
use super::files::new_identity;
use super::parts::Opened;
use crate::btree::empty_root;
use crate::checkpoint::control::{CONTROL, Control, ControlFile, SchemeId, SeveralLogs};
use crate::error::{Error, Result};
use crate::heap::{Heap, HeapPages, Layout, State, Word};
use crate::metrics::RecoveryReport;
use crate::options::{BatchOptions, HeapOptions, Options, Residence, Scheme};
use crate::page::{self, PageBuf, bitmap};
use crate::pool::{ACTION_BYTES, Pool, PoolConfig, Stamp};
use crate::pre_block_hook::PreBlockHook;
use crate::recovery::{recover_batches, recover_heap};
use crate::scheme::{Batches, Found, GroupCommit, InPlace, create_log, most_staged};
use crate::storage::catalog::CATALOG;
use crate::storage::free_space::blank_bitmap;

/// The most pages of a heap that are read where they are: the pool counts them in 31 bits.
const MOST_DIRECT: u64 = 1 << 30;

/// Refuses a heap whose parts would not leave enough space for each other.
pub(super) fn check_sizes(scheme: &Scheme) -> Result<()> {
    let Scheme::NvramGroupCommit(heap, _) = scheme else { return Ok(()) };
    let layout = Layout::of_new(heap.bytes, heap.journal_bytes, scheme.batch_bytes());
    let reason = if layout.pages < 16 {
        "journals and batch log leave no space for pages: make the heap larger"
    } else if most_staged(layout.blocks, layout.batch_bytes) < 4 * ACTION_BYTES {
        "the batch log is too small for this number of journals: make it larger"
    } else {
        return Ok(());
    };
    Err(Error::InvalidOption { option: "scheme", reason: reason.to_owned() })
}

/// Refuses a heap that would mix with the files of the database in `home`, or that a new database
/// could not have.
pub(super) fn check_place(home: &Path, heap: &HeapOptions, batch_bytes: u64, files: &[&str]) -> Result<()> {
    let Source::File(path) = &heap.source else { return Ok(()) };
    let is_taken = files.iter().any(|name| is_heap(home, name, heap));
    if !is_taken {
        let is_new = !home.join(CONTROL).exists();
        // The directory of the heap may be that of the database, and not exist yet.
        let can_be_tried = path.parent().is_some_and(Path::exists);
        return if is_new && can_be_tried { Heap::check_new(heap, batch_bytes) } else { Ok(()) };
    }
    let reason = format!("the heap `{}` is a file of the database itself; name another", path.display());
    Err(Error::InvalidOption { option: "scheme", reason })
}

/// Whether the heap is the file with this name in the directory `home`.
pub(super) fn is_heap(home: &Path, name: &str, heap: &HeapOptions) -> bool {
    matches!(&heap.source, Source::File(path) if *path == home.join(name))
}

/// Creates a database in a directory that is empty except for the marker.
pub(super) fn create(disk: &dyn Disk, options: &HeapOptions, scheme: &Scheme) -> Result<()> {
    let database = new_identity(disk);
    let id = SchemeId::of(scheme);
    let heap = Heap::create(options, scheme.batch_bytes(), database, id as u8)?;
    if id == SchemeId::NvramGroupCommit {
        create_log(&heap);
    }
    let mut bitmap = blank_bitmap(0);
    bitmap::set(&mut bitmap.page_mut(), CATALOG.root.get() as u32, true).expect("the bitmap is blank");
    put_page(&heap, bitmap::bitmap_page(0), bitmap);
    put_page(&heap, CATALOG.root, empty_root(CATALOG.root, CATALOG.table));
    heap.barrier();
    let control = Control {
        database,
        sequence: 0,
        checkpoint: Lsn::ZERO,
        redo: Gsn::ZERO,
        oldest: Gsn::ZERO,
        next_txn: FIRST_TXN,
        written: 0,
        groups: 1,
        generation: 1,
        is_clean: false,
        has_tier: false,
        scheme: id,
        logs: SeveralLogs::ONE,
    };
    ControlFile::create(disk, control)?;
    Ok(())
}

/// Stores a page. Its GSN is not zero, because a page of zeros is none.
fn put_page(heap: &Heap, id: PageId, mut page: PageBuf) {
    page::set_gsn(&mut page.page_mut(), Gsn::new(1));
    heap.store_page(id, 0, &page);
}

/// Opens the heap and repeats the changes that a crash has interrupted.
pub(super) fn open(options: &HeapOptions, all: &Options, control: &Control) -> Result<Opened> {
    let heap = open_heap(options, control)?;
    if options.residence == Residence::Direct && heap.layout.pages > MOST_DIRECT {
        let reason = "the residence `direct` is for heaps of at most 8 TiB: use `cached`".to_owned();
        return Err(Error::InvalidOption { option: "scheme", reason });
    }
    let mut report = RecoveryReport::default();
    let found = Arc::new(Found::repeat(&heap, &mut report)?);
    heap.set(Word::State, State::InUse as u64);
    let scheme = Arc::new(InPlace::new(Arc::clone(&heap), &found, options.barriers)?);
    let config = PoolConfig { frames: all.pool_bytes / PAGE_SIZE, ..PoolConfig::default() };
    let pool =
        Pool::new(config, Arc::new(HeapPages::new(Arc::clone(&heap), options.residence)), PreBlockHook::default())?;
    let shortfall = heap.shortfall();
    Ok(Opened {
        pool,
        scheme,
        shortfall,
        before_lock_wait: None,
        recover: Box::new(move |host, _control| recover_heap(host, &heap, found, report)),
        checkpointed: Box::new(|| {}),
    })
}

/// Opens the heap, and brings the latest batch home.
pub(super) fn open_with_batches(
    options: &HeapOptions,
    batches: BatchOptions,
    all: &Options,
    control: &Control,
) -> Result<Opened> {
    let heap = open_heap(options, control)?;
    let mut report = RecoveryReport::default();
    let found = Batches::repeat(&heap, &mut report)?;
    heap.set(Word::State, State::InUse as u64);
    let config = PoolConfig { frames: all.pool_bytes / PAGE_SIZE, ..PoolConfig::default() };
    let most_staged = most_staged(heap.layout.blocks, heap.layout.batch_bytes);
    let pages = HeapPages::staged(Arc::clone(&heap), most_staged);
    let pool = Pool::new(config, Arc::new(pages), PreBlockHook::default())?;
    let scheme = GroupCommit::start(Arc::clone(&heap), Arc::clone(&pool), batches, options.barriers, &found)?;
    let shortfall = heap.shortfall();
    Ok(Opened {
        pool,
        scheme: Arc::new(scheme),
        shortfall,
        before_lock_wait: None,
        recover: Box::new(move |host, _control| recover_batches(host, &heap, found, report)),
        checkpointed: Box::new(|| {}),
    })
}

/// Opens the heap of a database.
fn open_heap(options: &HeapOptions, control: &Control) -> Result<Arc<Heap>> {
    let heap = Arc::new(Heap::open(options, control.database, control.scheme as u8)?);
    let stamp = Stamp { database: heap.header.database, generation: heap.get(Word::Generation) };
    control.check_stamp(stamp, heap.location())?;
    Ok(heap)
}
