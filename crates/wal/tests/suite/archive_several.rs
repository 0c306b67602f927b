//! The archive of several logs: it contains nothing that recovery may cut off after a crash, and
//! with a backup it restores the logs.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use duramen_io::{CrashChoice, Disk, DiskCounters, DiskLock, Fault, File, OpenMode, Result as DiskResult, SimDisk};
use duramen_pmem::Domain;
use duramen_test_support::{Stride, is_long};
use duramen_types::{Gsn, LogId, Lsn};
use duramen_wal::{
    Archive, FIRST_LSN, InsertDesign, Known, Log, LogPart, LogPieces, LogReader, NewRecord, Pieces, Result, WalError,
    WalOptions, complete_up_to,
};

use crate::common::several::{History, change, check, work};
use crate::common::world::World;
use crate::common::*;

const COUNT: u16 = 3;
const OTHER: [u8; 16] = *b"restored databas";

fn archiving(archive: &SimDisk) -> WalOptions {
    WalOptions { archive: Some(Archive::on(arc(archive))), ..options(InsertDesign::Hybrid) }
}

fn until(what: &str, is_done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_done() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Inserts this number of records of 10 KB into a log. The last is a sync record, for which it
/// waits.
fn fill(logs: &Log, log: u16, records: u64) -> Result<Gsn> {
    for number in 1..=records {
        let bytes = logs.record_bytes(10_000);
        let reserve = || logs.reserve(bytes);
        match reserve() {
            Err(WalError::Full { .. }) => {
                logs.await_archive();
                reserve()?;
            }
            other => other?,
        }
        let (log, payload) = (LogId::new(log), payload(number, 10_000));
        let inserted = logs.insert(log, record(number, &payload));
        logs.unreserve(bytes);
        if number == records {
            logs.wait_hardened(inserted.gsn, Some(inserted.address()))?;
            return Ok(inserted.gsn);
        }
    }
    Ok(Gsn::ZERO)
}

/// Returns for each log the number behind the last segment in the archive; all segments from the
/// first are present.
fn archived(archive: &SimDisk) -> Vec<u64> {
    (0..COUNT)
        .map(|log| match LogReader::open(archive, LogId::new(log), Some((DATABASE, COUNT))) {
            Err(WalError::NoLog { .. }) => 0,
            reader => {
                let reader = reader.unwrap();
                assert_eq!((reader.segments().0, reader.ring()), (0, None));
                reader.segments().1 + 1
            }
        })
        .collect()
}

/// Hardens everything; returns the GSN of a sync record that is complete.
fn harden_all(logs: &Log) -> Gsn {
    logs.harden_at_once(Gsn::new(logs.latest().get() - 1), None).unwrap();
    Gsn::new(logs.hardened_below().get() - 1)
}

/// A backup of the logs, and what is known about it.
struct Backup {
    disk: SimDisk,
    ends: Vec<Lsn>,
    complete: Gsn,
}

impl Backup {
    fn of(logs: &Log) -> Self {
        let disk = SimDisk::new(77);
        let complete = harden_all(logs);
        let ends = logs.ends_before(Gsn::new(complete.get() + 1)).unwrap();
        logs.hold().copy_to(&disk, &[FIRST_LSN; COUNT as usize], &ends, |_| {}).unwrap();
        Self { disk, ends, complete }
    }

    fn chains(&self, archive: Option<&SimDisk>, log: Option<&SimDisk>) -> Vec<LogPieces> {
        self.try_chains(archive, log).unwrap()
    }

    fn try_chains(&self, archive: Option<&SimDisk>, log: Option<&SimDisk>) -> Result<Vec<LogPieces>> {
        let pieces = Pieces {
            backup: &self.disk,
            archive: archive.map(|disk| disk as &dyn Disk),
            log: log.map(|disk| disk as &dyn Disk),
        };
        let part = |log: u16| LogPart {
            log: LogId::new(log),
            count: COUNT,
            start: FIRST_LSN,
            end: self.ends[usize::from(log)],
        };
        (0..COUNT).map(|log| LogPieces::open(&pieces, DATABASE, part(log))).collect()
    }

    /// Restores the backup into other logs; returns them and the GSN up to which they reach.
    fn restore(&self, archive: Option<&SimDisk>, log: Option<&SimDisk>, known: Gsn) -> (Log, Gsn) {
        let chains = self.chains(archive, log);
        let complete = complete_up_to(&chains, known.max(self.complete), |_| {}).unwrap();
        let target = SimDisk::new(5);
        for chain in &chains {
            let cut = chain.find_cut(|record| record.gsn > complete).unwrap();
            chain.write_to(&target, OTHER, cut.at, |_| {}).unwrap();
        }
        let from = [FIRST_LSN; COUNT as usize];
        let known = Known { from: &from, earlier: (Gsn::ZERO, &[]), complete, is_cutting: true };
        let target = arc(&target.crash_image(&CrashChoice::Nothing));
        let found =
            Log::find(&target, &WalOptions { logs: COUNT, ..options(InsertDesign::Hybrid) }, OTHER, &known, None)
                .unwrap();
        (found.open().unwrap(), complete)
    }
}

#[test]
fn every_log_is_archived_and_goes_on_after_reopening() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let options = archiving(&archive);
    let logs = Log::create(&arc(&disk), &WalOptions { logs: COUNT, ..options.clone() }, DATABASE).unwrap();
    assert!(matches!(
        Log::create(&arc(&SimDisk::new(3)), &WalOptions { logs: COUNT, ..options.clone() }, DATABASE),
        Err(WalError::Disk(_))
    ));
    let mut needed = Gsn::ZERO;
    for round in 0..30 {
        needed = fill(&logs, round % COUNT, 5).unwrap();
        logs.recycle_below(needed).unwrap();
    }
    logs.await_archive();
    until("recycling", || logs.stats().segments_live <= 2 * u64::from(COUNT));
    let (stats, first) = (logs.stats(), archived(&archive.crash_image(&CrashChoice::Nothing)));
    assert!(first.iter().all(|segments| *segments >= 7), "{first:?}");
    assert_eq!((stats.segments_archived, stats.archive_failures), (first.iter().sum(), 0));
    assert!(stats.end_gsn > needed && stats.hardened_gsn > needed && stats.hardened_gsn <= stats.end_gsn);
    let from: Vec<Lsn> = logs.extents().iter().map(|extent| extent.start).collect();
    logs.close().unwrap();
    drop(logs);

    let known = Known { from: &from, earlier: (Gsn::ZERO, &[]), complete: needed, ..Known::default() };
    let reopen = |archive: &SimDisk| {
        Log::find(&arc(&disk), &WalOptions { logs: COUNT, ..archiving(archive) }, DATABASE, &known, None)
            .and_then(|found| found.open())
    };
    // Without a segment of one log, and with a segment of another database.
    let gap = archive.image();
    (4..first[1]).for_each(|number| gap.remove(&format!("log1/{number:016x}.log")).unwrap());
    let refused = reopen(&gap).unwrap_err();
    assert!(matches!(&refused, WalError::WrongArchive { reason, .. } if reason.contains("recycled")), "{refused}");
    let mixed = SimDisk::new(6);
    drop(
        Log::create(&arc(&SimDisk::new(7)), &WalOptions { logs: COUNT, ..archiving(&mixed) }, *b"another database")
            .unwrap(),
    );
    let stranger =
        Log::create(&arc(&SimDisk::new(7)), &WalOptions { logs: COUNT, ..archiving(&mixed) }, *b"another database")
            .unwrap();
    fill(&stranger, 1, 20).unwrap();
    stranger.await_archive();
    drop(stranger);
    let refused = reopen(&mixed).unwrap_err();
    assert!(matches!(&refused, WalError::WrongArchive { reason, .. } if reason.contains("another database")));

    let logs = reopen(&archive).unwrap();
    (0..COUNT).for_each(|log| _ = fill(&logs, log, 20).unwrap());
    logs.await_archive();
    let second = archived(&archive);
    assert!(first.iter().zip(&second).all(|(first, second)| second >= &(first + 2)), "{first:?} {second:?}");
}

