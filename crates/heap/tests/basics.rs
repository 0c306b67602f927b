//! What a program may expect of a heap without crashes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use duramen_heap::{Addr, Error, Heap, HeapOptions, LogShape, PmemError, Ptr, Root, SimMemory, Source, Survive};
use duramen_test_support::Rng;
use zerocopy::{FromBytes, Immutable, IntoBytes};

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Node {
    value: u64,
    next: Ptr<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct List {
    head: Ptr<Node>,
    len: u64,
}

impl Root for List {
    const NAME: &'static str = "list, version 1";
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Other(u64);

impl Root for Other {
    const NAME: &'static str = "other, version 1";
}

const LOG: LogShape = LogShape { slots: 4, buckets: 8, records: 4 };

fn options(bytes: u64) -> HeapOptions {
    HeapOptions { survive: Survive::Nothing, log: LOG, ..HeapOptions::new(bytes) }
}

fn heap(bytes: u64) -> Heap {
    Heap::open(&Source::Anonymous, &options(bytes)).unwrap()
}

fn push(heap: &Heap, root: Ptr<List>, value: u64) {
    heap.atomic(|tx| {
        let list = tx.get(root)?;
        let head = tx.alloc(Node { value, next: list.head })?;
        tx.set(root, List { head, len: list.len + 1 })
    })
    .unwrap();
}

fn values(heap: &Heap, root: Ptr<List>) -> Vec<u64> {
    heap.atomic(|tx| {
        let (mut values, mut at) = (Vec::new(), tx.get(root)?.head);
        while !at.is_null() {
            let node = tx.get(at)?;
            values.push(node.value);
            at = node.next;
        }
        Ok(values)
    })
    .unwrap()
}

#[test]
fn what_is_committed_is_there_after_reopening() {
    let home = tempfile::tempdir().unwrap();
    let source = Source::File(home.path().join("heap"));
    let options = HeapOptions { survive: Survive::Process, ..options(1 << 20) };
    for run in 0..3 {
        let heap = Heap::open(&source, &options).unwrap();
        let root = heap.root::<List>().unwrap();
        assert_eq!(values(&heap, root), (0..run).rev().collect::<Vec<_>>());
        push(&heap, root, run);
        assert_eq!(heap.objects().len() as u64, run + 2, "the root and the nodes");
    }
}

#[test]
fn an_error_and_a_panic_roll_back() {
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    push(&heap, root, 1);
    let objects = heap.objects();
    let change = |tx: &mut duramen_heap::Tx<'_>| {
        let first = tx.get(root)?.head;
        tx.free(first)?;
        let head = tx.alloc(Node { value: 2, next: Ptr::NULL })?;
        tx.set(root, List { head, len: 9 })
    };
    let refused: Result<(), Error> = heap.atomic(|tx| {
        change(tx)?;
        Err(Error::Aborted)
    });
    assert_eq!(refused, Err(Error::Aborted));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        heap.atomic(|tx| -> Result<(), Error> {
            change(tx)?;
            panic!("on purpose");
        })
    }));
    assert!(panicked.is_err());
    assert_eq!((values(&heap, root), heap.objects()), (vec![1], objects));
    assert_eq!(heap.stats().rollbacks, 2);
    push(&heap, root, 3);
    assert_eq!(values(&heap, root), [3, 1]);
}

#[test]
fn closures_may_have_errors_of_their_own() {
    #[derive(Debug)]
    enum Mine {
        Heap,
        Refused,
    }
    impl From<Error> for Mine {
        fn from(_: Error) -> Self {
            Self::Heap
        }
    }
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    let refused = heap.try_atomic(|tx| -> Result<(), Mine> {
        tx.update(root, |list| list.len = 5)?;
        Err(Mine::Refused)
    });
    assert!(matches!(refused, Err(Mine::Refused)));
    assert!(matches!(heap.try_atomic(|tx| -> Result<Node, Mine> { Ok(tx.get(Ptr::NULL)?) }), Err(Mine::Heap)));
    assert_eq!(heap.atomic(|tx| Ok(tx.get(root)?.len)), Ok(0));
}

