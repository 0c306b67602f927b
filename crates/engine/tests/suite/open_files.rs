//! The process reaches its limit of open files: operations that need another file fail, and nothing
//! else happens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use duramen::{Archive, Db, Error, Options};
use duramen_io::{Disk, Fault, SimDisk};
use duramen_test_support::Stride;

/// Returns options with segments so small that they are made, read, recycled and archived all the
/// time.
fn options(archive: &SimDisk, logs: u16, spares_are_made: bool) -> Options {
    Options {
        logs,
        pool_bytes: 1 << 20,
        log_segment_bytes: 128 << 10,
        log_buffer_bytes: 64 << 10,
        log_max_bytes: if spares_are_made { 4 << 20 } else { 1 << 20 },
        checkpoint_bytes: Some(256 << 10),
        archive: Some(Archive::on(Arc::new(archive.clone()))),
        ..Options::default()
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Runs transactions, each of which may fail only for lack of a file; returns the number of
/// failures.
fn run(db: &Db, model: &mut Model, round: u8) -> usize {
    let table = match db.open_table("t") {
        Ok(table) => table,
        Err(Error::NoSuchTable { .. }) => db.create_table("t").unwrap(),
        Err(error) => panic!("{error}"),
    };
    let mut refused = 0;
    for number in 0..40_u8 {
        let (mut txn, mut then) = (db.begin(), model.clone());
        let done = (0..8_u8).try_for_each(|key| {
            let (key, value) = (vec![number % 5, key], vec![round.wrapping_add(number); 2000]);
            txn.put(&table, &key, &value)?;
            then.insert(key, value);
            Ok(())
        });
        match done.and_then(|()| txn.commit()) {
            Ok(()) => *model = then,
            Err(Error::TooManyFiles { .. }) => refused += 1,
            // The log is full because no segment can be archived at this moment.
            Err(Error::Full { .. }) => refused += 1,
            Err(error) => panic!("transaction {number}: {error}"),
        }
    }
    refused
}

fn contents(db: &Db) -> Model {
    let table = db.open_table("t").unwrap();
    let mut txn = db.begin();
    txn.scan(&table, ..).map(|row| row.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// "Too many open files" during the preparation of a spare segment put the database out of service
/// for good, although no important operation had failed. Transactions should get a temporary error,
/// and succeed again when files can be opened.
#[test]
fn too_many_open_files_pass() {
    for logs in [1, 3] {
        for seed in Stride::sampled("too many open files", 1, 3).until(8) {
            let (disk, archive) = (SimDisk::new(seed), SimDisk::new(seed + 100));
            let open = || Db::open_on(Arc::new(disk.clone()) as Arc<dyn Disk>, options(&archive, logs, seed % 2 == 0));
            let (db, mut model) = (open().unwrap(), Model::new());
            run(&db, &mut model, 0);
            let mut refused = 0;
            for round in 1..6 {
                disk.fail_at(disk.operations() + 7 * seed + u64::from(round), Fault::TooManyFiles, round % 2 == 0);
                if round == 3 {
                    archive.fail_at(archive.operations() + seed, Fault::TooManyFiles, true);
                }
                // A commit whose part of the log is in a segment that cannot be opened waits until
                // the segment can be opened.
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        std::thread::sleep(Duration::from_millis(40));
                        disk.clear_faults();
                    });
                    refused += run(&db, &mut model, round * 40);
                });
                match db.checkpoint() {
                    Ok(()) | Err(Error::TooManyFiles { .. }) => {}
                    Err(error) => panic!("checkpoint: {error}"),
                }
                disk.clear_faults();
                archive.clear_faults();
                // The archiver tries again after a while.
                let passed = (0..250).any(|attempt| {
                    std::thread::sleep(Duration::from_millis(attempt.min(1) * 10));
                    run(&db, &mut model, round * 40 + 20) == 0
                });
                assert!(passed, "files can be opened again");
            }
            assert!(refused > 0, "no file was missing: {logs} logs, seed {seed}");
            assert_eq!(contents(&db), model);
            db.close().unwrap();
            assert_eq!(contents(&open().unwrap()), model);
        }
    }
}