/// A disk that does not write the files of the first log while the gate is closed.
#[derive(Clone, Debug)]
struct Gated {
    inner: SimDisk,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

#[derive(Debug)]
struct GatedFile(Arc<dyn File>, Arc<(Mutex<bool>, Condvar)>);

impl Gated {
    fn new(inner: &SimDisk) -> Self {
        Self { inner: inner.clone(), gate: Arc::new((Mutex::new(false), Condvar::new())) }
    }

    fn close(&self, is_closed: bool) {
        *self.gate.0.lock().unwrap() = is_closed;
        self.gate.1.notify_all();
    }
}

/// Opens the gate at the end, so that no thread is left waiting whatever happens.
struct OpenAtLast(Gated);

impl Drop for OpenAtLast {
    fn drop(&mut self) {
        self.0.close(false);
    }
}

impl GatedFile {
    fn pass(&self) -> &dyn File {
        drop(self.1.1.wait_while(self.1.0.lock().unwrap(), |is_closed| *is_closed).unwrap());
        &*self.0
    }
}

impl Disk for Gated {
    fn handle(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }
    fn open(&self, name: &str, mode: OpenMode) -> DiskResult<Arc<dyn File>> {
        let file = self.inner.open(name, mode)?;
        let is_gated = name.starts_with("log/");
        Ok(if is_gated { Arc::new(GatedFile(file, Arc::clone(&self.gate))) } else { file })
    }
    fn exists(&self, name: &str) -> DiskResult<bool> {
        self.inner.exists(name)
    }
    fn list(&self, directory: &str) -> DiskResult<Vec<String>> {
        self.inner.list(directory)
    }
    fn create_directory(&self, name: &str) -> DiskResult<()> {
        self.inner.create_directory(name)
    }
    fn remove(&self, name: &str) -> DiskResult<()> {
        self.inner.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> DiskResult<()> {
        self.inner.rename(from, to)
    }
    fn sync_directory(&self, directory: &str) -> DiskResult<()> {
        self.inner.sync_directory(directory)
    }
    fn lock(&self) -> DiskResult<DiskLock> {
        self.inner.lock()
    }
    fn counters(&self) -> DiskCounters {
        self.inner.counters()
    }
    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
    fn location(&self) -> String {
        self.inner.location()
    }
}

impl File for GatedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> DiskResult<()> {
        self.0.read_at(buf, offset)
    }
    fn read_batch(&self, reads: &mut [(u64, &mut [u8])]) -> DiskResult<()> {
        self.0.read_batch(reads)
    }
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> DiskResult<()> {
        self.pass().write_at(parts, offset)
    }
    fn write_durable(&self, parts: &[&[u8]], offset: u64) -> DiskResult<()> {
        self.pass().write_durable(parts, offset)
    }
    fn write_batch(&self, writes: &[(u64, &[u8])]) -> DiskResult<()> {
        self.pass().write_batch(writes)
    }
    fn sync(&self) -> DiskResult<()> {
        self.0.sync()
    }
    fn len(&self) -> DiskResult<u64> {
        self.0.len()
    }
    fn allocate(&self, len: u64) -> DiskResult<()> {
        self.0.allocate(len)
    }
    fn set_len(&self, len: u64) -> DiskResult<()> {
        self.0.set_len(len)
    }
    fn path(&self) -> String {
        self.0.path()
    }
}

/// One log is written, and it depends on another log that is not: nothing of the first one gets to
/// the archive.
#[test]
fn a_segment_is_not_archived_before_all_logs_are_complete() {
    for is_failing in [false, true] {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let gated = Gated::new(&disk);
        let options = archiving(&archive);
        let logs = Log::create(
            &(Arc::new(gated.clone()) as Arc<dyn Disk>),
            &WalOptions { logs: COUNT, ..options.clone() },
            DATABASE,
        )
        .unwrap();
        let first = fill(&logs, 0, 1).unwrap();
        let reserved = logs.record_bytes(10_000) * 20;
        logs.reserve(reserved).unwrap();
        gated.close(true);
        let _open = OpenAtLast(gated.clone());
        let lost = logs.insert(LogId::ZERO, record(1, &[1; 100]));
        let payload = payload(1, 10_000);
        // More than the buffer holds, so it is flushed.
        for _ in 0..20 {
            logs.insert(LogId::new(1), NewRecord { after: lost.gsn, ..record(2, &payload) });
        }
        logs.unreserve(reserved);
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(archived(&archive), [0, 0, 0]);
        let (image, archive_image) =
            (disk.crash_image(&CrashChoice::Everything), archive.crash_image(&CrashChoice::Everything));
        let from = [FIRST_LSN; COUNT as usize];
        let known = Known { from: &from, earlier: (Gsn::ZERO, &[]), complete: Gsn::ZERO, ..Known::default() };
        let found =
            Log::find(&arc(&image), &WalOptions { logs: COUNT, ..archiving(&archive_image) }, DATABASE, &known, None)
                .unwrap();
        let cut = found.cut().expect("what depends on the lost record is in the log");
        assert!(first <= cut && cut < lost.gsn, "{first}, {cut}, {lost:?}");
        found.open().unwrap().close().unwrap();

        if is_failing {
            // No thread waits for ever.
            disk.fail_at(disk.operations(), Fault::Eio, true);
            gated.close(false);
            logs.await_archive();
            logs.close().unwrap_err();
            assert_eq!(archived(&archive), [0, 0, 0]);
        } else {
            let open_later = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                gated.close(false);
            });
            logs.await_archive();
            assert_eq!(archived(&archive)[1], 3);
            assert!(logs.is_hardened(lost.gsn) && logs.archive_failure().is_none());
            open_later.join().unwrap();
            logs.close().unwrap();
        }
    }
}

