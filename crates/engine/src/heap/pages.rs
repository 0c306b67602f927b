//! The pages of a heap, for the buffer pool.

use std::ptr::NonNull;

use duramen_sync::Arc;
use duramen_types::{Gsn, PAGE_SIZE, PageId};

use super::{Heap, Word};
use crate::options::Residence;
use crate::page::{self, PageType};
use crate::pool::{Damage, PageStore, PageWriter, PoolError, Stamp};

/// Reads pages of a heap. The storage scheme stores each change to the heap: while the page is
/// latched, so that pages are never dirty, or in batches.
#[derive(Debug)]
pub(crate) struct HeapPages {
    heap: Arc<Heap>,
    residence: Residence,
    /// The most bytes of a batch, if changes go to the heap in batches.
    most_staged: Option<u64>,
}

impl HeapPages {
    pub(crate) fn new(heap: Arc<Heap>, residence: Residence) -> Self {
        Self { heap, residence, most_staged: None }
    }

    /// For changes that go to the heap in batches of at most `most_staged` bytes.
    pub(crate) fn staged(heap: Arc<Heap>, most_staged: u64) -> Self {
        Self { heap, residence: Residence::Cached, most_staged: Some(most_staged) }
    }

    fn corrupt(&self, page: PageId, damage: Damage, defect: String) -> PoolError {
        let offset = self.heap.layout.page(page);
        PoolError::Corrupt { page, defect, damage, file: self.location(), offset }
    }

    fn check_place(&self, id: PageId) -> Result<(), PoolError> {
        if id.get() < self.heap.layout.pages {
            return Ok(());
        }
        Err(self.corrupt(id, Damage::Blank, "it is behind the end of the heap".to_owned()))
    }
}

/// Returns what is wrong with the header of a page of a heap, if anything is.
pub(crate) fn defect(id: PageId, bytes: &[u8]) -> Option<(Damage, String)> {
    let found = page::page_id(bytes);
    if page::gsn(bytes).is_zero() && found.is_zero() {
        return Some((Damage::Blank, "the page is blank".to_owned()));
    }
    if found != id {
        return Some((Damage::Other, format!("{found} is in the page's place")));
    }
    match page::page_type(bytes) {
        Some(PageType::Stamp) | None => {
            Some((Damage::Other, "the page has a type that does not occur in heaps".to_owned()))
        }
        Some(_) => None,
    }
}

impl PageStore for HeapPages {
    fn read(&self, id: PageId, was_written: bool, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.check_place(id)?;
        self.heap.read(self.heap.layout.page(id), bytes);
        self.verify(id, was_written, bytes)
    }

    fn read_batch(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<(), PoolError> {
        for (id, bytes) in pages {
            self.check_place(*id)?;
            self.heap.read(self.heap.layout.page(*id), bytes);
        }
        Ok(())
    }

    /// A checksum of 8 KiB for each change of a line would cost about as much as the change, so
    /// pages of a heap have none. This checks the header.
    fn verify(&self, id: PageId, _was_written: bool, bytes: &[u8]) -> Result<(), PoolError> {
        defect(id, bytes).map_or(Ok(()), |(damage, defect)| Err(self.corrupt(id, damage, defect)))
    }

    fn has_checksums(&self) -> bool {
        false
    }

    fn last_gsn(&self, id: PageId) -> Result<Gsn, PoolError> {
        self.check_place(id)?;
        Ok(self.heap.page_gsn(id))
    }

    fn reserve(&self, id: PageId) -> Result<(), PoolError> {
        let pages = self.heap.layout.pages;
        if id.get() < pages { Ok(()) } else { Err(PoolError::HeapFull { location: self.location(), pages }) }
    }

    fn pages(&self) -> u64 {
        self.heap.layout.pages
    }

    fn location(&self) -> String {
        self.heap.location().to_owned()
    }

    fn stamp(&self, stamp: Stamp) -> Result<(), PoolError> {
        self.heap.set(Word::Generation, stamp.generation);
        Ok(())
    }

    fn verify_name(&self) -> Result<(), PoolError> {
        Ok(())
    }

    fn writer(&self) -> Option<&dyn PageWriter> {
        None
    }

    fn memory(&self) -> Option<NonNull<u8>> {
        (self.residence == Residence::Direct).then(|| self.heap.pages_at())
    }

    fn most_staged(&self) -> Option<u64> {
        self.most_staged
    }
}

const _: () = assert!(PAGE_SIZE == 8192, "a page is 128 lines");
