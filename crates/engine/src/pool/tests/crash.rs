//! Power cuts at any operation. Afterwards the disk has everything that the log may have recycled
//! and nothing that the log may have lost, and no page is torn.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use duramen_io::{AlignedBuf, CrashChoice, Fault};
use duramen_types::{BLOCK_SIZE, crc32c};

use super::*;

const PAGES: u64 = 150;

/// Works on a pool until the power fails at a random operation, and then checks the contents of the
/// disk.
fn crash(seed: u64) -> Result<(), String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let fixture = Fixture::new(64);
    fixture.create_pages(PAGES);
    fixture.disk.crash_at(fixture.disk.operations() + rng.random_range(0..60));
    // The last checkpoint: the bounds of the pages that were dirty, and the bound of all others.
    let mut begin = Gsn::new(TestLog::FIRST);
    let mut dirty = HashMap::new();
    // The records that have the whole page.
    let mut anew: HashMap<PageId, Vec<Gsn>> = HashMap::new();
    loop {
        let outcome = match rng.random_range(0..100) {
            0 => {
                begin = fixture.log.end();
                dirty = fixture.pool.dirty_pages().into_iter().collect();
                Ok(())
            }
            1 => fixture.pool.flush_before(Gsn::new(rng.random_range(TestLog::FIRST..=fixture.log.end().get()))),
            2 => fixture.pool.clean(&fixture.pool.oldest_dirty(20)).map(drop),
            3..20 => {
                let id = PageId::new(rng.random_range(1..=PAGES));
                let counter = fixture.log.history.lock()[&id].len() as u64;
                fixture.format(id, counter).map(|gsn| anew.entry(id).or_default().push(gsn))
            }
            _ => fixture.increment(PageId::new(rng.random_range(1..=PAGES))),
        };
        if outcome.is_err() {
            break;
        }
    }
    let Fixture { disk, log, pool, .. } = fixture;
    drop(pool);
    let disk = disk.crash_image(&CrashChoice::Random(rng.random()));
    let config = PoolConfig { frames: 256, ..PoolConfig::default() };
    let fixture = Fixture::open(disk, config, log).map_err(|error| error.to_string())?;
    let history = fixture.log.history.lock();
    let hardened = fixture.log.hardened.load(Ordering::Acquire);
    for raw in 1..=PAGES {
        let id = PageId::new(raw);
        let bound = dirty.get(&id).copied().unwrap_or(begin).min(begin);
        let needed = history[&id].iter().filter(|gsn| **gsn < bound.get()).count();
        let is_whole = |gsn: &Gsn| *gsn >= bound && gsn.get() < hardened;
        let is_replaced = needed == 0 || anew.get(&id).is_some_and(|records| records.iter().any(is_whole));
        let page = match fixture.pool.shared(id) {
            Ok(page) => page,
            // Redo replaces the page by the image in the record that formatted it.
            Err(PoolError::Corrupt { .. }) if is_replaced => continue,
            Err(PoolError::Disk(error)) if error.kind == std::io::ErrorKind::UnexpectedEof && needed == 0 => continue,
            Err(error) => return Err(error.to_string()),
        };
        let have = 1 + counter(&*page, id)? as usize;
        if have < needed {
            return Err(format!("{id}: {have} of {needed} changes below {bound:?} are on disk"));
        }
        if history[&id][have - 1] != page::gsn(&page).get() || page::gsn(&page).get() >= hardened {
            return Err(format!("{id}: carries {:?}; the log is hard up to {hardened}", page::gsn(&page)));
        }
    }
    Ok(())
}

#[test]
fn power_cuts_tear_no_page_and_lose_nothing_below_the_bounds() {
    for seed in 0..150 {
        crash(seed).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
    }
}

