//! Several logs as one: GSNs order records that depend on each other, and whatever a crash leaves
//! is cut at a point where nothing is missing.
#![cfg(not(duramen_loom))]

use duramen_io::{CrashChoice, SimDisk};
use duramen_pmem::Domain;
use duramen_test_support::is_long;
use duramen_types::{Gsn, LogAddress, LogId, Lsn};
use duramen_wal::{Extent, FIRST_LSN, FoundLog, InsertDesign, Inserted, Known, Log, NewRecord, WalError, WalOptions};

use crate::common::several::*;
use crate::common::world::World;
use crate::common::*;

const DOMAINS: [Domain; 2] = [Domain::DurableCache, Domain::VolatileCache];

#[test]
fn at_every_operation() {
    let mut cuts = 0;
    for (seed, design) in DESIGNS.into_iter().enumerate() {
        for count in [2, 3] {
            let stride = Stride::sampled("crashes of several logs", 3, 5);
            let sweep = Sweep { design, count, domain: None, seed: 10 + seed as u64, stride, steps: 60 };
            cuts += crash_everywhere(sweep).unwrap();
        }
    }
    assert!(cuts > if is_long() { 50 } else { 10 }, "logs had to be cut {cuts} times only");
}

/// With the end of each log in a ring.
#[test]
fn at_every_operation_of_rings() {
    let mut cuts = 0;
    for domain in DOMAINS {
        for (seed, design) in DESIGNS.into_iter().enumerate() {
            let count = 2 + seed as u16 % 2;
            let stride = Stride::sampled("crashes of several rings", 23, 3);
            let sweep = Sweep { design, count, domain: Some(domain), seed: 10 + seed as u64, stride, steps: 60 };
            cuts += crash_everywhere(sweep).unwrap();
            // So much that the rings are de-staged.
            let stride = Stride::sampled("crashes of full rings", 311, 3);
            cuts += crash_everywhere(Sweep { stride, steps: 400, ..sweep }).unwrap();
        }
    }
    assert!(cuts > if is_long() { 50 } else { 10 }, "logs had to be cut {cuts} times only");
}

/// One log has de-staged what depends on a record that the other one has lost: it is cut before the
/// beginning of its ring, in the same block or in another. The power goes off at each operation of
/// the disk and the memories while the logs are cut.
#[test]
fn a_log_is_cut_before_what_its_ring_begins_with() {
    cut_before_ring(1, 100);
    cut_before_ring(20, 1000);
    // The ring has no room for all of them.
    cut_before_ring(120, 1000);
}

