//! Regions of all sources.

use super::*;
use crate::mode::Mode;
use std::os::unix::fs::MetadataExt;

const LEN: u64 = 16384;

fn options() -> RegionOptions {
    RegionOptions { survive: Survive::Nothing, ..RegionOptions::new(LEN) }
}

fn every_source(check: impl Fn(&Source)) {
    let directory = tempfile::tempdir().unwrap();
    check(&Source::Anonymous);
    check(&Source::File(directory.path().join("region")));
    check(&Source::Simulated(SimMemory::new(LEN, Domain::VolatileCache)));
}

#[test]
fn what_is_written_is_read() {
    every_source(|source| {
        let region = Region::open(source, &options()).unwrap();
        region.store(3, &[b"abc", b"", b"defghijklmnop", b"q"]);
        let mut bytes = [0; 24];
        region.read(0, &mut bytes);
        assert_eq!(&bytes, b"\0\0\0abcdefghijklmnopq\0\0\0\0", "in {}", region.location());
        region.stream(4096, &[b"ab", b"cdefgh", b"ijklmnopqrstuvwxyz", b"01234", b"5"]);
        region.fence();
        let mut bytes = [0; 32];
        region.read(4096, &mut bytes);
        assert_eq!(&bytes, b"abcdefghijklmnopqrstuvwxyz012345");
        region.store_word(8, 7);
        region.persist(8, 8);
        assert_eq!(region.read_word(8), 7);
    });
}

/// Lines, words and parts of words are copied in different ways.
#[test]
fn bytes_of_any_length_and_alignment_are_read_as_they_were_stored() {
    every_source(|source| {
        let region = Region::open(source, &options()).unwrap();
        let data: Vec<u8> = (0..400).map(|byte| byte as u8 | 1).collect();
        for at in 0..20 {
            for len in [0, 1, 7, 8, 9, 63, 64, 65, 71, 72, 127, 128, 136, 200, 330] {
                region.store(0, &[&[0; 400]]);
                region.store(at, &[&data[3..3 + len]]);
                let mut found = [0; 401];
                region.read(0, &mut found[1..]);
                let stored = 1 + at as usize..1 + at as usize + len;
                assert_eq!(found[stored.clone()], data[3..3 + len], "{len} bytes at {at}");
                assert!(found[..stored.start].iter().chain(&found[stored.end..]).all(|byte| *byte == 0));
                let mut again = vec![0; len + 1];
                region.read(at, &mut again[1..]);
                assert_eq!(again[1..], data[3..3 + len], "{len} bytes at {at}");
            }
        }
    });
}

#[test]
fn ranges_may_pass_the_end_of_a_ring() {
    every_source(|source| {
        let options = RegionOptions { ring_from: Some(4096), ..options() };
        let region = Region::open(source, &options).unwrap();
        region.store(LEN - 3, &[b"abcdef"]);
        region.persist(LEN - 3, 6);
        let mut bytes = [0; 3];
        region.read(4096, &mut bytes);
        assert_eq!(&bytes, b"def");
        // SAFETY: no thread writes.
        assert_eq!(unsafe { region.bytes(LEN - 3, 6) }, b"abcdef");
        region.stream(LEN, &[&[9; 8]]);
        region.fence();
        assert_eq!(region.read_word(4096), u64::from_ne_bytes([9; 8]));
    });
}

#[test]
#[should_panic(expected = "not within a region")]
fn ranges_beyond_the_end_are_refused() {
    Region::open(&Source::Anonymous, &options()).unwrap().store(LEN - 3, &[b"abcd"]);
}

#[test]
fn what_is_written_as_memory_is_recorded() {
    let memory = SimMemory::new(LEN, Domain::VolatileCache);
    let options = RegionOptions { ring_from: Some(4096), ..options() };
    let region = Region::open(&Source::Simulated(memory.clone()), &options).unwrap();
    // SAFETY: the test is the only user.
    unsafe { region.bytes_mut(LEN - 8, 16) }.fill(5);
    region.wrote_bytes(LEN - 8, 16);
    assert_eq!(memory.unsure(), 2);
    region.persist(LEN - 8, 16);
    assert_eq!(memory.unsure(), 0);
}

#[test]
fn a_private_region_leaves_its_file_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let source = Source::File(path.clone());
    let private = RegionOptions { mode: Mode::Private, ..options() };
    assert!(matches!(Region::open(&source, &private), Err(PmemError::Missing { .. })));
    Region::open(&source, &options()).unwrap().store(64, &[b"before"]);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    let before = std::fs::read(&path).unwrap();
    let region = Region::open(&source, &private).unwrap();
    assert!(matches!(Region::open(&source, &private), Err(PmemError::Busy { .. })));
    region.store(64, &[b"behind"]);
    region.persist(64, 6);
    let mut bytes = [0; 6];
    region.read(64, &mut bytes);
    assert_eq!(&bytes, b"behind");
    drop(region);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let too_long = RegionOptions { len: 2 * LEN, ..private };
    assert!(matches!(Region::open(&source, &too_long), Err(PmemError::TooSmall { .. })));
}

