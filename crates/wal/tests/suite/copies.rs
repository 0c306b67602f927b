//! Copies of an open log, logs assembled from pieces, and other databases' logs made of them.
#![cfg(not(duramen_loom))]

use duramen_io::{CrashChoice, Disk, SimDisk};
use duramen_types::{Gsn, LogId, Lsn};
use duramen_wal::{Archive, Cut, FIRST_LSN, InsertDesign, Log, LogPart, LogPieces, Pieces, WalError, WalOptions};

use crate::common::*;

const OTHER: [u8; 16] = *b"restored databas";

/// A log of which a backup was taken in the middle, archived or not.
struct World {
    disk: SimDisk,
    archive: SimDisk,
    backup: SimDisk,
    /// The start of the backup.
    start: Lsn,
    end: Lsn,
    /// All records, from the first on.
    records: Vec<Record>,
}

fn fill(wal: &Log, numbers: std::ops::Range<u64>, records: &mut Vec<Record>) {
    for number in numbers {
        let len = [100, 16_000, 5_000, 0, 9_000][number as usize % 5];
        let inserted = insert(wal, number, len);
        wal.wait_hardened(inserted.gsn, None).unwrap();
        records.push(wal.read_at(inserted.lsn).unwrap());
    }
}

impl World {
    fn new(is_archived: bool) -> Self {
        let (disk, archive, backup) = (SimDisk::new(1), SimDisk::new(2), SimDisk::new(3));
        let archive_here = is_archived.then(|| Archive::on(arc(&archive)));
        let options = WalOptions { max_bytes: 16 << 20, archive: archive_here, ..options(InsertDesign::Hybrid) };
        let wal = Log::create(&arc(&disk), &options, DATABASE).unwrap();
        let mut records = Vec::new();
        fill(&wal, 0..20, &mut records);
        wal.await_archive();
        wal.recycle_to(records[9].lsn).unwrap();
        let hold = wal.hold();
        fill(&wal, 20..40, &mut records);
        wal.await_archive();
        let start = records[15].lsn;
        hold.keep_from(&[start]);
        wal.recycle_to(records[30].lsn).unwrap();
        assert!(wal.start() <= start, "it is held");
        let ends = wal.ends_before(Gsn::new(wal.end().get())).unwrap();
        hold.copy_to(&backup, &[start], &ends, |_| {}).unwrap();
        assert_eq!(ends, [wal.end()]);
        drop(hold);
        fill(&wal, 40..80, &mut records);
        wal.await_archive();
        wal.recycle_to(records[30].lsn).unwrap();
        assert_eq!(wal.start(), records[30].lsn);
        wal.close().unwrap();
        Self { disk, archive, backup: backup.crash_image(&CrashChoice::Nothing), start, end: ends[0], records }
    }

    fn part(&self) -> LogPart {
        LogPart { log: LogId::ZERO, count: 1, start: self.start, end: self.end }
    }

    fn chain(&self, archive: bool, log: bool) -> Result<LogPieces, WalError> {
        let pieces = Pieces {
            backup: &self.backup,
            archive: archive.then_some(&self.archive as &dyn Disk),
            log: log.then_some(&self.disk as &dyn Disk),
        };
        LogPieces::open(&pieces, DATABASE, self.part())
    }

    /// Makes a log of everything before `cut` and checks it.
    fn check(&self, chain: &LogPieces, cut: Lsn) {
        let made = SimDisk::new(4);
        chain.write_to(&made, OTHER, cut, |_| {}).unwrap();
        let made = made.crash_image(&CrashChoice::Nothing);
        assert!(matches!(reader(&made, Some(DATABASE)), Err(WalError::WrongDatabase { .. })));
        let wal = Log::open(&arc(&made), &options(InsertDesign::Hybrid), OTHER, Some(self.start)).unwrap();
        assert_eq!((wal.start(), wal.end()), (self.start, cut));
        let expected: Vec<Record> =
            self.records.iter().filter(|record| record.lsn >= self.start && record.lsn < cut).cloned().collect();
        assert_eq!(read_all(&wal, wal.start()).unwrap(), expected);
        // The new log can continue.
        let inserted = insert(&wal, 1000, 12_000);
        assert_eq!(inserted.lsn, cut);
        wal.wait_hardened(inserted.gsn, None).unwrap();
        let expected = wal.end();
        drop(wal);
        let made = made.crash_image(&CrashChoice::Nothing);
        let wal = Log::open(&arc(&made), &options(InsertDesign::Hybrid), OTHER, Some(self.start)).unwrap();
        assert_eq!(wal.end(), expected);
    }
}

