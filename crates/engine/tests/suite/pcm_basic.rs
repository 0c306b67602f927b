//! The presets `pcm-basic` and `no-pcm`, from outside: what they refuse, that the log of
//! `pcm-basic` stays in memory, and that power cuts at any operation of disk and memories lose
//! nothing.

use std::sync::Arc;

use duramen::pmem::{Domain, Power, SimMemory, Source, Survive, Survivors};
use duramen::{Archive, Db, Error, LogDevice, NvmOptions, Options, PcmBasicOptions, Scheme, TierOptions};
use duramen_io::{CrashChoice, Disk, SimDisk};
use duramen_test_support::Stride;
use duramen_types::PAGE_SIZE;

const MIB: u64 = 1 << 20;
const DOMAINS: [Domain; 2] = [Domain::DurableCache, Domain::VolatileCache];

struct DiskPower(SimDisk);

impl Power for DiskPower {
    fn is_on(&self) -> bool {
        self.0.crashed_in().is_none()
    }

    fn cut(&self) {
        self.0.crash();
    }
}

/// A disk, memory for pages, and memory for the log.
struct World {
    disk: SimDisk,
    pages: SimMemory,
    log: SimMemory,
}

impl World {
    fn new(seed: u64, domain: Domain) -> Self {
        let disk = SimDisk::new(seed);
        let memory = |bytes| SimMemory::with_power(bytes, domain, Some(Arc::new(DiskPower(disk.clone())) as _));
        Self { pages: memory(MIB), log: memory(MIB + 4096), disk }
    }

    fn options(&self) -> Options {
        let pages = Source::Simulated(self.pages.clone());
        let log_source = Some(Source::Simulated(self.log.clone()));
        let pcm = PcmBasicOptions { log_source, ..PcmBasicOptions::new(pages, 2 * MIB, self.pages.domain()) };
        let pool_bytes = Options::MIN_POOL_PAGES * PAGE_SIZE;
        Options { pool_bytes, scheme: Scheme::PcmBasic(pcm), ..Options::default() }
    }

    fn open(&self) -> duramen::Result<Db> {
        Db::open_on(Arc::new(self.disk.clone()) as Arc<dyn Disk>, self.options())
    }

    fn crash_image(&self, choice: &CrashChoice) -> Self {
        let disk = self.disk.crash_image(choice);
        let survivors = |add: u64| match choice {
            CrashChoice::Nothing => Survivors::Nothing,
            CrashChoice::Everything => Survivors::Everything,
            CrashChoice::Subset(bits) => Survivors::Nth(*bits),
            CrashChoice::Random(seed) => Survivors::Random(seed + add),
        };
        let power = || Some(Arc::new(DiskPower(disk.clone())) as Arc<dyn Power>);
        let pages = self.pages.crash_image(survivors(1), power());
        let log = self.log.crash_image(survivors(2), power());
        Self { disk, pages, log }
    }
}

/// Commits this round in many transactions; returns how many rows have it for sure.
fn write(db: &Db, round: u32, rows: u32) -> duramen::Result<()> {
    let table = db.table("t")?;
    for first in (0..rows).step_by(50) {
        db.run(|txn| (first..first + 50).try_for_each(|row| txn.put(&table, &row.to_be_bytes(), &[round as u8; 300])))?;
    }
    Ok(())
}

fn rounds(db: &Db) -> Vec<u8> {
    let Ok(table) = db.open_table("t") else { return Vec::new() };
    let mut txn = db.begin();
    let found = txn.scan(&table, ..).map(|row| row.unwrap().1[0]).collect();
    txn.commit().unwrap();
    assert!(db.check().unwrap().problems.is_empty());
    found
}