fn cut_before_ring(changes: usize, size: usize) {
    let options = options(InsertDesign::Hybrid);
    let world = World::new(1, Some(Domain::VolatileCache), 2);
    let logs =
        Log::create(&disk_of(&world.disk), &WalOptions { logs: 2, ..world.options(&options) }, DATABASE).unwrap();
    let mut history = History::default();
    work(&logs, &mut history, &mut Rng::new(5), 12).unwrap();
    let after = history.page_gsns.into_iter().max().unwrap();
    let commit = logs.insert(LogId::ZERO, NewRecord { kind: 2, after, ..record(1, &[]) });
    logs.wait_hardened(commit.gsn, None).unwrap();
    history.acknowledged = commit.gsn;
    let mut payload = Vec::new();
    let mut change = |log: u16, size: usize| {
        let new = change(0, history.versions[0], commit.gsn.max(history.page_gsns[0]), size, &mut payload);
        let inserted = logs.insert(LogId::new(log), new);
        history.changes.push((inserted.gsn, 0, history.versions[0]));
        history.page_gsns[0] = inserted.gsn;
        history.versions[0] += 1;
    };
    // Not fenced: another thread does the rest.
    change(1, 100);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            (0..changes).for_each(|_| change(0, size));
            logs.before_blocking();
            let mut scanner = logs.scan(LogId::ZERO, FIRST_LSN);
            while scanner.next().unwrap().is_some() {}
            let destaged = scanner.position();
            change(0, 50);
            logs.before_blocking();
            destaged
        });
        let destaged = others.join().unwrap();
        assert!(destaged > commit.end, "what is behind the commit is in the segments");
        assert_eq!(destaged.get() / 4096 == commit.end.get() / 4096, changes == 1);
    });
    world.crash();
    drop(logs);
    let crashed = || world.crash_image(&CrashChoice::Nothing);
    let mut interrupted = 0;
    for device in 0..world.devices() {
        for at in Stride::sampled("crashes while a log is cut", 1, 5).until(u64::MAX) {
            let (mut history, image) = (history.clone(), crashed());
            image.crash_at(device, at);
            let outcome = reopen(&image.disk, &image.options(&options), 2, &mut history);
            let was_off = image.is_off();
            assert!(outcome.is_ok() || was_off, "device {device}, operation {at}: {:?}", outcome.err());
            drop(outcome);
            assert!(history.is_cutting || was_off);
            interrupted += u64::from(was_off && history.is_cutting);
            image.crash();
            for choice in [CrashChoice::Nothing, CrashChoice::Everything, CrashChoice::Random(at)] {
                let (mut history, image) = (history.clone(), image.crash_image(&choice));
                let logs = reopen(&image.disk, &image.options(&options), 2, &mut history)
                    .unwrap_or_else(|error| panic!("device {device}, operation {at}, {choice:?}: {error}"));
                check(&logs, &mut history).unwrap_or_else(|what| panic!("device {device}, operation {at}: {what}"));
                assert_eq!(history.versions[0], history.changes.iter().filter(|change| change.1 == 0).count() as u64);
                assert!(history.changes.iter().all(|change| change.0 <= commit.gsn), "nothing else may be there");
                work(&logs, &mut history, &mut Rng::new(at), 12).unwrap();
            }
            if !was_off {
                break;
            }
        }
    }
    assert!(interrupted > if is_long() { 20 } else { 0 }, "cutting was interrupted {interrupted} times");
}

#[test]
fn one_log_is_the_same_code() {
    let disk = SimDisk::new(1);
    let options = options(InsertDesign::Hybrid);
    let logs = Log::create(&disk_of(&disk), &WalOptions { logs: 1, ..options.clone() }, DATABASE).unwrap();
    let mut history = History::default();
    work(&logs, &mut history, &mut Rng::new(1), 100).unwrap();
    let last = history.changes.last().unwrap().0;
    logs.wait_hardened(last, None).unwrap();
    drop(logs);
    let wal = duramen_wal::Log::open(&arc(&disk), &options, DATABASE, None).unwrap();
    let records = read_all(&wal, FIRST_LSN).unwrap();
    assert!(records.iter().all(|record| record.gsn.get() == record.lsn.get() && record.log == LogId::ZERO));
    assert_eq!(records.iter().filter(|record| record.kind == 1).count(), 100);
}