/// While the archive cannot be written, the logs keep everything, up to their limit, and do not
/// grow by trying.
#[test]
fn an_archive_that_cannot_be_written_holds_recycling_back() {
    let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
    let logs = Log::create(&arc(&disk), &WalOptions { logs: COUNT, ..archiving(&archive) }, DATABASE).unwrap();
    let needed = fill(&logs, 1, 20).unwrap();
    logs.await_archive();
    archive.fail_at(archive.operations(), Fault::Eio, true);
    let mut needed = logs.recycle_below(needed).map(|()| needed).unwrap();
    let refused = (0..200).find_map(|_| match fill(&logs, 1, 1) {
        Ok(gsn) => {
            needed = gsn;
            logs.recycle_below(needed).unwrap();
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.expect("the log has a limit");
    assert!(matches!(&refused, WalError::Full { cause, .. } if cause.contains("archived")), "{refused}");
    until("a failure", || logs.archive_failure().is_some());
    let before = logs.stats().sync_records;
    std::thread::sleep(Duration::from_millis(700));
    assert!(logs.stats().sync_records <= before + 1, "one sync record is enough for a segment");
    assert!(logs.stats().archive_failures > 2 && logs.failure().is_none());
    archive.clear_faults();
    until("archiving", || logs.archive_failure().is_none());
    logs.await_archive();
    logs.recycle_below(fill(&logs, 1, 60).unwrap()).unwrap();
    assert!(archived(&archive)[1] >= 12);
    logs.close().unwrap();
}

/// Logs that have not moved since the backup do not delay the archive.
#[test]
fn quiet_logs_do_not_hold_the_archive_back() {
    for _ in 0..10 {
        let (disk, archive) = (SimDisk::new(1), SimDisk::new(2));
        let logs = Log::create(&arc(&disk), &WalOptions { logs: COUNT, ..archiving(&archive) }, DATABASE).unwrap();
        fill(&logs, 0, 3).unwrap();
        let backup = Backup::of(&logs);
        let before = logs.stats().sync_records;
        for number in 1..=100 {
            let last = fill(&logs, 2, 1).unwrap();
            logs.recycle_below(last).unwrap();
            if number % 10 == 0 {
                logs.await_archive();
            }
        }
        let last = fill(&logs, 2, 1).unwrap();
        if logs.stats().sync_records > before + 101 {
            // This thread has been held up, and the archive has inserted a sync record into the
            // first log, which is not quiet then.
            continue;
        }
        let chains = backup.chains(Some(&archive), None);
        let complete = complete_up_to(&chains, backup.complete, |_| {}).unwrap();
        assert!(complete.get() + (80 << 10) > last.get(), "{complete}, {last}");
        return;
    }
    panic!("this machine is too slow");
}

/// Changes a page through one log and then, much more, through another, and commits nothing.
fn burst(logs: &Log, history: &mut History, random: &mut Rng) -> Result<()> {
    let bytes = logs.record_bytes(5_008) * 30;
    logs.reserve(bytes)?;
    let (first, page) = (random.below(COUNT.into()) as u16, random.below(6) as usize);
    let mut payload = Vec::new();
    for number in 0..30 {
        let log = LogId::new(if number == 0 { first } else { (first + 1) % COUNT });
        let size = if number == 0 { 50 } else { 5_000 };
        let new = change(page, history.versions[page], history.page_gsns[page], size, &mut payload);
        let inserted = logs.insert(log, new);
        history.changes.push((inserted.gsn, page, history.versions[page]));
        history.page_gsns[page] = inserted.gsn;
        history.versions[page] += 1;
    }
    logs.unreserve(bytes);
    Ok(())
}

/// The power of logs and archive goes off at some point. The result is opened, and also restored
/// from the backup, and both are the same.
fn life(seed: u64, domain: Option<Domain>, refused: &mut u64) {
    let mut random = Rng::new(seed);
    let (world, archive) = (World::new(seed, domain, COUNT.into()), SimDisk::new(seed + 1));
    let base = |archive: &SimDisk| WalOptions { max_bytes: 4 << 20, ..archiving(archive) };
    let logs = Log::create(&arc(&world.disk), &WalOptions { logs: COUNT, ..world.options(&base(&archive)) }, DATABASE)
        .unwrap();
    let mut history = History::default();
    work(&logs, &mut history, &mut random, 100).unwrap();
    let backup = Backup::of(&logs);
    let (mut from, mut needed) = (vec![FIRST_LSN; COUNT.into()], Gsn::ZERO);
    if random.below(4) == 0 {
        archive.crash_at(archive.operations() + random.below(60));
    } else {
        let device = random.below(world.devices() as u64) as usize;
        world.crash_at(device, world.operations(device) + random.below(1500));
    }
    for _ in 0..60 {
        let heard = history.acknowledged;
        let outcome = match random.below(4) {
            0 => burst(&logs, &mut history, &mut random),
            _ => work(&logs, &mut history, &mut random, 30),
        };
        if world.is_off() || outcome.is_err() {
            history.acknowledged = heard;
            break;
        }
        if archive.crashed_in().is_some() {
            break;
        }
        if random.below(3) == 0 && history.acknowledged > needed {
            // Not the GSN of a commit: the sync record that made it durable may have a lower one.
            needed = Gsn::new(logs.hardened_below().get() - 1);
            from = logs.positions_before(needed);
            if logs.recycle_below(needed).is_err() {
                break;
            }
        }
        if random.below(4) == 0 {
            std::thread::sleep(Duration::from_millis(random.below(5)));
        }
    }
    world.crash();
    archive.crash();
    drop(logs);
    let choice = match random.below(4) {
        0 => CrashChoice::Nothing,
        1 => CrashChoice::Everything,
        _ => CrashChoice::Random(seed),
    };
    let (world, archive) = (world.crash_image(&choice), archive.crash_image(&choice));
    let what = format!("seed {seed}, {domain:?}");

    let left = world.disk.image();

    // In the state after the crash, in which the logs have not been cut. With rings the end of the
    // logs is missing.
    let uncut = domain.is_none().then(|| backup.restore(Some(&archive), Some(&world.disk), Gsn::ZERO));
    let known = Known { from: &from, earlier: (Gsn::ZERO, &[]), complete: needed, ..Known::default() };
    let options = world.options(&base(&archive));
    let found = Log::find(&arc(&world.disk), &WalOptions { logs: COUNT, ..options.clone() }, DATABASE, &known, None);
    let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
    let cut = found.cut();
    let logs = found.open().unwrap_or_else(|error| panic!("{what}: {error}"));
    let complete = Gsn::new(logs.stats().hardened_gsn.get() - 1);
    if let Some((restored, end)) = uncut {
        assert_eq!(end, complete, "{what}");
        check(&restored, &mut history.clone()).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    // The history forgets what has been cut off.
    history.changes.retain(|change| change.0 <= complete);
    history.page_gsns.iter_mut().for_each(|gsn| *gsn = Gsn::ZERO);
    history.versions.iter_mut().for_each(|version| *version = 0);
    for (gsn, page, version) in &history.changes {
        history.page_gsns[*page] = *gsn;
        history.versions[*page] = version + 1;
    }
    work(&logs, &mut history, &mut random, 300).unwrap();
    logs.await_archive();
    assert!(logs.archive_failure().is_none());
    let only_archive = archive.image();
    let last = harden_all(&logs);
    logs.close().unwrap();
    drop(logs);
    if domain.is_none() {
        // Logs as the crash left them, and an archive that has continued since: together they may
        // not form a history at all.
        match backup.try_chains(Some(&archive), Some(&left)) {
            Err(WalError::OlderLogs { than: "archive", .. }) => *refused += 1,
            Err(error) => panic!("{what}: {error}"),
            Ok(_) => {
                let (restored, end) = backup.restore(Some(&archive), Some(&left), Gsn::ZERO);
                let mut known = history.clone();
                known.changes.retain(|change| change.0 <= end);
                known.acknowledged = end;
                check(&restored, &mut known).unwrap_or_else(|error| panic!("{what}, older logs: {error}"));
            }
        }
    }
    history.acknowledged = last;
    let (restored, end) = backup.restore(Some(&archive), Some(&world.disk), cut.unwrap_or_default());
    assert!(end >= last, "{what}: {end}, {last:?}");
    check(&restored, &mut history.clone()).unwrap_or_else(|error| panic!("{what}, at the end: {error}"));
    let (restored, end) = backup.restore(Some(&only_archive), None, Gsn::ZERO);
    history.changes.retain(|change| change.0 <= end);
    history.acknowledged = end;
    check(&restored, &mut history).unwrap_or_else(|error| panic!("{what}, the archive alone: {error}"));
    assert!(archived(&archive).iter().sum::<u64>() > 0 || history.changes.len() < 600);
}

#[test]
fn power_cuts_of_logs_and_archive() {
    let (mut lives, mut refused) = (0, 0);
    for seed in Stride::sampled("power cuts of logs and archive", 1, 2).until(60) {
        life(seed, None, &mut refused);
        lives += 1;
    }
    let least = if is_long() { lives / 2 } else { lives / 3 };
    assert!(refused >= least, "{refused} of {lives} times were logs older than the archive");
}

#[test]
fn power_cuts_of_logs_that_end_in_rings() {
    for seed in 0..20 {
        life(seed, Some([Domain::DurableCache, Domain::VolatileCache][seed as usize % 2]), &mut 0);
    }
}
