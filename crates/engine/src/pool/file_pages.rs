//! The data file as the store of the pages.
//!
//! A page is at its number times the page size. The file grows ahead of the pages in it (`growth`).
//! Dirty pages are written in batches, first to the double-write area (`doublewrite`), unless they
//! were formatted anew, and then in place. The store tracks the lowest version that each page can
//! have (`versions`).

use std::fmt;

use duramen_io::File;
use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Arc, Mutex};
use duramen_types::{Gsn, PAGE_SIZE, PageId, planted};

use super::batch::{Batch, Copied};
use super::doublewrite::{Area, FIRST_PAGES};
use super::error::Damage;
use super::growth::Growth;
use super::page_store::{PageStore, PageWriter, WalRule};
use super::versions::Versions;
use super::{PoolError, Stamp};
use crate::page::{self, DatabaseTag, PageDefect};

/// The pages of a data file.
pub(crate) struct FilePages {
    data: Arc<dyn File>,
    /// The database whose pages these are.
    database: DatabaseTag,
    growth: Growth,
    /// Locked while pages are written. The double-write area, unless a store above keeps pages
    /// until they are durable in place.
    area: Mutex<Option<Area>>,
    /// The lowest version that each page can have on disk, if versions are tracked.
    versions: Option<Versions>,
    /// End of the log when this value was made: no page that was on disk then is newer.
    log_end: Gsn,
    wal_rule: Arc<dyn WalRule>,
}

impl FilePages {
    /// Uses `data` of this database, with `doublewrite` as its double-write area. The pages of that
    /// area must have been put back ([`FoundArea`](super::FoundArea)). Without an area the caller
    /// keeps each page that it writes until it is durable, and a torn one is never read.
    ///
    /// # Errors
    /// Those of the disk.
    pub(crate) fn new(
        data: Arc<dyn File>,
        database: DatabaseTag,
        doublewrite: Option<Arc<dyn File>>,
        versions: Option<Versions>,
        wal_rule: Arc<dyn WalRule>,
    ) -> Result<Self, PoolError> {
        let len = data.len()?;
        Ok(Self {
            area: Mutex::new(doublewrite.map(Area::new).transpose()?),
            growth: Growth::new(len),
            versions,
            log_end: wal_rule.end(),
            data,
            database,
            wal_rule,
        })
    }

    /// Writes pages for which the area has space.
    fn write_at_once(&self, area: Option<&Area>, batch: &Batch) -> Result<(), PoolError> {
        if let Some(area) = area
            && needing_copies(batch).next().is_some()
            && !planted!(SkipDoubleWrite)
        {
            area.write(needing_copies(batch))?;
        }
        self.data.write_batch(&batch.in_place())?;
        if !planted!(SkipDataSync) {
            self.data.sync()?;
        }
        Ok(())
    }

    /// Records that pages are durable in these versions, here or in a tier above.
    pub(super) fn note_versions(&self, pages: impl Iterator<Item = (PageId, Gsn)>) {
        if let Some(versions) = &self.versions {
            versions.note(pages);
        }
    }

    /// Returns the database whose pages these are.
    pub(crate) fn database(&self) -> DatabaseTag {
        self.database
    }

    /// Returns the end of the log when this value was made.
    pub(super) fn log_end(&self) -> Gsn {
        self.log_end
    }

    /// Returns the lowest version that a page can have on disk. `was_written` says that the pool
    /// has written it since it was made; else a version that the log has not reached is not
    /// believed.
    pub(super) fn least(&self, id: PageId, was_written: bool) -> Gsn {
        let least = self.versions.as_ref().map_or(Gsn::ZERO, |versions| versions.least(id));
        if (least < self.log_end || was_written) && !planted!(VersionsNotCompared) && !planted!(FencesNotCompared) {
            least
        } else {
            Gsn::ZERO
        }
    }

    /// Checks that the bytes are this page as this database wrote it.
    fn is_sealed(&self, bytes: &[u8], id: PageId) -> Result<(), PageDefect> {
        page::verify(bytes, id)?;
        page::verify_database(bytes, self.database)
    }

    fn is_whole(&self, bytes: &[u8], id: PageId) -> Result<(), PageDefect> {
        match self.is_sealed(bytes, id) {
            Err(PageDefect::Blank) => Ok(()),
            other => other,
        }
    }

    fn corrupt(&self, page: PageId, damage: Damage, defect: String) -> PoolError {
        PoolError::corrupt(page, damage, defect, self.location())
    }
}

