//! A window: a stretch of the logs, sorted by page.
//!
//! Redo does not repeat records in the order of the log. It repeats the changes of one page after
//! the other, for as many records at a time as fit a given amount of memory (a window). So each
//! page is read once per window, whatever the size of the pool, and the pages of a window are known
//! beforehand. Parallel recovery by page rests on the same idea (Scalable logging through NVM,
//! section 3.2).
//!
//! # Why the order of the log matters only within a page
//! - A page operation names one page, and neither reads nor changes another ([`PageOp::apply`] can
//!   reach no other page). Splits, merges and allocations are several operations, each on its own
//!   page.
//! - The page's own GSN tells whether the page has a record's changes. The pages of one record also
//!   reach the disk independently of each other in normal operation, and redo copes with any
//!   mixture.
//! - The operations of one record on one page stay together and in order, under one latch: no page
//!   reaches the disk with a part of them.

use duramen_sync::{Mutex, parallel};
use duramen_types::{Gsn, PageId};

use crate::record::{PageOp, Reader};

/// This many adjacent pages of the data file are in the same bucket, so that they are read
/// together.
const STRIPE: u64 = 16;

/// One operation of a window: its page, its record, the log's run, and its offset in
/// [`Run::bytes`]. Changes sort in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Change {
    page: PageId,
    gsn: Gsn,
    run: u32,
    at: u32,
}

/// The page operations that one log has in a window.
#[derive(Debug)]
pub(super) struct Run {
    /// The operations, encoded, in the order of the log.
    bytes: Vec<u8>,
    buckets: Box<[Vec<Change>]>,
    changes: usize,
    /// The run's number among the runs of its window.
    number: u32,
    /// Bytes of log that were read for the run.
    pub(super) log_bytes: u64,
}

impl Run {
    /// Creates an empty run with this number in its window and this many buckets.
    pub(super) fn new(number: u32, buckets: usize) -> Self {
        Self { bytes: Vec::new(), buckets: vec![Vec::new(); buckets].into(), changes: 0, number, log_bytes: 0 }
    }

    /// Returns the memory that the run uses, in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.changes * size_of::<Change>()
    }

    /// Adds an operation of the record with this GSN, which must not be below the GSNs added
    /// before.
    pub(super) fn add(&mut self, page: PageId, gsn: Gsn, op: &PageOp<'_>) {
        let at = u32::try_from(self.bytes.len()).expect("a window has less than 4 GiB, but for one record");
        op.encode(&mut self.bytes);
        self.buckets[bucket_of(page, self.buckets.len())].push(Change { page, gsn, run: self.number, at });
        self.changes += 1;
    }

    /// Empties the run and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.buckets.iter_mut().for_each(Vec::clear);
        self.changes = 0;
        self.log_bytes = 0;
    }
}

/// The operations of one bucket in a window, sorted by page, and for each page by GSN.
#[derive(Debug)]
pub(super) struct Bucket<'w> {
    window: &'w [Run],
    changes: Vec<Change>,
}

impl<'w> Bucket<'w> {
    /// Sorts a bucket of a window.
    pub(super) fn of(window: &'w [Run], number: usize) -> Self {
        let mut changes = Vec::with_capacity(window.iter().map(|run| run.buckets[number].len()).sum());
        window.iter().for_each(|run| changes.extend_from_slice(&run.buckets[number]));
        changes.sort_unstable();
        Self { window, changes }
    }

    /// Returns the pages, in the order of the data file.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageChanges<'_>> {
        pages(self.window, &self.changes)
    }
}

/// A window whose pages are visited one by one, in any order.
#[derive(Debug)]
pub(super) struct Kept {
    window: Vec<Run>,
    /// For each bucket its operations, sorted by page, and for each page by GSN.
    buckets: Vec<Vec<Change>>,
}

impl Kept {
    /// Sorts a window, with this many threads. Reuses the window's memory as far as possible.
    pub(super) fn new(mut window: Vec<Run>, threads: usize) -> Self {
        let count = window.first().map_or(0, |run| run.buckets.len());
        let parts =
            |number: usize| window.iter_mut().map(move |run| std::mem::take(&mut run.buckets[number])).collect();
        let parts: Vec<Vec<Vec<Change>>> = (0..count).map(parts).collect();
        let rest = Mutex::new(parts.into_iter().enumerate().collect::<Vec<_>>());
        let sort = move || {
            let mut sorted = Vec::new();
            loop {
                let next = rest.lock().pop();
                let Some((number, parts)) = next else { return sorted };
                let mut changes = parts.into_iter().reduce(|mut all, part| {
                    all.extend(part);
                    all
                });
                changes.iter_mut().for_each(|changes| changes.sort_unstable());
                sorted.push((number, changes.unwrap_or_default()));
            }
        };
        let mut sorted: Vec<_> = parallel::run(threads, "duramen-redo", sort).into_iter().flatten().collect();
        sorted.sort_unstable_by_key(|(number, _)| *number);
        Self { window, buckets: sorted.into_iter().map(|(_, changes)| changes).collect() }
    }