#[test]
fn garbage_in_the_double_write_area_is_ignored() {
    let fixture = Fixture::new(64);
    fixture.create_and_write_twice(10);
    let mut rng = StdRng::seed_from_u64(1);
    let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
    let area = FoundArea::read(&*doublewrite).unwrap().unwrap();
    let (header, end) = (48 + 10 * 24, 48 + 10 * 24 + 64 * u64::from(area.lines()));
    for round in 0..600 {
        let at = rng.random_range(if round % 2 == 0 { 0..header } else { header..end });
        let bit = rng.random_range(0..8);
        fixture.disk.flip_bit("doublewrite", at, bit);
        assert!(FoundArea::read(&*doublewrite).unwrap().is_none(), "byte {at}, bit {bit}");
        fixture.disk.flip_bit("doublewrite", at, bit);
    }
    assert_eq!(FoundArea::read(&*doublewrite).unwrap().unwrap().len(), 10);
    // Whatever the numbers in the header are.
    let mut garbage = AlignedBuf::zeroed(3 * BLOCK_SIZE);
    for round in 0..600 {
        doublewrite.read_at(&mut garbage[..BLOCK_SIZE], 0).unwrap();
        rng.fill(&mut garbage[48..]);
        garbage[8] = rng.random_range(0..5);
        garbage[16] = rng.random_range(0..=200);
        garbage[19] = if round % 3 == 0 { rng.random() } else { 0 };
        let file = SimDisk::new(1).open("area", OpenMode::CreateNew).unwrap();
        file.write_durable(&[&garbage], 0).unwrap();
        assert!(FoundArea::read(&*file).unwrap().is_none());
    }
}

#[test]
fn pages_torn_in_place_are_restored_once() {
    let fixture = Fixture::new(64);
    fixture.create_and_write_twice(10);
    for raw in [1, 4, 10] {
        // In the line of the counter, which every change writes.
        fixture.disk.flip_bit("data", raw * PAGE_SIZE as u64 + 40, 1);
    }
    let data = fixture.disk.open("data", OpenMode::Existing).unwrap();
    let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
    assert_eq!(put_back(&*data, &*doublewrite).unwrap(), 3);
    assert_eq!(put_back(&*data, &*doublewrite).unwrap(), 0);
    assert_eq!(fixture.reopen(64).counter(PageId::new(10)).unwrap(), 1);
}

/// The area does not have the lines that a write in place leaves as they are.
#[test]
fn damage_outside_of_the_changed_lines_is_not_hidden() {
    let fixture = Fixture::new(64);
    fixture.create_and_write_twice(10);
    let line = (1..PAGE_SIZE / LINE_SIZE).find(|line| !writes_line(1, *line)).unwrap();
    fixture.disk.flip_bit("data", (4 * PAGE_SIZE + line * LINE_SIZE + 7) as u64, 1);
    let data = fixture.disk.open("data", OpenMode::Existing).unwrap();
    let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
    assert_eq!(put_back(&*data, &*doublewrite).unwrap(), 0);
    let fixture = fixture.reopen(64);
    assert!(matches!(fixture.pool.shared(PageId::new(4)), Err(PoolError::Corrupt { .. })));
    assert_eq!(fixture.counter(PageId::new(5)).unwrap(), 1);
}

/// Changes the line that begins at `at`, and the header's.
fn change(fixture: &Fixture, id: u64, at: usize) {
    let mut guard = fixture.pool.exclusive(PageId::new(id)).unwrap();
    guard.prepare();
    let gsn = fixture.log.insert(PageId::new(id));
    guard.page_mut().put(at, &[7; 8]);
    page::set_gsn(&mut guard.page_mut(), gsn);
}

#[test]
fn the_area_has_the_changed_lines() {
    let fixture = Fixture::new(64);
    let lines = |fixture: &Fixture| {
        fixture.pool.flush_all().unwrap();
        let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
        FoundArea::read(&*doublewrite).unwrap().map_or(0, |area| area.lines())
    };
    fixture.create_pages(3);
    assert_eq!(lines(&fixture), 0, "new pages");
    change(&fixture, 1, 640);
    change(&fixture, 1, 1000);
    change(&fixture, 2, 8184);
    assert_eq!(lines(&fixture), 3 + 2);
    change(&fixture, 1, 640);
    assert_eq!(lines(&fixture), 2, "only what changed since");

    // A copy that cannot be written because the log fails counts later.
    change(&fixture, 1, 4096);
    fixture.log.fails.store(true, Ordering::Relaxed);
    fixture.pool.flush_all().unwrap_err();
    change(&fixture, 1, 2048);
    fixture.log.fails.store(false, Ordering::Relaxed);
    assert_eq!(lines(&fixture), 3);
}

