//! Small traces whose counts are worked out by hand.

use super::*;
use crate::pcm::devices::Counts;
use crate::pcm::trace::{Access, Txn};

/// A database of ten pages on disk, and ten more that can be added.
fn database() -> Trace {
    let mut trace = Trace::new(10);
    trace.push(Txn { ops: &[op(Access::Read, 19, 0)], locks_reads: true, commits: true });
    trace
}

fn op(access: Access, page: u32, at: u32) -> Op {
    Op::new(access, Page::new(page).tuple(at))
}

/// A scheme with so many frames and slots.
fn scheme(granularity: Granularity, frames: usize, slots: u64) -> (Logging, Devices) {
    (Logging::new(&database(), frames, granularity, slots * granularity.slot_bytes()), Devices::new(20))
}

fn run(scheme: &mut Logging, devices: &mut Devices, txn: u64, ops: &[(Access, u32, u32)]) {
    for &(access, page, at) in ops {
        scheme.access(Xid::new(txn), op(access, page, at), devices);
    }
}

#[test]
fn tuples_are_forced_at_the_commit_and_read_from_the_pcm() {
    let (mut scheme, mut devices) = scheme(Granularity::Tuple, 1, 8);
    run(&mut scheme, &mut devices, 1, &[(Access::Update, 0, 0), (Access::Update, 0, 1), (Access::Read, 0, 2)]);
    let expected = Counts { lookups: 1, misses: 1, reads: 1, ..Counts::default() };
    assert_eq!(devices.counts, expected, "one page is read");
    scheme.commit(Xid::new(1), &mut devices);
    // The list twice, and two tuples of two lines and a header.
    let expected = Counts { pcm_lines: 2 + 2 * 3, ..expected };
    assert_eq!(devices.counts, expected);
    // Page 0 leaves and nothing is written; its tuples are read without it.
    run(&mut scheme, &mut devices, 2, &[(Access::Read, 1, 0), (Access::Read, 0, 0), (Access::Read, 0, 1)]);
    let expected = Counts { lookups: 4, misses: 2, reads: 2, ..expected };
    assert_eq!(devices.counts, expected);
    // One is changed there: the transaction is listed, and the version before stays until it
    // commits.
    run(&mut scheme, &mut devices, 2, &[(Access::Update, 0, 1)]);
    let expected = Counts { lookups: 5, pcm_lines: expected.pcm_lines + 4, ..expected };
    assert_eq!(devices.counts, expected);
    scheme.commit(Xid::new(2), &mut devices);
    assert_eq!(devices.counts, Counts { pcm_lines: expected.pcm_lines + 2, ..expected });
    // Another tuple of page 0 needs the page.
    run(&mut scheme, &mut devices, 3, &[(Access::Read, 0, 9)]);
    assert_eq!((devices.counts.lookups, devices.counts.misses, devices.counts.reads), (6, 3, 3));
    scheme.commit(Xid::new(3), &mut devices);
    assert_eq!(devices.counts.pcm_lines, expected.pcm_lines + 2, "one that only read writes nothing");
}

#[test]
fn a_page_that_leaves_takes_uncommitted_tuples_to_the_pcm() {
    let (mut scheme, mut devices) = scheme(Granularity::Tuple, 1, 8);
    run(&mut scheme, &mut devices, 1, &[(Access::Update, 0, 0), (Access::Read, 1, 0)]);
    assert_eq!(devices.counts.pcm_lines, 1 + 3);
    // Taken back: its slot is freed, and it leaves the list. The tuple comes from disk again.
    scheme.abort(Xid::new(1), &mut devices);
    assert_eq!(devices.counts.pcm_lines, 4 + 2);
    run(&mut scheme, &mut devices, 2, &[(Access::Read, 0, 0)]);
    assert_eq!((devices.counts.misses, devices.counts.writes), (3, 0));
}

