//! A counter that survives: `cargo run -p duramen-pmem --example counter /dev/shm/counter`.

use duramen_pmem::{PmemError, Region, RegionOptions, Source, Survive};

fn main() -> Result<(), PmemError> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm/duramen-counter".to_owned());
    // Enough for a file that is no persistent memory; without it, opening one is refused.
    let options = RegionOptions { survive: Survive::Process, ..RegionOptions::new(4096) };
    let region = Region::open(&Source::File(path.into()), &options)?;
    region.shortfall().into_iter().for_each(|warning| eprintln!("warning: {warning}"));
    region.store_word(0, region.read_word(0) + 1);
    region.persist(0, 8);
    println!("run {} of this program; flushed with {}", region.read_word(0), region.flush_instruction());
    Ok(())
}
