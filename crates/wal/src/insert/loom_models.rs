//! Models of the insertion designs: every interleaving of two or three threads over a buffer of a few cells.

use duramen_sync::cell::UnsafeCell;
use duramen_sync::{Arc, thread};
use duramen_types::Lsn;

use super::slot::{Join, Slot};
use super::{HybridInsertion, Insertion, MutexInsertion};
use crate::bell::Bell;
use crate::space::Space;

fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(body);
}

/// The bytes of a log that is never full, one cell each. Loom reports conflicting accesses.
struct Cells(Vec<UnsafeCell<u64>>);

// SAFETY: that accesses do not conflict is what the models check.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn write(&self, from: Lsn, bytes: u64, value: u64) {
        for at in from.get()..from.get() + bytes {
            // SAFETY: the design gives the cells to this thread alone; loom checks it.
            self.0[at as usize].with_mut(|cell| unsafe { *cell = value });
        }
    }

    fn read(&self, at: u64) -> u64 {
        // SAFETY: the cell has been released; loom checks it.
        self.0[at as usize].with(|cell| unsafe { *cell })
    }
}

/// `sizes.len()` threads insert one record each through `design`; whatever is released at any time is filled in, and at
/// the end every record is there in one piece.
fn insertions<D: Insertion + Send + Sync + 'static>(preemptions: usize, sizes: &'static [u64], design: fn() -> D) {
    let total: u64 = sizes.iter().sum();
    model(preemptions, move || {
        let log = Arc::new((design(), Space::new(64, 1, Lsn::ZERO, Arc::new(Bell::new())), Cells::new(total as usize)));
        let insert = |log: &(D, Space, Cells), number: usize| {
            let (design, space, cells) = log;
            let value = number as u64 + 1;
            let lsn = design.insert(space, sizes[number], |lsn| cells.write(lsn, sizes[number], value));
            (lsn, number)
        };
        let others: Vec<_> = (1..sizes.len())
            .map(|number| {
                let log = Arc::clone(&log);
                thread::spawn("inserter", move || insert(&log, number)).unwrap()
            })
            .collect();
        let mut inserted = vec![insert(&log, 0)];
        let (_, space, cells) = &*log;
        for at in 0..space.released().get() {
            assert_ne!(cells.read(at), 0, "released before it was filled in");
        }
        inserted.extend(others.into_iter().map(|other| other.join().unwrap()));
        assert_eq!((space.released(), space.end()), (Lsn::new(total), Lsn::new(total)));
        for (lsn, number) in inserted {
            for at in lsn.get()..lsn.get() + sizes[number] {
                assert_eq!(cells.read(at), number as u64 + 1);
            }
        }
    });
}

#[test]
fn mutex_two_threads() {
    insertions(3, &[1, 2], || MutexInsertion);
}

#[test]
fn hybrid_two_threads() {
    insertions(3, &[1, 2], || HybridInsertion::new(1, 16));
}

#[test]
fn hybrid_three_threads() {
    insertions(1, &[1, 2, 1], || HybridInsertion::new(1, 16));
}

/// A bound that two records exceed together: the second has to go into another group.
#[test]
fn hybrid_bounded_groups() {
    insertions(1, &[2, 2, 2], || HybridInsertion::new(1, 3));
}

/// The life of one slot: a leader and a member join, or the member is refused once it has been closed; the last frees
/// it; a later group in the same slot is not confused with the earlier one.
#[test]
fn slot_life() {
    model(3, || {
        let shared = Arc::new((Slot::default(), Cells::new(4)));
        assert!(shared.0.open(7));
        assert_eq!(shared.0.join(1, 8), Join::Leader);
        let member = {
            let shared = Arc::clone(&shared);
            thread::spawn("member", move || {
                let (slot, cells) = &*shared;
                match slot.join(1, 8) {
                    Join::Member { offset } => {
                        assert_eq!((slot.wait(), offset), ((Lsn::new(0), 2), 1));
                        cells.write(Lsn::new(1), 1, 2);
                        if slot.leave(1) {
                            (0..2).for_each(|at| assert_ne!(cells.read(at), 0));
                            slot.free();
                        }
                        true
                    }
                    Join::Refused => false,
                    Join::Leader => panic!("there is a leader"),
                }
            })
            .unwrap()
        };
        let (slot, cells) = &*shared;
        assert_eq!(slot.place(), 7);
        let group = slot.close();
        slot.notify(Lsn::new(0), group.bytes);
        cells.write(Lsn::new(0), 1, 1);
        if slot.leave(1) {
            (0..group.bytes).for_each(|at| assert_ne!(cells.read(at), 0));
            slot.free();
        }
        let joined = member.join().unwrap();
        assert_eq!(group.members, 1 + u64::from(joined));
        assert!(slot.open(0), "everyone has left, so the slot is free");
        assert_eq!(slot.join(3, 8), Join::Leader);
        assert_eq!(slot.close().bytes, 3);
    });
}
