//! What a region holds, for a look at it: as recovery would find it.

use std::collections::BTreeMap;

use duramen_io::AlignedBuf;
use duramen_types::{PAGE_SIZE, PageId};

use super::Pcm;
use super::active::Xid;
use super::covers::Cover;
use super::layout::HEADER;
use super::map::Map;
use super::overlay::put_tuples_into;
use super::recover::Scan;
use crate::error::Result;
use crate::page;

/// The slots of a region.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) slots: u64,
    pub(crate) free: u64,
    /// Pages whose latest version is here.
    pub(crate) pages: u64,
    /// Tuples that are later than the pages here, and the slots with them.
    pub(crate) tuples: u64,
    pub(crate) tuple_slots: u64,
    /// Slots that recovery would erase: earlier versions, and what was being written.
    pub(crate) erased: u64,
    /// Slots with deferred frees.
    pub(crate) garbage: u64,
    /// Transactions that have not committed, with their entries of the list, and the numbers of
    /// their covers.
    pub(crate) active: Vec<(u64, u32, u64)>,
    /// Pages whose covers cannot be read.
    pub(crate) unreadable: Vec<PageId>,
}

impl Pcm {
    /// Reads all slots.
    pub(crate) fn summary(&self) -> Summary {
        let mut scan = Scan::of(self);
        let versions = scan.take_versions(self);
        let (tuples, _) = scan.take_tuples(self, &versions);
        let mut active: BTreeMap<Xid, u64> = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (page, version) in &versions {
            match Cover::decode_all(&version.covers) {
                Ok(covers) => {
                    for cover in covers.iter().filter(|cover| cover.xid().is_listed_in(self)) {
                        *active.entry(cover.xid()).or_default() += 1;
                    }
                }
                Err(_) => unreadable.push(*page),
            }
        }
        unreadable.sort_unstable();
        Summary {
            slots: self.slots().into(),
            free: scan.free.len() as u64,
            pages: versions.len() as u64,
            tuples: tuples.count() as u64,
            tuple_slots: tuples.slots() as u64,
            erased: scan.erased.len() as u64,
            garbage: scan.garbage.len() as u64,
            active: active.into_iter().map(|(xid, covers)| (xid.0, xid.entry(), covers)).collect(),
            unreadable,
        }
    }

    /// Reads the latest version of a page, which is that of the data file if there is none here,
    /// with its tuples. A page that fails its check gets none.
    ///
    /// # Errors
    /// Those of `of_file`; [`crate::Error::Corrupt`] if tuples do not belong to the page.
    pub(crate) fn latest(&self, page: PageId, of_file: impl FnOnce() -> Result<AlignedBuf>) -> Result<AlignedBuf> {
        let mut scan = Scan::of(self);
        let versions = scan.take_versions(self);
        let mut bytes = match versions.get(&page) {
            Some(version) => {
                let mut bytes = AlignedBuf::zeroed(PAGE_SIZE);
                self.region.read(version.slot.at() + HEADER as u64, &mut bytes);
                bytes
            }
            None => of_file()?,
        };
        if page::verify(&bytes, page).is_ok() {
            let mut map = Map::default();
            (map.tuples, _) = scan.take_tuples(self, &versions);
            put_tuples_into(self, &mut map, page, &mut bytes)?;
        }
        Ok(bytes)
    }
}