#[test]
fn replacement_reads_the_page_to_merge_it_unless_dram_has_it() {
    let (mut scheme, mut devices) = scheme(Granularity::Tuple, 2, 2);
    for page in [0, 1] {
        run(&mut scheme, &mut devices, u64::from(page), &[(Access::Update, page, 0)]);
        scheme.commit(Xid::new(u64::from(page)), &mut devices);
    }
    let lines = devices.counts.pcm_lines;
    // Page 0 is not in DRAM: it is read, merged with its tuple, and written; the slot is freed.
    run(&mut scheme, &mut devices, 2, &[(Access::Update, 2, 0)]);
    assert!(!scheme.has_been_full());
    scheme.commit(Xid::new(2), &mut devices);
    let expected = Counts {
        lookups: 3,
        misses: 3,
        reads: 3,
        merges: 1,
        writes: 1,
        pcm_lines: lines + 1 + 3 + 2,
        ..Counts::default()
    };
    assert_eq!(devices.counts, expected);
    assert!(scheme.has_been_full());
    // Page 1 is in DRAM, and goes to disk without a read.
    run(&mut scheme, &mut devices, 3, &[(Access::Update, 2, 1)]);
    scheme.commit(Xid::new(3), &mut devices);
    assert_eq!((devices.counts.merges, devices.counts.writes), (1, 2));
    // Page 2 is in DRAM, too, but with a change that is not committed: its two others are merged.
    run(&mut scheme, &mut devices, 4, &[(Access::Update, 2, 2)]);
    scheme.commit(Xid::new(4), &mut devices);
    assert_eq!((devices.counts.merges, devices.counts.writes), (2, 3));
}

#[test]
fn a_page_that_is_new_is_never_read() {
    let (mut scheme, mut devices) = scheme(Granularity::Tuple, 1, 2);
    run(&mut scheme, &mut devices, 1, &[(Access::Insert, 12, 0), (Access::Insert, 12, 1)]);
    scheme.commit(Xid::new(1), &mut devices);
    assert_eq!(devices.counts.lookups, 0);
    // It leaves DRAM, and then the PCM, for tuples of page 3.
    run(&mut scheme, &mut devices, 2, &[(Access::Update, 3, 0), (Access::Update, 3, 1)]);
    scheme.commit(Xid::new(2), &mut devices);
    let Counts { reads, merges, writes, .. } = devices.counts;
    assert_eq!((reads, merges, writes), (1, 0, 1));
    // From now on it is on disk.
    run(&mut scheme, &mut devices, 3, &[(Access::Read, 12, 0)]);
    assert_eq!(devices.counts.reads, 2);
}

#[test]
fn whole_pages_are_loaded_from_the_pcm_and_need_no_merging() {
    let (mut scheme, mut devices) = scheme(Granularity::Page, 1, 2);
    for page in [0, 1] {
        run(&mut scheme, &mut devices, u64::from(page), &[(Access::Update, page, 0), (Access::Update, page, 1)]);
        scheme.commit(Xid::new(u64::from(page)), &mut devices);
    }
    let expected = Counts { lookups: 2, misses: 2, reads: 2, pcm_lines: 2 * (2 + 129), ..Counts::default() };
    assert_eq!(devices.counts, expected);
    // Any tuple of page 0 comes from the PCM, once for the page.
    run(&mut scheme, &mut devices, 2, &[(Access::Read, 0, 9), (Access::Read, 0, 10)]);
    assert_eq!(devices.counts, Counts { lookups: 3, ..expected });
    // Page 1, used longest ago, makes room.
    run(&mut scheme, &mut devices, 3, &[(Access::Update, 2, 0)]);
    scheme.commit(Xid::new(3), &mut devices);
    let expected =
        Counts { lookups: 4, misses: 3, reads: 3, writes: 1, pcm_lines: expected.pcm_lines + 1 + 2 + 129, ..expected };
    assert_eq!(devices.counts, expected);
    // A page that is taken back leaves DRAM.
    run(&mut scheme, &mut devices, 4, &[(Access::Update, 2, 0)]);
    scheme.abort(Xid::new(4), &mut devices);
    assert_eq!(devices.counts, expected, "nothing was stored");
    run(&mut scheme, &mut devices, 5, &[(Access::Read, 2, 0)]);
    assert_eq!((devices.counts.lookups, devices.counts.misses), (5, 3), "it comes from the PCM");
    assert_eq!((scheme.lock_of(Page::new(2).tuple(5)), Granularity::Tuple.unit(Page::new(1).tuple(5)).0), (2, 69));
}