/// Ten times as much log as the ring holds, none of which is written to files.
#[test]
fn the_log_stays_in_memory() {
    for domain in DOMAINS {
        let world = World::new(1, domain);
        let db = world.open().unwrap();
        for round in 1..7 {
            write(&db, round, 6_000).unwrap();
        }
        let metrics = db.metrics();
        assert!(metrics.log.bytes > 8 * MIB, "{:?}", metrics.log);
        assert_eq!(metrics.log.flushes, 0, "{:?}", metrics.log);
        assert!(metrics.checkpoints > 8, "a full log means a checkpoint: {}", metrics.checkpoints);
        let tier = metrics.page_tier.unwrap();
        // Rounds over more pages than pool and tier hold: what is read again has left both.
        assert!(tier.misses > 0 && tier.written_back > 0, "{tier:?}");
        assert!(tier.bytes_written > tier.written * PAGE_SIZE as u64, "{tier:?}");
        drop(db);
        let db = world.crash_image(&CrashChoice::Nothing).open().unwrap();
        assert_eq!(rounds(&db), vec![6; 6_000]);
    }
}

/// What is larger than the log is refused, and the database goes on.
#[test]
fn a_transaction_larger_than_the_log_is_refused() {
    let world = World::new(2, Domain::DurableCache);
    let db = world.open().unwrap();
    write(&db, 1, 500).unwrap();
    let table = db.table("t").unwrap();
    let mut txn = db.begin();
    let full = (0..5_000_u32).find_map(|row| txn.put(&table, &row.to_be_bytes(), &[9; 300]).err());
    assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
    txn.abort().unwrap();
    write(&db, 2, 500).unwrap();
    assert_eq!(rounds(&db), vec![2; 500]);
}

/// A preset is no scheme of its own: closed in order and drained, the database opens without it.
#[test]
fn the_preset_can_be_given_up() {
    let world = World::new(3, Domain::VolatileCache);
    let db = world.open().unwrap();
    write(&db, 1, 1_000).unwrap();
    db.drain_page_tier().unwrap();
    db.close().unwrap();
    let plain = Options { scheme: Scheme::NoPcm, ..Options::default() };
    let db = Db::open_on(Arc::new(world.disk.clone()), plain).unwrap();
    assert_eq!(rounds(&db), vec![1; 1_000]);
    db.close().unwrap();
    let db = world.open().unwrap();
    write(&db, 2, 1_000).unwrap();
    assert_eq!(rounds(&db), vec![2; 1_000]);
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing() {
    const ROWS: u32 = 600;
    for domain in DOMAINS {
        let run = |world: &World, acknowledged: &mut u32| -> duramen::Result<()> {
            let db = world.open()?;
            for round in 1..9 {
                write(&db, round, ROWS)?;
                if world.disk.crashed_in().is_some() {
                    return Ok(());
                }
                *acknowledged = round;
            }
            Ok(())
        };
        let whole = World::new(4, domain);
        run(&whole, &mut 0).unwrap();
        let (of_disk, of_memory) = (whole.disk.operations(), whole.log.operations() + whole.pages.operations());
        let mut images = 0;
        for point in Stride::sampled("power cuts of pcm-basic", 1, 3).until(18) {
            let world = World::new(4, domain);
            match point % 3 {
                0 => world.disk.crash_at(of_disk * (point + 1) / 19),
                1 => world.pages.crash_at(whole.pages.operations() * (point + 1) / 19),
                _ => world.log.crash_at(whole.log.operations() * (point + 1) / 19),
            }
            let mut acknowledged = 0;
            let _ = run(&world, &mut acknowledged);
            for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(point)] {
                let image = world.crash_image(&choice);
                let db = image.open().unwrap_or_else(|error| panic!("{domain}, {point}, {choice:?}: {error}"));
                let found = rounds(&db);
                let context = format!("{domain}, {point}, {choice:?}: round {acknowledged}");
                assert!(acknowledged == 0 || found.len() == ROWS as usize, "{context}: {} rows", found.len());
                let may_be = acknowledged as u8..=acknowledged as u8 + 1;
                assert!(acknowledged == 0 || found.iter().all(|round| may_be.contains(round)), "{context}");
                write(&db, 20, ROWS).unwrap();
                drop(db);
                let db = image.crash_image(&CrashChoice::Nothing).open().unwrap();
                assert_eq!(rounds(&db), vec![20; ROWS as usize], "{context}");
                images += 1;
            }
        }
        assert!(images >= 18 && of_memory > of_disk, "{images} images, {of_disk} and {of_memory} operations");
    }
}