    /// Returns the number of buckets.
    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the pages of a bucket, in the order of the data file.
    pub(super) fn pages(&self, bucket: usize) -> impl Iterator<Item = PageChanges<'_>> {
        pages(&self.window, &self.buckets[bucket])
    }

    /// Returns the changes of one page.
    pub(super) fn of_page(&self, page: PageId) -> PageChanges<'_> {
        let changes = &self.buckets[bucket_of(page, self.buckets.len())];
        let from = changes.partition_point(|change| change.page < page);
        let count = changes[from..].partition_point(|change| change.page == page);
        PageChanges { page, window: &self.window, changes: &changes[from..from + count] }
    }
}

/// Returns which of `buckets` buckets a page is in.
fn bucket_of(page: PageId, buckets: usize) -> usize {
    (page.get() / STRIPE % buckets as u64) as usize
}

/// Divides the sorted operations of a window by page.
fn pages<'b>(window: &'b [Run], changes: &'b [Change]) -> impl Iterator<Item = PageChanges<'b>> {
    changes.chunk_by(|one, next| one.page == next.page).map(move |changes| PageChanges {
        page: changes[0].page,
        window,
        changes,
    })
}

/// The operations that a window has for one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChanges<'b> {
    /// The page.
    pub(super) page: PageId,
    window: &'b [Run],
    changes: &'b [Change],
}

impl<'b> PageChanges<'b> {
    /// Returns the GSN of the first record.
    pub(super) fn first(self) -> Gsn {
        self.changes.first().map_or(Gsn::MAX, |change| change.gsn)
    }

    /// Returns the operations in the order of time, each with the GSN of its record.
    pub(super) fn operations(self) -> impl Iterator<Item = (Gsn, PageOp<'b>)> {
        self.changes.iter().map(move |change| {
            let bytes = &self.window[change.run as usize].bytes[change.at as usize..];
            let op = PageOp::decode(&mut Reader::new(bytes));
            (change.gsn, op.expect("operations in a window were encoded for it"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records of two logs that alternate in time, with several operations in one of them.
    #[test]
    fn a_bucket_is_in_the_order_of_pages_and_time() {
        let mut window = [Run::new(0, 2), Run::new(1, 2)];
        let op = |bit| PageOp::Take { bit };
        let given = [(0, 40, 10, 1), (0, 7, 20, 2), (0, 40, 30, 3), (0, 40, 30, 4), (1, 40, 15, 5), (1, 7, 35, 6)];
        for (run, page, gsn, bit) in given {
            window[run].add(PageId::new(page), Gsn::new(gsn), &op(bit));
        }
        assert!(window[0].size() > 4 * size_of::<Change>());
        let bucket = Bucket::of(&window, 0);
        let found: Vec<(u64, Vec<(u64, u32)>)> = bucket
            .pages()
            .map(|changes| {
                let bit = |(gsn, op): (Gsn, PageOp<'_>)| match op {
                    PageOp::Take { bit } => (gsn.get(), bit),
                    other => panic!("{other:?}"),
                };
                (changes.page.get(), changes.operations().map(bit).collect())
            })
            .collect();
        assert_eq!(found, [(7, vec![(20, 2), (35, 6)]), (40, vec![(10, 1), (15, 5), (30, 3), (30, 4)])]);
        assert_eq!(Bucket::of(&window, 1).pages().count(), 0);
        window[0].clear();
        assert_eq!(window[0].size(), 0);
        assert_eq!(Bucket::of(&window, 0).pages().count(), 2);
    }

    #[test]
    #[cfg(not(duramen_loom))]
    fn a_window_that_is_kept_has_every_page_at_hand() {
        for (buckets, threads) in [(1, 1), (3, 2), (8, 3)] {
            let mut window = vec![Run::new(0, buckets), Run::new(1, buckets)];
            for gsn in 1..500 {
                let page = PageId::new(gsn * gsn % 103);
                window[(gsn % 3 % 2) as usize].add(page, Gsn::new(gsn), &PageOp::Take { bit: gsn as u32 });
            }
            let kept = Kept::new(window, threads);
            let mut seen = 0;
            for page in (0..110).map(PageId::new) {
                let expected: Vec<u64> = (1..500).filter(|gsn| gsn * gsn % 103 == page.get()).collect();
                let changes = kept.of_page(page);
                assert_eq!(changes.operations().map(|(gsn, _)| gsn.get()).collect::<Vec<_>>(), expected);
                assert_eq!(changes.first().get(), expected.first().copied().unwrap_or(u64::MAX));
                seen += u64::from(!expected.is_empty());
            }
            assert_eq!((0..kept.buckets()).map(|bucket| kept.pages(bucket).count() as u64).sum::<u64>(), seen);
        }
    }
}