#[test]
fn a_transaction_within_a_transaction_is_refused() {
    let (heap, other) = (heap(1 << 20), heap(1 << 20));
    let nested = heap.atomic(|_| heap.atomic(|_| Ok(())));
    assert_eq!(nested, Err(Error::Nested));
    assert_eq!(heap.atomic(|_| other.atomic(|_| Ok(7))), Ok(7), "of another heap it is allowed");
}

#[test]
fn wrong_pointers_are_refused() {
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    push(&heap, root, 1);
    heap.atomic(|tx| {
        let node = tx.get(root)?.head;
        let bad = |result| matches!(result, Err(Error::BadPointer { .. }));
        assert!(bad(tx.get(Ptr::<Node>::NULL).map(drop)));
        for at in [1, 64, 4096, 1 << 19, heap.len(), u64::MAX - 7, node.addr().get() + 64] {
            assert!(bad(tx.get(Addr::new(at).typed::<Node>()).map(drop)), "{at:#x}");
        }
        assert!(bad(tx.get(node.addr().typed::<[u8; 65]>()).map(drop)), "beyond the object's end");
        assert!(bad(tx.free(node.addr().plus(8).typed::<u64>())), "not the beginning");
        tx.free(node)?;
        assert!(bad(tx.get(node).map(drop)), "freed by this transaction");
        assert!(bad(tx.free(node)), "freed twice");
        tx.set(root, List { head: Ptr::NULL, len: 0 })
    })
    .unwrap();
    assert_eq!(heap.objects().len(), 1);
}

#[test]
fn a_heap_that_is_full_says_so_and_goes_on() {
    let heap = heap(1 << 18);
    let root = heap.root::<List>().unwrap();
    let mut kept = Vec::new();
    let full = loop {
        match heap.atomic(|tx| tx.alloc_bytes(4000)) {
            Ok(at) => kept.push(at),
            Err(error) => break error,
        }
    };
    assert_eq!(full, Error::OutOfSpace { bytes: 4000 });
    assert!(kept.len() > 20, "{}", kept.len());
    for at in kept {
        heap.atomic(|tx| tx.free_bytes(at)).unwrap();
    }
    push(&heap, root, 1);
    heap.atomic(|tx| tx.alloc_bytes(30_000)).expect("space of one class serves another");
}

#[test]
fn a_transaction_that_is_too_large_for_the_log_is_rolled_back() {
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    let cells: Vec<Addr> = heap.atomic(|tx| (0..300).map(|_| tx.alloc_bytes(64)).collect()).unwrap();
    let change_all = |most: usize| heap.atomic(|tx| cells[..most].iter().try_for_each(|at| tx.write(*at, &[1])));
    assert!(matches!(change_all(300), Err(Error::LogFull { .. })));
    let sum = heap.atomic(|tx| {
        let mut byte = [0];
        cells.iter().try_fold(0, |sum, at| {
            tx.read(*at, &mut byte)?;
            Ok(sum + u64::from(byte[0]))
        })
    });
    assert_eq!(sum, Ok(0));
    assert_eq!(change_all(20), Ok(()));
    push(&heap, root, 1);
}

#[test]
fn logging_ahead_saves_barriers() {
    let heap = heap(1 << 20);
    let cells: Vec<Ptr<[u64; 8]>> = heap.atomic(|tx| (0..14).map(|_| tx.alloc([0; 8])).collect()).unwrap();
    let barriers = |ahead: bool, value: u64| {
        let before = heap.stats();
        heap.atomic(|tx| {
            if ahead {
                tx.log(&cells.iter().map(|cell| cell.extent()).collect::<Vec<_>>())?;
            }
            cells.iter().try_for_each(|cell| tx.set(cell.element(0), value))
        })
        .unwrap();
        let after = heap.stats();
        assert_eq!(after.lines_logged - before.lines_logged, 14);
        assert_eq!((after.home_barriers - before.home_barriers, after.end_barriers - before.end_barriers), (1, 1));
        after.log_barriers - before.log_barriers
    };
    assert_eq!((barriers(false, 1), barriers(true, 2)), (14, 1));
}

#[test]
fn reading_takes_no_barrier() {
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    let barriers = || heap.stats().log_barriers + heap.stats().home_barriers + heap.stats().end_barriers;
    let before = barriers();
    assert_eq!(values(&heap, root), []);
    heap.atomic(|tx| tx.set(root, List { head: Ptr::NULL, len: 0 })).unwrap();
    assert_eq!(barriers(), before, "a store that changes nothing is none");
}

