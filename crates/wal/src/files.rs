//! The segments in use, for those who read and write them.

use std::collections::BTreeMap;

use duramen_io::File;
use duramen_sync::{Arc, RwLock};
use duramen_types::Lsn;

use crate::error::{Result, WalError};
use crate::record::Identity;
use crate::segment::Geometry;

/// The open files of the segments in use.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    pub(crate) identity: Identity,
    pub(crate) geometry: Geometry,
    live: RwLock<BTreeMap<u64, Arc<dyn File>>>,
}

impl SegmentFiles {
    pub(crate) fn new(identity: Identity, geometry: Geometry, live: BTreeMap<u64, Arc<dyn File>>) -> Self {
        Self { identity, geometry, live: RwLock::new(live) }
    }

    /// The file that holds `lsn`.
    pub(crate) fn file_at(&self, lsn: u64) -> Result<Arc<dyn File>> {
        let segment = self.geometry.segment_of(lsn);
        self.live.read().get(&segment).cloned().ok_or(WalError::MissingSegment { segment, lsn: Lsn::new(lsn) })
    }

    pub(crate) fn file(&self, number: u64) -> Option<Arc<dyn File>> {
        self.live.read().get(&number).cloned()
    }

    /// Makes all of them durable as they are.
    pub(crate) fn sync(&self) -> Result<()> {
        let files: Vec<Arc<dyn File>> = self.live.read().values().cloned().collect();
        for file in files {
            file.sync()?;
        }
        Ok(())
    }

    pub(crate) fn insert(&self, number: u64, file: Arc<dyn File>) {
        self.live.write().insert(number, file);
    }

    pub(crate) fn remove(&self, number: u64) {
        self.live.write().remove(&number);
    }

    pub(crate) fn count(&self) -> u64 {
        self.live.read().len() as u64
    }

    /// Numbers of the first and the last segment in use.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let live = self.live.read();
        Some((*live.first_key_value()?.0, *live.last_key_value()?.0))
    }

    /// LSN behind the last segment.
    pub(crate) fn limit(&self) -> u64 {
        self.span().map_or(0, |(_, last)| self.geometry.base(last + 1))
    }

    /// The parts of `[from, to)` that lie in one segment each.
    pub(crate) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let geometry = self.geometry;
        let mut at = from;
        std::iter::from_fn(move || {
            if at >= to {
                return None;
            }
            let start = at;
            at = to.min(geometry.base(geometry.segment_of(at) + 1));
            Some((start, at))
        })
    }

    /// Fills `buf` with the log's bytes from `lsn`, as far as the segments reach; returns how many. Both are whole blocks.
    pub(crate) fn read(&self, lsn: u64, buf: &mut [u8]) -> Result<usize> {
        let end = (lsn + buf.len() as u64).min(self.limit());
        if lsn >= end {
            return Ok(0);
        }
        for (from, to) in self.pieces(lsn, end) {
            let part = &mut buf[(from - lsn) as usize..(to - lsn) as usize];
            self.file_at(from)?.read_at(part, self.geometry.offset(from))?;
        }
        Ok((end - lsn) as usize)
    }
}
