//! What a power cut leaves.

use std::collections::BTreeSet;

use super::*;
use crate::options::{RegionOptions, Source};
use crate::region::Region;

fn memory(domain: Domain) -> (SimMemory, Region) {
    let memory = SimMemory::new(4096, domain);
    let options = RegionOptions { domain, ..RegionOptions::new(4096) };
    let region = Region::open(&Source::Simulated(memory.clone()), &options).unwrap();
    (memory, region)
}

/// Returns the values that the first words can have after a power cut, together.
fn left<const N: usize>(memory: &SimMemory) -> BTreeSet<[u64; N]> {
    let images = memory.images(1 << 12, 1);
    assert!(images.are_all());
    images.map(|(_, image)| std::array::from_fn(|word| image.shared.state.lock().sure[word])).collect()
}

#[test]
fn stored_words_may_survive_each_by_itself() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store(0, &[&[1; 8], &[2; 8]]);
    let (one, two) = (u64::from_ne_bytes([1; 8]), u64::from_ne_bytes([2; 8]));
    assert_eq!(left(&memory), BTreeSet::from([[0, 0], [0, two], [one, 0], [one, two]]));
    assert_eq!((memory.unsure(), memory.ways()), (2, 4));
}

#[test]
fn every_value_since_the_sure_one_may_survive() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store_word(0, 1);
    region.persist(0, 8);
    region.store_word(0, 2);
    region.store_word(0, 3);
    assert_eq!(left(&memory), BTreeSet::from([[1], [2], [3]]));
}

#[test]
fn a_flush_without_a_fence_and_a_fence_without_a_flush_are_nothing() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store_word(0, 1);
    region.fence();
    assert_eq!(left(&memory), BTreeSet::from([[0], [1]]));
    region.flush(0, 8);
    assert_eq!(left(&memory), BTreeSet::from([[0], [1]]));
    region.fence();
    assert_eq!(left(&memory), BTreeSet::from([[1]]));
}

#[test]
fn a_flush_takes_whole_lines_as_they_are() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store_word(0, 1);
    region.store_word(56, 2);
    region.store_word(64, 3);
    region.flush(8, 1);
    region.store_word(0, 4);
    region.fence();
    let words: BTreeSet<[u64; 9]> = left(&memory);
    assert_eq!(words.iter().map(|words| words[0]).collect::<BTreeSet<_>>(), BTreeSet::from([1, 4]));
    assert!(words.iter().all(|words| words[7] == 2), "of the same line");
    assert_eq!(words.iter().map(|words| words[8]).collect::<BTreeSet<_>>(), BTreeSet::from([0, 3]), "of the next");
}

/// The memory ends within a line, and the words of two lines are streamed in turn.
#[test]
fn words_of_a_line_become_sure_each_by_itself() {
    const LEN: u64 = 4096 + 8;
    let memory = SimMemory::new(LEN, Domain::VolatileCache);
    let options = RegionOptions { domain: Domain::VolatileCache, ..RegionOptions::new(4096) };
    let region = Region::open(&Source::Simulated(memory.clone()), &options).unwrap();
    for (at, value) in [(0, 1_u64), (64, 2), (8, 3), (4088, 4), (72, 5)] {
        region.stream(at, &[&value.to_ne_bytes()]);
    }
    region.store_word(16, 6);
    region.store_word(4080, 7);
    assert_eq!((memory.unsure(), memory.ways()), (7, 1 << 7));
    region.fence();
    assert_eq!((memory.unsure(), memory.ways()), (2, 4));
    let image = memory.crash_image(Survivors::Nothing, None);
    assert_eq!(image.len(), LEN);
    let words = |at: usize| image.shared.state.lock().sure[at / 8];
    assert_eq!([0, 8, 16, 64, 72, 4080, 4088, 4096].map(words), [1, 3, 0, 2, 5, 0, 4, 0]);
    region.persist(16, 8);
    region.persist(4080, 8);
    assert_eq!((memory.unsure(), memory.ways()), (0, 1));
}

#[test]
fn streams_are_sure_after_their_own_threads_fence() {
    let (memory, region) = memory(Domain::VolatileCache);
    let region = Arc::new(region);
    region.stream(0, &[&7_u64.to_ne_bytes()]);
    let other = Arc::clone(&region);
    let flushed = thread::spawn("other", move || {
        other.flush(0, 8);
        other.fence();
    });
    flushed.unwrap().join().unwrap();
    assert_eq!(left(&memory), BTreeSet::from([[0], [7]]), "the other thread has drained its own buffers only");
    region.fence();
    assert_eq!(left(&memory), BTreeSet::from([[7]]));
}

