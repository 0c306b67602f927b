//! The power goes off at every operation of random programs, in both domains, also while recovery
//! runs and while several threads work; and the heap is damaged.

mod common;

use common::{BYTES, Depth, Program, Tried, options, quiet_panics, search, threads};
use duramen_heap::{Addr, Domain, Heap, Ptr, SimMemory, Source};
use duramen_pmem::{Region, RegionOptions, Survivors};
use duramen_test_support::{Rng, announced_seed, is_long};

const DOMAINS: [Domain; 2] = [Domain::VolatileCache, Domain::DurableCache];

#[test]
fn no_power_cut_leaves_anything_but_whole_transactions() {
    quiet_panics();
    let mut rng = Rng::new(announced_seed("torture of heaps"));
    let (programs, images) = if is_long() { (24, 256) } else { (1, 12) };
    let mut tried = Tried::default();
    for number in 0..programs {
        let program = Program::random(&mut rng, 5);
        for domain in DOMAINS {
            let depth = Depth { images, recoveries: if is_long() { 16 } else { 97 } };
            let searched = search(&program, domain, depth, &mut tried);
            assert_eq!(searched, Ok(()), "program {number}, {domain}: {program:?}");
        }
    }
    println!("{tried:?}");
    assert!(tried.undone > 0 && tried.complete > 0 && tried.recoveries > 0, "{tried:?}");
}

#[test]
fn threads_and_power_cuts() {
    let seed = announced_seed("torture of heaps with threads");
    let mut conflicts = 0;
    for number in 0..if is_long() { 1000 } else { 60 } {
        for domain in DOMAINS {
            match threads(seed.wrapping_add(number), domain) {
                Ok(met) => conflicts += met,
                Err(what) => panic!("seed {}, {domain}: {what}", seed.wrapping_add(number)),
            }
        }
    }
    println!("{conflicts} conflicts");
    assert!(conflicts > 0, "the threads have met");
}

/// A power cut may leave a later record of an update, and not the first. The slot's next update has
/// fewer records: the one that was left must not count as its own, because another transaction may
/// have changed the line meanwhile.
#[test]
fn a_record_that_was_left_alone_does_not_count_later() {
    let seed = announced_seed("records of heaps left alone");
    for number in 0..if is_long() { 4000 } else { 400 } {
        let seed = seed.wrapping_add(number);
        let memory = SimMemory::new(BYTES, Domain::VolatileCache);
        let open = |memory: &SimMemory| {
            Heap::open(&Source::Simulated(memory.clone()), &options(Domain::VolatileCache)).unwrap()
        };
        let heap = open(&memory);
        let (short, long) = heap
            .atomic(|tx| {
                let (short, long) = (tx.alloc_bytes(64)?, tx.alloc_bytes(20 * 64)?);
                tx.write(short, &[1; 64])?;
                tx.write(long, &[1; 20 * 64])?;
                Ok((short, long))
            })
            .unwrap();
        memory.crash_at(memory.operations() + 1 + number % 8);
        let _ = heap.atomic(|tx| tx.write(long, &[2; 20 * 64]));
        let memory = memory.crash_image(Survivors::Random(seed), None);
        let heap = open(&memory);
        // In the second record of the interrupted update.
        let line = long.plus(10 * 64);
        let left = heap
            .atomic(|tx| {
                tx.write(short, &[3; 64])?;
                let other = || heap.atomic(|tx| tx.write(line, &[4; 64]));
                std::thread::scope(|scope| scope.spawn(other).join().unwrap())?;
                Ok(memory.crash_image(Survivors::Random(seed), None))
            })
            .unwrap();
        let (mut bytes, mut unchanged) = ([0; 64], [0; 64]);
        let read = open(&left).atomic(|tx| tx.read(line, &mut bytes).and_then(|()| tx.read(short, &mut unchanged)));
        read.unwrap();
        assert_eq!((bytes, unchanged), ([4; 64], [1; 64]), "seed {seed}");
    }
}

/// Damage gives an error or wrong values, and no panic.
#[test]
fn damage_is_no_panic() {
    let seed = announced_seed("damage to heaps");
    let mut rng = Rng::new(seed);
    let program = Program::random(&mut rng, 8);
    let (mut refused, mut opened) = (0, 0);
    quiet_panics();
    for _ in 0..if is_long() { 20_000 } else { 1500 } {
        let memory = SimMemory::new(BYTES, Domain::VolatileCache);
        memory.crash_at(100 + rng.below(300));
        let heap = Heap::open(&Source::Simulated(memory.clone()), &options(Domain::VolatileCache)).unwrap();
        let _ = program.run_for_damage(&heap, &memory);
        drop(heap);
        let image = memory.crash_image(duramen_pmem::Survivors::Random(rng.bits()), None);
        damage(&image, &mut rng);
        let Ok(heap) = Heap::open(&Source::Simulated(image), &options(Domain::VolatileCache)) else {
            refused += 1;
            continue;
        };
        opened += 1;
        let _ = common::read_damaged(&heap);
        for (at, len) in heap.objects() {
            let mut bytes = vec![0; len as usize];
            heap.atomic(|tx| tx.read(at, &mut bytes)).expect("a live object can be read");
        }
        let _ = heap.atomic(|tx| tx.free(Addr::new(rng.below(BYTES)).typed::<u64>()));
        let _ = heap.atomic(|tx| tx.alloc([1_u64; 9]).and_then(|at: Ptr<[u64; 9]>| tx.get(at)));
    }
    println!("{refused} refused, {opened} opened");
    assert!(refused > 0 && opened > 0, "{refused} refused, {opened} opened");
}

fn damage(memory: &SimMemory, rng: &mut Rng) {
    let region = Region::open(&Source::Simulated(memory.clone()), &RegionOptions::new(BYTES / 4096 * 4096)).unwrap();
    // Headers, slots and records more often than objects.
    let within = *rng.pick(&[4096, 12_288, BYTES / 4096 * 4096]);
    for _ in 0..rng.within(1..6) {
        let at = rng.below(within / 8) * 8;
        let word = region.read_word(at);
        let values = [0, u64::MAX, word ^ 1 << rng.below(64), rng.bits()];
        region.store_word(at, *rng.pick(&values));
    }
    region.persist(0, BYTES as usize / 4096 * 4096);
}