/// Threads that pass a few pages round between the logs.
#[test]
fn threads_keep_every_log_and_every_page_in_order() {
    for design in DESIGNS {
        let disk = SimDisk::new(1);
        let options = WalOptions { ring_bytes: 1 << 18, max_bytes: 64 << 20, ..options(design) };
        let logs = Log::create(&disk_of(&disk), &WalOptions { logs: 3, ..options.clone() }, DATABASE).unwrap();
        let pages: Vec<_> = (0..PAGES).map(|_| std::sync::Mutex::new((Gsn::ZERO, 0_u64))).collect();
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (logs, pages) = (&logs, &pages);
                scope.spawn(move || {
                    let mut random = Rng::new(thread);
                    let mut payload = Vec::new();
                    for step in 0..2000 {
                        let page = random.below(PAGES as u64) as usize;
                        let log = LogId::new(thread as u16);
                        let mut own = pages[page].lock().unwrap();
                        let new = change(page, own.1, own.0, random.below(100) as usize, &mut payload);
                        let inserted = logs.insert(log, new);
                        *own = (inserted.gsn, own.1 + 1);
                        drop(own);
                        if step % 50 == 0 {
                            let commit = logs.insert(log, NewRecord { kind: 2, ..record(1, &[]) });
                            logs.wait_hardened(commit.gsn, Some(commit.address())).unwrap();
                        }
                    }
                });
            }
        });
        let after = pages.iter().map(|page| page.lock().unwrap().0).max().unwrap();
        let last = logs.insert(LogId::ZERO, NewRecord { kind: 2, after, ..record(1, &[]) });
        logs.wait_hardened(last.gsn, None).unwrap();
        let stats = logs.stats();
        assert_eq!(stats.records, 3 * 2000 + 3 * 40 + 1 + stats.sync_records);
        assert!((1..=121).contains(&stats.sync_records), "at most one for each commit: {stats:?}");
        disk.crash();
        drop(logs);
        let image = disk.crash_image(&CrashChoice::Nothing);
        let logs = reopen(&image, &options, 3, &mut History::default()).unwrap();
        let mut found = [0_u64; PAGES];
        for record in read_merged(&logs, &[FIRST_LSN; 3]).unwrap() {
            if record.kind == 1 {
                let page = record.page.get() as usize - 1;
                assert_eq!(u64::from_le_bytes(record.payload[..8].try_into().unwrap()), found[page], "{design}");
                found[page] += 1;
            }
        }
        assert_eq!(found.to_vec(), pages.iter().map(|page| page.lock().unwrap().1).collect::<Vec<_>>());
    }
}

/// All commits that wait for the logs at the same time share sync records; a thread that waits for
/// each of its commits has one for each.
#[test]
fn commits_that_wait_together_share_sync_records() {
    const COMMITS: u64 = 100;
    let shapes = [(1, 1), (1, 20), (2, 2), (12, 20)];
    let all = [None].into_iter().chain(DOMAINS.map(Some)).flat_map(|domain| shapes.map(|shape| (domain, shape)));
    for (domain, (threads, together)) in all {
        let world = World::new(1, domain, 3);
        let options = WalOptions { logs: 3, ..world.options(&options(InsertDesign::Hybrid)) };
        let logs = Log::create(&disk_of(&world.disk), &options, DATABASE).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let logs = &logs;
                scope.spawn(move || {
                    let commit = |number| logs.insert(LogId::new(thread % 3), record(number, &[]));
                    for number in 0..COMMITS / together {
                        let requested: Vec<_> = (1..together).map(|_| logs.harden(commit(number).gsn)).collect();
                        let last = commit(number);
                        logs.wait_hardened(last.gsn, Some(last.address())).unwrap();
                        assert!(logs.is_hardened(last.gsn));
                        requested.iter().for_each(|requested| requested.wait().unwrap());
                    }
                });
            }
        });
        let (stats, commits) = (logs.stats(), COMMITS * u64::from(threads));
        assert!(stats.waits_for_logs <= commits && stats.hardening_waits <= commits, "{domain:?}: {stats:?}");
        match together {
            1 => assert_eq!((stats.sync_records, stats.waits_for_logs), (commits, commits), "{domain:?}: {stats:?}"),
            2 => {}
            _ => assert!(stats.sync_records < commits / 2, "{domain:?}: {stats:?}"),
        }
    }
}

/// A reader that learns of a commit only by its GSN finds the commit hardened, in all logs.
#[test]
fn a_reader_of_a_commit_can_wait_for_it() {
    for domain in [None].into_iter().chain(DOMAINS.map(Some)) {
        let world = World::new(1, domain, 2);
        let options = world.options(&options(InsertDesign::Hybrid));
        let logs = Log::create(&disk_of(&world.disk), &WalOptions { logs: 2, ..options.clone() }, DATABASE).unwrap();
        let mut history = History::default();
        work(&logs, &mut history, &mut Rng::new(3), 20).unwrap();
        let commit = logs.insert(LogId::new(1), NewRecord { kind: 2, ..record(1, &[]) });
        assert!(!logs.is_hardened(commit.gsn));
        let (told, heard) = std::sync::mpsc::channel();
        logs.harden(commit.gsn).on_ready(move |outcome| told.send(outcome.is_ok()).unwrap());
        assert!(heard.recv().unwrap());
        assert!(logs.is_hardened(commit.gsn));
        history.acknowledged = commit.gsn;
        let image = world.crash_image(&CrashChoice::Nothing);
        check(&reopen(&image.disk, &image.options(&options), 2, &mut history).unwrap(), &mut history.clone()).unwrap();
    }
}