#[test]
fn a_file_keeps_its_content_and_is_not_shared() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("region");
    let source = Source::File(path.clone());
    let open = |mode| Region::open(&source, &RegionOptions { mode, ..options() });
    assert!(matches!(open(Mode::Open), Err(PmemError::Missing { .. })));
    let region = open(Mode::Create).unwrap();
    region.store_word(0, 42);
    region.persist(0, 8);
    assert!(matches!(open(Mode::Open), Err(PmemError::Busy { .. })));
    drop(region);
    assert!(matches!(open(Mode::Create), Err(PmemError::AlreadyExists { .. })));
    assert_eq!(open(Mode::Open).unwrap().read_word(0), 42);
    let metadata = std::fs::metadata(&path).unwrap();
    assert!(metadata.len() == LEN && metadata.blocks() * 512 >= LEN, "its space is allocated");
    let larger = RegionOptions { len: 2 * LEN, ..options() };
    let refused = Region::open(&source, &larger).unwrap_err();
    let is_too_small = matches!(refused, PmemError::TooSmall { len: LEN, wanted, .. } if wanted == 2 * LEN);
    assert!(is_too_small, "{refused}");
}

#[test]
fn what_would_not_be_durable_is_refused_or_said() {
    let directory = tempfile::tempdir().unwrap();
    let file = Source::File(directory.path().join("region"));
    let asked = RegionOptions::new(LEN);
    for (source, survived) in [(&Source::Anonymous, Survive::Nothing), (&file, Survive::Process)] {
        let refused = Region::open(source, &asked).unwrap_err();
        assert!(matches!(refused, PmemError::NotDurable { wanted: Survive::PowerCut, .. }), "{refused}");
        let region = Region::open(source, &RegionOptions { survive: survived, ..asked.clone() }).unwrap();
        assert!(region.shortfall().is_some_and(|warning| warning.contains(&survived.to_string())));
    }
    let stated = RegionOptions { stated: Some(Guarantee::DurableCache), domain: Domain::DurableCache, ..asked };
    let region = Region::open(&file, &stated).unwrap();
    assert_eq!((region.shortfall(), region.guarantee()), (None, Guarantee::DurableCache));
}

#[test]
fn nonsense_is_refused() {
    let invalid = [
        RegionOptions { len: 0, ..options() },
        RegionOptions { len: 1000, ..options() },
        RegionOptions { ring_from: Some(LEN), ..options() },
        RegionOptions { ring_from: Some(100), ..options() },
    ];
    for options in invalid {
        let refused = Region::open(&Source::Anonymous, &options).unwrap_err();
        assert!(matches!(refused, PmemError::InvalidOption { .. }), "{refused}");
    }
}

/// Regression: what the memory holds behind the region was written behind the mapping.
#[test]
fn a_region_may_be_smaller_than_its_simulated_memory() {
    let memory = crate::SimMemory::new(1 << 20, Domain::DurableCache);
    let open = |len| Region::open(&Source::Simulated(memory.clone()), &RegionOptions { len, ..options() }).unwrap();
    open(1 << 20).store_word((1 << 20) - 8, 7);
    assert_eq!(open(4096).len(), 4096);
    assert_eq!(open(1 << 20).read_word((1 << 20) - 8), 7);
}

#[test]
fn where_memory_lies_is_told() {
    use crate::numa::Placement;
    let open = |placement| Region::open(&Source::Anonymous, &RegionOptions { placement, ..options() }).unwrap();
    assert_eq!(open(Placement::Anywhere).placed(), &Placed::Anywhere);
    let (first, none) = (open(Placement::Node(0)), open(Placement::Node(4000)));
    assert!(matches!(none.placed(), Placed::Refused(_)));
    if numa::nodes() == 1 {
        assert_eq!(first.placed(), &Placed::OneNode);
    }
}

#[test]
fn threads_that_store_to_parts_of_a_word_do_not_disturb_each_other() {
    let region = Region::open(&Source::Anonymous, &options()).unwrap();
    std::thread::scope(|scope| {
        for byte in 0..8_u64 {
            let region = &region;
            scope.spawn(move || (0..2000_u64).for_each(|value| region.store(byte, &[&[value as u8]])));
        }
    });
    assert_eq!(region.read_word(0), u64::from_ne_bytes([(1999 % 256) as u8; 8]));
}
