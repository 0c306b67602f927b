//! Values too large for a leaf: chains of overflow pages.
//!
//! The leaf holds a [`Reference`]; the chain's pages hold the value in order, each naming the next.
//! All pages of a chain carry the chain's number and their position in it, so that a walk can tell
//! a page of the chain from one that was freed and used again. The reference has a checksum of the
//! whole value.
//!
//! Pages of a chain that follow each other in the data file are an *extent*. The level in the
//! header of each page says how many pages of its extent follow it. An extent is freed with one
//! operation on the bitmap, and its pages stay as they are. Earlier versions wrote extents whose
//! first page has the highest number, and before them chains in which every page has level 0, so
//! each page is an extent of its own.
//!
//! A chain is written once, from its head on, and never changed. Its pages are reserved before they
//! are written, because each names the next. If the transaction that wrote it rolls back, the
//! rollback frees the pages. A chain that is no longer referenced is freed after the commit, from
//! its end to its head, so that the clean-up can start again from the head after a crash at any
//! point.

use std::borrow::Cow;
use std::ops::ControlFlow;

use duramen_types::{Crc32c, Gsn, PAGE_SIZE, PageId, TableId, crc32c};

use crate::error::Result;
use crate::page::{self, OVERFLOW_REFERENCE_SIZE, PAGE_HEADER_SIZE, PageBuf, PageType, SlotFlags};
use crate::pool::{PoolError, broken};
use crate::record::{PageOp, Tree};
use crate::storage::free_space::Run;
use crate::storage::mini_transaction::MiniTransaction;
use crate::storage::store::Store;

const NEXT: usize = PAGE_HEADER_SIZE;
const CHAIN: usize = NEXT + 8;
const PLACE: usize = CHAIN + 8;
const LENGTH: usize = PLACE + 4;
const CONTENT: usize = LENGTH + 4;

/// The level has a byte.
const MOST_PAGES_OF_EXTENT: usize = 1 + u8::MAX as usize;

/// Bytes of a value that one page holds.
pub(crate) const PAGE_CONTENT: usize = PAGE_SIZE - CONTENT;

/// The leaf's content for a value that lies in a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// First page of the chain.
    pub(crate) head: PageId,
    /// Length of the value in bytes.
    pub(crate) len: u32,
    /// Checksum of the value.
    crc: u32,
    /// Number of the chain.
    pub(crate) chain: u64,
}

impl Reference {
    /// Size of a reference in bytes.
    pub(crate) const SIZE: usize = OVERFLOW_REFERENCE_SIZE;

    /// Returns the bytes in the leaf.
    pub(crate) fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&self.head.get().to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.chain.to_le_bytes());
        bytes
    }

    /// Decodes the bytes of [`Self::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::SIZE] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        Some(Self { head: PageId::new(word(0)), len: half(8), crc: half(12), chain: word(16) })
    }

    /// Returns the number of pages of the chain.
    fn pages(&self) -> usize {
        (self.len as usize).div_ceil(PAGE_CONTENT).max(1)
    }
}

/// A value, as its leaf has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored<'a> {
    InLeaf(&'a [u8]),
    InChain(Reference),
}

impl<'a> Stored<'a> {
    /// Returns what the bytes of a record with these flags represent.
    pub(crate) fn new(tree: Tree, bytes: &'a [u8], flags: SlotFlags) -> std::result::Result<Self, PoolError> {
        if !flags.contains(SlotFlags::OVERFLOW) {
            return Ok(Self::InLeaf(bytes));
        }
        let malformed = || broken(tree.root, "a reference to an overflow value is malformed");
        Reference::decode(bytes).map(Self::InChain).ok_or_else(malformed)
    }

    /// Returns the value. The caller holds a lock, or a snapshot, that keeps it in place.
    pub(crate) fn whole(self, store: &Store) -> std::result::Result<Cow<'a, [u8]>, PoolError> {
        match self {
            Self::InLeaf(value) => Ok(Cow::Borrowed(value)),
            Self::InChain(reference) => store.read_overflow_chain(reference).map(Cow::Owned),
        }
    }

    /// Calls `part` with the parts of the value, in order, until it breaks off; returns the length
    /// of the whole value in bytes. The caller is as that of [`Self::whole`]; `parts` is for a
    /// value in a chain.
    pub(crate) fn in_parts(
        self,
        store: &Store,
        parts: Parts,
        mut part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> std::result::Result<u64, PoolError> {
        match self {
            Self::InLeaf(value) => {
                let _ = part(value);
                Ok(value.len() as u64)
            }
            Self::InChain(reference) => {
                store.visit_overflow_chain(reference, parts, store.value_checksum(), part)?;
                Ok(u64::from(reference.len))
            }
        }
    }
}