#[test]
fn a_backup_alone_is_a_log_up_to_its_end() {
    let world = World::new(false);
    let chain = world.chain(false, false).unwrap();
    let cut = chain.find_cut(|_| false).unwrap();
    assert_eq!(cut, Cut { at: world.end, is_record: false, gap: None });
    world.check(&chain, cut.at);
    assert_eq!(reader(&world.backup, Some(DATABASE)).unwrap().scan(None).unwrap().position(), world.start);
}

#[test]
fn a_log_can_be_cut_at_every_record() {
    let world = World::new(true);
    for (archive, log) in [(true, true), (false, true), (true, false)] {
        let chain = world.chain(archive, log).unwrap();
        let end = chain.find_cut(|_| false).unwrap();
        let all = world.records.last().unwrap().end;
        if log {
            assert_eq!(end, Cut { at: all, is_record: false, gap: None });
        } else {
            assert!(!end.is_record && end.gap.is_none());
            assert!(end.at < all && end.at.get() + (100 << 10) > all.get());
        }
        for record in world.records.iter().filter(|record| record.lsn >= world.end && record.lsn < end.at) {
            let cut = chain.find_cut(|other| other.lsn >= record.lsn).unwrap();
            assert_eq!(cut, Cut { at: record.lsn, is_record: true, gap: None });
            world.check(&chain, cut.at);
        }
        world.check(&chain, end.at);
    }
}

#[test]
fn a_gap_is_found_and_named() {
    let world = World::new(true);
    let name = |number: u64| format!("log/{number:016x}.log");
    let of_end = (world.end.get() - FIRST_LSN.get()) / ((64 << 10) - 4096);
    for missing in [of_end, of_end + 1, of_end + 2] {
        let archive = world.archive.image();
        archive.remove(&name(missing)).unwrap();
        let world = World {
            archive,
            backup: world.backup.image(),
            disk: world.disk.image(),
            records: world.records.clone(),
            ..world
        };
        let cut = world.chain(true, false).unwrap().find_cut(|_| false).unwrap();
        assert_eq!(cut.gap, Some(missing));
        assert!(cut.at >= world.end);
        // The log still contains it.
        let cut = world.chain(true, true).unwrap().find_cut(|_| false).unwrap();
        assert_eq!((cut.gap, cut.at), (None, world.records.last().unwrap().end));
    }
    // Records that the backup itself must contain.
    let backup = world.backup.image();
    backup.remove(&name(of_end - 1)).unwrap();
    let world = World { backup, archive: SimDisk::new(1), disk: SimDisk::new(1), records: Vec::new(), ..world };
    let refused = world.chain(false, false).unwrap_err();
    assert!(matches!(refused, WalError::MissingSegment { segment, .. } if segment == of_end - 1), "{refused}");
}

/// Returns the file of an LSN, and the place in it.
fn place(lsn: u64) -> (String, u64) {
    let number = (lsn - FIRST_LSN.get()) / ((64 << 10) - 4096);
    (format!("log/{number:016x}.log"), 4096 + (lsn - FIRST_LSN.get()) % ((64 << 10) - 4096))
}

