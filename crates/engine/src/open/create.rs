//! Creates a new database with a write-ahead log, in an order that is unambiguous after a crash.

use duramen_io::{AlignedBuf, Disk, File, OpenMode};
use duramen_sync::Arc;
use duramen_types::{LogId, PAGE_SIZE, PageId, TxnId};
use duramen_wal::{Log, LogDevice, WalOptions};

use super::files::{DATA, DOUBLE_WRITE, VERSIONS, new_identity};
use crate::btree::empty_root;
use crate::checkpoint::control::{Control, ControlFile, SchemeId, SeveralLogs};
use crate::checkpoint::tables::first_checkpoint;
use crate::error::Result;
use crate::options::Options;
use crate::page::{self, DatabaseTag, bitmap};
use crate::pool::Stamp;
use crate::record::Kind;
use crate::storage::catalog::CATALOG;
use crate::storage::free_space::blank_bitmap;

/// Size of a new data file in pages: enough for the first tables, with the pages that rollbacks may
/// need.
const INITIAL_PAGES: u64 = 40;

/// The number of the first transaction.
pub(super) const FIRST_TXN: TxnId = TxnId::new(1);

/// Creates a database in a directory that is empty except for the marker. Returns its log, unless
/// the end of the log is to be in persistent memory: a region that belongs to a log would be
/// refused if a crash let the files be created again. So such a log is created without it, and
/// closed.
pub(super) fn create(disk: &Arc<dyn Disk>, options: &Options) -> Result<Option<Log>> {
    let (shared, disk) = (disk, &**disk);
    let database = new_identity(disk);

    let stamp = Stamp { database, generation: 1 };
    create_data(disk, stamp)?;
    for name in [DOUBLE_WRITE, VERSIONS] {
        disk.open(name, OpenMode::CreateNew)?;
    }

    let on_files = WalOptions { device: LogDevice::File, ..options.of_log() };
    let logs = Log::create(shared, &on_files, database)?;
    let mut tails = Vec::new();
    let log = |kind: Kind, payload: &[u8]| logs.insert_sync_record(LogId::ZERO, kind.record(payload), &mut tails);
    let (begin, end) = first_checkpoint(log, FIRST_TXN);
    logs.harden_at_once(end.gsn, Some(end.address()))?;
    let log = if options.log_device == LogDevice::File {
        Some(logs)
    } else {
        logs.close()?;
        None
    };

    disk.sync_directory("")?;
    let control = Control {
        database,
        sequence: 0,
        checkpoint: begin.lsn,
        redo: begin.gsn,
        oldest: begin.gsn,
        next_txn: FIRST_TXN,
        written: 0,
        groups: 1,
        generation: stamp.generation,
        is_clean: false,
        has_tier: false,
        scheme: SchemeId::Wal,
        logs: SeveralLogs::new(options.logs, options.log_partition, begin.gsn, end.gsn, &tails),
    };
    ControlFile::create(disk, control)?;
    Ok(log)
}

/// Creates the data file, durably: with an allocation bitmap, an empty catalog, and this stamp.
pub(super) fn create_data(disk: &dyn Disk, stamp: Stamp) -> Result<()> {
    let data = disk.open(DATA, OpenMode::CreateNew)?;
    data.allocate(INITIAL_PAGES * PAGE_SIZE as u64)?;
    let mut bitmap = blank_bitmap(0);
    bitmap::set(&mut bitmap.page_mut(), CATALOG.root.get() as u32, true).expect("the bitmap is blank");
    let tag = DatabaseTag::of(&stamp.database);
    write_page(&*data, bitmap::bitmap_page(0), &bitmap, tag)?;
    write_page(&*data, CATALOG.root, &empty_root(CATALOG.root, CATALOG.table), tag)?;
    stamp.write(&*data)?;
    Ok(data.sync()?)
}

fn write_page(data: &dyn File, id: PageId, page: &[u8], database: DatabaseTag) -> Result<()> {
    let mut buffer = AlignedBuf::zeroed(PAGE_SIZE);
    buffer.copy_from_slice(page);
    page::seal(&mut buffer, database);
    Ok(data.write_at(&[&buffer], id.get() * PAGE_SIZE as u64)?)
}