/// How the parts of a value are given to a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parts {
    /// As they are in their pages, under the shared latches. Only for a caller that has a lock on
    /// the record, or whose function is short: a page that is freed and used again meanwhile keeps
    /// other threads waiting, and these may hold latches that the function needs.
    Lent,
    /// In a copy, without a latch.
    Copied,
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Returns whether `bytes` is the page at position `place` of a chain.
fn is_link(bytes: &[u8], chain: u64, place: usize) -> bool {
    page::page_type(bytes) == Some(PageType::Overflow)
        && u64_at(bytes, CHAIN) == chain
        && u32_at(bytes, PLACE) as usize == place
        && u32_at(bytes, LENGTH) as usize <= PAGE_CONTENT
}

/// Pages of a chain that follow each other in the data file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The page with the lowest number.
    pub(crate) first: PageId,
    /// Number of pages.
    pub(crate) pages: u32,
}

impl Extent {
    /// Returns the extent of more than one page that `head` begins, from what this page says: how
    /// many pages of the extent follow it, and the next page of the chain.
    fn from_head(head: PageId, following: u64, next: PageId) -> Option<Self> {
        let pages = u32::try_from(following).ok().filter(|following| *following > 0)? + 1;
        if next.get() == head.get() + 1 {
            return Some(Self { first: head, pages });
        }
        // As earlier versions wrote it.
        let first = head.get().checked_sub(following).filter(|_| next.get() == head.get() - 1)?;
        Some(Self { first: PageId::new(first), pages })
    }

    /// Returns the last page in the order of the chain.
    fn last(self, head: PageId) -> PageId {
        if self.first == head { PageId::new(head.get() + u64::from(self.pages) - 1) } else { self.first }
    }

    /// Returns at most `most` pages that follow `head` in the chain, in the order of the file.
    fn behind(self, head: PageId, most: u64) -> Vec<PageId> {
        let count = most.min(u64::from(self.pages) - 1);
        let first = if self.first == head { head.get() + 1 } else { head.get() - count };
        (first..first + count).map(PageId::new).collect()
    }
}

/// The transaction that writes a chain.
pub(crate) trait OverflowWriter {
    /// Returns a number that no other chain of the database has.
    fn number(&mut self) -> Result<u64>;

    /// Reserves log space for a page. Called without latches.
    fn reserve_log(&mut self) -> Result<()>;

    /// Logs the mini-transaction that allocates `page`.
    fn allocate(&mut self, mini: MiniTransaction<'_>, page: PageId);
}

impl Store {
    /// Writes `value`, which is not empty, into a new chain.
    pub(crate) fn write_overflow_chain(
        &self,
        writer: &mut impl OverflowWriter,
        table: TableId,
        value: &[u8],
    ) -> Result<Reference> {
        let chain = writer.number()?;
        let number = value.len().div_ceil(PAGE_CONTENT);
        let reserve = |pages: usize| {
            let most = pages.min(MOST_PAGES_OF_EXTENT) as u32;
            self.space.reserve_run(&self.pool, &*self.scheme, most)
        };
        let (mut head, mut run) = (PageId::ZERO, None);
        let mut bytes = PageBuf::zeroed();
        for (place, part) in value.chunks(PAGE_CONTENT).enumerate() {
            writer.reserve_log()?;
            let mut current = match run.take() {
                Some(run) => run,
                None => reserve(number - place)?,
            };
            let behind = number - place - 1;
            let coming = if current.len() == 1 && behind > 0 { Some(reserve(behind)?) } else { None };
            let taken = current.take(&self.pool)?;
            let following = current.len();
            run = coming.or((following > 0).then_some(current));
            let next = run.as_ref().map_or(PageId::ZERO, Run::next);
            let guard = self.pool.create(taken.page)?;
            let id = guard.id();
            let mut image = bytes.page_mut();
            page::init_header(&mut image, PageType::Overflow, following as u8, id, table);
            image.put(NEXT, &next.get().to_le_bytes());
            image.put(CHAIN, &chain.to_le_bytes());
            image.put(PLACE, &(place as u32).to_le_bytes());
            image.put(LENGTH, &(part.len() as u32).to_le_bytes());
            image.put(CONTENT, part);
            let mut mini = MiniTransaction::new();
            let index = mini.include(guard);
            mini.apply(index, PageOp::Image(&page::image(&image)));
            taken.record(&mut mini);
            writer.allocate(mini, id);
            if place == 0 {
                head = id;
            }
        }
        let len = u32::try_from(value.len()).expect("the limit of a value's length was checked");
        Ok(Reference { head, len, crc: crc32c(value), chain })
    }