#[test]
fn damage_is_noticed_before_the_end_and_in_the_archive() {
    let world = World::new(true);
    for record in world.records.iter().filter(|record| record.lsn >= world.start && record.end <= world.end) {
        let backup = world.backup.image();
        let (name, byte) = place(record.lsn.get() + 20);
        backup.flip_bit(&name, byte, 3);
        let damaged =
            World { backup, archive: world.archive.image(), disk: world.disk.image(), records: Vec::new(), ..world };
        let found = damaged.chain(false, false).unwrap().find_cut(|_| false);
        assert!(matches!(found, Err(WalError::Corrupt { .. })), "{found:?}");
    }
    let chain_end = world.chain(true, false).unwrap().find_cut(|_| false).unwrap().at;
    for record in world.records.iter().filter(|record| record.lsn >= world.end && record.end <= chain_end) {
        let archive = world.archive.image();
        let (name, byte) = place(record.lsn.get() + 20);
        archive.flip_bit(&name, byte, 3);
        let damaged =
            World { archive, backup: world.backup.image(), disk: world.disk.image(), records: Vec::new(), ..world };
        let found = damaged.chain(true, false).unwrap().find_cut(|_| false);
        assert!(matches!(found, Err(WalError::Corrupt { .. })), "{record:?} {found:?}");
    }
}

/// In the log itself, too: reading ended there, as if the log had, and what followed was lost.
#[test]
fn damage_to_the_log_itself_is_not_its_end() {
    let world = World::new(false);
    let all = world.records.last().unwrap().end;
    let last = world.records.last().unwrap().lsn;
    for record in world.records.iter().filter(|record| record.lsn >= world.end && record.lsn < last) {
        let disk = world.disk.image();
        let (name, byte) = place(record.lsn.get() + 20);
        disk.flip_bit(&name, byte, 3);
        let damaged =
            World { disk, archive: world.archive.image(), backup: world.backup.image(), records: Vec::new(), ..world };
        let chain = damaged.chain(false, true).unwrap();
        // Points before it can be restored.
        assert_eq!(chain.find_cut(|_| false).unwrap(), Cut { at: record.lsn, is_record: false, gap: None });
        let found = chain.to_the_end(Lsn::ZERO, None).find_cut(|_| false);
        assert!(matches!(found, Err(WalError::Corrupt { .. })), "{record:?} {found:?}");
    }
    // Nothing follows the last record, so only its owner knows that it was hardened.
    let disk = world.disk.image();
    let (name, byte) = place(last.get() + 20);
    disk.flip_bit(&name, byte, 3);
    let world =
        World { disk, archive: world.archive.image(), backup: world.backup.image(), records: Vec::new(), ..world };
    let chain = world.chain(false, true).unwrap().to_the_end(Lsn::ZERO, None);
    assert_eq!(chain.find_cut(|_| false).unwrap(), Cut { at: last, is_record: false, gap: None });
    let found = chain.to_the_end(all, None).find_cut(|_| false);
    assert!(matches!(found, Err(WalError::Corrupt { .. })), "{found:?}");
}

/// A length that has become larger than the rest of the archive is no record that goes on in the
/// next segment.
#[test]
fn a_damaged_length_does_not_end_the_archive() {
    let world = World::new(true);
    let chain_end = world.chain(true, false).unwrap().find_cut(|_| false).unwrap().at;
    let behind = |record: &&Record| record.lsn >= world.end && record.end < chain_end;
    for record in world.records.iter().filter(behind) {
        for bit in 0..16 {
            let archive = world.archive.image();
            let (name, byte) = place(record.lsn.get() + 4 + bit / 8);
            archive.flip_bit(&name, byte, (bit % 8) as u8);
            let damaged =
                World { archive, backup: world.backup.image(), disk: world.disk.image(), records: Vec::new(), ..world };
            let found = damaged.chain(true, false).unwrap().find_cut(|_| false);
            assert!(matches!(found, Err(WalError::Corrupt { .. })), "{record:?} {found:?}");
        }
    }
}

#[test]
fn pieces_of_another_database_are_refused() {
    let world = World::new(true);
    let other = SimDisk::new(7);
    drop(Log::create(&arc(&other), &options(InsertDesign::Hybrid), OTHER).unwrap());
    let pieces = Pieces { backup: &world.backup, archive: Some(&other), log: None };
    for pieces in [pieces, Pieces { archive: None, log: Some(&other), ..pieces }] {
        let refused = LogPieces::open(&pieces, DATABASE, world.part());
        assert!(matches!(refused, Err(WalError::WrongDatabase { .. })), "{refused:?}");
    }
}
