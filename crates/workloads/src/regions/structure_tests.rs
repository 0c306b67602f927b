//! Every structure against a model, on ordinary memory.

use std::collections::{BTreeSet, VecDeque};

use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;
use crate::regions::memory::PlainMemory;
use crate::regions::sdg::edge;

/// What an instance should hold.
#[derive(Debug)]
enum Model {
    Queue(VecDeque<u64>),
    Set(BTreeSet<u64>),
    Array(Vec<u64>),
}

impl Model {
    fn new(kind: Kind, scale: Scale) -> Self {
        match kind {
            Kind::Queue => Self::Queue(VecDeque::new()),
            Kind::Sps => Self::Array((0..scale.entries).collect()),
            _ => Self::Set(BTreeSet::new()),
        }
    }

    fn perform(&mut self, operation: Operation, scale: Scale) {
        let toggle = |set: &mut BTreeSet<u64>, key: u64| {
            if !set.remove(&key) && (set.len() as u64) < scale.entries {
                set.insert(key);
            }
        };
        match (self, operation) {
            (Self::Queue(queue), Operation::Enqueue(key)) if (queue.len() as u64) < scale.entries => {
                queue.push_back(key);
            }
            (Self::Queue(queue), Operation::Dequeue) => drop(queue.pop_front()),
            (Self::Set(set), Operation::Toggle(key)) => toggle(set, key),
            (Self::Set(set), Operation::Edge(from, to)) => toggle(set, edge(from, to)),
            (Self::Array(array), Operation::Swap(one, other)) => array.swap(one as usize, other as usize),
            _ => {}
        }
    }

    fn contents(&self) -> Vec<u64> {
        match self {
            Self::Queue(queue) => queue.iter().copied().collect(),
            Self::Set(set) => set.iter().copied().collect(),
            Self::Array(array) => array.clone(),
        }
    }
}

fn compare(kind: Kind, scale: Scale, operations: u64, seed: u64) {
    const BASE: u64 = 128;
    let mut memory = PlainMemory::new(BASE + Structure::bytes(kind, scale));
    let structure = Structure::at(kind, scale, BASE);
    structure.make(&mut memory, ()).unwrap();
    let mut model = Model::new(kind, scale);
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..operations {
        // Of ten operations of a queue seven put in, so that it fills.
        let number = if kind == Kind::Queue { u64::from(number % 10 > 6) } else { number };
        let operation = structure.draw(number, &mut random);
        memory.atomic((), |memory| structure.perform(memory, operation)).unwrap();
        model.perform(operation, scale);
        assert_eq!(structure.audit(&mut memory, ()), Ok(model.contents()), "{kind:?} after {operation:?}");
    }
}

#[test]
fn structures_hold_what_their_models_hold() {
    for (name, kind) in Kind::NAMES {
        assert_eq!((name.parse(), kind.name()), (Ok(kind), name));
        for entries in [1, 7, 60] {
            compare(kind, Scale { entries, size: EntrySize::Small }, 400, entries);
        }
        compare(kind, Scale::of(EntrySize::Large), 60, 9);
    }
}

#[test]
fn trees_grow_high_and_shrink_again() {
    for kind in [Kind::RbTree, Kind::BTree, Kind::Hash] {
        compare(kind, Scale { entries: 200, size: EntrySize::Small }, 1500, 3);
    }
}