    /// Checks a value with its checksum. The caller holds a lock that keeps the chain in place.
    pub(crate) fn check_overflow_chain(&self, reference: Reference) -> std::result::Result<(), PoolError> {
        self.visit_overflow_chain(reference, Parts::Lent, Some(Crc32c::new()), |_| ControlFlow::Continue(()))
    }

    /// Returns what computes the checksum of a value that is read, if it is to be compared: that of
    /// pages without checksums. Others were checked when they came into the pool, and their chain
    /// and their place there tell them from all pages that may have been in their place earlier.
    fn value_checksum(&self) -> Option<Crc32c> {
        (!self.pool.has_page_checksums()).then(Crc32c::new)
    }

    /// Reads a value. The caller holds a lock that keeps the chain in place.
    fn read_overflow_chain(&self, reference: Reference) -> std::result::Result<Vec<u8>, PoolError> {
        // The buffer grows beyond this only as far as pages of the chain are found, because the
        // length may be damaged.
        const AT_FIRST: usize = 1 << 20;
        let mut value = Vec::with_capacity(AT_FIRST.min(reference.len as usize));
        self.visit_overflow_chain(reference, Parts::Lent, self.value_checksum(), |part| {
            value.extend_from_slice(part);
            ControlFlow::Continue(())
        })?;
        Ok(value)
    }