/// Areas of formats 1 and 2 have whole pages.
#[test]
fn areas_of_older_formats_are_used() {
    for (version, ids) in [(1_u32, 24), (2, 48)] {
        let fixture = Fixture::new(64);
        fixture.create_and_write_twice(10);
        let data = fixture.disk.open("data", OpenMode::Existing).unwrap();
        let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
        let mut area = AlignedBuf::zeroed(BLOCK_SIZE + 2 * PAGE_SIZE);
        area[..8].copy_from_slice(b"DURADBLW");
        area[8..12].copy_from_slice(&version.to_le_bytes());
        area[16..20].copy_from_slice(&2_u32.to_le_bytes());
        area[20..24].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
        for (index, id) in [3_u64, 7].into_iter().enumerate() {
            area[ids + 8 * index..][..8].copy_from_slice(&id.to_le_bytes());
            data.read_at(&mut area[BLOCK_SIZE + index * PAGE_SIZE..][..PAGE_SIZE], id * PAGE_SIZE as u64).unwrap();
        }
        let crc = crc32c(&area[16..]);
        area[12..16].copy_from_slice(&crc.to_le_bytes());
        doublewrite.write_durable(&[&area], 0).unwrap();
        fixture.disk.flip_bit("data", 3 * PAGE_SIZE as u64 + 777, 1);
        fixture.disk.flip_bit("data", 7 * PAGE_SIZE as u64 + 7777, 1);
        assert_eq!(put_back(&*data, &*doublewrite).unwrap(), 2, "version {version}");
        data.set_len(5 * PAGE_SIZE as u64).unwrap();
        assert_eq!(put_back(&*data, &*doublewrite).unwrap(), 1, "a page beyond the end is missing, too");
        assert_eq!(fixture.reopen(64).counter(PageId::new(7)).unwrap(), 1);
    }
}

/// The first write of a page that was formatted anew goes around the area, the second one does not.
#[test]
fn only_pages_formatted_anew_need_no_copy() {
    let fixture = Fixture::new(64);
    let copies = |fixture: &Fixture| {
        let doublewrite = fixture.disk.open("doublewrite", OpenMode::Existing).unwrap();
        FoundArea::read(&*doublewrite).unwrap().map_or(0, |area| area.len())
    };
    fixture.create_pages(10);
    fixture.pool.flush_all().unwrap();
    assert_eq!(copies(&fixture), 0);
    // Together with others that are new.
    (1..=3).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
    (11..=15).for_each(|raw| fixture.create(PageId::new(raw)).unwrap());
    fixture.pool.flush_all().unwrap();
    assert_eq!(copies(&fixture), 3);
    // To the next opening no page of the file is new.
    let fixture = fixture.reopen(64);
    (4..=15).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
    fixture.pool.flush_all().unwrap();
    assert_eq!(copies(&fixture), 12);
    // Whether it was in a frame, changed or not, and whether it is changed again before it is
    // written; but not if it was written since.
    fixture.increment(PageId::new(5)).unwrap();
    for (raw, counter) in [(1, 2), (4, 2), (5, 3)] {
        fixture.format(PageId::new(raw), counter).unwrap();
    }
    fixture.increment(PageId::new(4)).unwrap();
    fixture.increment(PageId::new(6)).unwrap();
    // What a copy had that could not be written, the next one has.
    fixture.log.fails.store(true, Ordering::Relaxed);
    fixture.pool.flush_all().unwrap_err();
    fixture.log.fails.store(false, Ordering::Relaxed);
    fixture.pool.flush_all().unwrap();
    assert_eq!(copies(&fixture), 1);
    [1, 4].iter().for_each(|raw| fixture.increment(PageId::new(*raw)).unwrap());
    fixture.pool.flush_all().unwrap();
    assert_eq!(copies(&fixture), 2);
    let fixture = fixture.reopen(64);
    assert_eq!([1, 4, 5, 6].map(|raw| fixture.counter(PageId::new(raw)).unwrap()), [3, 4, 3, 2]);
}