#[test]
fn large_objects_are_kept_and_their_space_used_again() {
    let home = tempfile::tempdir().unwrap();
    let source = Source::File(home.path().join("heap"));
    let log = LogShape { slots: 2, buckets: 4, records: 16 };
    let options = HeapOptions { survive: Survive::Process, log, ..options(1 << 20) };
    let bytes: Vec<u8> = (0..300_000u32).map(|at| at as u8 ^ (at >> 8) as u8).collect();
    let large = {
        let heap = Heap::open(&source, &options).unwrap();
        let refused: Result<(), Error> = heap.atomic(|tx| {
            let at = tx.alloc_bytes(500_000)?;
            tx.write(at, &[0xFF; 500_000])?;
            Err(Error::Aborted)
        });
        assert_eq!(refused, Err(Error::Aborted));
        heap.atomic(|tx| {
            let at = tx.alloc_bytes(bytes.len() as u64)?;
            tx.write(at, &bytes)?;
            Ok(at)
        })
        .unwrap()
    };
    let heap = Heap::open(&source, &options).unwrap();
    let mut found = vec![0; bytes.len()];
    heap.atomic(|tx| tx.read(large, &mut found)).unwrap();
    assert!(found == bytes);
    heap.atomic(|tx| tx.write(large.plus(150_000), &[9])).unwrap();
    assert!(matches!(heap.atomic(|tx| tx.alloc_bytes(900_000)), Err(Error::OutOfSpace { .. })));
    heap.atomic(|tx| tx.free_bytes(large)).unwrap();
    drop(heap);
    let heap = Heap::open(&source, &options).unwrap();
    assert_eq!(heap.objects(), []);
    for _ in 0..10 {
        heap.atomic(|tx| tx.alloc_bytes(60_000)).expect("its slabs are free ones again");
    }
}

#[test]
fn a_root_belongs_to_its_type() {
    let heap = heap(1 << 20);
    let root = heap.root::<List>().unwrap();
    assert!(matches!(heap.root::<Other>(), Err(Error::WrongRoot { wanted: "other, version 1", .. })));
    assert_eq!(heap.root::<List>(), Ok(root));
}

#[test]
fn opening_tells_what_is_wrong() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("heap");
    let source = Source::File(path.clone());
    let options = HeapOptions { survive: Survive::Process, ..options(1 << 20) };
    let small = HeapOptions { bytes: 4096, ..options.clone() };
    assert!(matches!(Heap::open(&source, &small), Err(Error::TooSmall { bytes: 4096, .. })));
    let log = HeapOptions { log: LogShape { slots: 0, ..LOG }, ..options.clone() };
    assert!(matches!(Heap::open(&source, &log), Err(Error::InvalidOption { option: "log", .. })));
    let durable = HeapOptions { survive: Survive::PowerCut, ..options.clone() };
    assert!(matches!(Heap::open(&source, &durable), Err(Error::Memory(PmemError::NotDurable { .. }))));
    assert!(!path.exists(), "nothing is left of a heap that could not be made");
    {
        let heap = Heap::open(&source, &options).unwrap();
        assert!(heap.shortfall().is_some());
        assert!(matches!(Heap::open(&source, &options), Err(Error::Memory(PmemError::Busy { .. }))));
    }
    let whole = std::fs::read(&path).unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        Heap::open(&source, &options).map(drop)
    };
    assert_eq!(with(&|_| ()), Ok(()));
    assert!(matches!(with(&|bytes| bytes[0] = b'X'), Err(Error::Foreign { .. })));
    assert!(matches!(with(&|bytes| *bytes = b"#!/bin/sh".to_vec()), Err(Error::Foreign { .. })));
    assert!(matches!(with(&|bytes| bytes[20] ^= 1), Err(Error::Corrupt { offset: 0, .. })));
    assert!(matches!(with(&|bytes| bytes[64] ^= 1), Err(Error::Corrupt { offset: 64, .. })));
    assert!(matches!(with(&|bytes| bytes[1024] ^= 1), Err(Error::Corrupt { offset: 1024, .. })));
    assert!(matches!(with(&|bytes| bytes.truncate(500_000)), Err(Error::Memory(PmemError::TooSmall { .. }))));
    assert!(matches!(with(&|bytes| bytes[..8].fill(0)), Err(Error::Foreign { .. })), "zeros with something behind");
    assert_eq!(with(&|bytes| bytes.clear()), Ok(()), "an empty file is no file");
}

