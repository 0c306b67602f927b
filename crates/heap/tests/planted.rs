//! Every planted bug of heaps is noticed by the torture; a third of them are hunted in each run of
//! the sample. A binary of its own, because a planted bug is there for the whole process; one test
//! after another, for the same reason.
//!
//! ```sh
//! RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
//!     -p duramen-heap --test planted
//! ```
#![cfg(duramen_planted)]

mod common;

use common::{Depth, Program, Tried, quiet_panics, search, threads};
use duramen_heap::Domain;
use duramen_test_support::{Rng, announced_seed, is_long};
use duramen_types::planted::{Bug, plant};

const PROGRAMS: u64 = 40;

/// Returns what notices the bug, and after how many programs.
fn hunt(bug: Option<Bug>, seed: u64, programs: u64) -> Option<(u64, String)> {
    let _planted = bug.map(plant);
    for number in 0..programs {
        let seed = seed.wrapping_add(number);
        for domain in [Domain::VolatileCache, Domain::DurableCache] {
            let program = Program::random(&mut Rng::new(seed), 5);
            let depth = Depth { images: 12, recoveries: 31 };
            let found = match bug {
                Some(Bug::LinesNotOwned) => threads(seed, domain).map(drop),
                _ => search(&program, domain, depth, &mut Tried::default()),
            };
            if let Err(what) = found {
                return Some((number + 1, format!("{domain}: {what}")));
            }
        }
    }
    None
}

#[test]
fn planted_bugs_of_heaps_are_noticed() {
    quiet_panics();
    let seed = announced_seed("planted bugs of heaps");
    assert_eq!(hunt(None, seed, 2), None, "these fail without a planted bug, too");
    let hunted = Bug::REGIONS.iter().zip(seed..).filter(|(_, number)| is_long() || number.is_multiple_of(3));
    for (bug, _) in hunted {
        let (programs, what) = hunt(Some(*bug), seed, PROGRAMS).unwrap_or_else(|| panic!("{bug:?} was not noticed"));
        println!("{bug:?}: noticed after {programs} programs: {}", what.chars().take(160).collect::<String>());
    }
}
