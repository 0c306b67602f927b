//! Models of the insertion designs: every interleaving of two or three threads over a buffer of a
//! few cells.

use duramen_sync::atomic::{AtomicU64, Ordering};
use duramen_sync::cell::UnsafeCell;
use duramen_sync::{Arc, thread};
use duramen_types::Lsn;

use super::links::Links;
use super::release_queue::{Node, ReleaseQueue};
use super::slot::{Join, Slot};
use super::{AnyInsertion, InsertDesign, Shape};
use crate::buffer::positions::{Hardening, Space};
use crate::test_support::model;
use crate::wake_event::WakeEvent;

/// The bytes of a log buffer, one cell each. Loom reports conflicting accesses.
struct Cells(Vec<UnsafeCell<u64>>);

// SAFETY: the models check that accesses do not conflict.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    fn new(count: usize) -> Self {
        Self((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn write(&self, from: Lsn, bytes: u64, value: u64) {
        for at in from.get()..from.get() + bytes {
            // SAFETY: the design gives the cells to this thread only; loom checks it.
            self.0[at as usize % self.0.len()].with_mut(|cell| unsafe { *cell = value });
        }
    }

    fn read(&self, at: u64) -> u64 {
        // SAFETY: the cell has been released; loom checks it.
        self.0[at as usize % self.0.len()].with(|cell| unsafe { *cell })
    }
}

/// One place in the array, and hardly more slots than necessary.
const SHAPE: Shape = Shape { places: 1, arrays: 1, pool: 3, capacity: 64, smallest: 1 };

fn insert(design: &AnyInsertion, space: &Space, bytes: u64, fill: impl Fn(Lsn)) -> Lsn {
    let inserted = design.try_insert(space, bytes, &fill);
    inserted.unwrap_or_else(|| design.insert(space, bytes, true, &fill))
}

/// Lets `sizes.len()` threads insert one record each. Whatever is released at any time is filled
/// in, and at the end every record is there in one piece.
fn insertions(preemptions: usize, sizes: &'static [u64], design: InsertDesign, shape: Shape) {
    let total: u64 = sizes.iter().sum();
    // Shown when the model fails.
    println!("{design}");
    model(preemptions, move || {
        let space = Space::new(shape.capacity, 1, 1 << 40, Lsn::ZERO, Arc::new(WakeEvent::new()), Hardening::Flushed);
        let log = Arc::new((AnyInsertion::new(design, shape), space, Cells::new(total as usize)));
        let insert_number = |log: &(AnyInsertion, Space, Cells), number: usize| {
            let (design, space, cells) = log;
            let value = number as u64 + 1;
            let lsn = insert(design, space, sizes[number], |lsn| cells.write(lsn, sizes[number], value));
            (lsn, number)
        };
        let others: Vec<_> = (1..sizes.len())
            .map(|number| {
                let log = Arc::clone(&log);
                thread::spawn("inserter", move || insert_number(&log, number)).unwrap()
            })
            .collect();
        let mut inserted = vec![insert_number(&log, 0)];
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
#[ignore = "long; the gate draws some of these"]
fn every_design_three_threads() {
    for design in InsertDesign::ALL {
        insertions(2, &[1, 2, 1], design, SHAPE);
    }
}

/// Two records exceed the bound together: the second must go into another group.
#[test]
fn bounded_groups() {
    for design in InsertDesign::ALL {
        insertions(1, &[3, 3, 3], design, Shape { capacity: 16, ..SHAPE });
    }
}

/// Records above the bound do not join.
#[test]
#[ignore = "long; the gate draws some of these"]
fn too_large_for_a_group() {
    for design in InsertDesign::ALL {
        insertions(2, &[3, 1, 3], design, Shape { capacity: 8, ..SHAPE });
    }
}

/// Two records fill the buffer: some thread must wait for room until the flusher has read what is
/// released, and its record must not overwrite what is still being read.
#[test]
fn every_design_in_a_full_buffer() {
    for design in InsertDesign::ALL {
        println!("{design}");
        model(1, move || {
            let shape = Shape { capacity: 2, ..SHAPE };
            let event = Arc::new(WakeEvent::new());
            let space = Space::new(shape.capacity, 1, 1 << 40, Lsn::ZERO, Arc::clone(&event), Hardening::Flushed);
            let log = Arc::new((AnyInsertion::new(design, shape), space, Cells::new(2)));
            let others: Vec<_> = [1, 2]
                .map(|count| {
                    let log = Arc::clone(&log);
                    thread::spawn("inserter", move || {
                        let (design, space, cells) = &*log;
                        for _ in 0..count {
                            insert(design, space, 1, |lsn| cells.write(lsn, 1, lsn.get() + 1));
                        }
                    })
                    .unwrap()
                })
                .into();
            let (design, space, cells) = &*log;
            // If the other two records come first, a thread finds the buffer full and wakes the
            // flusher.
            event.wait(None);
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

/// Nodes of a release queue, the number of released ones, and a cell for each node that records
/// that it is filled in; the last cell counts the releases.
struct Queue {
    queue: ReleaseQueue,
    nodes: Vec<Node>,
    released: AtomicU64,
    cells: Cells,
}

impl Queue {
    fn new(count: usize) -> Self {
        let nodes = (0..count).map(|_| Node::default()).collect();
        Self { queue: ReleaseQueue::default(), nodes, released: AtomicU64::new(0), cells: Cells::new(count + 1) }
    }

    fn join(&self, index: usize) {
        self.queue.join(index, |index| &self.nodes[index]);
    }

    fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Finishes the node at `index`, whose space at `lsn` has been filled in.
    fn finish(&self, index: usize, lsn: u64) {
        let is_turn = || self.released() == lsn;
        if is_turn() || !self.nodes[index].delegate(Lsn::new(lsn), is_turn) {
            self.release(index, lsn);
        }
    }

    fn release(&self, mut index: usize, mut lsn: u64) {
        let count = self.nodes.len();
        loop {
            assert_eq!(self.cells.read(index as u64), 1, "it is filled in");
            assert_eq!(self.cells.read(count as u64), lsn, "all before it are released, and nobody else releases");
            lsn += 1;
            self.cells.write(Lsn::new(count as u64), 1, lsn);
            self.released.store(lsn, Ordering::Release);
            let next = self.nodes[index].next();
            let Some(next) = next.filter(|next| self.nodes[*next].take(Lsn::new(lsn))) else { return };
            index = next;
        }
    }

    fn collect(&self) {
        let due = self.released();
        if let Some(index) = (0..self.nodes.len()).find(|index| self.nodes[*index].take(Lsn::new(due))) {
            self.release(index, due);
        }
    }
}

/// Three nodes join the queue. The owners of two of them, and a third thread for the one between,
/// finish in any order, delegate to each other and hand on, and one thread collects in the middle.
/// Every space is released once, in order, after it has been filled in.
#[test]
fn release_queue_of_three() {
    model(3, move || {
        let queue = Arc::new(Queue::new(3));
        (0..3).for_each(|index| queue.join(index));
        let finish = |queue: &Queue, index: usize| {
            queue.cells.write(Lsn::new(index as u64), 1, 1);
            queue.finish(index, index as u64);
        };
        let others = [0, 2].map(|index| {
            let queue = Arc::clone(&queue);
            thread::spawn("owner", move || finish(&queue, index)).unwrap()
        });
        finish(&queue, 1);
        queue.collect();
        others.into_iter().for_each(|other| other.join().unwrap());
        queue.collect();
        assert_eq!(queue.released(), 3);
    });
}

/// One thread takes two nodes into use again and again while the owner of one of them finishes. The
/// thread that hands on reads a node that another space has reused meanwhile, and takes nothing
/// that is not due.
#[test]
fn release_queue_nodes_are_used_again() {
    model(3, || {
        let queue = Arc::new(Queue::new(2));
        (0..2).for_each(|index| queue.cells.write(Lsn::new(index), 1, 1));
        queue.join(0);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn("owner", move || queue.finish(0, 0)).unwrap()
        };
        queue.join(1);
        queue.finish(1, 1);
        if queue.released() == 2 {
            // Both are free.
            queue.join(1);
            queue.finish(1, 2);
        }
        other.join().unwrap();
        queue.collect();
        assert!(queue.released() >= 2);
    });
}

/// A thread that follows a link finds the linked bytes filled in, and a link from the round before
/// leads nowhere.
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

/// The life of one slot: a leader and a member join, or the member is refused because the slot has
/// been closed; the last member frees the slot; a later group in the same slot is not confused with
/// the earlier one.
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
