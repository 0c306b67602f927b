//! Models of the insertion designs: every interleaving of two or three threads over a buffer of a few cells.

use duramen_sync::cell::UnsafeCell;
use duramen_sync::{Arc, thread};
use duramen_types::Lsn;

use super::links::Links;
use super::release_queue::{Node, ReleaseQueue};
use super::slot::{Join, Slot};
use super::{AnyInsertion, InsertDesign, Shape};
use crate::bell::Bell;
use crate::space::Space;

fn model(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 50_000;
    builder.check(body);
}

/// The bytes of a log buffer, one cell each. Loom reports conflicting accesses.
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
            self.0[at as usize % self.0.len()].with_mut(|cell| unsafe { *cell = value });
        }
    }

    fn read(&self, at: u64) -> u64 {
        // SAFETY: the cell has been released; loom checks it.
        self.0[at as usize % self.0.len()].with(|cell| unsafe { *cell })
    }
}

/// One place in the array, and hardly more slots than are needed.
const SHAPE: Shape = Shape { places: 1, arrays: 1, pool: 3, capacity: 64, smallest: 1 };

/// `sizes.len()` threads insert one record each; whatever is released at any time is filled in, and at the end every
/// record is there in one piece.
fn insertions(preemptions: usize, sizes: &'static [u64], design: InsertDesign, shape: Shape) {
    let total: u64 = sizes.iter().sum();
    // Shown when the model fails.
    println!("{design}");
    model(preemptions, move || {
        let space = Space::new(shape.capacity, 1, Lsn::ZERO, Arc::new(Bell::new()));
        let log = Arc::new((AnyInsertion::new(design, shape), space, Cells::new(total as usize)));
        let insert = |log: &(AnyInsertion, Space, Cells), number: usize| {
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
        let (design, space, cells) = &*log;
        design.collect(space);
        for at in 0..space.released().get() {
            assert_ne!(cells.read(at), 0, "released before it was filled in");
        }
        inserted.extend(others.into_iter().map(|other| other.join().unwrap()));
        design.collect(space);
        assert_eq!((space.released(), space.end()), (Lsn::new(total), Lsn::new(total)));
        assert_eq!(space.counts().0, sizes.len() as u64);
        for (lsn, number) in inserted {
            for at in lsn.get()..lsn.get() + sizes[number] {
                assert_eq!(cells.read(at), number as u64 + 1);
            }
        }
    });
}

#[test]
fn every_design_two_threads() {
    for design in InsertDesign::ALL {
        insertions(3, &[1, 2], design, SHAPE);
    }
}

#[test]
fn every_design_three_threads() {
    for design in InsertDesign::ALL {
        insertions(2, &[1, 2, 1], design, SHAPE);
    }
}

/// A bound that two records exceed together: the second has to go into another group.
#[test]
fn bounded_groups() {
    for design in InsertDesign::ALL {
        insertions(1, &[3, 3, 3], design, Shape { capacity: 16, ..SHAPE });
    }
}

/// Records above the bound do not join.
#[test]
fn too_large_for_a_group() {
    for design in InsertDesign::ALL {
        insertions(2, &[3, 1, 3], design, Shape { capacity: 8, ..SHAPE });
    }
}

/// A buffer that two records fill: some thread has to wait for room until the flusher has read what is released, and its
/// record must not touch what is still being read.
#[test]
fn every_design_in_a_full_buffer() {
    for design in InsertDesign::ALL {
        println!("{design}");
        model(1, move || {
            let shape = Shape { capacity: 2, ..SHAPE };
            let bell = Arc::new(Bell::new());
            let space = Space::new(shape.capacity, 1, Lsn::ZERO, Arc::clone(&bell));
            let log = Arc::new((AnyInsertion::new(design, shape), space, Cells::new(2)));
            let others: Vec<_> = [1, 2]
                .map(|count| {
                    let log = Arc::clone(&log);
                    thread::spawn("inserter", move || {
                        let (design, space, cells) = &*log;
                        for _ in 0..count {
                            design.insert(space, 1, |lsn| cells.write(lsn, 1, lsn.get() + 1));
                        }
                    })
                    .unwrap()
                })
                .into();
            let (design, space, cells) = &*log;
            // Somebody finds the buffer full, if the other two records come first.
            bell.wait(None);
            let mut durable = 0;
            while durable < 3 {
                design.collect(space);
                let released = space.released();
                for at in durable..released.get() {
                    assert_eq!(cells.read(at), at + 1);
                }
                if durable == released.get() {
                    thread::yield_now();
                }
                durable = released.get();
                space.set_durable(released);
            }
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(space.end(), Lsn::new(3));
        });
    }
}

/// Three nodes join the queue; the owners of two of them, and a third thread for the one between, finish in any order,
/// delegate to each other, hand off and leave. Every space is released once, in order, after it has been filled in; who is
/// granted or delegated what is never in doubt.
#[test]
fn release_queue_of_three() {
    for patient in [false, true] {
        model(3, move || {
            let nodes: [Node; 3] = Default::default();
            let shared = Arc::new((ReleaseQueue::default(), nodes, Cells::new(4)));
            (0..3).for_each(|index| shared.0.join(index, |index| &shared.1[index]));
            let finish = move |shared: &(ReleaseQueue, [Node; 3], Cells), index: usize| {
                let (_, nodes, cells) = shared;
                cells.write(Lsn::new(index as u64), 1, 1);
                if nodes[index].delegate(patient) {
                    return;
                }
                let mut granted = Some(index);
                while let Some(index) = granted {
                    assert_eq!(cells.read(index as u64), 1, "it is filled in");
                    // The last cell counts the releases.
                    assert_eq!(cells.read(3), index as u64, "all before it are released");
                    cells.write(Lsn::new(3), 1, index as u64 + 1);
                    granted = nodes[index].hand_off(|index| &nodes[index]);
                }
            };
            let others = [0, 2].map(|index| {
                let shared = Arc::clone(&shared);
                thread::spawn("owner", move || finish(&shared, index)).unwrap()
            });
            finish(&shared, 1);
            others.into_iter().for_each(|other| other.join().unwrap());
            assert_eq!(shared.2.read(3), 3);
        });
    }
}

/// One thread takes two nodes into use again and again while the other leaves: a join behind a node that is leaving finds
/// it either there or gone.
#[test]
fn release_queue_join_meets_leave() {
    model(3, || {
        let nodes: [Node; 2] = Default::default();
        let shared = Arc::new((ReleaseQueue::default(), nodes, Cells::new(1)));
        let finish = |shared: &(ReleaseQueue, [Node; 2], Cells), index: usize| {
            let (_, nodes, cells) = shared;
            if nodes[index].delegate(false) {
                return;
            }
            let mut granted = Some(index);
            while let Some(index) = granted {
                // Nobody else releases now.
                cells.write(Lsn::ZERO, 1, cells.read(0) + 1);
                granted = nodes[index].hand_off(|index| &nodes[index]);
            }
        };
        shared.0.join(0, |index| &shared.1[index]);
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn("owner", move || finish(&shared, 0)).unwrap()
        };
        shared.0.join(1, |index| &shared.1[index]);
        finish(&shared, 1);
        other.join().unwrap();
        // Both are free; the last one is used again.
        shared.0.join(1, |index| &shared.1[index]);
        finish(&shared, 1);
        assert_eq!(shared.2.read(0), 3);
    });
}

/// Who follows a link finds filled in what it stands for, and a link from the round before leads nowhere.
#[test]
fn links_in_two_rounds() {
    model(3, || {
        let shared = Arc::new((Links::new(4, 1), Cells::new(8)));
        shared.0.add(Lsn::new(1), Lsn::new(2));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn("writer", move || {
                let (links, cells) = &*shared;
                cells.write(Lsn::new(5), 2, 7);
                links.add(Lsn::new(5), Lsn::new(7));
            })
            .unwrap()
        };
        let (links, cells) = &*shared;
        if let Some(to) = links.follow(Lsn::new(5)) {
            assert_eq!((to, cells.read(5), cells.read(6)), (Lsn::new(7), 7, 7));
        }
        writer.join().unwrap();
        assert_eq!(links.follow(Lsn::new(5)), Some(Lsn::new(7)));
        assert_eq!(links.follow(Lsn::new(4)), None);
    });
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
