//! A small persistent log, and what happens to it when it forgets something: the crash model finds
//! out.

use duramen_pmem::{Domain, Region, RegionOptions, SimMemory, Source};

/// What a log may leave out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Forgets {
    Nothing,
    /// To flush the record.
    Flush,
    /// To fence between the record and the tail.
    Fence,
    /// To fence behind the tail.
    LastFence,
}

/// Word 0 is the tail; records of two words each follow from the second line on.
struct Log<'a> {
    region: &'a Region,
    streams: bool,
    forgets: Forgets,
}

const FIRST: u64 = 64;
const RECORD: u64 = 16;
/// The second word of record `n` is its first, mixed with this.
const MARK: u64 = 0x5555_AAAA_5555_AAAA;

impl Log<'_> {
    fn append(&self, value: u64) {
        let (region, tail) = (self.region, self.region.read_word(0));
        let at = FIRST + tail * RECORD;
        let parts: [&[u8]; 2] = [&value.to_ne_bytes(), &(value ^ MARK).to_ne_bytes()];
        let volatile = region.domain() == Domain::VolatileCache;
        if self.streams {
            region.stream(at, &parts);
        } else {
            region.store(at, &parts);
            if volatile && self.forgets != Forgets::Flush {
                region.flush(at, RECORD as usize);
            }
        }
        if self.forgets != Forgets::Fence {
            region.fence();
        }
        region.store_word(0, tail + 1);
        if volatile {
            region.flush(0, 8);
        }
        if self.forgets != Forgets::LastFence {
            region.fence();
        }
    }
}

/// What an image holds, if it is a log.
fn recovered(memory: SimMemory, domain: Domain) -> Option<Vec<u64>> {
    let region = Region::open(&Source::Simulated(memory), &options(domain)).unwrap();
    (0..region.read_word(0))
        .map(|record| {
            let at = FIRST + record * RECORD;
            let (value, mark) = (region.read_word(at), region.read_word(at + 8));
            (mark == value ^ MARK).then_some(value)
        })
        .collect()
}

fn options(domain: Domain) -> RegionOptions {
    RegionOptions { domain, ..RegionOptions::new(4096) }
}

/// Crashes at every operation of a run that appends `RECORDS`, and looks at every image; returns
/// what was wrong first.
fn hunt(domain: Domain, streams: bool, forgets: Forgets) -> Option<String> {
    const RECORDS: u64 = 4;
    let mut crash_at = 0;
    loop {
        let memory = SimMemory::new(4096, domain);
        memory.crash_at(crash_at);
        let region = Region::open(&Source::Simulated(memory.clone()), &options(domain)).unwrap();
        let log = Log { region: &region, streams, forgets };
        let mut acknowledged = 0;
        for value in 1..=RECORDS {
            log.append(value);
            if memory.is_off() {
                break;
            }
            acknowledged = value;
        }
        let images = memory.images(4096, crash_at);
        assert!(images.are_all(), "so few words are unsure that all images can be looked at");
        for (survivors, image) in images {
            let found = recovered(image, domain);
            let is_right = found.as_ref().is_some_and(|found| {
                found.len() as u64 >= acknowledged && found.iter().copied().eq(1..=found.len() as u64)
            });
            if !is_right {
                return Some(format!("operation {crash_at}, {survivors:?}: {found:?}, {acknowledged} acknowledged"));
            }
        }
        if acknowledged == RECORDS {
            return None;
        }
        crash_at += 1;
    }
}

const PLATFORMS: [(Domain, bool); 3] =
    [(Domain::DurableCache, false), (Domain::VolatileCache, false), (Domain::VolatileCache, true)];

#[test]
fn a_careful_log_loses_nothing() {
    for (domain, streams) in PLATFORMS {
        assert_eq!(hunt(domain, streams, Forgets::Nothing), None, "{domain}, streams: {streams}");
    }
}

#[test]
fn whatever_is_forgotten_is_noticed() {
    for (domain, streams) in PLATFORMS {
        let needs_flushes = domain == Domain::VolatileCache && !streams;
        for forgets in [Forgets::Flush, Forgets::Fence, Forgets::LastFence] {
            if forgets == Forgets::Flush && !needs_flushes {
                continue;
            }
            let noticed = hunt(domain, streams, forgets);
            assert!(noticed.is_some(), "{domain}, streams: {streams}: {forgets:?} was not noticed");
        }
    }
}
