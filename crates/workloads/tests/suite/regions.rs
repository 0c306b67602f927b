//! The structures of atomic regions in a heap: after power cuts and with several threads they hold
//! what a whole number of operations leaves.

use duramen_heap::{Domain, Heap, HeapOptions, LogShape, SimMemory, Source, Survive};
use duramen_workloads::regions::{
    EntrySize, HeapMemory, Kind, OrderEntry, Ordered, PlainMemory, Scale, Structure, Terminal,
};
use duramen_workloads::tpcc;
use rand::SeedableRng;
use rand::rngs::StdRng;

const SCALE: Scale = Scale { entries: 12, size: EntrySize::Small };
const BYTES: u64 = 4096 + 4 * 16 * 512 + 2 * (1 << 16);

fn options(domain: Domain) -> HeapOptions {
    let log = LogShape { slots: 2, buckets: 4, records: 16 };
    HeapOptions { log, domain, survive: Survive::PowerCut, ..HeapOptions::new(BYTES) }
}

fn open(memory: &SimMemory, domain: Domain) -> Heap {
    Heap::open(&Source::Simulated(memory.clone()), &options(domain)).unwrap()
}

/// What a structure holds after each number of operations.
fn states(kind: Kind, operations: u64, seed: u64) -> Vec<Vec<u64>> {
    let mut memory = PlainMemory::new(64 + Structure::bytes(kind, SCALE));
    let structure = Structure::at(kind, SCALE, 64);
    structure.make(&mut memory, ()).unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut states = vec![structure.audit(&mut memory, ()).unwrap()];
    for number in 0..operations {
        structure.operate(&mut memory, (), number, &mut random).unwrap();
        states.push(structure.audit(&mut memory, ()).unwrap());
    }
    states
}

#[test]
fn structures_survive_power_cuts_whole() {
    const OPERATIONS: u64 = 30;
    for (kind, domain) in Kind::NAMES
        .into_iter()
        .map(|(_, kind)| kind)
        .zip([Domain::VolatileCache, Domain::DurableCache].into_iter().cycle())
    {
        let states = states(kind, OPERATIONS, 5);
        let mut step = 0;
        loop {
            let memory = SimMemory::new(BYTES, domain);
            let heap = open(&memory, domain);
            let base = heap.atomic(|tx| tx.alloc_bytes(Structure::bytes(kind, SCALE))).unwrap().get();
            let structure = Structure::at(kind, SCALE, base);
            let mut on_heap = HeapMemory(&heap);
            structure.make(&mut on_heap, ()).unwrap();
            memory.crash_at(memory.operations() + step);
            let mut random = StdRng::seed_from_u64(5);
            let mut acknowledged = 0;
            for number in 0..OPERATIONS {
                structure.operate(&mut on_heap, (), number, &mut random).unwrap();
                if memory.is_off() {
                    break;
                }
                acknowledged = number as usize + 1;
            }
            for (survivors, image) in memory.images(6, step) {
                let heap = open(&image, domain);
                let found = structure.audit(&mut HeapMemory(&heap), ()).unwrap();
                let is_whole = found == states[acknowledged] || states.get(acknowledged + 1) == Some(&found);
                assert!(is_whole, "{kind:?}, {domain}, operation {step}, {survivors:?}: {found:?}");
            }
            if !memory.is_off() {
                break;
            }
            step += 37;
        }
    }
}

#[test]
fn threads_share_a_structure() {
    let options = HeapOptions { survive: Survive::Nothing, ..options(Domain::VolatileCache) };
    for (_, kind) in Kind::NAMES {
        let heap = Heap::open(&Source::Anonymous, &options).unwrap();
        let base = heap.atomic(|tx| tx.alloc_bytes(Structure::bytes(kind, SCALE))).unwrap().get();
        let structure = Structure::at(kind, SCALE, base);
        structure.make(&mut HeapMemory(&heap), ()).unwrap();
        std::thread::scope(|scope| {
            for seed in 0..2 {
                let heap = &heap;
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    for number in 0..400 {
                        structure.operate(&mut HeapMemory(heap), (), number, &mut random).unwrap();
                    }
                });
            }
        });
        structure.audit(&mut HeapMemory(&heap), ()).unwrap_or_else(|what| panic!("{kind:?}: {what}"));
    }
}

#[test]
fn orders_survive_power_cuts_whole() {
    const SCALE: tpcc::Scale = tpcc::Scale::small(1, 10);
    const ORDERS: u64 = 12;
    let mut cuts = 0;
    for seed in 0.. {
        let domain = [Domain::VolatileCache, Domain::DurableCache][seed as usize % 2];
        let options = HeapOptions { log: LogShape { slots: 2, buckets: 8, records: 16 }, ..options(domain) };
        let bytes = OrderEntry::new(SCALE, ORDERS, 0).end();
        let options = HeapOptions { bytes: 4096 + bytes + 3 * (1 << 16), ..options };
        let memory = SimMemory::new(options.bytes, domain);
        let heap = Heap::open(&Source::Simulated(memory.clone()), &options).unwrap();
        let base = heap.atomic(|tx| tx.alloc_bytes(bytes)).unwrap().get();
        let tables = OrderEntry::new(SCALE, ORDERS, base);
        let mut on_heap = HeapMemory(&heap);
        tables.load(&mut on_heap, (), seed).unwrap();
        memory.crash_at(memory.operations() + 1 + 137 * seed);
        let mut terminal = Terminal::new(SCALE, seed);
        let (mut entered, mut acknowledged) = (Ordered::default(), Ordered::default());
        for now in 1..=ORDERS {
            let order = terminal.draw();
            acknowledged = entered;
            if tables.enter(&mut on_heap, (), &order, now).unwrap() {
                entered.orders += 1;
                entered.lines += order.lines();
            }
            if memory.is_off() {
                break;
            }
        }
        if !memory.is_off() {
            break;
        }
        cuts += 1;
        for (survivors, image) in memory.images(6, seed) {
            let heap = Heap::open(&Source::Simulated(image), &options).unwrap();
            let found = tables.audit(&mut HeapMemory(&heap), ()).unwrap();
            let is_whole =
                [acknowledged, entered].map(|of| (of.orders, of.lines)).contains(&(found.orders, found.lines));
            assert!(is_whole, "{domain}, {survivors:?}: {found:?}, not {acknowledged:?} or {entered:?}");
        }
    }
    assert!(cuts > 10, "{cuts}");
}
