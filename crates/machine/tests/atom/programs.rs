//! Random programs for crash tests.

use duramen_machine::atom::{Bytes, Cpu, Lock, Program, Setup};
use duramen_test_support::Rng;

/// Groups of lines, each with a lock of its own.
pub(crate) const GROUPS: usize = 6;
/// Lines of a group. All groups together exceed the tiny machine's caches.
pub(crate) const LINES: usize = 16;

/// Programs that update random words of random groups, one group in an update, now and then in an
/// inner region. Word 0 of a group's first line counts its updates.
pub(crate) fn random(programs: usize, seed: u64) -> Setup {
    let mut rng = Rng::new(seed);
    let image = (0..GROUPS * LINES).map(|_| rng.bytes(64).try_into().unwrap());
    let mut image: Vec<Bytes> = image.collect();
    for group in 0..GROUPS {
        image[group * LINES][..8].fill(0);
    }
    resume(programs, seed, image)
}

/// As [`random`], from an image that there is already.
pub(crate) fn resume(programs: usize, seed: u64, image: Vec<Bytes>) -> Setup {
    let mut rng = Rng::new(seed ^ 0xa70);
    let program = |mut rng: Rng| -> Program {
        Box::new(move |cpu: &mut Cpu| {
            loop {
                update(cpu, &mut rng);
                cpu.work(rng.below(100));
                if !cpu.done() {
                    return;
                }
            }
        })
    };
    Setup { image, locks: GROUPS, programs: (0..programs).map(|_| program(rng.split())).collect() }
}

fn update(cpu: &mut Cpu, rng: &mut Rng) {
    let group = rng.within(0..GROUPS);
    let mut rng = rng.split();
    cpu.atomic(Lock(group), |cpu| {
        let first = (group * LINES * 64) as u64;
        let count = cpu.load(first);
        cpu.store(first, count + 1);
        let stores = rng.within(1..24);
        let inner = rng.percent(25);
        scribble(cpu, &mut rng, first, stores);
        if inner {
            // A lock that no other program takes: the group's own is held already.
            cpu.nested(|cpu| scribble(cpu, &mut rng, first, 3));
            scribble(cpu, &mut rng, first, 3);
        }
    });
}

fn scribble(cpu: &mut Cpu, rng: &mut Rng, first: u64, stores: usize) {
    for _ in 0..stores {
        let at = first + 8 + 8 * rng.below(LINES as u64 * 8 - 1);
        match rng.below(4) {
            0 => cpu.work(rng.below(40)),
            1 => {
                let value = cpu.load(at);
                cpu.store(at, value.rotate_left(7) ^ rng.bits());
            }
            2 => {
                let mut bytes = [0; 100];
                cpu.read(first, &mut bytes);
                cpu.store(at, u64::from(bytes[99]) + rng.bits());
            }
            // Two words; the last one of the group is alone.
            _ if at + 16 <= first + 64 * LINES as u64 => {
                let bytes = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
                cpu.write(at, &bytes.to_le_bytes());
            }
            _ => cpu.store(at, rng.bits()),
        }
    }
}

/// Updates that an image has seen, by the counts of its groups.
pub(crate) fn updates(image: &[Bytes]) -> u64 {
    (0..GROUPS).map(|group| u64::from_le_bytes(image[group * LINES][..8].try_into().unwrap())).sum()
}