#[test]
fn another_thread_may_flush_what_was_stored() {
    let (memory, region) = memory(Domain::VolatileCache);
    let region = Arc::new(region);
    region.store_word(0, 7);
    let other = Arc::clone(&region);
    thread::spawn("other", move || other.persist(0, 8)).unwrap().join().unwrap();
    assert_eq!(left(&memory), BTreeSet::from([[7]]));
}

#[test]
fn draining_all_processors_makes_everybodys_streams_sure() {
    let (memory, region) = memory(Domain::VolatileCache);
    let region = Arc::new(region);
    let other = Arc::clone(&region);
    thread::spawn("other", move || other.stream(0, &[&7_u64.to_ne_bytes()])).unwrap().join().unwrap();
    region.store_word(8, 8);
    region.fence();
    assert_eq!(left(&memory), BTreeSet::from([[0, 0], [0, 8], [7, 0], [7, 8]]));
    crate::drain_processors([&*region], crate::DrainBy::Membarrier);
    assert_eq!(left(&memory), BTreeSet::from([[7, 0], [7, 8]]), "what is in a cache only is not drained");
}

#[test]
fn durable_caches_need_a_fence_and_no_flush() {
    let (memory, region) = memory(Domain::DurableCache);
    region.store_word(0, 1);
    assert_eq!(left(&memory), BTreeSet::from([[0], [1]]), "it may be in the store buffer");
    region.persist(0, 8);
    assert_eq!(left(&memory), BTreeSet::from([[1]]));
}

#[test]
fn programs_for_durable_caches_are_refused_where_caches_are_volatile() {
    let memory = SimMemory::new(4096, Domain::VolatileCache);
    let options = RegionOptions { domain: Domain::DurableCache, ..RegionOptions::new(4096) };
    let error = Region::open(&Source::Simulated(memory), &options).unwrap_err();
    assert!(matches!(error, PmemError::NotDurable { .. }), "{error}");
}

#[test]
fn nothing_happens_without_power() {
    let (memory, region) = memory(Domain::VolatileCache);
    memory.crash_at(2);
    region.store_word(0, 1);
    region.flush(0, 8);
    assert!(!memory.is_off());
    region.fence();
    assert!(memory.is_off());
    region.store_word(8, 2);
    region.persist(0, 16);
    assert_eq!(left(&memory), BTreeSet::from([[0, 0], [1, 0]]));
}

#[test]
fn an_image_is_memory_of_its_own() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store_word(0, 5);
    let image = memory.crash_image(Survivors::Everything, None);
    region.store_word(0, 6);
    let other = Region::open(&Source::Simulated(image.clone()), &RegionOptions::new(4096)).unwrap();
    assert_eq!((other.read_word(0), image.unsure()), (5, 0));
    let second = Region::open(&Source::Simulated(image.clone()), &RegionOptions::new(4096));
    assert!(matches!(second, Err(PmemError::Busy { .. })));
    drop(other);
    assert!(Region::open(&Source::Simulated(image), &RegionOptions::new(4096)).is_ok());
}

#[test]
fn what_is_not_synced_is_still_read_after_reopening() {
    let (memory, region) = memory(Domain::VolatileCache);
    region.store_word(0, 5);
    drop(region);
    let region = Region::open(&Source::Simulated(memory.clone()), &RegionOptions::new(4096)).unwrap();
    assert_eq!(region.read_word(0), 5);
    assert_eq!(memory.unsure(), 1);
}

#[test]
fn many_images_are_drawn() {
    let (memory, region) = memory(Domain::VolatileCache);
    for word in 0..64 {
        region.store_word(word * 8, word + 1);
    }
    let images = memory.images(200, 9);
    assert!(!images.are_all());
    let contents: Vec<Vec<u64>> = images.map(|(_, image)| image.shared.state.lock().sure.clone()).collect();
    assert_eq!(contents.len(), 200);
    let kept = |content: &Vec<u64>| content.iter().filter(|word| **word != 0).count();
    assert_eq!(kept(&contents[0]), 0);
    assert_eq!(kept(&contents[1]), 64);
    assert!(contents.iter().collect::<BTreeSet<_>>().len() > 50, "they differ");
    let (few, most) = (
        contents.iter().filter(|content| kept(content) < 16).count(),
        contents.iter().filter(|content| kept(content) > 48).count(),
    );
    assert!(few > 10 && most > 10, "{few} that lost most, {most} that kept most");
}