fn refused(options: Options) -> (&'static str, String) {
    let disk = SimDisk::new(5);
    match Db::open_on(Arc::new(disk.clone()), options) {
        Err(Error::InvalidOption { option, reason }) => {
            assert!(disk.list("").unwrap().is_empty(), "nothing was made");
            (option, reason)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_preset_decides_cannot_be_asked_for() {
    let world = World::new(6, Domain::DurableCache);
    let options = || world.options();
    let pcm = || match options().scheme {
        Scheme::PcmBasic(pcm) => pcm,
        _ => unreachable!("it is that preset"),
    };
    let with = |pcm: PcmBasicOptions| Options { scheme: Scheme::PcmBasic(pcm), ..options() };
    let ring = || LogDevice::Nvm(NvmOptions::new(Source::Simulated(world.log.clone()), Domain::DurableCache));
    let archive = Archive::at(tempfile::tempdir().unwrap().path()).unwrap();
    for (option, options) in [
        ("logs", Options { logs: 2, ..options() }),
        ("log_device", Options { log_device: ring(), ..options() }),
        ("log", Options { log_buffer_bytes: 1 << 20, ..options() }),
        ("log", Options { log_segment_bytes: 1 << 20, ..options() }),
        ("page_tier", Options { page_tier: Some(TierOptions::at_home(MIB)), ..options() }),
        ("archive", Options { archive: Some(archive), ..options() }),
        ("log_share", with(PcmBasicOptions { log_share: 0, ..pcm() })),
        ("log_share", with(PcmBasicOptions { log_share: 91, ..pcm() })),
        ("scheme", with(PcmBasicOptions { bytes: MIB, ..pcm() })),
        ("scheme", with(PcmBasicOptions { source: Source::Anonymous, log_source: None, ..pcm() })),
        ("scheme", with(PcmBasicOptions { log_source: None, ..pcm() })),
        ("log_device", Options { scheme: Scheme::NoPcm, log_device: ring(), ..Options::default() }),
        (
            "page_tier",
            Options { scheme: Scheme::NoPcm, page_tier: Some(TierOptions::at_home(MIB)), ..Options::default() },
        ),
        ("logs", Options { scheme: Scheme::NoPcm, logs: 2, ..Options::default() }),
    ] {
        let (found, reason) = refused(options);
        assert_eq!(found, option, "{reason}");
    }
    let db = world.open().unwrap();
    let error = db.backup_to(&SimDisk::new(7), |_| ()).unwrap_err();
    assert!(matches!(&error, Error::InvalidOption { option: "backup", .. }), "{error}");
}

/// In files, as a user without persistent memory tries it: regions that exist keep their sizes.
#[test]
fn regions_keep_their_sizes() {
    let (home, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = |bytes, log_share| {
        let source = Source::File(fast.path().join("pcm"));
        let pcm = PcmBasicOptions { survive: Survive::Process, ..PcmBasicOptions::new(source, bytes, DOMAINS[1]) };
        Options { scheme: Scheme::PcmBasic(PcmBasicOptions { log_share, ..pcm }), ..Options::default() }
    };
    let len = |name: &str| fast.path().join(name).metadata().unwrap().len();
    let db = Db::open(home.path(), options(8 * MIB, 30)).unwrap();
    assert!(db.log_shortfall().is_some());
    write(&db, 1, 3_000).unwrap();
    db.close().unwrap();
    assert_eq!((len("pcm-log"), len("pcm")), (2 * MIB + 4096, 6 * MIB - 4096));
    let db = Db::open(home.path(), options(4 * MIB, 10)).unwrap();
    assert_eq!(rounds(&db), vec![1; 3_000]);
    db.close().unwrap();
    let db = Db::open(home.path(), options(16 * MIB, 30)).unwrap();
    assert_eq!(rounds(&db), vec![1; 3_000]);
    drop(db);
    assert_eq!((len("pcm-log"), len("pcm")), (2 * MIB + 4096, 12 * MIB - 4096));
}