/// A double-write area whose write failed can be read by the process that opens the disk next, but
/// it is not on the medium. Pages that are written in place from that area must not be torn without
/// a good copy.
#[test]
fn an_area_that_never_reached_the_medium_is_made_durable_before_it_is_used() {
    // A disk on which the area can be read that should have held a second version of ten pages, and
    // the log. The pages have decayed in place.
    let failed = || {
        let fixture = Fixture::new(64);
        fixture.create_pages(11);
        fixture.pool.flush_all().unwrap();
        fixture.increment(PageId::new(11)).unwrap();
        // The area on the medium holds another page.
        fixture.pool.flush_all().unwrap();
        (1..=10).for_each(|raw| fixture.increment(PageId::new(raw)).unwrap());
        fixture.disk.fail_at(fixture.disk.operations(), Fault::FailedSync, false);
        fixture.pool.flush_all().unwrap_err();
        (1..=10).for_each(|raw| fixture.disk.flip_bit("data", raw * PAGE_SIZE as u64 + 40, 1));
        (fixture.disk, fixture.log)
    };
    let bytes = |disk: &SimDisk| disk.durable_bytes("data").unwrap();
    for operation in 0.. {
        let (disk, log) = failed();
        let before = bytes(&disk);
        let data = disk.open("data", OpenMode::Existing).unwrap();
        let doublewrite = disk.open("doublewrite", OpenMode::Existing).unwrap();
        disk.crash_at(disk.operations() + operation);
        if put_back(&*data, &*doublewrite).is_ok() {
            assert!(operation > 10, "each page is written in place");
            return;
        }
        for seed in 0..20 {
            let image = disk.crash_image(&CrashChoice::Random(seed));
            let fixture = Fixture::open(image, PoolConfig { frames: 64, ..PoolConfig::default() }, Arc::clone(&log));
            let pages = fixture.unwrap();
            let after = bytes(&pages.disk);
            for raw in 1..=10 {
                let counter = pages.counter(PageId::new(raw));
                let place = raw as usize * PAGE_SIZE..(raw as usize + 1) * PAGE_SIZE;
                let is_untouched = after[place.clone()] == before[place];
                assert!(
                    matches!(counter, Ok(1)) || is_untouched,
                    "operation {operation}, seed {seed}, page {raw}: {counter:?}"
                );
            }
        }
    }
}

/// The suite detects each defect. Defects are global to the process, so these tests run alone, one
/// after another:
///
/// ```sh
/// RUSTFLAGS="--cfg duramen_planted" cargo test --profile instrumented --target-dir target/planted \
///     -p duramen --lib planted -- --test-threads=1
/// ```
#[cfg(duramen_planted)]
mod planted {
    use duramen_types::planted::{Bug, plant};

    use super::*;

    fn is_noticed(bug: Bug) {
        let _planted = plant(bug);
        assert!((0..300).any(|seed| crash(seed).is_err()), "{bug:?} goes unnoticed");
    }

    #[test]
    fn skipping_the_wal_rule_is_noticed() {
        is_noticed(Bug::SkipWalRule);
    }

    #[test]
    fn skipping_the_double_write_is_noticed() {
        is_noticed(Bug::SkipDoubleWrite);
    }

    #[test]
    fn taking_written_pages_for_new_is_noticed() {
        is_noticed(Bug::WrittenPageTakenForNew);
    }

    #[test]
    fn forgetting_the_changed_lines_is_noticed() {
        is_noticed(Bug::ChangedLinesForgotten);
    }

    #[test]
    fn skipping_the_data_sync_is_noticed() {
        is_noticed(Bug::SkipDataSync);
    }
}