/// Every record that is inserted once a commit is complete has a GSN above the boundary.
#[test]
fn what_follows_a_boundary_comes_later_in_every_log() {
    for domain in [None].into_iter().chain(DOMAINS.map(Some)) {
        let world = World::new(1, domain, 3);
        let options = world.options(&options(InsertDesign::Hybrid));
        let logs = Log::create(&disk_of(&world.disk), &WalOptions { logs: 3, ..options.clone() }, DATABASE).unwrap();
        (0..20).for_each(|_| assert_eq!(logs.insert(LogId::new(1), record(1, &[0; 100])).log, LogId::new(1)));
        let commit = logs.insert(LogId::new(1), record(1, &[]));
        logs.wait_hardened(commit.gsn, None).unwrap();
        let boundary = Gsn::new(logs.hardened_below().get() - 1);
        assert!(boundary > commit.gsn);
        for log in [0, 2, 1] {
            assert!(logs.insert(LogId::new(log), record(2, &[])).gsn > boundary, "{domain:?}, log {log}");
        }
        logs.before_blocking();
    }
}

/// A request for which no thread waits is completed, and a thread that sleeps with undurable
/// insertions is drained once.
#[test]
fn a_request_is_seen_to_though_nobody_waits_and_a_thread_sleeps() {
    let world = World::new(1, Some(Domain::VolatileCache), 2);
    let options = world.options(&options(InsertDesign::Hybrid));
    let logs = Log::create(&disk_of(&world.disk), &WalOptions { logs: 2, ..options.clone() }, DATABASE).unwrap();
    let (inserted, wait) = (std::sync::Barrier::new(2), std::sync::Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = logs.insert(LogId::new(1), record(1, &[7; 500]));
            inserted.wait();
            wait.wait();
        });
        inserted.wait();
        for number in 0..10 {
            let commit = logs.insert(LogId::ZERO, record(2, &[8; 100]));
            drop(logs.harden(commit.gsn));
            while !logs.is_hardened(commit.gsn) {
                std::thread::yield_now();
            }
            assert_eq!(logs.stats().drains, 1, "commit {number}: the thread has inserted nothing since");
        }
        wait.wait();
    });
    let stats = logs.stats();
    assert_eq!((stats.waits_for_logs, stats.sync_records), (10, 10), "one at a time: {stats:?}");
}

fn two_logs(disk: &SimDisk) -> (Log, WalOptions) {
    let options = options(InsertDesign::Hybrid);
    (Log::create(&disk_of(disk), &WalOptions { logs: 2, ..options.clone() }, DATABASE).unwrap(), options)
}

