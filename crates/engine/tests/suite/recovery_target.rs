//! Checkpoints keep short the log that recovery has to read.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use duramen::{Db, Error, Options, RecoveryObserver, RecoveryPass};
use duramen_io::{CrashChoice, SimDisk};

const MIB: u64 = 1 << 20;

/// Logs about 50 MiB of updates of few pages, crashes, and returns the log that recovery redoes, in
/// bytes.
fn redone(recovery_target: Option<Duration>) -> u64 {
    let disk = SimDisk::new(1);
    let options = Options { pool_bytes: 16 << 20, log_segment_bytes: MIB, recovery_target, ..Options::default() };
    let db = Db::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("t").unwrap();
    for value in 0..300_u64 {
        let mut txn = db.begin();
        for row in 0..100_u64 {
            txn.put(&table, &row.to_be_bytes(), &[value as u8; 1000]).unwrap();
        }
        txn.commit().unwrap();
    }
    let logged = db.metrics().log.bytes;
    assert!(logged > 40 * MIB, "{logged}");
    let image = disk.crash_image(&CrashChoice::Nothing);
    drop(db);

    let total = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&total);
    let observer = RecoveryObserver::new(move |progress| {
        if progress.pass == RecoveryPass::Redo {
            told.store(progress.total.unwrap_or_default(), Ordering::Relaxed);
        }
    });
    let db = Db::open_on(Arc::new(image), Options { recovery_observer: Some(observer), ..options }).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(db.begin().get(&table, &7_u64.to_be_bytes()).unwrap(), Some(vec![43; 1000]));
    total.load(Ordering::Relaxed)
}

#[test]
fn a_short_target_leaves_little_log_to_recover() {
    // A quarter of the log, and as much again in case that checkpoints are held up.
    let (short, usual) = (redone(Some(Duration::from_millis(40))), redone(None));
    assert!(short < 30 * MIB, "{short}");
    assert!(usual > 40 * MIB, "by default, no checkpoint is due: {usual}");
}

#[test]
fn a_target_beside_checkpoint_bytes_is_refused() {
    let open = |options| Db::open_on(Arc::new(SimDisk::new(2)), options);
    let second = Some(Duration::from_secs(1));
    let both = Options { recovery_target: second, checkpoint_bytes: Some(MIB), ..Options::default() };
    let short = Options { recovery_target: Some(Duration::from_millis(9)), ..Options::default() };
    for (options, says) in [(both, "give one"), (short, "10 milliseconds")] {
        let error = open(options).unwrap_err();
        assert!(matches!(error, Error::InvalidOption { option: "recovery_target", .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}