    /// Calls `part` with the parts of a value, in order, until it breaks off. The caller holds a
    /// lock, or has a snapshot, that keeps the chain in place. The value's checksum is compared if
    /// there is a `crc` for it, without a byte.
    fn visit_overflow_chain(
        &self,
        reference: Reference,
        parts: Parts,
        mut crc: Option<Crc32c>,
        mut part: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> std::result::Result<(), PoolError> {
        let mut id = reference.head;
        let mut length = 0;
        let (mut read_ahead, mut copy) = (0_u64, Vec::new());
        for place in 0..reference.pages() {
            let page = self.pool.shared(id)?;
            if !is_link(&page, reference.chain, place) {
                return Err(broken(id, "an overflow chain links to a page that is not part of it"));
            }
            let content = &page[CONTENT..CONTENT + u32_at(&page, LENGTH) as usize];
            length += content.len();
            if let Some(crc) = &mut crc {
                crc.update(content);
            }
            let mut flow = ControlFlow::Continue(());
            match parts {
                Parts::Lent => flow = part(content),
                Parts::Copied => content.clone_into(&mut copy),
            }
            let following = u64::from(page::level(&page));
            let next = PageId::new(u64_at(&page, NEXT));
            drop(page);
            if parts == Parts::Copied {
                flow = part(&copy);
            }
            if flow.is_break() {
                return Ok(());
            }
            if read_ahead == 0
                && following > 1
                && let Some(extent) = Extent::from_head(id, following, next)
            {
                // No more than a small pool has room for.
                let ahead = extent.behind(id, self.pool.frames() as u64 / 4);
                read_ahead = ahead.len() as u64;
                self.pool.prefetch(&ahead);
            }
            read_ahead = read_ahead.saturating_sub(1);
            id = next;
        }
        let is_whole = crc.is_none_or(|crc| crc.finish() == reference.crc);
        if length != reference.len as usize || !is_whole || !id.is_zero() {
            return Err(broken(reference.head, "an overflow value has the wrong length or checksum"));
        }
        Ok(())
    }

    /// Returns the pages that are still part of the chain, from the head.
    pub(crate) fn overflow_chain_pages(&self, head: PageId, chain: u64) -> std::result::Result<Vec<PageId>, PoolError> {
        let mut pages = Vec::new();
        let mut id = head;
        while !id.is_zero() && self.space.is_taken(&self.pool, id)? {
            let page = self.pool.shared(id)?;
            if !is_link(&page, chain, pages.len()) {
                break;
            }
            pages.push(id);
            id = PageId::new(u64_at(&page, NEXT));
        }
        Ok(pages)
    }

    /// Returns the extents of a chain that are still part of it, from the head.
    pub(crate) fn overflow_extents(&self, head: PageId, chain: u64) -> std::result::Result<Vec<Extent>, PoolError> {
        let (mut extents, mut id, mut place) = (Vec::new(), head, 0);
        while !id.is_zero() && self.space.is_taken(&self.pool, id)? {
            let page = self.pool.shared(id)?;
            if !is_link(&page, chain, place) {
                break;
            }
            let (following, mut next) = (u64::from(page::level(&page)), PageId::new(u64_at(&page, NEXT)));
            drop(page);
            let mut extent = Extent { first: id, pages: 1 };
            if let Some(whole) = Extent::from_head(id, following, next) {
                let last = whole.last(id);
                // An earlier version of this program may have freed some of its pages, from the
                // last one on.
                if self.space.is_taken(&self.pool, last)? {
                    let page = self.pool.shared(last)?;
                    if is_link(&page, chain, place + following as usize) {
                        extent = whole;
                        next = PageId::new(u64_at(&page, NEXT));
                    }
                }
            }
            place += extent.pages as usize;
            extents.push(extent);
            id = next;
        }
        Ok(extents)
    }

    /// Frees an extent, as [`Self::free_page`] frees a page.
    pub(crate) fn free_extent(&self, extent: Extent, after: Gsn) -> Result<Gsn> {
        self.scheme.reserve_system(Self::FREE_BYTES)?;
        let mut mini = MiniTransaction::new();
        let freed = self.space.give_back_run(&self.pool, &mut mini, extent.first, extent.pages).map(|()| {
            mini.come_after(after);
            mini.finish_at(&*self.scheme).gsn
        });
        self.scheme.unreserve(Self::FREE_BYTES);
        Ok(freed?)
    }

    /// Frees a page, as a system transaction that comes after the record with the GSN `after`;
    /// returns its own GSN.
    pub(crate) fn free_page(&self, id: PageId, after: Gsn) -> Result<Gsn> {
        self.scheme.reserve_system(Self::FREE_BYTES)?;
        let freed = self.begin_free_page(id).map(|mut mini| {
            mini.come_after(after);
            mini.finish_at(&*self.scheme).gsn
        });
        self.scheme.unreserve(Self::FREE_BYTES);
        Ok(freed?)
    }

    /// An upper bound of the log space that the record of a freed page takes.
    const FREE_BYTES: u64 = 256;

    /// Begins the mini-transaction that frees a page.
    pub(crate) fn begin_free_page(&self, id: PageId) -> std::result::Result<MiniTransaction<'_>, PoolError> {
        let mut mini = MiniTransaction::new();
        let page = self.pool.exclusive(id)?;
        if page::page_type(&page) == Some(PageType::Free) {
            return Err(broken(id, "a page to be freed is already free"));
        }
        let index = mini.include(page);
        self.space.give_back(&self.pool, &mut mini, index)?;
        Ok(mini)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_round_trip() {
        let reference = Reference { head: PageId::new(9), len: 100_000, crc: 7, chain: 3 << 20 };
        assert_eq!(Reference::decode(&reference.encode()), Some(reference));
        assert_eq!(Reference::decode(&[0; 23]), None);
        assert_eq!(reference.pages(), 13);
        assert_eq!(PAGE_CONTENT % 8, 0);
    }

    #[test]
    fn extents_rise_or_fall() {
        let page = PageId::new;
        let rising = Extent::from_head(page(10), 3, page(11)).unwrap();
        assert_eq!(rising, Extent { first: page(10), pages: 4 });
        assert_eq!((rising.last(page(10)), rising.behind(page(10), 9)), (page(13), [11, 12, 13].map(page).to_vec()));
        let falling = Extent::from_head(page(10), 3, page(9)).unwrap();
        assert_eq!(falling, Extent { first: page(7), pages: 4 });
        assert_eq!((falling.last(page(10)), falling.behind(page(10), 9)), (page(7), [7, 8, 9].map(page).to_vec()));
        assert_eq!(rising.behind(page(10), 2), [11, 12].map(page));
        assert_eq!(falling.behind(page(10), 2), [8, 9].map(page));
        for (following, next) in [(0, 11), (0, 9), (3, 12), (3, 0), (3, u64::MAX), (11, 9), (u64::MAX, 11)] {
            assert_eq!(Extent::from_head(page(10), following, page(next)), None, "{following} {next}");
        }
    }
}