impl PageStore for FilePages {
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.data.read_at(bytes, offset(id))?;
        self.verify(id, was_written, bytes)
    }

    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        let mut reads: Vec<(u64, &mut [u8])> =
            pages.iter_mut().map(|(id, bytes)| (offset(*id), &mut **bytes)).collect();
        Ok(self.data.read_batch(&mut reads)?)
    }

    /// Checks the bytes that were read for the page. By the WAL rule the log has every change that
    /// is on disk. So a page with a later change does not belong to this log. A page that the pool
    /// has not written is compared with the log's end when the pool was made, because the log may
    /// since have grown past what was lost. A page must also not be older than its recorded
    /// version.
    fn verify(&self, id: PageId, was_written: bool, bytes: &[u8]) -> Result<(), PoolError> {
        self.is_sealed(bytes, id).map_err(|defect| {
            let damage = if defect == PageDefect::Blank { Damage::Blank } else { Damage::Other };
            self.corrupt(id, damage, defect.to_string())
        })?;
        if page::gsn(bytes) >= self.log_end && !was_written {
            let defect = "it has changes that the log does not have: the log has lost its end";
            return Err(self.corrupt(id, Damage::AheadOfLog, defect.to_owned()));
        }
        let least = self.least(id, was_written);
        if page::gsn(bytes) < least {
            let (found, defect) = (page::gsn(bytes), "an older version of the page is in its place");
            return Err(self.corrupt(id, Damage::Other, format!("{defect}: it has {found}, but {least} was written")));
        }
        Ok(())
    }

    /// Returns zero: the log's clock is ahead of every page.
    fn last_gsn(&self, _: PageId) -> Result<Gsn, PoolError> {
        Ok(Gsn::ZERO)
    }

    fn reserve(&self, id: PageId) -> Result<(), PoolError> {
        Ok(self.growth.reserve(id, &*self.data, || self.wal_rule.before_blocking())?)
    }

    fn pages(&self) -> u64 {
        self.growth.len() / PAGE_SIZE as u64
    }

    fn location(&self) -> String {
        self.data.path()
    }

    fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        let mut area = self.area.lock();
        stamp.write(&*self.data)?;
        area.as_mut().map_or(Ok(()), |area| area.set_stamp(stamp))
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        Ok(self.data.verify_name()?)
    }

    fn writer(&self) -> Option<&dyn PageWriter> {
        Some(self)
    }
}

impl PageWriter for FilePages {
    fn wal_rule(&self) -> &dyn WalRule {
        &*self.wal_rule
    }

    fn write(&self, batch: &mut Batch) -> Result<(), PoolError> {
        batch.seal(self.database);
        if planted!(StaleAreaPutBack) {
            // Only whole pages of another time would be taken for good ones.
            batch.forget_lines();
        }
        let mut area = self.area.lock();
        if area.as_mut().map_or(Ok(true), |area| area.make_room(needing_copies(batch)))? {
            self.write_at_once(area.as_ref(), batch)?;
        } else {
            reach(Probe::BatchInParts);
            batch.parts(FIRST_PAGES).try_for_each(|part| self.write_at_once(area.as_ref(), &part))?;
        }
        drop(area);
        self.note_versions(batch.pages());
        Ok(())
    }

    fn write_versions(&self) -> Result<(), PoolError> {
        Ok(self.versions.as_ref().map_or(Ok(()), Versions::write)?)
    }

    fn read_whole(&self, first: PageId, bytes: &mut [u8]) -> Result<u64, PoolError> {
        self.data.read_at(bytes, offset(first))?;
        let mut again = 0;
        for (id, page) in (first.get()..).map(PageId::new).zip(bytes.chunks_exact_mut(PAGE_SIZE)) {
            if self.is_whole(page, id).is_ok() || planted!(BackupKeepsTornPages) {
                continue;
            }
            again += 1;
            {
                let _nobody_writes = self.area.lock();
                self.data.read_at(page, offset(id))?;
            }
            self.is_whole(page, id).map_err(|defect| self.corrupt(id, Damage::Other, defect.to_string()))?;
        }
        Ok(again)
    }
}

impl fmt::Debug for FilePages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePages")
            .field("data", &self.location())
            .field("pages", &self.pages())
            .finish_non_exhaustive()
    }
}

/// Returns the pages that the double-write area takes.
fn needing_copies(batch: &Batch) -> impl Iterator<Item = Copied<'_>> + Clone {
    batch.copies().filter(|copy| !copy.anew)
}

fn offset(id: PageId) -> u64 {
    id.get() * PAGE_SIZE as u64
}