#[test]
fn a_heap_grows_when_it_is_opened() {
    let home = tempfile::tempdir().unwrap();
    let source = Source::File(home.path().join("heap"));
    let of = |bytes| HeapOptions { survive: Survive::Process, ..options(bytes) };
    let small = Heap::open(&source, &of(1 << 18)).unwrap();
    let root = small.root::<List>().unwrap();
    push(&small, root, 1);
    assert!(small.atomic(|tx| tx.alloc_bytes(400_000)).is_err());
    drop(small);
    let large = Heap::open(&source, &of(1 << 20)).unwrap();
    large.atomic(|tx| tx.alloc_bytes(400_000)).unwrap();
    assert_eq!(values(&large, root), [1]);
    let len = large.len();
    drop(large);
    let unchanged = Heap::open(&source, &of(1 << 18)).unwrap();
    assert_eq!((unchanged.len(), values(&unchanged, root)), (len, vec![1]));
}

#[test]
fn a_second_opener_of_simulated_memory_is_refused() {
    let memory = SimMemory::new(1 << 18, duramen_heap::Domain::VolatileCache);
    let source = Source::Simulated(memory);
    let options = HeapOptions { survive: Survive::PowerCut, ..options(1 << 18) };
    let heap = Heap::open(&source, &options).unwrap();
    assert!(matches!(Heap::open(&source, &options), Err(Error::Memory(PmemError::Busy { .. }))));
    drop(heap);
    Heap::open(&source, &options).unwrap();
}

/// Threads free and allocate through pointers that they keep outside the heap, so that what they
/// free may be freed by another thread at that moment, and its space be given out again: each
/// object is freed once, and no object that was allocated is lost.
#[test]
fn an_object_is_freed_once_and_none_is_lost() {
    const POINTERS: usize = 4;
    // Small objects, and one of two slabs.
    for (bytes, rounds) in [(64, 30_000), (100_000, 1_000)] {
        let heap = heap(4 << 20);
        // The place of an object, and above it a number that no other pointer has.
        let pointers: [AtomicU64; POINTERS] = Default::default();
        let (allocated, freed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (heap, pointers, allocated, freed) = (&heap, &pointers, &allocated, &freed);
                // Another thread with an old pointer to this place may have been first.
                let free = |at: Addr| match heap.atomic(|tx| tx.free_bytes(at)) {
                    Ok(()) => _ = freed.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!(matches!(error, Error::BadPointer { .. }), "{error}"),
                };
                scope.spawn(move || {
                    let mut random = Rng::new(thread);
                    for _ in 0..rounds {
                        let pointer = random.pick(pointers);
                        let found = pointer.load(Ordering::Relaxed);
                        if found == 0 {
                            let new = heap.atomic(|tx| tx.alloc_bytes(bytes)).unwrap();
                            let number = 1 + allocated.fetch_add(1, Ordering::Relaxed);
                            let kept = pointer.compare_exchange(
                                0,
                                number << 32 | new.get(),
                                Ordering::Relaxed,
                                Ordering::Relaxed,
                            );
                            if kept.is_err() {
                                free(new);
                            }
                            continue;
                        }
                        let at = Addr::new(found & u64::from(u32::MAX));
                        if random.below(2) == 0 {
                            let last = Addr::new(at.get() + bytes - 8);
                            let _ = heap.atomic(|tx| tx.write(at, &[1; 8]).and_then(|()| tx.write(last, &[1; 8])));
                        }
                        free(at);
                        let _ = pointer.compare_exchange(found, 0, Ordering::Relaxed, Ordering::Relaxed);
                    }
                });
            }
        });
        let (allocated, freed) = (allocated.into_inner(), freed.into_inner());
        assert!(freed > rounds / 2, "{freed}");
        assert_eq!(heap.objects().len() as u64, allocated - freed, "objects of {bytes} bytes");
    }
}
