//! What a snapshot shows is what a restore to its position has.
#![cfg(not(any(duramen_loom, duramen_machine)))]

use duramen::{Gsn, Restore, RestoreTo, Table};
use duramen_io::SimDisk;

use crate::archived::{Model, World, arc, check, contents, restored};

#[test]
fn a_snapshot_shows_what_a_restore_to_its_position_has() {
    for logs in [1, 3] {
        let world = World::new(3, |options| {
            options.logs = logs;
            options.snapshots = true;
            options.version_bytes = Some(64 << 20);
        });
        let backup = SimDisk::new(3);
        let shown: Vec<(Gsn, Model, Model)> = world.under_load(|| {
            world.grow_by(300 << 10);
            world.db.backup_to(&backup, |_| {}).unwrap();
            let look = |_| {
                world.grow_by(100 << 10);
                let snapshot = world.db.snapshot().unwrap();
                world.grow_by(30 << 10);
                let all = |table: &Table| snapshot.scan(table, ..).map(|row| row.unwrap()).collect();
                (snapshot.gsn(), all(&world.rows), all(&world.accounts))
            };
            (0..5).map(look).collect()
        });
        let (disk, archive, options) = world.close();
        for (gsn, rows, accounts) in shown {
            let from = Restore::from_disk(arc(&backup)).archive_on(arc(&archive)).log_on(arc(&disk));
            let (_, db) = restored(from.to(RestoreTo::Gsn(Gsn::new(gsn.get() + 1))), &options);
            check(&db);
            assert_eq!(contents(&db, "accounts"), accounts, "{logs} logs, {gsn}");
            assert!(contents(&db, "rows") == rows, "{logs} logs, {gsn}");
        }
    }
}