/// Hardens a change in log 0 and then inserts changes in both, of which only log 1's gets to the
/// disk.
#[test]
fn what_depends_on_a_lost_record_is_cut_off() {
    let disk = SimDisk::new(1);
    let (logs, options) = two_logs(&disk);
    let insert =
        |log: u16, after: Gsn| -> Inserted { logs.insert(LogId::new(log), NewRecord { after, ..record(1, &[0; 64]) }) };
    let first = insert(0, Gsn::ZERO);
    let commit = logs.insert(LogId::ZERO, NewRecord { after: first.gsn, ..record(1, &[]) });
    logs.wait_hardened(commit.gsn, None).unwrap();
    let complete = Gsn::new(logs.hardened_below().get() - 1);
    assert!(complete > commit.gsn);
    let lost = insert(0, commit.gsn);
    let dependent = insert(1, lost.gsn);
    let unlucky = logs.insert(LogId::new(1), NewRecord { after: dependent.gsn, ..record(1, &[]) });
    let Extent { start, end, .. } = logs.extents()[1];
    assert!(start < end);
    logs.harden(unlucky.gsn).wait().unwrap();
    // As if the disk had dropped what log 0 has received since.
    let image = disk.crash_image(&CrashChoice::Everything);
    let segment = "log/0000000000000000.log";
    let offset = 4096 + (lost.lsn.get() - FIRST_LSN.get());
    for byte in offset..offset + 8 {
        image.flip_bit(segment, byte, 3);
    }
    let found = find(&image, &options, 2, &History::default()).unwrap();
    assert_eq!(found.cut(), Some(complete));
    let logs = found.open().unwrap();
    let last = read_merged(&logs, &[FIRST_LSN; 2]).unwrap().last().unwrap().gsn;
    assert!(commit.gsn < last && last < complete, "the sync record is the last one");
    assert!(logs.insert(LogId::new(1), record(1, &[])).gsn > complete);
    let mut reader = logs.read_back();
    let gone = reader.read(LogAddress::of(LogId::new(1), dependent.lsn));
    assert!(matches!(&gone, Err(WalError::InLog { log, .. }) if log.get() == 1), "{gone:?}");
}

#[test]
fn options_that_cannot_work_are_refused() {
    let disk = SimDisk::new(1);
    for (count, insert) in [(0, InsertDesign::Hybrid), (25, InsertDesign::Hybrid), (2, InsertDesign::Reserved)] {
        let refused = Log::create(&disk_of(&disk), &WalOptions { logs: count, ..options(insert) }, DATABASE);
        assert!(matches!(refused, Err(WalError::InvalidOption { .. })));
    }
}

/// A log of three cannot replace one of two, and one log cannot replace another.
#[test]
fn logs_know_each_other() {
    let disk = SimDisk::new(1);
    let (logs, options) = two_logs(&disk);
    logs.close().unwrap();
    drop(logs);
    for (count, from) in [(1, 1), (3, 3)] {
        let known =
            Known { from: &vec![FIRST_LSN; from], earlier: (Gsn::ZERO, &[]), complete: Gsn::ZERO, ..Known::default() };
        let found = Log::find(&disk_of(&disk), &WalOptions { logs: count, ..options.clone() }, DATABASE, &known, None)
            .and_then(FoundLog::open);
        assert!(matches!(found, Err(WalError::WrongDatabase { .. })), "{count}: {found:?}");
    }
}

/// Segments are recycled log by log, no further than records may be needed.
#[test]
fn recycling_leaves_what_is_needed() {
    let disk = SimDisk::new(1);
    let (logs, options) = two_logs(&disk);
    let mut random = Rng::new(5);
    let mut history = History::default();
    for _ in 0..30 {
        work(&logs, &mut history, &mut random, 60).unwrap();
        let commit = logs.insert(LogId::ZERO, NewRecord { kind: 2, ..record(1, &[]) });
        logs.wait_hardened(commit.gsn, None).unwrap();
        let needed = history.changes[history.changes.len() - 40].0;
        let positions = logs.positions_before(needed);
        logs.recycle_below(needed).unwrap();
        assert_eq!(logs.extents().iter().map(|extent| extent.start).collect::<Vec<_>>(), positions);
        let kept: Vec<Gsn> = read_merged(&logs, &positions).unwrap().iter().map(|record| record.gsn).collect();
        let wanted = history.changes.iter().filter(|change| change.0 >= needed);
        assert!(wanted.clone().count() > 0);
        for change in wanted {
            assert!(kept.contains(&change.0), "{change:?}");
        }
    }
    assert!(logs.stats().segments_recycled > 0 || logs.stats().segments_live < 20);
    assert!(logs.extents().iter().all(|extent| extent.start > Lsn::new(options.segment_bytes)));
}
